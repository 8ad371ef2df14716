"""Arguments, results and tensors of a captured call, as a capture records them."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any, NamedTuple, cast

from weft import driver
from weft.capture.capture import Owner, Recorder
from weft.capture.pytree import with_items
from weft.exchange import host
from weft.ir import infer
from weft.ir.dtype import DType
from weft.ir.node import Node, Storage
from weft.ir.op import Op
from weft.tensors.api.autograd import no_grad
from weft.tensors.api.tensor import Tensor
from weft.tensors.core import views
from weft.tensors.core.lazy_tensor import TensorCore
from weft.tensors.core.owners import show_memory
from weft.tensors.core.tensor_value import flush_readers, realize_all

__all__ = ["Argument", "Out", "Overlap", "Past", "Place", "argument_of", "base_of", "fill",
           "give", "gradient_of", "node_of", "own_node", "placed"]  # fmt: skip


class Argument(NamedTuple):
    """One array argument: its memory, and all that a capture depends on."""

    buffer: Any
    tensor: TensorCore | None
    shape: tuple[int, ...]
    dtype: DType
    offset: int
    strides: tuple[int, ...] | None  # None: contiguous
    span: int
    requires_grad: bool
    is_leaf: bool = True

    @property
    def key(self) -> Hashable:
        """What must be equal for a capture to be replayed."""
        return (self.shape, self.dtype.name, self.offset, self.strides, self.span,
                self.requires_grad, self.is_leaf, self.buffer.device)  # fmt: skip


def argument_of(value: Any) -> Argument:
    """Return what a capture knows of an argument, realized."""
    if isinstance(value, TensorCore):
        realize_all((value,))
        buffer = value._buffer
        if buffer is None or value._base is not None:
            buffer = value._storage().buffer
        return Argument(buffer, value, value.shape, value.dtype, 0, None, value.numel(),
                        value.requires_grad, value._is_leaf)  # fmt: skip
    array = host.as_array(value, "jit")
    dtype = host.dtype_of(array, "jit")
    if array.flags.c_contiguous and array.flags.aligned and array.dtype.isnative:
        storage = host.share(array, dtype)
        if storage is not None:
            return Argument(storage.buffer, None, array.shape, dtype, 0, None, array.size, False)
    item = array.itemsize
    strides = tuple(s // item for s in array.strides)
    if 0 in array.shape or not array.flags.aligned or not array.dtype.isnative or any(
        s % item for s in array.strides
    ):
        return Argument(host.fill(dtype, array), None, array.shape, dtype, 0, None, array.size,
                         False)  # fmt: skip
    low = sum(min(0, (n - 1) * s) for n, s in zip(array.shape, strides, strict=True))
    high = sum(max(0, (n - 1) * s) for n, s in zip(array.shape, strides, strict=True))
    span = high - low + 1
    address = array.__array_interface__["data"][0] + low * item
    buffer = driver.from_host(address, span * item, array, not array.flags.writeable)
    return Argument(buffer, None, array.shape, dtype, -low, strides, span, False)


class Out(NamedTuple):
    """One tensor of the result; its node is kept if gradients may be asked for later."""

    slot: int
    shape: tuple[int, ...]
    dtype: DType
    node: Node | None
    has_history: bool


class Place(NamedTuple):
    """Where an argument is found: it is a source, or a view of one that has several views."""

    source: int
    path: tuple[views.Step, ...] | None = None
    joined: int | None = None  # the identity of a source that the function knows by itself, too


class Overlap(Exception):
    """A captured function changes what it knows both as an argument and by itself."""

    def __init__(self, tensors: Sequence[TensorCore]) -> None:
        super().__init__()
        self.tensors = tensors


class Past(NamedTuple):
    """The values that a call read, for gradients that may be asked for later."""

    arguments: Sequence[Node | None]
    captured: Sequence[Node]
    leaves: dict[Node, Node]  # of arrays and of random streams


def node_of(tensor: TensorCore) -> Node:
    """Return the node of a tensor's value."""
    node = tensor._node
    return tensor._value() if node is None or tensor._base is not None else node


def base_of(tensor: TensorCore | None) -> TensorCore | None:
    """Return the tensor whose memory a tensor lies in: itself, unless it is a view."""
    return tensor if tensor is None or tensor._base is None else tensor._base


def gradient_of(owner: Owner, tensors: Sequence[TensorCore | None]) -> TensorCore | None:
    """Return the gradient of an owner: an argument by its number, or a tensor."""
    tensor = tensors[owner] if type(owner) is int else cast(TensorCore, owner)
    return None if tensor is None else tensor._grad


def placed(recorder: Recorder, sources: Sequence[Tensor], tensors: Sequence[TensorCore | None],
            place: Place) -> Tensor:  # fmt: skip
    """Return what stands for an argument, given what stands for the sources."""
    stand_in = sources[place.source]
    base = tensors[place.source]
    if place.joined is not None and base is not None:
        recorder.joined(base, stand_in)
    for step in views.moves(place.path or ()):
        stand_in = stand_in._view(step)
    return stand_in


def own_node(node: Node) -> Node:
    """Return a node whose value lies in memory of its own, never in an argument's."""
    source = node
    while source.op in (Op.RESHAPE, Op.DETACH):
        source = source.args[0]
    return infer.contiguous(node) if source.op is Op.BUFFER else node


def give(tensor: TensorCore, buffer: Any) -> None:
    """Replace a tensor's value by what a replay computed."""
    if tensor._base is not None:
        with no_grad():
            tensor._write(host.leaf(Storage(tensor.dtype, tensor.numel(), buffer), tensor.shape))
        return
    shared = tensor._shared
    if shared is not None:
        flush_readers(shared, tensor)
        host.put_back(cast(Storage, tensor._shared), buffer)
        show_memory(tensor)
        return
    tensor._buffer, tensor._node, tensor._history = buffer, None, None
    tensor._version += 1


def fill(template: Any, made: Callable[[Out], Any]) -> Any:
    """Return a result like the template, with what is made of each `Out` in its place."""
    if isinstance(template, Out):
        return made(template)
    return with_items(template, lambda v: fill(v, made))
