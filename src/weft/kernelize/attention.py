"""Find attention in a graph: two contractions with a softmax between them.

    O[.., i, d] = sum over k of softmax over k of f(S[.., i, k]) * V[.., k, d]
    S[.., i, k] = sum over e of Q[.., i, e] * K[.., k, e]

f is elementwise: a scale, masks, a bias. The pattern is read off the indices at which the graph
reads its nodes, so any layout, batch and sharing of heads fits. One kernel then computes O without
holding S (`weft.kernelize.attention_nest`), if nothing else reads what lies between.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from weft.ir import dtype as dt
from weft.ir import expr as ex
from weft.ir import node as nd
from weft.ir.expr import Expr
from weft.ir.node import Node
from weft.ir.op import Op
from weft.ir.record import Record
from weft.kernelize import indexing
from weft.kernelize.cost import elements, is_leaf
from weft.kernelize.emit import Emitter
from weft.kernelize.group import reduced_axes
from weft.kernelize.indexing import Index
from weft.rules.index import simplify

QUERIES: Final = 32  # queries of one block: the lanes of its vectors
LEAST_QUERIES: Final = 8  # below, the scores are smaller than the kernel's own buffers
TILE_BYTES: Final = 256 << 10  # buffers of one block of queries
SEARCH: Final = 256  # nodes looked at between the contractions
_BETWEEN: Final = frozenset({Op.RESHAPE, Op.PERMUTE, Op.EXPAND, Op.SLICE})
_NEGATIVE: Final = float("-inf")


class Attention(Record):
    """One attention: its nodes, and the indices at which they are read.

    Indices are in terms of ``r0`` ... (the axes of the output), ``k`` (the reduced axis) and ``e``
    (the axis that a score sums over). ``query`` and ``channel`` number the axes of the output that
    only Q and that only V have. With a ``reach``, key k is hidden from query i where
    ``k > i + reach``.
    """

    out: Node
    scores: Node
    logits: Node
    q: Node
    k: Node
    v: Node
    at_logits: Index
    at_scores: Index
    at_q: Index
    at_k: Index
    at_v: Index
    query: int
    channel: int
    keys: int
    terms: int
    reach: int | None
    hidden: frozenset[Node]


class _NoFit(Exception):
    """Why something that looks like attention is not computed by one kernel."""


def find(outputs: Sequence[Node]) -> tuple[dict[Node, Attention], dict[Node, str]]:
    """Return the attentions of a graph by their output, and why others do not fit."""
    found: dict[Node, Attention] = {}
    misfits: dict[Node, str] = {}
    users: dict[Node, list[Node | None]] = {}
    order = nd.toposort(outputs)
    for node in order:
        weights = _weights(node)
        if weights is None:
            continue
        users = users or _users(order, outputs)
        try:
            found[node] = _Match(node, *weights).run(users)
        except _NoFit as reason:
            misfits[node] = f"attention in several kernels: {reason}"
    return found, misfits


def _users(order: Sequence[Node], outputs: Sequence[Node]) -> dict[Node, list[Node | None]]:
    """Return who reads each node; None stands for the caller, who reads the outputs."""
    users: dict[Node, list[Node | None]] = {n: [] for n in order}
    for node in order:
        for arg in node.args:
            users[arg].append(node)
    for node in outputs:
        users[node].append(None)
    return users


def _weights(node: Node) -> tuple[Node, Node, Node] | None:
    """Return the softmax under a contraction, how the contraction reads it, and the values."""
    if node.op is not Op.REDUCE or node.attr.kind != "sum" or len(node.attr.axes) != 1:
        return None
    product = node.args[0]
    if product.op is not Op.MUL:
        return None
    for side, other in (product.args, product.args[::-1]):
        base = _base(side)
        if base.op is Op.DIV and base.args[0].op is Op.EXP:
            return base, side, other
        if base.op is Op.MUL:
            factors = base.args if base.args[0].op is Op.EXP else base.args[::-1]
            if factors[0].op is Op.EXP and _base(factors[1]).op is Op.RECIPROCAL:
                return base, side, other
    return None


def _base(node: Node) -> Node:
    """Return the node below movements and casts that lose nothing."""
    while (node.op.group == "movement" and node.op not in (Op.PAD, Op.UNWINDOW)) or (
        node.op is Op.CAST and dt.promote(node.dtype, node.args[0].dtype) is node.dtype
    ):
        node = node.args[0]
    return node


class _Match:
    """One try: from the weights down to the scores."""

    def __init__(self, out: Node, weights: Node, side: Node, values: Node) -> None:
        self.out, self.weights, self.side, self.v = out, weights, side, values
        self.full = out.args[0].shape
        self.env: dict[Expr, tuple[int, int]] = {}
        self.gathers = False
        if any(isinstance(d, Expr) or d == 0 for d in self.full):
            raise _NoFit("sizes that are symbolic or 0")

    def run(self, users: Mapping[Node, Sequence[Node | None]]) -> Attention:
        """Return the attention, or raise what does not fit."""
        axis = self.out.attr.axes[0]
        self.k = self._var("k", self.full[axis])
        rows = [self._var(f"r{n}", d) for n, d in
                enumerate(d for a, d in enumerate(self.full) if a != axis)]  # fmt: skip
        at_v: Index = (*rows[:axis], self.k, *rows[axis:])
        at = self._down(self.side, at_v, self.weights)
        logits, softmax = self._softmax(at)
        scores, at_scores = self._scores(logits, at)
        terms = scores.args[0].shape[scores.attr.axes[0]]
        self.e = self._var("e", terms)
        place = list(at_scores)
        place.insert(scores.attr.axes[0], self.e)
        factors = [(f, tuple(place)) for f in scores.args[0].args]
        (q, at_q), (k, at_k) = self._sides(factors)
        query, channel = self._axes(rows, at, at_v, q, at_q, k, at_k)
        self._sizes(query, channel, terms, scores)
        keys = self.full[axis]
        assert isinstance(keys, int)
        assert isinstance(terms, int)
        return Attention(self.out, scores, logits, q, k, self.v, at, at_scores, at_q, at_k, at_v,
                         query, channel, keys, terms,
                         self._reach(logits, at, rows[query]),
                         self._hidden(scores, softmax, users))

    def _var(self, name: str, size: nd.Dim) -> Expr:
        if isinstance(size, Expr):
            raise _NoFit("symbolic sizes")
        if size == 1:
            return ex.index(0)
        made = ex.var(name)
        self.env[made] = (0, size - 1)
        return made

    def _down(self, node: Node, index: Index, target: Node) -> Index:
        """Return the index at which `target` is read through movements and casts."""
        while node is not target:
            if node.op.group == "movement":
                index = tuple(simplify(i, self.env)
                              for i in indexing.source(node, index).place)
            node = node.args[0]
        return index

    def _softmax(self, at: Index) -> tuple[Node, frozenset[Node]]:
        """Return what the softmax is of, and its two reductions."""
        factors = self.weights.args
        exp, total = factors if factors[0].op is Op.EXP else factors[::-1]
        base = _base(total)
        if self.weights.op is Op.MUL:
            at_total = self._down(total, at, base)
            total, base = base.args[0], _base(base.args[0])
            at_total = self._down(total, at_total, base)
        else:
            at_total = self._down(total, at, base)
        shifted = exp.args[0]
        if base.op is not Op.REDUCE or base.attr.kind != "sum" or base.args[0] is not exp or (
            shifted.op is not Op.SUB
        ):
            raise _NoFit("the weights are not a softmax")
        logits, top = shifted.args
        most = _base(top)
        if most.op is not Op.REDUCE or most.attr.kind != "max" or most.args[0] is not logits or (
            reduced_axes(most) != reduced_axes(base)
        ):
            raise _NoFit("the softmax is not shifted by its maximum")
        axes = reduced_axes(base)
        rest = tuple(i for a, i in enumerate(at) if a not in axes)
        if len(axes) != 1 or at[axes[0]] is not self.k or self.k in ex.free_vars(rest) or (
            at_total != rest or self._down(top, at, most) != rest
        ):
            raise _NoFit("the softmax is along another axis")
        return logits, frozenset((base, most))

    def _scores(self, logits: Node, at: Index) -> tuple[Node, Index]:
        """Return the contraction that the logits are made of, and where they read it."""
        found: dict[Node, Index] = {}
        stack = [(logits, at)]
        seen: set[tuple[Node, Index]] = set()
        while stack:
            node, index = stack.pop()
            if (node, index) in seen or is_leaf(node):
                continue
            seen.add((node, index))
            if len(seen) > SEARCH:
                raise _NoFit("too many operations on the scores")
            self.gathers |= node.op is Op.GATHER
            if node.op is Op.REDUCE:
                product = node.args[0]
                if node.attr.kind == "sum" and product.op is Op.MUL and len(node.attr.axes) == 1:
                    if found.get(node, index) != index:
                        raise _NoFit("the scores are read at several places")
                    found[node] = index
            elif node.op.is_elementwise or node.op is Op.CAST:
                stack.extend((a, index) for a in node.args)
            elif node.op.group == "movement":
                place = indexing.source(node, index).place
                stack.append((node.args[0], tuple(simplify(i, self.env) for i in place)))
        whole = {n: i for n, i in found.items() if self.k in ex.free_vars(i)
                 and elements(n.shape) == elements(self.weights.shape)}  # fmt: skip
        if len(whole) != 1:
            raise _NoFit("the logits are not made of one contraction")
        return next(iter(whole.items()))

    def _sides(self, factors: list[tuple[Node, Index]]) -> list[tuple[Node, Index]]:
        """Return the factor of queries and the one of keys."""
        with_k = [self.k in self._variables(*f) for f in factors]
        if with_k[0] == with_k[1]:
            raise _NoFit("the scores are no product of queries and keys")
        return factors[::-1] if with_k[0] else factors

    def _variables(self, node: Node, index: Index) -> set[Expr]:
        """Return the loop variables that a value depends on."""
        out: set[Expr] = set()
        stack = [(node, index)]
        seen: set[tuple[Node, Index]] = set()
        while stack:
            top, where = stack.pop()
            if (top, where) in seen or (top.op.arity == 0 and top.op is Op.CONST):
                continue
            seen.add((top, where))
            if len(seen) > SEARCH:
                return set(self.env)
            if top.op.group == "movement" and not is_leaf(top):
                found = indexing.source(top, where)
                if found.mask is not None:
                    out.update(ex.free_vars([found.mask]))
                stack.append((top.args[0], tuple(simplify(i, self.env) for i in found.place)))
            elif (top.op.is_elementwise or top.op is Op.CAST) and top.args:
                stack.extend((a, where) for a in top.args)
            else:
                out.update(ex.free_vars(where))
        return out

    def _axes(self, rows: list[Expr], at: Index, at_v: Index, q: Node, at_q: Index, k: Node,
              at_k: Index) -> tuple[int, int]:  # fmt: skip
        """Return the axis of the output that numbers queries, and the one of V's channels."""
        of_w, of_v = set(ex.free_vars(at)), self._variables(self.v, at_v)
        of_q, of_k = self._variables(q, at_q), self._variables(k, at_k)
        live = [n for n, r in enumerate(rows) if r in self.env]
        channels = [n for n in live if rows[n] not in of_w]
        if len(channels) != 1 or rows[channels[0]] in of_q | of_k or self.k not in of_v:
            raise _NoFit("the values are no matrix of keys and channels")
        queries = [n for n in live if rows[n] in of_q and rows[n] not in of_k | of_v]
        if not queries or self.e not in of_q & of_k:
            raise _NoFit("there is no axis of queries")
        return max(queries, key=lambda n: self.env[rows[n]][1]), channels[0]

    def _sizes(self, query: int, channel: int, terms: nd.Dim, scores: Node) -> None:
        out = self.out
        count, channels = out.shape[query], out.shape[channel]
        assert isinstance(count, int)
        assert isinstance(channels, int)
        assert isinstance(terms, int)
        if count < LEAST_QUERIES:
            raise _NoFit(f"only {count} queries: the scores are small")
        if (channels + terms) * QUERIES * out.dtype.itemsize > TILE_BYTES:
            raise _NoFit("heads too large for a block of queries in cache")
        types = {out.dtype, self.weights.dtype, scores.dtype, scores.args[0].dtype}
        if types - {dt.float32, dt.float64} or len(types) > 1:
            raise _NoFit("weights of another type than the output's")

    def _hidden(self, scores: Node, softmax: frozenset[Node],
                users: Mapping[Node, Sequence[Node | None]]) -> frozenset[Node]:  # fmt: skip
        """Return the scores and all that is made of them before the output."""
        hidden = {scores}
        stack = [scores]
        while stack:
            for user in users[stack.pop()]:
                if user is self.out or user in hidden:
                    continue
                if user is None or len(hidden) > SEARCH:
                    raise _NoFit("its scores or weights are read elsewhere")
                if user not in softmax and user.op not in _BETWEEN and (
                    not user.op.is_elementwise
                ):
                    raise _NoFit(f"its scores or weights are read by {user.op.name}")
                hidden.add(user)
                stack.append(user)
        if self.v in hidden:
            raise _NoFit("the values depend on the scores")
        return frozenset(hidden)

    def _reach(self, logits: Node, at: Index, query: Expr) -> int | None:
        """Return how far beyond a query the last key is that it can see; None if there is none."""
        best: int | None = None
        node = logits
        while node.op is Op.WHERE and not self.gathers:  # whose indices are checked in hidden keys
            condition, yes, no = node.args
            if _is_hidden(no):
                sign, node = False, yes
            elif _is_hidden(yes):
                sign, node = True, no
            else:
                break
            found = self._visible(condition, at, query, sign)
            if found is not None:
                best = found if best is None else min(best, found)
        return best

    def _visible(self, condition: Node, at: Index, query: Expr, hides: bool) -> int | None:
        """Return r where a condition on positions means ``key <= query + r`` (or hides beyond)."""
        parts = nd.toposort([condition])
        if len(parts) > SEARCH or any(
            n.op not in (Op.CONST, Op.IOTA) and not n.op.is_elementwise and n.op is not Op.CAST
            and (n.op.group != "movement" or n.op in (Op.PAD, Op.UNWINDOW)) for n in parts
        ):
            return None
        em = Emitter({}, hoist=False)
        em.env.update(self.env)
        value = em.value(condition, at)
        if hides:
            return self._limit(value, query, True)
        found: list[int] = []
        stack = [value]
        while stack:
            part = stack.pop()
            if part.op is Op.AND:
                stack.extend(part.args)
                continue
            limit = self._limit(part, query, False)
            if limit is not None:
                found.append(limit)
        return min(found, default=None)

    def _limit(self, value: Expr, query: Expr, negated: bool) -> int | None:
        """Return r of one comparison that holds exactly where ``key <= query + r``."""
        while value.op is Op.NOT:
            value, negated = value.args[0], not negated
        if value.op not in (Op.LE, Op.LT) or value.args[0].dtype is not dt.int64:
            return None
        small, large = value.args[::-1] if negated else value.args
        strict = (value.op is Op.LT) != negated
        gap = simplify(large - small - query + self.k, self.env)
        if gap.op is not Op.CONST:
            return None
        return int(gap.attr) - strict


def _is_hidden(node: Node) -> bool:
    """Whether a value is minus infinity everywhere."""
    while node.op is Op.EXPAND or node.op is Op.RESHAPE:
        node = node.args[0]
    return node.op is Op.CONST and node.attr == _NEGATIVE


__all__ = ["QUERIES", "Attention", "find"]
