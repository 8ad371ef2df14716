"""Rules that hold in real arithmetic only, applied where a kernel asks for `fastmath`.

They may change rounding, signs of zeros, and what happens with NaN and infinity.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from weft.ir import expr as ex
from weft.ir.bounds import Env
from weft.ir.expr import Expr
from weft.ir.op import Op, Operation
from weft.ir.rewriting.pattern import P, absolute, mad, op
from weft.ir.rewriting.rewrite import FASTMATH, Rule, RuleSet, rewrite
from weft.rules.algebra import ALGEBRA
from weft.rules.fold import fold

x, y, z = P.var("x", "f"), P.var("y", "f"), P.var("z", "f")
c1, c2 = P.const("a", "f"), P.const("b", "f")


def _folded(operation: Operation, a: Expr, b: Expr) -> Expr | None:
    return fold(ex.binary(operation, a, b))


def _add_consts(x: Expr, a: Expr, b: Expr) -> Expr | None:
    total = _folded(Op.ADD, a, b)
    return None if total is None else ex.binary(Op.ADD, x, total)


def _mul_consts(x: Expr, a: Expr, b: Expr) -> Expr | None:
    total = _folded(Op.MUL, a, b)
    return None if total is None else ex.binary(Op.MUL, x, total)


def _by_inverse(x: Expr, a: Expr) -> Expr | None:
    inverse = _folded(Op.DIV, ex.const(1.0, a.dtype, a.lanes), a)
    return None if inverse is None or a.attr == 0 else ex.binary(Op.MUL, x, inverse)


RULES: Final = (
    Rule("add_zero", x + 0.0, x, FASTMATH),  # x + 0 -> x
    Rule("zero_sub", 0.0 - x, -x, FASTMATH),  # 0 - x -> -x
    Rule("mul_zero", x * 0.0, P.value(0.0), FASTMATH),  # x * 0 -> 0
    Rule("sub_same", x - x, P.value(0.0), FASTMATH),  # x - x -> 0
    Rule("div_same", x / x, P.value(1.0), FASTMATH),  # x / x -> 1
    Rule("add_consts", (x + c1) + c2, _add_consts, FASTMATH),  # (x + 1) + 2 -> x + 3
    Rule("mul_consts", (x * c1) * c2, _mul_consts, FASTMATH),  # (x * 2) * 3 -> x * 6
    Rule("div_const", x / c1, _by_inverse, FASTMATH),  # x / 3 -> x * (1 / 3)
    Rule("factor", x * y + x * z, x * (y + z), FASTMATH),  # x * y + x * z -> x * (y + z)
    Rule("fuse_add", x * y + z, mad(x, y, z), FASTMATH),  # x * y + z -> mad(x, y, z)
    Rule("fuse_sub", x * y - z, mad(x, y, -z), FASTMATH),  # x * y - z -> mad(x, y, -z)
    Rule("fuse_sub_from", z - x * y, mad(-x, y, z), FASTMATH),  # z - x * y -> mad(-x, y, z)
    Rule("sqrt_square", op(Op.SQRT, x * x), absolute(x), FASTMATH),  # sqrt(x * x) -> abs(x)
    Rule("square_sqrt", op(Op.SQRT, x) * op(Op.SQRT, x), x, FASTMATH),  # sqrt(x)**2 -> x
    Rule("inverse_sqrt", 1.0 / op(Op.SQRT, x), op(Op.RSQRT, x), FASTMATH),  # -> rsqrt(x)
    Rule("log_exp", op(Op.LOG, op(Op.EXP, x)), x, FASTMATH),  # log(exp(x)) -> x
    Rule("exp_log", op(Op.EXP, op(Op.LOG, x)), x, FASTMATH),  # exp(log(x)) -> x
)
FAST: Final = ALGEBRA + RuleSet(RULES)


def simplify(roots: Iterable[Expr], env: Env | None = None) -> list[Expr]:
    """Return `roots` simplified by the exact rules and those of this file."""
    return rewrite(roots, FAST, env)
