"""Cut a graph into kernels: which values are fused, recomputed or stored; attention."""
