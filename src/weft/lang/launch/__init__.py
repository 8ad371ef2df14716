"""Launch kernels: the decorator, arguments, variants, native calls, the sanitiser."""
