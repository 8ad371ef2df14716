"""Arithmetic, comparison, logic, choice and conversion."""

from __future__ import annotations

import math
from typing import Any, Self, TypeVar, cast

from weft.errors import DTypeError, RangeError, UnsupportedError, entry_point
from weft.ir import dtype as dt
from weft.ir import infer
from weft.ir.dtype import DType
from weft.ir.node import HOST, Node
from weft.ir.op import Op, Operation
from weft.tensors.core.arguments import describe, place_of
from weft.tensors.core.devices import AUTO, place_for, together
from weft.tensors.core.lazy_tensor import TensorCore
from weft.tensors.core.promotion import binary, broadcast_shapes, result_dtype, scalar_dtype
from weft.tensors.core.runtime_scalars import constant, is_open
from weft.tensors.core.strides import Strides
from weft.tensors.core.tensor_value import Scalar
from weft.tensors.docs.documented import documented
from weft.tensors.docs.elementwise_sections import ARITHMETIC

__all__ = ["Arithmetic", "as_operand", "float_kind", "int_kind"]

T = TypeVar("T", bound="Arithmetic")


def float_kind(dtype: DType) -> DType:
    """Return the float type that a value is turned into where only floats make sense."""
    return dtype if dtype.is_float else dt.float32


def int_kind(dtype: DType) -> DType:
    """Return the type of integers that a value is computed in: bool counts as int64."""
    return dt.int64 if dtype.is_bool else dtype


def _is_device(value: object) -> bool:
    """Whether a value is a device of PyTorch."""
    return type(value).__module__ == "torch" and type(value).__name__ == "device"


