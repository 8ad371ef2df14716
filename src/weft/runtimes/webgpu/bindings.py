"""Bindings of kernels in WGSL: complete modules from the text of an image, and what is bound.

Arrays of a kernel that lie in one buffer share a binding, since no two bindings of a dispatch may
overlap in it. Which do is known at a launch, or from a plan. So an image has no declarations:
`module` writes them, and the functions by which the kernel reaches its arrays, for one way in which
arrays share bindings. `uniforms` makes the bytes of binding 0: a zero that no compiler knows, where
each array begins in its binding, and the variables.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

from weft.errors import CompileError
from weft.runtimes.launches import header as common
from weft.runtimes.webgpu.accessors import accessors, is_atomic

__all__ = ["Array", "WGSLHeader", "header_of", "module", "uniforms"]

_FIRST: Final = 8  # words, zeros all, of the uniform buffer before the places of arrays
_ROUND: Final = 16  # bytes that the size of the uniform buffer is a multiple of
# A zero that no driver knows. Some put words of uniform buffers on which branches depend into the
# code as constants, but for those whose place is computed.
_ZERO: Final = "fn weft_zero() -> u32 { return weft.zeros[weft.zeros[0].y & 1u].x; }"


class Array(NamedTuple):
    """An array that a kernel names.

    Attributes
    ----------
    name : str
        What it is called in the text.
    nbytes : int
        Bytes of an element.
    uses : tuple of str
        What is done with its words.
    elements : int
        Its elements, 0 where that is not known beforehand.
    """

    name: str
    nbytes: int
    uses: tuple[str, ...]
    elements: int = 0


class WGSLHeader(NamedTuple):
    """What the first line of an image says.

    Attributes
    ----------
    launch : Header
        What every device of launches is told.
    memories : tuple of Array
        The parameters in ABI order.
    status, scratch : tuple of str
        How words of the status record and of the scratch buffer are used.
    workgroup : tuple of Array
        Arrays of a work-group.
    variables : tuple of str
        Names in the uniform buffer, in ABI order.
    fused : bool
        Whether it computes multiply-adds, which it asks the device for if they are fused there.
    """

    launch: common.Header
    memories: tuple[Array, ...]
    status: tuple[str, ...]
    scratch: tuple[str, ...]
    workgroup: tuple[Array, ...]
    variables: tuple[str, ...]
    fused: bool

    @property
    def reports(self) -> bool:
        """Whether a launch has a status record."""
        return self.launch.fails or bool(self.launch.lines)

    @property
    def has_scratch(self) -> bool:
        """Whether a launch has scratch memory."""
        return bool(self.launch.shared or self.launch.own)

    def bindings(self, groups: Sequence[int]) -> list[str | int]:
        """Return what each binding is, in order: a number is a group of arrays."""
        found: list[str | int] = ["uniform", *range(max(groups, default=-1) + 1)]
        return found + ["status"] * self.reports + ["scratch"] * self.has_scratch


def header_of(name: str, image: bytes) -> tuple[str, WGSLHeader]:
    """Return the text of an image, and what its first line says.

    Raises
    ------
    CompileError
        If it says anything else than it should.
    """
    body, launch = common.header_of(name, image)
    said = json.loads(image.partition(b"\n")[0].partition(b" weft ")[2])
    try:
        header = WGSLHeader(
            launch, _arrays(said["memories"]), _words(said["status"]), _words(said["scratch"]),
            _arrays(said["workgroup"]), _words(said["variables"]), bool(said["fused"]))
        return body.decode(), header
    except (KeyError, TypeError, ValueError) as error:
        raise CompileError(name, found=f"an image of which {type(error).__name__}: {error}",
                           expected="WGSL behind a line that describes it") from error


def _words(said: Iterable[Any]) -> tuple[str, ...]:
    return tuple([str(word) for word in said])


def _arrays(said: Iterable[Any]) -> tuple[Array, ...]:
    return tuple([Array(str(m["name"]), int(m.get("bytes", 4)), _words(m["uses"]),
                        int(m.get("count", 0))) for m in said])  # fmt: skip


def module(text: str, header: WGSLHeader, groups: Sequence[int]) -> str:
    """Return a complete module.

    Parameters
    ----------
    text : str
        Of the image.
    header : WGSLHeader
        What the image says.
    groups : sequence of int
        For each parameter, the number of its binding less 1: those that lie in one buffer have the
        same. Numbers are dense, in the order of their first use.
    """
    parts = [_struct(header), "@group(0) @binding(0) var<uniform> weft: Weft;", _ZERO]
    if header.fused:
        parts.append("override weft_fused: bool = false;")
    for number, what in enumerate(header.bindings(groups)):
        if what == "uniform":
            continue
        if isinstance(what, int):
            arrays = [m for m, group in zip(header.memories, groups, strict=True) if group == what]
        else:
            uses = header.status if what == "status" else header.scratch
            arrays = [Array(str(what), 4, uses)]
        atomic = any(is_atomic(array.uses) for array in arrays)
        words = f"weft_words{number}"
        parts.append(f"@group(0) @binding({number}) var<storage, read_write> {words}: "
                     f"array<{_word(atomic)}>;")
        for array in arrays:
            parts += accessors(array.name, words, array.uses, atomic)
    for array in header.workgroup:
        atomic, words = is_atomic(array.uses), f"weft_{array.name}_words"
        parts.append(f"var<workgroup> {words}: array<{_word(atomic)}, {array.elements}>;")
        parts += accessors(array.name, words, array.uses, atomic)
    return "\n".join([*parts, text])


def _word(atomic: bool) -> str:
    return "atomic<u32>" if atomic else "u32"


def _struct(header: WGSLHeader) -> str:
    """Return the structure of the uniform buffer."""
    members = ["zeros: array<vec4<u32>, 2>"]
    members += [f"{m.name}_at: u32" for m in header.memories]
    members += ["pad: u32"] * (len(header.memories) % 2)
    members += [f"{name}: vec2<u32>" for name in header.variables]
    return f"struct Weft {{ {', '.join(members)} }}"


def uniforms(places: Sequence[int], variables: Sequence[int]) -> bytes:
    """Return the bytes of the uniform buffer.

    Parameters
    ----------
    places : sequence of int
        The element of its binding at which each array begins.
    variables : sequence of int
        Their values.

    Raises
    ------
    struct.error
        For a variable that is no integer of 64 bits.
    """
    words = [0] * _FIRST + list(places) + [0] * (len(places) % 2)
    made = struct.pack(f"<{len(words)}I{len(variables)}q", *words, *variables)
    return made + bytes(-len(made) % _ROUND)
