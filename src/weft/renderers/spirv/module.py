"""A SPIR-V module while it is made: declarations, helper functions and entry points."""

from __future__ import annotations

import sys
from array import array
from collections.abc import Callable, Iterable
from typing import Final

from weft.renderers.spirv import opcodes as spv
from weft.renderers.spirv.declarations import Declarations, instruction, text_words
from weft.renderers.spirv.function import Function, Term

__all__ = ["Module"]

_MAGIC: Final = 0x07230203
_VERSION: Final = 0x00010500
_MODES: Final = (
    ("shaderDenormPreserveFloat", spv.DENORM_PRESERVE, spv.MODE_DENORM_PRESERVE),
    ("shaderRoundingModeRTEFloat", spv.ROUNDING_MODE_RTE, spv.MODE_ROUNDING_RTE),
    ("shaderSignedZeroInfNanPreserveFloat", spv.SIGNED_ZERO_INF_NAN_PRESERVE,
     spv.MODE_SIGNED_ZERO_INF_NAN_PRESERVE),
)  # fmt: skip


class Module(Declarations):
    """One module."""

    def __init__(self, has: Callable[[str], bool], device: str) -> None:
        super().__init__(has, device)
        self._heads: list[int] = []  # entry points
        self._entries: list[int] = []
        self._modes: list[int] = []
        self._functions: list[int] = []
        self._helpers: dict[str, Function] = {}

    def function(self, name: str, result: str, params: tuple[str, ...],
                 build: Callable[..., Term | None]) -> Function:  # fmt: skip
        """Return a helper function, made once: `build` takes it and its parameters."""
        found = self._helpers.get(name)
        if found is None:
            made = Function(self, result, params)
            value = build(made, *made.params)
            made.finish(value)
            found = self._helpers[name] = made
            self._functions += made.words()
        return found

    def entry(self, function: Function, name: str, items: int, interface: Iterable[int]) -> None:
        """Add an entry point of work-groups of `items` work-items."""
        self._functions += function.words()
        self._heads += instruction(spv.ENTRY_POINT, spv.GL_COMPUTE, function.id, *text_words(name),
                                    *interface)
        self._modes += instruction(spv.EXECUTION_MODE, function.id, spv.LOCAL_SIZE, items, 1, 1)
        self._entries.append(function.id)

    def words(self) -> bytes:
        """Return the module: words in little-endian order."""
        for feature, capability, mode in _MODES:
            for bits in (32, 64):
                if self.is_made(f"f{bits}") and self.has(f"{feature}{bits}"):
                    self.capability(capability)
                    for entry in self._entries:
                        self._modes += instruction(spv.EXECUTION_MODE, entry, mode, bits)
        out = [_MAGIC, _VERSION, 0, self.count + 1, 0]
        for number in self.capabilities:
            out += instruction(spv.CAPABILITY, number)
        out += instruction(spv.EXT_INST_IMPORT, self.glsl, *text_words("GLSL.std.450"))
        out += instruction(spv.MEMORY_MODEL, spv.PHYSICAL_64, spv.GLSL_450)
        for part in (self._heads, self._modes, self.annotations, self.globals, self._functions):
            out += part
        made = array("I", out)
        if sys.byteorder == "big":
            made.byteswap()
        return made.tobytes()
