"""What passes share: flat memories, lanes of expressions, straight-line code."""
