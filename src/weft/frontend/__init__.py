"""What a user writes: lazy tensors, autograd, random numbers, captured functions."""
