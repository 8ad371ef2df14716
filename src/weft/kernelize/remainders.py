"""Cut the nest of a strided adjoint by remainders: each becomes a dense convolution.

What undoes windows with a step s (the gradient of a strided convolution by its input, a transposed
convolution) asks at each position i for the taps k with ``(i - k * d) % s == 0``: at most one term
in s of the nest is there at all. Written out by the remainder of i by s (the phases of a polyphase
filter), each nest has the taps of its own remainder, no condition but the borders, and plain
steps in its subscripts, so that it is scheduled as any other convolution:

    for i in n: out[i] = sum over k in K: where((i - k) % 2 == 0, g[(i - k) // 2], 0) * w[k]
    ->  for i in (n + 1) // 2: out[2*i] = sum over k in (K + 1) // 2: g[i - k] * w[2*k]
        for i in n // 2: out[2*i + 1] = sum over k in K // 2: g[i - k] * w[2*k + 1]

Windows whose taps lie `d` apart on a picture of at most `d` points have one tap in it, or none. By
the remainder of the position by d, which one that is follows from the position alone:

    for i in n: out[i] = sum over k in K: where(0 <= i - k * 2 < 1, g[i - k * 2], 0) * w[k]
    ->  for i in (n + 1) // 2: out[2*i] = g[0] * w[i]
        for i in n // 2: out[2*i + 1] = 0

A term that is left out counts as 0 times its weight, as in a convolution with zero padding.
"""

from __future__ import annotations

import itertools
import math
from typing import Final

from weft.ir import dtype as dt
from weft.ir import expr as ex
from weft.ir import stmt as st
from weft.ir.expr import Expr
from weft.ir.op import Op
from weft.ir.record import Record
from weft.ir.stmt import Body, For, Kernel, Reduce, Stmt
from weft.rules.index import linear_coefficients, simplify
from weft.schedule.space import Edit, constant, perfect

MOST: Final = 16  # nests that one becomes
LONG_ROW: Final = 16  # positions of a row whose remainders are written together
SHORT_SUM: Final = 64  # terms of a sum that is written out for each remainder

Env = dict[Expr, tuple[int, int]]


class _Condition(Record):
    """``(row * var + start - tap * axis) % step == 0``; None for an axis on which nothing hangs.

    With `points` it is ``row * var + start - tap * axis`` that lies below these, and above 0. No
    ``var``: of a picture of one position, whose taps are the same ones everywhere.
    """

    var: Expr | None
    axis: Expr | None
    row: int
    tap: int
    start: int
    step: int
    points: int = 0

    @property
    def nests(self) -> int:
        """Nests that one becomes."""
        return 1 if self.var is None else self.step


def cut_by_remainders(kernel: Kernel, rows: bool = True) -> Kernel:
    """Return the kernel with each sum over every s-th tap cut into its remainders.

    Without `rows` a long innermost loop stays whole if its sums are short: what is no contraction
    is bound by memory, and is scheduled so that the remainders of a row are written together.
    """
    for stmt in kernel.body:
        if not isinstance(stmt, For):
            continue
        chain = perfect(stmt)
        found = _conditions(chain, rows)
        if found is None:
            continue
        edit = Edit(kernel)
        nests: list[Stmt] = []
        for number, rest in enumerate(itertools.product(*[range(c.nests) for c in found])):
            nests.extend(_nest(edit, chain, found, rest, f"_{number}"))
        kernel = edit.replace((), stmt, tuple(nests))
    return kernel


def only_sum(chain: list[For]) -> Reduce | None:
    """Return the one sum inside of perfectly nested loops, None if there is more to them."""
    body = chain[-1].body
    reduces = [s for s in body if isinstance(s, Reduce)]
    if len(reduces) != 1 or any(isinstance(s, For | st.If | st.Alloc) for s in body):
        return None
    return reduces[0]


def known_ranges(chain: list[For], reduce: Reduce) -> Env | None:
    """Return the ranges of loops and axes, None if an extent is unknown or 0."""
    extents = [(f.var, f.extent) for f in chain] + [(a.var, a.extent) for a in reduce.axes]
    if not all(constant(e) for _, e in extents):
        return None
    return {v: (0, int(e.attr) - 1) for v, e in extents}


