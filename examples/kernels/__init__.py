"""Kernels that people know, each in a file of its own that runs by itself."""
