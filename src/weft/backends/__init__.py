"""Backends: one file for each device, joining a target, renderers, compilers and a runtime."""
