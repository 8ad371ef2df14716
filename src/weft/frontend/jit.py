"""`weft.jit`: a function captured once for each signature and replayed as one native call.

The signature is the structure of the arguments, the shape, dtype, strides and device of every
array, and the value of everything else. What a capture finds becomes the replay: tensors from
outside are read anew each time; tensors that were written (parameters, gradients, optimiser state,
running statistics) get their new values; random streams advance.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Generic, NamedTuple, ParamSpec, TypeVar, cast

from weft import driver
from weft.errors import GradientError
from weft.exchange import host
from weft.frontend import capture
from weft.frontend.capture import Recorder
from weft.frontend.core import TensorCore, realize_all
from weft.frontend.pytree import flatten, is_array, rebuild
from weft.frontend.state import state
from weft.frontend.tensor import Tensor, over_buffer
from weft.ir import infer
from weft.ir import node as nd
from weft.ir.dtype import DType
from weft.ir.node import Node, Storage
from weft.ir.op import Op

__all__ = ["Jitted"]

P = ParamSpec("P")
R = TypeVar("R")
capturing = threading.RLock()  # a capture changes the tensors it watches, until it ends


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
    """One tensor of the result."""

    slot: int
    shape: tuple[int, ...]
    dtype: DType
    node: Node
    has_history: bool


class Entry:
    """One captured signature: the compiled graph, and what to do around a call of it."""

    def __init__(self, function: Callable[..., Any], args: Any, kwargs: Any,
                 arguments: Sequence[Argument]) -> None:  # fmt: skip
        recorder = Recorder()
        with recorder:
            self.placeholders: list[Storage] = []
            stand_ins: list[Tensor] = []
            for a in arguments:
                storage, tensor = recorder.placeholder(
                    a.shape, a.dtype, a.offset, a.strides, a.span, a.requires_grad)
                self.placeholders.append(storage)
                stand_ins.append(tensor)
            self.leaf_nodes = [t._value() for t in stand_ins]
            new_args, new_kwargs = _replace_arrays((args, kwargs), iter(stand_ins))
            before = [t._version for t in stand_ins]
            result = function(*new_args, **new_kwargs)
            del new_args, new_kwargs
            self._collect(recorder, result, stand_ins, before)
        self._compile(recorder)
        recorder.release(())

    def _collect(self, recorder: Recorder, result: Any, stand_ins: list[Tensor],
                 before: list[int]) -> None:  # fmt: skip
        """Note the result and what happened to the arguments, while the capture is on."""
        self.nodes: dict[Node, int] = {}
        self.outs: list[Out] = []
        trained = bool(recorder.grads) or any(t._grad is not None for t in stand_ins)

        def output(tensor: TensorCore) -> Out:
            node = tensor._value()
            out = Out(self._slot(node), tensor.shape, tensor.dtype, node,
                       tensor._requires_grad and not trained)  # fmt: skip
            self.outs.append(out)
            return out

        self.template = rebuild(result, output)
        self.argument_writes = [
            (i, self._slot(t._value())) for i, t in enumerate(stand_ins) if t._version != before[i]
        ]
        self.argument_grads = [
            (i, self._slot(t._grad._value())) for i, t in enumerate(stand_ins)
            if t._grad is not None
        ]  # fmt: skip

    def _slot(self, node: Node) -> int:
        return self.nodes.setdefault(node, len(self.nodes))

    def _compile(self, recorder: Recorder) -> None:
        """Compile what the capture found, and prepare the replay."""
        self.writes = [(t, self._slot(n), needs, leaf) for t, n, needs, leaf in recorder.writes()]
        self.grads = [
            (t, None if g is None else Out(self._slot(n), g.shape, g.dtype, n, False))
            for t, g, n in recorder.gradients()
        ]
        self.guards = list(recorder.guards.values())
        self.draws = [(generator, blocks) for generator, _, blocks in recorder.draws]
        inputs = self.placeholders + [storage for _, storage, _ in recorder.draws]
        roots = capture.without_marks([_own(n) for n in self.nodes])
        self.compiled = driver.compile(roots, inputs) if roots else None
        read = [] if self.compiled is None else self.compiled.captured
        self.captured = [recorder.captured.get(s, s) for s in read]
        self.history = dict(recorder.captured)
        self.is_plain = not (self.captured or self.writes or self.grads or self.draws
                             or self.guards or self.argument_writes or self.argument_grads
                             or any(o.has_history for o in self.outs))  # fmt: skip
        self.single = self.template[:3] if isinstance(self.template, Out) else None

    def fits(self) -> bool:
        """Whether gradients that the function looked at are there, or not, as at the capture."""
        return all(t._grad is g for t, g in self.guards)

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
        read = self._captured_buffers()
        versions = [t._version if isinstance(t, TensorCore) else 0 for t in self.captured]
        buffers = [] if self.compiled is None else self.compiled.call(inputs, read)
        result = self._result(buffers, tensors, versions)
        self._write_back(buffers, tensors)
        return result

    def _captured_buffers(self) -> list[Any]:
        buffers = []
        for source in self.captured:
            if isinstance(source, Storage):
                buffers.append(source.buffer)
                continue
            if source._buffer is None or source._base is not None:
                realize_all((source,))
            buffer = source._buffer
            buffers.append(source._storage().buffer if buffer is None else buffer)
        return buffers

    def _result(self, buffers: list[Any], tensors: Sequence[TensorCore | None],
                versions: list[int]) -> Any:  # fmt: skip
        def made(out: Out) -> Tensor:
            tensor = over_buffer(buffers[out.slot], out.shape, out.dtype)
            if out.has_history and state.grad:
                tensor._requires_grad, tensor._is_leaf = True, False
                tensor._history = functools.partial(self._rebuild_history, out.node, tuple(tensors),
                                                    tuple(versions))  # fmt: skip
            return tensor

        return _fill(self.template, made)

    def _rebuild_history(self, node: Node, tensors: tuple[TensorCore | None, ...],
                         versions: tuple[int, ...]) -> Node:  # fmt: skip
        """Return how a result was computed, in terms of this call's arguments."""
        known: dict[Node, Node] = {}
        for leaf, tensor in zip(self.leaf_nodes, tensors, strict=True):
            if tensor is not None:
                known[leaf] = tensor._value()
        for (storage, tensor), version in zip(
            [(s, t) for s, t in self.history.items()], self._versions_of(versions), strict=True
        ):
            if tensor._requires_grad and version is not None and tensor._version != version:
                raise GradientError(
                    "backward", found="a tensor that was changed after it was used",
                    expected="the values at the time of the call",
                )
            flat = infer.reshape(tensor._value(), (storage.size,))
            known[_buffer_node(storage)] = flat
        return capture.substitute(node, known.get)

    def _versions_of(self, versions: tuple[int, ...]) -> list[int | None]:
        by_id = {id(t): v for t, v in zip(self.captured, versions, strict=True)}
        return [by_id.get(id(t)) for t in self.history.values()]

    def _write_back(self, buffers: list[Any], tensors: Sequence[TensorCore | None]) -> None:
        for tensor, slot, needs, leaf in self.writes:
            _give(tensor, buffers[slot])
            tensor._requires_grad, tensor._is_leaf = needs and leaf, True
        for i, slot in self.argument_writes:
            target = tensors[i]
            if target is not None:
                base = target if target._base is None else None
                if base is not None:
                    _give(base, buffers[slot])
                else:
                    target._write(host.leaf(Storage(target.dtype, target.numel(), buffers[slot]),
                                            target.shape))  # fmt: skip
        for tensor, out in self.grads:
            tensor._grad = None if out is None else over_buffer(
                buffers[out.slot], out.shape, out.dtype)
        for i, slot in self.argument_grads:
            target = tensors[i]
            if target is not None:
                new = over_buffer(buffers[slot], target.shape, target.dtype)
                target._grad = new if target._grad is None else cast(Tensor, target._grad).add(new)


