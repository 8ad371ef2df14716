"""The lazy value of a tensor: a graph node that views share and writes replace.

A tensor is either a *base*, which owns a value (a graph node), or a *view*: a path of steps from a
base. Values are immutable; a write gives the base another node and raises its version, at which
its views follow. Once realized, the node is a leaf that reads memory.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Iterable
from typing import Any, ClassVar, Final, Self, cast

from weft import driver
from weft.errors import CaptureError, GradientError
from weft.exchange import host, shared
from weft.ir import infer
from weft.ir import node as nd
from weft.ir.dtype import DType
from weft.ir.node import Node, Storage
from weft.ir.op import Op
from weft.tensors.core import owners, pending, views
from weft.tensors.core.devices import on_device_of
from weft.tensors.core.replacing import replacing
from weft.tensors.core.thread_state import state
from weft.tensors.core.write_lock import changing
from weft.weak import Living

__all__ = ["Scalar", "TensorValue", "flush_readers", "realize_all"]

Scalar = bool | int | float
_new: Final[Callable[[type], Any]] = object.__new__
_DETACH: Final = views.Detach()
_WRITES: Final = 16  # to a tensor, at most, before the next realize of another computes it as well
_OWN_REFERENCES: Final = 3  # to a node that nobody else knows: its tensor's, and two of the look

# Unrealized tensors, kept only while memory is shared with NumPy: a write to that memory must let
# those that still read the old value go first.
_lazy: Final = Living["TensorValue"]()
_any_shared: Final = owners.showing.entries
_ref: Final = weakref.ref


class TensorValue:
    """Identity, value and place in the autograd graph of a tensor."""

    __slots__ = dict.fromkeys((
        "__weakref__", "_base", "_buffer", "_grad", "_history", "_is_leaf", "_node", "_path",
        "_requires_grad", "_shared", "_version",
    )) | {  # what help() shows
        "dtype": "The type of the elements, as ``weft.float32``.",
        "shape": "The size of each axis, as a tuple of int; ``()`` for a single number.",
    }  # fmt: skip

    _result: ClassVar[type[TensorValue]]
    shape: tuple[int, ...]
    dtype: DType
    _node: Node | None
    _buffer: Any
    _base: TensorValue | None
    _path: tuple[views.Step, ...]
    _version: int
    _requires_grad: bool
    _is_leaf: bool
    _grad: TensorValue | None
    _shared: Storage | None
    _history: Callable[[], Node] | None  # how a replayed value was computed, built when asked for

    # construction

    @classmethod
    def _from_node(cls, node: Node, requires_grad: bool = False) -> Self:
        """Return a base tensor with this value; it is history if it requires a gradient."""
        out: Self = _new(cls._result)
        out._node, out.shape, out.dtype = node, node.shape, node.dtype  # type: ignore[assignment]
        out._base = out._buffer = out._grad = out._shared = out._history = None
        out._path, out._version = (), 0
        out._requires_grad, out._is_leaf = requires_grad, not requires_grad
        node.used = True
        if state.capture is None:
            node.holder = _ref(out)
        else:
            state.capture.created(out)
        if _any_shared:
            _lazy.add(out)
        return out

    def _wrap(self, node: Node, *others: TensorValue | None) -> Self:
        """Return a tensor computed from this one and `others`."""
        needs = False
        if node.dtype.kind == "f" and state.grad:
            needs = self._requires_grad
            for other in others:
                if other is not None and other._requires_grad:
                    needs = True
        if _any_shared:
            node = shared.apart(node, needs)
        return self._from_node(nd.own(node) if needs else node, needs)

    def _view(self, step: views.Step, *more: views.Step) -> Self:
        """Return a view of this tensor, by one or several steps."""
        source = self
        detaches = isinstance(step, views.Detach)
        self._follow()
        if detaches:
            at = views.own_place(self._path)
            counted = not at or cast(views.Detach, self._path[at - 1]).counted
            step = views.Detach(state.capture, counted and cast(views.Detach, step).counted)
        elif self._requires_grad and not state.grad:
            source = self._view(_DETACH)
        base = source if source._base is None else source._base
        version = base._version  # first: what another thread writes meanwhile is to be seen
        node = step.read(source._value())
        for other in more:
            node = other.read(node)
        path, tracked = (*source._path, step, *more), source._requires_grad and not detaches
        if tracked:
            own = views.Own()
            node, path = own.read(node), (*path, own)
            if state.capture is None:
                own.keep(node, None if source is base else views.history_of(path))
        elif len(path) > 1 and type(step) is type(path[-2]) is views.Reshape:
            path = (*path[:-2], step)
        out = self._from_node(node, tracked)
        out._base, out._path, out._version = base, path, version
        return out

    # value

    def _value(self) -> Node:
        """Return the node of the current value."""
        base = self._base
        capture = state.capture
        if base is not None:
            known = self._node if capture is None else None
            if (known is None or self._version != base._version
                    or base._shared is not None):  # its owner may have written to the memory
                version, value = base._version, base._value()
                self._follow()
                known = self._part_of(value, version)
                known.used = True
                if capture is None:  # which keeps what it finds to itself
                    self._buffer, self._node, self._version = None, known, version
            return known
        return (self._node or self._stored()) if capture is None else capture.read(self)

    def _part_of(self, value: Node, version: int) -> Node:
        """Return what this view shows of a base's value, with what was recorded of it.

        Once the base was written to, that is a part of what was recorded of the base: views of
        which this is a view have no part in it any more.
        """
        path, record = self._path, None
        own = cast(views.Own, path[-1])
        keeps = type(own) is views.Own and state.capture is None
        written = (version - self._version) % views.REALIZED
        if keeps and not written:
            record = own.kept(path)
        if written and any(type(step) is views.Own for step in path[:-1]):
            path = (*[s for s in path[:-1] if type(s) is not views.Own], own)
            if state.capture is None or state.capture.owns(self):
                self._path = path
        tracked = self._requires_grad and not self._is_leaf
        if tracked and record is None:
            record = views.record_of(value, path)
        if tracked and record is not None:
            node = infer.overwritten(views.part_of(value, views.moves(path)), record)
        else:
            node = value
            for step in path:
                node = step.read(node)
                if type(step) is views.Detach and step.leaf is not None:
                    owners.leaves[node] = step.leaf
        if keeps:
            own.keep(node if record is None else record, views.history_of(path))
        return node

    def _stored(self) -> Node:
        """Return the node of a base's value, outside any capture."""
        node, buffer = self._node, self._buffer
        if node is not None:
            return node
        return self._awaited() if buffer is None else self._materialize(buffer)

    def _awaited(self) -> Node:
        """Return the value of a base that has none, once a call that replaces it is over."""
        with replacing:
            node, buffer = self._node, self._buffer
            if node is None and buffer is None:
                buffer = replacing.memory_of(self)
        if node is not None:
            return node
        if buffer is not None:
            return self._materialize(buffer)
        raise CaptureError(
            "use of a tensor", found="one that was made inside a captured function and kept",
            expected="a result of the function", hint="return it, or make it before the capture",
        )

    def _materialize(self, buffer: Any) -> Node:
        """Return a leaf over the memory that a replay wrote."""
        storage = Storage(self.dtype, nd.size(self.shape), buffer)
        if self._history is not None:
            storage.origin, self._history = self._history(), None
        node = host.leaf(storage, self.shape)
        # No call between these, where another thread might write: see `_install_leaf`.
        if self._buffer is buffer and self._node is None:
            self._node = node
        if self._requires_grad and self._is_leaf:
            owners.note_leaf(self, node)
        return node

    def _read(self) -> Node:
        """Return the node to compute with: detached where gradients are off."""
        node = self._value()
        return views.detached(node) if self._requires_grad and not state.grad else node

    def _follow(self) -> None:
        """Take part in the autograd history of what this is a view of."""
        base = self._base
        if base is None:
            return
        at = views.own_place(self._path)
        step = cast(views.Detach, self._path[at - 1]) if at else None
        tracked = base._requires_grad if step is None else step.is_tracked
        if tracked is self._requires_grad or (
            state.capture is not None and not state.capture.owns(self)
        ):
            return
        self._requires_grad = tracked
        self._is_leaf = not tracked or (
            step is not None and step.leaf is not None and step.leaf() is self)
        if not self._is_leaf and type(self._path[-1]) not in (views.Own, views.Detach):
            self._path, self._node, self._buffer = (*self._path, views.Own()), None, None

    @changing
    def _write(self, value: Node, *sources: TensorValue, replaces: bool = False) -> None:
        """Replace the value (of the viewed part, for a view); shape, dtype and device stay.

        The write is recorded if gradients are on and something here has any; else only values
        change, and gradients stay those of what was recorded before. The value was computed from
        `sources`; with `replaces` it does not depend on the old one, whose gradient is zeros then.
        """
        base, path = self if self._base is None else self._base, self._path
        at = views.own_place(path)
        own = cast(views.Detach, path[at - 1]) if at else None
        tracked = base._requires_grad if own is None else own.is_tracked
        leaf = tracked and (base._is_leaf if own is None else own.leaf is not None)
        recorded = state.grad and base.dtype.kind == "f" and (
            tracked or any(s._requires_grad for s in sources))
        if leaf and recorded:
            raise GradientError("in-place write", found="a leaf that requires a gradient",
                                expected="a tensor computed from it",
                                hint="write inside weft.no_grad()")
        if recorded and own is not None:
            own.check_capture()
        if recorded and tracked and replaces:
            value = infer.overwritten(value, self._value(), True)
        nodes = [base._value()]
        value = on_device_of(nodes[0], value)
        for step in path[:-1]:
            nodes.append(step.read(nodes[-1]))
        for i in range(len(path) - 1, -1, -1):
            value = path[i].put(nodes[i], value)
            if recorded and i == at - 1 and own is not None:
                own.history = value = nd.own(value)
                value = infer.detach(value)
                if _any_shared:
                    shared.note_recorded(own.history)
        base._assign(value, recorded and own is None, own is None or own.counted)
        if self is not base:
            self._follow()

    def _assign(self, node: Node, recorded: bool = False, counted: bool = True) -> None:
        """Give this base another value; what was recorded of it stays, or is now `node`, too."""
        if state.capture is not None:
            state.capture.changing(self)
        tracked = self._requires_grad and not self._is_leaf
        if recorded:
            node = nd.own(node)
        if recorded and tracked:
            self._keep_retained(node)
        if not recorded and tracked:
            node = infer.overwritten(node, views.recorded_of(self._value()))
        if state.capture is None and self._shared is not None:
            value = self._from_node(node, recorded or tracked)
            flush_readers(self._shared, self, value)
            node = value._value()
        elif _any_shared:
            node = shared.apart(node, recorded or tracked)
        if recorded:
            self._requires_grad, self._is_leaf = True, False
        if self._requires_grad and self._is_leaf:
            node = self._own(node)
        node.used = True
        if state.capture is not None and state.capture.keep(self, node):
            return
        self._node, self._buffer, self._history = node, None, None
        node.holder = _ref(self)
        self._version += 1 if counted else views.REALIZED
        if (self._version + self._version // views.REALIZED) % _WRITES == 0:
            pending.note_state(self)  # views may be all that is read of it, and it would grow
        if _any_shared:
            _lazy.add(self)
            if state.capture is None and self._shared is not None:
                realize_all((self,))  # who reads the same memory by another name sees the value

    def _keep_retained(self, node: Node) -> None:
        """Let `grad` be that of the new value, if it is kept."""
        old = views.recorded_of(self._value())
        ref = owners.leaves.get(old)
        if ref is not None and ref() is self:
            del owners.leaves[old]
            owners.leaves[node] = ref

    def _own(self, node: Node) -> Node:
        """Return a node of its own for a leaf's value, so that its gradient is only its own."""
        if state.capture is not None:
            unique = nd.make(Op.DETACH, node.dtype, node.shape, (node,), next(nd.serials))
        else:
            place = node.device or driver.default_device()
            storage = Storage(node.dtype, nd.size(node.shape), None, place)
            found = host.leaf_storage(node)
            if found is not None and found.buffer is not None:
                storage.buffer, storage.shared = found.buffer, found.shared
            else:
                pending.define(storage, node)
            unique = host.leaf(storage, cast("tuple[int, ...]", node.shape))
        owners.note_leaf(self, unique)
        unique.used = True
        return unique

    def _install_leaf(self, old: Node, node: Node) -> None:
        """Take the realized leaf `node` in place of the lazy value `old`.

        Python changes threads at calls. So there is none between the last look whether another
        thread has written, and what depends on it.
        """
        storage = host.leaf_storage(node)
        if storage is None or old is node or self._node is not old:
            return
        if storage.shared and self._base is None and self._shared is None:
            node = host.leaf(storage := shared.copied(storage), self.shape)
        if self._requires_grad and not self._is_leaf and storage.origin is None:
            storage.origin = old
        if not _any_shared or not (
                shared.note_recorded(old) if storage.origin is old else shared.reads(old)):
            pending.note_realized(old, node)
        buffer = storage.buffer
        if self._node is not old:  # it was written meanwhile
            return
        self._node, self._buffer = node, buffer
        if self._base is None:
            self._version += views.REALIZED
        if self._requires_grad and self._is_leaf:
            owners.note_leaf(self, node)

    def realize(self) -> Self:
        """Compute the value now, and return this tensor."""
        if self._base is not None or (
            self._buffer is None and (state.capture is not None or not _realize_alone(self))
        ):
            realize_all((self,))
        return self

    def _storage(self) -> Storage:
        """Return the realized storage, contiguous in row-major order."""
        while True:  # until no other thread has written between the two
            realize_all((self,))
            node = self._node  # for `_value`, a copy of shared memory is out of date at once
            if node is None or self._base is None or self._base._shared is None:
                node = self._value()
            storage = host.leaf_storage(node)
            if storage is not None and storage.buffer is not None:
                return storage
            if state.capture is not None:
                raise CaptureError("realize", found=f"{node!r}", expected="a realized value")


# realizing


def realize_all(tensors: Iterable[TensorValue], more: Iterable[TensorValue] = ()) -> None:
    """Compute the values of several tensors in one plan; during a capture nothing happens.

    `more` is computed in the same plan if all of it can be, and left as it is otherwise.
    """
    if state.capture is not None:
        return
    todo = [t for t in tensors if t._buffer is None or t._base is not None]
    todo += {id(b): b for b in (t._base for t in todo)  # a write through a view reaches memory
             if b is not None and b._shared is not None and b._buffer is None}.values()  # fmt: skip
    if not todo or (len(todo) == 1 and not more and _realize_alone(todo[0])):
        return
    leafs: list[tuple[TensorValue, Storage]] = []
    asked = _unrealized(todo, leafs)
    storages = [s for _, s in leafs if s.buffer is None]
    if asked or storages:
        known = {id(t) for t in todo}
        rest = [t for t in (*more, *pending.take_state()) if id(t) not in known]
        others = _unrealized(rest, [])
        found, extra = pending.compute([n for _, n in asked], storages, [n for _, n in others])
        done = asked if extra is None else [*asked, *others]
        for (tensor, node), result in zip(done, [*found, *(extra or ())], strict=True):
            tensor._install_leaf(node, result)
        for tensor, _ in done:
            _write_through(tensor)
    for tensor, storage in leafs:
        node = tensor._value()
        buffer, own = storage.buffer, host.leaf_storage(node) is storage
        if own and tensor._buffer is None and tensor._node is node:
            tensor._buffer = buffer
            if tensor._shared is not None and tensor._shared is not storage:
                _write_through(tensor)


def _realize_alone(tensor: TensorValue) -> bool:
    """Compute a base from a graph that was met before, the short way; False if that does not do."""
    node = tensor._node
    if (node is None or not node.args or tensor._base is not None or tensor._shared is not None
            or tensor._requires_grad or node.op is Op.RESHAPE):  # fmt: skip
        return False
    buffer = pending.compute_alone(node)
    if buffer is None:
        return False
    if sys.getrefcount(node) > _OWN_REFERENCES:  # others read the node: they get its leaf
        storage = Storage(tensor.dtype, nd.size(node.shape), buffer)
        tensor._install_leaf(node, host.leaf(storage, tensor.shape))
    elif tensor._node is node:  # and was not written meanwhile
        tensor._node, tensor._buffer = None, buffer  # `_materialize` makes the leaf if it is read
        tensor._version += views.REALIZED
    return True


def _unrealized(tensors: Iterable[TensorValue], leafs: list[tuple[TensorValue, Storage]]
                ) -> list[tuple[TensorValue, Node]]:  # fmt: skip
    """Return the tensors that are no leaves with their nodes; append the others to `leafs`."""
    lazy: list[tuple[TensorValue, Node]] = []
    for tensor in tensors:
        node = tensor._value()
        storage = host.leaf_storage(node)
        if storage is None:
            lazy.append((tensor, node))
        else:
            leafs.append((tensor, storage))
    return lazy


def flush_readers(storage: Storage, writer: TensorValue, value: TensorValue | None = None) -> None:
    """Prepare for a change of the memory of `storage`: nobody is to read the new for the old.

    Whatever is still to read the memory is realized; with it `value`, which is to be written: its
    graph may hold those of the readers, which must not be computed again once theirs have changed
    memory, too. What was recorded gets a copy; the storage that shows the memory is then another.
    """
    readers, memory = [], storage.buffer
    for tensor in _lazy:
        node = tensor._node
        if tensor is value or node is None:
            continue
        if tensor._requires_grad:
            shared.note_recorded(node)
        if tensor is not writer and tensor._base is not writer and (
            host.leaf_storage(node) is None and shared.reads(node, memory)
        ):  # fmt: skip
            readers.append(tensor)
    if readers and value is not None:
        readers.append(value)
    realize_all(readers)
    for old in shared.recorded_over(memory):
        owner = owners.of_storage(old)
        if owner is not None:
            owners.renew(owner, old)
        old.buffer, old.shared = host.head(old.buffer, old.buffer.nbytes), False


def _write_through(tensor: TensorValue) -> None:
    """Copy a realized value into the shared memory, which is then the tensor's value again."""
    memory = tensor._shared
    if memory is None or tensor._buffer is memory.buffer:
        return
    flush_readers(memory, tensor)
    memory, buffer = cast(Storage, tensor._shared), tensor._buffer
    if buffer is None:  # another thread has written meanwhile: its value will come
        return
    node, origin = cast(Node, tensor._node), None
    made = host.leaf_storage(node)
    host.put_back(memory, buffer)
    if tensor._requires_grad or memory.origin is not None:
        if made is not None and not tensor._is_leaf:
            origin = made.origin or nd.own(node)
        owners.adopt(tensor, Storage(memory.dtype, memory.size, memory.buffer, memory.device,
                                     origin, shared=True))
    owners.show_memory(tensor)
