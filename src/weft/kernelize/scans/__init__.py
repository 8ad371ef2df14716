"""Loop nests of scans and scatters."""