def _conditions(chain: list[For], rows: bool) -> list[_Condition] | None:
    """Return what tells which taps a position has, None if nothing does."""
    reduce = only_sum(chain)
    env = None if reduce is None else known_ranges(chain, reduce)
    if reduce is None or env is None or any(f.kind != st.SERIAL for f in chain):
        return None
    last = chain[-1]
    terms = math.prod(int(a.extent.attr) for a in reduce.axes)
    rows = rows or int(last.extent.attr) < LONG_ROW or terms > SHORT_SUM or _multiplies(
        reduce, chain)
    found: dict[Expr, _Condition] = {}
    axes: set[Expr] = set()
    divided = [made for term in zero_unless(reduce) for made in [
        _condition(term, [f.var for f in chain], [a.var for a in reduce.axes], env)] if made]
    for made in [*divided, *_few_points(reduce, chain, env)]:
        if made.var is None or made.var in found or made.axis in axes or not (
                rows or made.var is not last.var):
            continue
        found[made.var] = made
        if made.axis is not None:
            axes.add(made.axis)
    nests = math.prod(c.nests for c in found.values())
    if not found or nests > MOST:
        return None
    single = {c.axis: c for c in divided if c.var is None and c.axis not in axes}
    return [*found.values(), *single.values()]


def _multiplies(reduce: Reduce, chain: list[For]) -> bool:
    """Whether both of two factors are read again for other results: channels of one picture."""
    loads = [s for s in reduce.body if isinstance(s, st.Load)]
    several = {f.var for f in chain if not ex.is_const(f.extent, 1)}
    seen = [ex.free_vars(s.index) & several for s in loads]
    return len(seen) == 2 and not seen[0] <= seen[1] and not seen[1] <= seen[0]


def zero_unless(reduce: Reduce) -> list[Expr]:
    """Return conditions without which a term of a sum of products is 0 times something."""
    if len(reduce.accumulators) != 1:
        return []
    acc = reduce.accumulators[0]
    if acc.combine.op is not Op.ADD or acc.update.op is not Op.ADD or acc.var not in (
            acc.update.args):
        return []
    lets = {s.var: s.value for s in reduce.body if isinstance(s, st.Let)}
    stack = [a for a in acc.update.args if a is not acc.var]
    out: list[Expr] = []
    while stack:
        e = stack.pop()
        if e in lets:
            stack.append(lets[e])
        elif e.op is Op.MUL or e.op is Op.CAST:
            stack.extend(e.args)
        elif e.op is Op.WHERE and ex.is_const(e.args[2], 0.0):
            stack.append(e.args[1])
            both = [e.args[0]]
            while both:
                c = both.pop()
                if c.op is Op.AND:
                    both.extend(reversed(c.args))
                else:
                    out.append(c)
    return out


def _condition(term: Expr, rows: list[Expr], axes: list[Expr], env: Env) -> _Condition | None:
    """Return ``p % step == 0`` taken apart, None if it is no such condition."""
    if term.op is not Op.EQ or not ex.is_const(term.args[1], 0) or term.args[0].op is not Op.MOD:
        return None
    place, by = term.args[0].args
    step = constant(by)
    linear = linear_coefficients(simplify(place, env), [*rows, *axes], env)
    if step is None or step < 2 or linear is None:
        return None
    steps = {v: c for v, c in linear[0].items() if not isinstance(c, Expr) and c != 0}
    start = constant(linear[1])
    mine = [v for v in steps if v in rows]
    taps = [v for v in steps if v in axes]
    if start is None or len(steps) != len(linear[0]) or len(mine) > 1 or len(taps) > 1 or (
            mine and math.gcd(steps[mine[0]], step) != 1):
        return None
    axis, tap = (taps[0], -steps[taps[0]]) if taps else (None, 0)
    if not mine:
        return None if axis is None else _Condition(None, axis, 0, tap, start, step)
    return _Condition(mine[0], axis, steps[mine[0]], tap, start, step)


def unmasked(stmt: Stmt) -> Stmt:
    """Return a load of what is always there without its mask."""
    if isinstance(stmt, st.Load) and stmt.mask is not None and ex.is_const(stmt.mask, True):
        return stmt.replace(mask=None)
    return stmt


