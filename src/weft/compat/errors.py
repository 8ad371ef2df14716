"""numba's errors and warnings by their names, as what Weft raises in their place.

A program that catches `TypingError` or `CudaAPIError` catches Weft's error of the same meaning; the
warnings exist so that programs can silence them, and are never given.
"""

from weft.errors import KernelError, LaunchError

__all__ = [
    "CCSupportError", "CudaAPIError", "CudaDriverError", "CudaLoweringError", "CudaRuntimeError",
    "CudaSupportError", "LinkerError", "LoweringError", "NumbaDebugInfoWarning",
    "NumbaDeprecationWarning",
    "NumbaError", "NumbaExperimentalFeatureWarning", "NumbaInvalidConfigWarning",
    "NumbaPendingDeprecationWarning", "NumbaPerformanceWarning", "NumbaRuntimeError",
    "NumbaTypeError", "NumbaTypeSafetyWarning", "NumbaValueError", "NumbaWarning", "NvrtcError",
    "NvrtcSupportError", "NvvmError", "NvvmSupportError", "NvvmWarning", "TypingError",
    "UnsupportedBytecodeError", "UnsupportedError",
]  # fmt: skip

# what is wrong with the text of a kernel
NumbaError = TypingError = LoweringError = UnsupportedError = KernelError
NumbaTypeError = NumbaValueError = UnsupportedBytecodeError = CudaLoweringError = KernelError

# what is wrong with a launch, and what happens while a kernel runs
CudaDriverError = CudaAPIError = CudaRuntimeError = NumbaRuntimeError = LaunchError

# what is wrong with code of other languages
NvvmError = NvrtcError = LinkerError = CCSupportError = KernelError


class CudaSupportError(LaunchError, ImportError):
    """What programs catch where there is no device; it is not raised here."""


class NvvmSupportError(KernelError, ImportError):
    """What is raised where NVIDIA's compiler is asked for."""


NvrtcSupportError = NvvmSupportError


class NumbaWarning(Warning):
    """All of numba's warnings."""


class NumbaPerformanceWarning(NumbaWarning):
    """Grids that do not fill a GPU, and copies; neither matters here."""


class NumbaDeprecationWarning(NumbaWarning, DeprecationWarning):
    """What numba does no more."""


class NumbaPendingDeprecationWarning(NumbaWarning, PendingDeprecationWarning):
    """What numba will do no more."""


class NumbaExperimentalFeatureWarning(NumbaWarning):
    """What numba may change."""


class NumbaTypeSafetyWarning(NumbaWarning):
    """Conversions that lose digits."""


class NvvmWarning(Warning):
    """What NVIDIA's compiler finds."""


class NumbaDebugInfoWarning(NumbaWarning):
    """Options for debuggers."""


class NumbaInvalidConfigWarning(NumbaWarning):
    """Options that exclude each other."""
