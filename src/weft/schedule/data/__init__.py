"""Primitives that move data: staging, packing, prefetches, matrix registers, windows."""
