"""numba's errors and warnings by their names, as what Weft raises in their place.

A program that catches `TypingError` or `CudaAPIError` catches Weft's error of the same meaning; the
warnings exist so that programs can silence them, and are never given.
"""

from weft.errors import KernelError, LaunchError

__all__ = [
    "CudaAPIError", "CudaDriverError", "CudaLoweringError", "CudaRuntimeError",
    "CudaSupportError", "LoweringError", "NumbaDebugInfoWarning", "NumbaDeprecationWarning",
    "NumbaError", "NumbaExperimentalFeatureWarning", "NumbaInvalidConfigWarning",
    "NumbaPendingDeprecationWarning", "NumbaPerformanceWarning", "NumbaRuntimeError",
    "NumbaTypeError", "NumbaTypeSafetyWarning", "NumbaValueError", "NumbaWarning", "TypingError",
    "UnsupportedBytecodeError", "UnsupportedError",
]  # fmt: skip

# what is wrong with the text of a kernel
NumbaError = TypingError = LoweringError = UnsupportedError = KernelError
NumbaTypeError = NumbaValueError = UnsupportedBytecodeError = CudaLoweringError = KernelError

# what is wrong with a launch, and what happens while a kernel runs
CudaDriverError = CudaAPIError = CudaRuntimeError = NumbaRuntimeError = LaunchError


class CudaSupportError(LaunchError):
    """What programs catch where there is no device; it is not raised here."""


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


class NumbaDebugInfoWarning(NumbaWarning):
    """Options for debuggers."""


class NumbaInvalidConfigWarning(NumbaWarning):
    """Options that exclude each other."""
