"""While loops that are known to end, by how they are written.

A name that a test bounds goes towards the bound in every turn: ``while i < n: ...; i += 2``,
``while half > 0: ...; half //= 2``. Of any other loop an interrupt has to be able to stop it.
"""

from __future__ import annotations

import ast
from typing import Final

from weft.lang.source import liveness

__all__ = ["ends"]

_UP, _DOWN = (ast.Lt, ast.LtE), (ast.Gt, ast.GtE)
_SIZES: Final = frozenset({"gridsize", "gridDim", "blockDim", "grid_dim", "block_dim"})
_SHAPES: Final = frozenset({"size", "shape", "ndim"})


def ends(node: ast.While) -> bool:
    """Whether a loop ends after some turns, whatever the values are.

    Parameters
    ----------
    node
        The loop. It need not be shown to be short: one over 2**60 turns is known to end.
    """
    tests = node.test.values if isinstance(node.test, ast.BoolOp) and isinstance(
        node.test.op, ast.And) else [node.test]
    return any(_is_bound(test, node) for test in tests)


def _is_bound(test: ast.expr, node: ast.While) -> bool:
    """Whether a test bounds a name that goes towards the bound in every turn."""
    if not isinstance(test, ast.Compare) or len(test.ops) != 1:
        return False
    left, op, right = test.left, test.ops[0], test.comparators[0]
    if not isinstance(op, _UP + _DOWN):
        return False
    up, strict = isinstance(op, _UP), isinstance(op, ast.Lt | ast.Gt)
    return _reaches(left, right, up, strict, node) or _reaches(right, left, not up, strict, node)


def _reaches(name: ast.expr, bound: ast.expr, up: bool, strict: bool, node: ast.While) -> bool:
    if not isinstance(name, ast.Name) or not _stays(bound, node):
        return False
    steps = [s for s in node.body if name.id in liveness.assigned([s])]
    if len(steps) != 1 or not isinstance(steps[0], ast.AugAssign):
        return False
    before = node.body[:node.body.index(steps[0])]
    if any(isinstance(n, ast.Continue) for s in before for n in liveness.walk(s)):
        return False
    op, by = steps[0].op, steps[0].value
    if up:
        return isinstance(op, ast.Add) and _is_positive(by)
    if isinstance(op, ast.Sub):
        return _is_positive(by)
    number = bound.value if isinstance(bound, ast.Constant) else None
    least = 1 if isinstance(op, ast.RShift) else 2
    return (isinstance(op, ast.FloorDiv | ast.RShift) and isinstance(number, int) and number >= 0
            and isinstance(by, ast.Constant) and isinstance(by.value, int) and by.value >= least
            and (number > 0 or strict))


def _stays(bound: ast.expr, node: ast.While) -> bool:
    """Whether a bound is the same in all turns: of names that none sets, and of sizes of arrays."""
    if liveness.loaded([bound]) & liveness.assigned(node.body):
        return False
    inside = [n for n in ast.walk(bound) if isinstance(n, ast.Subscript | ast.Call | ast.Attribute)]
    return all(isinstance(n, ast.Subscript) or _is_size(n) for n in inside) and not any(
        isinstance(n, ast.Subscript) and not (
            isinstance(n.value, ast.Attribute) and n.value.attr == "shape") for n in inside)


def _is_size(node: ast.AST) -> bool:
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Name) and node.func.id == "len"
    return isinstance(node, ast.Attribute) and node.attr in _SHAPES


def _is_positive(step: ast.expr) -> bool:
    """Whether a number is above 0: a literal, a size of the launch, products of those."""
    if isinstance(step, ast.Constant):
        return isinstance(step.value, int) and step.value > 0
    if isinstance(step, ast.BinOp) and isinstance(step.op, ast.Mult | ast.Add):
        return _is_positive(step.left) and _is_positive(step.right)
    if isinstance(step, ast.Call):
        return isinstance(step.func, ast.Attribute) and step.func.attr in _SIZES
    return isinstance(step, ast.Attribute) and isinstance(step.value, ast.Attribute) and (
        step.value.attr in _SIZES)
