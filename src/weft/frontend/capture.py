"""Watching a function once, to find what it reads, computes and changes."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, NamedTuple

import numpy as np

from weft.errors import CaptureError
from weft.exchange import host
from weft.frontend import pending, views
from weft.frontend.core import TensorCore
from weft.frontend.kernel.fused import watch
from weft.frontend.state import state
from weft.frontend.tensor import Tensor
from weft.ir import dtype as dt
from weft.ir import infer
from weft.ir import node as nd
from weft.ir.node import Node, Storage
from weft.ir.op import Op
from weft.ir.size import canonical, evaluate_all

__all__ = ["GradientOf", "Guard", "Owner", "Recorder"]


class Saved(NamedTuple):
    """Whether a tensor was learned before the capture."""

    tensor: TensorCore
    requires_grad: bool
    is_leaf: bool


class GradientOf(NamedTuple):
    """What a replay reads: the gradient that a tensor, or an argument, has by then."""

    owner: TensorCore | int


class Write(NamedTuple):
    """A value that a replay gives a tensor."""

    tensor: TensorCore
    node: Node
    requires_grad: bool
    is_leaf: bool


Owner = TensorCore | int  # a tensor from outside, or the number of an argument
# What must be there: no gradient, one of this shape and type, or this very one (with a history).
Guard = None | tuple[tuple[int, ...], dt.DType] | TensorCore


class Recorder:
    """One capture: a ``with`` block in which nothing is computed and every effect is noted.

    Tensors from outside are not touched, for other threads may read them: their new values and
    gradients stand here, as long as the block lasts. Only whether they are learned is noted on
    them and given back at the end.
    """

    def __init__(self, arguments: Sequence[TensorCore | None] = ()) -> None:
        self.captured: dict[Storage, TensorCore | GradientOf] = {}
        self.values: dict[int, Node] = {}
        self.writes: list[Write] = []
        self.grads: dict[int, tuple[Owner, TensorCore | None]] = {}
        self.new_grads: list[tuple[Owner, TensorCore | None, Node | None]] = []
        self.grad_writes: list[tuple[Owner, Node]] = []
        self.guards: dict[int, tuple[Owner, Guard]] = {}
        self.modes: dict[int, tuple[Any, bool]] = {}
        self.learned: dict[int, tuple[TensorCore, bool]] = {}
        self.generators: dict[int, tuple[Any, Storage, int]] = {}
        self.draws: list[tuple[Any, Storage, Any]] = []
        self.outside: set[int] = set()
        self.effects: Node | None = None  # what the last launch leaves that does more than write
        self._arguments = arguments
        self._numbers: dict[int, int] = {}
        self._aliases: dict[int, TensorCore] = {}
        self._changed: dict[int, Saved] = {}
        self._read: dict[int, tuple[Owner, Tensor, Node]] = {}
        self._created: dict[int, weakref.ref[TensorCore]] = {}
        self._living: list[weakref.ref[TensorCore]] = []
        self._modes_set: dict[int, Any] = {}
        self._twins: dict[int, Node] = {}
        self._grad_mode = state.grad

    def __enter__(self) -> Recorder:
        pending.flush()
        state.capture = self
        watch(1)  # launches of kernels
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:  # fmt: skip
        try:
            if kind is None:
                self._conclude()
        finally:
            watch(-1)
            state.capture = None
            state.grad = self._grad_mode
            for tensor, requires_grad, is_leaf in self._changed.values():
                tensor._requires_grad, tensor._is_leaf = requires_grad, is_leaf
            for generator, storage, start in self.generators.values():
                self.draws.append((generator, storage, canonical(generator.count - start)))
                generator.count = start

    def _conclude(self) -> None:
        """Note what a replay has to write."""
        for key, node in self.values.items():
            tensor = self._changed[key].tensor
            self.writes.append(Write(tensor, node, tensor._requires_grad, tensor._is_leaf))
        for owner, gradient, before in self._read.values():
            node = gradient._value()
            if node is not before:
                self.grad_writes.append((owner, node))
        for key, (owner, found) in self.grads.items():
            if found is None or key not in self._read or found is not self._read[key][1]:
                node_ = None if found is None else found._value()
                self.new_grads.append((owner, found, node_))

    def stands_for(self, stand_in: TensorCore, number: int) -> None:
        """Note that a tensor stands for an argument, and has its gradient."""
        if self._arguments[number] is not None:
            self._numbers[id(stand_in)] = number

    def joined(self, tensor: TensorCore, stand_in: TensorCore) -> None:
        """Note that a tensor from outside is an argument as well."""
        self._aliases[id(tensor)] = stand_in

    def placeholder(self, shape: tuple[int, ...], dtype: dt.DType, offset: int,
                    strides: tuple[int, ...] | None, span: int, requires_grad: bool
                    ) -> tuple[Storage, Tensor]:  # fmt: skip
        """Return a storage without memory, and the tensor that stands for an argument."""
        storage = Storage(dtype, span)
        flat = nd.buffer(storage)
        node = infer.reshape(flat, shape) if strides is None else views.strided(
            flat, shape, offset, strides)  # fmt: skip
        tensor = Tensor._from_node(node)
        if requires_grad:
            tensor.requires_grad_()
        return storage, tensor

    def release(self, results: Sequence[TensorCore]) -> None:
        """Make tensors that outlive the capture, and are not its results, say so when used."""
        known = {id(t) for t in results}
        depends: dict[Node, bool] = {}  # on an argument, which has memory only in a call
        for ref in self._living:
            tensor = ref()
            if tensor is None or id(tensor) in known or tensor._node is None:
                continue
            if tensor._base is not None and not self._is_inner(tensor._base):
                continue  # a view of a tensor from outside: it follows its base
            for node in nd.toposort([tensor._node], depends):
                depends[node] = ((node.op is Op.BUFFER and node.attr.buffer is None)
                                 or any(depends[arg] for arg in node.args))
            if depends[tensor._node]:
                tensor._node = tensor._base = tensor._buffer = None
                tensor._path = ()

    # what the tensors report

    def created(self, tensor: Any) -> None:
        """Note a new tensor."""
        ref = weakref.ref(tensor)
        self._created[id(tensor)] = ref
        self._living.append(ref)

    def _is_inner(self, tensor: TensorCore) -> bool:
        ref = self._created.get(id(tensor))
        return ref is not None and ref() is tensor

    def read(self, tensor: Any) -> Node:
        """Return a base's value: of one from outside a leaf, realized if need be."""
        if self._is_inner(tensor):
            inner: Node = tensor._stored()
            return inner
        key = id(tensor)
        alias = self._aliases.get(key)
        if alias is not None:
            return alias._value()
        node = self.values.get(key)
        if node is not None:
            return node
        if key in self._twins:
            return self._twins[key]
        self.outside.add(key)
        state.capture = None
        try:
            storage = host.leaf_storage(tensor._stored())
            if storage is None or storage.buffer is None:
                storage = tensor._storage()
        finally:
            state.capture = self
        if self.captured.get(storage, tensor) is not tensor:  # of equal values, for now
            storage = Storage(storage.dtype, storage.size, storage.buffer, storage.device,
                              storage.origin, storage.shared)  # fmt: skip
            self._twins[key] = host.leaf(storage, tensor.shape)
        self.captured[storage] = tensor
        if tensor.dtype.kind == "f":
            self.learned.setdefault(key, (tensor, tensor._requires_grad))
        return host.leaf(storage, tensor.shape)

    def changing(self, tensor: TensorCore) -> None:
        """Note whether a tensor is learned, before its first change."""
        key = id(tensor)
        if key in self._aliases or self._is_inner(tensor):
            return
        if tensor._base is not None:
            raise CaptureError(
                "requires_grad_", found="a view of a tensor from outside the captured function",
                expected="a tensor that is no view", hint="call it before the capture",
            )
        self.outside.add(key)
        if key not in self._changed:
            self._changed[key] = Saved(tensor, tensor._requires_grad, tensor._is_leaf)

    def keep(self, tensor: Any, node: Node) -> bool:
        """Keep a tensor's new value; False if the tensor belongs to the capture and keeps it."""
        if self._is_inner(tensor):
            return False
        alias = self._aliases.get(id(tensor))
        if alias is not None:
            alias._assign(node)
        else:
            self.values[id(tensor)] = node
        return True

    def gradient(self, tensor: Any) -> Any:
        """Return a tensor's gradient: a stand-in for one from outside, and note which it needs."""
        tensor = self._aliases.get(id(tensor), tensor)
        key = id(tensor)
        number = self._numbers.get(key)
        if number is None and self._is_inner(tensor):
            return tensor._grad
        if key in self.grads:
            return self.grads[key][1]
        if key in self._read:
            return self._read[key][1]
        owner: Owner = tensor if number is None else number
        source = tensor if number is None else self._arguments[number]
        found = None if source is None else source._grad
        if number is None:
            self.outside.add(key)
        if found is None or found._requires_grad:
            self.guards[key] = owner, found
            return found
        self.guards[key] = owner, (found.shape, found.dtype)
        storage, stand_in = self.placeholder(found.shape, found.dtype, 0, None, found.numel(),
                                             False)  # fmt: skip
        self.captured[storage] = GradientOf(owner)
        self._read[key] = owner, stand_in, stand_in._value()
        return stand_in

    def keep_gradient(self, tensor: Any, value: Any) -> bool:
        """Keep a tensor's new gradient; False if the tensor belongs to the capture."""
        tensor = self._aliases.get(id(tensor), tensor)
        number = self._numbers.get(id(tensor))
        if number is None and self._is_inner(tensor):
            return False
        if number is None:
            self.outside.add(id(tensor))
        self.grads[id(tensor)] = tensor if number is None else number, value
        return True

    def mode(self, module: Any, training: bool) -> None:
        """Note that the function depends on a module's mode."""
        if id(module) not in self._modes_set:
            self.modes.setdefault(id(module), (module, training))

    def set_mode(self, module: Any) -> None:
        """Note that the function sets a module's mode: what it reads then is its own."""
        self._modes_set[id(module)] = module

    def counter(self, generator: Any) -> Node:
        """Return the node that holds a generator's key and count at each replay."""
        found = self.generators.get(id(generator))
        if found is None:
            found = (generator, Storage(dt.uint64, 2), generator.count)
            self.generators[id(generator)] = found
        return nd.buffer(found[1])

    def counter_start(self, generator: Any) -> int:
        """Return a generator's count when the capture began."""
        return self.generators[id(generator)][2]

    def refuse(self, operation: str) -> None:
        """Raise a CaptureError: values are not known during a capture."""
        raise CaptureError(
            operation, found="a value that is read while a function is captured",
            expected="only operations on tensors inside weft.jit",
            hint="return the tensor and read it outside, or use where() to choose",
        )


