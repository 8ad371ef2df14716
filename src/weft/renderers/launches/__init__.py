"""Kernels as launches of work-groups, for languages of devices."""
