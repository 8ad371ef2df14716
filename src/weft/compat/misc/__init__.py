"""``numba.misc``: functions that compiled code knows by itself."""

import sys

from weft.compat import host as special

__all__ = ["special"]

sys.modules[f"{__name__}.special"] = special
