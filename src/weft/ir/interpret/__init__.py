"""Interpreters of the IR: the meaning of each level in plain Python."""
