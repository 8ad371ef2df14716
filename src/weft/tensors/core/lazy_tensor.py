"""The class below `weft.Tensor`: gradients, shape and type of a lazy value, and its operands."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Self, cast

import numpy as np

from weft import driver
from weft.errors import (
    AxisError,
    DTypeError,
    GradientError,
)
from weft.exchange import host
from weft.ir import infer
from weft.ir import node as nd
from weft.ir.dtype import DType
from weft.ir.expr import Expr
from weft.ir.node import Node
from weft.ir.op import storage_only
from weft.tensors.core import views
from weft.tensors.core.owners import leaves
from weft.tensors.core.runtime_scalars import constant, yield_to
from weft.tensors.core.tensor_value import Scalar, TensorValue
from weft.tensors.core.thread_state import state
from weft.tensors.core.views import recorded_of
from weft.tensors.docs.documented import documented
from weft.tensors.docs.reduction_sections import CORE

__all__ = ["TensorCore"]


class TensorCore(TensorValue):
    """A lazy value with gradients, shape and type; `weft.Tensor` adds the operations."""

    __slots__ = ()

    _base: TensorCore | None
    _grad: TensorCore | None

    # gradients

    @property
    def requires_grad(self) -> bool:
        """Whether gradients flow to this tensor."""
        self._follow()
        return self._requires_grad

    @requires_grad.setter
    def requires_grad(self, value: bool) -> None:
        self.requires_grad_(value)

    @property
    def is_leaf(self) -> bool:
        """Whether the tensor was made by the user and not computed from ones with a gradient."""
        self._follow()
        return self._is_leaf

    def requires_grad_(self, requires_grad: bool = True) -> Self:
        """Start (or stop) recording what is computed from this tensor.

        Parameters
        ----------
        requires_grad : bool, optional
            Whether gradients flow to this tensor from now on.

        Returns
        -------
        Tensor
            This tensor.

        Raises
        ------
        DTypeError
            If the elements are not floats.
        GradientError
            If the tensor was computed from others that require a gradient, and is to stop, or if
            nothing is computed on its device, gradients neither.
        """
        if requires_grad == self.requires_grad:
            return self
        if requires_grad and not self.dtype.is_float:
            raise DTypeError("requires_grad_", found=self.dtype.name, expected="a float type")
        if requires_grad and self.device in storage_only:
            raise GradientError("requires_grad_", found=f"a tensor on {self.device}",
                                expected="one on a device that computes",
                                hint="copy it first, as in x.to('cpu').requires_grad_()")
        if not requires_grad and not self._is_leaf:
            raise GradientError("requires_grad_", found="a computed tensor", expected="a leaf",
                                hint="use detach()")
        node = self._value()
        capture = state.capture
        if capture is not None:
            capture.changing(self)
        if self._base is not None:
            return self._own_view(requires_grad)
        self._requires_grad, self._is_leaf = requires_grad, True
        if requires_grad:
            node = self._own(node)
            if capture is None or not capture.keep(self, node):
                self._node = node
        elif capture is None:
            leaves.pop(nd.flat_leaf(node), None)
        elif not capture.keep(self, infer.detach(node)):
            self._node = infer.detach(node)
        return self

    def _own_view(self, requires_grad: bool) -> Self:
        """Let a view have a gradient of its own (or none); it still shows the base's elements."""
        step = views.Detach(state.capture)
        if requires_grad:
            step.leaf = weakref.ref(self)
        path = self._path
        self._path = (*(path[:-1] if path and type(path[-1]) is views.Detach else path), step)
        self._requires_grad, self._is_leaf = requires_grad, True
        self._node = self._buffer = None
        self._value()
        return self

    @property
    def grad(self) -> Self | None:
        """The gradient that `backward` has accumulated, of this shape and dtype, or None."""
        if state.capture is not None:
            return cast("Self | None", state.capture.gradient(self))
        return cast("Self | None", self._grad)

    @grad.setter
    def grad(self, value: TensorCore | None) -> None:
        if value is not None and (
            not isinstance(value, TensorCore) or value.shape != self.shape
            or value.dtype is not self.dtype
        ):
            found = type(value).__name__ if not isinstance(value, TensorCore) else (
                f"{value.dtype.name} of shape {value.shape}")
            raise GradientError("grad", found=found, expected=f"None, or {self.dtype.name} of "
                                f"shape {self.shape}, as the tensor")
        if state.capture is None or not state.capture.keep_gradient(self, value):
            self._grad = value

    def retain_grad(self) -> None:
        """Let backward keep the gradient of this computed tensor in ``grad``, too.

        Raises
        ------
        GradientError
            If the tensor requires no gradient.
        """
        if not self.requires_grad:
            raise GradientError("retain_grad", found="a tensor that requires no gradient",
                                expected="one computed from tensors that do")
        if not self._is_leaf:
            leaves[recorded_of(self._value())] = weakref.ref(self)

    def detach_(self) -> Self:
        """Forget how this tensor was computed: no gradient flows through it from now on.

        Raises
        ------
        GradientError
            If it is a view: what it shares with others would have a history and have none.
        """
        if self._base is not None:
            raise GradientError("detach_", found="a view", expected="a tensor that is no view",
                                hint="use detach()")
        node = views.detached(self._value())
        self._requires_grad, self._is_leaf = False, True
        self._assign(node)
        return self

    def detach(self) -> Self:
        """Return a view of the same elements through which no gradient flows."""
        return self._view(views.Detach())

    # shape and type

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.shape)

    def dim(self) -> int:
        """Return the number of axes."""
        return len(self.shape)

    def numel(self) -> int:
        """Return the number of elements."""
        total = 1
        for n in self.shape:
            total *= n
        return total

    @property
    def nbytes(self) -> int:
        """The size of all elements in bytes."""
        return self.numel() * self.dtype.itemsize

    @property
    def itemsize(self) -> int:
        """The size of one element in bytes."""
        return self.dtype.itemsize

    def element_size(self) -> int:
        """Return the size of one element in bytes."""
        return self.dtype.itemsize

    @property
    def device(self) -> str:
        """The name of the device that holds the elements, or will compute them."""
        return self._home() or driver.default_device()

    def _home(self) -> str | None:
        """Return the device that the value is bound to; None for one of constants alone."""
        buffer = self._buffer
        if buffer is not None and self._base is None:
            home: str = buffer.device
            return home
        return self._value().device or None

    def is_floating_point(self) -> bool:
        """Return whether the elements are floats."""
        return self.dtype.is_float

    def _axis(self, axis: int, operation: str) -> int:
        return infer.check_axis(axis, len(self.shape), operation)

    def _axes(self, axes: int | Sequence[int] | None, operation: str) -> tuple[int, ...]:
        """Return sorted distinct axes, all of them for None.

        A tensor without axes takes 0 and -1, as in PyTorch and NumPy, and has none to reduce.
        """
        ndim = len(self.shape)
        if axes is None:
            return tuple(range(ndim))
        given: Sequence[int] = axes if isinstance(axes, (tuple, list)) else (cast(int, axes),)
        found = sorted(infer.check_axis(a, ndim or 1, operation) for a in given)
        if len(set(found)) != len(found):
            raise AxisError(operation, found=f"axes {tuple(given)}", expected="each at most once")
        return tuple(found) if ndim else ()

    # operands

    def _coerce(self, value: object, operation: str) -> TensorCore | Scalar:
        """Return an operand as a tensor or a Python scalar."""
        if isinstance(value, (TensorCore, bool, int, float)):
            return value
        if isinstance(value, np.generic):
            return cast(Scalar, value.item())
        if isinstance(value, Expr):
            return self._from_node(infer.of_size(value))
        array = host.as_array(value, operation)
        return self._from_node(self._beside(host.store(array, host.dtype_of(array, operation))))

    def _beside(self, node: Node) -> Node:
        """Return a value on the device of this tensor; one of constants alone is on every one."""
        home = self._home()
        return node if home is None or node.device in ("", home) else infer.copy(node, home)

    def _constant(self, value: Scalar, dtype: DType) -> Node:
        return infer.expand(nd.const(value, dtype), self.shape)

    def _make_scalar(self, value: Scalar, dtype: DType) -> Self:
        return self._from_node(constant(value, dtype, "operand"))


documented(TensorCore, CORE)
yield_to(TensorCore)
