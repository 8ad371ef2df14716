"""Weft: a compiler and runtime for numerical Python.

Tensors are lazy: operations build a graph, and looking at values compiles it to native code.
"""

import sys
from typing import TYPE_CHECKING

from weft.imports import importing

with importing:
    from weft import nn, optim
    from weft.config import VERSION as __version__
    from weft.errors import (
        AllocationError,
        AxisError,
        BoundsError,
        CaptureError,
        DependenceWarning,
        DeviceError,
        DTypeError,
        GradientError,
        RangeError,
        ShapeError,
        VariableError,
        WeftError,
    )
    from weft.frontend import autograd, build, creation, functions, random
    from weft.frontend import counted as _counted  # noqa: F401 - it serves methods of tensors
    from weft.frontend.autograd import (
        enable_grad,
        grad,
        is_grad_enabled,
        no_grad,
        set_grad_enabled,
    )
    from weft.frontend.compute import compute, ndrange
    from weft.frontend.creation import *  # noqa: F403 - the modules list their public names
    from weft.frontend.critical import critical
    from weft.frontend.devices import (
        devices,
        get_default_device,
        is_available,
        set_default_device,
        synchronize,
    )
    from weft.frontend.dynamic import jit
    from weft.frontend.files import load, save
    from weft.frontend.functions import *  # noqa: F403
    from weft.frontend.kernel import gpu
    from weft.frontend.kernel.decorators import kernel
    from weft.frontend.kernel.launch import func
    from weft.frontend.kernel.options import cdiv
    from weft.frontend.kernel.sanitize import interpret, sanitize
    from weft.frontend.kernel.streams import event, stream
    from weft.frontend.kernel.together import fuse
    from weft.frontend.random import *  # noqa: F403
    from weft.frontend.tensor import Parameter, Tensor
    from weft.frontend.tuning import tune
    from weft.ir.dtype import (
        DType,
        bfloat16,
        constexpr,
        float8_e4m3fn,
        float8_e5m2,
        float16,
        float32,
        float64,
        int8,
        int16,
        int32,
        int64,
        uint8,
        uint16,
        uint32,
        uint64,
    )
    from weft.ir.dtype import bool_ as bool
    from weft.ir.expr import Variable

if TYPE_CHECKING:
    from weft.frontend.kernel import groups as cg

float, double, half = float32, float64, float16
int, long, short = int32, int64, int16
inf, nan = 1e999, 1e999 - 1e999
pi, e = 3.141592653589793, 2.718281828459045
newaxis = None

__all__ = [
    "AllocationError",
    "AxisError",
    "BoundsError",
    "CaptureError",
    "DType",
    "DTypeError",
    "DependenceWarning",
    "DeviceError",
    "GradientError",
    "Parameter",
    "RangeError",
    "ShapeError",
    "Tensor",
    "Variable",
    "VariableError",
    "WeftError",
    "__version__",
    "autograd",
    "bfloat16",
    "bool",
    "build",
    "cdiv",
    "cg",
    "compute",
    "constexpr",
    "critical",
    "devices",
    "double",
    "e",
    "enable_grad",
    "event",
    "float",
    "float8_e4m3fn",
    "float8_e5m2",
    "float16",
    "float32",
    "float64",
    "func",
    "fuse",
    "get_default_device",
    "gpu",
    "grad",
    "half",
    "inf",
    "int",
    "int8",
    "int16",
    "int32",
    "int64",
    "interpret",
    "is_available",
    "is_grad_enabled",
    "jit",
    "kernel",
    "load",
    "long",
    "nan",
    "ndrange",
    "newaxis",
    "nn",
    "no_grad",
    "optim",
    "pi",
    "random",
    "sanitize",
    "save",
    "set_default_device",
    "set_grad_enabled",
    "short",
    "stream",
    "synchronize",
    "tune",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
]  # fmt: skip
__all__ += creation.__all__
__all__ += functions.__all__
__all__ += random.__all__

sys.modules["weft.gpu"] = gpu  # so that `from weft.gpu import threadIdx` works


def __getattr__(name: str) -> object:
    """Import cooperative groups, which few programs name, when they are named."""
    if name != "cg":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name,
                             obj=sys.modules[__name__])  # fmt: skip
    from weft.frontend.kernel import groups

    globals()[name] = groups
    return groups
