"""One captured signature: its inputs and outputs, its compiled plan, and the replay.

`weft.capture.jit` finds the entry that fits a call; `weft.capture.native_dispatch` writes down in
native code what `Entry.fits` and `Entry.run` say.
"""

from __future__ import annotations

import contextlib
import functools
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from itertools import repeat
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

from weft import driver
from weft.capture import capture
from weft.capture import packed_weights as panels
from weft.capture.capture import GradientOf, Owner, Recorder
from weft.capture.captured_values import (
    Argument,
    Out,
    Overlap,
    Past,
    Place,
    base_of,
    fill,
    give,
    gradient_of,
    node_of,
    own_node,
    placed,
)
from weft.capture.pytree import rebuild, replaced
from weft.exchange import host
from weft.ir import infer
from weft.ir import node as nd
from weft.ir.node import Node, Storage
from weft.locks import mutex
from weft.tensors.api.tensor import Tensor, over_buffer
from weft.tensors.core.lazy_tensor import TensorCore
from weft.tensors.core.replacing import each, replacing
from weft.tensors.core.runtime_scalars import Scalars
from weft.tensors.core.tensor_value import realize_all
from weft.tensors.core.thread_state import state
from weft.tensors.core.write_lock import OutOfTurn, writing

if TYPE_CHECKING:
    from weft.capture.usage import Usage
    from weft.runtimes.native.calls.tally import Tally

__all__ = ["LEAST_REPLACED", "Entry", "Packs", "Symbolic", "capturing"]

capturing: Final = mutex()  # a capture changes the tensors it watches, until it ends

Packs = bool | int  # whether panels of weights are kept between calls, or how many bytes at most
# Values are written over old ones where that many bytes are replaced. A call that does so is made
# from Python (6 µs), which smaller steps would feel more than the memory: theirs is in a cache.
LEAST_REPLACED = 1 << 20
_set_buffer: Final[Any] = cast(Any, TensorCore._buffer).__set__


class Symbolic(Protocol):
    """What stands for sizes and numbers in a capture (`weft.capture.symbols`)."""

    scalars: Scalars | None
    sizes: Any  # None: they are numbers, or variables of the user's

    @property
    def live(self) -> contextlib.AbstractContextManager[object]:
        """A block in which sizes are symbolic."""

    def given(self, arguments: Sequence[Argument]) -> Sequence[Argument]:
        """Return the arguments with symbolic sizes."""

    def resolve(self, entry: Entry, recorder: Recorder) -> None:
        """Make constants of what the function needed, while sizes are symbolic still."""

    def finish(self, entry: Entry) -> None:
        """Leave no symbol with anybody."""

    def abandon(self) -> None:
        """Leave no symbol with anybody where there is no capture."""


