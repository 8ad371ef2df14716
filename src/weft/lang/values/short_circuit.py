"""Expressions of which a part is evaluated: ``and``, ``or``, comparisons, ``a if test else b``."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from weft.ir import dtype as dt
from weft.ir import expr as ex
from weft.ir.expr import Expr
from weft.ir.op import Op
from weft.ir.stmt import If, Stmt, Store
from weft.lang.core import operators, scalars, sliding_view
from weft.lang.core.emitter import conjuncts, negation
from weft.lang.core.promotion import unify
from weft.lang.core.values import Group, Known, Value, Wrong, describe
from weft.lang.source import liveness
from weft.lang.values.unify import agreed

if TYPE_CHECKING:
    from weft.lang.core.context import Context

__all__ = ["both", "comparison", "either", "joined", "select", "unary"]


def both(c: Context, node: ast.BoolOp, asked: bool = False) -> Value:
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


def side(c: Context, node: ast.expr, asked: bool) -> Value:
    """Evaluate an operand; only its truth if no more is asked for."""
    found = c.condition(node) if asked else c.visit(node)
    return Known(found) if isinstance(found, bool) else found


def unary(c: Context, node: ast.UnaryOp) -> Value:
    """Evaluate an operator in front of its operand."""
    asked = isinstance(node.op, ast.Not) and isinstance(node.operand, ast.BoolOp)
    return operators.negated(c, type(node.op), side(c, node.operand, asked), node)


def comparison(c: Context, node: ast.Compare) -> Value:
    """Evaluate comparisons, of which each is evaluated only where the ones before it hold."""
    return _chain(c, c.visit(node.left), 0, node)


def _chain(c: Context, left: Value, position: int, node: ast.Compare) -> Value:
    right = c.visit(node.comparators[position])
    one = operators.compare(c, type(node.ops[position]), left, right, node)
    if position == len(node.ops) - 1:
        return one
    test = c.truth(one, node)
    if isinstance(test, bool):
        return _chain(c, right, position + 1, node) if test else one
    with c.into(conjuncts(test)) as body:
        more = _chain(c, right, position + 1, node)
    return joined(c, test, body, c.scalar(more, node), True, node)


def _second(c: Context, left: Value, test: Expr, following: ast.expr, is_and: bool,
            node: ast.AST, asked: bool) -> Value:  # fmt: skip
    holds = test if is_and else negation(test)
    if liveness.walrus([following]):
        return _naming(c, holds, lambda: side(c, following, asked), lambda: left, following, node)
    with c.into(conjuncts(holds)) as body:
        right = side(c, following, asked)
    if not (_is_bool(left) and _is_bool(right)):
        return c.select(holds, right, body, left, [], node)
    return joined(c, test, body, c.scalar(right, following), is_and, node)


def joined(c: Context, test: Expr, body: list[Stmt], more: Expr, is_and: bool,
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


def either(c: Context, node: ast.IfExp) -> Value:
    """Evaluate ``a if test else b``."""
    test = c.condition(node.test)
    if isinstance(test, bool):
        return c.visit(node.body if test else node.orelse)
    if liveness.walrus([node.body, node.orelse]):
        return _naming(c, test, lambda: c.visit(node.body), lambda: c.visit(node.orelse), node,
                       node)
    with c.into(conjuncts(test)) as then:
        a = c.visit(node.body)
    with c.into(conjuncts(negation(test))) as orelse:
        b = c.visit(node.orelse)
    return c.select(test, a, then, b, orelse, node)


def _naming(c: Context, test: Expr, then: Callable[[], Value], orelse: Callable[[], Value],
            operands: ast.expr, node: ast.AST) -> Value:  # fmt: skip
    """Return one of two values whose expressions set names: those meet behind them."""
    meeting = c
    value = ":="  # no name of a program

    def read(operand: Callable[[], Value]) -> Callable[[], int]:
        def branch() -> int:
            found = operand()
            c.env[value] = found
            return 0

        return branch

    meeting.after.append(liveness.walrus([operands]) | {value})
    try:
        meeting.branches(test, read(then), read(orelse), node)
    finally:
        meeting.after.pop()
    if value not in c.env:
        raise c.wrong(node, f"expected values of one kind, found {c.unlike.get(value, 'others')}")
    found: Value = c.opened(c.env.pop(value), "choice", node)
    return found


def select(c: Context, test: Expr, a: Value, then: list[Any], b: Value, orelse: list[Any],
           node: ast.AST) -> Value:  # fmt: skip
    """Return one of two values, each of which may need statements of its own."""
    pairs: list[tuple[Expr, Expr]] = []
    made = _paired(c, a, then, b, orelse, pairs, node)
    if not then and not orelse:
        return made(iter([ex.where(test, x, y) for x, y in pairs]))
    cells = [c.cell("choice", x.dtype, node) for x, _ in pairs]
    sides = [[Store(cell, (), pair[k]) for cell, pair in zip(cells, pairs, strict=True)]
             for k in range(2)]
    for stored in (*sides[0], *sides[1]):
        c.locations[stored] = c.source.place(node)
    c.emit(If(test, (*then, *sides[0]), (*orelse, *sides[1])), node)
    return made(iter([c.get(cell, "choice", node) for cell in cells]))


def _paired(c: Context, a: Value, then: list[Any], b: Value, orelse: list[Any],
            pairs: list[tuple[Expr, Expr]],
            node: ast.AST) -> Callable[[Iterator[Expr]], Value]:  # fmt: skip
    """Note the numbers of two values side by side; return what makes a value of such numbers."""
    first, second = agreed(c, [a, b], node, (then, orelse))
    if isinstance(first, Known) and isinstance(second, Known) and (
        (first.value is second.value and c.known_scalar(first.value) is None)
        or (type(first.value) is type(second.value) is int and first.value == second.value)
    ):
        return lambda _: first
    grouped = isinstance(first, Group), isinstance(second, Group)
    if any(grouped) and not isinstance(a, Wrong) and not isinstance(b, Wrong) and (
        not all(grouped) or first.kind is not second.kind or len(first.items) != len(second.items)
    ):
        raise c.wrong(node, f"expected values of one kind, found {describe(a)} or {describe(b)}",
                      "numbers change their type; tuples keep their length and their class")
    if not isinstance(first, Group):
        p, q = c.alike([first, second], True)
        x, y = c.scalar(p, node), c.scalar(q, node)
        d = unify(x.dtype, y.dtype)
        pairs.append((scalars.convert(x, d), scalars.convert(y, d)))
        return next
    parts = [_paired(c, p, then, q, orelse, pairs, node)
             for p, q in zip(first.items, second.items, strict=True)]

    def group(found: Iterator[Expr]) -> Value:
        items = tuple(part(found) for part in parts)
        made: Value = sliding_view.as_view(first.replace(items=items))
        return made

    return group


def _is_bool(value: Value) -> bool:
    known = isinstance(value, Known) and isinstance(value.value, bool)
    return known or (isinstance(value, Expr) and value.dtype.is_bool)
