"""Gradients of attention as a loop nest: blocks of rows that walk the columns once.

    for batch .. { for ib in blocks of rows {
      xt[e, q] = X                                    rows of the block, transposed, per product
      acc[d, q] = 0                                   per gradient
      for further axes .. { for cb in blocks of columns that the block can see {
        s[j, q] = sum over e of xt[e, q] * Y[j, e]    per product: scores, gradient of the weights
        s = P(s)                                      per gradient
        acc[d, q] += sum over j of s[j, q] * B[j, d]  per gradient
      } }
      G[q, d] = acc[d, q]
    } }

With many heads the gradient of queries is made beside those of keys and values: each tile adds to
its rows of an array, ``total[j, d] += sum over q of s[j, q] * B[q, d]``, one block after the other,
so that the order of its sums is fixed as well.

Rows are queries for the gradient of queries, and keys for those of keys and values, which share
their tiles in one kernel. No result crosses rows, so rows are the lanes of vectors and no two
threads add to one place. Columns that are hidden from a whole block are left out: what they would
add is 0, or no number where a value of theirs is none.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from weft.ir import expr as ex
from weft.ir.expr import Expr
from weft.ir.infer import as_expr
from weft.ir.node import Node
from weft.ir.op import Op
from weft.ir.stmt import SERIAL, Axis, For, Let, Load, Memory, Reduce, Store
from weft.kernelize.attention_gradient import Part, Product
from weft.kernelize.attention_tiles import COLUMNS, Sections, padded, rounded, tile_of, total_of
from weft.kernelize.cost import upper_bound
from weft.kernelize.emit import Emitter
from weft.kernelize.group import Group
from weft.kernelize.indexing import Index
from weft.target import Target

_WIDTH: Final = 16  # channels of a gradient across are padded to a multiple


def lower_gradients(parts: Sequence[Part], group: Group, sources: dict[Node, Memory],
                    stored: dict[Node, Memory], target: Target | None
                    ) -> tuple[Emitter, tuple[Memory, ...]]:  # fmt: skip
    """Return the nest of the gradients of a group, and the arrays it needs besides."""
    nest = _Nest(parts, group, sources, stored, target)
    return nest.run(), nest.scratch


class _Nest(Sections):
    """The sections of the nest, in order."""

    def __init__(self, parts: Sequence[Part], group: Group, sources: dict[Node, Memory],
                 stored: dict[Node, Memory], target: Target | None) -> None:
        by_key = [p for p in parts if p.by_key]
        self.parts = by_key or list(parts)
        self.across = next((p for p in parts if by_key and not p.by_key), None)
        self.group, self.stored = group, stored
        self.part = self.parts[0]
        super().__init__(Emitter(sources, hoist=True), self.part.out.dtype, self.part.rows,
                         target)
        self.columns = as_expr(self.part.columns)
        found: dict[Node, Product] = {}
        for part in self.parts:
            for product in part.products:
                found.setdefault(product.node, product)
        self.products_of = list(found.values())
        self.scratch: tuple[Memory, ...] = ()

    def run(self) -> Emitter:
        """Return the emitter whose outermost scope is the kernel's body."""
        em, part = self.em, self.part
        em.open()
        batches = self.open_batches(part.batches)
        if self.across is not None:
            self._start_across(self.across)
        em.open()
        block = self.open_blocks()
        most = min(COLUMNS, upper_bound(part.columns))
        height = rounded(most, tile_of(most, whole=False))
        rows = [self.local(f"x{n}", padded(p.terms)) for n, p in enumerate(self.products_of)]
        count = max(len(self.products_of), len(self.parts) + (self.across is not None))
        self.tiles = [self.local(f"s{n}", height) for n in range(count)]
        sums = [self.local(f"acc{n}", rounded(p.channels, tile_of(p.channels)))
                for n, p in enumerate(self.parts)]
        for n, to in enumerate(sums):
            self.clear(f"_{n}", to)
        if self.across is not None:
            self._pack(self.across)
        if not part.others:
            self._rows(rows)
        em.open()
        others = [(em.loop_var(str(v.attr), upper_bound(n)), as_expr(n)) for v, n in part.others]
        if part.others:
            self._rows(rows)
        self._blocks(rows, sums)
        self.wrap(others, em.close())
        for n, (p, to) in enumerate(zip(self.parts, sums, strict=True)):
            self._finish(n, p, to)
        self.wrap([block], em.close())
        if self.across is not None:
            self._finish_across(self.across)
        self.wrap(batches, em.close())
        return em

    def _rows(self, rows: Sequence[Memory]) -> None:
        for n, (product, to) in enumerate(zip(self.products_of, rows, strict=True)):
            self.transpose(f"_{n}", to, product.rows, product.at_rows, "row", product.terms)

    def _range(self) -> tuple[Expr, Expr]:
        """Return the first column that the block of rows sees, and the end of the last one."""
        part, first = self.part, self.first
        every = [*self.parts, *([self.across] if self.across else [])]
        if part.reach is None or any(p.reach is None for p in every):
            return ex.index(0), self.columns
        if part.by_key:  # query i sees the keys up to i + reach
            return ex.minimum(ex.maximum(first - part.reach, 0), self.columns), self.columns
        seen = first + (self.block + part.reach)
        return ex.index(0), ex.maximum(ex.minimum(seen, self.columns), 0)

    def _blocks(self, rows: Sequence[Memory], sums: Sequence[Memory]) -> None:
        em, part = self.em, self.part
        begin, end = map(em.simplify, self._range())
        em.open()
        cb = em.loop_var("cb", -(-upper_bound(part.columns) // COLUMNS))
        start = begin + cb * COLUMNS
        count = ex.minimum(end - start, COLUMNS)
        for n, (product, to) in enumerate(zip(self.products_of, rows, strict=True)):
            self.products(f"_{n}", self.tiles[n], to, product.columns, product.at_columns, "col",
                          product.terms, part.columns, start, count)
        made = frozenset(p.node for p in self.products_of)
        self.staged = self.stage("", part.p, part.at_p, part.columns, start, made)
        self._values(start, count)
        for n, (p, to) in enumerate(zip(self.parts, sums, strict=True)):
            self.gather(f"_{n}", to, self.holds[n], p.b, p.at_b, "col", p.channels, p.columns,
                        start, count)
        if self.across is not None:
            self._add_across(start, count)
        blocks = ex.maximum(end - begin + (COLUMNS - 1), 0) // COLUMNS
        em.emit(For(cb, em.simplify(blocks), SERIAL, em.close()))

    def _values(self, start: Expr, count: Expr) -> None:
        """Emit what each gradient multiplies with, in place of the products."""
        em, part = self.em, self.part
        v = self.section(q4=self.block, row4=self.rows)
        lane, row, live = v["q4"], v["row4"], self.live(4)
        mapping = self.row_of(lane, row, 4)
        em.open()
        j, col = em.loop_var("j4", COLUMNS), em.loop_var("col4", upper_bound(part.columns))
        mapping[col] = start + j
        for product, tile in zip(self.products_of, self.tiles, strict=False):
            em.staged[product.node] = (self.at(product.at, row=row, col=col), tile, (j, lane))
        for node, index, staged in self.staged:
            em.staged[node] = (self.at(index, row=row, col=col), staged, (j, lane))
        place = self.at(part.at_weights, row=row, col=col)
        em.bound[part.weights] = (place, self._weight(place, live))
        values = [em.value(p.p, self.at(p.at_p, row=row, col=col), live) for p in self.parts]
        if self.across is not None:  # its rows are columns here
            turned = self.at(self.across.at_p, row=col, col=row)
            values.append(em.value(self.across.p, turned, live))
        em.staged.clear()
        del em.bound[part.weights]
        held: dict[Expr, Memory] = {}
        for value in values:
            if value not in held:
                held[value] = self.tiles[len(held)]
                em.emit(Store(held[value], (j, lane), ex.cast(value, self.dtype)))
        self.holds = [held[value] for value in values]
        inner = em.close()
        em.emit(For(j, count, SERIAL, inner))
        self.close([(lane, self.block)], mapping)

    def _weight(self, place: Index, live: Expr | None) -> Expr:
        """Emit the weights: by one reciprocal a row instead of a quotient a score."""
        em, weights = self.em, self.part.weights
        if weights.op is not Op.DIV:
            value = em.value(weights, place, live)
        else:
            exp, total = (em.value(a, place, live) for a in weights.args)
            inverse = em.fresh("inverse", self.dtype, em.level(total))
            em.place(Let(inverse, ex.unary(Op.RECIPROCAL, total)), total)
            value = exp * inverse
        return self.let("weight", value)

    # Gradients across: a row of theirs is a column of the tiles, so every block of rows adds to it.

    def _start_across(self, part: Part) -> None:
        """Emit zeros for the sums of all columns, in an array that is padded to whole tiles."""
        em = self.em
        self.width = rounded(part.channels, min(_WIDTH, 1 << (part.channels - 1).bit_length()))
        height = self.columns + COLUMNS
        sizes = (*(as_expr(n) for _, n in part.batches), em.simplify(height), ex.index(self.width))
        self.total = Memory("total", self.dtype, sizes)
        self.scratch = (self.total,)
        self.packed = Memory("packed", self.dtype,
                             (ex.index(self.block), ex.index(self.width)), "local")
        v = self.section(c0=upper_bound(part.rows) + COLUMNS, q2_c=self.width)
        em.emit(Store(self.total, (*self._batch(), v["c0"], v["q2_c"]),
                      ex.const(0.0, self.dtype)))
        self.close([(v["c0"], self.total.shape[-2]), (v["q2_c"], self.width)], {})

    def _batch(self) -> Index:
        return tuple(v for v, _ in self.part.batches)

    def _pack(self, part: Part) -> None:
        """Emit ``packed[q, d]``: the factor of the gradient across, at the rows of the block."""
        em = self.em
        em.alloc(self.packed)
        v = self.section(p1=self.block, row1=self.rows, q2_p=self.width)
        lane, row, d = v.values()
        live, place = self.live("p1"), self.at(part.at_b, col=row, d=d)
        if self.width != part.channels:
            inside = d.lt(part.channels)
            live = inside if live is None else live & inside
        value = em.value(part.b, place, live)
        em.emit(Store(self.packed, (lane, d), ex.cast(value, self.dtype)))
        self.close([(lane, self.block), (d, self.width)], self.row_of(lane, row, "p1"))

    def _add_across(self, start: Expr, count: Expr) -> None:
        """Emit ``total[j, d] += sum over q of s[j, q] * packed[q, d]``, in tiles of columns."""
        em = self.em
        size = tile_of(upper_bound(self.part.columns), whole=False)
        tiles = -(-min(COLUMNS, upper_bound(self.part.columns)) // size)
        v = self.section(ct=tiles, cu=size, q6=self.width)
        tile, unit, d = v.values()
        em.open()
        lane = em.loop_var("q7", self.block)
        value, factor = em.fresh("w", self.dtype), em.fresh("row", self.dtype)
        j = tile * size + unit
        em.emit(Load(value, self.holds[-1], (j, lane)))
        em.emit(Load(factor, self.packed, (lane, d)))
        inner = em.close()
        across = self.bound("across")
        here = ex.minimum(as_expr(self.rows) - self.first, self.block)
        em.emit(Reduce((Axis(lane, here),), (total_of(across, value * factor),), inner))
        last = em.simplify(self.total.shape[-2] - COLUMNS)
        first = ex.minimum(start, last)  # which it is: a batch keeps to its part of the array
        place = (*self._batch(), first + j, d)
        old = em.fresh("old", self.dtype)
        em.emit(Load(old, self.total, place))
        em.emit(Store(self.total, place, old + across))
        self.close([(tile, (count + (size - 1)) // size), (unit, size), (d, self.width)], {})

    def _finish_across(self, part: Part) -> None:
        """Emit a gradient across, and members that follow it element by element."""
        em = self.em
        v = self.section(c9=part.rows, d9=part.channels)
        column, d = v.values()
        read = em.fresh("sum", self.dtype)
        em.emit(Load(read, self.total, (*self._batch(), column, d)))
        self._members(part, self.at(part.at_out, row=column, d=d), read, None)
        self.close([(column, as_expr(part.rows)), (d, part.channels)], {})

    def _finish(self, number: int, part: Part, to: Memory) -> None:
        """Emit a gradient of the rows."""
        em = self.em
        v = self.section(**{f"q8_{number}": self.block, f"row8_{number}": self.rows,
                            f"d8_{number}": part.channels})
        lane, row, d = v.values()
        live = self.live(f"8_{number}")
        read = em.fresh("sum", self.dtype)
        em.emit(Load(read, to, (d, lane)))
        self._members(part, self.at(part.at_out, row=row, d=d), read, live)
        self.close([(lane, self.block), (d, part.channels)],
                   self.row_of(lane, row, f"8_{number}"))

    def _members(self, part: Part, place: Index, value: Expr, live: Expr | None) -> None:
        """Emit a gradient, where it is stored, and members that follow it element by element."""
        em = self.em
        em.bound[part.out] = (place, value)
        for member in self.group.members:
            if member not in self.stored or self._of(member) is not part.out:
                continue
            index = place
            if member is not part.out:
                found = Group(-1, part.out, "attention", 0).place(member, place, ())
                assert found is not None  # fuse admitted the member
                index = tuple(map(em.simplify, found))
            em.emit(Store(self.stored[member], index, em.value(member, index, live), live))

    def _of(self, member: Node) -> Node:
        """Return the gradient that a member is made of."""
        outs = {p.out for p in (*self.parts, *([self.across] if self.across else []))}
        stack, seen = [member], {member}
        while stack:
            node = stack.pop()
            if node in outs:
                return node
            for arg in node.args:
                if arg not in seen and (arg in outs or arg not in self.em.sources):
                    seen.add(arg)
                    stack.append(arg)
        return self.parts[0].out


__all__ = ["lower_gradients"]
