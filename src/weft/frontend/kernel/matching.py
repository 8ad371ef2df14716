"""``match`` with values: the chain of ``if`` that it means.

Patterns can be literals, dotted names, ``None``, captures, ``_``, and alternatives of those, with
guards. What looks into sequences, mappings and classes stays, and is refused where it is met.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Sequence
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
        taken = _captures(case.pattern)
        body = [_at(case.pattern, ast.Assign([ast.Name(name, ast.Store())],
                                             ast.Name(subject, ast.Load())))
                for name in taken] + case.body
        if case.guard is not None:
            tests = [*tests, _renamed(case.guard, taken, subject)]
        if tests:
            test = tests[0] if len(tests) == 1 else _at(tests[0], ast.BoolOp(ast.And(), tests))
            rest = [_at(case.pattern, ast.If(test, body, rest))]
        else:
            rest = body
    return [_at(stmt.subject, ast.Assign([ast.Name(subject, ast.Store())], stmt.subject)), *rest]


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


def _renamed(guard: ast.expr, names: Sequence[str], subject: str) -> ast.expr:
    """Return a guard, which is asked before the names are set, about the subject itself."""
    for node in ast.walk(guard):
        if isinstance(node, ast.Name) and node.id in names:
            node.id = subject
    return guard


def _at(place: ast.AST, made: _Node) -> _Node:
    """Return a new node, with all in it that has no place, where another one stands."""
    for node in ast.walk(made):
        if not hasattr(node, "lineno") and "lineno" in node._attributes:
            ast.copy_location(node, place)
    return made
