"""Vectorisation: lanes of accesses, reductions, shuffles, matrix fragments."""
