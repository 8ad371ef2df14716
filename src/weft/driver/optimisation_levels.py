"""Optimisation levels of functions, and the options that each sets.

Each has a pipeline of the compiler; those for size and for latency have a style of the text, too.
"""

from __future__ import annotations

from typing import Final

from weft.renderers.base import PLAIN, Style

__all__ = ["LEVELS", "style_of"]

# Each level, and the compiler's pipeline for it. "Olatency" is O3 with the heads of loops on
# boundaries of 32 bytes; front ends prefetch for it.
LEVELS: Final = {"O0": "O0", "O1": "O1", "O2": "O2", "O3": "O3", "Os": "Os", "Olatency": "O3"}
_STYLES: Final = {"Os": Style(attributes=("optsize",)), "Olatency": Style(loop_bytes=32)}


def style_of(level: str) -> Style:
    """Return how the text for a level is written."""
    return _STYLES.get(level, PLAIN)
