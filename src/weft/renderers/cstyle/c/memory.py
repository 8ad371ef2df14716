"""Memory access in C: vectors at any address, masks, gathers and scatters, streaming stores."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from weft.ir import dtype as dt
from weft.ir import linear as li
from weft.ir.dtype import DType
from weft.ir.linear import Value
from weft.ir.op import Op
from weft.ir.stmt import Memory
from weft.renderers.cstyle.c.context import CWords, Mask, padded
from weft.renderers.cstyle.c.vectors import choice, splat
from weft.renderers.cstyle.operations import define
from weft.renderers.cstyle.text import TERNARY, UNARY, Text, infix

__all__ = ["load", "store"]

_LISTED: Final = 16  # lanes that are written one by one; more are a loop
_MASKED: Final = {16: "", 32: "256"}  # bytes of vectors that x86 masks, and how the builtins end


def load(w: CWords, inst: li.LoadInst) -> Text | Mask:
    """Return what a load of a vector reads."""
    value, memory = inst.result, inst.memory
    d, lanes = _stored(memory.dtype), value.lanes
    base, flag = _condition(w, inst.mask)
    if inst.offset.lanes > 1:
        text = _gather(w, inst, d, lanes)
    elif inst.mask is None or flag == "1":
        text = w.call(_plain_load(w, d, lanes), address(w, memory, inst.offset))
    elif flag:  # all lanes or none
        read = w.call(_plain_load(w, d, lanes), address(w, memory, inst.offset))
        text = Text(f"{flag} ? {read.text} : {_fill(w, inst, d, lanes).at(TERNARY + 1)}", TERNARY)
    else:
        text = w.call(_masked_load(w, d, lanes), address(w, memory, inst.offset),
                      w.mask(base, d.itemsize * 8))
        text = _filled(w, inst, base, text, d, lanes)
    if not memory.dtype.is_bool:
        return text
    kind = w.mask_type(8, lanes)
    return Mask(8, lambda _: f"({kind})({text.at(UNARY)} != 0)")  # any byte but 0 is true


def store(w: CWords, inst: li.StoreInst) -> list[str]:
    """Return the lines that write a vector."""
    value, memory = inst.value, inst.memory
    d, lanes = _stored(memory.dtype), value.lanes
    if memory.dtype.is_bool:
        text = Text(f"({w.type(d, lanes)})({w.mask(value, 8)} & 1)", UNARY)
    else:
        text = w.operand(value)
    mask, flag = _condition(w, inst.mask)
    if inst.offset.lanes > 1:
        return [_scatter(w, inst, d, lanes, text) + ";"]
    at = address(w, memory, inst.offset)
    if inst.mask is None or flag == "1":
        name = _stream(w, d, lanes) if inst.streaming else _plain_store(w, d, lanes)
        return [w.call(name, at, text).text + ";"]
    if flag:
        return [f"if ({flag}) {w.call(_plain_store(w, d, lanes), at, text).text};"]
    name = _masked_store(w, d, lanes)
    return [w.call(name, at, w.mask(mask, d.itemsize * 8), text).text + ";"]


def address(w: CWords, memory: Memory, offset: Value) -> Text:
    """Return the address of an element."""
    name = w.memory(memory)
    if w.number(offset) == 0:
        return Text(name)
    return infix("+", Text(name), w.operand(offset))


def _stored(d: DType) -> DType:
    return dt.uint8 if d.is_bool else d


def _condition(w: CWords, mask: Value | None) -> tuple[Value, str]:
    """Return a mask, and the scalar that it is in every lane, if it is one."""
    if mask is None:
        return _NONE, ""
    made = w.maker(mask)
    known = w.number(mask)
    if known is not None:
        return mask, "1" if known else "0"
    if made is not None and made.op is Op.BROADCAST:
        return mask, w.arg(made.args[0], UNARY)
    return mask, ""


_NONE: Final = Value("", -1, dt.bool_)


def _fill(w: CWords, inst: li.LoadInst, d: DType, lanes: int) -> Text:
    if inst.fill is None:
        return splat(w, w.literal(0, d), d, lanes)
    if inst.memory.dtype.is_bool:
        return Text(f"({w.type(d, lanes)})({w.mask(inst.fill, 8)} & 1)", UNARY)
    return w.operand(inst.fill)


# whole vectors


def _plain_load(w: CWords, d: DType, lanes: int) -> str:
    kind, t = w.type(d, lanes), w.type(d)
    if padded(lanes) != lanes:  # no element beside them
        body = [f"{kind} made = {{}};", *_each(lanes, "made[{0}] = p[{0}];"), "return made;"]
    else:
        body = [f"return *({w.SPACE}const {w.unaligned(d, lanes)} *)p;"]
    return define(w, f"load_{kind}", kind, f"{w.SPACE}const {t} *p", *body)


def _plain_store(w: CWords, d: DType, lanes: int) -> str:
    kind, t = w.type(d, lanes), w.type(d)
    if padded(lanes) != lanes:
        body = list(_each(lanes, "p[{0}] = x[{0}];"))
    else:
        body = [f"*({w.SPACE}{w.unaligned(d, lanes)} *)p = x;"]
    return define(w, f"store_{kind}", "void", f"{w.SPACE}{t} *p, {kind} x", *body)


def _stream(w: CWords, d: DType, lanes: int) -> str:
    """Return the function of a store past the caches, which needs an aligned address.

    A vector of several registers is stored register by register.
    """
    size = lanes * d.itemsize
    width = min(size, w.target.vector_bytes)
    plain = _plain_store(w, d, lanes)
    if padded(lanes) != lanes or width < 16 or not w.streams:
        return plain
    kind, t, count = w.type(d, lanes), w.type(d), size // width
    word = w.vector("float", 4, width // 4)
    builtin = f"__builtin_ia32_movntps{ {16: '', 32: '256', 64: '512'}[width] }"
    whole = count == 1
    part, at = f"({word})x" if whole else "all.part[i]", f"({w.SPACE}{word} *)p"
    body = [f"if (((u64)p & {width - 1}) != 0) {{", f"  {plain}(p, x);", "  return;", "}"]
    if not whole:
        body += [f"union {{ {kind} whole; {word} part[{count}]; }} all = {{ x }};",
                 f"for (int i = 0; i < {count}; i++) {{"]
    body += ["#if __has_builtin(__builtin_nontemporal_store)",
             f"  __builtin_nontemporal_store({part}, {at}{'' if whole else ' + i'});",
             f"#elif __has_builtin({builtin})",
             f"  {builtin}((float *)p{'' if whole else f' + i * {width // 4}'}, {part});",
             "#else", f"  ({at})[{0 if whole else 'i'}] = {part};", "#endif"]  # fmt: skip
    if not whole:
        body.append("}")
    return define(w, f"stream_{kind}", "void", f"{w.SPACE}{t} *p, {kind} x", *body)


# masks


def _parts(w: CWords, d: DType, lanes: int) -> tuple[str, int] | None:
    """Return how x86's masked accesses of a vector end, and its lanes in one of them."""
    features = w.target.features
    if (w.target.arch != "x86_64" or "+avx" not in features or d.itemsize < 4
            or padded(lanes) != lanes):
        return None
    size = min(lanes * d.itemsize, 32)
    if size not in _MASKED:
        return None
    return ("ps" if d.itemsize == 4 else "pd") + _MASKED[size], size // d.itemsize


