"""What a kernel says of the device it is for: bounds of its launches, registers, clusters, hints.

All of it is kept in the metadata of the kernel and stands in its text. What a launch must keep to
is checked at the launch on every device; what only other devices can follow is left to them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from weft.errors import KernelError, LaunchError
from weft.ir.module import least_ptx, ptx_version

__all__ = ["HINTS", "KINDS", "LEVELS", "check_cluster", "resources"]

LEVELS: Final = ("O0", "O1", "O2", "O3", "Os", "Olatency")
KINDS: Final = ("custom", "elementwise", "reduce", "matmul", "conv2d", "attention",
                "flash_attention", "scan", "sort")  # fmt: skip
HINTS: Final[dict[str, type]] = {"vector_width": int, "unroll": int, "tensor_cores": bool,
                                 "coalesced": bool, "async_copy": bool}
_MOST_CLUSTER: Final = 16  # blocks of one cluster
_MOST_RESIDENT: Final = 32  # blocks of one multiprocessor
_MOST_REGISTERS: Final = 255
_ARCH: Final = re.compile(r"sm_\d{2,3}[af]?|compute_\d{2,3}[af]?|ptx\d{2}|gfx[0-9a-f]{3,4}|cpu")


def resources(max_registers: Any = None, min_blocks: Any = None, cluster: Any = None,
              arch: Any = (), hints: Any = None) -> dict[str, Any]:  # fmt: skip
    """Return what is kept with a kernel, None for what it does not say.

    Parameters
    ----------
    max_registers
        Most registers of a thread.
    min_blocks
        How many blocks shall be resident on a multiprocessor at least.
    cluster
        Blocks of a cluster along x, y, z.
    arch
        The architecture, or several, that it is compiled for: ``sm_90``, ``gfx90a``, ``ptx80``.
    hints
        ``vector_width`` and ``unroll`` (numbers); ``tensor_cores``, ``coalesced``, ``async_copy``.

    Raises
    ------
    KernelError
        If one of them means nothing.
    """
    return {
        "max_registers": _number("max_registers", max_registers, _MOST_REGISTERS),
        "min_blocks": _number("min_blocks", min_blocks, _MOST_RESIDENT),
        "cluster": _cluster(cluster), "arch": _architectures(arch), **_hints(hints),
    }  # fmt: skip


def _number(name: str, value: Any, most: int) -> int | None:
    if value is None:
        return None
    if type(value) is not int or not 1 <= value <= most:
        raise KernelError("kernel", found=f"{name}={value!r}", expected=f"1 to {most}")
    return value


def _cluster(given: Any) -> tuple[int, int, int] | None:
    if given is None:
        return None
    parts = tuple(given) if isinstance(given, tuple | list) else (given,)
    total = 1
    for part in parts:
        total *= part if type(part) is int and part > 0 else _MOST_CLUSTER + 1
    if not 1 <= len(parts) <= 3 or total > _MOST_CLUSTER:
        raise KernelError("kernel", found=f"cluster={given!r}", expected="up to 3 sizes, "
                          f"{_MOST_CLUSTER} blocks in all")
    x, y, z = (*parts, 1, 1)[:3]
    return x, y, z


def _architectures(given: Any) -> tuple[str, ...] | None:
    names = (given,) if isinstance(given, str) else tuple(given)
    for name in names:
        if not isinstance(name, str) or not _ARCH.fullmatch(name):
            raise KernelError("kernel", found=f"arch={name!r}",
                              expected="names like sm_90, gfx90a or ptx80")
    asked, least = ptx_version([n for n in names if n.startswith("ptx")]), least_ptx(names)
    if asked and least and asked < least:
        raise KernelError("kernel", found=f"arch={names!r}",
                          expected="ptx{}{} or later for these architectures".format(*least))
    return names or None


def _hints(given: Any) -> dict[str, Any]:
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise KernelError("kernel", found=f"hints={given!r}", expected="a dict")
    known: Mapping[Any, Any] = given
    for name, value in known.items():
        if name not in HINTS:
            raise KernelError("kernel", found=f"the hint {name!r}", expected=", ".join(HINTS))
        wanted = HINTS[name]
        fits = type(value) is wanted
        if fits and type(value) is int:
            fits = value in (1, 2, 4, 8, 16, 32) if name == "vector_width" else 1 <= value <= 64
        if not fits:
            raise KernelError("kernel", found=f"the hint {name}={value!r}",
                              expected="1, 2, 4, 8, 16 or 32" if name == "vector_width" else
                              "1 to 64" if wanted is int else "True or False")
    return dict(known)


def check_cluster(name: str, grid: tuple[int, int, int], hints: Mapping[str, Any]) -> None:
    """Check that the blocks of a launch make whole clusters.

    Raises
    ------
    LaunchError
        If they do not.
    """
    cluster = hints.get("cluster")
    if cluster is not None and any(n % c for n, c in zip(grid, cluster, strict=True)):
        raise LaunchError(name, found=f"a grid of {grid}",
                          expected=f"multiples of the cluster {cluster}")