def fresh_state(generator: Any, blocks: int) -> Any:
    """Take `blocks` blocks and return a buffer with the state before them."""
    first = generator.advance(blocks)
    return host.fill(dt.uint64, np.array([generator.key, first], np.uint64))


def without_marks(roots: Sequence[Node]) -> list[Node]:
    """Return `roots` without DETACH: what only gradients need must not part equal plans."""
    new: dict[Node, Node] = {}
    for node in nd.toposort(roots):
        args = tuple([new[a] for a in node.args])
        new[node] = args[0] if node.op is Op.DETACH else nd.with_args(node, args)
    return [new[r] for r in roots]


def substitute(root: Node, known: Callable[[Node], Node | None]) -> Node:
    """Return `root` with the nodes that `known` answers for replaced."""
    new: dict[Node, Node] = {}
    for node in nd.toposort([root]):
        new[node] = known(node) or nd.with_args(node, tuple([new[a] for a in node.args]))
    return new[root]


def fix_sizes(root: Node, values: Mapping[str, int]) -> Node:
    """Return `root` with values in place of the symbolic sizes."""
    new: dict[Node, Node] = {}
    for node in nd.toposort([root]):
        attr = node.attr
        if node.op is Op.VARIABLE:
            new[node] = nd.const(values[attr.name], dt.int64)
            continue
        if node.op is Op.SLICE:
            attr = nd.SliceAttr(evaluate_all(attr.starts, values), attr.steps)
        elif node.op is Op.PAD:
            attr = nd.PadAttr(evaluate_all(attr.before, values), attr.value)
        args = tuple([new[a] for a in node.args])
        shape = evaluate_all(node.shape, values)
        if args == node.args and shape == node.shape:
            new[node] = node
            continue
        new[node] = nd.make(node.op, node.dtype, shape, args, attr)
        if node in nd.locations:
            nd.locations.setdefault(new[node], nd.locations[node])
    return new[root]
