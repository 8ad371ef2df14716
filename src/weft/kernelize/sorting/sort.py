"""Loop nests of sorts: short rows by counting smaller elements, others digit by digit.

Both are stable and have no branch that depends on data. A value's *key* is an unsigned integer in
the order of the sort: NaN is the largest value, zeros of both signs are equal.
"""

from __future__ import annotations

from typing import Final

from weft.ir import dtype as dt
from weft.ir import expr as ex
from weft.ir.dtype import DType
from weft.ir.expr import Expr
from weft.ir.infer import as_expr
from weft.ir.node import Node
from weft.ir.op import Op
from weft.ir.stmt import (
    PARALLEL,
    SERIAL,
    Accumulator,
    Axis,
    For,
    If,
    Let,
    Load,
    Memory,
    Reduce,
    Stmt,
    Store,
    lhs,
    rhs,
)
from weft.kernelize.common.emit import Emitter
from weft.kernelize.common.indexing import Index
from weft.kernelize.common.rows import at, close_all, close_rows, open_all, open_rows
from weft.kernelize.common.sizes import elements, upper_bound
from weft.kernelize.sorting import presorted_rows as beside
from weft.kernelize.sorting import quicksort as parts
from weft.kernelize.sorting import select
from weft.kernelize.sorting import sort_network as network
from weft.target import Target

COUNTED: Final = 4  # rows of up to this many elements a key bit are sorted by counting
NARROW, WIDE = 8, 11  # bits of a digit in short and in long rows
WIDE_FROM: Final = 1 << 13  # elements from which fewer passes pay for larger tables
UNROLLED: Final = 4  # passes up to which each is code of its own
CHUNKS: Final = 4  # parts of a long row, each with a table of its own, for the threads
CHUNKED_FROM: Final = 1 << 16
_Arrays = tuple[Memory | None, Memory | None]  # values and places
_UNSIGNED: Final = {1: dt.uint8, 2: dt.uint16, 4: dt.uint32, 8: dt.uint64}
_SIGNED: Final = {1: dt.int8, 2: dt.int16, 4: dt.int32, 8: dt.int64}


def lower_sort(node: Node, sources: dict[Node, Memory],
               stored: dict[Node, Memory], target: Target | None = None,
               ) -> tuple[Emitter, tuple[Memory, ...]]:  # fmt: skip
    """Return the nest of a stable sort of each row, and its scratch arrays."""
    outputs = {p.attr: m for p, m in stored.items()}
    if node.attr.keep < 0:
        return _whole(node, sources, outputs, target)
    if select.suits(node):
        return _selected(node, sources, outputs)
    whole = {i: Memory(f"whole{i}", m.dtype, tuple(map(as_expr, node.args[0].shape)))
             for i, m in outputs.items()}  # fmt: skip
    em, scratch = _whole(node, sources, whole, target)
    place = open_all(em, node.shape, "kept")
    for i, memory in whole.items():
        item = em.fresh("item", memory.dtype)
        em.emit(Load(item, memory, place))
        em.emit(Store(outputs[i], place, item))
    close_all(em, node.shape, place)
    return em, (*whole.values(), *scratch)


def _whole(node: Node, sources: dict[Node, Memory],
           outputs: dict[int, Memory], target: Target | None,
           ) -> tuple[Emitter, tuple[Memory, ...]]:  # fmt: skip
    """Return the nest that puts all elements of each row in order."""
    if 1 not in outputs and (parts.suits(node, target) or network.suits(node)):
        em = Emitter(sources, hoist=False)
        if target is not None and parts.suits(node, target):
            by_parts = parts.Parts(em, node, outputs[0], target)
            by_parts.emit()
            return em, (by_parts.away,)
        flags = Memory("flags", dt.uint8, tuple([
            ex.index(1) if a == node.attr.axis else as_expr(d)
            for a, d in enumerate(node.args[0].shape)]))
        if target is not None and beside.suits(node, target):
            beside.Beside(em, node, outputs[0], flags, target.lanes(node.dtype)).emit()
        else:
            network.Network(em, node, outputs[0], flags).emit()
        return em, (flags,) if node.dtype.is_float else ()
    if 1 in outputs and network.suits_places(node):
        em = Emitter(sources, hoist=False)
        network.Places(em, node, outputs.get(0), outputs[1]).emit()
        return em, ()
    lowering = _Sort(node, sources, outputs)
    if node.dtype.is_bool:
        lowering.by_parting()
    elif lowering.n <= COUNTED * node.dtype.itemsize * 8:
        lowering.by_counting()
    else:
        loops, lowering.index = open_rows(lowering.em, lowering.shape, lowering.axis)
        lowering.by_digits()
        close_rows(lowering.em, loops, lowering.shape, lowering.axis)
    return lowering.em, tuple(lowering.scratch)


