"""Record one run of a function: the tensors it reads, computes and changes."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Final, NamedTuple

import numpy as np

from weft.errors import CaptureError
from weft.exchange import host
from weft.ir import dtype as dt
from weft.ir import history, infer
from weft.ir import node as nd
from weft.ir.expr import Expr
from weft.ir.node import Dim, Node, Storage
from weft.ir.op import Op
from weft.ir.size import canonical, replaced_all
from weft.locks import in_child
from weft.tensors.api.tensor import Tensor
from weft.tensors.core import pending
from weft.tensors.core.fusion_scope import watch
from weft.tensors.core.layouts import fixed
from weft.tensors.core.lazy_tensor import TensorCore
from weft.tensors.core.strides import strided
from weft.tensors.core.thread_state import state

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
_recording: Final[dict[Recorder, int]] = {}  # captures under way, and their threads


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
        self.settings: dict[int, tuple[Any, str, Any]] = {}  # objects, attributes, their values
        self.learned: dict[int, tuple[TensorCore, bool]] = {}
        self.generators: dict[int, tuple[Any, Storage, Any]] = {}  # and how many blocks were drawn
        self.draws: list[tuple[Any, Storage, Any]] = []
        self.outside: set[int] = set()
        self.by_hand = False  # whether a backward has to pass what an argument was computed from
        self.effects: Node | None = None  # what the last launch leaves that does more than write
        self._arguments = arguments
        self._numbers: dict[int, int] = {}
        self._aliases: dict[int, TensorCore] = {}
        self._changed: dict[int, Saved] = {}
        self._read: dict[int, tuple[Owner, Tensor, Node]] = {}
        self._created: dict[int, weakref.ref[TensorCore]] = {}
        self._living: list[weakref.ref[TensorCore]] = []
        self._set: dict[int, Any] = {}
        self._twins: dict[int, Node] = {}
        self._sharing: list[tuple[weakref.ref[TensorCore], weakref.ref[TensorCore], bool, Any]] = []
        self._grad_mode = state.grad

    def __enter__(self) -> Recorder:
        pending.flush()
        _recording[self] = threading.get_ident()
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
            self.draws.extend(self.generators.values())
            self._restore()
            _recording.pop(self, None)

    def _restore(self) -> None:
        """Give tensors back what the capture has noted on them."""
        for tensor, requires_grad, is_leaf in self._changed.values():
            tensor._requires_grad, tensor._is_leaf = requires_grad, is_leaf

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
                    strides: tuple[int, ...] | None, span: int, requires_grad: bool,
                    device: str) -> tuple[Storage, Tensor]:  # fmt: skip
        """Return a storage without memory, and the tensor that stands for an argument."""
        storage = Storage(dtype, span, None, device)
        flat = nd.buffer(storage)
        node = infer.reshape(flat, shape) if strides is None else strided(
            flat, shape, offset, strides)  # fmt: skip
        tensor = Tensor._from_node(node)
        if requires_grad:
            tensor.requires_grad_()
        return storage, tensor

    def forget(self) -> None:
        """Let go of what was computed, once that is noted."""
        for table in (self.values, self.writes, self.grads, self.new_grads, self.grad_writes,
                      self._read, self._sharing):  # fmt: skip
            table.clear()
        self.effects = None

    def fix_sizes(self, values: Mapping[str, int]) -> None:
        """Give tensors that outlive the capture numbers for its sizes."""
        new: dict[Node, Node] = {}
        for tensor in [t for t in (r() for r in self._living) if t is not None]:
            if any(isinstance(n, Expr) for n in tensor.shape):
                tensor.shape = replaced_all(tensor.shape, values)
            if tensor._node is not None:
                tensor._node = fix_sizes(tensor._node, values, new)
            tensor._path = tuple([fixed(step, values) for step in tensor._path])

    def release(self, results: Sequence[TensorCore]) -> None:
        """Make tensors that outlive the capture, and are not its results, say so when used."""
        known = {id(t) for t in results}
        depends: dict[Node, bool] = {}  # on an argument, which has memory only in a call
        for ref in self._living:
            tensor = ref()
            if tensor is None or id(tensor) in known or tensor._node is None:
                continue
            if tensor._base is not None and not self.owns(tensor._base):
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

    def owns(self, tensor: Any) -> bool:
        """Whether a tensor was made in the capture."""
        ref = self._created.get(id(tensor))
        return ref is not None and ref() is tensor

    def read(self, tensor: Any) -> Node:
        """Return a base's value: of one from outside a leaf, realized if need be."""
        if self.owns(tensor):
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
        self._written(tensor)
        if key in self._aliases or self.owns(tensor):
            return
        if tensor._base is not None:
            raise CaptureError(
                "requires_grad_", found="a view of a tensor from outside the captured function",
                expected="a tensor that is no view", hint="call it before the capture",
            )
        self.outside.add(key)
        if key not in self._changed:
            self._changed[key] = Saved(tensor, tensor._requires_grad, tensor._is_leaf)

    def may_share(self, base: TensorCore, made: TensorCore, size: Any) -> None:
        """Note that a symbolic size decides if a view of a base became a view or a copy."""
        ref = weakref.ref(made)
        self._sharing += [(other, ref, False, size) for other, copy, *_ in self._sharing
                          if copy() is base]  # fmt: skip
        self._sharing.append((weakref.ref(base), ref, made._base is base, size))

    def doubt(self, base: TensorCore) -> Any:
        """Return a size that decides if a base is one, and no view; None if it is for all sizes."""
        return next((size for _, made, _, size in self._sharing if made() is base), None)

    def _written(self, tensor: TensorCore) -> None:
        """Note sizes that decide who sees what is written to a tensor."""
        for base, made, is_view, size in self._sharing:
            one, other = base(), made()
            if (tensor is one and (is_view or other is not None)) or (
                    tensor is other and one is not None):
                size.seen("whether a write reaches a view")

    def keep(self, tensor: Any, node: Node) -> bool:
        """Keep a tensor's new value; False if the tensor belongs to the capture and keeps it."""
        if self.owns(tensor):
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
        if number is None and self.owns(tensor):
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
                                             False, found.device)  # fmt: skip
        self.captured[storage] = GradientOf(owner)
        self._read[key] = owner, stand_in, stand_in._value()
        return stand_in

    def keep_gradient(self, tensor: Any, value: Any) -> bool:
        """Keep a tensor's new gradient; False if the tensor belongs to the capture."""
        tensor = self._aliases.get(id(tensor), tensor)
        number = self._numbers.get(id(tensor))
        if number is None and self.owns(tensor):
            return False
        if number is None:
            self.outside.add(id(tensor))
        elif not tensor._is_leaf:
            self.by_hand = True
        self.grads[id(tensor)] = tensor if number is None else number, value
        return True

    def depends(self, owner: Any, name: str, value: object) -> None:
        """Note that the function depends on an attribute of an object: it has to stay the same."""
        if id(owner) not in self._set:
            self.settings.setdefault(id(owner), (owner, name, value))

    def sets(self, owner: Any) -> None:
        """Note that the function sets that attribute: what it reads then is its own."""
        self._set[id(owner)] = owner

    def draw(self, generator: Any, blocks: Any) -> tuple[Node, Any]:
        """Take blocks of a random stream, whose own count stays: other threads draw from it.

        Returns
        -------
        node : Node
            What holds the stream's key and count at each replay.
        first : int or Expr
            How many blocks of it the capture has taken before these.
        """
        found = self.generators.get(id(generator))
        if found is None:
            found = generator, Storage(dt.uint64, 2, None, ""), 0
        first = found[2]
        self.generators[id(generator)] = (*found[:2], canonical(first + blocks))
        return nd.buffer(found[1]), first

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
    for node in _with_histories(root):
        found = known(node)
        if found is None:
            found = _recorded(node, tuple([new[a] for a in node.args]), new)
        new[node] = found
    return new[root]


