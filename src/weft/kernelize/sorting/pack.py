"""Loop nests that bring chosen elements of a row together, in order.

A long row is cut into blocks. Chosen elements are counted first, so that each block knows where its
own go, whichever thread takes it. A processor that packs the lanes of a vector takes so many
elements at a time, and looks at a whole vector of flags to pass over what none is chosen of;
others pack element by element into an array of the thread, without a branch.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Final

from weft.ir import dtype as dt
from weft.ir import expr as ex
from weft.ir.dtype import DType
from weft.ir.expr import Expr
from weft.ir.infer import as_expr
from weft.ir.node import Node
from weft.ir.op import Op
from weft.ir.stmt import PARALLEL, Load, Memory, Store
from weft.kernelize.common.emit import Emitter
from weft.kernelize.common.sizes import upper_bound
from weft.kernelize.common.writer import Writer
from weft.target import Target

SIZE: Final = 1 << 14  # elements of a block
SHARED_FROM: Final = 1 << 16  # elements of a row that is cut into blocks
STAGED: Final = 1 << 10  # elements that are packed in an array of the thread
TOGETHER: Final = 4  # vectors that are passed over at once if nothing is chosen of them
_NONE: Final = ex.index(0)
_UNSIGNED: Final = {1: dt.uint8, 2: dt.uint16}


def lower_pack(node: Node, sources: dict[Node, Memory], stored: dict[Node, Memory],
               target: Target | None = None) -> Emitter:  # fmt: skip
    """Return the nest that writes the chosen elements of a row to the front of the result."""
    em = Emitter(sources, hoist=False)
    d, outputs = _packed(node.dtype), {part.attr: memory for part, memory in stored.items()}
    if target is not None and _packs(target, d):
        _Vectors(em, node, outputs, target).emit()
    else:
        _Elements(em, node, outputs).emit()
    return em


def _packs(target: Target, d: DType) -> bool:
    """Whether a target packs the lanes of vectors of a type."""
    return target.supports(Op.COMPRESS, d) and target.lanes(d) > 1


def _packed(d: DType) -> DType:
    """Return the type as which elements are packed: narrow ones are widened."""
    return d if d.itemsize >= 4 else dt.uint32


class _Pack(Writer):
    """The lowering of one row: blocks, and where their elements go."""

    def __init__(self, em: Emitter, node: Node, outputs: dict[int, Memory]) -> None:
        self.em, self.node, self.outputs = em, node, outputs
        self.flags, self.most = em.sources[node.args[1]], upper_bound(node.shape[0])
        self.extent = as_expr(node.shape[0])

    def emit(self) -> None:
        """Emit the nest."""
        if self.most < SHARED_FROM or not ex.is_const(self.extent):
            whole = self._register("place", _NONE)
            self._pack(_NONE, self.extent, whole)
            self._tell(whole)
            return
        blocks = -(-self.most // SIZE)
        starts = Memory("starts", dt.int64, (ex.index(blocks),), "local")
        self.em.alloc(starts)
        b, start, count = self._block(blocks)
        chosen = self._register("chosen", _NONE)
        self._count(start, count, chosen)
        self.em.emit(Store(starts, (b,), self._get(chosen)))
        self._end(b, ex.index(blocks), PARALLEL)

        before = self._register("before", _NONE)
        b = self._loop("b", blocks)
        mine, first = self._element(starts, b), self._get(before)
        self.em.emit(Store(starts, (b,), first))
        self._set(before, first + mine)
        self._end(b, ex.index(blocks))
        self._tell(before)

        b, start, count = self._block(blocks)
        self._pack(start, count, self._register("place", self._element(starts, b)))
        self._end(b, ex.index(blocks), PARALLEL)

    def _tell(self, count: Memory) -> None:
        """Write how many elements are chosen, if that is asked for."""
        if 1 in self.outputs:
            self.em.emit(Store(self.outputs[1], (), self._get(count)))

    def _block(self, blocks: int) -> tuple[Expr, Expr, Expr]:
        """Open a loop over blocks; return its variable, where a block starts, and its size."""
        b = self._loop("b", blocks)
        start = self._let(b * SIZE)
        return b, start, self._let(ex.minimum(self.extent - start, ex.index(SIZE)))

    @abstractmethod
    def _count(self, start: Expr, count: Expr, chosen: Memory) -> None:
        """Add how many elements of a part are chosen."""

    @abstractmethod
    def _pack(self, start: Expr, count: Expr, place: Memory) -> None:
        """Write what is chosen of a part, from a place on."""

    def _value(self, place: Expr, lanes: int = 1, mask: Expr | None = None) -> Expr:
        """Return elements: where the row is that of all places, they are not read."""
        values = self.node.args[0]
        if values.op is Op.IOTA:
            return ex.cast(ex.ramp(place, lanes) if lanes > 1 else place, values.dtype)
        var = ex.var(f"x{self._number()}", values.dtype, lanes)
        self.em.emit(Load(var, self.em.sources[values], (place,), mask))
        return var


class _Vectors(_Pack):
    """Packs lanes of vectors."""

    def __init__(self, em: Emitter, node: Node, outputs: dict[int, Memory],
                 target: Target) -> None:  # fmt: skip
        super().__init__(em, node, outputs)
        self.lanes = target.lanes(_packed(node.dtype))
        self.word = max(min(target.lanes(dt.uint8), TOGETHER * self.lanes), self.lanes)

    def _flags(self, place: Expr, lanes: int, mask: Expr | None = None) -> Expr:
        var = ex.var(f"f{self._number()}", dt.bool_, lanes)
        self.em.emit(Load(var, self.flags, (place,), mask))
        return var

    def _count(self, start: Expr, count: Expr, chosen: Memory) -> None:
        w = self._loop("w", SIZE // self.word)
        flags = self._flags(start + w * self.word, self.word)
        self._set(chosen, self._get(chosen) + self._counted(flags))
        self._end(w, count // self.word)
        for place, mask in self._rest(start, count):
            flags = self._flags(place, self.lanes, mask)
            self._set(chosen, self._get(chosen) + self._counted(flags))

    def _pack(self, start: Expr, count: Expr, place: Memory) -> None:
        w = self._loop("w", max(self.most // self.word, 1))
        first = self._let(start + w * self.word)
        some = self._let(ex.bits(self._flags(first, self.word)).ne(0))
        self.em.open()
        for g in range(self.word // self.lanes):
            self._group(first + g * self.lanes, place)
        self._if(some, self.em.close())
        self._end(w, count // self.word)
        for at, mask in self._rest(start, count):
            self._group(at, place, mask)

    def _rest(self, start: Expr, count: Expr) -> list[tuple[Expr, Expr]]:
        """Return places and masks of what fills no whole vector of flags."""
        done = self._let(count - count % self.word)
        left = self._let(count - done)
        return [(start + done + g * self.lanes,
                 self._let(self._first_lanes(left - g * self.lanes)))
                for g in range(self.word // self.lanes)]

    def _group(self, at: Expr, place: Memory, mask: Expr | None = None) -> None:
        """Write the chosen elements of one vector."""
        flags, d = self._flags(at, self.lanes, mask), self.node.dtype
        x, to = self._value(at, self.lanes, mask), self._get(place)
        if d.itemsize < 4:
            x = ex.cast(x if d.is_bool else ex.bitcast(x, _UNSIGNED[d.itemsize]), dt.uint32)
        packed = ex.compress(flags, self._let(x))
        if d.is_bool:
            packed = self._let(packed).ne(ex.const(0, dt.uint32, self.lanes))
        elif d.itemsize < 4:
            packed = ex.bitcast(ex.cast(packed, _UNSIGNED[d.itemsize]), d)
        count = self._counted(flags)
        if 0 in self.outputs:
            self.em.emit(Store(self.outputs[0], (to,), packed, self._first_lanes(count)))
        self._set(place, to + count)


class _Elements(_Pack):
    """Packs element by element: each goes behind those before it, and stays if it is chosen."""

    def _flag(self, place: Expr) -> Expr:
        flag = self._element(self.flags, place)
        return ex.where(flag, ex.index(1), _NONE)

    def _count(self, start: Expr, count: Expr, chosen: Memory) -> None:
        i = self._loop("i", SIZE)
        self._set(chosen, self._get(chosen) + self._flag(start + i))
        self._end(i, count)

    def _pack(self, start: Expr, count: Expr, place: Memory) -> None:
        part = self._loop("part", -(-self.most // STAGED))
        first = self._let(start + part * STAGED)
        size = self._let(ex.minimum(count - part * STAGED, ex.index(STAGED)))
        staged = Memory("staged", self.node.dtype, (ex.index(STAGED),), "local")
        self.em.alloc(staged)
        found = self._register("found", _NONE)
        i = self._loop("i", STAGED)
        before = self._get(found)
        self.em.emit(Store(staged, (before,), self._value(first + i)))
        self._set(found, before + self._flag(first + i))
        self._end(i, size)
        to, total = self._get(place), self._get(found)
        j = self._loop("j", STAGED)
        if 0 in self.outputs:
            self.em.emit(Store(self.outputs[0], (to + j,), self._element(staged, j)))
        self._end(j, total)
        self._set(place, to + total)
        self._end(part, (count + (STAGED - 1)) // STAGED)
