"""The identities of `weft.rules.algebra`, applied to elementwise nodes.

A rule matches nodes as it matches scalar expressions; constants are expanded 0-d constants. What
it makes is built on scalar stand-ins by the rule itself and read back as nodes, so that each
identity, and when it is valid, is written once.
"""

from __future__ import annotations

import functools
from collections.abc import Container
from math import copysign
from typing import Final

from weft.graph.movement import constant, expand
from weft.ir import expr as ex
from weft.ir import infer
from weft.ir import node as nd
from weft.ir.bounds import Ranges
from weft.ir.dtype import DType
from weft.ir.expr import Expr, Scalar
from weft.ir.node import Node, Shape
from weft.ir.op import Op, Operation
from weft.ir.rewriting.pattern import Pattern, build
from weft.ir.rewriting.rewrite import RANGE, Rule
from weft.rules.algebra import ALGEBRA

Match = dict[str, Node]


def _root_kinds(pattern: Pattern) -> str:
    """Return the dtype kinds of operands for which a pattern can match."""
    kinds = pattern.kinds
    for part in pattern.args:
        if part.value is not None or (pattern.op is Op.WHERE and part is pattern.args[0]):
            continue
        found = part.kinds if not part.args else _root_kinds(part)
        if part.op is None or part.op.result == "same":
            kinds = "".join(k for k in kinds if k in found)
    return kinds


def _child_ops(pattern: Pattern) -> frozenset[Operation]:
    """Return the operations that some operand must have for the pattern to match."""
    return frozenset(p.op for p in pattern.args if p.op is not None)


def _indexed() -> dict[tuple[Operation, str], list[tuple[frozenset[Operation], Rule]]]:
    table: dict[tuple[Operation, str], list[tuple[frozenset[Operation], Rule]]] = {}
    for rule in ALGEBRA:
        op = rule.pattern.op
        if op is None or rule.valid == RANGE:
            continue
        for kind in _root_kinds(rule.pattern):
            table.setdefault((op, kind), []).append((_child_ops(rule.pattern), rule))
    return table


_RULES: Final = _indexed()


def improve(node: Node, shared: Container[Node] = ()) -> Node | None:
    """Return a node of equal value, where a rule or folding changes an elementwise node.

    Parameters
    ----------
    node : Node
        An elementwise node.
    shared : container of Node
        Values that are computed in any case, since others use them.
    """
    args = node.args
    consts = [constant(a) for a in args]
    if None not in consts or node.op.group == "convert":
        folded = _fold(node)
        if folded is not None:
            return folded
    if all([a.op is Op.EXPAND and a.args[0].ndim == 0 for a in args]):
        small = nd.make(node.op, node.dtype, (), tuple([a.args[0] for a in args]))
        return expand(small, node.shape)  # an operation on repeated scalars is done once
    rules = _RULES.get((node.op, args[-1].dtype.kind))
    if rules is None:
        return None
    ops = {Op.CONST if c is not None else a.op for a, c in zip(args, consts, strict=True)}
    for needed, rule in rules:
        if needed <= ops:
            made = _apply(rule, node)
            if made is not None and made is not node and not _reads_more(node, made, shared):
                return made
    return None


def _reads_more(node: Node, made: Node, shared: Container[Node]) -> bool:
    """Whether a choice would read an array of another choice instead, which is there in any case.

    ``v = where(inside, f(u), u)`` of which ``w = where(inside, f(v), v)`` is made: outside of the
    mask `w` is `u`, but `f` reads `v`, and `u` would be an array more that is read and kept.
    """
    return (node.op is Op.WHERE and made.op is Op.WHERE
            and any(a.op is Op.WHERE and a in shared for a in node.args)
            and any(a not in node.args and constant(a) is None for a in made.args))


def _fold(node: Node) -> Node | None:
    fold = ALGEBRA.folds.get(node.op)
    if fold is None:
        return None
    names: dict[Expr, Node] = {}
    e = _stand_in(node, names, depth=2)
    made = fold(e)
    return None if made is None or made is e else _read(made, names, node.shape)


def _stand_in(node: Node, names: dict[Expr, Node], depth: int) -> Expr:
    """Return a scalar expression for a node: its operations to a depth, names below."""
    known = constant(node)
    if known is not None:
        e = ex.make(Op.CONST, node.dtype, (), known.attr)
        names[e] = node
        return e
    if depth and node.op.is_elementwise:
        args = tuple(_stand_in(a, names, depth - 1) for a in node.args)
        return ex.make(node.op, node.dtype, args)
    name = _name(len(names), node.dtype)
    names[name] = node
    return name


@functools.cache
def _name(number: int, dtype: DType) -> Expr:
    return ex.var(f"n{number}", dtype)


def _apply(rule: Rule, node: Node) -> Node | None:
    found: Match = {}
    if not _match(rule.pattern, node, found):
        return None
    names: dict[Expr, Node] = {}
    values = {name: _stand_in(n, names, depth=0) for name, n in found.items()}
    if rule.when is not None and not rule.when(Ranges(None), values):
        return None
    if isinstance(rule.replacement, Pattern):
        made: Expr | None = build(rule.replacement, values, node.dtype, 1)
    else:
        made = rule.replacement(**values)
    return None if made is None else _read(made, names, node.shape)


def _match(pattern: Pattern, node: Node, found: Match) -> bool:
    if pattern.args:
        return node.op is pattern.op and _match_operands(pattern, node, found)
    if pattern.op is not None:
        known = constant(node)
        if known is None:
            return False
        if pattern.value is not None:
            return _is_value(known, pattern.value)
    return node.dtype.kind in pattern.kinds and found.setdefault(pattern.name, node) is node


def _is_value(known: Node, value: Scalar) -> bool:
    """Whether a constant has this value; False is no 0, and 0.0 no -0.0."""
    return bool(known.attr == value) and (
        copysign(1.0, known.attr) == copysign(1.0, value)
        and isinstance(value, bool) <= known.dtype.is_bool
    )


def _match_operands(pattern: Pattern, node: Node, found: Match) -> bool:
    args = node.args
    if not node.op.commutative:
        return _match_in_order(pattern, args, found)
    before = dict(found)
    if _match_in_order(pattern, args, found):
        return True
    found.clear()
    found.update(before)
    return _match_in_order(pattern, args[::-1], found)


def _match_in_order(pattern: Pattern, args: tuple[Node, ...], found: Match) -> bool:
    for part, arg in zip(pattern.args, args, strict=True):  # noqa: SIM110 - a hot loop
        if not _match(part, arg, found):
            return False
    return True


def _read(e: Expr, names: dict[Expr, Node], shape: Shape) -> Node:
    """Return the node that a small scalar expression over stand-ins describes."""
    known = names.get(e)
    if known is not None:
        return known
    if e.op is Op.CONST:
        return infer.full(shape, e.attr, e.dtype)
    return nd.make(e.op, e.dtype, shape, tuple(_read(a, names, shape) for a in e.args))
