"""The CPU as a device: its queue, programs and tile registers, and kernels of `cpu/c`."""
