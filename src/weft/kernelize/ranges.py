"""Cut the nest of sums that are not there for some positions: those are 0, and cost nothing.

Where all factors of all terms of a sum are 0 outside of a range of positions (a gradient of windows
that do not reach the end of a picture), the range becomes a nest without the condition:

    for i in 3: out[i] = sum over k: where(i < 2, g[k], 0) * where(i < 2, w[i, k], 0)
    ->  for i in 2: out[i] = sum over k: g[k] * w[i, k]
        for i in 1: out[i + 2] = 0

A condition of one factor alone is no reason: its zeros make a NaN of another's infinity.
"""

from __future__ import annotations

from weft.ir import dtype as dt
from weft.ir import expr as ex
from weft.ir import stmt as st
from weft.ir.expr import Expr
from weft.ir.op import Op
from weft.ir.stmt import Body, For, Kernel, Reduce, Stmt
from weft.kernelize.remainders import Env, only_sum, unmasked
from weft.rules.index import linear_coefficients, simplify
from weft.schedule.guard import parts
from weft.schedule.space import Edit, constant, perfect


def cut_by_ranges(kernel: Kernel) -> Kernel:
    """Return the kernel with each sum that is 0 outside of a range of positions cut there."""
    for stmt in kernel.body:
        if not isinstance(stmt, For):
            continue
        chain = perfect(stmt)
        reduce = only_sum(chain)
        ranges = {} if reduce is None else _ranges(reduce, chain)
        if not ranges:
            continue
        edit = Edit(kernel)
        counts = {f.var: (0, int(f.extent.attr)) for f in chain}
        nests: list[Stmt] = []
        for var, (low, high) in ranges.items():
            for outside in ((0, low), (high, counts[var][1])):
                nests.extend(_nest(edit, chain, counts | {var: outside}, True, len(nests)))
            counts[var] = low, high
        nests.extend(_nest(edit, chain, counts, False, len(nests)))
        kernel = edit.replace((), stmt, tuple(nests))
    return kernel


def _ranges(reduce: Reduce, chain: list[For]) -> dict[Expr, tuple[int, int]]:
    """Return the loops outside of whose ranges all terms are 0, with these."""
    found = _zero_unless(reduce)
    if not found or any(constant(f.extent) is None for f in chain):
        return {}
    env: Env = {f.var: (0, int(f.extent.attr) - 1) for f in chain}
    out: dict[Expr, tuple[int, int]] = {}
    for term in found:
        if term.op is not Op.LT or term.args[0].dtype is not dt.int64:
            continue
        linear = linear_coefficients(simplify(term.args[1] - term.args[0], env), list(env), env)
        rest = None if linear is None else constant(linear[1])
        if linear is None or rest is None or len(linear[0]) > 1:
            continue
        if not linear[0]:  # a condition that never holds, or always does
            if rest <= 0:
                return {chain[0].var: (0, 0)}
            continue
        (var, step), = linear[0].items()
        if step not in (1, -1):
            continue
        n = env[var][1] + 1
        low, high = out.get(var, (0, n))  # step * var + rest > 0
        low, high = (max(low, 1 - rest), high) if step == 1 else (low, min(high, rest))
        low = min(low, n)  # the condition may hold for none
        out[var] = low, max(low, high)
    return {v: r for v, r in out.items() if r != (0, env[v][1] + 1)}


def _zero_unless(reduce: Reduce) -> list[Expr]:
    """Return conditions without which all factors of the terms of a sum are 0."""
    acc = reduce.accumulators[0]
    if len(reduce.accumulators) != 1 or acc.combine.op is not Op.ADD or (
            acc.update.op is not Op.ADD or acc.update.args[0] is not acc.var):
        return []
    lets = {s.var: s.value for s in reduce.body if isinstance(s, st.Let)}
    common: list[Expr] | None = None
    stack: list[tuple[Expr, tuple[Expr, ...]]] = [(acc.update.args[1], ())]
    while stack:
        e, known = stack.pop()
        if e in lets:
            stack.append((lets[e], known))
        elif e.op is Op.WHERE and ex.is_const(e.args[2], 0.0):
            stack.append((e.args[1], (*known, *parts(e.args[0]))))
        elif e.op is Op.MUL or e.op is Op.CAST:
            stack.extend([(a, known) for a in e.args])
        else:
            common = [c for c in known if common is None or c in common]
    return common or []


def _nest(edit: Edit, chain: list[For], counts: dict[Expr, tuple[int, int]], empty: bool,
          number: int) -> Body:
    """Return the nest of some ranges of positions; none if there are no positions."""
    if any(low >= high for low, high in counts.values()):
        return ()
    env: Env = {v: (0, high - low - 1) for v, (low, high) in counts.items()}
    points = {v: v + low for v, (low, _) in counts.items() if low}
    reduce = next(s for s in chain[-1].body if isinstance(s, Reduce))
    acc = reduce.accumulators[0]
    inner: Env = env | {a.var: (0, int(a.extent.attr) - 1) for a in reduce.axes
                        if constant(a.extent)}

    def plain(e: Expr) -> Expr:
        return simplify(ex.substitute([e], points)[0] if points else e, inner)

    replaced: dict[Expr, Expr] = {}
    body: list[Stmt] = []
    for stmt in chain[-1].body:
        if stmt is not reduce:
            body.append(stmt.map_exprs(plain))
        elif empty:
            replaced[acc.var] = acc.init
        else:
            body.append(Reduce(reduce.axes, (acc.replace(update=plain(acc.update)),),
                               tuple([unmasked(s.map_exprs(plain)) for s in reduce.body])))
    for loop in reversed(chain):
        low, high = counts[loop.var]
        body = [For(loop.var, ex.index(high - low), loop.kind, tuple(body))]
    return edit.duplicate(tuple(body), replaced, f"_r{number}")
