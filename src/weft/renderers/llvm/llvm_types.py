"""LLVM types, constants, and the writer that all parts of the LLVM renderer append to."""

from __future__ import annotations

import math
import struct
from typing import Any, Final

from weft.errors import VerifyError
from weft.ir import dtype as dt
from weft.ir.dtype import DType
from weft.ir.linear import Value
from weft.renderers.base import Style, encode_float
from weft.target import Target

__all__ = ["FunctionWriter", "Module", "constant", "element", "splat", "stored", "vector"]

_ELEMENT: Final = {
    **{d: f"i{d.bits}" for d in dt.ALL if d.kind in "bui"},
    # Narrow floats are carried as their bits: what computes with them converts to float first.
    dt.float16: "i16", dt.bfloat16: "i16", dt.float8_e4m3fn: "i8", dt.float8_e5m2: "i8",
    dt.float32: "float", dt.float64: "double",
}  # fmt: skip

_SINGLE: Final = struct.Struct("<f")
_DOUBLE: Final = struct.Struct("<d")


def element(dtype: DType) -> str:
    """Return the LLVM type of one value in a register: i1 for bool."""
    return _ELEMENT[dtype]


def vector(kind: str, lanes: int) -> str:
    """Return a vector type, or `kind` itself for one lane."""
    return kind if lanes == 1 else f"<{lanes} x {kind}>"


def stored(dtype: DType) -> str:
    """Return the LLVM type of one element in memory: i8 for bool."""
    return "i8" if dtype.kind == "b" else _ELEMENT[dtype]


def splat(kind: str, lanes: int, text: str) -> str:
    """Return a constant in every lane."""
    return text if lanes == 1 else f"splat ({kind} {text})"


def constant(value: Any, dtype: DType, lanes: int = 1) -> str:
    """Return the literal of a Python value."""
    if dtype.kind == "b":
        text = "true" if value else "false"
    elif dtype.kind != "f":
        text = str(int(value))
    elif dtype is dt.float64:
        text = f"0x{_double_bits(float(value)):016X}"
    elif dtype is dt.float32:
        text = f"0x{_double_bits(_single(float(value))):016X}"
    else:
        text = str(encode_float(float(value), dtype))
    return splat(_ELEMENT[dtype], lanes, text)


def _double_bits(value: float) -> int:
    return 0x7FF8000000000000 if value != value else int.from_bytes(_DOUBLE.pack(value), "little")


def _single(value: float) -> float:
    """Return the double of a value rounded to float32: LLVM writes a float as such a double."""
    try:
        return float(_SINGLE.unpack(_SINGLE.pack(value))[0])
    except OverflowError:
        return math.copysign(math.inf, value)


class Module:
    """What the functions of one module share: declarations, metadata, names.

    Attributes
    ----------
    flags : str
        Fast-math flags, with a trailing blank, or empty.
    literals : dict
        Operand text of the values that are constants, by value id.
    numbers : dict
        Python values of those constants.
    ranges : dict
        Inclusive ranges of int64 values, by value id.
    hides : bool
        Whether LLVM may be kept from looking where an address comes from: it would make no vectors.
    """

    def __init__(self, target: Target, fastmath: bool, hides: bool, style: Style) -> None:
        self.target, self.hides, self.style = target, hides, style
        self.flags = "reassoc contract " if fastmath else ""
        self.literals: dict[int, str] = {}
        self.numbers: dict[int, Any] = {}
        self.ranges: dict[int, tuple[int, int]] = {}
        self.declarations: dict[str, None] = {}
        self.metadata: list[str] = []
        self.imports: dict[str, None] = {}
        self.constants: list[str] = []
        self.prints = False  # floats or bools
        self._shared: dict[str, str] = {}

    def declare(self, text: str) -> None:
        """Add a declaration once."""
        self.declarations[text] = None

    def node(self, body: str) -> str:
        """Add a metadata node and return its reference."""
        self.metadata.append(f"!{len(self.metadata)} = {body}")
        return f"!{len(self.metadata) - 1}"

    def loop_end(self) -> str:
        """Return what follows the branch back to the head of a loop: a comma and metadata."""
        if not self.style.loop_bytes:
            return ""
        align = self.shared(f'!{{!"llvm.loop.align", i32 {self.style.loop_bytes}}}')
        own = f"!{len(self.metadata)}"
        return f", !llvm.loop {self.node(f'distinct !{{{own}, {align}}}')}"

    def shared(self, body: str) -> str:
        """Return the reference of a metadata node that all its users share."""
        found = self._shared.get(body)
        if found is None:
            found = self._shared[body] = self.node(body)
        return found

    @property
    def nontemporal(self) -> str:
        """The metadata node of a non-temporal access."""
        return self.shared("!{i32 1}")

    @property
    def unlikely(self) -> str:
        """The metadata node of a branch whose second way is almost never taken."""
        return self.shared('!{!"branch_weights", i32 1048575, i32 1}')


