"""One captured call: what it reads and writes, its plan, and how it is run again.

`weft.frontend.jit` finds the entry that fits a call; `weft.frontend.replay` writes down in native
code what `Entry.fits` and `Entry.run` say.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from typing import Any, NamedTuple, cast

from weft import driver
from weft.exchange import host
from weft.frontend import capture, panels, views
from weft.frontend.autograd import no_grad
from weft.frontend.capture import GradientOf, Owner, Recorder
from weft.frontend.core import TensorCore, flush_readers, realize_all
from weft.frontend.pytree import is_array, rebuild, with_items
from weft.frontend.state import state
from weft.frontend.tensor import Tensor, over_buffer
from weft.ir import infer
from weft.ir import node as nd
from weft.ir.dtype import DType
from weft.ir.node import Node, Storage
from weft.ir.op import Op

__all__ = ["Argument", "Entry", "Out", "Overlap", "Packs", "Past", "Place", "argument_of",
           "base_of"]

Packs = bool | int  # whether panels of weights are kept between calls, or how many bytes at most
# Values are written over old ones where that many bytes are replaced. A call that does so is made
# from Python (6 µs), which smaller steps would feel more than the memory: theirs is in a cache.
LEAST_REPLACED = 1 << 20


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

    @property
    def key(self) -> Hashable:
        """What must be equal for a capture to be replayed."""
        return (self.shape, self.dtype.name, self.offset, self.strides, self.span,
                self.requires_grad)  # fmt: skip


def argument_of(value: Any) -> Argument:
    """Return what a capture knows of an argument, realized."""
    if isinstance(value, TensorCore):
        realize_all((value,))
        storage = None if value._buffer is not None and value._base is None else value._storage()
        buffer = value._buffer if storage is None else storage.buffer
        return Argument(buffer, value, value.shape, value.dtype, 0, None, value.numel(),
                         value._requires_grad)  # fmt: skip
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


class Entry:
    """One captured signature: the compiled graph, and what to do around a call of it."""

    def __init__(self, function: Callable[..., Any], args: Any, kwargs: Any,
                 arguments: Sequence[Argument], places: Sequence[Place] | None = None,
                 packs: Packs = False) -> None:  # fmt: skip
        tensors = [a.tensor for a in arguments]
        self.places = places
        self.tries = 0  # how often native dispatches may have been made
        self.attached: set[Hashable] = set()  # for which kinds of arguments there are any
        recorder = Recorder(tensors)
        try:
            with recorder:
                self.placeholders: list[Storage] = []
                sources: list[Tensor] = []
                for i, a in enumerate(arguments):
                    storage, tensor = recorder.placeholder(
                        a.shape, a.dtype, a.offset, a.strides, a.span, a.requires_grad)
                    self.placeholders.append(storage)
                    recorder.stands_for(tensor, i)
                    sources.append(tensor)
                stand_ins = sources
                if places is not None:
                    stand_ins = [_placed(recorder, sources, tensors, place) for place in places]
                self.leaf_nodes = [t._value() for t in sources]
                new_args, new_kwargs = _replace_arrays((args, kwargs), iter(stand_ins))
                before = [t._version for t in sources]
                result = function(*new_args, **new_kwargs)
                del new_args, new_kwargs, stand_ins
                self._collect(recorder, result, sources, before)
            joined = {p.joined for p in places or ()}
            self._compile(recorder, packs)
            overlap = [b for b in map(base_of, tensors) if b is not None and id(b) in self.outside
                       and id(b) not in joined]  # fmt: skip
            if overlap:
                raise Overlap(overlap)
        finally:
            recorder.release(())

    def _collect(self, recorder: Recorder, result: Any, sources: list[Tensor],
                 before: list[int]) -> None:  # fmt: skip
        """Note the result and what happened to the arguments, while the capture is on."""
        self.nodes: dict[Node, int] = {}
        self.outs: list[Out] = []
        trained = bool(recorder.grads)

        def output(tensor: TensorCore) -> Out:
            node = tensor._value()
            out = Out(self._slot(node), tensor.shape, tensor.dtype, node,
                       tensor._requires_grad and not trained)  # fmt: skip
            self.outs.append(out)
            return out

        self.template = rebuild(result, output)
        self.argument_writes = [
            (i, self._slot(t._value())) for i, t in enumerate(sources) if t._version != before[i]
        ]

    def _slot(self, node: Node) -> int:
        return self.nodes.setdefault(node, len(self.nodes))

    def _compile(self, recorder: Recorder, packs: Packs) -> None:
        """Compile what the capture found, and prepare the replay."""
        self.writes = [(w.tensor, self._slot(w.node), w.requires_grad, w.is_leaf)
                       for w in recorder.writes]  # fmt: skip
        self.grad_writes = [(owner, self._slot(node)) for owner, node in recorder.grad_writes]
        self.grads = [
            (owner, None if g is None or n is None else Out(self._slot(n), g.shape, g.dtype, n,
                                                            False))
            for owner, g, n in recorder.new_grads
        ]  # fmt: skip
        if recorder.effects is not None:  # nobody reads it, but prints are made for it
            self._slot(recorder.effects)
        self.guards = list(recorder.guards.values())
        self.modes = list(recorder.modes.values())
        self.learned = list(recorder.learned.values())
        self.draws = [(generator, blocks) for generator, _, blocks in recorder.draws]
        states = [storage for _, storage, _ in recorder.draws]
        self.state_nodes = [nd.buffer(s) for s in states]
        roots = capture.without_marks([_own(n) for n in self.nodes])
        self.has_history = any(o.has_history for o in self.outs)
        updates = self._updates(recorder)
        kept: list[Storage] = []
        if packs is not False:
            kept = panels.resident(recorder.captured, {id(t) for t, *_ in self.writes},
                                   None if packs is True else packs)
        self.compiled = (driver.compile(roots, self.placeholders + states, updates, kept) if roots
                         else None)
        read = [] if self.compiled is None else self.compiled.captured
        self.captured = [recorder.captured.get(s, s) for s in read]
        self.kept = [panels.keep(cast(TensorCore, self.captured[p.source]), p)
                     for p in (() if self.compiled is None else self.compiled.panels)]
        self.read = list(recorder.captured.values())
        self.read_nodes = [nd.buffer(s) for s in recorder.captured if self.has_history]
        self.reads_gradients = any(isinstance(s, GradientOf) for s in self.read)
        # What is changed must not be known by two names; these are known besides the arguments.
        self.changes = bool(self.writes or self.argument_writes or self.grads or self.grad_writes)
        self.outside = frozenset(recorder.outside if self.changes else ())
        self.is_plain = not (self.captured or self.changes or self.draws or self.guards
                             or self.modes or self.has_history)  # fmt: skip
        self.single = self.template[:3] if isinstance(self.template, Out) else None
        if not self.has_history:  # nodes keep the arrays of the capture alive
            self.nodes.clear()
            self.outs.clear()
            self.template = _fill(self.template, lambda out: out._replace(node=None))
            self.grads = [(owner, None if out is None else out._replace(node=None))
                          for owner, out in self.grads]
            if self.compiled is not None:
                self.compiled.forget()

    def _updates(self, recorder: Recorder) -> dict[int, Storage]:
        """Return the new values of tensors from outside that may be written over the old ones."""
        self.taken: list[TensorCore] = []
        if self.has_history:  # a later backward reads the old values
            return {}
        slots = Counter([o.slot for o in self.outs] + [slot for _, slot in self.argument_writes]
                        + [slot for _, slot in self.grad_writes]
                        + [out.slot for _, out in self.grads if out is not None]
                        + [slot for _, slot, *_ in self.writes])  # fmt: skip
        storages = {id(source): storage for storage, source in recorder.captured.items()}
        found: dict[int, Storage] = {}
        for tensor, slot, *_ in self.writes:
            storage = storages.get(id(tensor))
            if storage is not None and slots[slot] == 1 and tensor._base is None and (
                tensor._shared is None
            ):  # fmt: skip
                found[slot] = storage
                self.taken.append(tensor)
        if sum(t.numel() * t.dtype.itemsize for t in self.taken) < LEAST_REPLACED:
            self.taken.clear()
            return {}
        return found

    def fits(self, tensors: Sequence[TensorCore | None]) -> bool:
        """Whether all that the function depends on besides its arguments is as at the capture.

        That is: which tensors are learned, the modes of modules, which gradients are there, and
        which arguments it knows by itself as well.
        """
        for tensor, learned in self.learned:
            if tensor._requires_grad is not learned:
                return False
        for module, training in self.modes:
            if module.training is not training:
                return False
        for owner, guard in self.guards:
            found = _gradient(owner, tensors)
            if found is not guard and (
                found is None or type(guard) is not tuple or found._requires_grad
                or (found.shape, found.dtype) != guard
            ):
                return False
        outside = self.outside
        return not outside or all([id(t) not in outside and (
            t is None or t._base is None or id(t._base) not in outside) for t in tensors])

    def with_gradients(self) -> list[Owner]:
        """Return the tensors that must have gradients."""
        return [owner for owner, guard in self.guards if type(guard) is tuple]

    def has_twins(self, inputs: Sequence[Any], tensors: Sequence[TensorCore | None]) -> bool:
        """Whether what the function changes is known by another name as well.

        That is memory that others own, or one gradient of two tensors. The capture could not see
        it; a call like this runs the function itself.
        """
        if self.grads or self.grad_writes:
            found = [id(_gradient(owner, tensors)) for owner in self.with_gradients()]
            if len({*found}) != len(found):
                return True
        changed = [tensors[i] for i, _ in self.argument_writes] + [t for t, *_ in self.writes]
        memories = {id(b): b._shared for b in map(base_of, changed)
                    if b is not None and b._shared is not None}  # fmt: skip
        if not memories:
            return False
        read = [(id(base_of(t)), buffer) for t, buffer in zip(tensors, inputs, strict=True)]
        for source in self._sources(self.read, tensors):
            base = source if isinstance(source, Storage) else base_of(source)
            memory = base if isinstance(base, Storage) or base is None else base._shared
            if memory is not None and memory.buffer is not None:
                read.append((id(base), memory.buffer))
        read += [(key, memory.buffer) for key, memory in memories.items()]
        return any(key != other and host.overlap(memory.buffer, buffer)
                   for key, memory in memories.items() for other, buffer in read)

    def run_plain(self, inputs: list[Any]) -> Any:
        """Replay a function of its arguments alone: no state, no history, nothing captured."""
        compiled = self.compiled
        buffers = () if compiled is None else compiled.call(inputs, ())
        single = self.single
        if single is not None:
            slot, shape, dtype = single
            return over_buffer(buffers[slot], shape, dtype)
        return _fill(self.template, lambda o: over_buffer(buffers[o.slot], o.shape, o.dtype))

    def run(self, inputs: list[Any], tensors: Sequence[TensorCore | None]) -> Any:
        """Replay with the arguments' buffers."""
        for generator, blocks in self.draws:
            inputs.append(capture.fresh_state(generator, blocks))
        read = self._captured_buffers(tensors) if self.captured else ()
        past = self._past(inputs, tensors) if self.has_history and state.grad else None
        if self.taken:
            self._let_go(tensors)
        compiled, buffers = self.compiled, []
        if compiled is not None:
            buffers = (compiled.call(inputs, read, None, self._panels(compiled, read))
                       if self.kept else compiled.call(inputs, read))
        result = self._result(buffers, past)
        if self.changes:
            self._write_back(buffers, tensors)
        return result

    def _panels(self, compiled: driver.Compiled, read: Sequence[Any]) -> list[Any]:
        """Return the panels of weights, made anew where a weight has changed."""
        return [kept.current(compiled, i, read[panel.source])
                for i, (kept, panel) in enumerate(zip(self.kept, compiled.panels, strict=True))]

    def _let_go(self, tensors: Sequence[TensorCore | None]) -> None:
        """Give up what the call replaces: it may then take the memory."""
        for tensor in self.taken:
            if tensor._buffer is not None and tensor._history is None:
                tensor._node = None
        if not self.reads_gradients:
            for owner, _ in self.grads:
                target = tensors[owner] if type(owner) is int else cast(TensorCore, owner)
                if target is not None:
                    target._grad = None

    def _captured_buffers(self, tensors: Sequence[TensorCore | None]) -> list[Any]:
        buffers = []
        for source in self._sources(self.captured, tensors):
            if not isinstance(source, Storage) and (
                source._buffer is None or source._base is not None
            ):
                break
            buffers.append(source.buffer if isinstance(source, Storage) else source._buffer)
        else:
            return buffers
        sources = self._sources(self.captured, tensors)
        realize_all([s for s in sources if not isinstance(s, Storage)])  # in one plan
        return [s.buffer if isinstance(s, Storage) else s._storage().buffer for s in sources]

    def _sources(self, sources: Sequence[Any], tensors: Sequence[TensorCore | None]
                 ) -> Sequence[Any]:  # fmt: skip
        """Return what a replay reads, with the gradients that are there by now."""
        if not self.reads_gradients:
            return sources
        return [_gradient(s.owner, tensors) if type(s) is GradientOf else s for s in sources]

    def _past(self, inputs: list[Any], tensors: Sequence[TensorCore | None]) -> Past:
        """Return the values that this call reads: the tensors may have others by the backward."""
        known: dict[Node, Node] = {}
        read = self._sources(self.read, tensors)
        for node, buffer in zip(self.state_nodes, inputs[len(tensors):], strict=True):
            known[node] = nd.buffer(Storage(node.dtype, 2, buffer))
        for place, given, buffer in zip(self.placeholders, tensors, inputs, strict=False):
            if given is None:  # an array, which its owner may change
                size = buffer.nbytes // place.dtype.itemsize
                values = host.fill(place.dtype, host.view(buffer, place.dtype, (size,), False))
                known[nd.buffer(place)] = nd.buffer(Storage(place.dtype, size, values))
        return Past([None if t is None else _node(t) for t in tensors],
                    [_node(t) for t in read], known)  # fmt: skip

    def _result(self, buffers: list[Any], past: Past | None) -> Any:
        def made(out: Out) -> Tensor:
            tensor = over_buffer(buffers[out.slot], out.shape, out.dtype)
            if out.has_history and past is not None and out.node is not None:
                tensor._requires_grad, tensor._is_leaf = True, False
                tensor._history = functools.partial(self._rebuild_history, out.node, past)
            return tensor

        return _fill(self.template, made)

    def _rebuild_history(self, node: Node, past: Past) -> Node:
        """Return how a result was computed, in terms of what its call read."""
        known = dict(past.leaves)
        for leaf, value in zip(self.read_nodes, past.captured, strict=True):
            known[leaf] = infer.reshape(value, leaf.shape)
        for leaf, given in zip(self.leaf_nodes, past.arguments, strict=True):
            if given is not None:
                known[leaf] = given
        return capture.substitute(node, known.get)

    def _write_back(self, buffers: list[Any], tensors: Sequence[TensorCore | None]) -> None:
        for tensor, slot, needs, leaf in self.writes:
            _give(tensor, buffers[slot])
            tensor._requires_grad, tensor._is_leaf = needs and leaf, True
        for i, slot in self.argument_writes:
            target = tensors[i]
            if target is not None:
                _give(target, buffers[slot])
        for owner, slot in self.grad_writes:
            gradient = _gradient(owner, tensors)
            if gradient is not None:
                _give(gradient, buffers[slot])
        for owner, out in self.grads:
            target = tensors[owner] if type(owner) is int else cast(TensorCore, owner)
            if target is not None:
                target._grad = None if out is None else over_buffer(
                    buffers[out.slot], out.shape, out.dtype)


