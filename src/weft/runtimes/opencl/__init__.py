"""Devices of OpenCL drivers, by pyopencl."""
