"""``numba.experimental``: classes for functions of the host, which stay Python's own."""

from __future__ import annotations

import inspect
from typing import Any

__all__ = ["jitclass"]


def jitclass(spec: Any = None, **options: Any) -> Any:
    """Return a class itself: what numba's types of its fields say changes nothing."""
    del options
    if inspect.isclass(spec):
        return spec
    return lambda given: given