def _node(tensor: TensorCore) -> Node:
    node = tensor._node
    return tensor._value() if node is None or tensor._base is not None else node


def base_of(tensor: TensorCore | None) -> TensorCore | None:
    """Return the tensor whose memory a tensor lies in: itself, unless it is a view."""
    return tensor if tensor is None or tensor._base is None else tensor._base


def _gradient(owner: Owner, tensors: Sequence[TensorCore | None]) -> TensorCore | None:
    tensor = tensors[owner] if type(owner) is int else cast(TensorCore, owner)
    return None if tensor is None else tensor._grad


def _placed(recorder: Recorder, sources: Sequence[Tensor], tensors: Sequence[TensorCore | None],
            place: Place) -> Tensor:  # fmt: skip
    """Return what stands for an argument, given what stands for the sources."""
    stand_in = sources[place.source]
    base = tensors[place.source]
    if place.joined is not None and base is not None:
        recorder.joined(base, stand_in)
    for step in place.path or ():
        stand_in = stand_in._view(step)
    return stand_in


def _own(node: Node) -> Node:
    """Return a node whose value lies in memory of its own, never in an argument's."""
    source = node
    while source.op in (Op.RESHAPE, Op.DETACH):
        source = source.args[0]
    return infer.contiguous(node) if source.op is Op.BUFFER else node


def _give(tensor: TensorCore, buffer: Any) -> None:
    """Replace a tensor's value by what a replay computed."""
    if tensor._base is not None:
        with no_grad():
            tensor._write(host.leaf(Storage(tensor.dtype, tensor.numel(), buffer), tensor.shape))
        return
    shared = tensor._shared
    if shared is not None:
        flush_readers(shared, tensor)
        host.put_back(shared, buffer)
        tensor._version += 1
        return
    tensor._buffer, tensor._node, tensor._history = buffer, None, None
    tensor._version += 1


def _replace_arrays(value: Any, stand_ins: Any) -> Any:
    """Return the arguments with arrays replaced, in the order in which flatten saw them."""
    if isinstance(value, TensorCore) or is_array(value):
        return next(stand_ins)
    return with_items(value, lambda v: _replace_arrays(v, stand_ins))


def _fill(template: Any, made: Callable[[Out], Any]) -> Any:
    if isinstance(template, Out):
        return made(template)
    return with_items(template, lambda v: _fill(v, made))
