"""Renderers: a kernel-level list to the text that a compiler takes."""
