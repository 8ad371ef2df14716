"""Elements of arrays in words of 32 bits: how they are read, written and changed atomically.

Buffers are arrays of words, so that their bits are kept whatever they mean. An element of 8 or 16
bits is a part of a word; who writes it leaves the others as they are. Private arrays have elements,
unless other arrays are made of their bytes.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from weft.ir import dtype as dt
from weft.ir.dtype import DType
from weft.ir.linear import AtomicInst
from weft.renderers.cstyle.narrow import is_narrow
from weft.renderers.cstyle.text import Text, atom
from weft.renderers.cstyle.wgsl.context import WGSLWords
from weft.renderers.primitives import refuse

__all__ = ["ORDERS", "Place", "atomic", "get", "put"]

# The memory model: operations on atomic words order nothing else, and nothing but a barrier of the
# group orders memory, so no other order can be written.
ORDERS: Final = ("relaxed",)
_NATIVE: Final = ("add", "sub", "and", "or", "xor", "exch", "min", "max")


class Place(NamedTuple):
    """Where an array is.

    Attributes
    ----------
    name : str
        What it is called.
    words : str
        Whose words it is in: the end of the names of functions that read and write these; the name
        of a private array of words; empty for a private array of elements.
    base : str
        Its first element, in elements, where the words begin earlier; else empty.
    private : bool
        Whether it belongs to one work-item.
    size : int
        Elements of a private array.
    """

    name: str
    words: str
    base: str = ""
    private: bool = False
    size: int = 0


def stored(d: DType) -> DType:
    """Return the type whose bits lie in memory."""
    return dt.uint8 if d.is_bool else d


def get(w: WGSLWords, place: Place, d: DType, index: str) -> Text:
    """Return an element."""
    if not place.words:
        return atom(f"{place.name}[{index}]" if place.size != 1 else place.name)
    if place.private:
        return _decoded(w, place, d, index)
    name = f"weft_get_{place.name}"
    w.helper(name, lambda: "\n".join([
        f"fn {name}(i: u32) -> {w.type(d)} {{",
        f"  return {_decoded(w, place, d, 'i').text};", "}"]))
    return w.call(name, index)


def put(w: WGSLWords, place: Place, d: DType, index: str, value: Text) -> str:
    """Return the statements that write an element."""
    if not place.words:
        return f"{place.name}[{index}] = {value.text};" if place.size != 1 else (
            f"{place.name} = {value.text};")
    if place.private:
        name = w.hoisted(value, d)
        return " ".join(_encoded(w, place, d, index, name))
    name = f"weft_put_{place.name}"
    w.helper(name, lambda: "\n".join([
        f"fn {name}(i: u32, value: {w.type(d)}) {{",
        *(f"  {line}" for line in _encoded(w, place, d, "i", "value")), "}"]))
    return f"{name}({index}, {value.text});"


def _load(w: WGSLWords, place: Place, word: str) -> str:
    if place.private:
        return f"{place.words}[{word}]"
    return f"{w.accessor(place.words, 'load')}({word})"


def _store(w: WGSLWords, place: Place, word: str, value: str) -> str:
    if place.private:
        return f"{place.words}[{word}] = {value};"
    return f"{w.accessor(place.words, 'store')}({word}, {value});"


def _place(place: Place, d: DType, index: str) -> tuple[str, str]:
    """Return the word that holds an element, and by how many bits it is moved in it."""
    element = f"({place.base} + {index})" if place.base else f"({index})"
    if d.itemsize >= 4:
        return (element if d.itemsize == 4 else f"({element} * 2u)"), ""
    size = 4 // d.itemsize
    shift, step = (2, 3) if size == 4 else (1, 4)
    return f"({element} >> {shift}u)", f"(({element} & {size - 1}u) << {step}u)"


def _decoded(w: WGSLWords, place: Place, d: DType, index: str) -> Text:
    word, shift = _place(place, d, index)
    if d.bits == 64:
        second = f"{word} + 1u"
        return w.call("vec2<u32>", _load(w, place, word), _load(w, place, second))
    return _value(w, _load(w, place, word), shift, d)


def _value(w: WGSLWords, word: str, shift: str, d: DType) -> Text:
    """Return the element in a word."""
    if d.itemsize == 4:
        return atom(word) if d.kind == "u" else w.call(f"bitcast<{w.type(d)}>", word)
    part = f"(({word} >> {shift}) & {(1 << 8 * d.itemsize) - 1:#x}u)"
    if d.is_bool:
        return atom(f"({part} != 0u)")
    if d.kind == "i":
        room = 32 - d.bits
        return atom(f"(bitcast<i32>({part} << {room}u) >> {room}u)")
    return atom(part)


def _bits(w: WGSLWords, value: str, d: DType) -> str:
    """Return an element of at most 32 bits as a word, with zeros above it."""
    if d.is_bool:
        return f"select(0u, 1u, {value})"
    if d.itemsize == 4:
        return value if d.kind == "u" else f"bitcast<u32>({value})"
    mask = f"{(1 << d.bits) - 1:#x}u"
    return f"(bitcast<u32>({value}) & {mask})" if d.kind == "i" else f"({value} & {mask})"


def _encoded(w: WGSLWords, place: Place, d: DType, index: str, value: str) -> list[str]:
    word, shift = _place(place, d, index)
    if d.bits == 64:
        return [_store(w, place, word, f"{value}.x"),
                _store(w, place, f"{word} + 1u", f"{value}.y")]  # fmt: skip
    bits = _bits(w, value, d)
    if d.itemsize == 4:
        return [_store(w, place, word, bits)]
    mask = f"{(1 << 8 * d.itemsize) - 1:#x}u"
    if place.private:
        rest = f"{place.words}[{word}] & ~({mask} << {shift})"
        return [f"{place.words}[{word}] = ({rest}) | ({bits} << {shift});"]
    clear, add = w.accessor(place.words, "and"), w.accessor(place.words, "or")
    return [f"{clear}({word}, ~({mask} << {shift}));", f"{add}({word}, {bits} << {shift});"]


def atomic(w: WGSLWords, inst: AtomicInst, place: Place, index: str, value: Text,
           compare: Text) -> Text:  # fmt: skip
    """Return an atomic operation on one element, as a call that gives what was there before."""
    d, kind = inst.memory.dtype, inst.kind
    if place.private:
        return _alone(w, inst, place, index, value, compare)
    if d.bits == 64:
        return _halves(w, inst, place, index, value)
    new, replaces = _step(w, inst)
    t = w.type(d)
    name = f"weft_atomic_{kind}_{place.name}"
    given = ", ".join((f"i: u32, b: {t}", *([f"c: {t}"] if kind == "cas" else [])))
    if kind in _NATIVE and d.itemsize == 4 and (
        d.kind == "u" or (kind not in ("min", "max") and (d.kind == "i" or kind == "exch"))
    ):
        word, _ = _place(place, d, "i")
        call = f"{w.accessor(place.words, kind)}({word}, {_bits(w, 'b', d)})"
        body = [f"return {_value(w, call, '', d).text};"]
    else:
        body = _loop(w, place, d, new, replaces)
    _define(w, name, given, t, body)
    return w.call(name, index, value, *([compare] if kind == "cas" else []))


def _define(w: WGSLWords, name: str, params: str, result: str, body: list[str]) -> None:
    w.helper(name, lambda: "\n".join([f"fn {name}({params}) -> {result} {{",
                                      *(f"  {line}" for line in body), "}"]))


def _alone(w: WGSLWords, inst: AtomicInst, place: Place, index: str, value: Text,
           compare: Text) -> Text:  # fmt: skip
    """Change an element that no other work-item sees; return what was there."""
    d, kind = inst.memory.dtype, inst.kind
    new, replaces = _step(w, inst)
    t, name = w.type(d), f"weft_step_{kind}_{d.text}"
    test = [f"if (!({replaces})) {{ return a; }}"] if replaces else []
    _define(w, name, f"a: {t}, b: {t}, c: {t}", t, [*test, f"return {new};"])
    old = w.hoisted(get(w, place, d, index), d)
    w.emit(put(w, place, d, index, w.call(name, old, value, compare)))
    return atom(old)


def _halves(w: WGSLWords, inst: AtomicInst, place: Place, index: str, value: Text) -> Text:
    """Change both words of an element: sums carry over, bits have nothing to do with each other.

    Nobody may ask what was there before, since other work-items come between.
    """
    d, kind = inst.memory.dtype, inst.kind
    refuse(w.target, inst, w.is_asked_for(inst.result))
    word, _ = _place(place, d, "i")
    operation = w.accessor(place.words, kind if kind in ("and", "or", "xor") else "add")
    body = [f"let word = {word};"]
    if kind == "sub":
        body.append(f"let x = {w.function('weft_neg64')}(b);")
    else:
        body.append("let x = b;")
    body.append(f"let old = {operation}(word, x.x);")
    high = "x.y + select(0u, 1u, old + x.x < old)" if kind in ("add", "sub") else "x.y"
    body += [f"return vec2<u32>(old, {operation}(word + 1u, {high}));"]
    name = f"weft_atomic_{kind}_{place.name}"
    _define(w, name, "i: u32, b: vec2<u32>", "vec2<u32>", body)
    return w.call(name, index, value)


def _loop(w: WGSLWords, place: Place, d: DType, new: str, replaces: str) -> list[str]:
    """Return statements that exchange the element for a new one, or leave it."""
    word, shift = _place(place, d, "i")
    bits = _bits(w, "next", d)
    if d.itemsize < 4:
        mask = f"({(1 << 8 * d.itemsize) - 1:#x}u << shift)"
        bits = f"(raw & ~{mask}) | ({bits} << shift)"
    old = _value(w, "raw", "shift", d).text
    return [
        f"let word = {word};", *([f"let shift = {shift};"] if shift else []),
        f"var raw = {w.accessor(place.words, 'load')}(word);", "loop {", f"  let a = {old};",
        *([f"  if (!({replaces})) {{ break; }}"] if replaces else []), f"  let next = {new};",
        f"  let found = {w.accessor(place.words, 'cas')}(word, raw, {bits});",
        "  if (found == raw) { break; }", "  raw = found;", "}", f"return {old};",
    ]  # fmt: skip


def _step(w: WGSLWords, inst: AtomicInst) -> tuple[str, str]:
    """Return the new element of old `a` and given `b`, and when it is written at all."""
    d, kind = inst.memory.dtype, inst.kind
    if kind == "exch":
        return "b", ""
    if kind == "cas":
        return "b", f"{_bits(w, 'a', d)} == {_bits(w, 'c', d)}"
    if kind in ("and", "or", "xor") and d.kind in "biu":
        operator = {"and": "&", "or": "|", "xor": "!=" if d.is_bool else "^"}[kind]
        return f"(a {operator} b)", ""
    if kind in ("add", "sub") and not d.is_bool:
        operator = "+" if kind == "add" else "-"
        if is_narrow(d):
            read = w.function(f"weft_f32_of_{d.text}")
            write = w.function(f"weft_{d.text}_of_f32")
            return f"{write}({read}(a) {operator} {read}(b))", ""
        return f"(a {operator} b)", ""
    nan = kind.startswith("nan")
    if kind in ("min", "max", "nanmin", "nanmax") and not d.is_bool and (not nan or d.kind == "f"):
        a, b = "a", "b"
        if is_narrow(d):
            a, b = (f"{w.function(f'weft_f32_of_{d.text}')}({n})" for n in "ab")
        test = f"({b} {'<' if kind.endswith('min') else '>'} {a})"
        if nan:
            known = w.function("weft_is_nan")
            test += f" || ({known}({a}) && !{known}({b}))"
        return "b", test
    one = "1u" if d.kind == "u" else "1i"
    if kind == "inc" and d.kind in "iu":
        return f"select(a + {one}, a - a, a >= b)", ""
    if kind == "dec" and d.kind in "iu":
        return f"select(a - {one}, b, (a == (a - a)) || (a > b))", ""
    raise AssertionError(f"{kind} of {d.name}")  # `weft.renderers.primitives` refuses it