def _buffer_node(storage: Storage) -> Node:
    return nd.buffer(storage)


def _own(node: Node) -> Node:
    """Return a node whose value lies in memory of its own, never in an argument's."""
    source = node
    while source.op in (Op.RESHAPE, Op.DETACH):
        source = source.args[0]
    return infer.contiguous(node) if source.op is Op.BUFFER else node


def _give(tensor: TensorCore, buffer: Any) -> None:
    """Replace a base tensor's value by what a replay computed."""
    shared = tensor._shared
    if shared is not None:
        host.put_back(shared, buffer)
        tensor._version += 1
        return
    tensor._buffer, tensor._node, tensor._history = buffer, None, None
    tensor._version += 1


def _replace_arrays(value: Any, stand_ins: Any) -> Any:
    """Return the arguments with arrays replaced, in the order in which flatten saw them."""
    if isinstance(value, TensorCore) or is_array(value):
        return next(stand_ins)
    kind = type(value)
    if kind is tuple or kind is list:
        return kind([_replace_arrays(v, stand_ins) for v in value])
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return kind(*[_replace_arrays(v, stand_ins) for v in value])
    if kind is dict:
        return {k: _replace_arrays(v, stand_ins) for k, v in value.items()}
    return value


def _fill(template: Any, made: Callable[[Out], Any]) -> Any:
    if isinstance(template, Out):
        return made(template)
    kind = type(template)
    if kind is tuple or kind is list:
        return kind([_fill(v, made) for v in template])
    if isinstance(template, tuple) and hasattr(template, "_fields"):
        return kind(*[_fill(v, made) for v in template])
    if kind is dict:
        return {k: _fill(v, made) for k, v in template.items()}
    return template


