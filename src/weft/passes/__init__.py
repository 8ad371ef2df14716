"""Rewrites of one kernel, from the scheduled loop nest to the linear list renderers walk."""