class Arithmetic(Strides):
    """Methods of arithmetic, logic and comparison, with broadcasting and promotion."""

    __slots__ = ()

    def _unary(self, op: Operation, name: str, to_float: bool = True) -> Self:
        """Apply a unary op; floats of 8 bits (and integers, with `to_float`) become float32."""
        x = self._read()
        if (to_float and not x.dtype.is_float) or x.dtype.is_storage_only:
            x = infer.cast(x, dt.float32)
        if x.dtype.kind not in op.kinds:
            raise DTypeError(name, found=x.dtype.name, expected=f"a type of kind {op.kinds!r}")
        return self._wrap(infer.elementwise(op, x))

    def _scalar_like(self, value: Scalar, x: Node) -> Node:
        return infer.full(x.shape, value, x.dtype)

    # conversion

    def to(self, *args: Any, dtype: object = None, device: object = None,
           copy: bool = False) -> Self:  # fmt: skip
        """Return the tensor as another dtype or on another device, or both."""
        for arg in args:
            if isinstance(arg, TensorCore):
                dtype, device = arg.dtype, arg._home()
            elif (isinstance(arg, str) and not dt.is_name(arg)) or _is_device(arg):
                device = arg
            else:
                dtype = arg
        moved = self
        if device is not None:
            place = place_of(device, "to", "a dtype, or a device that is here") or HOST
            if place == AUTO:
                place = place_for([self._read()])
            if place != self.device:
                moved = self._wrap(infer.copy(self._read(), place))
        if dtype is None:
            return moved.clone() if copy and moved is self else moved
        return moved.astype(dtype, copy=copy and moved is self)

    def to_device(self, device: str, /, *, stream: None = None) -> Self:
        """Return the tensor on another device, by the name of the array API."""
        if stream is not None:
            raise UnsupportedError("to_device", found=f"the stream {stream!r}", expected="None")
        return self.to(device=device)

    def astype(self, dtype: object, *, copy: bool = False) -> Self:
        """Return the elements converted to `dtype`; floats lose their fractions in integers."""
        wanted = dt.as_dtype(dtype)
        if wanted is self.dtype:
            return self.clone() if copy else self
        return self._wrap(infer.cast(self._read(), wanted))

    def type(self, dtype: object) -> Self:
        """Return the elements converted to `dtype`."""
        return self.astype(dtype)

    def float(self) -> Self:
        """Return the elements as float32."""
        return self.astype(dt.float32)

    def double(self) -> Self:
        """Return the elements as float64."""
        return self.astype(dt.float64)

    def half(self) -> Self:
        """Return the elements as float16."""
        return self.astype(dt.float16)

    def bfloat16(self) -> Self:
        """Return the elements as bfloat16."""
        return self.astype(dt.bfloat16)

    def int(self) -> Self:
        """Return the elements as int32."""
        return self.astype(dt.int32)

    def long(self) -> Self:
        """Return the elements as int64."""
        return self.astype(dt.int64)

    def bool(self) -> Self:
        """Return whether each element is not zero."""
        return self.astype(dt.bool_)

    def bitcast(self, dtype: object) -> Self:
        """Return the bits of the elements as another type of equal width."""
        return self._wrap(infer.bitcast(self._read(), dt.as_dtype(dtype)))

    def clone(self) -> Self:
        """Return the same values as a tensor that shares no memory with this one."""
        made = self._wrap(self._read())
        base = self if self._base is None else self._base
        return made if base._shared is None else made.realize()  # before its owner writes

    def copy(self) -> Self:
        """Return the same values as a tensor that shares no memory with this one, as in NumPy."""
        return self.clone()

    # arithmetic

    def add(self, other: object, *, alpha: Scalar = 1) -> Self:
        """Return ``self + alpha * other``."""
        if type(alpha) is not int or alpha != 1:
            other = self._times_alpha(other, alpha)
        op = Op.OR if self.dtype.is_bool and _is_bool(other) else Op.ADD
        return cast(Self, binary(self, other, op, "add"))

    def sub(self, other: object, *, alpha: Scalar = 1) -> Self:
        """Return ``self - alpha * other``."""
        if type(alpha) is not int or alpha != 1:
            other = self._times_alpha(other, alpha)
        return cast(Self, binary(self, other, Op.SUB, "sub"))

    def _times_alpha(self, other: object, alpha: Scalar) -> object:
        """Return an operand times a factor, which may be one that the capture reads each time."""
        if (self.dtype.is_float and is_open(alpha)) or alpha != 1:
            return as_operand(self, other).mul(alpha)
        return other

    def mul(self, other: object) -> Self:
        """Return ``self * other``."""
        op = Op.AND if self.dtype.is_bool and _is_bool(other) else Op.MUL
        return cast(Self, binary(self, other, op, "mul"))

    def div(self, other: object, *, rounding_mode: str | None = None) -> Self:
        """Return ``self / other``; `rounding_mode` is None, ``floor`` or ``trunc``."""
        if rounding_mode not in (None, "floor", "trunc"):
            raise RangeError("div", found=f"rounding_mode={describe(rounding_mode)}",
                             expected="None, 'floor' or 'trunc'")
        if rounding_mode == "floor":
            return self.floor_divide(other)
        if rounding_mode == "trunc":
            quotient = self._divide(other)
            if not quotient.dtype.is_float:
                return quotient
            return quotient._unary(Op.TRUNC, "trunc")
        return cast(Self, binary(self, other, Op.DIV, "div", float_kind))

    def _divide(self, other: object) -> Self:
        """Return the quotient rounded towards zero for integers, else the true quotient."""
        value = self._coerce(other, "div")
        dtype = (result_dtype(self, value) if isinstance(value, TensorCore)
                 else scalar_dtype(value, self.dtype))  # fmt: skip
        if dtype.is_float:
            return self.div(other)
        rest = self.fmod(other)
        return self.sub(rest).floor_divide(other)

    def floor_divide(self, other: object) -> Self:
        """Return the quotient rounded towards minus infinity; ``x // 0`` is 0 for integers."""
        return cast(Self, binary(self, other, Op.FLOORDIV, "floor_divide", int_kind))

    def remainder(self, other: object) -> Self:
        """Return the remainder with the sign of the divisor, as ``%`` in Python."""
        return cast(Self, binary(self, other, Op.MOD, "remainder", int_kind))

    def fmod(self, other: object) -> Self:
        """Return the remainder with the sign of the dividend."""
        return cast(Self, binary(self, other, Op.FMOD, "fmod", int_kind))

    def pow(self, exponent: object) -> Self:
        """Return ``self ** exponent``; small integer powers are products.

        Parameters
        ----------
        exponent : Tensor, array, nested list or number
            Broadcast with this tensor.

        Returns
        -------
        Tensor
            Of the broadcast shape, in the type of `weft.result_type`.

        Raises
        ------
        RangeError
            If integers are to be raised to a negative whole number: that gives fractions.
        ShapeError
            If the shapes do not broadcast.
        DTypeError
            If the exponent is no tensor, array, list or number.
        """
        if isinstance(exponent, (int, float)) and not isinstance(exponent, bool):
            if isinstance(exponent, int) and exponent < 0 and not self.dtype.is_float:
                raise RangeError(
                    "pow", found=f"{self.dtype.name} to the power of {exponent}",
                    expected="an exponent of at least 0 for integers",
                    hint=f"convert to floats, x.float() ** {exponent}, or write "
                    f"x ** {float(exponent)}")
            if self.dtype.is_float and exponent in (2, 3, 0.5, -1, 1, -0.5):
                return self._small_power(float(exponent))
            if exponent == 2 and self.dtype.is_integer and isinstance(exponent, int):
                return self.mul(self)
        return cast(Self, binary(self, exponent, Op.POW, "pow", int_kind))

    def rpow(self, base: object) -> Self:
        """Return ``base ** self``."""
        return cast(Self, binary(self, base, Op.POW, "pow", int_kind, True))

    def _small_power(self, exponent: Scalar) -> Self:
        if exponent == 1:
            return self.clone()
        if exponent == 2:
            return self.mul(self)
        if exponent == 3:
            return self.mul(self).mul(self)
        if exponent == -1:
            return self._unary(Op.RECIPROCAL, "reciprocal")
        op = Op.SQRT if exponent == 0.5 else Op.RSQRT
        return self._unary(op, op.name)

    def maximum(self, other: object) -> Self:
        """Return the larger of two elements; NaN if either is."""
        return cast(Self, binary(self, other, Op.MAX, "maximum"))

    def minimum(self, other: object) -> Self:
        """Return the smaller of two elements; NaN if either is."""
        return cast(Self, binary(self, other, Op.MIN, "minimum"))

    def atan2(self, other: object) -> Self:
        """Return the angle of the point (other, self), in radians."""
        return cast(Self, binary(self, other, Op.ATAN2, "atan2", float_kind))

    def copysign(self, other: object) -> Self:
        """Return the magnitude of `self` with the sign of `other`."""
        return cast(Self, binary(self, other, Op.COPYSIGN, "copysign", float_kind))

    def neg(self) -> Self:
        """Return the negative of each element."""
        return self._unary(Op.NEG, "neg", to_float=False)

    def positive(self) -> Self:
        """Return the tensor itself."""
        return self

    def abs(self) -> Self:
        """Return the absolute value of each element."""
        if self.dtype.is_bool or self.dtype.kind == "u":
            return self.clone()
        return self._unary(Op.ABS, "abs", to_float=False)

    def sign(self) -> Self:
        """Return -1, 0 or 1 by the sign; NaN for NaN."""
        if self.dtype.is_bool:
            return self.clone()
        signs = self.gt(0).astype(self.dtype).sub(self.lt(0).astype(self.dtype))
        return self.isnan().where(self, signs) if self.dtype.is_float else signs

    def square(self) -> Self:
        """Return ``self * self``, of bool as int64."""
        return self.pow(2) if self.dtype.is_bool else self.mul(self)

    # bits and logic

    def bitwise_and(self, other: object) -> Self:
        """Return ``self & other`` bit by bit."""
        return cast(Self, binary(self, other, Op.AND, "bitwise_and"))

    def bitwise_or(self, other: object) -> Self:
        """Return ``self | other`` bit by bit."""
        return cast(Self, binary(self, other, Op.OR, "bitwise_or"))

    def bitwise_xor(self, other: object) -> Self:
        """Return ``self ^ other`` bit by bit."""
        return cast(Self, binary(self, other, Op.XOR, "bitwise_xor"))

    def bitwise_left_shift(self, other: object) -> Self:
        """Return ``self << other``; 0 past the width."""
        return cast(Self, binary(self, other, Op.SHL, "bitwise_left_shift"))

    def bitwise_right_shift(self, other: object) -> Self:
        """Return ``self >> other``; the sign past the width."""
        return cast(Self, binary(self, other, Op.SHR, "bitwise_right_shift"))

    def bitwise_not(self) -> Self:
        """Return the complement of the bits of each integer, or of each bool."""
        return self._unary(Op.NOT, "bitwise_not", to_float=False)

    def mulhi(self, other: object) -> Self:
        """Return the upper half of the double-width product of integers."""
        return cast(Self, binary(self, other, Op.MULHI, "mulhi"))

    def logical_not(self) -> Self:
        """Return whether each element is zero."""
        return self.bool()._unary(Op.NOT, "logical_not", to_float=False)

    def logical_and(self, other: object) -> Self:
        """Return elementwise whether both elements are not zero."""
        return self.bool().bitwise_and(self._truth(other, "logical_and"))

    def logical_or(self, other: object) -> Self:
        """Return elementwise whether at least one of two elements is not zero."""
        return self.bool().bitwise_or(self._truth(other, "logical_or"))

    def logical_xor(self, other: object) -> Self:
        """Return elementwise whether exactly one of two elements is not zero."""
        return self.bool().bitwise_xor(self._truth(other, "logical_xor"))

    def _truth(self, value: object, name: str) -> Self:
        """Return whether the elements of an operand are not zero, in a tensor of bool."""
        found = self._coerce(value, name)
        if isinstance(found, TensorCore):
            return cast(Self, found).bool()
        return self._make_scalar(bool(found), dt.bool_)

    # comparison

    def eq(self, other: object) -> Self:
        """Return ``self == other`` elementwise."""
        return cast(Self, binary(self, other, Op.EQ, "eq"))

    def ne(self, other: object) -> Self:
        """Return ``self != other`` elementwise."""
        return cast(Self, binary(self, other, Op.NE, "ne"))

    def lt(self, other: object) -> Self:
        """Return ``self < other`` elementwise."""
        return cast(Self, binary(self, other, Op.LT, "lt"))

    def le(self, other: object) -> Self:
        """Return ``self <= other`` elementwise."""
        return cast(Self, binary(self, other, Op.LE, "le"))

    def gt(self, other: object) -> Self:
        """Return ``self > other`` elementwise."""
        return cast(Self, binary(self, other, Op.LT, "gt", reverse=True))

    def ge(self, other: object) -> Self:
        """Return ``self >= other`` elementwise."""
        return cast(Self, binary(self, other, Op.LE, "ge", reverse=True))

    def isnan(self) -> Self:
        """Return whether each element is NaN."""
        return self.ne(self)

    def isinf(self) -> Self:
        """Return whether each element is an infinity."""
        if not self.dtype.is_float:
            return self.ne(self)
        return self.abs().eq(math.inf)

    def isfinite(self) -> Self:
        """Return whether each element is neither infinite nor NaN."""
        if not self.dtype.is_float:
            return self.eq(self)
        return self.abs().lt(math.inf)

    def isclose(self, other: object, rtol: Scalar = 1e-5, atol: Scalar = 1e-8,
                equal_nan: Scalar = False) -> Self:  # fmt: skip
        """Return ``|self - other| <= atol + rtol * |other|`` elementwise."""
        second = as_operand(self, other)
        if self.dtype.is_bool and second.dtype.is_bool:
            return self.eq(second)
        near = self.sub(second).abs().le(second.abs().mul(rtol).add(atol))
        near = near.logical_and(second.isfinite()).logical_or(self.eq(second))
        return near.logical_or(self.isnan().logical_and(second.isnan())) if equal_nan else near

    # choice

    def where(self, a: object, b: object) -> Self:
        """Return `a` where this condition holds, else `b`.

        The array API's ``where(condition, a, b)`` as a method of the condition; PyTorch's method
        order ``x.where(condition, other)`` is taken when only the first argument is boolean.
        """
        if not self.dtype.is_bool and _is_bool(a) and isinstance(a, Arithmetic):
            return cast(Self, a.where(self, b))
        if not self.dtype.is_bool:
            raise DTypeError("where", found=f"a condition of {self.dtype.name}", expected="bool")
        x, y = self._coerce(a, "where"), self._coerce(b, "where")
        if isinstance(x, TensorCore):
            dtype = result_dtype(x, y) if isinstance(y, TensorCore) else scalar_dtype(y, x.dtype)
        elif isinstance(y, TensorCore):
            dtype = scalar_dtype(x, y.dtype)
        else:
            dtype = dt.promote(dt.of_value(x), dt.of_value(y))
        nodes = [self._read()]
        for value in (x, y):
            if isinstance(value, TensorCore):
                nodes.append(infer.cast(value._read(), dtype))
            else:
                nodes.append(constant(value, dtype, "where"))
        shape = broadcast_shapes("where", *(n.shape for n in nodes))
        node = infer.elementwise(Op.WHERE, *(infer.expand(n, shape) for n in together(nodes)))
        return self._wrap(node, *(v for v in (x, y) if isinstance(v, TensorCore)))

    def _mad(self, factor: Self, term: Self) -> Self:
        """Return ``self * factor + term``, all floats of one type, rounded once."""
        operands = self, factor, term
        shape = broadcast_shapes("mad", *(t.shape for t in operands))
        nodes = [infer.expand(t._read(), shape) for t in operands]
        return self._wrap(infer.elementwise(Op.MAD, *nodes), factor, term)

    def masked_fill(self, mask: object, value: object) -> Self:
        """Return the tensor with `value` where `mask` holds; integers take it without its fraction.

        Parameters
        ----------
        mask : Tensor of bool
            Broadcast with this tensor.
        value : number or Tensor
            The new value, converted to this tensor's dtype.

        Returns
        -------
        Tensor
            Of the broadcast shape and this dtype.

        Raises
        ------
        RangeError
            If the tensor's type cannot hold the value.
        ShapeError
            If the shapes do not broadcast.
        DTypeError
            If the mask is not bool.
        """
        condition = as_operand(self, mask)
        if isinstance(value, TensorCore):
            value = cast(Arithmetic, value).astype(self.dtype)
        elif isinstance(value, float) and self.dtype.is_integer:
            if not math.isfinite(value):
                raise RangeError("masked_fill", found=repr(value),
                                 expected=f"a finite number, to fit {self.dtype.name}")
            value = int(value)  # elements that are kept must not go through floats
        filled = condition.where(value, self)
        return filled.astype(self.dtype)


documented(Arithmetic, ARITHMETIC)


def _is_bool(value: object) -> bool:
    return isinstance(value, bool) or (isinstance(value, TensorCore) and value.dtype.is_bool)


def as_operand(like: T, value: object) -> T:
    """Return an operand as a tensor; a Python scalar takes the type it would meet `like` in."""
    if isinstance(value, (TensorCore, bool, int, float)):
        found: Any = value
    else:
        found = like._coerce(value, entry_point("as_operand") or "operand")
    if isinstance(found, TensorCore):
        return cast(T, found)
    return like._make_scalar(found, scalar_dtype(found, like.dtype))