class FunctionWriter:
    """Appends instructions to one function and knows what its values are called.

    Attributes
    ----------
    names : dict
        Operand text by value id, for values that are not literals.
    block : str
        Label of the block being written.
    streams : bool
        Whether it holds non-temporal stores.
    displaced : dict
        Int64 values that are another value and a constant, by id: written where they are used,
        as part of an address if they are one.
    """

    def __init__(self, module: Module) -> None:
        self.module = module
        self.lines: list[str] = []
        self.names: dict[int, str] = {}
        self.block = "entry"
        self.streams = False
        self.narrows = False  # whether a vector was truncated to 32 bits
        self.displaced: dict[int, tuple[Value, int]] = {}
        self.tiles: dict[tuple[str, str], str] = {}  # matrices as tiles, by block and operand
        self.normal: set[int] = set()  # values that are not subnormal
        self.depths: dict[int, int] = {}  # of shuffles and extremes in one another, by value id
        self._made: dict[str, str] = {}  # what `once` has appended to the block
        self.temporaries = 0
        self.blocks = 0

    def ref(self, value: Value) -> str:
        """Return the operand text of a value."""
        literal = self.module.literals.get(value.id)
        return literal if literal is not None else self.names[value.id]

    def typed(self, value: Value) -> str:
        """Return the operand text of a value with its type in front."""
        return f"{self.type_of(value)} {self.ref(value)}"

    @staticmethod
    def type_of(value: Value) -> str:
        """Return the LLVM type of a value in a register."""
        return vector(_ELEMENT[value.dtype], value.lanes)

    def new(self, text: str) -> str:
        """Append ``%tN = text`` and return ``%tN``."""
        name = f"%t{self.temporaries}"
        self.temporaries += 1
        self.lines.append(f"  {name} = {text}")
        if text.startswith("trunc <") and text.endswith("x i32>"):
            self.narrows = True
        return name

    def once(self, text: str) -> str:
        """Return the result of an instruction without effects, which a block has only once.

        LLVM would find the repetitions, too, but takes longer for each than it takes to leave
        them out.
        """
        found = self._made.get(text)
        if found is None:
            found = self._made[text] = self.new(text)
        return found

    def put(self, text: str) -> None:
        """Append an instruction without a result."""
        self.lines.append("  " + text)

    def private(self, size: int) -> str:
        """Return the address of some bytes on the stack of the function."""
        raise VerifyError("render", found=f"{size} bytes of a stack",
                          expected="a function that has one")

    def label(self, hint: str) -> str:
        """Return a new block label."""
        self.blocks += 1
        return f"{hint}{self.blocks}"

    def begin(self, label: str) -> None:
        """Start a block."""
        self.lines.append(f"{label}:")
        self.block = label
        self._made.clear()

    def intrinsic(self, name: str, result: str, *args: tuple[str, str]) -> str:
        """Append a call of an intrinsic that returns a value; args are (type, text)."""
        self.module.declare(f"declare {result} @{name}({', '.join(t for t, _ in args)})")
        return self.new(f"call {result} @{name}({', '.join(f'{t} {a}' for t, a in args)})")

    def perform(self, name: str, *args: tuple[str, str]) -> None:
        """Append a call of an intrinsic that returns nothing."""
        self.module.declare(f"declare void @{name}({', '.join(t for t, _ in args)})")
        self.put(f"call void @{name}({', '.join(f'{t} {a}' for t, a in args)})")


def suffix(kind: str, lanes: int) -> str:
    """Return the type suffix of an intrinsic's name: ``v16f32``."""
    scalar = {"float": "f32", "double": "f64", "half": "f16"}.get(kind, kind)
    return scalar if lanes == 1 else f"v{lanes}{scalar}"
