"""Atomic operations: those of the device on words of 32 and 64 bits, or compare-and-swap of words.

Elements of 8 and 16 bits in buffers are exchanged within their word of 32 bits. Private arrays
belong to one work-item: there everything is a plain read and write.

The operations are relaxed, and the order of one is that of fences around it: lavapipe loses
updates where a compare-and-swap in a loop has an order of its own.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from weft.ir.dtype import DType
from weft.ir.linear import AtomicInst
from weft.renderers.spirv import opcodes as spv
from weft.renderers.spirv.conversions import narrowed, widened
from weft.renderers.spirv.function import Function, Term
from weft.renderers.spirv.memory import Physical, Place, Private, at
from weft.renderers.spirv.values import Values, is_narrow, wrapped

__all__ = ["ORDERS", "SCOPES", "atomic", "fence"]

# The memory model: scopes, and the semantics of fences, which are of buffers and of the memory of
# groups. "seq_cst" is built of them (`fence`), as Vulkan has no order of all operations.
SCOPES: Final = {"thread": spv.SCOPE_ITEM, "warp": spv.SCOPE_GROUP, "block": spv.SCOPE_GROUP,
                 "device": spv.SCOPE_DEVICE, "system": spv.SCOPE_DEVICE}  # fmt: skip
ORDERS: Final = {name: semantics | spv.BUFFERS | spv.GROUP_MEMORY for name, semantics in (
    ("acquire", spv.ACQUIRE), ("release", spv.RELEASE), ("acq_rel", spv.ACQUIRE_RELEASE),
    ("seq_cst", spv.ACQUIRE_RELEASE))}  # fmt: skip
_UNUSED: Final = 12  # the byte of the status record at which no failure writes

_DIRECT: Final = {"add": spv.ATOMIC_I_ADD, "sub": spv.ATOMIC_I_SUB, "and": spv.ATOMIC_AND,
                  "or": spv.ATOMIC_OR, "xor": spv.ATOMIC_XOR,
                  "exch": spv.ATOMIC_EXCHANGE}  # fmt: skip
_EXTREMES: Final = {("min", "i"): spv.ATOMIC_S_MIN, ("min", "u"): spv.ATOMIC_U_MIN,
                    ("max", "i"): spv.ATOMIC_S_MAX, ("max", "u"): spv.ATOMIC_U_MAX}  # fmt: skip
_RELAXED: Final = 0


class _Word(NamedTuple):
    """A word in memory, and where the element is in it: all of it, or bits from `shift` on."""

    pointer: int
    kind: str
    bits: int
    shift: Term | None

    def field(self, word: Term) -> Term:
        """Return the bits of the element."""
        return word if self.shift is None else (word >> self.shift) & ((1 << self.bits) - 1)

    def replaced(self, word: Term, field: Term) -> Term:
        """Return the word with other bits of the element."""
        if self.shift is None:
            return field
        mask = word.f.const("u32", (1 << self.bits) - 1)
        return (word & ~(mask << self.shift)) | ((field & mask) << self.shift)


def fence(f: Function, order: str, scope: str, status: Term, waits: bool = False) -> None:
    """Write a fence; `status` is the address of the status record of the launch.

    For "seq_cst" it is two, with an addition to one word of the record between them. Such additions
    follow each other, and each synchronises with the next: all that stands before one happens
    before all that stands behind a later one, whichever item does it. It adds 1, because compilers
    may make a load of an addition of 0.

    Where a driver `waits` for the whole group at each fence, which ends loops that not all items
    are in, any fence is the addition alone: such drivers run items on processors, whose additions
    to shared memory order all others.
    """
    barrier = f.const("u32", SCOPES[scope]).id, f.const("u32", ORDERS[order]).id
    if not waits:
        f.effect(spv.MEMORY_BARRIER, *barrier)
    if scope != "thread" and (waits or order == "seq_cst"):
        f.emit(spv.ATOMIC_I_ADD, "u32", at(f, status + _UNUSED, "u32"), *_scope(f),
               f.const("u32", 1).id)
        if not waits:
            f.effect(spv.MEMORY_BARRIER, *barrier)


def atomic(v: Values, inst: AtomicInst, place: Place) -> Term:
    """Write an atomic operation on one element; return what was there before."""
    f, kind, d = v.f, inst.kind, inst.memory.dtype
    offset, value = v.term(inst.offset), v.term(inst.value)
    given = [value] if inst.compare is None else [value, v.term(inst.compare)]
    if isinstance(place, Private):
        if place.storage == spv.FUNCTION_CLASS:
            return _plain(v, kind, place, offset, given)
        if d.bits == 64:
            v.module.capability(spv.INT64_ATOMICS, "shaderSharedInt64Atomics")
        word = _Word(place.pointer(f, offset), place.element, d.bits, None)
        return _written(v, f, kind, d, word, given)
    assert isinstance(place, Physical)
    if d.bits == 64:
        v.module.capability(spv.INT64_ATOMICS, "shaderBufferInt64Atomics")

    def build(f: Function, address: Term, *given: Term) -> Term:
        if d.bits >= 32:
            word = _Word(at(f, address, f"u{d.bits}"), f"u{d.bits}", d.bits, None)
        else:
            shift = (address.to("u32") & 3) << 3
            word = _Word(at(f, address & ~3, "u32"), "u32", 8 * d.itemsize, shift)
        return _written(v, f, kind, d, word, list(given))

    callee = v.module.function(f"atomic_{kind}_{d.text}", value.kind,
                               ("u64", *(t.kind for t in given)), build)  # fmt: skip
    return f.call(callee, place.locate(offset), *given)


def _written(v: Values, f: Function, kind: str, d: DType, word: _Word, given: list[Term]) -> Term:
    """Write an operation on a word, directly or as a loop around compare-and-swap."""
    opcode = _EXTREMES.get((kind, d.kind)) if kind in ("min", "max") else _DIRECT.get(kind)
    if opcode is not None and d.bits >= 32 and (d.kind != "f" or kind == "exch"):
        found = _access(f, opcode, word, given[0].bitcast(word.kind))
        return found.bitcast(given[0].kind)
    as_bits = [_bits(t, word.kind) for t in given]
    raw = f.variable(_access(f, spv.ATOMIC_LOAD, word))
    done = f.variable(f.const("bool", False))

    def turn() -> None:
        seen = raw.get()
        old = word.field(seen)
        replaces: Term | None
        if kind == "cas":
            new, replaces = as_bits[0], old.eq(_masked(as_bits[1], word))
        else:
            made, test = _step(v, f, kind, d, _value(old, d), given[0])
            new, replaces = _bits(made, word.kind), test
        done.set(f.const("bool", True))

        def swap() -> None:
            scope, semantics = _scope(f)
            found = f.emit(spv.ATOMIC_COMPARE_EXCHANGE, word.kind, word.pointer, scope,
                           semantics, semantics, word.replaced(seen, new).id, seen.id)
            done.set(found.eq(seen))
            f.when(found.ne(seen), lambda: raw.set(found))

        if replaces is None:
            swap()
        else:
            f.when(replaces, swap)

    f.repeat(lambda: ~done.get(), turn)
    return _value(word.field(raw.get()), d)


def _plain(v: Values, kind: str, place: Private, offset: Term, given: list[Term]) -> Term:
    """Read, compute and write an element of a private array."""
    f, d = v.f, place.dtype
    old = place.load(f, offset)
    if kind == "cas":
        same = _bits(old, "u64" if d.bits == 64 else "u32").eq(
            _bits(given[1], "u64" if d.bits == 64 else "u32"))
        f.when(same, lambda: place.store(f, offset, given[0]))
        return old
    new, replaces = _step(v, f, kind, d, old, given[0])
    if replaces is None:
        place.store(f, offset, new)
    else:
        f.when(replaces, lambda: place.store(f, offset, new))
    return old


def _step(v: Values, f: Function, kind: str, d: DType, a: Term, b: Term
          ) -> tuple[Term, Term | None]:  # fmt: skip
    """Return the new element of old `a` and given `b`, and when it is written at all."""
    if kind == "exch":
        return b, None
    if kind in ("and", "or", "xor") and d.kind != "f":
        return a.op({"and": "&", "or": "|", "xor": "^"}[kind], b), None
    wide = [widened(v, t, d) for t in (a, b)] if is_narrow(d) else [a, b]
    if kind in ("add", "sub"):
        total = wide[0].op("+" if kind == "add" else "-", wide[1])
        if is_narrow(d):
            return narrowed(v, total, d), None
        return total if d.kind == "f" else wrapped(total, d), None

    def less(x: Term, y: Term) -> Term:
        return x.slt(y) if d.kind == "i" else x.lt(y)

    if kind in ("min", "max", "nanmin", "nanmax") and not (kind[:3] == "nan" and d.kind != "f"):
        x, y = wide
        test = less(y, x) if kind.endswith("min") else less(x, y)
        if kind.startswith("nan"):
            test = test | (x.ne(x) & y.eq(y))
        return b, test
    if kind == "inc":
        return less(a, b).choose(wrapped(a + 1, d), 0), None
    return (a.eq(0) | less(b, a)).choose(b, wrapped(a - 1, d)), None


def _bits(t: Term, kind: str) -> Term:
    """Return what is in a register as a word."""
    if t.kind == "bool":
        return t.choose(t.f.const("u32", 1), 0)
    return t.bitcast(kind)


def _masked(t: Term, word: _Word) -> Term:
    return t if word.shift is None else t & ((1 << word.bits) - 1)


def _value(bits: Term, d: DType) -> Term:
    """Return the bits of an element as it is in registers."""
    if d.is_bool:
        return bits.ne(0)
    if d.bits < 32:
        return wrapped(bits, d)
    return bits.bitcast(f"{'f' if d.kind == 'f' else 'u'}{d.bits}")


def _scope(f: Function) -> tuple[int, int]:
    """Return the ids of the scope and the semantics of all atomic operations."""
    return f.const("u32", spv.SCOPE_DEVICE).id, f.const("u32", _RELAXED).id


def _access(f: Function, opcode: int, word: _Word, *given: Term) -> Term:
    scope, semantics = _scope(f)
    return f.emit(opcode, word.kind, word.pointer, scope, semantics, *(t.id for t in given))
