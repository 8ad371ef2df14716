"""Functions and kernels as ES modules and static pages, which run by WebGPU in browsers."""
