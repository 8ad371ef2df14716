"""The errors of numba's driver."""

from weft.compat.errors import (
    CCSupportError,
    CudaDriverError,
    CudaRuntimeError,
    CudaSupportError,
    NvrtcError,
    NvrtcSupportError,
    NvvmError,
    NvvmSupportError,
    NvvmWarning,
)

__all__ = [
    "CCSupportError", "CudaDriverError", "CudaRuntimeError", "CudaSupportError", "NvrtcError",
    "NvrtcSupportError", "NvvmError", "NvvmSupportError", "NvvmWarning",
]  # fmt: skip
