"""Loop nests of sorts, selections and compactions."""
