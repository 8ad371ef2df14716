"""Lazy tensors: values, views, state, and the capture of what a function does."""
