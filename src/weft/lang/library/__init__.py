"""Python's builtins, `math` and NumPy's functions in kernels."""
