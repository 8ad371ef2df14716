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

Rows are queries for the gradient of queries, and keys for those of keys and values, which share
their tiles in one kernel. No result crosses rows, so rows are the lanes of vectors and no two
threads add to one place. Columns that are hidden from a whole block are left out: what they would
add is 0, or no number where a value of theirs is none.
"""

from __future__ import annotations

from collections.abc import Sequence

from weft.ir import expr as ex
from weft.ir.expr import Expr
from weft.ir.infer import as_expr
from weft.ir.node import Node
from weft.ir.op import Op
from weft.ir.stmt import SERIAL, For, Let, Load, Memory, Store
from weft.kernelize.attention_gradient import Part, Product
from weft.kernelize.attention_tiles import COLUMNS, Sections, rounded, tile_of
from weft.kernelize.cost import upper_bound
from weft.kernelize.emit import Emitter
from weft.kernelize.group import Group
from weft.kernelize.indexing import Index


def lower_gradients(parts: Sequence[Part], group: Group, sources: dict[Node, Memory],
                    stored: dict[Node, Memory]) -> Emitter:
    """Return the nest of the gradients of a group, which share rows and columns."""
    return _Nest(parts, group, sources, stored).run()


class _Nest(Sections):
    """The sections of the nest, in order."""

    def __init__(self, parts: Sequence[Part], group: Group, sources: dict[Node, Memory],
                 stored: dict[Node, Memory]) -> None:
        self.parts, self.group, self.stored = parts, group, stored
        self.part = parts[0]
        super().__init__(Emitter(sources, hoist=True), self.part.out.dtype, self.part.rows)
        self.columns = as_expr(self.part.columns)
        found: dict[Node, Product] = {}
        for part in parts:
            for product in part.products:
                found.setdefault(product.node, product)
        self.products_of = list(found.values())

    def run(self) -> Emitter:
        """Return the emitter whose outermost scope is the kernel's body."""
        em, part = self.em, self.part
        em.open()
        loops = self.open_blocks(part.batches)
        most = min(COLUMNS, upper_bound(part.columns))
        height = rounded(most, tile_of(most, whole=False))
        rows = [self.local(f"x{n}", p.terms) for n, p in enumerate(self.products_of)]
        self.tiles = [self.local(f"s{n}", height)
                      for n in range(max(len(self.products_of), len(self.parts)))]
        sums = [self.local(f"acc{n}", rounded(p.channels, tile_of(p.channels)))
                for n, p in enumerate(self.parts)]
        for n, to in enumerate(sums):
            self.clear(f"_{n}", to)
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
        self.wrap(loops, em.close())
        return em

    def _rows(self, rows: Sequence[Memory]) -> None:
        for n, (product, to) in enumerate(zip(self.products_of, rows, strict=True)):
            self.transpose(f"_{n}", to, product.rows, product.at_rows, "row", product.terms)

    def _range(self) -> tuple[Expr, Expr]:
        """Return the first block of columns that the block of rows sees, and their end."""
        part, first = self.part, self.first
        if part.reach is None or any(p.reach is None for p in self.parts):
            return ex.index(0), self.columns
        if part.by_key:  # query i sees the keys up to i + reach
            return ex.maximum(first - part.reach, 0) // COLUMNS, self.columns
        seen = first + (self.block + part.reach)
        return ex.index(0), ex.maximum(ex.minimum(seen, self.columns), 0)

    def _blocks(self, rows: Sequence[Memory], sums: Sequence[Memory]) -> None:
        em, part = self.em, self.part
        begin, end = map(em.simplify, self._range())
        em.open()
        cb = em.loop_var("cb", -(-upper_bound(part.columns) // COLUMNS))
        start = (begin + cb) * COLUMNS
        count = ex.minimum(end - start, COLUMNS)
        for n, (product, to) in enumerate(zip(self.products_of, rows, strict=True)):
            self.products(f"_{n}", self.tiles[n], to, product.columns, product.at_columns, "col",
                          product.terms, part.columns, start, count)
        self._values(start, count)
        for n, (p, to) in enumerate(zip(self.parts, sums, strict=True)):
            self.gather(f"_{n}", to, self.tiles[n], p.b, p.at_b, "col", p.channels, p.columns,
                        start, count)
        blocks = ex.maximum((end + (COLUMNS - 1)) // COLUMNS - begin, 0)
        em.emit(For(cb, em.simplify(blocks), SERIAL, em.close()))

    def _values(self, start: Expr, count: Expr) -> None:
        """Emit what each gradient multiplies with, in place of the products."""
        em, part = self.em, self.part
        v = self.section(q4=self.block, row=self.rows)
        lane, live = v["q4"], self.live(4)
        mapping = self.row_of(lane, v["row"], 4)
        em.open()
        j, col = em.loop_var("j4", COLUMNS), em.loop_var("col", upper_bound(part.columns))
        mapping[col] = start + j
        for product, tile in zip(self.products_of, self.tiles, strict=False):
            em.staged[product.node] = (self.at(product.at), tile, (j, lane))
        place = self.at(part.at_weights)
        em.bound[part.weights] = (place, self._weight(place, live))
        values = [em.value(p.p, self.at(p.at_p), live) for p in self.parts]
        em.staged.clear()
        del em.bound[part.weights]
        for tile, value in zip(self.tiles, values, strict=False):
            em.emit(Store(tile, (j, lane), ex.cast(value, self.dtype)))
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

    def _finish(self, number: int, part: Part, to: Memory) -> None:
        """Emit a gradient, and members that follow it element by element."""
        em, group = self.em, self.group
        v = self.section(**{f"q8_{number}": self.block, "row": self.rows, "d": part.channels})
        lane, row, d = v.values()
        live = self.live(f"8_{number}")
        read = em.fresh("sum", self.dtype)
        em.emit(Load(read, to, (d, lane)))
        place = self.at(part.at_out)
        em.bound[part.out] = (place, read)
        rows: Index | None = None
        for member in group.members:
            if member not in self.stored or self._of(member) is not part.out:
                continue
            index = place
            if member is not part.out:
                rows = rows or place
                found = group.place(member, rows, ())
                assert found is not None  # fuse admitted the member
                index = tuple(map(em.simplify, found))
            em.emit(Store(self.stored[member], index, em.value(member, index, live), live))
        self.close([(lane, self.block), (d, part.channels)],
                   self.row_of(lane, row, f"8_{number}"))

    def _of(self, member: Node) -> Node:
        """Return the gradient that a member is made of."""
        outs = {p.out for p in self.parts}
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
