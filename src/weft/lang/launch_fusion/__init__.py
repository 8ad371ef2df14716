"""`weft.fuse`: launches that are noted and run as few kernels as possible."""
