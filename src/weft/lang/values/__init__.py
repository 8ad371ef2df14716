"""Kinds of values in kernels, one a module: complex numbers, times, texts, structs, records."""
