"""Read the syntax of kernels: expressions, calls, statements, loops, functions, phi."""