class Jitted(Generic[P, R]):
    """A function that is captured once for each signature of its arguments."""

    def __init__(self, function: Callable[P, R]) -> None:
        self._function = function
        self._entries: dict[Hashable, list[Entry]] = {}
        # What the first check of a call compares: (shape, dtype) of each argument, gradient mode.
        self._fast: tuple[tuple[tuple[tuple[int, ...], DType], ...], Entry, bool] | None = None
        functools.update_wrapper(self, function)

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else functools.partial(self, instance)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Replay the captured function, capturing it first for a new signature."""
        fast = self._fast
        if fast is not None and not kwargs:
            specs, entry, grad = fast
            if len(args) == len(specs) and state.capture is None and state.grad is grad:
                inputs: list[Any] = []
                for arg in args:
                    if type(arg) is not Tensor or arg._requires_grad or arg._base is not None:
                        break
                    shape, dtype = specs[len(inputs)]
                    buffer = arg._buffer
                    if buffer is None or arg.dtype is not dtype or arg.shape != shape:
                        break
                    inputs.append(buffer)
                else:
                    if entry.is_plain:
                        return entry.run_plain(inputs)  # type: ignore[no-any-return]
                    if entry.fits():
                        return cast(R, entry.run(inputs, cast("Sequence[TensorCore]", args)))
        return self._general(args, kwargs)

    def _general(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> R:
        if state.capture is not None:  # a captured function within another one
            return self._function(*args, **kwargs)
        arrays: list[Any] = []
        structure = flatten((args, kwargs), arrays)
        realize_all([a for a in arrays if isinstance(a, TensorCore)])
        arguments = [argument_of(a) for a in arrays]
        key = (structure, tuple([a.key for a in arguments]), state.grad)
        entry = next((e for e in self._entries.get(key, ()) if e.fits()), None)
        if entry is None:
            with capturing:
                entry = Entry(self._function, args, kwargs, arguments)
            self._entries.setdefault(key, []).append(entry)
        self._remember(args, kwargs, arguments, entry)
        return cast(R, entry.run([a.buffer for a in arguments], [a.tensor for a in arguments]))

    def _remember(self, args: tuple[Any, ...], kwargs: dict[str, Any],
                  arguments: list[Argument], entry: Entry) -> None:  # fmt: skip
        simple = not kwargs and len(args) == len(arguments) and all(
            type(a) is Tensor and a._base is None and not a._requires_grad for a in args)
        self._fast = None
        if simple:
            self._fast = tuple((a.shape, a.dtype) for a in arguments), entry, state.grad

    @property
    def captures(self) -> int:
        """How many signatures were captured."""
        return sum(map(len, self._entries.values()))
