"""The executor of plans and its thread pool, as LLVM IR."""
