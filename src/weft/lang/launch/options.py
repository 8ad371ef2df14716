"""What a kernel is compiled with, and the sizes that its launches may have."""

from __future__ import annotations

from typing import Any

from weft.errors import raised
from weft.ir.record import Record

__all__ = ["Options", "Size", "cdiv", "sizes_of"]

Size = int | tuple[int, ...]


def cdiv(a: int, b: int) -> int:
    """Return ``a / b`` rounded up: how many blocks of `b` hold `a` elements. For kernels, too."""
    return -(-a // b)


class Options(Record):
    """How a kernel is compiled.

    Attributes
    ----------
    wraps : bool
        Whether negative indices count from the end of an axis.
    checked : bool
        Whether every access is checked against the bounds of its array.
    fastmath : bool
        Whether products and sums may be fused and added in another order.
    max_threads : int
        Most threads of a block that it is launched with.
    hints : tuple of (str, value)
        What is kept with the kernel for other devices.
    fma : bool or None
        Whether a product and the sum that it goes into are rounded once; None: in accumulations.
    workgroup : tuple of int or None
        The only block that it is launched with.
    shared : int
        Bytes of shared memory of a launch that does not say how many.
    device : str
        What it runs on; ``auto`` is the default device.
    check : bool
        Whether the cheap checks of the sanitiser are compiled in.
    strict : bool
        Whether a division by zero stops the kernel, as Python does.
    """

    wraps: bool = False
    checked: bool = True
    fastmath: bool = False
    max_threads: int = 1024
    hints: tuple[tuple[str, Any], ...] = ()
    fma: bool | None = None
    workgroup: tuple[int, int, int] | None = None
    shared: int = 0
    device: str = "auto"
    check: bool = False
    strict: bool = False


def sizes_of(given: Any, what: str, operation: str, most: tuple[int, ...]) -> tuple[int, int, int]:
    """Return three sizes of a grid or a block."""
    parts = tuple(given) if isinstance(given, tuple | list) else (given,)
    sizes = []
    for part in parts:
        try:
            sizes.append(part.__index__())
        except (AttributeError, TypeError):
            raise raised("TypeError")(operation, found=f"a {what} of {given!r}",
                                      expected="an int or a tuple of up to 3") from None
    sizes += [1] * (3 - len(sizes))
    small = all(1 <= n <= m for n, m in zip(sizes, most, strict=False))
    if not parts or len(sizes) > 3 or not small:
        raise raised("ValueError")(operation, found=f"a {what} of {given!r}",
                                   expected=f"up to 3 sizes from 1 to {most}")
    return sizes[0], sizes[1], sizes[2]
