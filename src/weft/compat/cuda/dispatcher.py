"""``numba.cuda.dispatcher``: the class of kernels, under its names of numba's versions."""

from weft.compat.core.dispatcher import CUDADispatcher

__all__ = ["AutoJitCUDAKernel", "CUDADispatcher", "DeviceFunctionTemplate", "Dispatcher"]

AutoJitCUDAKernel = DeviceFunctionTemplate = Dispatcher = CUDADispatcher
