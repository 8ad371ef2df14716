"""Vector instructions in C that take lanes to other lanes, or out of a vector."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from weft.ir.expr import picks_of
from weft.ir.linear import Compute
from weft.ir.op import Op, Operation
from weft.renderers.cstyle.c.context import CWords, padded
from weft.renderers.cstyle.context import Row
from weft.renderers.cstyle.operations import define
from weft.renderers.cstyle.text import ATOM, EQUALITY, Text

__all__ = ["MOVES", "moved"]


def _picks(inst: Compute) -> tuple[str, tuple[int, ...]]:
    """Return what a movement is called, and the lanes that it picks of its operands."""
    op, lanes = inst.op, inst.args[0].lanes
    if op is Op.HALF:
        count = lanes // 2
        return ("upper" if inst.attr else "lower"), tuple(range(count * inst.attr,
                                                                count * (inst.attr + 1)))
    if op is Op.REVERSE:
        return "reverse", tuple(range(lanes - 1, -1, -1))
    if op is Op.SLIDE:
        return f"slide{inst.attr}", tuple(range(lanes - inst.attr, 2 * lanes - inst.attr))
    return "shuffle", picks_of(inst.attr)


def moved(w: CWords, inst: Compute, kinds: Sequence[str], texts: Sequence[Text]) -> Text:
    """Return a movement of lanes of one or two vectors of a type, made one of another.

    Parameters
    ----------
    w : CWords
        The writer.
    inst : Compute
        A HALF, REVERSE, SLIDE or SHUFFLE.
    kinds : sequence of str
        Types of the operands and of what is made.
    texts : sequence of Text
        The operands.
    """
    what, picks = _picks(inst)
    kind, result = kinds
    lanes = inst.args[0].lanes
    room = padded(lanes)
    picks = tuple(p if p < lanes else p - lanes + room for p in picks)
    picks += (picks[-1],) * (padded(len(picks)) - len(picks))
    one = len(texts) == 1
    if what == "shuffle":  # which lanes it is that it picks is all of its name
        shown = "".join(f"{p:x}" if room <= 8 else f"_{p:x}" for p in picks)
        what = f"shuffle{shown if len(shown) <= 40 else w.number_of(shown)}"
    params = f"{kind} a" if one else f"{kind} a, {kind} b"
    listed = ", ".join(map(str, picks))
    lane = [f"a[{p}]" if p < room else f"b[{p - room}]" for p in picks]
    lines = ["#if __has_builtin(__builtin_shufflevector) && !defined(WEFT_NO_SHUFFLES)",
             f"  return __builtin_shufflevector(a, {'a' if one else 'b'}, {listed});",
             "#else", f"  return ({result}){{ {', '.join(lane)} }};", "#endif"]
    name = w.helper(f"{what}_{kind}", lambda: "\n".join(
        [f"{w.INLINE} {result} {what}_{kind}({params}) {{", *lines, "}"]))
    return w.call(name, *texts)


def _move(w: CWords, inst: Compute) -> Text:
    result, source = inst.result, inst.args[0]
    if result.lanes == 1:  # half of two lanes
        return _extract(w, inst)
    kinds = [w.type(v.dtype, v.lanes) for v in (source, result)]
    return moved(w, inst, kinds, [w.operand(v) for v in inst.args])


def _extract(w: CWords, inst: Compute) -> Text:
    (a,) = inst.args
    if a.dtype.is_bool:
        mask = w.natural(a)
        width = mask.width or 8
        return Text(f"{mask.render(width)}[{inst.attr}] != 0", EQUALITY)
    return Text(f"{w.arg(a, ATOM)}[{inst.attr}]")


def _words(w: CWords, inst: Compute) -> Text:
    (a,) = inst.args
    kind, source = w.type(inst.result.dtype, inst.result.lanes), w.type(a.dtype, a.lanes)
    name = define(w, f"words_{source}", kind, f"{source} x", f"{kind} made;",
                  "__builtin_memcpy(&made, &x, sizeof made);", "return made;")
    return w.call(name, w.operand(a))


def _bits(w: CWords, inst: Compute) -> Text:
    (a,) = inst.args
    width = w.natural(a).width or 8
    return w.call(_gathered_bits(w, width, a.lanes), w.mask(a, width))


# Instructions of x86 that gather the signs of lanes: builtin, and the type it takes.
_SIGNS: Final = {
    (32, 4): ("movmskps", "float"), (64, 2): ("movmskpd", "double"),
    (8, 16): ("pmovmskb128", "char"), (32, 8): ("movmskps256", "float"),
    (64, 4): ("movmskpd256", "double"), (8, 32): ("pmovmskb256", "char"),
}  # fmt: skip


def _gathered_bits(w: CWords, width: int, lanes: int) -> str:
    """Return the function that makes a uint64 of a mask, lane i bit i."""
    kind = w.mask_type(width, lanes)
    found = _SIGNS.get((width, lanes)) if w.target.arch == "x86_64" else None
    if found is not None and lanes * width // 8 > w.target.vector_bytes:
        found = None
    count, size = padded(lanes), width // 8
    body: list[str]
    if found is not None:
        element = w.vector(found[1], size, lanes)
        body = [f"return (unsigned)__builtin_ia32_{found[0]}(({element})m);"]
    elif width == 16 and lanes >= 16:
        narrow = _gathered_bits(w, 8, lanes)
        body = [f"return {narrow}(__builtin_convertvector(m, {w.mask_type(8, lanes)}));"]
    elif count * size >= 32 and count >= 4:
        part = _gathered_bits(w, width, count // 2)
        half = w.mask_type(width, count // 2)
        body = [f"union {{ {kind} whole; {half} part[2]; }} both = {{ m }};",
                f"return {part}(both.part[0]) | {part}(both.part[1]) << {count // 2};"]
    else:
        body = ["u64 bits = 0;", f"for (int i = 0; i < {lanes}; i++) bits |= (u64)(m[i] & 1) << i;",
                "return bits;"]
    if lanes != count:
        body[-1] = body[-1].replace("return ", "return (").replace(
            ";", f") & {(1 << lanes) - 1:#x};")
    return define(w, f"bits_{kind}", "u64", f"{kind} m", *body)


MOVES: Final[dict[Operation, Row | Callable[[CWords, Compute], Text]]] = {
    **dict.fromkeys((Op.HALF, Op.REVERSE, Op.SLIDE, Op.SHUFFLE), _move),
    Op.EXTRACT: _extract,
    Op.BITS: _bits,
    Op.WORDS: _words,
}

