"""SPIR-V of one kernel: a module with an entry point for each of its launches."""

from __future__ import annotations

import json
from collections.abc import Callable

from weft.errors import UnsupportedError
from weft.ir.dtype import DType
from weft.ir.linear import LinearKernel
from weft.ir.op import Operation
from weft.renderers.base import PLAIN, Source, Style
from weft.renderers.cstyle.split import split_vectors
from weft.renderers.launches.work_items import Launches, launches
from weft.renderers.primitives import check
from weft.renderers.spirv.failure import PRINTED
from weft.renderers.spirv.image import image_text
from weft.renderers.spirv.module import Module
from weft.renderers.spirv.target import FUSED, ITERATIONS, WAITS
from weft.renderers.spirv.writer import LaunchWriter
from weft.target import Target

__all__ = ["SpirvRenderer"]


class SpirvRenderer:
    """Writes kernels in SPIR-V.

    Parameters
    ----------
    target : Target
        What the device can do, as `weft.renderers.spirv.target.vulkan_target` says it.
    """

    def __init__(self, target: Target) -> None:
        self.target = target
        self._features = frozenset(f.removeprefix("+") for f in target.features)

    @property
    def device(self) -> str:
        """Name of the device family."""
        return self.target.name

    def render(self, kernel: LinearKernel, name: str | None = None, style: Style = PLAIN
               ) -> Source:  # fmt: skip
        """Return the image of one kernel as text; its first line is for the runtime.

        Raises
        ------
        UnsupportedError
            For what the language or the device lacks.
        """
        if style.inlined:
            raise UnsupportedError("render", found="a kernel for a caller in its own module",
                                   expected="a kernel of its own, in SPIR-V")
        kernel = split_vectors(kernel, 1)
        return self.written(kernel, launches(kernel, self.target), name or kernel.name)

    def written(self, kernel: LinearKernel, cut: Launches, symbol: str) -> Source:
        """Return the image of a kernel that was cut into launches."""
        check(self.target, kernel)
        module = Module(self._features.__contains__, self.target.name)
        fused = {kind: name in self._features for kind, name in FUSED.items()}
        limit = next((int(name.partition("=")[2]) for name in self._features
                      if name.startswith(ITERATIONS)), 0)
        entries: list[dict[str, str | int]] = []
        printed: list[tuple[str, list[str]]] = []
        fails = False
        for number, launch in enumerate(cut.launches):
            writer = LaunchWriter(module, fused, kernel, launch.code, launch.items, cut.scratch,
                                  printed)
            entry = f"{symbol}_{number}"
            writer.write(entry, number > 0 and (fails or bool(kernel.messages)),
                         launch.groups * launch.items, limit, WAITS in self._features)
            entries.append({"name": entry, "groups": launch.groups, "items": launch.items})
            fails = fails or writer.fails
        head = {"entries": entries, "shared": cut.nbytes, "own": cut.per_item, "fails": fails,
                "prints": printed, "room": PRINTED if printed else 0, "options": []}  # fmt: skip
        return Source("spirv", symbol, image_text(f"// weft {json.dumps(head)}", module.words()))

    def decompositor(self) -> Callable[[Operation, DType], bool]:
        """Return a function that tells which (op, dtype) has to be decomposed beforehand."""
        return lambda op, dtype: not self.target.supports(op, dtype)
