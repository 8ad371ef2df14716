"""Kernels in WGSL, the language of WebGPU."""
