"""Weft: a compiler and runtime for numerical Python."""

from weft.config import VERSION as __version__
from weft.errors import WeftError

__all__ = ["WeftError", "__version__"]
