"""Source text of kernels: syntax trees, closures, liveness of names, termination of loops."""
