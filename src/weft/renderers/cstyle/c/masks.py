"""The rows of the op table that make vectors of bools in C."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from weft.ir import dtype as dt
from weft.ir.linear import Compute, Value
from weft.ir.op import Op, Operation
from weft.renderers import ranges
from weft.renderers.cstyle.c.context import CWords, Mask, padded
from weft.renderers.cstyle.c.lanes import moved
from weft.renderers.cstyle.operations import define
from weft.renderers.cstyle.text import ATOM, UNARY, Text, infix

__all__ = ["MASKS"]

Maker = Callable[[CWords, Compute], Mask]

_NEAR: Final = 1 << 62  # numbers below have differences that do not wrap
_USUAL: Final = 32  # the lanes that most masks are used for


def _splat(w: CWords, text: Callable[[], Text], lanes: int) -> Mask:
    """Return a scalar bool in every lane, made as wide as it is needed."""
    def render(width: int) -> str:
        kind = w.mask_type(width, lanes)
        listed = ", ".join(["x"] * padded(lanes))
        name = define(w, f"mask_{kind}", kind, "bool flag",
                      f"const {w.type(dt.signed(width))} x = flag ? -1 : 0;",
                      f"return ({kind}){{ {listed} }};")
        return w.call(name, text()).text

    return Mask(0, render)


def _const(w: CWords, inst: Compute) -> Mask:
    value = inst.attr
    return _splat(w, lambda: Text("1" if value else "0"), inst.result.lanes)


def _broadcast(w: CWords, inst: Compute) -> Mask:
    return _splat(w, lambda: w.operand(inst.args[0]), inst.result.lanes)


# comparisons


def _compare(operator: str) -> Maker:
    def row(w: CWords, inst: Compute) -> Mask:
        a, b = inst.args
        if a.dtype.is_bool:
            return _of_bools(w, operator, a, b)
        counted = _counted(w, operator, a, b)
        if counted is not None:
            return counted
        width = a.dtype.itemsize * 8
        kind = w.mask_type(width, a.lanes)
        x = w.operand(a) if w.is_splat(b) else w.scalar(a)
        text = infix(operator, x, w.scalar(b))
        return Mask(width, lambda _: f"({kind})({text.text})")

    return row


def _counted(w: CWords, operator: str, a: Value, b: Value) -> Mask | None:
    """Return ``first + lane < end`` as a count of lanes, which needs no lanes of 64 bits."""
    if operator not in ("<", "<=") or a.dtype is not dt.int64:
        return None
    left, right = w.maker(a), w.maker(b)
    if left is None or right is None or (left.op is Op.RAMP) is (right.op is Op.RAMP):
        return None
    ramp, end = (left, right) if left.op is Op.RAMP else (right, left)
    limits = [ranges.of(w.ranges, v) for v in (ramp.result, end.result)]
    wraps = any(low <= -_NEAR or high >= _NEAR for low, high in limits)
    below = ramp is left
    lanes = a.lanes

    def render(width: int) -> str:
        first, last = (w.operand(i.args[0]) if i.args else w.literal(i.attr, dt.int64)
                       for i in (ramp, end))
        more = below is (operator == "<=")  # one lane more: the one that equals the bound
        if wraps:
            text = w.call(_careful(w, lanes, width, more), first, last).text
        else:
            count = infix("-", last, first)
            text = w.call(_first(w, lanes, width),
                          infix("+", count, Text("1")) if more else count).text
        return text if below else f"~{text}"

    return Mask(0, render)


def _first(w: CWords, lanes: int, width: int) -> str:
    """Return the function that makes a mask of the first lanes, so many of them."""
    kind = w.mask_type(width, lanes)
    steps = ", ".join(map(str, range(padded(lanes))))
    return define(w, f"first_{kind}", kind, "i64 count",
                  f"const i64 least = count < 0 ? 0 : count > {lanes} ? {lanes} : count;",
                  f"return ({kind})(({kind}){{ {steps} }} < ({w.type(dt.signed(width))})least);")


def _careful(w: CWords, lanes: int, width: int, more: bool) -> str:
    """Return the function of ``from + lane < end`` for any numbers; `more`: also if equal."""
    kind, operator = w.mask_type(width, lanes), "<=" if more else "<"
    first = _first(w, lanes, width)
    name = f"{'until' if more else 'below'}_{kind}"
    return define(
        w, name, kind, "i64 from, i64 end", "i64 count;",
        f"if (__builtin_expect(from > {(1 << 63) - lanes}ll, 0)) {{  // some lanes wrap around",
        f"  {kind} made = {{}};",
        f"  for (int i = 0; i < {lanes}; i++) made[i] = -(from + i {operator} end);",
        "  return made;", "}",
        "count = (i64)((u64)end - (u64)from);",
        f"if (((end ^ from) & (end ^ count)) < 0) count = from < 0 ? {lanes} : -1;",
        f"return {first}(count < {lanes} ? count + {int(more)} : {lanes});" if more
        else f"return {first}(count);")


def _of_bools(w: CWords, operator: str, a: Value, b: Value) -> Mask:
    forms = {"==": "~({} ^ {})", "!=": "{} ^ {}", "<": "~{} & {}", "<=": "~{} | {}"}
    return _joined(w, forms[operator], a, b)


# logic


def _joined(w: CWords, form: str, *values: Value) -> Mask:
    width = _common(w, *values)

    def render(width: int) -> str:
        return "(" + form.format(*(_bracketed(w.mask(v, width)) for v in values)) + ")"

    if width:
        text = render(width)
        return Mask(width, lambda _: text)
    return Mask(0, render)


def _bracketed(text: str) -> str:
    return text if text.isidentifier() or text[-1:] == ")" else f"({text})"


def _common(w: CWords, *values: Value) -> int:
    """Return the width in which masks meet, 0 if all are made as they are needed."""
    widths = {w.natural(v).width for v in values} - {0}
    if len(widths) > 1:
        return _USUAL if _USUAL in widths else max(widths)
    return widths.pop() if widths else 0


def _logic(form: str) -> Maker:
    return lambda w, inst: _joined(w, form, *inst.args)


def _where(w: CWords, inst: Compute) -> Mask:
    return _joined(w, "(({0} & {1}) | (~{0} & {2}))", *inst.args)


def _cast(w: CWords, inst: Compute) -> Mask:
    (x,) = inst.args
    if x.dtype.is_bool:
        return w.natural(x)
    if x.dtype.kind == "f" and x.dtype.bits < 32:
        raise w.lacks(inst)
    kind, text = w.mask_type(x.dtype.bits, x.lanes), w.operand(x)
    return Mask(x.dtype.bits, lambda _: f"({kind})({text.at(UNARY)} != 0)")


def _same(w: CWords, inst: Compute) -> Mask:
    return w.natural(inst.args[0])


def _move(w: CWords, inst: Compute) -> Mask:
    width = _common(w, *inst.args) or _USUAL
    kinds = [w.mask_type(width, v.lanes) for v in (inst.args[0], inst.result)]
    text = moved(w, inst, kinds, [Text(w.mask(v, width), ATOM) for v in inst.args])
    return Mask(width, lambda _: text.text)


MASKS: Final[dict[Operation, Maker]] = {
    Op.CONST: _const,
    Op.BROADCAST: _broadcast,
    **{op: _compare(sign) for op, sign in ((Op.LT, "<"), (Op.LE, "<="), (Op.EQ, "=="),
                                           (Op.NE, "!="))},
    Op.NOT: _logic("~{}"),
    **{op: _logic("{} & {}") for op in (Op.AND, Op.MIN)},
    **{op: _logic("{} | {}") for op in (Op.OR, Op.MAX)},
    Op.XOR: _logic("{} ^ {}"),
    Op.WHERE: _where,
    Op.CAST: _cast,
    Op.UNLIKELY: _same,
    **dict.fromkeys((Op.HALF, Op.REVERSE, Op.SLIDE, Op.SHUFFLE), _move),
}  # fmt: skip
