"""``@weft.critical``: functions for the critical path, from Python to machine code and its proof."""
