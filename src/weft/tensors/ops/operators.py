"""Python's operators: each is a method of arithmetic, comparison or logic."""

from __future__ import annotations

from typing import Self, cast

import numpy as np

from weft.ir.expr import Expr
from weft.ir.op import Op
from weft.tensors.core.lazy_tensor import TensorCore
from weft.tensors.core.promotion import binary
from weft.tensors.ops.arithmetic import Arithmetic, float_kind, int_kind

__all__ = ["Operators"]


class Operators(Arithmetic):
    """Python's operators on tensors."""

    __slots__ = ()

    def __add__(self, other: object) -> Self:
        return self.add(other)

    def __radd__(self, other: object) -> Self:
        return self.add(other)

    def __sub__(self, other: object) -> Self:
        return self.sub(other)

    def __rsub__(self, other: object) -> Self:
        return cast(Self, binary(self, other, Op.SUB, "sub", reverse=True))

    def __mul__(self, other: object) -> Self:
        return self.mul(other)

    def __rmul__(self, other: object) -> Self:
        return self.mul(other)

    def __truediv__(self, other: object) -> Self:
        return self.div(other)

    def __rtruediv__(self, other: object) -> Self:
        return cast(Self, binary(self, other, Op.DIV, "div", float_kind, reverse=True))

    def __floordiv__(self, other: object) -> Self:
        return self.floor_divide(other)

    def __rfloordiv__(self, other: object) -> Self:
        return cast(Self, binary(self, other, Op.FLOORDIV, "floor_divide", int_kind, True))

    def __mod__(self, other: object) -> Self:
        return self.remainder(other)

    def __rmod__(self, other: object) -> Self:
        return cast(Self, binary(self, other, Op.MOD, "remainder", int_kind, True))

    def __divmod__(self, other: object) -> tuple[Self, Self]:
        return self.floor_divide(other), self.remainder(other)

    def __rdivmod__(self, other: object) -> tuple[Self, Self]:
        return self.__rfloordiv__(other), self.__rmod__(other)

    def __pow__(self, other: object) -> Self:
        return self.pow(other)

    def __rpow__(self, other: object) -> Self:
        return cast(Self, binary(self, other, Op.POW, "pow", int_kind, True))

    def __and__(self, other: object) -> Self:
        return self.bitwise_and(other)

    def __rand__(self, other: object) -> Self:
        return self.bitwise_and(other)

    def __or__(self, other: object) -> Self:
        return self.bitwise_or(other)

    def __ror__(self, other: object) -> Self:
        return self.bitwise_or(other)

    def __xor__(self, other: object) -> Self:
        return self.bitwise_xor(other)

    def __rxor__(self, other: object) -> Self:
        return self.bitwise_xor(other)

    def __lshift__(self, other: object) -> Self:
        return self.bitwise_left_shift(other)

    def __rshift__(self, other: object) -> Self:
        return self.bitwise_right_shift(other)

    def __rlshift__(self, other: object) -> Self:
        return cast(Self, binary(self, other, Op.SHL, "bitwise_left_shift", reverse=True))

    def __rrshift__(self, other: object) -> Self:
        return cast(Self, binary(self, other, Op.SHR, "bitwise_right_shift", reverse=True))

    def __neg__(self) -> Self:
        return self.neg()

    def __pos__(self) -> Self:
        return self

    def __invert__(self) -> Self:
        return self.bitwise_not()

    def __abs__(self) -> Self:
        return self.abs()

    def __eq__(self, other: object) -> Self:  # type: ignore[override]
        return self.eq(other) if _is_number_like(other) else NotImplemented

    def __ne__(self, other: object) -> Self:  # type: ignore[override]
        return self.ne(other) if _is_number_like(other) else NotImplemented

    def __lt__(self, other: object) -> Self:
        return self.lt(other)

    def __le__(self, other: object) -> Self:
        return self.le(other)

    def __gt__(self, other: object) -> Self:
        return self.gt(other)

    def __ge__(self, other: object) -> Self:
        return self.ge(other)

    __hash__ = object.__hash__


def _is_number_like(value: object) -> bool:
    """Whether a value may have elements to compare: None, text and the like never equal a tensor.

    Python then compares identities, so that ``x == None`` is False, as in PyTorch.
    """
    if isinstance(value, (TensorCore, bool, int, float, np.generic, np.ndarray, Expr)):
        return True
    if value is None or isinstance(value, (str, bytes, type, dict, set, list, tuple)):
        return False
    kind = type(value)
    return any(hasattr(kind, name) for name in ("__dlpack__", "__array__", "__buffer__",
                                                "__cuda_array_interface__"))  # fmt: skip
