"""Loop nests of attention and its gradient."""
