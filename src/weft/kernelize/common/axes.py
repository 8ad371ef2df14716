"""The axes of a kernel's memories: merged where an index divides, split where it is two in one."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from weft.ir import expr as ex
from weft.ir.bounds import bounds
from weft.ir.expr import Expr
from weft.ir.op import Op
from weft.ir.stmt import Alloc, Body, Kernel, Load, Memory, Prefetch, Stmt, Store
from weft.ir.traverse import Rewriter, walk
from weft.kernelize.common.indexing import flatten
from weft.rules.index import simplify

Env = dict[Expr, tuple[int, int]]


def _has_division(e: Expr) -> bool:
    return any(x.op is Op.FLOORDIV or x.op is Op.MOD for x in ex.toposort([e]))


def merge_axes(kernel: Kernel, env: Env, tiled: bool = False) -> Kernel:
    """Merge the axes of memories whose indices divide, and drop axes of size 1.

    Those of memories that a `tiled` kernel allocates are left alone.
    """
    accesses: dict[Memory, list[tuple[Expr, ...]]] = {}
    for stmt in walk(kernel.body):
        if isinstance(stmt, Load | Store | Prefetch) and _is_free(stmt.memory, tiled):
            accesses.setdefault(stmt.memory, []).append(stmt.index)
    layouts: dict[Memory, list[list[int]]] = {}
    for memory, indices in accesses.items():
        groups = _axis_groups(memory, indices, env)
        if [g for g in groups if len(g) != 1]:
            layouts[memory] = groups
    def regrouped(memory: Memory, index: tuple[Expr, ...]) -> tuple[Expr, ...]:
        return tuple(
            simplify(flatten([index[a] for a in group], [memory.shape[a] for a in group]), env)
            for group in layouts[memory] if group
        )

    return _reindex(kernel, {m: _reshaped(m, groups) for m, groups in layouts.items()}, regrouped)


def _reindex(kernel: Kernel, renamed: Mapping[Memory, Memory],
             reindexed: Callable[[Memory, tuple[Expr, ...]], tuple[Expr, ...]]) -> Kernel:
    """Put other shapes of the same memories in, with what their indices become."""
    if not renamed:
        return kernel

    class Reindex(Rewriter):
        def visit(self, stmt: Stmt) -> Stmt | Body:
            if isinstance(stmt, Alloc) and stmt.memory in renamed:
                return Alloc(renamed[stmt.memory])
            if isinstance(stmt, Load | Store | Prefetch) and stmt.memory in renamed:
                index = reindexed(stmt.memory, stmt.index)
                return stmt.replace(memory=renamed[stmt.memory], index=index)
            return stmt

    params = tuple(renamed.get(m, m) for m in kernel.params)
    return Reindex(kernel).run().replace(params=params)


def _axis_groups(memory: Memory, indices: list[tuple[Expr, ...]], env: Env) -> list[list[int]]:
    """Return which axes of a memory become one; an empty group marks dropped axes."""
    rank = len(memory.shape)
    kept = [
        a for a in range(rank)
        if not (ex.is_const(memory.shape[a], 1) and all(ex.is_const(i[a], 0) for i in indices))
    ] or list(range(min(rank, 1)))
    divides = {a: any(_has_division(i[a]) for i in indices) for a in kept}
    groups: list[list[int]] = []
    for axis in kept:
        if groups and divides[axis] and divides[groups[-1][-1]]:
            groups[-1].append(axis)
        else:
            groups.append([axis])
    for group in groups:
        sizes = [memory.shape[a] for a in group]
        if any(_has_division(simplify(flatten([i[a] for a in group], sizes), env))
               for i in indices):
            groups = [kept]  # nothing less than one flat axis helps, if anything does
            break
    return groups if len(kept) == rank else [*groups, []]


def _reshaped(memory: Memory, groups: list[list[int]]) -> Memory:
    sizes = []
    for group in groups:
        if group:
            total = ex.index(1)
            for axis in group:
                total = total * memory.shape[axis]
            sizes.append(total)
    return memory.replace(shape=tuple(sizes))


def _is_free(memory: Memory, tiled: bool) -> bool:
    """Whether the axes of a memory may be others."""
    return not tiled or memory.scope == "global"


def split_axes(kernel: Kernel, env: Env, tiled: bool = False) -> Kernel:
    """Split axes that are read as rows of several: ``x[i * 768 + k]`` becomes ``x[i, k]``.

    Strategies read patterns from indices, and a row and a column in one index look like a window.
    """
    terms: dict[Memory, list[list[_Terms] | None]] = {}
    for stmt in walk(kernel.body):
        if isinstance(stmt, Load | Store | Prefetch) and _is_free(stmt.memory, tiled):
            found = terms.setdefault(stmt.memory, [[] for _ in stmt.index])
            for axis, e in enumerate(stmt.index):
                column = found[axis]
                if column is not None:
                    linear = _terms(e, env)
                    found[axis] = None if linear is None else [*column, linear]
    renamed: dict[Memory, Memory] = {}
    radices: dict[Memory, list[tuple[int, ...]]] = {}
    for memory, columns in terms.items():
        parts = [
            _radices(memory.shape[a].attr, column, env)
            if column and memory.shape[a].op is Op.CONST else ()
            for a, column in enumerate(columns)
        ]
        if any(parts):
            radices[memory] = parts
            sizes = [
                ex.index(size) if isinstance(size, int) else size
                for dim, part in zip(memory.shape, parts, strict=True)
                for size in (_sizes(dim.attr, part) if part else (dim,))
            ]
            renamed[memory] = memory.replace(shape=tuple(sizes))

    def divided(memory: Memory, index: tuple[Expr, ...]) -> tuple[Expr, ...]:
        out: list[Expr] = []
        for e, part in zip(index, radices[memory], strict=True):
            rest = e
            for radix in part:
                out.append(simplify(rest // radix, env))
                rest = simplify(rest % radix, env)
            out.append(rest)
        return tuple(out)

    return _reindex(kernel, renamed, divided)


_Terms = tuple[dict[Expr, int], int]


def _terms(e: Expr, env: Env) -> _Terms | None:
    """Return the coefficients of an index and its constant, if none is negative.

    What is not a sum or a multiple (a quotient, a remainder) counts as one digit.
    """
    numbers: dict[Expr, int] = {}
    constant = 0
    stack = [(e, 1)]
    while stack:
        part, factor = stack.pop()
        if part.op is Op.CONST:
            constant += factor * part.attr
        elif part.op is Op.ADD:
            stack.extend((x, factor) for x in part.args)
        elif part.op is Op.MUL and part.args[1].op is Op.CONST:
            stack.append((part.args[0], factor * part.args[1].attr))
        else:
            numbers[part] = numbers.get(part, 0) + factor
    if constant < 0 or any(c < 0 or bounds(x, env)[0] < 0 for x, c in numbers.items()):
        return None
    return numbers, constant


def _radices(size: int, column: list[_Terms], env: Env) -> tuple[int, ...]:
    """Return the strides, falling, at which every access falls apart into digits."""
    strides = {c for numbers, _ in column for c in numbers.values()}
    kept: list[int] = []
    whole = size
    for radix in sorted(strides, reverse=True):
        if radix > 1 and whole % radix == 0 and radix < whole and any(
            min(numbers.values(), default=radix) < radix <= max(numbers.values(), default=0)
            for numbers, _ in column
        ) and all(_falls_apart(t, radix, size, env) for t in column):
            kept.append(radix)
            whole = radix
    return tuple(kept)


def _falls_apart(terms: _Terms, radix: int, size: int, env: Env) -> bool:
    numbers, constant = terms
    low, high = constant % radix, constant // radix
    for v, c in numbers.items():
        if c % radix == 0:
            high += c // radix * bounds(v, env)[1]
        elif c < radix:
            low += c * bounds(v, env)[1]
        else:
            return False
    return low < radix and high < size // radix


def _sizes(size: int, radices: tuple[int, ...]) -> list[int]:
    edges = (size, *radices, 1)
    return [edges[i] // edges[i + 1] for i in range(len(edges) - 1)]
