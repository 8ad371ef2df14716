"""Functions of each element: roots, exponentials, trigonometry, rounding, activations."""

from __future__ import annotations

import math
from typing import Final, Self

from weft.errors import RangeError, ShapeError
from weft.ir import dtype as dt
from weft.ir import infer
from weft.ir.op import Op, Operation
from weft.tensors.core import views
from weft.tensors.core.arguments import count_of, describe, number
from weft.tensors.core.promotion import result_dtype
from weft.tensors.core.runtime_scalars import comparable
from weft.tensors.core.tensor_value import Scalar
from weft.tensors.core.thread_state import state
from weft.tensors.docs.documented import documented
from weft.tensors.docs.elementwise_sections import ELEMENTWISE
from weft.tensors.ops.arithmetic import as_operand, float_kind
from weft.tensors.ops.operators import Operators

__all__ = ["Elementwise"]

_VANISHED: Final = 87.0  # behind it e to the minus that is subnormal, and slow to compute with


class Elementwise(Operators):
    """Methods that map each element by itself."""

    __slots__ = ()

    def sqrt(self) -> Self:
        """Return the square root of each element; NaN for negative ones."""
        return self._unary(Op.SQRT, "sqrt")

    def rsqrt(self) -> Self:
        """Return ``1 / sqrt(self)`` of each element."""
        return self._unary(Op.RSQRT, "rsqrt")

    def reciprocal(self) -> Self:
        """Return ``1 / self``."""
        return self._unary(Op.RECIPROCAL, "reciprocal")

    def exp(self) -> Self:
        """Return e to the power of each element."""
        return self._unary(Op.EXP, "exp")

    def exp2(self) -> Self:
        """Return 2 to the power of each element."""
        return self._unary(Op.EXP2, "exp2")

    def expm1(self) -> Self:
        """Return ``exp(self) - 1``, exact near 0."""
        return self._unary(Op.EXPM1, "expm1")

    def log(self) -> Self:
        """Return the natural logarithm of each element; NaN for negative ones."""
        return self._unary(Op.LOG, "log")

    def log2(self) -> Self:
        """Return the logarithm to base 2 of each element."""
        return self._unary(Op.LOG2, "log2")

    def log10(self) -> Self:
        """Return the logarithm to base 10 of each element."""
        return self._unary(Op.LOG10, "log10")

    def log1p(self) -> Self:
        """Return ``log(1 + self)``, exact near 0."""
        return self._unary(Op.LOG1P, "log1p")

    def sin(self) -> Self:
        """Return the sine of each element, an angle in radians."""
        return self._unary(Op.SIN, "sin")

    def cos(self) -> Self:
        """Return the cosine of each element, an angle in radians."""
        return self._unary(Op.COS, "cos")

    def tan(self) -> Self:
        """Return the tangent of each element, an angle in radians."""
        return self._unary(Op.TAN, "tan")

    def asin(self) -> Self:
        """Return the arc sine of each element, in radians; NaN outside of -1 to 1."""
        return self._unary(Op.ASIN, "asin")

    def acos(self) -> Self:
        """Return the arc cosine of each element, in radians; NaN outside of -1 to 1."""
        return self._unary(Op.ACOS, "acos")

    def atan(self) -> Self:
        """Return the arc tangent of each element, in radians."""
        return self._unary(Op.ATAN, "atan")

    def sinh(self) -> Self:
        """Return the hyperbolic sine of each element."""
        return self._unary(Op.SINH, "sinh")

    def cosh(self) -> Self:
        """Return the hyperbolic cosine of each element."""
        return self._unary(Op.COSH, "cosh")

    def tanh(self) -> Self:
        """Return the hyperbolic tangent of each element."""
        return self._unary(Op.TANH, "tanh")

    def asinh(self) -> Self:
        """Return the inverse hyperbolic sine of each element."""
        return self._unary(Op.ASINH, "asinh")

    def acosh(self) -> Self:
        """Return the inverse hyperbolic cosine of each element; NaN below 1."""
        return self._unary(Op.ACOSH, "acosh")

    def atanh(self) -> Self:
        """Return the inverse hyperbolic tangent of each element; NaN outside of -1 to 1."""
        return self._unary(Op.ATANH, "atanh")

    def erf(self) -> Self:
        """Return the error function of each element."""
        return self._unary(Op.ERF, "erf")

    def erfc(self) -> Self:
        """Return ``1 - erf(self)``, exact for large elements."""
        return self._unary(Op.ERFC, "erfc")

    def floor(self) -> Self:
        """Return the largest integer not above each element."""
        return self._rounded(Op.FLOOR)

    def ceil(self) -> Self:
        """Return the smallest integer not below each element."""
        return self._rounded(Op.CEIL)

    def trunc(self) -> Self:
        """Return the elements without their fractions."""
        return self._rounded(Op.TRUNC)

    def round(self, decimals: Scalar = 0) -> Self:
        """Return the nearest integers, halves to even (or to a number of decimals)."""
        if decimals and self.dtype.is_float:
            scale = 10.0 ** count_of(decimals, "round", -300, 300)
            return self.mul(scale).round().div(scale)
        return self._rounded(Op.ROUND)

    def _rounded(self, op: Operation) -> Self:
        return self._unary(op, op.name) if self.dtype.is_float else self.clone()

    def frac(self) -> Self:
        """Return the fractions, with the sign of the elements."""
        return self.sub(self.trunc())

    def deg2rad(self) -> Self:
        """Return degrees as radians."""
        return self.mul(math.pi / 180)

    def rad2deg(self) -> Self:
        """Return radians as degrees."""
        return self.mul(180 / math.pi)

    def logaddexp(self, other: object) -> Self:
        """Return ``log(exp(self) + exp(other))`` without overflow."""
        first, second, out = self._mixed(other)
        top = first.maximum(second)
        infinite = top.abs().eq(math.inf)
        first, second, safe = (infinite.where(0.0, x) for x in (first, second, top))
        safe = safe.detach()
        a, b = first.sub(safe).exp(), second.sub(safe).exp()
        total = a.add(b)
        # One of the two is 1: what their sum loses counts in its logarithm.
        lost = a.minimum(b).sub(total.sub(1.0)).div(total).detach()
        return infinite.where(top, total.log().add(lost).add(safe)).astype(out)

    # activations

    def sigmoid(self) -> Self:
        """Return ``1 / (1 + exp(-self))``."""
        return self._unary(Op.SIGMOID, "sigmoid")

    def relu(self) -> Self:
        """Return the elements, 0 where negative."""
        return self.le(0).where(0, self)

    def relu6(self) -> Self:
        """Return the elements limited to 0 and 6; the slope at both is 0."""
        return self.hardtanh(0, 6)

    def leaky_relu(self, negative_slope: Scalar = 0.01) -> Self:
        """Return the elements, times `negative_slope` where negative."""
        return self.gt(0).where(self, self.mul(negative_slope))

    def prelu(self, weight: object) -> Self:
        """Return the elements, times `weight` where negative; a vector has one for each channel.

        Channels are axis 1, as in PyTorch; a weight of several axes broadcasts.
        """
        factor = as_operand(self, weight)
        rank = len(self.shape)
        if len(factor.shape) == 1 and rank > 1 and not infer.same_dim(factor.shape[0], 1):
            if not infer.same_dim(factor.shape[0], self.shape[1]):
                raise ShapeError("prelu", found=f"{factor.shape[0]} weights for {self.shape}",
                                 expected="one, or one for each channel of axis 1")
            factor = factor._view(views.Reshape((1, factor.shape[0], *(1,) * (rank - 2))))
        return self.gt(0).where(self, self.mul(factor))

    def elu(self, alpha: Scalar = 1.0) -> Self:
        """Return ``alpha * (exp(self) - 1)`` where negative, else the elements."""
        return self._computed()._elu(alpha).astype(float_kind(self.dtype))

    def _elu(self, alpha: Scalar, scale: Scalar = 1.0) -> Self:
        alpha = number(alpha, "elu")
        above = self if scale == 1.0 else self.mul(scale)
        below = self.gt(0).where(0, self).expm1()
        return self.gt(0).where(above, below.mul(alpha * scale))

    def selu(self) -> Self:
        """Return ``1.0507 * elu(self, 1.6733)``, the self-normalising ELU."""
        scaled = self._computed()._elu(1.6732632423543772, 1.0507009873554805)
        return scaled.astype(float_kind(self.dtype))

    def celu(self, alpha: Scalar = 1.0) -> Self:
        """Return ``alpha * (exp(self / alpha) - 1)`` where negative, else the elements."""
        x = self._computed()
        out = x.maximum(0).add(x.div(alpha).minimum(0).expm1().mul(alpha))
        return out.astype(float_kind(self.dtype))

    def gelu(self, approximate: str = "none") -> Self:
        """Return ``x * Phi(x)``; `approximate` is ``none`` (erf) or ``tanh``."""
        if approximate not in ("none", "tanh"):
            raise RangeError("gelu", found=f"approximate={describe(approximate)}",
                             expected="'none' or 'tanh'")
        x = self._computed()
        if approximate == "tanh":
            # (1 + tanh(u)) / 2 is sigmoid(2 * u), which loses nothing where tanh(u) is almost -1,
            # taken on the side where it is small, from which its slope is exact, too
            scale = 2 * math.sqrt(2 / math.pi)
            y = x.mul(scale)  # slopes of all powers are summed before they meet that of the product
            twice = y.mul(y.mul(y).mul(0.044715 / scale**2).add(1.0))
            size = twice._sided(twice.abs(), twice, twice.neg())
            small = size.gt(_VANISHED).where(0.0, size.minimum(_VANISHED).neg().sigmoid())
            out = x.mul(twice.gt(0).where(small.neg().add(1.0), small))
        else:
            out = x.mul(0.5).mul(x.mul(math.sqrt(0.5)).erf().add(1.0))
        return out.astype(float_kind(self.dtype))

    def silu(self) -> Self:
        """Return ``x * sigmoid(x)`` (swish)."""
        x = self._computed()
        return x.mul(x.sigmoid()).astype(float_kind(self.dtype))

    def mish(self) -> Self:
        """Return ``x * tanh(softplus(x))``."""
        x = self._computed()
        return x.mul(x.softplus().tanh()).astype(float_kind(self.dtype))

    def softplus(self, beta: Scalar = 1.0, threshold: Scalar = 20.0) -> Self:
        """Return ``log(1 + exp(beta * x)) / beta``, `x` itself above the threshold."""
        x = self._computed()
        scaled = x.mul(beta)
        above = scaled.gt(threshold)
        soft = above.where(0, scaled).exp().log1p().div(beta)
        return above.where(x, soft).astype(float_kind(self.dtype))

    def _sided(self, value: Self, above: Self | Scalar, below: Self) -> Self:
        """Return `value`, which is `above` for positive elements and `below` for others.

        At 0 it has the slopes of `below`, of all orders. Where a smooth function is computed from
        parts that have a kink there, all of its derivatives are right if each part takes one side.
        """
        if not (state.grad and self._requires_grad):
            return value
        recorded = self.gt(0).where(above, below)
        return self._wrap(infer.overwritten(value._read(), recorded._read()), self)

    def logsigmoid(self) -> Self:
        """Return ``log(sigmoid(x))`` without overflow."""
        x = self._computed()
        size = x._sided(x.abs(), x, x.neg())
        low = x._sided(x.minimum(0), 0.0, x)
        return low.sub(size.neg().exp().log1p()).astype(float_kind(self.dtype))

    def softsign(self) -> Self:
        """Return ``x / (1 + |x|)``."""
        x = self._computed()
        return x.div(x.abs().add(1)).astype(float_kind(self.dtype))

    def tanhshrink(self) -> Self:
        """Return ``x - tanh(x)``."""
        x = self._computed()
        return x.sub(x.tanh()).astype(float_kind(self.dtype))

    def hardtanh(self, min_val: Scalar = -1.0, max_val: Scalar = 1.0) -> Self:
        """Return the elements limited to an interval; the slope at its ends is 0."""
        if self.dtype.is_integer and min_val == int(min_val) and max_val == int(max_val):
            return self.clamp(int(min_val), int(max_val))
        return self.le(min_val).where(min_val, self.ge(max_val).where(max_val, self))

    def hardsigmoid(self) -> Self:
        """Return ``relu6(x + 3) / 6``."""
        return self._computed().add(3).relu6().div(6).astype(float_kind(self.dtype))

    def hardswish(self) -> Self:
        """Return ``x * relu6(x + 3) / 6``."""
        x = self._computed()
        return x.mul(x.add(3).relu6()).div(6).astype(float_kind(self.dtype))

    def _computed(self) -> Self:
        """Return the elements in the type that a composite computes in."""
        return self.astype(dt.compute_dtype(float_kind(self.dtype)))

    def _mixed(self, other: object) -> tuple[Self, Self, dt.DType]:
        """Return two operands in the type that a composite computes in, and the result's type."""
        second = as_operand(self, other)
        out = float_kind(result_dtype(self, second))
        inside = dt.compute_dtype(out)
        return self.astype(inside), second.astype(inside), out

    # mixtures

    def hypot(self, other: object) -> Self:
        """Return ``sqrt(self**2 + other**2)``, also where the squares are out of range."""
        first, second, out = self._mixed(other)
        infinite = first.isinf().logical_or(second.isinf())  # also beside NaN, as in IEEE 754
        top = first.abs().maximum(second.abs()).detach()
        limit, step = (2.0**480, 2.0**600) if top.dtype is dt.float64 else (2.0**60, 2.0**80)
        near = top.isnan().where(top, 1.0)
        large, small = top.gt(limit), top.lt(1 / limit)
        scale = large.where(1 / step, small.where(step, near))
        first, second = first.mul(scale), second.mul(scale)
        a, b = first.mul(first), second.mul(second)
        root = a.add(b).sqrt()
        if out is root.dtype:
            root = root.add(root.detach()._lost_by_root(first.detach(), second.detach()))
        root = root.mul(large.where(step, small.where(1 / step, near)))
        return infinite.where(math.inf, root).astype(out)

    def _lost_by_root(self, x: Self, y: Self) -> Self:
        """Return what this root of ``x**2 + y**2`` lost by its roundings.

        The squares, their sum (Dekker, 1971) and the root leave remainders that are exact; to first
        order the root is off by their sum over twice the root.
        """
        a, b = x.mul(x), y.mul(y)
        larger, total = a.maximum(b), a.add(b)
        rest = a.minimum(b).sub(total.sub(larger)).add(x._mad(x, a.neg())).add(y._mad(y, b.neg()))
        lost = self._mad(self.neg(), total).add(rest).div(self.add(self))
        return self.gt(0.0).logical_and(self.lt(math.inf)).where(lost, 0.0)

    def lerp(self, end: object, weight: object) -> Self:
        """Return ``self + weight * (end - self)``."""
        return self.add(as_operand(self, end).sub(self).mul(weight))

    def addcmul(self, a: object, b: object, *, value: Scalar = 1) -> Self:
        """Return ``self + value * a * b``."""
        return self.add(as_operand(self, a).mul(b), alpha=value)

    def addcdiv(self, a: object, b: object, *, value: Scalar = 1) -> Self:
        """Return ``self + value * a / b``."""
        return self.add(as_operand(self, a).div(b), alpha=value)

    def fmax(self, other: object) -> Self:
        """Return the larger of two elements; a NaN loses to a number.

        The gradient of two that are equal is the first one's.
        """
        second = as_operand(self, other)
        return self.ge(second).logical_or(second.isnan()).where(self, second)

    def fmin(self, other: object) -> Self:
        """Return the smaller of two elements; a NaN loses to a number.

        The gradient of two that are equal is the first one's.
        """
        second = as_operand(self, other)
        return self.le(second).logical_or(second.isnan()).where(self, second)

    # limits

    def clamp(self, min: object = None, max: object = None) -> Self:
        """Return the elements limited to `min` and `max`.

        A whole number below all that integers of the tensor's type can be limits nothing as `min`,
        and one above them as `max`.
        """
        out = self
        if self.dtype.is_integer:
            lowest, highest = self.dtype.min, self.dtype.max
            min = None if isinstance(min, int) and min <= lowest else min
            max = None if isinstance(max, int) and max >= highest else max
            for limit in (min, max):
                if isinstance(limit, int):
                    dt.check_value(limit, self.dtype, "clamp")
        if min is not None:
            known = comparable(min) if _is_scalar(min) else None
            out = out._limited(min, True) if known is None else out.lt(known).where(known, out)
        if max is not None:
            known = comparable(max) if _is_scalar(max) else None
            out = out._limited(max, False) if known is None else out.gt(known).where(known, out)
        return self.clone() if out is self else out

    def _limited(self, limit: object, below: bool) -> Self:
        """Return the elements limited by a tensor; the gradient of equals is the element's."""
        bound = as_operand(self, limit)
        if not ((self._requires_grad or bound._requires_grad) and state.grad):
            return self.maximum(limit) if below else self.minimum(limit)
        inside = self.ge(bound) if below else self.le(bound)
        return inside.logical_or(self.isnan()).where(self, bound)

    def clip(self, min: object = None, max: object = None) -> Self:
        """Return the elements limited to `min` and `max`."""
        return self.clamp(min, max)

    def clamp_min(self, min: object) -> Self:
        """Return the elements, at least `min`."""
        return self.clamp(min)

    def clamp_max(self, max: object) -> Self:
        """Return the elements, at most `max`."""
        return self.clamp(None, max)

    def nan_to_num(self, nan: Scalar = 0.0, posinf: Scalar | None = None,
                   neginf: Scalar | None = None) -> Self:  # fmt: skip
        """Return the elements with NaN and infinities replaced by numbers."""
        if not self.dtype.is_float:
            return self.clone()
        top = (2.0 - 2.0**-self.dtype.mantissa) * 2.0 ** ((1 << (self.dtype.exponent - 1)) - 1)
        out = self.masked_fill(self.isnan(), nan)
        out = out.masked_fill(self.eq(math.inf), top if posinf is None else posinf)
        return out.masked_fill(self.eq(-math.inf), -top if neginf is None else neginf)


documented(Elementwise, ELEMENTWISE)


def _is_scalar(value: object) -> bool:
    return isinstance(value, (int, float))
