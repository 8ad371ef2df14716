"""Find the gradients of an attention: contractions of values made of its scores, tile by tile.

The gradients of queries, keys and values (and other readers of the weights) are sums of products

    G[.., r, c] = sum over t of P[.., r, t] * B[.., t, c]

where P is made element by element of the weights and of further contractions of the size of the
scores (the gradient of the weights). One of r and t numbers queries, the other keys. Such a kernel
makes P again for each tile from what the forward kernel kept: the largest score and the sum of
exponentials of each row. No array of the size of the scores is held
(`weft.kernelize.attention.attention_gradient_nest`).

Ref: Dao et al., FlashAttention, 2022.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from weft.ir import expr as ex
from weft.ir import node as nd
from weft.ir.expr import Expr
from weft.ir.node import Node
from weft.ir.op import Op
from weft.kernelize.common.indexing import Index
from weft.kernelize.common.sizes import elements
from weft.kernelize.fusion.attention_index import NoFit, Reader, is_fill
from weft.kernelize.fusion.attention_parts import Attention, Part, Product

_BUFFERS: Final = 512 << 10  # bytes of the buffers of one block of rows
_FOLLOWED: Final = frozenset({Op.MUL, Op.DIV, Op.WHERE, Op.ADD, Op.SUB, Op.NEG, Op.CAST, Op.DETACH})
ENOUGH: Final = 4  # batches and heads that keep threads busy without blocks of rows


def part(out: Node, hidden: frozenset[Node], shared: Attention) -> Part:
    """Return how one kernel makes `out` of an attention's scores, or raise `NoFit`.

    Parameters
    ----------
    out : Node
        A sum of products, one factor of which is among `hidden`.
    hidden : frozenset of Node
        All that is made of the scores.
    shared : Attention
        The attention.
    """
    return _Match(out, hidden, shared).run()


class _Match(Reader):
    def __init__(self, out: Node, hidden: frozenset[Node], shared: Attention) -> None:
        super().__init__()
        self.out, self.shared = out, shared
        self.scores, scores_at = shared.products[0].node, shared.products[0].at
        row, col = ex.var("row"), ex.var("col")
        if row not in scores_at or col not in scores_at:
            raise NoFit("its scores are not read in place")
        self.query_axis, self.key_axis = scores_at.index(row), scores_at.index(col)
        product = out.args[0]
        inside = [f in hidden for f in product.args]
        if inside[0] == inside[1]:
            raise NoFit("both factors of a gradient are made of scores")
        self.p, self.b = product.args if inside[0] else product.args[::-1]
        self.full = product.shape
        self.axes = out.attr.axes

    def run(self) -> Part:
        names = [self.var(f"t{a}", d) for a, d in enumerate(self.full)]
        place = tuple(names)
        found = self._products(place)
        at = found[self.scores]
        self._name(names, at)
        return self._part(place, found)

    def _products(self, place: Index) -> dict[Node, Index]:
        """Return the contractions of the size of the scores that P is made of."""
        size = elements(self.scores.shape)
        found: dict[Node, Index] = {}
        for node, index in self.reads(self.p, place):
            if node.op is Op.REDUCE:
                whole = node.args[0].op is Op.MUL and node.attr.kind == "sum" and (
                    len(node.attr.axes) == 1 and elements(node.shape) == size)
                if whole and found.setdefault(node, index) != index:
                    raise NoFit("the scores are read at several places")
            elif node.op in (Op.PAD, Op.UNWINDOW):
                raise NoFit("the scores are padded")
        if self.scores not in found:
            raise NoFit("a gradient does not read the scores in place")
        return found

    def _name(self, names: list[Expr], at: Index) -> None:
        """Give every axis of the sum its name, by the axis of the scores that it is."""
        query, key = at[self.query_axis], at[self.key_axis]
        summed = [names[a] for a in self.axes]
        kept = [n for a, n in enumerate(names) if a not in self.axes]
        self.by_key = key in kept and query in summed
        if not self.by_key and not (query in kept and key in summed):
            raise NoFit("a gradient sums over no axis of the scores")
        self.row, self.col = (key, query) if self.by_key else (query, key)
        if self.row not in self.env or self.col not in self.env:
            raise NoFit("one query or key")
        of_p = self.variables(self.p, tuple(names))
        of_b = self.variables(self.b, tuple(names))
        channels = [v for v in kept if v in self.env and v not in of_p]
        if len(channels) != 1 or channels[0] not in of_b or self.row in of_b or (
            self.col not in of_b
        ):
            raise NoFit("a gradient is no product of matrices")
        self.channel = channels[0]
        order = [v for v in ex.toposort(at) if v in self.env]
        order += [v for v in names if v in self.env and v not in order]
        rename = {self.row: ex.var("row"), self.col: ex.var("col"), self.channel: ex.var("d")}
        self.batches: list[tuple[Expr, nd.Dim]] = []
        self.others: list[tuple[Expr, nd.Dim]] = []
        for v in order:
            if v in rename:
                continue
            size = self.full[names.index(v)]
            group, letter = (self.others, "x") if v in summed else (self.batches, "b")
            rename[v] = ex.var(f"{letter}{len(group)}")
            group.append((rename[v], size))
        self.rename = rename
        env = self.env
        self.env = {rename[v]: env[v] for v in rename}
        self.names = names

    def _part(self, place: Index, found: Mapping[Node, Index]) -> Part:
        place = self._renamed(place)
        out, names = self.out, self.names
        kept = [a for a in range(len(names)) if a not in self.axes]
        sizes = {n: self.full[a] for a, n in enumerate(names)}
        channels = sizes[self.channel]
        if not isinstance(channels, int):
            raise NoFit("a number of channels that is symbolic")
        products = tuple(self._product(n, self._renamed(i)) for n, i in found.items())
        if len({out.dtype, self.p.dtype, *(p.node.dtype for p in products)}) > 1:
            raise NoFit("gradients of another type than the scores")
        widths = channels + 2 * sum(p.terms for p in products)
        if widths * 32 * out.dtype.itemsize > _BUFFERS:
            raise NoFit("heads too large for a block of rows in cache")
        weights = self._find(self.shared.weights, place)
        reach = self.shared.reach
        if reach is not None and not _vanishes(self.p, self.shared.weights):
            reach = None
        return Part(
            out, tuple(i for a, i in enumerate(place) if a in kept), products, self.p, place,
            self.b, place, self.shared.weights, weights, tuple(self.batches), tuple(self.others),
            sizes[self.row], sizes[self.col], channels,
            kept.index(names.index(self.row)), kept.index(names.index(self.channel)),
            reach, self.by_key)

    def _renamed(self, index: Index) -> Index:
        return tuple(self.simplified(i) for i in ex.substitute(index, self.rename))

    def _find(self, target: Node, place: Index) -> Index:
        """Return the index at which P reads the weights."""
        found = {index for node, index in self.reads(self.p, place) if node is target}
        if len(found) != 1:
            raise NoFit("the weights are not read at one place")
        return next(iter(found))

    def _product(self, node: Node, at: Index) -> Product:
        """Return a contraction with its factors told apart."""
        axis = node.attr.axes[0]
        terms = node.args[0].shape[axis]
        if not isinstance(terms, int):
            raise NoFit("a number of terms that is symbolic")
        e = self.var("e", terms)
        place = (*at[:axis], e, *at[axis:])
        row, col = self.rename[self.row], self.rename[self.col]
        factors = list(node.args[0].args)
        of = [self.variables(f, place) for f in factors]
        if row in of[1]:
            factors, of = factors[::-1], of[::-1]
        if row not in of[0] or col in of[0] or col not in of[1] or row in of[1]:
            raise NoFit("a product in a gradient is none of rows and columns")
        return Product(node, at, factors[0], place, factors[1], place, terms)


def _vanishes(node: Node, weights: Node) -> bool:
    """Whether a value is 0 (or no number) wherever the weights are 0."""
    known = _opaque(node, weights)
    for part in nd.toposort([node], known):
        of = [known[a] for a in part.args]
        if part.op is Op.MUL:
            known[part] = any(of)
        elif part.op is Op.DIV:
            known[part] = of[0]
        elif part.op is Op.WHERE:
            known[part] = all(of[i] or is_fill(part.args[i], 0.0) for i in (1, 2))
        else:
            known[part] = all(of)
    return known[node]


def _opaque(node: Node, weights: Node) -> dict[Node, bool]:
    """Return the nodes below one for which zeros of the weights are not followed any further."""
    known: dict[Node, bool] = {weights: True}
    seen: set[Node] = {weights}
    stack = [node]
    while stack:
        part = stack.pop()
        if part in seen:
            continue
        seen.add(part)
        if part.op in _FOLLOWED or (
            part.op.group == "movement" and part.op not in (Op.PAD, Op.UNWINDOW)
        ):
            stack.extend(part.args)
        else:
            known[part] = False
    return known


def kernels_of(parts: Iterable[Part]) -> dict[Node, object]:
    """Return for each part what tells its kernel.

    With many heads all gradients of one come from one walk over its tiles, which saves making the
    scores again for the queries; a head is then the work of one thread.
    """
    parts = list(parts)
    found: dict[Node, object] = {p.out: p.key for p in parts}
    for p in parts:
        mates = [m for m in parts if m.by_key and not p.by_key and p.crosses(m)]
        heads = elements(tuple(n for _, n in p.batches))
        if mates and heads >= ENOUGH and sum(not o.by_key for o in parts) == 1:
            found[p.out] = mates[0].key
    return found


def columns_of(parts: Iterable[Part]) -> dict[Node, tuple[Node, ...]]:
    """Return the operands that every block of rows reads again, by the node they belong to."""
    found: dict[Node, tuple[Node, ...]] = {}
    for p in parts:
        found[p.out] = (p.b,)
        for product in p.products:
            found[product.node] = (*found.get(product.node, ()), product.columns)
    return found


__all__ = ["columns_of", "kernels_of", "part"]
