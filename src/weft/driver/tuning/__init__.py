"""Tune the kernels of a program: searches, child processes, records of what was found."""