class Entry:
    """One captured signature: the compiled graph, and what to do around a call of it."""

    def __init__(self, function: Callable[..., Any], args: Any, kwargs: Any,
                 arguments: Sequence[Argument], places: Sequence[Place] | None = None,
                 packs: Packs = False, symbols: Symbolic | None = None) -> None:  # fmt: skip
        tensors = [a.tensor for a in arguments]
        self.tries = 0  # how often native dispatches may have been made
        self.attached: set[Hashable] = set()  # for which kinds of arguments there are any
        recorder = Recorder(tensors)
        try:
            if symbols is None:
                self._watch(recorder, function, args, kwargs, arguments, places, None)
            else:
                with symbols.live:
                    self._watch(recorder, function, args, kwargs, symbols.given(arguments),
                                places, symbols.scalars)
                    symbols.resolve(self, recorder)
                symbols.finish(self)
            joined = {p.joined for p in places or ()}
            self._compile(recorder, packs)
            overlap = [b for b in map(base_of, tensors) if b is not None and id(b) in self.outside
                       and id(b) not in joined]  # fmt: skip
            if overlap:
                raise Overlap(overlap)
        except BaseException:
            if symbols is not None:
                symbols.abandon()
            raise
        finally:
            recorder.release(())

    after: Callable[[float], object] | None = None  # gets the seconds that a call took
    usage: Usage | None = None  # of sizes that may get a plan of their own
    base: Entry | None = None  # the capture for all sizes, of which this is one at some
    tally: Tally | None = None  # where native code counts the calls of one for all sizes
    is_native = False  # whether one for all sizes has such code

    def _watch(self, recorder: Recorder, function: Callable[..., Any], args: Any, kwargs: Any,
               arguments: Sequence[Argument], places: Sequence[Place] | None,
               scalars: Scalars | None) -> None:  # fmt: skip
        """Call the function once, and note what it computes and changes."""
        self.places = places
        self.scalars = None if scalars is None else scalars.plan
        tensors = [a.tensor for a in arguments]
        with recorder:
            self.placeholders: list[Storage] = []
            sources: list[Tensor] = []
            for i, a in enumerate(arguments):
                storage, tensor = recorder.placeholder(*a[2:8], a.buffer.device)
                tensor._is_leaf = a.is_leaf
                self.placeholders.append(storage)
                recorder.stands_for(tensor, i)
                sources.append(tensor)
            stand_ins = sources if places is None else [
                placed(recorder, sources, tensors, place) for place in places]
            self.leaf_nodes = [t._value() for t in sources]
            before = [t._version for t in sources]
            given = None if scalars is None else iter(scalars.given)
            new_args, new_kwargs = replaced((args, kwargs), iter(stand_ins), given)
            with scalars or contextlib.nullcontext():
                result = function(*new_args, **new_kwargs)
            del new_args, new_kwargs, stand_ins
            self._collect(recorder, result, sources, before)
        self._note_effects(recorder)

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
        written = [(i, t, t._value()) for i, t in enumerate(sources) if t._version != before[i]]
        self.argument_writes = [(i, self._slot(node)) for i, _, node in written]
        # What a later backward passes: writes that were recorded.
        self.recorded: list[tuple[TensorCore | int, Node]] = [
            (i, node) for i, t, node in written
            if t._requires_grad and not t._is_leaf and not trained]  # fmt: skip

    def _slot(self, node: Node) -> int:
        return self.nodes.setdefault(node, len(self.nodes))

    def _note_effects(self, recorder: Recorder) -> None:
        """Note what the capture changes, and what it depends on besides its arguments."""
        self.writes = [(w.tensor, self._slot(w.node), w.requires_grad, w.is_leaf)
                       for w in recorder.writes]  # fmt: skip
        if not recorder.grads:
            self.recorded += [(w.tensor, w.node) for w in recorder.writes
                              if w.requires_grad and not w.is_leaf]
        self.grad_writes = [(owner, self._slot(node)) for owner, node in recorder.grad_writes]
        self.grads = [
            (owner, None if g is None or n is None else Out(self._slot(n), g.shape, g.dtype, n,
                                                            False))
            for owner, g, n in recorder.new_grads
        ]  # fmt: skip
        if recorder.effects is not None:  # nobody reads it, but prints are made for it
            self._slot(recorder.effects)
        self.guards = list(recorder.guards.values())
        self.settings = list(recorder.settings.values())
        self.learned = list(recorder.learned.values())
        self.draws = [(generator, blocks) for generator, _, blocks in recorder.draws]

    def _compile(self, recorder: Recorder, packs: Packs) -> None:
        """Compile what the capture found, and prepare the replay."""
        states = [storage for _, storage, _ in recorder.draws]
        self.state_nodes = [nd.buffer(s) for s in states]
        slots = [] if self.scalars is None else list(self.scalars.slots.values())
        self.scalar_nodes = [nd.buffer(s) for s in slots]
        roots = capture.without_marks([own_node(n) for n in self.nodes])
        self.by_hand = recorder.by_hand
        self.has_history = bool(self.recorded) or any(o.has_history for o in self.outs)
        updates = self._updates(recorder)
        kept: list[Storage] = []
        if packs is not False:
            kept = panels.resident(recorder.captured, {id(t) for t, *_ in self.writes},
                                   None if packs is True else packs)
        given = self.placeholders + states + slots
        self.compiled = driver.compile(roots, given, updates, kept) if roots else None
        self.taken *= self.compiled is not None and self.compiled.takes_over
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
                             or self.settings or self.has_history or self.scalars)  # fmt: skip
        self.single = self.template[:3] if isinstance(self.template, Out) else None
        if not self.has_history:  # nodes keep the arrays of the capture alive
            self.nodes.clear()
            self.outs.clear()
            self.template = fill(self.template, lambda out: out._replace(node=None))
            self.grads = [(owner, None if out is None else out._replace(node=None))
                          for owner, out in self.grads]
            if self.compiled is not None:
                self.compiled.forget()

    def _updates(self, recorder: Recorder) -> dict[int, Storage]:
        """Return the new values of tensors from outside that may be written over the old ones."""
        self.taken: list[TensorCore] = []
        self.taken_slots: list[int] = []
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
                self.taken_slots.append(slot)
        if sum(t.numel() * t.dtype.itemsize for t in self.taken) < LEAST_REPLACED:
            self.taken.clear()
            return {}
        return found

    def fits(self, tensors: Sequence[TensorCore | None]) -> bool:
        """Whether all that the function depends on besides its arguments is as at the capture.

        That is: which tensors are learned, modes of modules and options of optimisers, which
        gradients are there, and which arguments it knows by itself as well.
        """
        for tensor, learned in self.learned:
            if tensor._requires_grad is not learned:
                return False
        for owner, name, value in self.settings:
            if getattr(owner, name) is not value:
                return False
        for owner, guard in self.guards:
            found = gradient_of(owner, tensors)
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

    def is_by_hand(self, inputs: Sequence[Any], tensors: Sequence[TensorCore | None]) -> bool:
        """Whether a call has to run the function itself: only eager work does what it says.

        That is so where it changes what has a history for gradients, or what is known by another
        name as well.
        """
        if self.by_hand or self._meets_history(tensors):
            return True
        return self.has_twins(inputs, tensors)

    def _meets_history(self, tensors: Sequence[TensorCore | None]) -> bool:
        """Whether the function changes tensors whose gradients a replay would cut off."""
        kept = self.has_history and state.grad
        changed = [tensors[i] for i, _ in self.argument_writes] + [t for t, *_ in self.writes]
        for tensor in changed:
            base = base_of(tensor)
            for t in (tensor, base):
                if t is not None and t._requires_grad and (kept or not t._is_leaf):
                    return True
        return any(t is not None and (t._base is not None or t._shared is not None)
                   for t in self._recorded_tensors(tensors))

    def _recorded_tensors(self, tensors: Sequence[TensorCore | None]) -> list[TensorCore | None]:
        return [tensors[owner] if isinstance(owner, int) else owner for owner, _ in self.recorded]

    def has_twins(self, inputs: Sequence[Any], tensors: Sequence[TensorCore | None]) -> bool:
        """Whether what the function changes is known by another name as well.

        That is memory that others own, or one gradient of two tensors. The capture could not see
        it; a call like this runs the function itself.
        """
        if self.grads or self.grad_writes:
            found = [id(gradient_of(owner, tensors)) for owner in self.with_gradients()]
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

    def take_turn(self) -> None:
        """Require that this thread alone changes tensors, if the function does.

        Raises
        ------
        OutOfTurn
            If the caller has to begin again inside ``writing``: what it has read may be old.
        """
        if self.changes and not writing.is_mine:
            raise OutOfTurn

    def run_plain(self, inputs: list[Any]) -> Any:
        """Replay a function of its arguments alone: no state, no history, nothing captured."""
        compiled = self.compiled
        buffers = () if compiled is None else compiled.call(inputs, ())
        single = self.single
        if single is not None:
            slot, shape, dtype = single
            return over_buffer(buffers[slot], shape, dtype)
        return fill(self.template, lambda o: over_buffer(buffers[o.slot], o.shape, o.dtype))

    def run(self, inputs: list[Any], tensors: Sequence[TensorCore | None],
            scalars: Sequence[Any] = ()) -> Any:  # fmt: skip
        """Replay with the arguments' buffers, and those of the run-time scalars."""
        self.take_turn()
        for generator, blocks in self.draws:
            inputs.append(capture.fresh_state(generator, blocks))
        inputs += scalars
        read = self._captured_buffers(tensors) if self.captured else ()
        past = self._past(inputs, tensors) if self.has_history and state.grad else None
        compiled = self.compiled
        buffers: list[Any] = []
        if compiled is not None:
            panels = self._panels(compiled, read) if self.kept else ()
            buffers = (self._replace(compiled, inputs, read, panels, tensors) if self.taken
                       else compiled.call(inputs, read, None, panels))
        result = self._result(buffers, past)
        if self.changes:
            self._write_back(buffers, tensors)
        if past is not None:
            for target, (_, node) in zip(self._recorded_tensors(tensors), self.recorded,
                                         strict=True):  # fmt: skip
                if target is not None:
                    target._requires_grad, target._is_leaf = True, False
                    target._history = functools.partial(self._rebuild_history, node, past)
        return result

    def _panels(self, compiled: Any, read: Sequence[Any]) -> list[Any]:
        """Return the panels of weights, made anew where a weight has changed."""
        return [kept.current(compiled, i, read[panel.source])
                for i, (kept, panel) in enumerate(zip(self.kept, compiled.panels, strict=True))]

    def _replace(self, compiled: Any, inputs: list[Any], read: Sequence[Any],
                 panels: Sequence[Any], tensors: Sequence[TensorCore | None]) -> list[Any]:
        """Run the plan, which writes new values over the memory of old ones that nobody knows.

        Meanwhile the tensors have none, so that nobody comes to know it: who asks waits.
        """
        self._let_go(tensors)
        taken, slots, kept = [], [], []
        for tensor, slot in zip(self.taken, self.taken_slots, strict=True):
            if tensor._buffer is not None and tensor._history is None:
                taken.append(tensor)
                slots.append(slot)
            else:
                kept.append(tensor._buffer)  # so that somebody knows it
        buffers: list[Any] = []
        with replacing:
            held = replacing.begin(taken)
            values: Iterable[Any] = held.values()
            try:
                each(_set_buffer, taken, repeat(None))
                buffers = compiled.call(inputs, read, None, panels)
                values = [buffers[slot] for slot in slots]
            finally:
                each(_set_buffer, taken, values)
                replacing.end()
        return buffers

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
            buffer = source.buffer if isinstance(source, Storage) else source._buffer
            if not isinstance(source, Storage) and (buffer is None or source._base is not None):
                break
            buffers.append(buffer)
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
        return [gradient_of(s.owner, tensors) if type(s) is GradientOf else s for s in sources]

    def _past(self, inputs: list[Any], tensors: Sequence[TensorCore | None]) -> Past:
        """Return the values that this call reads: the tensors may have others by the backward."""
        known: dict[Node, Node] = {}
        read = self._sources(self.read, tensors)
        own = [*self.state_nodes, *self.scalar_nodes]
        for node, buffer in zip(own, inputs[len(tensors):], strict=True):
            known[node] = nd.buffer(Storage(node.dtype, cast(int, node.shape[0]), buffer))
        for place, given, buffer in zip(self.placeholders, tensors, inputs, strict=False):
            if given is None:  # an array, which its owner may change
                size = buffer.nbytes // place.dtype.itemsize
                values = host.fill(place.dtype, host.view(buffer, place.dtype, (size,), False))
                known[nd.buffer(place)] = nd.buffer(Storage(place.dtype, size, values))
        return Past([None if t is None else node_of(t) for t in tensors],
                    [node_of(t) for t in read], known)  # fmt: skip

    def _result(self, buffers: list[Any], past: Past | None) -> Any:
        def made(out: Out) -> Tensor:
            tensor = over_buffer(buffers[out.slot], out.shape, out.dtype)
            if out.has_history and past is not None and out.node is not None:
                tensor._requires_grad, tensor._is_leaf = True, False
                tensor._history = functools.partial(self._rebuild_history, out.node, past)
            return tensor

        return fill(self.template, made)

    def _rebuild_history(self, node: Node, past: Past) -> Node:
        """Return how a result was computed, in terms of what its call read."""
        known = dict(past.leaves)
        for leaf, value in zip(self.read_nodes, past.captured, strict=True):
            known[leaf] = infer.reshape(value, leaf.shape)
            known[infer.reshape(leaf, value.shape)] = value  # the node that others read, too
        for leaf, given in zip(self.leaf_nodes, past.arguments, strict=True):
            if given is not None:
                known[leaf] = given
        return capture.substitute(node, known.get)

    def _write_back(self, buffers: list[Any], tensors: Sequence[TensorCore | None]) -> None:
        for tensor, slot, needs, leaf in self.writes:
            give(tensor, buffers[slot])
            tensor._requires_grad, tensor._is_leaf = needs and leaf, True
        for i, slot in self.argument_writes:
            target = tensors[i]
            if target is not None:
                give(target, buffers[slot])
        for owner, slot in self.grad_writes:
            gradient = gradient_of(owner, tensors)
            if gradient is not None:
                give(gradient, buffers[slot])
        for owner, out in self.grads:
            target = tensors[owner] if type(owner) is int else cast(TensorCore, owner)
            if target is not None:
                target._grad = None if out is None else over_buffer(
                    buffers[out.slot], out.shape, out.dtype)
