"""Devices of WebGPU, by the package wgpu."""