def _filled(w: CWords, inst: li.LoadInst, mask: Value, text: Text, d: DType,
            lanes: int) -> Text:  # fmt: skip
    """Return what was read under a mask with what takes the place of the other lanes: zeros did."""
    if inst.fill is None:
        return text
    return w.call(choice(w, d, lanes), w.mask(mask, d.itemsize * 8), text,
                  _fill(w, inst, d, lanes))


def _masked_load(w: CWords, d: DType, lanes: int) -> str:
    kind, t, mask = w.type(d, lanes), w.type(d), w.mask_type(d.itemsize * 8, lanes)
    name, params = f"load_masked_{kind}", f"{w.SPACE}const {t} *p, {mask} m"
    found = _parts(w, d, lanes)
    if found is None:
        every = w.every("m", d, lanes)
        whole = [f"if ({every}) return {_plain_load(w, d, lanes)}(p);"] if every else []
        return define(w, name, kind, params, f"{kind} made = {{}};", *whole,
                      *_each(lanes, "if (m[{0}]) made[{0}] = p[{0}];"), "return made;")
    end, count = found
    floats = w.vector("float" if d.itemsize == 4 else "double", d.itemsize, count)
    words = w.vector("int" if d.itemsize == 4 else "long long", d.itemsize, count)
    builtin = f"__builtin_ia32_maskload{end}"
    if count == lanes:
        return define(w, name, kind, params,
                      f"return ({kind}){builtin}((const {floats} *)p, ({words})m);")
    n = lanes // count
    return define(w, name, kind, params,
                  f"union {{ {mask} whole; {words} part[{n}]; }} masks = {{ m }};",
                  f"union {{ {kind} whole; {floats} part[{n}]; }} made;",
                  f"for (int i = 0; i < {n}; i++) made.part[i] = {builtin}("
                  f"(const {floats} *)(p + i * {count}), masks.part[i]);",
                  "return made.whole;")


