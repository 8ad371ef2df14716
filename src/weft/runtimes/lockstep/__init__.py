"""The interpreter device: kernels of threads, all threads of a block in step, in NumPy."""
