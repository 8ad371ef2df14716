"""``numba.np``: types of NumPy and of kernels as each other."""

import sys

from weft.compat import numba_types as numpy_support

__all__ = ["numpy_support"]

sys.modules[f"{__name__}.numpy_support"] = numpy_support
