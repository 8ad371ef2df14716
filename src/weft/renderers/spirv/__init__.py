"""SPIR-V for Vulkan: kernels as compute shaders, written as binary words."""