def _selected(node: Node, sources: dict[Node, Memory],
              outputs: dict[int, Memory]) -> tuple[Emitter, tuple[Memory, ...]]:  # fmt: skip
    """Return the nest that finds the first elements of each row's order."""
    whole = {i: Memory(f"whole{i}", m.dtype, tuple(map(as_expr, node.args[0].shape)))
             for i, m in outputs.items()}  # fmt: skip
    lowering = _Sort(node, sources, whole)
    em, keep = lowering.em, node.attr.keep
    loops, lowering.index = open_rows(em, lowering.shape, lowering.axis)

    def key(place: Expr) -> tuple[Expr, Expr]:
        value = em.value(node.args[0], lowering.place(place))
        return lowering.key(value), value

    def put(position: Expr, value: Expr, place: Expr, mask: Expr | None) -> None:
        for i, item in enumerate((value, place)):
            if i in outputs:
                em.emit(Store(outputs[i], lowering.place(position), item, mask))

    def sort_all() -> None:
        lowering.by_digits(chunked=False)
        k = lowering.loop("kept", ex.index(keep), keep)
        items = [ex.var("kept_value", node.dtype), k]
        for i, memory in whole.items():
            items[i] = ex.var(f"kept{i}", memory.dtype)
            em.emit(Load(items[i], memory, lowering.place(k)))
        put(k, items[0], items[1], None)
        lowering.end(k, ex.index(keep))

    found = select.Select(em, lowering.n, keep, node.dtype, _UNSIGNED[node.dtype.itemsize], key,
                          put)  # fmt: skip
    found.emit(sort_all)
    close_rows(em, loops, lowering.shape, lowering.axis)
    return em, (*whole.values(), *lowering.scratch)


def sort_key(x: Expr, descending: bool) -> Expr:
    """Return an unsigned integer whose order is the order of the sort."""
    d = x.dtype
    unsigned = _UNSIGNED[d.itemsize]
    if d.is_bool:
        key = ex.cast(x, dt.uint8)
        return ex.const(1, dt.uint8) - key if descending else key
    if not d.is_float:
        key = x if d.kind == "u" else ex.bitcast(x, unsigned) ^ (1 << (d.bits - 1))
        return ~key if descending else key
    signed = _SIGNED[d.itemsize]
    bits = ex.bitcast(x, signed)
    # Sign and magnitude become a two's complement: zeros of both signs meet. Then infinities are
    # 0 and 2 * infinity, and whatever wraps around or lies above is a NaN.
    ordered = ex.where(bits.lt(0), ex.const(signed.min, signed) - bits, bits)
    infinity = _largest_bits(d)
    key = ex.bitcast(ordered, unsigned) + infinity
    key = ex.minimum(key, 2 * infinity + 1)
    return ex.const(2 * infinity + 1, unsigned) - key if descending else key


def _largest_bits(d: DType) -> int:
    """Return the magnitude bits of the largest value that is no NaN."""
    return {"f16": 0x7C00, "bf16": 0x7F80, "f32": 0x7F800000, "f64": 0x7FF0000000000000,
            "f8e4m3": 0x7E, "f8e5m2": 0x7C}[d.text]  # fmt: skip


