"""Iteration-space splits of sums over windows: convolution, pooling and their gradients."""
