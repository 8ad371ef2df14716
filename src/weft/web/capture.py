"""Capture a function for a browser: one graph on that device, with its inputs and its weights."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, cast

from weft.capture import capture
from weft.capture.capture import Recorder
from weft.capture.captured_graph import Packs, capturing
from weft.capture.captured_values import Argument, Out, argument_of, own_node
from weft.capture.pytree import flatten
from weft.capture.symbolic import DynamicEntry
from weft.errors import UnsupportedError
from weft.ir import node as nd
from weft.ir.dtype import DType
from weft.ir.expr import Expr
from weft.ir.node import Dim, Node, Storage
from weft.ir.op import Op
from weft.web.device import BROWSER
from weft.web.inputs import Given

__all__ = ["Array", "Captured", "capture_for_browser"]


class Array(NamedTuple):
    """An input or a result: its name, type and sizes."""

    name: str
    dtype: DType
    shape: tuple[Dim, ...]


class Captured(NamedTuple):
    """What a function computes.

    Attributes
    ----------
    roots : list of Node
        Values on the browser's device.
    inputs : list of (Array, Storage)
        Arguments, and what stands for them in the graph.
    outputs : list of (Array, int)
        Results, and the root that each is.
    weights : dict of Storage to Storage
        Leaves that have values: what stands for them in the graph, and the array.
    """

    roots: list[Node]
    inputs: list[tuple[Array, Storage]]
    outputs: list[tuple[Array, int]]
    weights: dict[Storage, Storage]


class _Entry(DynamicEntry):
    """A capture of which no plan for this machine is made."""

    def _compile(self, recorder: Recorder, packs: Packs) -> None:
        self.compiled = None
        self.roots = capture.without_marks([own_node(n) for n in self.nodes])
        self.draws_random = bool(recorder.draws)
        self.changes = bool(self.writes or self.grads or self.grad_writes)
        self.outside: frozenset[int] = frozenset()


def capture_for_browser(function: Callable[..., Any], given: Given) -> Captured:
    """Return the graph of a function, which is called once.

    Raises
    ------
    UnsupportedError
        If it changes tensors besides its arguments, or draws random numbers.
    CaptureError
        As calls of functions under `weft.jit`.
    """
    arrays: list[Any] = []
    flatten((given.args, {}), arrays)
    arguments = [_with_shape(argument_of(a), s) for a, s in zip(arrays, given.shapes, strict=True)]
    with capturing:
        entry = _Entry(function, given.args, {}, arguments)
    if entry.changes:
        raise UnsupportedError(
            "compile", found="a function that changes tensors which it is not given",
            expected="results of the arguments alone",
            hint="of a network that is in training call eval() first; pass state as an argument")
    if entry.draws_random:
        raise UnsupportedError("compile", found="a function that draws random numbers",
                               expected="results of the arguments alone",
                               hint="pass the numbers as an argument; eval() turns dropout off")
    roots, moved = _moved(entry.roots)
    taken = dict(zip(entry.placeholders, given.arrays, strict=True))
    inputs = [(Array(name, s.dtype, shape), moved.get(s, s))
              for (s, name), shape in zip(taken.items(), given.shapes, strict=True)]
    weights = {new: old for old, new in moved.items() if old not in taken}
    outputs = [(Array(name, out.dtype, out.shape), out.slot)
               for name, out in _results(entry.template, "")]
    outputs += [(Array(given.arrays[i], arguments[i].dtype, given.shapes[i]), slot)
                for i, slot in entry.argument_writes]
    if not outputs:
        raise UnsupportedError("compile", found="a function that returns no tensor and writes to "
                               "no argument", expected="results")
    return Captured(roots, inputs, outputs, weights)


def _with_shape(argument: Argument, shape: tuple[int | Expr, ...]) -> Argument:
    if shape == argument.shape:
        return argument
    return argument._replace(shape=cast("tuple[int, ...]", shape), span=cast(int, nd.size(shape)))


def _moved(roots: Sequence[Node]) -> tuple[list[Node], dict[Storage, Storage]]:
    """Return a graph with all leaves on the browser's device, and what stands for which leaf."""
    new: dict[Node, Node] = {}
    moved: dict[Storage, Storage] = {}
    roots = nd.without_copies(roots)
    for node in nd.toposort(roots):
        if node.op is Op.BUFFER:
            old = node.attr
            moved[old] = Storage(old.dtype, old.size, None, BROWSER)
            new[node] = nd.buffer(moved[old])
        else:
            new[node] = nd.with_args(node, tuple([new[a] for a in node.args]))
    return [new[root] for root in roots], moved


def _results(value: Any, name: str) -> Iterator[tuple[str, Out]]:
    """Yield the tensors of a result with their names: ``y``, ``y0``, or what dicts call them."""
    if isinstance(value, Out):
        yield name or "y", value
    elif isinstance(value, dict):
        for key, part in value.items():
            yield from _results(part, f"{name}_{key}" if name else str(key))
    elif isinstance(value, tuple) and hasattr(value, "_fields"):
        yield from _results(dict(zip(value._fields, value, strict=True)), name)
    elif isinstance(value, list | tuple):
        for i, part in enumerate(value):
            yield from _results(part, f"{name or 'y'}{i}")