class _Sort:
    """The lowering of one sort."""

    def __init__(self, node: Node, sources: dict[Node, Memory],
                 outputs: dict[int, Memory]) -> None:  # fmt: skip
        self.node, self.axis, self.outputs = node, node.attr.axis, outputs
        self.em = Emitter(sources, hoist=False)
        self.shape = node.args[0].shape
        self.n = upper_bound(self.shape[self.axis])
        self.extent = as_expr(self.shape[self.axis])
        self.scratch: list[Memory] = []
        self.index: Index = ()

    def memory(self, name: str, dtype: DType) -> Memory:
        made = Memory(name, dtype, tuple(as_expr(d) for d in self.shape))
        self.scratch.append(made)
        return made

    def place(self, k: Expr) -> Index:
        return at(self.index, self.axis, k)

    def key(self, x: Expr) -> Expr:
        return sort_key(x, self.node.attr.descending)

    def loop(self, name: str, extent: Expr, most: int) -> Expr:
        self.em.open()
        return self.em.loop_var(name, most)

    def end(self, var: Expr, extent: Expr, kind: str = SERIAL) -> None:
        body = self.em.close()
        self.em.emit(For(var, extent, kind, body))

    # ---- short rows

    def by_counting(self) -> None:
        """Place each element behind those that are smaller, or equal and before it."""
        em, n = self.em, self.extent
        loops, self.index = open_rows(em, self.shape, self.axis)
        unsigned = _UNSIGNED[self.node.dtype.itemsize]
        keys = Memory("keys", unsigned, (n,), "local")
        ranks = Memory("ranks", dt.int32, (n,), "local")
        em.alloc(keys)
        em.alloc(ranks)
        k = self.loop("k", n, self.n)
        em.emit(Store(keys, (k,), self.key(em.value(self.node.args[0], self.place(k)))))
        self.end(k, n)

        i, j = self.loop("i", n, self.n), ex.var("j")
        mine, other = ex.var("mine", unsigned), ex.var("other", unsigned)
        em.emit(Load(mine, keys, (i,)))
        rank = ex.var("rank", dt.int32)
        first = other.lt(mine) | (other.eq(mine) & j.lt(i))
        count = ex.where(first, rank + 1, rank)
        em.emit(Reduce((Axis(j, n),), (Accumulator(rank, ex.const(0, dt.int32), count,
                                                   lhs(rank) + rhs(rank)),),
                       (Load(other, keys, (j,)),)))  # fmt: skip
        em.emit(Store(ranks, (i,), rank))
        self.end(i, n)

        m = self.loop("m", n, self.n)
        to = ex.var("to", dt.int32)
        value = em.value(self.node.args[0], self.place(m)) if 0 in self.outputs else None
        em.emit(Load(to, ranks, (m,)))
        target = self.place(ex.cast(to, dt.int64))
        if value is not None:
            em.emit(Store(self.outputs[0], target, value))
        if 1 in self.outputs:
            em.emit(Store(self.outputs[1], target, m))
        self.end(m, n)
        close_rows(em, loops, self.shape, self.axis)

    # ---- rows of bool

    def by_parting(self) -> None:
        """Put each element behind those of its kind that came before it."""
        em, n = self.em, self.extent
        loops, self.index = open_rows(em, self.shape, self.axis)
        first = ex.const(bool(self.node.attr.descending), dt.bool_)
        one, none = ex.index(1), ex.index(0)
        em.open()
        k = em.loop_var("k", self.n)
        value = em.value(self.node.args[0], self.place(k))
        body = em.close()
        total = ex.var("firsts")
        counted = total + ex.where(value.eq(first), one, none)
        em.emit(Reduce((Axis(k, n),), (Accumulator(total, none, counted,
                                                   lhs(total) + rhs(total)),), body))  # fmt: skip
        seen = Memory("seen", dt.int64, (one,), "register")
        em.alloc(seen)
        em.emit(Store(seen, (none,), none))
        m = self.loop("m", n, self.n)
        value = em.value(self.node.args[0], self.place(m))
        before, ahead = ex.var("before"), ex.var("ahead", dt.bool_)
        em.emit(Load(before, seen, (none,)))
        em.emit(Let(ahead, value.eq(first)))
        target = self.place(ex.where(ahead, before, total + m - before))
        for i, item in enumerate((value, m)):
            if i in self.outputs:
                em.emit(Store(self.outputs[i], target, item))
        em.emit(Store(seen, (none,), before + ex.where(ahead, one, none)))
        self.end(m, n)
        close_rows(em, loops, self.shape, self.axis)

    # ---- long rows

    def by_digits(self, chunked: bool = True) -> None:
        """Sort by each digit of the key, the lowest first, every pass keeping the order before.

        Ref: Knuth, The Art of Computer Programming 3, 5.2.5.
        """
        em, node, n = self.em, self.node, self.n
        bits = 1 if node.dtype.is_bool else node.dtype.itemsize * 8
        digit = WIDE if n >= WIDE_FROM and bits > 16 else min(NARROW, bits)
        passes = -(-bits // digit)
        rows = elements(self.shape) // max(n, 1)
        chunks = CHUNKS if chunked and n >= CHUNKED_FROM and rows < CHUNKS else 1
        short = dt.int32 if n <= dt.int32.max else dt.int64

        values: list[Memory | None] = [self.outputs.get(0)]
        if values[0] is None and passes > 2:
            values[0] = self.memory("values", node.dtype)
        values.append(self.memory("values_away", node.dtype) if passes > 1 else None)
        places: list[Memory | None] = [None, None]
        if 1 in self.outputs:
            places = [self.memory(f"places{i}", short) if passes > 1 + i else None
                      for i in range(2)]

        table = Memory("table", short, (ex.index(chunks), ex.index(1 << digit)), "local")
        total = Memory("total", short, (ex.index(1),), "register")
        em.alloc(table)
        em.alloc(total)
        if passes > UNROLLED:
            self._repeat(passes // 2 + passes % 2, digit, (values[0], places[0]),
                         (values[1], places[1]), chunks, table, total)
            return
        source: _Arrays = (None, None)
        for number in range(passes):
            last = number == passes - 1
            target = (values[(passes - 1 - number) % 2],
                      self.outputs.get(1) if last else places[number % 2])
            if last:
                target = (self.outputs.get(0), target[1])
            width = min(digit, bits - number * digit)
            shift = ex.index(number * digit)
            _Pass(self, number, shift, width, chunks, table, total).emit(source, target)
            source = target

    def _repeat(self, rounds: int, digit: int, home: _Arrays, away: _Arrays, chunks: int,
                table: Memory, total: Memory) -> None:  # fmt: skip
        """Emit a loop over pairs of passes, from home to away and back."""
        em, n = self.em, self.extent
        differ = self._differing_bits()
        k = self.loop("k", n, self.n)
        value = em.value(self.node.args[0], self.place(k))
        for memory, item in zip(home, (value, k), strict=True):
            if memory is not None:
                em.emit(Store(memory, self.place(k), ex.cast(item, memory.dtype)))
        self.end(k, n)
        bits = self.node.dtype.itemsize * 8
        pair = self.loop("pair", ex.index(rounds), rounds)
        behind = ex.cast(ex.minimum(pair * (2 * digit), bits - 1), differ.dtype)
        em.open()
        for number, (source, target) in enumerate(((home, away), (away, home))):
            shift = ex.minimum(pair * (2 * digit) + number * digit, bits)
            _Pass(self, number, shift, digit, chunks, table, total).emit(source, target)
        em.emit(If(((differ >> behind) & ((1 << 2 * digit) - 1)).ne(0), em.close()))
        self.end(pair, ex.index(rounds))
        if home[1] is not None:
            k = self.loop("last", n, self.n)
            came = em.fresh("place", home[1].dtype)
            em.emit(Load(came, home[1], self.place(k)))
            em.emit(Store(self.outputs[1], self.place(k), ex.cast(came, dt.int64)))
            self.end(k, n)


    def _differing_bits(self) -> Expr:
        """Return the bits in which not all keys of the row are equal: the rest sorts nothing."""
        em, key = self.em, _UNSIGNED[self.node.dtype.itemsize]
        first = ex.var("first_key", key)
        em.emit(Let(first, self.key(em.value(
            self.node.args[0], self.place(ex.index(0)), self._inhabited()))))
        em.open()
        i = em.loop_var("i_bits", self.n)
        mine = self.key(em.value(self.node.args[0], self.place(i)))
        body = em.close()
        differ = ex.var("differ", key)
        em.emit(Reduce((Axis(i, self.extent),), (Accumulator(
            differ, ex.const(0, key), differ | (mine ^ first), lhs(differ) | rhs(differ)),),
            body))  # fmt: skip
        return differ

    def _inhabited(self) -> Expr | None:
        return None if ex.is_const(self.extent) else ex.index(0).lt(self.extent)


class _Pass:
    """One pass over the row: count the digits, number their places, move the elements."""

    def __init__(self, sort: _Sort, number: int, shift: Expr, width: int, chunks: int,
                 table: Memory, total: Memory) -> None:  # fmt: skip
        self.sort, self.number, self.shift, self.width = sort, number, shift, width
        self.chunks, self.table, self.total = chunks, table, total
        self.size = (sort.extent + (chunks - 1)) // chunks

    def emit(self, source: _Arrays, target: _Arrays) -> None:
        """Emit the pass; `source` holds values and places of the pass before (None: the input)."""
        p, em = self.number, self.sort.em
        bins = ex.index(1 << self.width)
        short = self.table.dtype

        chunk = self._open_chunk(f"c{p}")
        b = self.sort.loop(f"z{p}", bins, 1 << self.width)
        em.emit(Store(self.table, (chunk, b), ex.const(0, short)))
        self.sort.end(b, bins)
        i, extent, where = self._elements(f"i{p}", chunk)
        digit = self._digit(self._value(source[0], where, f"x{p}"), f"d{p}")
        count = ex.var(f"n{p}", short)
        em.emit(Load(count, self.table, (chunk, digit)))
        em.emit(Store(self.table, (chunk, digit), count + 1))
        self.sort.end(i, extent)
        self._close_chunk(chunk)

        self._number()

        chunk = self._open_chunk(f"e{p}")
        i, extent, where = self._elements(f"m{p}", chunk)
        value = self._value(source[0], where, f"y{p}")
        digit = self._digit(value, f"g{p}")
        place = where
        if target[1] is not None and source[1] is not None:
            came = ex.var(f"from{p}", source[1].dtype)
            em.emit(Load(came, source[1], self.sort.place(where)))
            place = came
        to = ex.var(f"to{p}", short)
        em.emit(Load(to, self.table, (chunk, digit)))
        em.emit(Store(self.table, (chunk, digit), to + 1))
        at_target = self.sort.place(ex.cast(to, dt.int64))
        if target[0] is not None:
            em.emit(Store(target[0], at_target, value))
        if target[1] is not None:
            em.emit(Store(target[1], at_target, ex.cast(place, target[1].dtype)))
        self.sort.end(i, extent)
        self._close_chunk(chunk)

    def _open_chunk(self, name: str) -> Expr:
        if self.chunks == 1:
            return ex.index(0)
        return self.sort.loop(name, ex.index(self.chunks), self.chunks)

    def _close_chunk(self, chunk: Expr) -> None:
        # Each chunk has a row of the table, and places of its own in every run of equal digits.
        if self.chunks > 1:
            self.sort.end(chunk, ex.index(self.chunks), PARALLEL)

    def _elements(self, name: str, chunk: Expr) -> tuple[Expr, Expr, Expr]:
        """Open the loop over a chunk; return its variable, its extent, the element's place."""
        start = chunk * self.size
        extent = self.sort.extent
        if self.chunks > 1:
            extent = ex.maximum(ex.minimum(self.size, extent - start), 0)
        i = self.sort.loop(name, extent, self.sort.n)
        return i, extent, start + i

    def _value(self, source: Memory | None, where: Expr, name: str) -> Expr:
        sort = self.sort
        if source is None:
            return sort.em.value(sort.node.args[0], sort.place(where))
        value = ex.var(name, source.dtype)
        sort.em.emit(Load(value, source, sort.place(where)))
        return value

    def _digit(self, value: Expr, name: str) -> Expr:
        key = self.sort.key(value)
        if key.dtype.bits > self.width:
            places = ex.cast(self.shift, key.dtype)
            key = (key >> places) & ((1 << self.width) - 1)
        digit = ex.var(name)
        self.sort.em.emit(Let(digit, ex.cast(key, dt.int64)))
        return digit

    def _number(self) -> None:
        """Turn counts into the first place of each digit, the chunks of a digit in order."""
        p, em, short = self.number, self.sort.em, self.table.dtype
        zero = (ex.index(0),)
        em.emit(Store(self.total, zero, ex.const(0, short)))
        bins = ex.index(1 << self.width)
        b = self.sort.loop(f"b{p}", bins, 1 << self.width)
        running = ex.var(f"t{p}", short)
        body: list[Stmt] = [Load(running, self.total, zero)]
        for chunk in range(self.chunks):
            count = ex.var(f"h{p}_{chunk}", short)
            where = (ex.index(chunk), b)
            body += [Load(count, self.table, where), Store(self.table, where, running)]
            after = ex.var(f"t{p}_{chunk}", short)
            body.append(Let(after, ex.binary(Op.ADD, running, count)))
            running = after
        body.append(Store(self.total, zero, running))
        for stmt in body:
            em.emit(stmt)
        self.sort.end(b, bins)
