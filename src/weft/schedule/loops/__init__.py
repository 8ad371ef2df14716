"""Primitives that change loops and reductions."""
