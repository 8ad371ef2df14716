"""Arrays of other libraries in and out: NumPy, the buffer protocol, DLPack."""
