"""Kernels as launches of grids, for devices whose kernels run one work-item an element."""
