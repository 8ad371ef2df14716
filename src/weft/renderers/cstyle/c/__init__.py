"""Kernels in C for gcc and clang: vectors, parallel regions, failures."""
