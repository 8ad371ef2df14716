"""``numba.core.typing``: signatures, and types of values."""

import sys
from typing import Any

from weft.compat import numba_types as typeof
from weft.compat.numba_types import Signature

__all__ = ["Signature", "signature", "templates", "typeof"]


def signature(result: Any, *args: Any) -> Signature:
    """Return ``result(*args)``."""
    return Signature(result, args)


templates = sys.modules[__name__]  # where numba has the same names again
sys.modules.update({f"{__name__}.templates": templates, f"{__name__}.typeof": typeof})
