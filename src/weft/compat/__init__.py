"""Other projects' interfaces on Weft: a program runs after a change of its import lines.

``from weft.compat import cuda`` stands for ``from numba import cuda``, and ``import weft.compat as
numba`` for ``import numba``; the types that such programs take from numba (``float32``,
``int64[:]``), `vectorize`, `guvectorize` and `jit` are here, too.
"""

import sys
from importlib import import_module
from typing import Any

from weft.compat import config, cuda, errors, extending, misc, types
from weft.compat import core as core
from weft.compat import np as np  # not in __all__: programs have another np
from weft.compat.errors import (
    LoweringError,
    NumbaDeprecationWarning,
    NumbaError,
    NumbaExperimentalFeatureWarning,
    NumbaPendingDeprecationWarning,
    NumbaPerformanceWarning,
    NumbaWarning,
    TypingError,
    UnsupportedError,
)
from weft.compat.host import (
    get_num_threads,
    jit,
    literal_unroll,
    literally,
    njit,
    prange,
    set_num_threads,
    stencil,
    version_info,
)
from weft.compat.numba_types import (
    ALIASES,
    boolean,
    complex64,
    complex128,
    float16,
    float32,
    float64,
    from_dtype,
    int8,
    int16,
    int32,
    int64,
    intp,
    typeof,
    uint8,
    uint16,
    uint32,
    uint64,
    uintp,
    void,
)
from weft.compat.types import deferred_type, optional
from weft.compat.vectorize import guvectorize, vectorize
from weft.imports import importing

numba = sys.modules[__name__]  # as numba has it
__version__ = ".".join(map(str, version_info))
globals().update({name: kind for name, kind in ALIASES.items() if name not in globals()})

__all__ = [
    "LoweringError", "NumbaDeprecationWarning", "NumbaError", "NumbaExperimentalFeatureWarning",
    "NumbaPendingDeprecationWarning", "NumbaPerformanceWarning", "NumbaWarning", "TypingError",
    "UnsupportedError", "boolean", "complex64", "complex128", "config", "cuda",
    "deferred_type", "errors",
    "extending", "float16", "float32", "float64", "from_dtype", "get_num_threads", "guvectorize",
    "int8", "int16", "int32", "int64", "intp", "jit", "literal_unroll", "literally", "misc",
    "njit", "optional", "prange", "set_num_threads", "stencil", "typeof", "types", "uint8",
    "uint16", "uint32", "uint64", "uintp", "vectorize", "version_info", "void",
    *(name for name in ALIASES if name not in ("void", "none")),
]  # fmt: skip


def __getattr__(name: str) -> Any:
    """Import what few programs name."""
    if name in ("experimental", "typed"):
        with importing:
            return import_module(f"{__name__}.{name}")
    if name in errors.__all__:  # numba has all of its errors here, too
        return getattr(errors, name)
    raise AttributeError(f"numba has no {name} here")
