"""Types and values of the C writer: vectors, masks, and names that parallel bodies capture."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Final

from weft.ir import dtype as dt
from weft.ir.dtype import DType
from weft.ir.linear import Compute, LinearKernel, Value
from weft.ir.op import Op, Operation
from weft.renderers import ranges
from weft.renderers.cstyle.base import LONGEST, Writer, is_foreign
from weft.renderers.cstyle.c.context import Mask, padded
from weft.renderers.cstyle.c.function import Captured, Function
from weft.renderers.cstyle.c.masks import MASKS
from weft.renderers.cstyle.c.simd import converted
from weft.renderers.cstyle.c.vectors import LANES, choice
from weft.renderers.cstyle.context import Row
from weft.renderers.cstyle.text import KEYWORDS, Text
from weft.target import Target

__all__ = ["CValues"]

_SPLATS: Final = (Op.CONST, Op.BROADCAST)
_PARAMETERS: Final = frozenset(("buffers", "vars", "status", "env", "begin", "end", "result",
                                "launch", "turns", "heap", "own", "leave", "args",
                                "nargs", "e", "malloc", "free", "printf",
                                "INLINE"))  # fmt: skip


class CValues(Writer):
    """What the C writer calls types and values.

    Attributes
    ----------
    LANES : mapping of operation to function
        How operations on vectors are written, beside `Writer.ROWS` for those on scalars.
    MASKS : mapping of operation to function
        How vectors of bools are made.
    function : Function
        What is written at the moment: the kernel, or a parallel body.
    """

    WRAPS: ClassVar[bool] = True  # compiled with -fwrapv
    INLINE: ClassVar[str] = "INLINE"
    RESERVED: ClassVar[frozenset[str]] = KEYWORDS | _PARAMETERS
    LANES: ClassVar[Mapping[Operation, Row]] = LANES
    MASKS: ClassVar[Mapping[Operation, Callable[[Any, Compute], Mask]]] = MASKS

    function: Function

    def __init__(self, target: Target, kernel: LinearKernel, name: str) -> None:
        super().__init__(target, kernel, name)
        self.typedefs: dict[str, str] = {}
        self.masks: dict[int, Mask] = {}
        self.makers: dict[int, Compute] = {}
        self._home: dict[str, Function] = {}  # of identifiers that functions may capture
        self._types: dict[str, str] = {}  # of these, as a declaration without the name
        self._numbers: dict[str, int] = {}

    # words

    def emit(self, line: str) -> None:
        """Append a line to the block that is open."""
        self.function.lines.append("  " * self.depth + line)

    def type(self, d: DType, lanes: int = 1) -> str:
        """Return the type of values in registers."""
        kind = self.TYPES[d]
        return kind if lanes == 1 else self.vector(kind, d.itemsize, lanes)

    def vector(self, kind: str, size: int, lanes: int) -> str:
        """Return a vector of elements of a type of `size` bytes."""
        name = f"{kind.replace(' ', '_')}x{lanes}"
        if name not in self.typedefs:
            nbytes = size * padded(lanes)
            self.typedefs[name] = (
                f"typedef {kind} {name} __attribute__((vector_size({nbytes})));")
        return name

    def unaligned(self, d: DType, lanes: int) -> str:
        """Return the type of a vector in memory."""
        kind = self.type(d, lanes)
        name = f"{kind}u"
        if name not in self.typedefs:
            self.typedefs[name] = (f"typedef {kind} {name} "
                                   f"__attribute__((aligned({d.itemsize}), may_alias));")
        return name

    def mask_type(self, width: int, lanes: int) -> str:
        """Return the type of masks with lanes of so many bits."""
        return self.type(dt.signed(width), lanes)

    def number_of(self, word: str) -> int:
        """Return a number for a word, the same for an equal one."""
        return self._numbers.setdefault(word, len(self._numbers))

    def choose(self, condition: str, a: str, b: str, d: DType, lanes: int) -> str:
        """Return `a` where a comparison of values of `d` holds, else `b`; all are of `d`."""
        if lanes == 1:
            return super().choose(condition, a, b, d, lanes)
        mask = self.mask_type(d.bits, lanes)
        return f"{choice(self, d, lanes)}(({mask})({condition}), {a}, {b})"

    def converted(self, text: str, source: DType, to: DType, lanes: int) -> str:
        """Return values converted as C does."""
        if lanes == 1:
            return super().converted(text, source, to, lanes)
        return converted(self, text, source, to, lanes)

    def same_bits(self, text: str, source: DType, to: DType, lanes: int) -> str:
        """Return the bits of values as those of another type of that width."""
        if lanes == 1:
            return super().same_bits(text, source, to, lanes)
        return f"({self.type(to, lanes)}){text}"

    def function_name(self, op: Operation, d: DType) -> str:
        """Return the builtin of a function of floats."""
        return f"__builtin_{self.FLOATS[op]}{'f' if d is dt.float32 else ''}"

    @property
    def streams(self) -> bool:
        """Whether vectors are stored past the caches where a kernel asks for it."""
        return self.target.arch == "x86_64"

    def every(self, mask: str, d: DType, lanes: int) -> str:
        """Return nothing: C asks lane by lane."""
        return ""

    def vector_call(self, op: Operation, d: DType, lanes: int, names: str) -> list[str]:
        """Return nothing: C has functions of scalars alone."""
        return []

    def special(self, value: float, d: DType) -> str:
        """Return an infinity or NaN."""
        suffix = "f" if d is dt.float32 else ""
        if value != value:
            return f'__builtin_nan{suffix}("")'
        return f"{'-' if value < 0 else ''}__builtin_inf{suffix}()"

    # values

    def known(self, name: str, kind: str) -> None:
        """Remember where an identifier is declared, and its type."""
        self._home[name], self._types[name] = self.function, kind

    def seen(self, name: str) -> str:
        """Return an identifier, captured from the function around if it is one of that."""
        f = self.function
        if self._home.get(name, f) is not f and name not in f.captured:
            kind = self._types[name]
            restrict = "restrict " if kind.endswith("restrict ") else ""
            member = kind.removesuffix("restrict ")
            gap = "" if kind.endswith("*") or restrict else " "
            f.captured[name] = Captured(f"{member}{gap}{name}", f"{kind}{gap}{name}")
        return name

    def operand(self, value: Value) -> Text:
        """Return what a value is called; a splat is written anew where it is used."""
        made = self.makers.get(value.id)
        if made is not None and not value.dtype.is_bool:
            text: Text = self.LANES[made.op](self, made)
            return text
        text = super().operand(value)
        if text.text in self._home:
            self.seen(text.text)
        return text

    def declare(self, value: Value, text: Text | str) -> None:
        """Write a constant of the block."""
        super().declare(value, text)
        self.known(self.texts[value.id].text, self.type(value.dtype, value.lanes))

    def maker(self, value: Value) -> Compute | None:
        """Return the CONST, BROADCAST or RAMP that made a vector, else None."""
        return self.makers.get(value.id)

    def is_splat(self, value: Value) -> bool:
        """Return whether all lanes of a vector are known to be one element."""
        made = self.makers.get(value.id)
        return made is not None and made.op in _SPLATS

    def scalar(self, value: Value) -> Text:
        """Return the one element of such a vector; any other vector as it is."""
        made = self.makers.get(value.id)
        if made is None or made.op not in _SPLATS:
            return self.operand(value)
        if made.op is Op.CONST:
            return self.literal(made.attr, value.dtype)
        return self.operand(made.args[0])

    def natural(self, value: Value) -> Mask:
        """Return a vector of bools as it was made."""
        return self.masks[value.id]

    def mask(self, value: Value, width: int) -> str:
        """Return a vector of bools with lanes of so many bits."""
        made = self.masks[value.id]
        if made.width in (0, width):
            return made.render(width)
        kind = self.mask_type(width, value.lanes)
        return f"__builtin_convertvector({made.render(made.width)}, {kind})"

    # pure instructions

    def compute(self, inst: Compute) -> None:
        """Write a pure operation."""
        result = inst.result
        if result.lanes == 1 and all(a.lanes == 1 for a in inst.args):
            super().compute(inst)
            return
        if inst.op is Op.CONST:
            self.numbers[result.id] = inst.attr
        elif inst.op is Op.BROADCAST and inst.args[0].id in self.numbers:
            self.numbers[result.id] = self.numbers[inst.args[0].id]
        ranges.record(self.ranges, inst)
        if inst.op in (*_SPLATS, Op.RAMP):
            self.makers[result.id] = inst
        if result.dtype.is_bool and result.lanes > 1:
            self.define_mask(result, self.lanes_row(self.MASKS, inst)(self, inst))
        elif result.id not in self.makers:
            self.define(result, self.lanes_row(self.LANES, inst)(self, inst))

    def lanes_row(self, table: Mapping[Operation, Any], inst: Compute) -> Any:
        """Return what writes an operation on vectors.

        Raises
        ------
        UnsupportedError
            For one that should have been decomposed.
        """
        row = table.get(inst.op)
        if row is None or is_foreign(inst):
            raise self.lacks(inst)
        return row

    def define_mask(self, value: Value, mask: Mask) -> None:
        """Write a vector of bools where it is used, or as a constant of the block."""
        if not mask.width:
            self.masks[value.id] = mask
            return
        text = mask.render(mask.width)
        if value.id in self.uses.near and len(text) <= LONGEST:
            self.masks[value.id] = Mask(mask.width, lambda _: text)
            return
        name = self.named(value)
        kind = self.mask_type(mask.width, value.lanes)
        self.emit(f"const {kind} {name} = {text};")
        self.known(name, kind)
        self.masks[value.id] = Mask(mask.width, lambda _: self.seen(name))
