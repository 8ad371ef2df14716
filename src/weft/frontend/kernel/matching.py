"""``match`` with values: the chain of ``if`` that it means.

Patterns can be literals, dotted names, ``None``, captures, ``_``, and alternatives of those, with
guards. What looks into sequences, mappings and classes stays, and is refused where it is met.
"""

from __future__ import annotations

import ast
import copy
from typing import TypeVar

__all__ = ["unfolded"]

_Node = TypeVar("_Node", bound=ast.AST)


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
    for case in reversed(stmt.cases):
        tests = _tests(case.pattern, subject)
        if tests is None:
            return [stmt]
        taken: list[ast.stmt] = [_set(name, ast.Name(subject, ast.Load()))
                                 for name in _captures(case.pattern)]
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


def _tests(pattern: ast.pattern, subject: str) -> list[ast.expr] | None:
    """Return what must be true of a subject, None if that cannot be said."""
    held = ast.Name(subject, ast.Load())
    if isinstance(pattern, ast.MatchValue):
        return [_at(pattern, ast.Compare(held, [ast.Eq()], [pattern.value]))]
    if isinstance(pattern, ast.MatchSingleton):
        return [_at(pattern, ast.Compare(held, [ast.Is()], [ast.Constant(pattern.value)]))]
    if isinstance(pattern, ast.MatchAs):
        return [] if pattern.pattern is None else _tests(pattern.pattern, subject)
    if not isinstance(pattern, ast.MatchOr):
        return None
    found: list[ast.expr] = []
    for alternative in pattern.patterns:
        tests = _tests(alternative, subject)
        if not tests:  # what always fits can only be the last one
            return tests
        found += tests
    return [_at(pattern, ast.BoolOp(ast.Or(), found))]


def _captures(pattern: ast.pattern) -> list[str]:
    """Return the names that a pattern gives the subject."""
    return [node.name for node in ast.walk(pattern)
            if isinstance(node, ast.MatchAs) and node.name is not None]


def _at(place: ast.AST, made: _Node) -> _Node:
    """Return a new node, with all in it that has no place, where another one stands."""
    for node in ast.walk(made):
        if not hasattr(node, "lineno") and "lineno" in node._attributes:
            ast.copy_location(node, place)
    return made