def _with_histories(root: Node) -> list[Node]:
    """Return every node below `root`, operands and what was recorded of overwritten ones first."""
    order: dict[Node, None] = {}
    stack: list[tuple[Node, bool]] = [(root, False)]
    while stack:
        node, ready = stack.pop()
        if node in order:
            continue
        if ready:
            order[node] = None
            continue
        stack.append((node, True))
        below = (*node.args, *history.recorded_nodes(node)) if node.op is Op.DETACH else node.args
        stack.extend((n, False) for n in below if n not in order)
    return list(order)


def _recorded(node: Node, args: tuple[Node, ...], new: Mapping[Node, Node]) -> Node:
    """Return a node rebuilt on other operands, with what was recorded of it rebuilt as well."""
    if not node.serial and node.op is not Op.DETACH:
        return nd.with_args(node, args)
    attr = history.with_recorded(node.attr, new) if node.op is Op.DETACH else node.attr
    if args == node.args and attr == node.attr:
        return node
    made = nd.make(node.op, node.dtype, node.shape, args, attr, node.serial)
    if node in nd.locations:
        nd.locations.setdefault(made, nd.locations[node])
    return made


def fix_sizes(root: Node, values: Mapping[str, Dim], new: dict[Node, Node] | None = None) -> Node:
    """Return `root` with values, or other variables of the names, in place of the symbolic sizes.

    `new` holds what has been done so far, for several roots.
    """
    new = {} if new is None else new
    for node in _with_histories(root):
        if node in new:
            continue
        attr = node.attr
        if node.op is Op.DETACH:
            attr = history.with_recorded(attr, new)
        if node.op is Op.VARIABLE:
            value = values[attr.name]
            new[node] = (nd.variable(value) if isinstance(value, Expr)
                         else nd.const(value, dt.int64))
            continue
        if node.op is Op.SLICE:
            attr = nd.SliceAttr(replaced_all(attr.starts, values), attr.steps)
        elif node.op is Op.PAD:
            attr = nd.PadAttr(replaced_all(attr.before, values), attr.value)
        args = tuple([new[a] for a in node.args])
        shape = replaced_all(node.shape, values)
        if args == node.args and shape == node.shape and attr == node.attr:
            new[node] = node
            continue
        new[node] = nd.make(node.op, node.dtype, shape, args, attr, node.serial)
        if node in nd.locations:
            nd.locations.setdefault(new[node], nd.locations[node])
    return new[root]


def _leave_others() -> None:
    """End the captures of threads that are not in this process."""
    for recorder, thread in list(_recording.items()):
        if thread != threading.get_ident():
            recorder._restore()
            del _recording[recorder]


in_child(_leave_others)
