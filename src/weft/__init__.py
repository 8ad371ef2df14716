"""Weft: a compiler and runtime for numerical Python.

Tensors are lazy: operations build a graph, and looking at values compiles it to native code.
"""

import sys
from importlib import import_module
from typing import TYPE_CHECKING

from weft.imports import importing

with importing:
    from weft.capture import dynamic_results as _counted  # noqa: F401 - serves methods of tensors
    from weft.capture.dynamic import jit
    from weft.capture.tuning import tune
    from weft.config import VERSION as __version__
    from weft.driver import compile_count
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
    from weft.interop import einops as _einops
    from weft.interop.files import from_file, load, save
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
    from weft.ir.dtype import FloatInfo as finfo
    from weft.ir.dtype import IntegerInfo as iinfo
    from weft.ir.dtype import bool_ as bool
    from weft.ir.expr import Variable
    from weft.lang import builder as build
    from weft.lang.compute import compute, ndrange
    from weft.lang.critical import critical
    from weft.lang.device import gpu
    from weft.lang.device.device_info import device_info
    from weft.lang.launch.decorators import kernel
    from weft.lang.launch.device_function import func
    from weft.lang.launch.options import cdiv
    from weft.lang.launch.sanitize import interpret, sanitize
    from weft.lang.launch.streams import event, stream
    from weft.lang.launch_fusion.fuse_api import fuse
    from weft.tensors.api import (
        autograd,
        combined,
        creation,
        functions,
        functions_composed,
        functions_types,
        random,
        ranges,
    )
    from weft.tensors.api.autograd import (
        enable_grad,
        grad,
        inference_mode,
        is_grad_enabled,
        no_grad,
        set_grad_enabled,
        value_and_grad,
    )
    from weft.tensors.api.combined import *  # noqa: F403 - the modules list their public names
    from weft.tensors.api.creation import *  # noqa: F403
    from weft.tensors.api.functions import *  # noqa: F403
    from weft.tensors.api.functions_composed import *  # noqa: F403
    from weft.tensors.api.functions_types import *  # noqa: F403
    from weft.tensors.api.profiling import profile
    from weft.tensors.api.random import *  # noqa: F403
    from weft.tensors.api.ranges import *  # noqa: F403
    from weft.tensors.api.tensor import Parameter, Tensor
    from weft.tensors.api.unified import unified
    from weft.tensors.core.devices import (
        devices,
        get_default_device,
        is_available,
        set_default_device,
        synchronize,
    )

if TYPE_CHECKING:
    from weft import nn, optim
    from weft.lang.device import cooperative_groups as cg

# Names of PyTorch and NumPy that are not here, and what to write instead.
_ELSEWHERE = {
    "cuda": "weft.is_available('cuda') tells whether a device is there, weft.devices() which are",
    "mps": "weft.devices() tells which devices are there",
    "compile": "weft.jit compiles a function",
    "utils": "batches are slices of arrays or tensors: x[i : i + size]",
    "DataLoader": "batches are slices of arrays or tensors: x[i : i + size]",
    "FloatTensor": "weft.tensor(values, dtype=weft.float32) makes one",
    "LongTensor": "weft.tensor(values, dtype=weft.int64) makes one",
    "array": "weft.tensor(values) makes a tensor",
    "ndarray": "weft.Tensor is the class of tensors",
    "linalg": "take t.numpy() to NumPy's", "fft": "take t.numpy() to NumPy's",
    "complex64": "there are no complex numbers yet",
    "complex128": "there are no complex numbers yet",
}  # fmt: skip
# What is imported when it is named, by its name here.
_LATE = {"cg": "weft.lang.device.cooperative_groups", "nn": "weft.nn", "optim": "weft.optim"}

float, double, half = float32, float64, float16
int, long, short = int32, int64, int16
inf, nan = 1e999, 1e999 - 1e999
pi, e = 3.141592653589793, 2.718281828459045
newaxis = None

__all__ = ["AllocationError", "AxisError", "BoundsError", "CaptureError", "DType", "DTypeError",
           "DependenceWarning", "DeviceError", "GradientError", "Parameter", "RangeError",
           "ShapeError", "Tensor", "Variable", "VariableError", "WeftError", "__version__",
           "autograd", "bfloat16", "bool", "build", "cdiv", "cg", "compile_count", "compute",
           "constexpr", "critical", "device_info", "devices", "double", "e", "enable_grad", "event",
           "finfo", "float", "float8_e4m3fn", "float8_e5m2", "float16", "float32", "float64",
           "from_file", "func", "fuse", "get_default_device", "gpu", "grad", "half", "iinfo", "inf",
           "inference_mode", "int", "int8", "int16", "int32", "int64", "interpret", "is_available",
           "is_grad_enabled", "jit", "kernel", "load", "long", "nan", "ndrange", "newaxis", "nn",
           "no_grad", "optim", "pi", "profile", "random", "sanitize", "save", "set_default_device",
           "set_grad_enabled", "short", "stream", "synchronize", "tune", "uint8", "uint16",
           "uint32", "uint64", "unified", "value_and_grad"]  # fmt: skip
__all__ += combined.__all__
__all__ += creation.__all__
__all__ += functions.__all__
__all__ += functions_composed.__all__
__all__ += functions_types.__all__
__all__ += random.__all__
__all__ += ranges.__all__

# So that `from weft.gpu import threadIdx` and `from weft.autograd import Function` work.
sys.modules["weft.gpu"], sys.modules["weft.autograd"] = gpu, autograd


_einops.install()


def __dir__() -> list[str]:
    """Return the public names: what Tab completes."""
    return sorted(__all__)


def __getattr__(name: str) -> object:
    """Import networks, optimisers and cooperative groups when they are named."""
    if name not in _LATE:
        hint = f" ({_ELSEWHERE[name]})" if name in _ELSEWHERE else ""
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}{hint}", name=name,
                             obj=sys.modules[__name__])  # fmt: skip
    with importing:
        found = globals()[name] = import_module(_LATE[name])
    return found
