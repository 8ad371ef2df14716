"""Expressions of which a part is evaluated: ``and``, ``or`` and ``a if test else b``."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from weft.frontend.kernel.emitter import conjuncts, negation
from weft.frontend.kernel.values import Known, Value
from weft.ir import dtype as dt
from weft.ir import expr as ex
from weft.ir.expr import Expr
from weft.ir.op import Op
from weft.ir.stmt import If, Stmt, Store

if TYPE_CHECKING:
    from weft.frontend.kernel.expressions import Expressions

__all__ = ["both", "either", "joined", "side"]


def both(c: Expressions, node: ast.BoolOp, asked: bool = False) -> Value:
    """Evaluate ``and`` and ``or``: what follows is evaluated only where it counts.

    The value is that of an operand, or a bool where no more is asked for.
    """
    is_and = isinstance(node.op, ast.And)
    left = side(c, node.values[0], asked)
    for following in node.values[1:]:
        test = c.truth(left, node)
        if not isinstance(test, bool):
            left = _second(c, left, test, following, is_and, node, asked)
        elif test == is_and:
            left = side(c, following, asked)
        else:
            break
    return left


def side(c: Expressions, node: ast.expr, asked: bool) -> Value:
    """Evaluate an operand; only its truth if no more is asked for."""
    found = c.condition(node) if asked else c.visit(node)
    return Known(found) if isinstance(found, bool) else found


def _second(c: Expressions, left: Value, test: Expr, following: ast.expr, is_and: bool,
            node: ast.AST, asked: bool) -> Value:  # fmt: skip
    holds = test if is_and else negation(test)
    with c.into(conjuncts(holds)) as body:
        right = side(c, following, asked)
    if not (_is_bool(left) and _is_bool(right)):
        return c.select(holds, right, body, left, [], node)
    return joined(c, test, body, c.scalar(right, following), is_and, node)


def joined(c: Expressions, test: Expr, body: list[Stmt], more: Expr, is_and: bool,
           node: ast.AST) -> Expr:  # fmt: skip
    """Return ``test and more``, or ``or``: the body computes `more`, where it counts."""
    op = Op.AND if is_and else Op.OR
    holds = test if is_and else negation(test)
    if not body:
        return ex.binary(op, test, more)
    cell = c.cell("both", dt.bool_, node)
    c.put(cell, ex.const(not is_and, dt.bool_), node)
    stored = Store(cell, (), more)
    c.locations[stored] = c.source.place(node)
    c.emit(If(holds, (*body, stored)), node)
    return c.get(cell, "both", node)


def either(c: Expressions, node: ast.IfExp) -> Value:
    """Evaluate ``a if test else b``."""
    test = c.condition(node.test)
    if isinstance(test, bool):
        return c.visit(node.body if test else node.orelse)
    with c.into(conjuncts(test)) as then:
        a = c.visit(node.body)
    with c.into(conjuncts(negation(test))) as orelse:
        b = c.visit(node.orelse)
    return c.select(test, a, then, b, orelse, node)


def _is_bool(value: Value) -> bool:
    known = isinstance(value, Known) and isinstance(value.value, bool)
    return known or (isinstance(value, Expr) and value.dtype.is_bool)
