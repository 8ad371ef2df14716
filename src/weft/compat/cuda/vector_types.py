"""``numba.cuda.vector_types``: the vector types by their names."""

from weft.compat.cuda.vectors import VECTORS

__all__ = ["vector_types"]

vector_types = {v.__name__: v for v in VECTORS.values()}
