"""Attentions and their gradients, as what finds them tells them to what lowers them.

Each is a sum of products, where P is made of further contractions element by element::

    G[.., row, d] = sum over col of P[.., row, col] * B[.., col, d]

One of row and col numbers queries, the other keys. Indices are in terms of ``b0`` ... (batches),
``row``, ``col`` (the axis summed over), ``d`` (the channel), ``x0`` ... (further axes summed over)
and ``e`` (terms of a product).
"""

from __future__ import annotations

from weft.ir import expr as ex
from weft.ir import node as nd
from weft.ir.expr import Expr
from weft.ir.node import Node
from weft.ir.record import Record
from weft.kernelize.common.indexing import Index


class Product(Record):
    """A contraction of which a kernel makes a tile at a time.

    ``rows`` is the factor that varies with the rows of the kernel, ``columns`` the one that varies
    with the axis it sums over; both are read at indices in which ``e`` numbers the terms.
    """

    node: Node
    at: Index
    rows: Node
    at_rows: Index
    columns: Node
    at_columns: Index
    terms: int


class Part(Record):
    """One sum over the queries or the keys of an attention.

    With a ``reach``, key k is hidden from query i where ``k > i + reach``.
    """

    out: Node
    at_out: Index
    products: tuple[Product, ...]
    p: Node
    at_p: Index
    b: Node
    at_b: Index
    weights: Node
    at_weights: Index
    batches: tuple[tuple[Expr, nd.Dim], ...]
    others: tuple[tuple[Expr, nd.Dim], ...]
    rows: nd.Dim
    columns: nd.Dim
    channels: int
    row_axis: int
    channel_axis: int
    reach: int | None
    by_key: bool

    @property
    def key(self) -> tuple[object, ...]:
        """What two parts of one kernel with the same rows have in common."""
        return (self.weights, self.at_weights, self.batches, self.others, self.rows, self.columns,
                self.row_axis, self.channel_axis, len(self.out.shape))  # fmt: skip

    def crosses(self, other: Part) -> bool:
        """Whether the rows of this part are the columns of another, tile by tile."""
        row, col = ex.var("row"), ex.var("col")
        turned = tuple(ex.substitute(other.at_weights, {row: col, col: row}))
        return (self.by_key != other.by_key and self.weights is other.weights
                and self.at_weights == turned and self.batches == other.batches
                and not self.others and not other.others and self.rows == other.columns
                and self.columns == other.rows)  # fmt: skip


class Attention(Part):
    """The result of an attention: P is the softmax over the columns of its logits.

    ``p`` are the logits; ``softmax`` is the largest one and the sum of exponentials of each row,
    and ``at_rows`` where these are. The result of a row without any score is 0 if ``guarded``, else
    no number.
    """

    softmax: tuple[Node, Node]
    at_rows: Index
    guarded: bool


__all__ = ["Attention", "Part", "Product"]
