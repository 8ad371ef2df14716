"""Rewrites of whole-array graphs: gradients, simplification."""
