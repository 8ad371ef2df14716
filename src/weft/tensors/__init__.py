"""Lazy tensors: the public array interface, autograd, random numbers, NumPy's protocols."""
