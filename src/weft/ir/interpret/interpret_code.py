"""Python source for the interpreters: the shared part of loop and kernel level.

A kernel becomes one Python function over flat lists, so that a statement costs well below a
microsecond. A vector is a tuple of lanes. Memory that was never written holds None.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Final

from weft.errors import BoundsError, LaunchError, VerifyError
from weft.ir.dtype import DType, int64
from weft.ir.expr import picks_of
from weft.ir.interpret import interpret_scalar as scalar
from weft.ir.interpret.interpret_matrix import matrix2, matrix4
from weft.ir.interpret.interpret_value import round_float, to_bits
from weft.ir.lookup import values_of
from weft.ir.op import MATRICES, Op, Operation
from weft.ir.stmt import Location
from weft.ir.text.print_format import shown

Where = tuple[str, int] | None

_INLINE_FLOAT: Final = {Op.ADD: "+", Op.SUB: "-", Op.MUL: "*"}
_INLINE_COMPARE: Final = {Op.LT: "<", Op.LE: "<=", Op.EQ: "==", Op.NE: "!="}
_MAX_BLOCKS: Final = 12  # Python allows 20 nested loops in one function


def where_of(location: Location | None) -> Where:
    """Return a location as errors take it."""
    return None if location is None else (location.file, location.line)


def zero(d: DType) -> bool | int | float:
    """Return the zero of a type."""
    return 0.0 if d.is_float else False if d.is_bool else 0


def literal(value: Any, d: DType) -> Any:
    """Return a constant as a Python value of its type, floats rounded to it."""
    if d.is_float:
        return round_float(float(value), d)
    return bool(value) if d.is_bool else int(value)


def lanewise(op: Operation, operand: DType, result: DType) -> Callable[..., Any]:
    """Return the function of an elementwise op on tuples of lanes."""
    one = scalar.function(op, operand, result)
    return lambda *args: tuple(map(one, *args))


def apply(op: Operation, operand: DType | None, result: DType, lanes: int, attr: Any,
          args: Sequence[Any]) -> Any:  # fmt: skip
    """Return the value of one operation on already evaluated operands."""
    if op is Op.CONST:
        value = literal(attr, result)
        return value if lanes == 1 else (value,) * lanes
    if op is Op.BROADCAST:
        return (args[0],) * lanes
    if op is Op.RAMP:
        add = scalar.function(Op.ADD, result, result)
        return tuple(add(args[0], i) for i in range(lanes))
    if op is Op.PLACES:
        return tuple(args[0] + i * attr + j for i in range(16) for j in range(16))
    if op is Op.EXTRACT:
        return args[0][attr]
    if op is Op.HALF:
        half = args[0][lanes:] if attr else args[0][:lanes]
        return half if lanes > 1 else half[0]
    if op is Op.BITS:
        return sum(1 << k for k, flag in enumerate(args[0]) if flag)
    if op is Op.WORDS:
        assert operand is not None
        parts = [to_bits(x, operand) for x in args[0]]
        group = 4 // operand.itemsize
        words = [sum(part << operand.bits * r for r, part in enumerate(parts[i:i + group]))
                 for i in range(0, len(parts), group)]
        return tuple(words) if lanes > 1 else words[0]
    if op is Op.REVERSE:
        return args[0][::-1]
    if op is Op.SLIDE:
        return args[0][lanes - attr:] + args[1][:lanes - attr]
    if op is Op.SHUFFLE:
        both = args[0] + args[1]
        return tuple(both[i] for i in picks_of(attr))
    if op is Op.COMPRESS:
        kept = tuple(x for flag, x in zip(*args, strict=True) if flag)
        return kept + (literal(0, result),) * (lanes - len(kept))
    if op is Op.LOOKUP:
        values = values_of(attr)
        found = tuple(values[i % len(values)] for i in (args[0] if lanes > 1 else args))
        return found if lanes > 1 else found[0]
    if op in MATRICES:
        return matrix2(*args) if op is Op.MATRIX2 else matrix4(op, *args)
    assert operand is not None
    one = scalar.function(op, operand, result)
    return one(*args) if lanes == 1 else tuple(map(one, *args))


# what generated code calls


def out_of_bounds(name: str, index: object, size: object, where: Where) -> None:
    """Raise for an access outside a memory."""
    raise BoundsError(f"access to {name}", found=f"index {index}", expected=f"within {size}",
                      where=where)


def uninitialised(name: str, index: object, where: Where) -> None:
    """Raise for a read of memory that nothing wrote."""
    raise VerifyError(f"read of {name}", found=f"element {index}, which was never written",
                      expected="a store before the load", where=where)


def failed(message: str, value: int | None, bound: int | None, where: Where) -> None:
    """Raise for an assertion of the kernel."""
    if bound is not None:
        raise BoundsError(message, found=value, expected=f"within {bound}", where=where)
    raise LaunchError(message, found=value, where=where)


def vector_load(data: list[Any], name: str, offsets: Sequence[int | None], fill: Any,
                where: Where) -> tuple[Any, ...]:  # fmt: skip
    """Read one element per lane; None stands for a masked lane."""
    size, out = len(data), []
    fills = fill if isinstance(fill, tuple) else (fill,) * len(offsets)
    for offset, instead in zip(offsets, fills, strict=True):
        if offset is None:
            out.append(instead)
            continue
        if not 0 <= offset < size:
            out_of_bounds(name, offset, size, where)
        if data[offset] is None:
            uninitialised(name, offset, where)
        out.append(data[offset])
    return tuple(out)


def vector_store(data: list[Any], name: str, offsets: Sequence[int | None],
                 values: Sequence[Any], where: Where) -> None:  # fmt: skip
    """Write one element per lane, in lane order."""
    size = len(data)
    for offset, value in zip(offsets, values, strict=True):
        if offset is None:
            continue
        if not 0 <= offset < size:
            out_of_bounds(name, offset, size, where)
        data[offset] = value


def lane_offsets(index: Sequence[int | tuple[int, ...]], shape: Sequence[int], lanes: int,
                 mask: Any, name: str, where: Where) -> list[int | None]:  # fmt: skip
    """Return the flat offset of each lane, None where masked; every index is checked.

    If all of `index` are scalars, the lanes follow each other on the last axis.
    """
    masks = mask if isinstance(mask, tuple) else (mask,) * lanes
    consecutive = not any(isinstance(i, tuple) for i in index)
    offsets: list[int | None] = []
    for lane in range(lanes):
        if not masks[lane]:
            offsets.append(None)
            continue
        at = [i[lane] if isinstance(i, tuple) else i for i in index]
        if consecutive and at:
            at[-1] += lane
        flat = 0
        for i, n in zip(at, shape, strict=True):
            if not 0 <= i < n:
                out_of_bounds(name, tuple(at), tuple(shape), where)
            flat = flat * n + i
        offsets.append(flat)
    return offsets


def exchange(data: list[Any], offset: int, kind: str, value: Any, compare: Any,
             fn: Callable[..., Any] | None) -> Any:  # fmt: skip
    """Carry out one atomic operation and return the old value."""
    old = data[offset]
    if fn is not None:
        data[offset] = fn(old, value)
    elif kind == "exch" or (kind == "cas" and _same_bits(old, compare)):
        data[offset] = value
    elif kind in ("min", "nanmin", "max", "nanmax"):
        smaller = kind.endswith("min")
        if (value < old if smaller else value > old) or (
            kind.startswith("nan") and old != old and value == value  # a NaN gives way
        ):
            data[offset] = value
    elif kind == "inc":
        data[offset] = 0 if old >= value else old + 1
    elif kind == "dec":
        data[offset] = value if old == 0 or old > value else old - 1
    return old


def _same_bits(a: Any, b: Any) -> bool:
    """Whether an atomic comparison finds two values alike: bits decide, as in hardware."""
    if not isinstance(a, float):
        return bool(a == b)
    return (a != a and b != b) or (a == b and math.copysign(1.0, a) == math.copysign(1.0, b))


_ATOMIC_OPS: Final[dict[str, Operation]] = {
    "add": Op.ADD, "sub": Op.SUB, "min": Op.MIN, "max": Op.MAX, "and": Op.AND, "or": Op.OR,
    "xor": Op.XOR,
}  # fmt: skip


def atomic_op(kind: str, d: DType) -> Operation | None:
    """Return the operation that gives the new value of an element, None if it is none of the IR's.

    The extremes of floats are not: an element stays where a NaN or an equal zero comes.
    """
    return None if d.is_float and kind in ("min", "max") else _ATOMIC_OPS.get(kind)


class PythonCode:
    """Lines of one generated function, the objects it refers to, and its indentation."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.objects: dict[str, Any] = {
            "out_of_bounds": out_of_bounds, "uninitialised": uninitialised, "failed": failed,
            "vector_load": vector_load, "vector_store": vector_store,
            "lane_offsets": lane_offsets, "exchange": exchange, "shown": shown, "nan": float("nan"),
            "inf": float("inf"), "wrap": scalar.function(Op.ADD, int64, int64),
        }  # fmt: skip
        self._known: dict[object, str] = {}
        self._blocks: list[str | None] = []
        self._count = 0
        self.indent = 1

    def emit(self, line: str) -> None:
        """Append a line."""
        self.lines.append("    " * self.indent + line)

    def fresh(self, prefix: str = "t") -> str:
        """Return a new Python name."""
        self._count += 1
        return f"{prefix}{self._count}"

    def object(self, made: Any, key: object = None, prefix: str = "g") -> str:
        """Return the name under which generated code sees an object."""
        if key is not None and key in self._known:
            return self._known[key]
        name = self.fresh(prefix)
        self.objects[name] = made
        if key is not None:
            self._known[key] = name
        return name

    def text_of(self, value: str, dtype: DType, lanes: int) -> str:
        """Return the code of what printing shows of a value."""
        if lanes > 1:
            return value
        return f"shown({value}, {self.object(dtype, ('dtype', dtype))})"

    def place(self, location: Location | None) -> str:
        """Return the text of a source place, for errors."""
        return repr(where_of(location))

    def begin(self, header: str, outline: bool = False) -> None:
        """Open a loop; if allowed, a deep one goes on in a function of its own.

        A body may be outlined that assigns no name of its surroundings and does not break.
        """
        self.emit(header)
        self.indent += 1
        name = None
        if outline and self._depth() >= _MAX_BLOCKS:
            name = self.fresh("deep")
            self.emit(f"def {name}():")
            self.indent += 1
        self._blocks.append(name)
        self.emit("pass")

    def _depth(self) -> int:
        """Return the number of open loops in the current Python function."""
        depth = 0
        for name in reversed(self._blocks):
            if name is not None:
                break
            depth += 1
        return depth

    def end(self) -> None:
        """Close the innermost loop."""
        name = self._blocks.pop()
        if name is not None:
            self.indent -= 1
            self.emit(f"{name}()")
        self.indent -= 1

    def operation(self, op: Operation, operand: DType | None, result: DType, lanes: int,
                  attr: Any, args: Sequence[str]) -> str:  # fmt: skip
        """Return the Python expression of one operation."""
        if op is Op.CONST:
            return repr(apply(op, None, result, lanes, attr, ()))
        if op is Op.BROADCAST:
            return f"({args[0]},) * {lanes}"
        if op is Op.EXTRACT:
            return f"{args[0]}[{attr}]"
        if op.group == "vector" or op in MATRICES or op is Op.LOOKUP:
            def run(*xs: Any) -> Any:
                return apply(op, operand, result, lanes, attr, xs)

            return f"{self.object(run)}({', '.join(args)})"
        assert operand is not None
        if lanes > 1:
            key: object = ("lanes", op, operand, result)
            name = self._known.get(key) or self.object(lanewise(op, operand, result), key)
            return f"{name}({', '.join(args)})"
        if op in _INLINE_COMPARE:
            return f"{args[0]} {_INLINE_COMPARE[op]} {args[1]}"
        if op is Op.WHERE:
            return f"{args[1]} if {args[0]} else {args[2]}"
        if op in _INLINE_FLOAT:
            plain = f"{args[0]} {_INLINE_FLOAT[op]} {args[1]}"
            if operand is int64:
                low, high = -(1 << 63), 1 << 63
                return f"s if {low} <= (s := {plain}) < {high} else wrap(s, 0)"
            if operand.is_float and operand.bits == 64:
                return plain
        key = (op, operand, result)
        name = self._known.get(key) or self.object(scalar.function(op, operand, result), key)
        return f"{name}({', '.join(args)})"

    def compile(self, name: str, parameters: Sequence[str]) -> Callable[..., None]:
        """Return the finished function."""
        source = "\n".join([f"def kernel({', '.join(parameters)}):", "    pass", *self.lines])
        space = dict(self.objects)
        # A file name below this one, so that errors do not take a generated line for the user's.
        exec(compile(source, f"{__file__}/{name}", "exec"), space)
        made: Callable[..., None] = space["kernel"]
        return made
