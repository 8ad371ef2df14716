"""``match`` with values: the chain of ``if`` that it means.

Patterns can be literals, dotted names, ``None``, captures, ``_``, tuples of those (with one
starred name), and alternatives, with guards. What looks into mappings and classes stays, and is
refused where it is met.
"""

from __future__ import annotations

import ast
import copy
from typing import Final, TypeVar

__all__ = ["ITEM_COUNT", "unfolded"]

_Node = TypeVar("_Node", bound=ast.AST)


class _ItemCount:
    """What a pattern calls for the number of items of a tuple; -1 for what is none, and never fits.

    The library of the language (`weft.lang.library.builtins`) says how.
    """

    __name__ = "match"


ITEM_COUNT: Final = _ItemCount()


def unfolded(definition: _Node) -> _Node:
    """Return a definition without its ``match`` statements: itself if it has none."""
    if not any(isinstance(node, ast.Match) for node in ast.walk(definition)):
        return definition
    made = copy.deepcopy(definition)
    stack: list[ast.AST] = [made]
    while stack:
        node = stack.pop()
        for field in ("body", "orelse"):
            held = getattr(node, field, None)
            if isinstance(held, list):
                setattr(node, field, [part for stmt in held for part in _statement(stmt)])
        stack.extend(ast.iter_child_nodes(node))
    return made


def _statement(stmt: ast.stmt) -> list[ast.stmt]:
    """Return a statement, or those that stand for a ``match``."""
    if not isinstance(stmt, ast.Match):
        return [stmt]
    subject = f"_match_{stmt.lineno}_{stmt.col_offset}"
    rest: list[ast.stmt] = []
    held = ast.Name(subject, ast.Load())
    for case in reversed(stmt.cases):
        tests, taken = _tests(case.pattern, held), _captures(case.pattern, held)
        if tests is None or taken is None:
            return [stmt]
        if taken and case.guard is not None:
            rest = _guarded(case, tests, taken, rest)
        else:
            if case.guard is not None:
                tests = [*tests, case.guard]
            rest = _chosen(tests, [*taken, *case.body], rest)
        rest = [_at(case.pattern, part) for part in rest]
    return [_at(stmt.subject, _set(subject, stmt.subject)), *rest]


def _guarded(case: ast.match_case, tests: list[ast.expr], taken: list[ast.stmt],
             rest: list[ast.stmt]) -> list[ast.stmt]:  # fmt: skip
    """Return a case whose guard is asked after its names are set, which they stay if it fails."""
    assert case.guard is not None
    if not tests:
        return [*taken, ast.If(case.guard, case.body, rest)]
    fits = f"_fits_{case.pattern.lineno}_{case.pattern.col_offset}"
    asked = ast.If(case.guard, [_set(fits, ast.Constant(True))], [])
    return [_set(fits, ast.Constant(False)), *_chosen(tests, [*taken, asked], []),
            ast.If(ast.Name(fits, ast.Load()), case.body, rest)]


def _chosen(tests: list[ast.expr], body: list[ast.stmt], rest: list[ast.stmt]) -> list[ast.stmt]:
    """Return statements that are carried out where tests hold, and those for elsewhere."""
    if not tests:
        return body
    return [ast.If(tests[0] if len(tests) == 1 else ast.BoolOp(ast.And(), tests), body, rest)]


def _set(name: str, value: ast.expr) -> ast.stmt:
    return ast.Assign([ast.Name(name, ast.Store())], value)


def _tests(pattern: ast.pattern, held: ast.expr) -> list[ast.expr] | None:
    """Return what must be true of what is held, None if that cannot be said."""
    if isinstance(pattern, ast.MatchValue):
        return [_at(pattern, ast.Compare(held, [ast.Eq()], [pattern.value]))]
    if isinstance(pattern, ast.MatchSingleton):
        return [_at(pattern, ast.Compare(held, [ast.Is()], [ast.Constant(pattern.value)]))]
    if isinstance(pattern, ast.MatchAs):
        return [] if pattern.pattern is None else _tests(pattern.pattern, held)
    if isinstance(pattern, ast.MatchStar):
        return []
    found: list[ast.expr] = []
    if isinstance(pattern, ast.MatchSequence):
        found.append(_at(pattern, _has_length(pattern, held)))  # else nobody asks for its items
        for inner, item in _items(pattern, held):
            tests = _tests(inner, item)
            if tests is None:
                return None
            found += tests
        return found
    if not isinstance(pattern, ast.MatchOr):
        return None
    for alternative in pattern.patterns:
        tests = _tests(alternative, held)
        if not tests:  # what always fits can only be the last one
            return tests
        found.append(tests[0] if len(tests) == 1 else _at(pattern, ast.BoolOp(ast.And(), tests)))
    return [_at(pattern, ast.BoolOp(ast.Or(), found))]


def _has_length(pattern: ast.MatchSequence, held: ast.expr) -> ast.expr:
    """Return whether a tuple has as many items as a pattern."""
    stars = sum(isinstance(p, ast.MatchStar) for p in pattern.patterns)
    count = ast.Constant(len(pattern.patterns) - stars)
    length = ast.Call(ast.Constant(ITEM_COUNT), [held], [])  # type: ignore[arg-type]
    return ast.Compare(length, [ast.GtE() if stars else ast.Eq()], [count])


def _items(pattern: ast.MatchSequence, held: ast.expr) -> list[tuple[ast.pattern, ast.expr]]:
    """Return the patterns of a tuple, each with the item that it is for."""
    found: list[tuple[ast.pattern, ast.expr]] = []
    place, count = 0, len(pattern.patterns)
    for position, inner in enumerate(pattern.patterns):
        key: ast.expr = ast.Constant(place)
        if isinstance(inner, ast.MatchStar):
            place = position + 1 - count  # those behind it count from the end
            key = ast.Slice(key, ast.Constant(place) if place else None)
        else:
            place += 1
        found.append((inner, _at(inner, ast.Subscript(held, key, ast.Load()))))
    return found


def _captures(pattern: ast.pattern, held: ast.expr) -> list[ast.stmt] | None:
    """Return what sets the names of a pattern, None where its alternatives set them unlike."""
    if isinstance(pattern, ast.MatchAs | ast.MatchStar):
        inner = pattern.pattern if isinstance(pattern, ast.MatchAs) else None
        found = [] if inner is None else _captures(inner, held)
        own = [] if pattern.name is None else [_set(pattern.name, held)]
        return None if found is None else [*found, *own]
    made: list[ast.stmt] = []
    if isinstance(pattern, ast.MatchSequence):
        for one, item in _items(pattern, held):
            found = _captures(one, item)
            if found is None:
                return None
            made += found
    elif isinstance(pattern, ast.MatchOr):
        ways = [_captures(one, held) for one in pattern.patterns]
        texts = {None if way is None else tuple(sorted(map(ast.dump, way))) for way in ways}
        return ways[0] if len(texts) == 1 else None
    return made


def _at(place: ast.AST, made: _Node) -> _Node:
    """Return a new node, with all in it that has no place, where another one stands."""
    for node in ast.walk(made):
        if not hasattr(node, "lineno") and "lineno" in node._attributes:
            ast.copy_location(node, place)
    return made
