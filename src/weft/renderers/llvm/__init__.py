"""LLVM IR text of kernels."""
