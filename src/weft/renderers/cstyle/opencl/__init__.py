"""OpenCL C: kernels as grids of work-groups."""
