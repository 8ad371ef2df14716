"""``numba.cuda.kernels``: kernels that programs take ready-made."""
