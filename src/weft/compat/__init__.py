"""Other projects' interfaces on Weft: a program runs after a change of its import lines.

``from weft.compat import cuda`` stands for ``from numba import cuda``; the types that such programs
take from numba (``float32``, ``int64[:]``) are here, too.
"""

from weft.compat import cuda
from weft.compat.numba_types import (
    boolean,
    float16,
    float32,
    float64,
    int8,
    int16,
    int32,
    int64,
    intp,
    uint8,
    uint16,
    uint32,
    uint64,
    uintp,
    void,
)

types = cuda.types

__all__ = [
    "boolean", "cuda", "float16", "float32", "float64", "int8", "int16", "int32", "int64", "intp",
    "types", "uint8", "uint16", "uint32", "uint64", "uintp", "void",
]  # fmt: skip
