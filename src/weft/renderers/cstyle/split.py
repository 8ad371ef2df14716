"""Cut vectors that are wider than the registers into pieces that fit them.

Compilers do that, too, but gcc keeps what is wider than a register in memory, and languages of
devices have no vectors of any length. The kernel computes the same: each piece is some lanes of the
value, in order. What has lanes go elsewhere (SHUFFLE and its like) picks them from the pieces.

Masks have no width of their own: they are cut as what they are used with.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from weft.ir import dtype as dt
from weft.ir import linear as li
from weft.ir.dtype import DType
from weft.ir.expr import picks_of
from weft.ir.linear import Compute, Inst, LinearBuilder, LinearKernel, Value
from weft.ir.op import Op, Operation

__all__ = ["split_vectors"]

_REMADE: Final = (Op.CONST, Op.BROADCAST, Op.RAMP)  # made anew in pieces of any length
# The same, of operands that are: masks of tails, which compare the numbers of lanes with a bound.
_REMADE_MASKS: Final = (Op.LT, Op.LE, Op.EQ, Op.NE, Op.NOT, Op.AND, Op.OR, Op.XOR)


def split_vectors(kernel: LinearKernel, nbytes: int) -> LinearKernel:
    """Return the kernel without values of more than `nbytes`; itself if it has none.

    Vectors of lengths that are no powers of two, and operations that exist for one length alone
    (of matrices), are left as they are.
    """
    splitter = _Splitter(nbytes)
    if not any(splitter.is_wide(v) for inst in kernel.code for v in inst.results()):
        return kernel
    for inst in kernel.code:
        splitter.write(inst)
    return kernel.replace(code=tuple(splitter.code))


class _Splitter(LinearBuilder):
    """Writes the new list; `pieces` holds what stands for each old value."""

    def __init__(self, nbytes: int) -> None:
        super().__init__()
        self.nbytes = nbytes
        self.pieces: dict[int, tuple[Value, ...]] = {}
        self.makers: dict[int, Compute] = {}
        self.known: dict[int, int] = {}  # places that are constants, by value id

    def is_wide(self, v: Value) -> bool:
        return v.lanes > 1 and v.lanes & (v.lanes - 1) == 0 and v.lanes > self.room(v.dtype)

    def room(self, d: DType) -> int:
        """Return the lanes that fit a register; of bools as many as of floats."""
        return max(self.nbytes // (4 if d.is_bool else d.itemsize), 1)

    def cut(self, lanes: int, *dtypes: DType) -> int:
        """Return the lanes of pieces in which values of some types meet."""
        if lanes & (lanes - 1):
            return lanes
        rooms = [self.room(d) for d in dtypes if not d.is_bool] or [self.room(dt.bool_)]
        return min(lanes, *rooms)

    def size(self, v: Value) -> int:
        """Return the lanes of the pieces that a value has, all of them if it has none yet."""
        have = self.pieces.get(v.id)
        return have[0].lanes if have else v.lanes

    def one(self, v: Value) -> Value:
        """Return what stands for a value that was not cut."""
        found = self.pieces.get(v.id)
        if found is not None and len(found) == 1:
            return found[0]
        return self.part(v, v.lanes, 0)

    def part(self, v: Value, lanes: int, number: int) -> Value:
        """Return a piece of a value: the lanes from ``number * lanes`` on."""
        have = self.pieces.get(v.id, ())
        if have and have[0].lanes == lanes:
            return have[number]
        made = self.makers.get(v.id)
        if made is not None:
            return self._remade(made, lanes, number)
        size = have[0].lanes
        if size > lanes:
            inside = have[number * lanes // size]
            return self._inside(inside, lanes, number % (size // lanes))
        count = lanes // size
        return self._joined(have[number * count : (number + 1) * count])

    def parts(self, v: Value, lanes: int) -> list[Value]:
        """Return all pieces of a value, of so many lanes each."""
        return [self.part(v, lanes, k) for k in range(v.lanes // lanes)]

    def _inside(self, v: Value, lanes: int, number: int) -> Value:
        while v.lanes > lanes:
            half = v.lanes // 2
            per = half // lanes
            v = self.compute(Op.HALF, v.dtype, half, (v,), int(number >= per))
            number %= per
        return v

    def _joined(self, some: Sequence[Value]) -> Value:
        whole = list(some)
        while len(whole) > 1:
            lanes = 2 * whole[0].lanes
            picks = "_".join(map(str, range(lanes)))
            whole = [self.compute(Op.SHUFFLE, a.dtype, lanes, (a, b), picks)
                     if a.lanes > 1 else self._pair(a, b)
                     for a, b in zip(whole[::2], whole[1::2], strict=True)]
        return whole[0]

    def _pair(self, a: Value, b: Value) -> Value:
        """Join two scalars."""
        both = [self.compute(Op.BROADCAST, v.dtype, 2, (v,)) for v in (a, b)]
        return self.compute(Op.SHUFFLE, a.dtype, 2, tuple(both), "0_2")

    def _remade(self, made: Compute, lanes: int, number: int) -> Value:
        d = made.result.dtype
        if made.op in _REMADE_MASKS:
            args = tuple(self.part(a, lanes, number) for a in made.args)
            return self.compute(made.op, d, lanes, args)
        if made.op is Op.CONST:
            return self.const(made.attr, d, lanes)
        base = self.one(made.args[0])
        if made.op is Op.RAMP and number:
            base = self.compute(Op.ADD, d, 1, (base, self.const(number * lanes, d)))
        if lanes == 1:
            return base
        return self.compute(made.op, d, lanes, (base,))

    # instructions

    def write(self, inst: Inst) -> None:
        """Write an instruction in pieces, or as it is."""
        if isinstance(inst, Compute):
            self._compute(inst)
        elif isinstance(inst, li.LoadInst) and self.is_wide(inst.result):
            self._load(inst)
        elif isinstance(inst, li.StoreInst) and self.is_wide(inst.value):
            self._store(inst)
        else:
            self._same(inst)

    def _same(self, inst: Inst) -> None:
        """Write an instruction with its operands and results renamed."""
        fields: dict[str, Any] = {}
        for name in inst._uses:
            held = getattr(inst, name)
            if isinstance(held, tuple):
                fields[name] = tuple(self.one(v) for v in held)
            elif held is not None:
                fields[name] = self.one(held)
        for name in inst._defines:
            held = getattr(inst, name)
            fields[name] = tuple(map(self._renamed, held)) if isinstance(held, tuple) else (
                self._renamed(held))
        self.emit(inst.replace(**fields) if fields else inst)

    def _renamed(self, v: Value) -> Value:
        new = self.value(v.name, v.dtype, v.lanes)
        self.pieces[v.id] = (new,)
        return new

    def _compute(self, inst: Compute) -> None:
        result, op = inst.result, inst.op
        if op is Op.CONST and result.dtype is dt.int64:
            self.known[result.id] = inst.attr
        if result.lanes > 1 and (op in _REMADE or self._is_tail(inst)):
            self.makers[result.id] = inst
            if not self.is_wide(result):
                self._same(inst)
            return
        wide = any(self.is_wide(v) or self.size(v) < v.lanes for v in (result, *inst.args))
        writer = _MOVES.get(op) if op.group == "vector" else _Splitter._lanewise
        if not wide or writer is None or op.group == "dot" or op is Op.LOOKUP:
            self._same(inst)
        else:
            writer(self, inst)

    def _is_tail(self, inst: Compute) -> bool:
        """Whether a mask is made of numbers of lanes, in an order or joined."""
        return inst.result.dtype.is_bool and inst.op in _REMADE_MASKS and all(
            a.id in self.makers for a in inst.args)

    def _lanewise(self, inst: Compute) -> None:
        result, args = inst.result, inst.args
        lanes = self.cut(result.lanes, result.dtype, *(a.dtype for a in args))
        if all(v.dtype.is_bool for v in (result, *args)):
            lanes = min(lanes, *(self.size(a) for a in args))
        columns = [self.parts(a, lanes) for a in args]
        self.pieces[result.id] = tuple(
            self.compute(inst.op, result.dtype, lanes, row, inst.attr, result.name)
            for row in zip(*columns, strict=True))

    def _load(self, inst: li.LoadInst) -> None:
        result = inst.result
        lanes = self.cut(result.lanes, result.dtype)
        made = []
        for k in range(result.lanes // lanes):
            piece = self.value(result.name, result.dtype, lanes)
            offset, mask = self._place(inst, lanes, k)
            fill = None if inst.fill is None else self.part(inst.fill, lanes, k)
            self.emit(li.LoadInst(piece, inst.memory, offset, mask, fill))
            made.append(piece)
        self.pieces[result.id] = tuple(made)

    def _store(self, inst: li.StoreInst) -> None:
        value = inst.value
        lanes = self.cut(value.lanes, value.dtype)
        rows = []
        for k in range(value.lanes // lanes):
            rows.append((*self._place(inst, lanes, k), self.part(value, lanes, k)))
        for offset, mask, piece in rows:
            self.emit(li.StoreInst(inst.memory, offset, piece, mask, inst.streaming))

    def _place(self, inst: li.LoadInst | li.StoreInst, lanes: int,
               number: int) -> tuple[Value, Value | None]:  # fmt: skip
        """Return offset and mask of one piece of an access."""
        mask = None if inst.mask is None else self.part(inst.mask, lanes, number)
        if inst.offset.lanes > 1:
            return self.part(inst.offset, lanes, number), mask
        known = self.known.get(inst.offset.id)
        if known is not None:
            return self.const(known + number * lanes, dt.int64), mask
        offset = self.one(inst.offset)
        if number:
            more = self.const(number * lanes, dt.int64)
            offset = self.compute(Op.ADD, dt.int64, 1, (offset, more))
        return offset, mask

    # lanes that go elsewhere

    def _extract(self, inst: Compute) -> None:
        (a,) = inst.args
        lanes = min(self.cut(a.lanes, a.dtype), self.size(a))
        piece = self.part(a, lanes, inst.attr // lanes)
        if lanes == 1:
            self.pieces[inst.result.id] = (piece,)
            return
        made = self.compute(Op.EXTRACT, inst.result.dtype, 1, (piece,), inst.attr % lanes)
        self.pieces[inst.result.id] = (made,)

    def _half(self, inst: Compute) -> None:
        (a,) = inst.args
        count = a.lanes // 2
        self._picked(inst, list(range(inst.attr * count, (inst.attr + 1) * count)))

    def _reverse(self, inst: Compute) -> None:
        (a,) = inst.args
        lanes = self.cut(a.lanes, a.dtype)
        parts = self.parts(a, lanes)
        self.pieces[inst.result.id] = tuple(
            self.compute(Op.REVERSE, v.dtype, lanes, (v,), lanes) if lanes > 1 else v
            for v in reversed(parts))

    def _slide(self, inst: Compute) -> None:
        lanes = inst.result.lanes
        self._picked(inst, list(range(lanes - inst.attr, 2 * lanes - inst.attr)))

    def _shuffle(self, inst: Compute) -> None:
        self._picked(inst, list(picks_of(inst.attr)))

    def _picked(self, inst: Compute, picks: list[int]) -> None:
        """Write a choice of lanes of the operands, one behind the other."""
        result = inst.result
        size = self.cut(inst.args[0].lanes, result.dtype)
        sources = [v for a in inst.args for v in self.parts(a, size)]
        lanes = self.cut(result.lanes, result.dtype)
        self.pieces[result.id] = tuple(
            self._chosen(sources, size, picks[first : first + lanes])
            for first in range(0, result.lanes, lanes))

    def _chosen(self, sources: Sequence[Value], size: int, picks: list[int]) -> Value:
        """Return lanes of some pieces as one: from two pieces, then from a third and so on."""
        used = list(dict.fromkeys(p // size for p in picks))
        d, lanes = sources[0].dtype, len(picks)
        if picks == list(range(picks[0], picks[0] + lanes)) and lanes == size and (
                picks[0] % size == 0):
            return sources[used[0]]
        if size == 1:
            return self._joined([sources[p] for p in picks])
        if lanes == 1:
            return self.compute(Op.EXTRACT, d, 1, (sources[used[0]],), picks[0] % size)
        first, second = used[0], used[1] if len(used) > 1 else used[0]
        known = [p % size + (size if p // size == second and second != first else 0)
                 if p // size in (first, second) else 0 for p in picks]
        made = self.compute(Op.SHUFFLE, d, lanes, (sources[first], sources[second]),
                            "_".join(map(str, known)))
        for more in used[2:]:
            own = self._chosen(sources, size, [p if p // size == more else more * size
                                               for p in picks])
            taken = [k + lanes if p // size == more else k for k, p in enumerate(picks)]
            made = self.compute(Op.SHUFFLE, d, lanes, (made, own), "_".join(map(str, taken)))
        return made

    def _bits(self, inst: Compute) -> None:
        (a,) = inst.args
        lanes = min(self.cut(a.lanes, a.dtype), max(self.size(a), 2))
        total: Value | None = None
        for k, piece in enumerate(self.parts(a, lanes)):
            if lanes == 1:
                bits = self.compute(Op.CAST, dt.uint64, 1, (piece,))
            else:
                bits = self.compute(Op.BITS, dt.uint64, 1, (piece,), lanes)
            if k:
                shift = self.const(k * lanes, dt.uint64)
                bits = self.compute(Op.SHL, dt.uint64, 1, (bits, shift))
            total = bits if total is None else (
                self.compute(Op.OR, dt.uint64, 1, (total, bits)))
        assert total is not None
        self.pieces[inst.result.id] = (total,)

    def _words(self, inst: Compute) -> None:
        (a,) = inst.args
        result = inst.result
        ratio = a.lanes // result.lanes
        lanes = min(self.cut(result.lanes, result.dtype), self.cut(a.lanes, a.dtype) // ratio)
        self.pieces[result.id] = tuple(
            self.compute(Op.WORDS, result.dtype, lanes, (v,)) for v in self.parts(a, lanes * ratio))


_MOVES: Final[dict[Operation, Callable[[_Splitter, Compute], None]]] = {
    Op.EXTRACT: _Splitter._extract, Op.HALF: _Splitter._half, Op.REVERSE: _Splitter._reverse,
    Op.SLIDE: _Splitter._slide, Op.SHUFFLE: _Splitter._shuffle, Op.BITS: _Splitter._bits,
    Op.WORDS: _Splitter._words,
}  # fmt: skip
