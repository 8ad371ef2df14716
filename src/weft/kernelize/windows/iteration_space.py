"""One pass for all splits of the iteration space of a sum over windows.

A nest with one sum becomes nests over parts of its space. What a part is decides a finder: it reads
the conditions under which terms are there, and returns a `Piece` for each part, in which they hold
or fail everywhere. The rest is the same for all: new ranges and positions, conditions and masks
that are plain by then left out, axes of one step dropped, sums without terms replaced by what they
begin with.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from weft.ir import dtype as dt
from weft.ir import expr as ex
from weft.ir import stmt as st
from weft.ir.expr import Expr
from weft.ir.op import Op
from weft.ir.stmt import Accumulator, Axis, Body, For, Kernel, Load, Reduce, Stmt
from weft.rules.index import linear_coefficients, simplify
from weft.schedule.analysis.guard import both, parts
from weft.schedule.analysis.space import Edit, constant, perfect

Env = dict[Expr, tuple[int, int]]


class Piece(NamedTuple):
    """A part of an iteration space.

    Attributes
    ----------
    counts : dict of Expr to int
        Iterations of the loops and axes that it cuts; a part without positions has no nest.
    points : dict of Expr to Expr
        What stands for their variables, in terms of the new ones.
    empty : bool
        Whether the sum has no terms.
    inside : Expr, optional
        Where its terms are there; None for everywhere.
    single : tuple of Expr
        Axes of one step, which are dropped, but for the first if there is no other axis.
    """

    counts: dict[Expr, int]
    points: dict[Expr, Expr]
    empty: bool = False
    inside: Expr | None = None
    single: tuple[Expr, ...] = ()


class Nest:
    """Perfectly nested loops around one sum.

    Attributes
    ----------
    chain : list of For
        The loops, outermost first.
    reduce : Reduce
        The sum.
    counts : dict of Expr to int
        Iterations of the loops and axes that have a known number of them.
    dense : bool
        Whether the kernel is a contraction, whose terms cost arithmetic and not memory.
    """

    def __init__(self, chain: list[For], reduce: Reduce, dense: bool) -> None:
        self.chain, self.reduce, self.dense = chain, reduce, dense
        extents = [(f.var, f.extent) for f in chain] + [(a.var, a.extent) for a in reduce.axes]
        self.counts = {v: int(e.attr) for v, e in extents if constant(e) is not None}
        self.rows = [f.var for f in chain]
        self.axes = [a.var for a in reduce.axes]

    def known(self, *, axes: bool = True) -> bool:
        """Whether loops, and axes if wanted, have some iterations, and one knows how many."""
        return all(self.counts.get(v) for v in (*self.rows, *(self.axes if axes else ())))

    def env(self, counts: dict[Expr, int] | None = None) -> Env:
        """Return the ranges of the variables, with other `counts` of some."""
        return {v: (0, n - 1) for v, n in (self.counts | (counts or {})).items() if n > 0}


Finder = Callable[[Nest], list[Piece]]


def split_nests(kernel: Kernel, find: Finder, suffix: str = "", dense: bool | None = None,
                numbered: bool = True) -> Kernel:  # fmt: skip
    """Return the kernel with each nest of one sum cut into the pieces that a finder returns.

    Names of new nests end in `suffix`, and the number of the piece if they are `numbered`. Without
    a suffix there is one piece, with the names of the nest.
    """
    dense = kernel.meta.kind == "contraction" if dense is None else dense
    for stmt in kernel.body:
        if not isinstance(stmt, For):
            continue
        chain = perfect(stmt)
        reduce = _only_sum(chain)
        nest = None if reduce is None else Nest(chain, reduce, dense)
        pieces = [] if nest is None else find(nest)
        if nest is None or not pieces:
            continue
        edit = Edit(kernel)
        nests: list[Stmt] = []
        for number, piece in enumerate(pieces):
            body, replaced = rebuild(nest, piece)
            end = f"{suffix}{number}" if numbered else suffix
            nests.extend(edit.duplicate(body, replaced, end) if suffix else body)
        kernel = edit.replace((), stmt, tuple(nests))
    return kernel


def _only_sum(chain: list[For]) -> Reduce | None:
    """Return the one sum inside of perfectly nested loops, None if there is more to them.

    Its terms may be left out: it does nothing but add them up, while a sum whose body stores values
    has to visit all of its positions.
    """
    body = chain[-1].body
    reduces = [s for s in body if isinstance(s, Reduce)]
    if len(reduces) != 1 or any(isinstance(s, For | st.If | st.Alloc) for s in body):
        return None
    pure = all(isinstance(s, Load | st.Let) for s in reduces[0].body)
    return reduces[0] if pure else None


def rebuild(nest: Nest, piece: Piece) -> tuple[Body, dict[Expr, Expr]]:
    """Return the nest over a piece, and what replaces its result if there are no terms."""
    if any(piece.counts.get(v) == 0 for v in nest.rows):
        return (), {}
    single = piece.single[len(piece.single) == len(nest.axes):]
    points = piece.points | {v: ex.substitute([piece.points.get(v, v)], {v: ex.index(0)})[0]
                             for v in single}
    changed, env = points.keys() | piece.counts.keys(), nest.env(piece.counts)

    def plain(e: Expr) -> Expr:
        if not ex.free_vars([e]) & changed:
            return e
        return simplify(ex.substitute([e], points)[0], env)

    acc = nest.reduce.accumulators[0]
    body: list[Stmt] = []
    for stmt in nest.chain[-1].body:
        if stmt is not nest.reduce:
            body.append(stmt.map_exprs(plain))
        elif not piece.empty:
            axes = tuple([Axis(a.var, ex.index(piece.counts.get(a.var, 0)), a.kind)
                          if a.var in piece.counts else a
                          for a in nest.reduce.axes if a.var not in single])
            body.append(Reduce(axes, (_sum(acc, plain, piece.inside),),
                               tuple([_load(s.map_exprs(plain), piece.inside)
                                      for s in nest.reduce.body])))
    for loop in reversed(nest.chain):
        extent = ex.index(piece.counts[loop.var]) if loop.var in piece.counts else loop.extent
        body = [For(loop.var, extent, loop.kind, tuple(body))]
    return tuple(body), {acc.var: acc.init} if piece.empty else {}


def _sum(acc: Accumulator, plain: Callable[[Expr], Expr], inside: Expr | None) -> Accumulator:
    update = plain(acc.update)
    if inside is not None:
        term = next(a for a in update.args if a is not acc.var)
        update = acc.var + ex.where(inside, term, ex.const(0, term.dtype))
    return acc.replace(update=update)


def _load(stmt: Stmt, inside: Expr | None) -> Stmt:
    """Return a load under the condition of its term, and without a mask if it is always there."""
    if not isinstance(stmt, Load):
        return stmt
    mask = stmt.mask if inside is None else both(stmt.mask, inside)
    return stmt.replace(mask=None if mask is not None and ex.is_const(mask, True) else mask)


def factors(reduce: Reduce) -> list[tuple[Expr, ...]]:
    """Return for each factor of a sum's terms the conditions without which it is 0.

    What is added up is taken for factors, too: nothing is known of it, but its own conditions.
    """
    acc = reduce.accumulators[0]
    if len(reduce.accumulators) != 1 or acc.combine.op is not Op.ADD or (
            acc.update.op is not Op.ADD or acc.var not in acc.update.args):
        return []
    lets = {s.var: s.value for s in reduce.body if isinstance(s, st.Let)}
    stack = [(a, tuple[Expr, ...]()) for a in acc.update.args if a is not acc.var]
    out: list[tuple[Expr, ...]] = []
    while stack:
        e, known = stack.pop()
        if e in lets:
            stack.append((lets[e], known))
        elif e.op is Op.WHERE and ex.is_const(e.args[2], 0.0):
            stack.append((e.args[1], (*known, *parts(e.args[0]))))
        elif e.op is Op.MUL or e.op is Op.CAST:
            stack.extend([(a, known) for a in e.args])
        else:
            out.append(known)
    return out


def zero_unless(reduce: Reduce) -> list[Expr]:
    """Return conditions without which a term of a sum of products is 0 times something."""
    return list(dict.fromkeys(c for known in factors(reduce) for c in known))


def affine(e: Expr, over: Iterable[Expr], env: Env) -> tuple[dict[Expr, int], int] | None:
    """Return (steps, rest) with ``e == sum(steps[v] * v) + rest``, None if it is no such sum."""
    linear = linear_coefficients(simplify(e, env), over, env)
    rest = None if linear is None else constant(linear[1])
    if linear is None or rest is None:
        return None
    steps = {v: c for v, c in linear[0].items() if not isinstance(c, Expr) and c != 0}
    return (steps, rest) if len(steps) == len(linear[0]) else None


def positive(term: Expr) -> Expr | None:
    """Return what is above 0 if a comparison of positions holds, None for other conditions."""
    plain = term.op is Op.LT and term.args[0].dtype is dt.int64
    return term.args[1] - term.args[0] if plain else None
