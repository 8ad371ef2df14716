"""Watching a function once, to find what it reads, computes and changes."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, NamedTuple, cast

import numpy as np

from weft.errors import CaptureError
from weft.exchange import host
from weft.frontend import pending
from weft.frontend.core import TensorCore, realize_all
from weft.frontend.state import state
from weft.frontend.tensor import Tensor
from weft.ir import dtype as dt
from weft.ir import infer
from weft.ir import node as nd
from weft.ir.node import Node, Storage
from weft.ir.op import Op
from weft.ir.size import canonical, evaluate_all

__all__ = ["Recorder", "Saved"]


class Saved(NamedTuple):
    """What a tensor was before the capture."""

    tensor: TensorCore
    node: Node | None
    buffer: Any
    requires_grad: bool
    is_leaf: bool
    history: Callable[[], Node] | None


class Recorder:
    """One capture: a ``with`` block in which nothing is computed and every effect is noted.

    When the block ends, everything that existed before has its old value again, whether the
    function returned or raised; `mutated`, `grads` and the generators' counts say what a replay
    has to do.
    """

    def __init__(self) -> None:
        self.captured: dict[Storage, TensorCore] = {}
        self.mutated: dict[int, Saved] = {}
        self.new_values: dict[int, tuple[Node, bool, bool]] = {}
        self.grads: dict[int, tuple[TensorCore, TensorCore | None]] = {}
        self.new_grads: dict[int, tuple[TensorCore | None, Node | None]] = {}
        self.guards: dict[int, tuple[TensorCore, TensorCore | None]] = {}
        self.generators: dict[int, tuple[Any, Storage, int]] = {}
        self.draws: list[tuple[Any, Storage, Any]] = []
        self._created: set[int] = set()
        self._living: list[weakref.ref[TensorCore]] = []
        self._grad_mode = state.grad

    def __enter__(self) -> Recorder:
        pending.flush()
        state.capture = self
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:  # fmt: skip
        for key, (tensor, _) in self.grads.items():
            found = tensor._grad
            self.new_grads[key] = (found, None if found is None else found._value())
        state.capture = None
        state.grad = self._grad_mode
        for key, saved in self.mutated.items():
            tensor = saved.tensor
            if tensor._node is not None:
                self.new_values[key] = (tensor._node, tensor._requires_grad, tensor._is_leaf)
            tensor._node, tensor._buffer, tensor._history = saved.node, saved.buffer, saved.history
            tensor._requires_grad, tensor._is_leaf = saved.requires_grad, saved.is_leaf
            tensor._version += 1
        for tensor, before in self.grads.values():
            tensor._grad = before
        for generator, storage, start in self.generators.values():
            self.draws.append((generator, storage, canonical(generator.count - start)))
            generator.count = start

    def placeholder(self, shape: tuple[int, ...], dtype: dt.DType, offset: int,
                    strides: tuple[int, ...] | None, span: int, requires_grad: bool
                    ) -> tuple[Storage, Tensor]:  # fmt: skip
        """Return a storage without memory, and the tensor that stands for an argument."""
        storage = Storage(dtype, span)
        flat = nd.buffer(storage)
        node = infer.reshape(flat, shape) if strides is None else infer.strided(
            flat, shape, offset, strides)  # fmt: skip
        tensor = Tensor._from_node(node)
        if requires_grad:
            tensor.requires_grad_()
        return storage, tensor

    def release(self, results: Sequence[TensorCore]) -> None:
        """Make tensors that outlive the capture, and are not its results, say so when used."""
        known = {id(t) for t in results}
        for ref in self._living:
            tensor = ref()
            if tensor is None or id(tensor) in known or tensor._node is None:
                continue
            if tensor._base is not None and id(tensor._base) not in self._created:
                continue  # a view of a tensor from outside: it follows its base
            if any(n.op is Op.BUFFER and n.attr.buffer is None
                   for n in nd.toposort([tensor._node])):  # fmt: skip
                tensor._node = tensor._base = tensor._buffer = None
                tensor._path = ()

    # what the tensors report

    def created(self, tensor: Any) -> None:
        """Note a new tensor."""
        self._created.add(id(tensor))
        self._living.append(weakref.ref(tensor))

    def read(self, tensor: Any, node: Node) -> Node:
        """Return a leaf for a tensor from outside, realized if need be."""
        if id(tensor) in self._created or id(tensor) in self.mutated:
            return node
        storage = host.leaf_storage(node)
        if storage is None or storage.buffer is None:
            state.capture = None
            try:
                realize_all((tensor,))
                node = tensor._value()
            finally:
                state.capture = self
            storage = host.leaf_storage(node)
        if storage is not None:
            self.captured[storage] = tensor
        return node

    def changing(self, tensor: TensorCore) -> None:
        """Note a tensor's value before its first change."""
        if id(tensor) not in self._created and id(tensor) not in self.mutated:
            self.mutated[id(tensor)] = Saved(
                tensor, tensor._node, tensor._buffer, tensor._requires_grad, tensor._is_leaf,
                tensor._history)  # fmt: skip

    def grad_read(self, tensor: Any) -> None:
        """Note that the function depends on a gradient that was there before."""
        key = id(tensor)
        if key not in self._created and key not in self.grads and key not in self.guards:
            self.guards[key] = (tensor, tensor._grad)

    def grad_written(self, tensor: Any) -> None:
        """Note a gradient before its first replacement."""
        key = id(tensor)
        if key not in self._created and key not in self.grads:
            self.grads[key] = (tensor, tensor._grad)

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

    # results

    def writes(self) -> list[tuple[TensorCore, Node, bool, bool]]:
        """Return (tensor, new value, requires_grad, is_leaf) of every tensor that was changed."""
        return [(self.mutated[k].tensor, node, needs, leaf)
                for k, (node, needs, leaf) in self.new_values.items()]  # fmt: skip

    def gradients(self) -> list[tuple[TensorCore, TensorCore | None, Node]]:
        """Return (tensor, new gradient, its node) of every gradient that was replaced."""
        return [(self.grads[k][0], found, cast(Node, node))
                for k, (found, node) in self.new_grads.items()]  # fmt: skip


def fresh_state(generator: Any, blocks: int) -> Any:
    """Take `blocks` blocks and return a buffer with the state before them."""
    first = generator.advance(blocks)
    return host.fill(dt.uint64, np.array([generator.key, first], np.uint64))


def without_marks(roots: Sequence[Node]) -> list[Node]:
    """Return `roots` without DETACH: what only gradients need must not part equal plans."""
    new: dict[Node, Node] = {}
    for node in nd.toposort(roots):
        args = tuple([new[a] for a in node.args])
        new[node] = args[0] if node.op is Op.DETACH else _rebuilt(node, args)
    return [new[r] for r in roots]


def substitute(root: Node, known: Callable[[Node], Node | None]) -> Node:
    """Return `root` with the nodes that `known` answers for replaced."""
    new: dict[Node, Node] = {}
    for node in nd.toposort([root]):
        new[node] = known(node) or _rebuilt(node, tuple([new[a] for a in node.args]))
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


def _rebuilt(node: Node, args: tuple[Node, ...]) -> Node:
    if args == node.args:
        return node
    made = nd.make(node.op, node.dtype, node.shape, args, node.attr)
    if node in nd.locations:
        nd.locations.setdefault(made, nd.locations[node])
    return made
