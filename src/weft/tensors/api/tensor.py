"""`Tensor` and `Parameter`: all families of methods, and Python's array interface."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final, Self, SupportsIndex, TypeVar, cast

import numpy as np

from weft.errors import AllocationError, DTypeError, ShapeError, UnsupportedError
from weft.exchange import dlpack, host
from weft.imports import importing
from weft.ir.dtype import DType, from_text
from weft.ir.node import HOST
from weft.ir.op import storage_only
from weft.tensors.api import autograd
from weft.tensors.core import gradient_hooks, views
from weft.tensors.core.arguments import check_tensor
from weft.tensors.core.axis_names import with_axis_names
from weft.tensors.core.display import show
from weft.tensors.core.lazy_tensor import TensorCore
from weft.tensors.core.thread_state import state
from weft.tensors.docs.documented import documented
from weft.tensors.docs.reduction_sections import TENSOR
from weft.tensors.ops.composed import Composed

__all__ = ["Parameter", "Tensor", "over_buffer"]

T = TypeVar("T", bound="Tensor")

_WRITABLE: Final = 1  # PyBUF_WRITABLE
_SHOWN: Final = 1000  # elements of a tensor in a file, up to which they are read to be shown


@with_axis_names
class Tensor(Composed):
    """A lazy array that knows how it was computed.

    Operations build a graph; the values are computed when somebody looks: `numpy`, `item`,
    ``print``, or `realize`. Make tensors with `weft.tensor`, `weft.zeros` and their like.

    A tensor takes attributes of the user's own (``x.label = "first"``), which travel with copies of
    the object (`copy.deepcopy`, `pickle`), and not to what is computed from it.

    Raises
    ------
    UnsupportedError
        If the class is called.

    Examples
    --------
    >>> x = weft.tensor([[1.0, 2.0], [3.0, 4.0]])
    >>> y = (x - x.mean(0)).relu()
    >>> y
    tensor([[0., 0.],
            [1., 1.]])
    """

    __slots__ = ("__dict__",)

    def __init__(self, *values: object, **options: object) -> None:
        raise UnsupportedError("weft.Tensor", found="a call of the class",
                               expected="weft.tensor(values)")  # fmt: skip

    # values

    def _memory(self) -> Any:
        """Return the buffer with the values, contiguous in row-major order."""
        buffer = self._buffer
        if buffer is None or self._base is not None or state.capture is not None:
            return self._storage().buffer
        return buffer

    def _look(self, operation: str) -> np.ndarray[Any, Any]:
        if state.capture is not None:
            state.capture.refuse(operation)
        if storage_only and self.device in storage_only:
            return self.cpu()._look(operation)
        if self._base is None:
            return host.view(self._memory(), self.dtype, self.shape, self._shared is not None)
        values = self._window()
        return host.view(self._memory(), self.dtype, self.shape, False) if values is None else (
            values)

    def _window(self) -> np.ndarray[Any, Any] | None:
        """Return an array over the base's memory; None if it is not here, or without strides."""
        base = self._base
        if base is None:
            return None
        layout = self._layout()
        if base._buffer is None and (
            base._shared is not None  # a write must reach the memory
            or (layout is not None and self.numel() == base.numel())  # all of it is needed anyway
            or host.leaf_storage(base._value()) is not None  # it is there
        ):
            base.realize()
        buffer = base._buffer
        if buffer is None or layout is None or not buffer.in_process:
            return None
        once = all(s or n < 2 for n, s in zip(layout.shape, layout.strides, strict=True))
        return host.view(buffer, self.dtype, self.shape, base._shared is not None and once,
                         layout.offset, layout.strides)  # fmt: skip

    def numpy(self, *, force: bool = False) -> np.ndarray[Any, Any]:
        """Return the values as an array over the tensor's memory, strided for views of tensors.

        The array is read-only, because tensors may share that memory; `force` makes a copy that
        may be written. Memory that came from NumPy (`from_numpy`) stays writable.
        """
        values = self._look("numpy()")
        return values.copy() if force else values

    def realize(self) -> Self:
        """Compute the value now, and return this tensor.

        A view by strides of all elements of a tensor has nothing of its own to compute.
        """
        if self._base is None and self._buffer is not None:
            return self
        if self._base is None or state.capture is not None or self._window() is None:
            return super().realize()
        return self

    def item(self) -> Any:
        """Return the value of a tensor with one element, as a Python number.

        Returns
        -------
        bool, int or float
            By the dtype.

        Raises
        ------
        ShapeError
            If there is not exactly one element.
        CaptureError
            In a function under `weft.jit`, where no values are known.
        """
        return self._single("item()")

    def _single(self, operation: str) -> Any:
        if self.numel() != 1:
            raise ShapeError(operation, found=f"{self.numel()} elements, shape {self.shape}",
                             expected="one element",
                             hint="use any() or all() for a condition, tolist() for all values")
        value = self._look(operation).reshape(()).item()
        return float(value) if self.dtype.is_float else value

    def tolist(self) -> Any:
        """Return the values as nested lists of Python numbers."""
        values = self._look("tolist()")
        if self.dtype.is_float and self.dtype.bits < 32:
            values = values.astype(np.float32)
        try:
            return values.tolist()
        except MemoryError:
            raise AllocationError("tolist", found=f"a tensor of shape {self.shape}",
                                  expected="lists that fit into memory") from None

    def cpu(self) -> Tensor:
        """Return the tensor in the memory of this process: itself, if it is there."""
        return self.to(device=HOST)

    def cuda(self, device: str | None = None) -> Tensor:
        """Return the tensor on a CUDA device, as ``to("cuda")`` does.

        Parameters
        ----------
        device : str, optional
            Another device.

        Raises
        ------
        DeviceError
            If there is no such device: `weft.devices` lists them.

        Examples
        --------
        >>> weft.ones(2).cuda() if weft.is_available("cuda") else weft.ones(2)
        tensor([1., 1.])
        """
        return self.to("cuda" if device is None else device)

    @property
    def data(self) -> Tensor:
        """The same elements without history; assigning replaces the values."""
        return self._view(views.Detach(counted=False))

    @data.setter
    def data(self, value: TensorCore) -> None:
        with autograd.no_grad():
            self.copy_(value)

    # gradients

    def backward(self, gradient: object = None, *, create_graph: bool = False,
                 retain_graph: bool | None = None, inputs: Any = None) -> None:  # fmt: skip
        """Add this tensor's gradient to the ``grad`` of every leaf it depends on.

        Parameters
        ----------
        gradient : Tensor, array or number, optional
            The gradient of this tensor, of its shape; not needed for a single element.
        create_graph : bool, optional
            Whether the gradients can be differentiated again.
        retain_graph : bool, optional
            Taken as PyTorch has it, and of no effect: what was recorded stays with its tensors.
        inputs : Tensor or sequence of Tensor, optional
            A tensor or several, whose ``grad`` alone is to be added to.

        Raises
        ------
        GradientError
            If nothing here requires a gradient, or the tensor is not a single element and no
            `gradient` is given.
        ShapeError
            If `gradient` has another shape.
        """
        chosen = (inputs,) if isinstance(inputs, TensorCore) else inputs
        autograd.backward((self,), None if gradient is None else (gradient,), create_graph, chosen)

    def register_hook(self, hook: Callable[[Tensor], Tensor | None]) -> gradient_hooks.Handle:
        """Let backward call a function with this tensor's gradient, which it may replace.

        Parameters
        ----------
        hook : callable
            Takes the gradient, and returns another of its shape, or None to leave it.

        Returns
        -------
        Handle
            Its ``remove()`` takes the hook away.

        Raises
        ------
        GradientError
            If the tensor requires no gradient.
        DTypeError
            If `hook` cannot be called.
        """
        return gradient_hooks.add(self, hook)

    # Python's protocols

    def __repr__(self) -> str:
        if state.capture is None and self.device in storage_only and self.numel() > _SHOWN:
            return f"tensor(<{self.dtype.name}{list(self.shape)} on {self.device}>)"
        values = None if state.capture is not None else self._look("repr()")
        return show(values, self.shape, self.dtype, self._requires_grad)

    def _repr_html_(self) -> str:
        """Return the tensor as notebooks show it."""
        with importing:
            from html import escape

            from weft.tensors.core.display import show_html

        if state.capture is not None or self.device in storage_only:
            return f"<pre>{escape(repr(self))}</pre>"
        return show_html(self._look("repr()"), self.shape, self.dtype, self._requires_grad)

    def __format__(self, spec: str) -> str:
        return format(self.item(), spec) if spec else str(self)

    def __len__(self) -> int:
        if not self.shape:
            raise ShapeError("len()", found="a tensor without axes", expected="at least one axis")
        return self.shape[0]

    def __iter__(self) -> Iterator[Tensor]:
        if not self.shape:
            raise ShapeError("iteration", found="a tensor without axes",
                             expected="at least one axis")
        return iter(self.unbind(0))

    def __contains__(self, value: object) -> bool:
        return bool(self.eq(value).any())

    def __bool__(self) -> bool:
        return bool(self._single("bool()"))

    def __int__(self) -> int:
        return int(self._single("int()"))

    def __float__(self) -> float:
        return float(self._single("float()"))

    def __complex__(self) -> complex:
        return complex(self._single("complex()"))

    def __index__(self) -> int:
        if self.dtype.is_float:
            raise DTypeError("index()", found=self.dtype.name, expected="an integer type")
        value: SupportsIndex = self._single("index()")
        return value.__index__()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        values = self._look("numpy()")
        if dtype is not None and np.dtype(dtype) != values.dtype:
            return values.astype(dtype)
        return values.copy() if copy else values

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        """Run one of NumPy's elementwise functions (`weft.tensors.api.numpy_protocol`)."""
        with importing:
            from weft.tensors.api.numpy_protocol import array_ufunc

        return array_ufunc(ufunc, method, inputs, options)

    def __array_function__(self, function: Any, types: Any, args: tuple[Any, ...],
                           options: dict[str, Any]) -> Any:  # fmt: skip
        """Run another function of NumPy (`weft.tensors.api.numpy_protocol`)."""
        with importing:
            from weft.tensors.api.numpy_protocol import array_function

        return array_function(function, args, options)

    def __dlpack__(self, *, stream: object = None, max_version: tuple[int, int] | None = None,
                   dl_device: tuple[int, int] | None = None, copy: bool | None = None
                   ) -> Any:  # fmt: skip
        """Return a DLPack capsule: versioned (and marked read-only) if `max_version` allows.

        Arrays with negative strides are copied: there are consumers that such strides crash. So is
        what is on a device whose memory is not that of this process.
        """
        values = self._look("__dlpack__()")
        if dl_device is not None and tuple(dl_device) != dlpack.CPU:
            raise BufferError(f"a CPU tensor cannot be exported to the DLPack device {dl_device}")
        is_far = self.device in storage_only or not all(
            t is None or t._buffer is None or t._buffer.in_process for t in (self, self._base))
        if is_far or any(s < 0 for s in values.strides):
            if copy is False:
                what = f"memory of {self.device}" if is_far else "negative strides"
                raise BufferError(f"{what} cannot be exported without a copy")
            copy = True
        if copy:
            values = values.copy()
        else:
            self._expose()
        return dlpack.produce(values, self.dtype, max_version, bool(copy))

    def _expose(self) -> None:
        """Note that somebody else has the memory, and may write to it whatever he was told."""
        for tensor in (self, self._base):
            buffer = None if tensor is None else tensor._buffer
            if buffer is not None and not buffer.exposed:
                buffer.exposed = True
                buffer.version += 1

    def __buffer__(self, flags: int) -> memoryview:
        """Return the values as a memoryview (from Python 3.12 on, ``memoryview(tensor)``)."""
        values = self._look("__buffer__()")
        if flags & _WRITABLE and not values.flags.writeable:
            raise BufferError("the memory of this tensor is read-only")
        try:
            return memoryview(cast(Any, values))
        except ValueError as error:
            raise BufferError(f"{self.dtype.name} has no format in the buffer protocol") from error

    def __dlpack_device__(self) -> tuple[int, int]:
        """Return (device type, ordinal): the CPU."""
        return dlpack.CPU

    def __array_namespace__(self, *, api_version: str | None = None) -> Any:
        """Return the module with the array functions."""
        import sys

        return sys.modules["weft"]

    def __deepcopy__(self, memo: dict[int, Any]) -> Tensor:
        base = self._base
        if base is None:
            made = self.detach().clone()
        else:  # of what it shares memory with, so that copies share theirs
            made = cast(Any, base)._memory_copied(memo).detach()
            for step in views.moves(self._path):
                made = made._view(step)
        if self._requires_grad and self._is_leaf:
            made.requires_grad_()
        return self._copied(made, memo)

    def _memory_copied(self, memo: dict[Any, Any]) -> Tensor:
        """Return the copy of this base whose memory copies of its views share."""
        found: Tensor | None = memo.get(id(self))
        return self.__deepcopy__(memo) if found is None else found

    def _copied(self, made: T, memo: dict[int, Any]) -> T:
        """Return a copy of this tensor with copies of the user's attributes."""
        memo[id(self)] = made
        if self.__dict__:
            from copy import deepcopy  # which a program that gets here has imported

            made.__dict__.update(deepcopy(self.__dict__, memo))
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        """Return what another process needs: type, dtype, shape, bytes; no history travels."""
        values = self._look("pickling")
        data = np.ascontiguousarray(values).reshape(-1).view(np.uint8)
        parts = type(self), self.dtype.text, self.shape, data, self._requires_grad
        return _restored, parts, self.__dict__ or None


