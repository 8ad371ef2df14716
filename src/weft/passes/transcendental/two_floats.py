"""Arithmetic with numbers in two floats: a value, and what it lost when it was rounded.

Ref: Dekker, "A floating-point technique for extending the available precision", 1971. Products
take a fused multiply-add.
"""

from weft.ir.expr import Expr, mad

Pair = tuple[Expr, Expr]


def two_sum(a: Expr, b: Expr) -> Pair:
    """Return ``a + b`` and its rounding error, whichever is larger (Knuth)."""
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)


def two_product(a: Expr, b: Expr) -> Pair:
    """Return ``a * b`` and its rounding error, unless that is below the smallest subnormal."""
    product = a * b
    return product, mad(a, b, -product)
