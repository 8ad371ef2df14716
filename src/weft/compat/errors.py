"""numba's errors and warnings by their names, as what Weft raises in their place.

A program that catches `TypingError` or `CudaAPIError` catches Weft's error of the same meaning; the
warnings exist so that programs can silence them, and are never given.
"""

from weft.errors import KernelError, LaunchError

__all__ = [
    "ByteCodeSupportError", "CCSupportError", "CompilerError", "ConstantInferenceError",
    "CudaAPIError", "CudaDriverError", "CudaLoweringError", "CudaRuntimeError", "CudaSupportError",
    "DeprecationError", "ForbiddenConstruct", "ForceLiteralArg", "IRError", "InternalError",
    "LinkerError", "LiteralTypingError", "LoweringError", "NotDefinedError", "NumbaAssertionError",
    "NumbaAttributeError", "NumbaDebugInfoWarning", "NumbaDeprecationWarning", "NumbaError",
    "NumbaExperimentalFeatureWarning", "NumbaIRAssumptionWarning", "NumbaIndexError",
    "NumbaInvalidConfigWarning", "NumbaKeyError", "NumbaNotImplementedError",
    "NumbaParallelSafetyWarning", "NumbaPedanticWarning", "NumbaPendingDeprecationWarning",
    "NumbaPerformanceWarning", "NumbaRuntimeError", "NumbaSystemWarning", "NumbaTypeError",
    "NumbaTypeSafetyWarning", "NumbaValueError", "NumbaWarning", "NvrtcError", "NvrtcSupportError",
    "NvvmError", "NvvmSupportError", "NvvmWarning", "RedefinedError", "RequireLiteralValue",
    "TypingError", "UnsupportedBytecodeError", "UnsupportedError", "UnsupportedParforsError",
    "UnsupportedRewriteError", "UntypedAttributeError", "VerificationError",
]  # fmt: skip

# what is wrong with the text of a kernel
NumbaError = TypingError = LoweringError = UnsupportedError = KernelError
NumbaTypeError = NumbaValueError = UnsupportedBytecodeError = CudaLoweringError = KernelError
NumbaAssertionError = NumbaAttributeError = NumbaIndexError = NumbaKeyError = KernelError
NumbaNotImplementedError = LiteralTypingError = RequireLiteralValue = KernelError
ConstantInferenceError = ForceLiteralArg = UntypedAttributeError = KernelError
CompilerError = InternalError = IRError = NotDefinedError = RedefinedError = KernelError
VerificationError = ForbiddenConstruct = ByteCodeSupportError = DeprecationError = KernelError
UnsupportedParforsError = UnsupportedRewriteError = KernelError

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


class NumbaPedanticWarning(NumbaWarning):
    """What numba's compiler would have otherwise."""


class NumbaIRAssumptionWarning(NumbaPedanticWarning):
    """What numba's compiler took for granted."""


class NumbaParallelSafetyWarning(NumbaWarning):
    """Threads of the host that meet."""


class NumbaSystemWarning(NumbaWarning):
    """What the system lacks."""


class NvvmWarning(Warning):
    """What NVIDIA's compiler finds."""


class NumbaDebugInfoWarning(NumbaWarning):
    """Options for debuggers."""


class NumbaInvalidConfigWarning(NumbaWarning):
    """Options that exclude each other."""
