"""Other libraries that work on tensors."""
