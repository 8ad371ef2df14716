"""What the syntax of a kernel tells of its names and jumps before it is read."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Final

__all__ = [
    "always_jumps", "always_returns", "assigned", "breaks", "exposed", "exposed_behind", "falls",
    "jumps", "loaded", "named", "needs_flag", "returns", "walk", "walrus",
]  # fmt: skip

_KEPT: Final = 4096  # statements whose names are known, as loops around them ask again
_LOOPS = (ast.For, ast.While)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)


def walk(stmt: ast.AST) -> Iterator[ast.AST]:
    """Yield a node and those in it, without the insides of functions that it defines."""
    stack = [stmt]
    while stack:
        node = stack.pop()
        yield node
        if not isinstance(node, _FUNCTIONS):
            stack.extend(ast.iter_child_nodes(node))


def assigned(body: Iterable[ast.stmt]) -> frozenset[str]:
    """Return the names that statements give a value."""
    return frozenset().union(*map(_assigned_in, body))


@lru_cache(_KEPT)
def _assigned_in(stmt: ast.stmt) -> frozenset[str]:
    found: set[str] = set()
    for node in walk(stmt):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.alias):
            found.add((node.asname or node.name).partition(".")[0])
        elif isinstance(node, ast.Global | ast.Nonlocal):
            found.update(node.names)  # those of functions around, which it means to set
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            base: ast.expr = node  # of `p.x = 1`, which gives p a new value
            while isinstance(base, ast.Attribute):
                base = base.value
            if isinstance(base, ast.Name):
                found.add(base.id)
    return frozenset(found)


def named(body: Iterable[ast.stmt]) -> frozenset[str]:
    """Return the names that belong to a function because its statements set them."""
    return frozenset(
        n.id if isinstance(n, ast.Name) else n.name for stmt in body for n in walk(stmt)
        if (isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store))
        or isinstance(n, ast.FunctionDef))


def loaded(body: Iterable[ast.AST]) -> frozenset[str]:
    """Return the names that statements read."""
    return frozenset().union(*map(_loaded_in, body))


@lru_cache(_KEPT)
def _loaded_in(stmt: ast.AST) -> frozenset[str]:
    found: set[str] = set()
    for node in ast.walk(stmt):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            found.add(node.id)
        elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
            found.add(node.target.id)
    return frozenset(found)


def walrus(nodes: Iterable[ast.AST]) -> frozenset[str]:
    """Return the names that expressions set by ``:=``."""
    return frozenset().union(*map(_walrus_in, nodes))


@lru_cache(_KEPT)
def _walrus_in(node: ast.AST) -> frozenset[str]:
    return frozenset(n.target.id for n in walk(node) if isinstance(n, ast.NamedExpr))


def exposed(body: Sequence[ast.stmt]) -> frozenset[str]:
    """Return the names of which statements may read what was there before them."""
    found: frozenset[str] = frozenset()
    for stmt in reversed(body):
        reads, sets = _effects(stmt)
        found = reads | (found - sets)
    return found


def exposed_behind(body: Sequence[ast.stmt]) -> list[frozenset[str]]:
    """Return for each statement the names of which those behind it may read what was there."""
    found: list[frozenset[str]] = [frozenset()]
    for stmt in reversed(body[1:]):
        reads, sets = _effects(stmt)
        found.append(reads | (found[-1] - sets))
    return found[::-1]


@lru_cache(_KEPT)
def _effects(stmt: ast.stmt) -> tuple[frozenset[str], frozenset[str]]:
    """Return what a statement reads before it sets it, and what it sets on all ways through it."""
    if isinstance(stmt, ast.Assign):
        names = [t for target in stmt.targets for t in _items(target)]
        plain = frozenset(t.id for t in names if isinstance(t, ast.Name))
        others = (t for t in names if not isinstance(t, ast.Name))
        return loaded((stmt.value, *others)), plain
    if isinstance(stmt, ast.For):
        names = _items(stmt.target)
        plain = frozenset(t.id for t in names if isinstance(t, ast.Name))
        others = (t for t in names if not isinstance(t, ast.Name))
        inside = (loaded(others) | exposed(stmt.body)) - plain
        return loaded((stmt.iter,)) | inside | exposed(stmt.orelse), frozenset()
    if isinstance(stmt, ast.If):
        reads = loaded((stmt.test,)) | exposed(stmt.body) | exposed(stmt.orelse)
        ways = [_set_by(side) for side in (stmt.body, stmt.orelse) if not always_jumps(side)]
        return reads, ways[0].intersection(*ways[1:]) if ways else frozenset()
    if isinstance(stmt, ast.While):
        reads = loaded((stmt.test,)) | exposed(stmt.body) | exposed(stmt.orelse)
        return reads, frozenset()
    return _loaded_in(stmt), frozenset()


def _set_by(body: Iterable[ast.stmt]) -> frozenset[str]:
    """Return the names that statements set on all ways through them."""
    return frozenset().union(*(_effects(stmt)[1] for stmt in body))


def _items(target: ast.expr) -> list[ast.expr]:
    """Return what an assignment to a target sets one by one."""
    if isinstance(target, ast.Starred):
        return _items(target.value)
    if isinstance(target, ast.Tuple | ast.List):
        return [item for part in target.elts for item in _items(part)]
    return [target]


def _own(body: Iterable[ast.stmt]) -> Iterable[ast.stmt]:
    """Yield the statements of a body without those of loops inside it."""
    stack = list(body)
    while stack:
        stmt = stack.pop()
        yield stmt
        if isinstance(stmt, ast.If):
            stack.extend((*stmt.body, *stmt.orelse))
        elif isinstance(stmt, _LOOPS):
            stack.extend(stmt.orelse)


def returns(body: Iterable[ast.stmt]) -> bool:
    """Whether a return, or a raise, stands in these statements."""
    return any(map(_returns_in, body))


@lru_cache(_KEPT)
def _returns_in(stmt: ast.stmt) -> bool:
    return any(isinstance(n, ast.Return | ast.Raise) for n in walk(stmt))


def breaks(body: Iterable[ast.stmt]) -> bool:
    """Whether the loop of this body can be left before its end."""
    body = list(body)
    return returns(body) or any(isinstance(s, ast.Break) for s in _own(body))


def jumps(body: Iterable[ast.stmt]) -> bool:
    """Whether these statements may leave the list that they stand in."""
    body = list(body)
    return returns(body) or any(isinstance(s, ast.Break | ast.Continue) for s in _own(body))


def always_jumps(body: Sequence[ast.stmt]) -> bool:
    """Whether every way through these statements ends in a jump."""
    for stmt in body:
        if isinstance(stmt, ast.Return | ast.Raise | ast.Break | ast.Continue):
            return True
        if isinstance(stmt, ast.If) and always_jumps(stmt.body) and always_jumps(stmt.orelse):
            return True
    return False


def always_returns(body: Sequence[ast.stmt]) -> bool:
    """Whether every way through these statements ends in a return, or a raise."""
    if not always_jumps(body):
        return False
    stack = list(body)
    while stack:
        stmt = stack.pop()
        if isinstance(stmt, ast.Break | ast.Continue):
            return False
        if isinstance(stmt, ast.If):
            stack.extend((*stmt.body, *stmt.orelse))
    return True


def falls(body: Sequence[ast.stmt]) -> bool:
    """Whether a way through the statements of a function may reach its end without a return."""
    for stmt in body:
        if isinstance(stmt, ast.Return | ast.Raise):
            return False
        if isinstance(stmt, ast.If) and not falls(stmt.body) and not falls(stmt.orelse):
            return False
        if isinstance(stmt, ast.For | ast.While):
            left = any(isinstance(s, ast.Break) for s in _own(stmt.body))
            endless = isinstance(stmt, ast.While) and isinstance(
                stmt.test, ast.Constant) and bool(stmt.test.value)
            if not left and (endless or not falls(stmt.orelse)):
                return False
    return True


def needs_flag(body: Sequence[ast.stmt]) -> bool:
    """Whether a statement may or may not be reached because of a jump before it.

    Where one branch of an ``if`` always jumps, what follows it belongs to the other branch.
    """
    for position, stmt in enumerate(body):
        rest = body[position + 1:]
        if isinstance(stmt, _LOOPS):
            # What jumps in its `else` jumps out of the loop around it.
            if rest and (returns([stmt]) or jumps(stmt.orelse)):
                return True
            if needs_flag(stmt.orelse):
                return True
        if not isinstance(stmt, ast.If) or not jumps([stmt]):
            continue
        if not rest:
            return needs_flag(stmt.body) or needs_flag(stmt.orelse)
        ends = always_jumps(stmt.body), always_jumps(stmt.orelse)
        if not any(ends):
            return True
        then = stmt.body if ends[0] else [*stmt.body, *rest]
        orelse = stmt.orelse if ends[1] else [*stmt.orelse, *rest]
        return needs_flag(then) or needs_flag(orelse)
    return False
