"""WGSL of one kernel: an entry for each of its launches.

The text begins with a comment that tells the runtime about entries, arrays and memory, as JSON.
Declarations of bindings are not in it: which arrays share one depends on the launch, since no two
bindings may overlap. `weft.runtimes.webgpu.bindings` writes them before it, with the functions
``weft_load_NAME`` and their like, by which kernels reach the words of an array.

Indices are computed in 32 bits: a binding has less than 2**31 bytes.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import ClassVar, Final

from weft.ir.linear import LinearKernel
from weft.ir.op import Op
from weft.ir.stmt import Memory
from weft.renderers.base import PLAIN, Source, Style
from weft.renderers.cstyle.base import CStyleRenderer, Writer
from weft.renderers.cstyle.split import split_vectors
from weft.renderers.cstyle.wgsl.library import needed
from weft.renderers.cstyle.wgsl.text import FAIL, PRINTED
from weft.renderers.cstyle.wgsl.writer import WGSLWriter
from weft.renderers.launches.narrow_integers import narrow_integers
from weft.renderers.launches.work_items import launches
from weft.renderers.primitives import check

__all__ = ["WGSLRenderer"]

_OFFSETS: Final = 32  # bits of an offset: bindings have less than 2**31 bytes


class WGSLRenderer(CStyleRenderer):
    """Writes kernels in WGSL."""

    LANGUAGE: ClassVar[str] = "wgsl"
    WRITER: ClassVar[Callable[..., Writer]] = WGSLWriter  # type: ignore[assignment]

    def render(self, kernel: LinearKernel, name: str | None = None, style: Style = PLAIN
               ) -> Source:  # fmt: skip
        """Return the source of one kernel; its first line is what the runtime has to know.

        Raises
        ------
        UnsupportedError
            For what the language lacks: float64, atomic operations of 64 bits.
        """
        check(self.target, kernel)
        symbol = name or kernel.name
        kernel = split_vectors(kernel, 1)
        cut = launches(kernel, self.target)
        entries: list[dict[str, str | int]] = []
        bodies: list[str] = []
        writer: WGSLWriter | None = None
        fails = False
        for number, launch in enumerate(cut.launches):
            part = narrow_integers(kernel.replace(code=launch.code), _OFFSETS)
            writer = WGSLWriter(self.target, part, f"{symbol}_{number}", launch.items, cut, writer)
            bodies.append(writer.entry())
            entries.append({"name": writer.name, "groups": launch.groups, "items": launch.items})
            fails = fails or writer.fails
        assert writer is not None  # every kernel has a launch
        used = writer.used
        params = [{"name": writer.memories[m.name], "bytes": m.dtype.itemsize,
                   "uses": sorted(used[writer.memories[m.name]]), "count": _elements(m)}
                  for m in kernel.params]
        head = {
            "entries": entries, "shared": cut.nbytes, "own": cut.per_item, "fails": fails,
            "prints": writer.printed, "room": PRINTED if writer.printed else 0, "options": [],
            "memories": params, "status": sorted(used.get("status", ())),
            "scratch": sorted(used.get("scratch", ())),
            "variables": [writer.sizes[v.attr.name] for v in kernel.variables],
            "workgroup": [{"name": n, "count": words, "uses": sorted(used[n])}
                          for n, words in writer.shared.items()],
            "fused": any(n == "weft_mad" for n, _ in needed(writer.functions)),
        }  # fmt: skip
        parts = [*([FAIL] if fails else []), *(text for _, text in needed(writer.functions)),
                 *writer.helpers.values(), *bodies]  # fmt: skip
        text = "\n\n".join(part for part in parts if part)
        return Source(self.LANGUAGE, symbol, f"// weft {json.dumps(head)}\n\n{text}\n")


def _elements(memory: Memory) -> int:
    """Return the elements of an array, 0 if a variable tells them."""
    sizes = [extent.attr if extent.op is Op.CONST else 0 for extent in memory.shape]
    return math.prod(sizes)
