"""What builtin functions make of the items of an array, as functions that kernels read."""

from __future__ import annotations

from typing import Any

__all__ = ["every", "maximum", "minimum", "some", "total"]


def total(values: Any, start: Any) -> Any:
    """Return ``sum(values, start)``."""
    found = start
    for value in values:
        found = found + value
    return found


def maximum(values: Any) -> Any:
    """Return ``max(values)``: the first of the largest, as Python compares them."""
    found = values[0]
    for value in values:
        if value > found:
            found = value
    return found


def minimum(values: Any) -> Any:
    """Return ``min(values)``: the first of the smallest, as Python compares them."""
    found = values[0]
    for value in values:
        if value < found:
            found = value
    return found


def some(values: Any) -> bool:
    """Return ``any(values)``; it goes no further than to the first that is true."""
    found = False
    for value in values:
        if value:
            found = True
            break
    return found


def every(values: Any) -> bool:
    """Return ``all(values)``; it goes no further than to the first that is false."""
    found = True
    for value in values:
        if not value:
            found = False
            break
    return found
