"""Bring a fresh loop nest into its plainest form: fewer axes, memories without div and mod.

Neighbouring loops whose variables every access sees as one (``i * n + j``) become one loop, so
that a 4-D elementwise kernel is a flat one and rows of any rank are rows. The axes of the memories
follow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import Final

from weft.ir import expr as ex
from weft.ir.bounds import bounds
from weft.ir.expr import Expr
from weft.ir.op import Op
from weft.ir.stmt import (
    SERIAL,
    Axis,
    Body,
    For,
    Kernel,
    Load,
    Prefetch,
    Reduce,
    Stmt,
    Store,
)
from weft.ir.traverse import Rewriter, walk
from weft.kernelize.common.axes import merge_axes, split_axes
from weft.kernelize.common.indexing import flatten
from weft.rules.index import linear_coefficients, simplify

WIDE_ROW: Final = 64  # elements from which a loop over a row alone is worth it, and
NARROW_ROW: Final = 16  # ... where without it no two rows could be written at once

Env = dict[Expr, tuple[int, int]]


def tidy(kernel: Kernel, tiled: bool = False, splits: bool = True) -> Kernel:
    """Return an equivalent kernel with merged loops and merged memory axes.

    The loops of a `tiled` one, and memories allocated in it, stay as they are. One that `splits`
    has an axis for each loop over a part of a memory.
    """
    env = loop_ranges(kernel.body)
    if tiled:
        merged_axes = merge_axes(kernel, env, True)
        return split_axes(merged_axes, env, True) if splits else merged_axes
    chains = _chains(kernel.body)
    if chains and not _scatters_rows(kernel):
        uses = _Uses(kernel, env)
        merged = [run for chain in chains for run in uses.mergeable(chain)]
        if merged:
            kernel = _merge_loops(kernel, merged, env)
            env = loop_ranges(kernel.body)
    return split_axes(merge_axes(kernel, env), env)


def _scatters_rows(kernel: Kernel) -> bool:
    """Whether a kernel writes wide rows at places that are data, or at such places of rows.

    Such rows do not overlap, which shows as long as they have an axis of their own.
    """
    if kernel.meta.kind != "scatter":
        return False
    stores = [s for s in walk(kernel.body) if isinstance(s, Store)]
    shape, loops = stores[0].memory.shape, loop_ranges(kernel.body).keys()
    within = any(not ex.free_vars([s.index[-1]]) <= loops for s in stores)
    least = NARROW_ROW if within else WIDE_ROW
    return len(shape) > 1 and bounds(shape[-1], {})[0] >= least


def loop_ranges(body: Body) -> Env:
    """Return the range of every loop and reduction variable (by the largest symbolic extent)."""
    env: Env = {}
    for stmt in walk(body):
        pairs: Iterable[tuple[Expr, Expr]] = ()
        if isinstance(stmt, For):
            pairs = ((stmt.var, stmt.extent),)
        elif isinstance(stmt, Reduce):
            pairs = tuple((a.var, a.extent) for a in stmt.axes)
        for v, extent in pairs:
            last = bounds(extent, env)[1] - 1
            env[v] = (0, last if last >= 0 else 1)  # see Emitter.loop_var
    return env


def _chains(body: Body) -> list[list[tuple[Expr, int]]]:
    """Return runs of directly nested loops, and the axes of each reduction, of fixed extents."""
    chains: list[list[tuple[Expr, int]]] = []
    inside: set[Stmt] = set()
    for stmt in walk(body):
        chain: list[tuple[Expr, int]] = []
        if isinstance(stmt, For) and stmt not in inside:
            at: Stmt = stmt
            while isinstance(at, For) and at.kind == SERIAL and at.extent.op is Op.CONST:
                inside.add(at)
                chain.append((at.var, at.extent.attr))
                if len(at.body) != 1:
                    break
                at = at.body[0]
        elif isinstance(stmt, Reduce) and all(a.extent.op is Op.CONST for a in stmt.axes):
            chain = [(a.var, a.extent.attr) for a in stmt.axes]
        if len(chain) > 1:
            chains.append(chain)
    return chains


class _Uses:
    """Where loop variables are used: by what stride in each access, or otherwise."""

    def __init__(self, kernel: Kernel, env: Env) -> None:
        self.strides: list[dict[Expr, object]] = []
        self.pinned: set[Expr] = set()
        variables = list(env)
        for stmt in walk(kernel.body):
            if isinstance(stmt, Load | Store | Prefetch):
                self._access(stmt, variables, env)
                rest: Iterable[Expr] = stmt.exprs()[len(stmt.index):]
            else:
                rest = stmt.exprs()
            self.pinned |= ex.free_vars(rest) & env.keys()

    def _access(self, stmt: Load | Store | Prefetch, variables: list[Expr], env: Env) -> None:
        sizes = stmt.memory.shape
        position = simplify(flatten(stmt.index, sizes), env)
        used = ex.free_vars([position]) & env.keys()
        if not used:
            self.strides.append({})
            return
        found = linear_coefficients(position, [v for v in variables if v in used], env)
        if found is None:
            self.pinned |= used
            return
        strides, rest = found
        self.strides.append(dict(strides))
        self.pinned |= ex.free_vars([rest]) & env.keys()

    def mergeable(self, chain: list[tuple[Expr, int]]) -> list[list[tuple[Expr, int]]]:
        """Return the runs of two or more loops of a chain that act as one."""
        runs: list[list[tuple[Expr, int]]] = [[chain[0]]]
        for outer, inner in pairwise(chain):
            if self._as_one(outer[0], inner[0], inner[1]):
                runs[-1].append(inner)
            else:
                runs.append([inner])
        return [run for run in runs if len(run) > 1]

    def _as_one(self, outer: Expr, inner: Expr, extent: int) -> bool:
        if outer in self.pinned or inner in self.pinned:
            return False
        return all(
            _number(s.get(outer, 0)) == _number(s.get(inner, 0)) * extent for s in self.strides
        )


def _number(value: object) -> float:
    if isinstance(value, Expr):
        return value.attr if value.op is Op.CONST else float("nan")
    return value  # type: ignore[return-value]


def _merge_loops(kernel: Kernel, runs: list[list[tuple[Expr, int]]], env: Env) -> Kernel:
    """Return the kernel with each run of loops as one, in one pass."""
    mapping: dict[Expr, Expr] = {}
    first: dict[Expr, int] = {}  # kept variable: its new extent
    dropped: set[Expr] = set()
    for run in runs:
        merged = run[0][0]
        position = merged
        total = 1
        for v, extent in reversed(run[1:]):
            mapping[v] = position % extent
            position = position // extent
            total *= extent
            dropped.add(v)
        mapping[merged] = position
        first[merged] = total * run[0][1]

    env = {**env, **{v: (0, extent - 1 if extent else 1) for v, extent in first.items()}}
    simplified = _simplifier(env)

    def remap(e: Expr) -> Expr:
        return simplified(ex.substitute([e], mapping)[0])

    class Merge(Rewriter):
        def visit(self, stmt: Stmt) -> Stmt | Body:
            if any(remap(e) is not e for e in stmt.exprs()):
                stmt = stmt.map_exprs(remap)  # binders are no expressions: they keep their names
            if isinstance(stmt, For) and stmt.var in dropped:
                return stmt.body
            if isinstance(stmt, For) and stmt.var in first:
                return For(stmt.var, ex.index(first[stmt.var]), stmt.kind, stmt.body)
            if isinstance(stmt, Reduce) and any(a.var in first for a in stmt.axes):
                axes = tuple(
                    Axis(a.var, ex.index(first[a.var]) if a.var in first else a.extent, a.kind)
                    for a in stmt.axes if a.var not in dropped
                )
                return Reduce(axes, stmt.accumulators, stmt.body)
            return stmt

    return Merge(kernel).run()


def _simplifier(env: Env) -> Callable[[Expr], Expr]:
    memo: dict[Expr, Expr] = {}

    def run(e: Expr) -> Expr:
        if e.dtype.kind != "i":
            return e
        found = memo.get(e)
        if found is None:
            found = memo[e] = simplify(e, env)
        return found

    return run
