"""Consecutive launches as one: footprints, conflicts, the fused kernel."""