def _restored(kind: type[Tensor], text: str, shape: tuple[int, ...], data: np.ndarray[Any, Any],
              requires_grad: bool) -> Tensor:  # fmt: skip
    """Return the tensor that was taken apart by `Tensor.__reduce__`."""
    dtype = from_text(text)
    made = Tensor._from_node(host.store(data.view(dtype.numpy).reshape(shape), dtype))
    if issubclass(kind, Parameter):
        return Parameter(made, requires_grad)
    return made.requires_grad_() if requires_grad else made


Tensor._result = documented(Tensor, TENSOR)
_new: Final = object.__new__


def over_buffer(buffer: Any, shape: tuple[int, ...], dtype: DType) -> Tensor:
    """Return a base tensor over memory that holds its value: how results of a replay are made."""
    out = _new(Tensor)
    out._buffer, out.shape, out.dtype = buffer, shape, dtype
    out._node = out._base = out._grad = out._shared = out._history = None
    out._path, out._version, out._requires_grad, out._is_leaf = (), 0, False, True
    return out


class Parameter(Tensor):
    """A leaf tensor that a module learns; `weft.nn.Module` finds it among its attributes.

    Parameters
    ----------
    data : Tensor
        The first values.
    requires_grad : bool, optional
        Whether gradients flow to the parameter.

    Raises
    ------
    DTypeError
        If gradients are wanted and the elements are not floats.

    Examples
    --------
    >>> weft.Parameter(weft.zeros(2)).requires_grad
    True
    """

    __slots__ = ()

    def __new__(cls, data: Tensor, requires_grad: bool = True) -> Parameter:
        """Return a parameter with the values of `data`."""
        check_tensor(data, "Parameter")
        made = object.__new__(cls)
        made._node, made.shape, made.dtype = data.detach()._value(), data.shape, data.dtype
        made._base = made._buffer = made._grad = made._shared = made._history = None
        made._path, made._version = (), 0
        made._requires_grad, made._is_leaf = False, True
        if state.capture is not None:
            state.capture.created(made)
        if requires_grad:
            made.requires_grad_()
        return made

    def __init__(self, data: Tensor, requires_grad: bool = True) -> None:
        pass

    def __deepcopy__(self, memo: dict[int, Any]) -> Parameter:
        return self._copied(Parameter(self.detach().clone(), self._requires_grad), memo)

    def _memory_copied(self, memo: dict[Any, Any]) -> Tensor:
        key = "memory", id(self)  # the copy of a parameter is apart from it, as in PyTorch
        if key not in memo:
            memo[key] = self.detach().clone()
        return cast(Tensor, memo[key])

    def __repr__(self) -> str:
        return "Parameter containing:\n" + super().__repr__()
