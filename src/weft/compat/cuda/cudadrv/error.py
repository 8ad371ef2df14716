"""The errors of numba's driver."""

from weft.compat.errors import CudaDriverError, CudaRuntimeError, CudaSupportError

__all__ = ["CudaDriverError", "CudaRuntimeError", "CudaSupportError"]
