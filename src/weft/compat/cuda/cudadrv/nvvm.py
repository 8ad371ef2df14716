"""NVIDIA's compiler, which is not used here: what programs name to find that out."""

from typing import NoReturn

from weft.compat.errors import NvvmError, NvvmSupportError
from weft.errors import outermost

__all__ = ["NVVM", "NvvmError", "NvvmSupportError", "is_available"]


def is_available() -> bool:
    """Return False: kernels are compiled without it."""
    return False


class NVVM:
    """The library; there is none."""

    @outermost
    def __new__(cls) -> NoReturn:
        """Refuse: there is none."""
        raise NvvmSupportError("NVVM", found="kernels that Weft compiles itself",
                               expected="a launch, and then kernel.inspect_llvm()")
