"""From a graph to kernels: fuse, lower to loop nests, order, plan memory."""
