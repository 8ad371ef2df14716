"""``numba.core.typing``: signatures, and types of values."""

import sys
from typing import Any

from weft.compat import extending
from weft.compat import numba_types as typeof
from weft.compat.numba_types import Signature

__all__ = ["Signature", "signature", "templates", "typeof"]


def signature(result: Any, *args: Any) -> Signature:
    """Return ``result(*args)``."""
    return Signature(result, args)


templates = sys.modules[__name__]  # where numba has the same names again
sys.modules.update({f"{__name__}.templates": templates, f"{__name__}.typeof": typeof})


def __getattr__(name: str) -> Any:
    """Refuse the templates by which numba's compiler learns of functions."""
    if name in extending.TEMPLATES:
        extending.refuse(f"core.typing.templates.{name}")
    raise AttributeError(f"numba.core.typing has no {name}")