def _few_points(reduce: Reduce, chain: list[For], env: Env) -> list[_Condition]:
    """Return where taps are so far apart that at most one of a window is in the picture."""
    counts = {f.var: int(f.extent.attr) for f in chain}
    taps = {a.var: int(a.extent.attr) for a in reduce.axes}
    # Of ``row - tap * axis``: what it is at least, and at most.
    limits: dict[tuple[Expr, Expr, int], tuple[list[int], list[int]]] = {}
    for term in zero_unless(reduce):
        if term.op is not Op.LT or term.args[0].dtype is not dt.int64:  # others have no places
            continue
        linear = linear_coefficients(simplify(term.args[1] - term.args[0], env),
                                     [*counts, *taps], env)
        if linear is None:
            continue
        steps = {v: c for v, c in linear[0].items() if not isinstance(c, Expr) and c != 0}
        rest = constant(linear[1])
        mine, moved = ([v for v in steps if v in some] for some in (counts, taps))
        if rest is None or len(steps) != len(linear[0]) or (len(mine), len(moved)) != (1, 1):
            continue
        row, tap = steps[mine[0]], steps[moved[0]]
        if abs(row) == 1:
            below = limits.setdefault((mine[0], moved[0], -row * tap), ([], []))
            below[row < 0].append(1 - rest if row > 0 else rest - 1)
    out: list[_Condition] = []
    for (var, axis, tap), (least, most) in limits.items():
        if not least or not most or abs(tap) < 2:
            continue
        start, points = -max(least), min(most) - max(least) + 1
        sign = 1 if tap > 0 else -1
        places = [divmod(i + start, abs(tap)) for i in range(counts[var])]
        if 1 <= points <= abs(tap) and all(
                0 <= sign * past < taps[axis] for past, place in places if place < points):
            out.append(_Condition(var, axis, 1, tap, start, abs(tap), points))
    return out


def _nest(edit: Edit, chain: list[For], found: list[_Condition], rest: tuple[int, ...],
          suffix: str) -> Body:
    """Return the nest of the positions with some remainders; none if there are no positions."""
    reduce = next(s for s in chain[-1].body if isinstance(s, Reduce))
    counts = {f.var: int(f.extent.attr) for f in chain}
    counts.update({a.var: int(a.extent.attr) for a in reduce.axes})
    points: dict[Expr, Expr] = {}
    empty = False  # whether no tap meets these positions: their sums are 0
    for c, r in zip(found, rest, strict=True):
        # row * (step * v + r) + start - tap * k must divide by step: every m-th k, from the first
        every = c.step // math.gcd(c.tap, c.step)
        first = next((k for k in range(every)
                      if (c.row * r + c.start - c.tap * k) % c.step == 0), None)
        if c.var is not None:
            points[c.var] = c.var * c.step + r
            counts[c.var] = -(-max(counts[c.var] - r, 0) // c.step)
        if c.var is not None and c.axis is not None and c.points:
            past, place = divmod(r + c.start, c.step)
            empty = empty or place >= c.points
            points[c.axis] = (c.var + past) * (1 if c.tap > 0 else -1)
            counts[c.axis] = 1
            continue
        if c.axis is None or first is None:
            empty = empty or first is None
            continue
        points[c.axis] = c.axis * every + first
        counts[c.axis] = -(-max(counts[c.axis] - first, 0) // every)
    if any(counts[f.var] == 0 for f in chain):
        return ()
    empty = empty or any(counts[a.var] == 0 for a in reduce.axes)
    single = [a.var for a in reduce.axes if counts[a.var] == 1]
    if len(single) == len(reduce.axes):
        single = single[1:]
    env: Env = {v: (0, n - 1) for v, n in counts.items() if n > 0}
    points.update({v: ex.substitute([points.get(v, v)], {v: ex.index(0)})[0] for v in single})

    def plain(e: Expr) -> Expr:
        if not ex.free_vars([e]) & points.keys():
            return e
        return simplify(ex.substitute([e], points)[0], env)

    body: list[Stmt] = []
    replaced: dict[Expr, Expr] = {}
    for stmt in chain[-1].body:
        if stmt is not reduce:
            body.append(stmt.map_exprs(plain))
        elif empty:
            replaced[reduce.accumulators[0].var] = reduce.accumulators[0].init
        else:
            axes = tuple([st.Axis(a.var, ex.index(counts[a.var]), a.kind)
                          for a in reduce.axes if a.var not in single])
            inner = tuple([unmasked(s.map_exprs(plain)) for s in reduce.body])
            acc = reduce.accumulators[0]
            body.append(Reduce(axes, (acc.replace(update=plain(acc.update)),), inner))
    for loop in reversed(chain):
        body = [For(loop.var, ex.index(counts[loop.var]), loop.kind, tuple(body))]
    return edit.duplicate(tuple(body), replaced, suffix)
