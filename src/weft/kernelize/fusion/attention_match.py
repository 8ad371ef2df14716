"""Find attention in a graph: two contractions with a softmax between them.

    O[.., i, d] = sum over k of softmax over k of f(S[.., i, k]) * V[.., k, d]
    S[.., i, k] = sum over e of Q[.., i, e] * K[.., k, e]

f is elementwise: a scale, masks, a bias. The pattern is read off the indices at which the graph
reads its nodes, so any layout, batch and sharing of heads fits. One kernel then computes O without
holding S (`weft.kernelize.attention.attention_nest`), if nothing else reads what lies between but
gradients that make it again (`weft.kernelize.fusion.attention_gradient_match`). For these the
kernel also keeps the largest score and the sum of exponentials of each row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from weft.ir import dtype as dt
from weft.ir import expr as ex
from weft.ir import node as nd
from weft.ir.expr import Expr
from weft.ir.node import Node
from weft.ir.op import Op
from weft.kernelize.common.emit import Emitter
from weft.kernelize.common.group import reduced_axes
from weft.kernelize.common.indexing import Index
from weft.kernelize.common.sizes import elements, upper_bound
from weft.kernelize.fusion import attention_gradient_match
from weft.kernelize.fusion.attention_index import SEARCH, NoFit, Reader, base_of, is_fill, unguarded
from weft.kernelize.fusion.attention_parts import Attention, Part, Product
from weft.rules.index import simplify

QUERIES: Final = 32  # queries of one block: the lanes of its vectors
LEAST_QUERIES: Final = 8  # below, the scores are smaller than the kernel's own buffers
TILE_BYTES: Final = 256 << 10  # buffers of one block of queries
_BETWEEN: Final = frozenset({Op.RESHAPE, Op.PERMUTE, Op.EXPAND, Op.SLICE})
_NEGATIVE: Final = float("-inf")


class Found:
    """What of a graph is attention.

    Attributes
    ----------
    outputs : dict of Node to Attention
        The attentions by their output.
    parts : dict of Node to Part
        Their gradients.
    kernels : dict of Node to object
        What tells the kernel of a gradient: equal ones are made by one kernel.
    inside : dict of Node to tuple of Node
        Nodes that no array is made for, or that come from the kernels above; with the operands
        that every block of rows reads again.
    rows : dict of Node to Node
        Largest scores and sums that the kernel of an output keeps for the gradients, and that
        output.
    misfits : dict of Node to str
        Why others do not fit.
    """

    def __init__(self) -> None:
        self.outputs: dict[Node, Attention] = {}
        self.parts: dict[Node, Part] = {}
        self.kernels: dict[Node, object] = {}
        self.inside: dict[Node, tuple[Node, ...]] = {}
        self.rows: dict[Node, Node] = {}
        self.misfits: dict[Node, str] = {}

    def _add(self, match: Attention, users: Mapping[Node, Sequence[Node | None]],
             suits: Callable[[Attention, bool], str] | None) -> None:  # fmt: skip
        scores = match.products[0]
        hidden, ends = _closure([scores.node], match, users)
        parts: dict[Node, Part] = {}
        if ends != [match.out]:
            parts = {e: attention_gradient_match.part(e, hidden, match) for e in ends
                     if e is not match.out}
            every = dict.fromkeys(p.node for part in parts.values() for p in part.products)
            hidden, reached = _closure(every, match, users)
            if not set(reached) <= parts.keys() | {match.out}:
                raise NoFit("a product in a gradient is read elsewhere")
        if any(b in hidden for b in (match.b, *(p.b for p in parts.values()))):
            raise NoFit("the values depend on the scores")
        reason = "" if suits is None else suits(match, bool(parts))
        if reason:
            raise NoFit(reason)
        mine = hidden | parts.keys() | {match.out}
        if not mine.isdisjoint((*self.inside, *self.outputs, *self.parts)):
            raise NoFit("another attention makes its scores or reads its weights")
        self.outputs[match.out] = match
        self.parts.update(parts)
        self.kernels.update(attention_gradient_match.kernels_of(parts.values()))
        self.inside.update(dict.fromkeys(hidden, ()))
        self.inside.update({scores.node: (scores.columns,), match.out: (match.b,)})
        if parts:
            for node, operands in attention_gradient_match.columns_of(parts.values()).items():
                self.inside[node] = (*self.inside.get(node, ()), *operands)
            self.rows.update(dict.fromkeys(match.softmax, match.out))


def _closure(starts: Iterable[Node], match: Attention,
             users: Mapping[Node, Sequence[Node | None]]) -> tuple[frozenset[Node], list[Node]]:
    """Return all that is made of some nodes, and the sums of products that it ends in."""
    stack = list(starts)
    hidden = set(stack)
    ends: dict[Node, None] = {}
    while stack:
        for user in users[stack.pop()]:
            if user in hidden or user in ends:
                continue
            if user is None or len(hidden) > SEARCH:
                raise NoFit("its scores or weights are read elsewhere")
            if user.op is Op.REDUCE and user.attr.kind == "sum" and user.args[0].op is Op.MUL and (
                user not in match.softmax
            ):
                ends[user] = None
                continue
            if user not in match.softmax and user.op not in _BETWEEN and (
                not user.op.is_elementwise
            ):
                raise NoFit(f"its scores or weights are read by {user.op.name}")
            hidden.add(user)
            stack.append(user)
    return frozenset(hidden), list(ends)


def find(outputs: Sequence[Node], suits: Callable[[Attention, bool], str] | None = None) -> Found:
    """Return the attentions of a graph and their gradients.

    Parameters
    ----------
    outputs : sequence of Node
        The graph.
    suits : callable, optional
        Tells why a device has no kernel for an attention, or for it and its gradients; an empty
        text if it has one.
    """
    found = Found()
    users: dict[Node, list[Node | None]] = {}
    order = nd.toposort(outputs)
    for node in order:
        weights = _weights(node)
        if weights is None or node in found.parts:
            continue
        users = users or _users(order, outputs)
        try:
            found._add(_Match(node, *weights).run(), users, suits)
        except NoFit as reason:
            found.misfits[node] = f"attention in several kernels: {reason}"
    for node in found.parts:
        found.misfits.pop(node, None)
    return found


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
        base = base_of(side)
        if base.op is Op.DIV and base.args[0].op is Op.EXP:
            return base, side, other
        if base.op is Op.MUL:
            factors = base.args if base.args[0].op is Op.EXP else base.args[::-1]
            if factors[0].op is Op.EXP and base_of(factors[1]).op is Op.RECIPROCAL:
                return base, side, other
    return None


class _Match(Reader):
    """One try: from the weights down to the scores."""

    def __init__(self, out: Node, weights: Node, side: Node, values: Node) -> None:
        super().__init__()
        self.out, self.weights, self.side, self.v = out, weights, side, values
        self.full = out.args[0].shape
        self.gathers = self.guarded = False

    def run(self) -> Attention:
        """Return the attention, or raise what does not fit."""
        axis = self.out.attr.axes[0]
        self.k = self.var("k", self.full[axis])
        rows = [self.var(f"r{n}", d) for n, d in
                enumerate(d for a, d in enumerate(self.full) if a != axis)]  # fmt: skip
        at_v: Index = (*rows[:axis], self.k, *rows[axis:])
        at = self._down(self.side, at_v, self.weights)
        logits, softmax, at_rows = self._softmax(at)
        scores, at_scores = self._scores(logits, at)
        terms = scores.args[0].shape[scores.attr.axes[0]]
        self.e = self.var("e", terms)
        place = list(at_scores)
        place.insert(scores.attr.axes[0], self.e)
        factors = [(f, tuple(place)) for f in scores.args[0].args]
        (q, at_q), (k, at_k) = self._sides(factors)
        query, channel = self._axes(rows, at, at_v, q, at_q, k, at_k)
        terms, channels = self._sizes(query, channel, terms, scores)
        reach = self._reach(logits, at, rows[query])
        rename = {rows[query]: ex.var("row"), self.k: ex.var("col"), rows[channel]: ex.var("d")}
        shape = self.out.shape
        batches: list[tuple[Expr, nd.Dim]] = []
        for r, size in zip(rows, shape, strict=True):
            if r in self.env and r not in rename:
                rename[r] = ex.var(f"b{len(batches)}")
                batches.append((rename[r], size))

        def named(index: Index) -> Index:
            return tuple(ex.substitute(index, rename))

        product = Product(scores, named(at_scores), q, named(at_q), k, named(at_k), terms)
        at = named(at)
        return Attention(
            self.out, named(tuple(rows)), (product,), logits, at, self.v, named(at_v),
            self.weights, at, tuple(batches), (), shape[query], self.full[axis], channels,
            query, channel, reach, False, softmax, named(at_rows), self.guarded)

    def _down(self, node: Node, index: Index, target: Node) -> Index:
        """Return the index at which `target` is read through movements and casts."""
        while node is not target:
            if node.op.group == "movement":
                index = self.source(node, index)
            node = node.args[2 if node.op is Op.WHERE else 0]
        return index

    def _softmax(self, at: Index) -> tuple[Node, tuple[Node, Node], Index]:
        """Return what the softmax is of, its maximum and sum, and where they are read."""
        factors = self.weights.args
        exp, total = factors if factors[0].op is Op.EXP else factors[::-1]
        if self.weights.op is Op.MUL:
            base = base_of(total)
            at_total = self._down(total, at, base)
            total, (base, guarded) = base.args[0], unguarded(base.args[0], 0.0, 1.0)
            at_total = self._down(total, at_total, base)
        else:
            base, guarded = unguarded(total, 0.0, 1.0)
            at_total = self._down(total, at, base)
        shifted = exp.args[0]
        if base.op is not Op.REDUCE or base.attr.kind != "sum" or base.args[0] is not exp or (
            shifted.op is not Op.SUB
        ):
            raise NoFit("the weights are not a softmax")
        logits, top = shifted.args
        most, self.guarded = unguarded(top, _NEGATIVE, 0.0)
        if most.op is not Op.REDUCE or most.attr.kind != "max" or most.args[0] is not logits or (
            reduced_axes(most) != reduced_axes(base)
        ):
            raise NoFit("the softmax is not shifted by its maximum")
        if guarded != self.guarded:
            raise NoFit("rows without scores are guarded in one place only")
        axes = reduced_axes(base)
        rest = tuple(i for a, i in enumerate(at) if a not in axes)
        if len(axes) != 1 or at[axes[0]] is not self.k or self.k in ex.free_vars(rest) or (
            at_total != rest or self._down(top, at, most) != rest
        ):
            raise NoFit("the softmax is along another axis")
        return logits, (most, base), rest

    def _scores(self, logits: Node, at: Index) -> tuple[Node, Index]:
        """Return the contraction that the logits are made of, and where they read it."""
        found: dict[Node, Index] = {}
        for node, index in self.reads(logits, at):
            self.gathers |= node.op is Op.GATHER
            if node.op is Op.REDUCE:
                product = node.args[0]
                if node.attr.kind == "sum" and product.op is Op.MUL and len(node.attr.axes) == 1:
                    if found.get(node, index) != index:
                        raise NoFit("the scores are read at several places")
                    found[node] = index
        whole = {n: i for n, i in found.items() if self.k in ex.free_vars(i)
                 and elements(n.shape) == elements(self.weights.shape)}  # fmt: skip
        if len(whole) != 1:
            raise NoFit("the logits are not made of one contraction")
        return next(iter(whole.items()))

    def _sides(self, factors: list[tuple[Node, Index]]) -> list[tuple[Node, Index]]:
        """Return the factor of queries and the one of keys."""
        with_k = [self.k in self.variables(*f) for f in factors]
        if with_k[0] == with_k[1]:
            raise NoFit("the scores are no product of queries and keys")
        return factors[::-1] if with_k[0] else factors

    def _axes(self, rows: list[Expr], at: Index, at_v: Index, q: Node, at_q: Index, k: Node,
              at_k: Index) -> tuple[int, int]:  # fmt: skip
        """Return the axis of the output that numbers queries, and the one of V's channels."""
        of_w, of_v = set(ex.free_vars(at)), self.variables(self.v, at_v)
        of_q, of_k = self.variables(q, at_q), self.variables(k, at_k)
        live = [n for n, r in enumerate(rows) if r in self.env]
        channels = [n for n in live if rows[n] not in of_w]
        if len(channels) != 1 or rows[channels[0]] in of_q | of_k or self.k not in of_v:
            raise NoFit("the values are no matrix of keys and channels")
        queries = [n for n in live if rows[n] in of_q and rows[n] not in of_k | of_v]
        if not queries or self.e not in of_q & of_k:
            raise NoFit("there is no axis of queries")
        return max(queries, key=lambda n: self.env[rows[n]][1]), channels[0]

    def _sizes(self, query: int, channel: int, terms: nd.Dim, scores: Node) -> tuple[int, int]:
        """Return the terms of a score and the channels of a result, if they fit."""
        out = self.out
        count, channels = upper_bound(out.shape[query]), out.shape[channel]
        if not isinstance(channels, int) or not isinstance(terms, int):
            raise NoFit("sizes of heads that are symbolic")
        if count < LEAST_QUERIES:
            raise NoFit(f"only {count} queries: the scores are small")
        if (channels + terms) * QUERIES * out.dtype.itemsize > TILE_BYTES:
            raise NoFit("heads too large for a block of queries in cache")
        types = {out.dtype, self.weights.dtype, scores.dtype, scores.args[0].dtype}
        if types - {dt.float32, dt.float64} or len(types) > 1:
            raise NoFit("weights of another type than the output's")
        return terms, channels

    def _reach(self, logits: Node, at: Index, query: Expr) -> int | None:
        """Return how far beyond a query the last key is that it can see; None if there is none."""
        best: int | None = None
        node = logits
        while node.op is Op.WHERE and not self.gathers:  # whose indices are checked in hidden keys
            condition, yes, no = node.args
            if is_fill(no, _NEGATIVE):
                sign, node = False, yes
            elif is_fill(yes, _NEGATIVE):
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


__all__ = ["QUERIES", "Found", "find"]