def _masked_store(w: CWords, d: DType, lanes: int) -> str:
    kind, t, mask = w.type(d, lanes), w.type(d), w.mask_type(d.itemsize * 8, lanes)
    name, params = f"store_masked_{kind}", f"{w.SPACE}{t} *p, {mask} m, {kind} x"
    found = _parts(w, d, lanes)
    if found is None:
        every = w.every("m", d, lanes)
        whole = [f"if ({every}) {{", f"  {_plain_store(w, d, lanes)}(p, x);", "  return;",
                 "}"] if every else []  # fmt: skip
        return define(w, name, "void", params, *whole,
                      *_each(lanes, "if (m[{0}]) p[{0}] = x[{0}];"))
    end, count = found
    floats = w.vector("float" if d.itemsize == 4 else "double", d.itemsize, count)
    words = w.vector("int" if d.itemsize == 4 else "long long", d.itemsize, count)
    builtin = f"__builtin_ia32_maskstore{end}"
    if count == lanes:
        return define(w, name, "void", params,
                      f"{builtin}(({floats} *)p, ({words})m, ({floats})x);")
    n = lanes // count
    return define(w, name, "void", params,
                  f"union {{ {mask} whole; {words} part[{n}]; }} masks = {{ m }};",
                  f"union {{ {kind} whole; {floats} part[{n}]; }} all = {{ x }};",
                  f"for (int i = 0; i < {n}; i++) {builtin}(({floats} *)(p + i * {count}), "
                  "masks.part[i], all.part[i]);")


# lanes at addresses of their own


def _gather(w: CWords, inst: li.LoadInst, d: DType, lanes: int) -> Text:
    kind, t, at = w.type(d, lanes), w.type(d), w.type(dt.int64, lanes)
    mask, flag = _condition(w, inst.mask)
    base, offset = Text(w.memory(inst.memory)), w.operand(inst.offset)
    if inst.mask is None or flag == "1":
        lines = _each(lanes, "made[{0}] = p[at[{0}]];")
        name = define(w, f"gather_{kind}", kind, f"{w.SPACE}const {t} *p, {at} at",
                      f"{kind} made = {{}};", *lines, "return made;")
        return w.call(name, base, offset)
    m = w.mask_type(d.itemsize * 8, lanes)
    name = define(w, f"gather_masked_{kind}", kind, f"{w.SPACE}const {t} *p, {at} at, {m} m",
                  f"{kind} made = {{}};", *_each(lanes, "if (m[{0}]) made[{0}] = p[at[{0}]];"),
                  "return made;")
    text = w.call(name, base, offset, w.mask(mask, d.itemsize * 8))
    return _filled(w, inst, mask, text, d, lanes)


def _scatter(w: CWords, inst: li.StoreInst, d: DType, lanes: int, text: Text) -> str:
    kind, t, at = w.type(d, lanes), w.type(d), w.type(dt.int64, lanes)
    mask, flag = _condition(w, inst.mask)
    base, offset = Text(w.memory(inst.memory)), w.operand(inst.offset)
    if inst.mask is None or flag == "1":
        name = define(w, f"scatter_{kind}", "void", f"{w.SPACE}{t} *p, {at} at, {kind} x",
                      *_each(lanes, "p[at[{0}]] = x[{0}];"))
        return w.call(name, base, offset, text).text
    m = w.mask_type(d.itemsize * 8, lanes)
    name = define(w, f"scatter_masked_{kind}", "void", f"{w.SPACE}{t} *p, {at} at, {m} m, {kind} x",
                  *_each(lanes, "if (m[{0}]) p[at[{0}]] = x[{0}];"))
    return w.call(name, base, offset, w.mask(mask, d.itemsize * 8), text).text


def _each(lanes: int, statement: str) -> Sequence[str]:
    """Return a statement for each lane, in order."""
    if lanes <= _LISTED:
        return [statement.format(i) for i in range(lanes)]
    return [f"for (int i = 0; i < {lanes}; i++) {{ {statement.format('i')} }}"]


