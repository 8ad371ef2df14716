"""Specialise a captured graph: constants and variables in place of its symbols.

A function runs once for a capture, on sizes and numbers that are symbols as far as it allows that.
What it turned out to need is decided afterwards: the graph that was recorded gets constants where
the function needed them, and variables of the range in which all its choices are the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import copy
from types import SimpleNamespace
from typing import Any, TypeVar

from weft.capture.capture import Recorder, fix_sizes, substitute
from weft.capture.captured_graph import Entry
from weft.capture.captured_values import Out
from weft.capture.pytree import with_items
from weft.ir import node as nd
from weft.ir.expr import Expr
from weft.ir.node import Dim, Node, Storage
from weft.ir.size import replaced
from weft.tensors.core.runtime_scalars import Scalars, number_of

__all__ = ["detached", "specialize"]

E = TypeVar("E", bound=Entry)


def specialize(entry: Entry, values: Mapping[str, Dim], scalars: Scalars | None = None) -> None:
    """Replace symbolic sizes and numbers of a captured graph, before it is compiled.

    Parameters
    ----------
    entry
        The capture.
    values
        A number or a variable for each symbolic size, by name.
    scalars
        Open numbers: those with a reason to be constants become constants.
    """
    known = None if scalars is None else scalars.bake()
    if known is None and not values:
        return
    new: dict[Node, Node] = {}
    placeholders: list[Storage] = []
    for storage in entry.placeholders:
        if values and isinstance(storage.size, Expr):
            fresh = Storage(storage.dtype, replaced(storage.size, values), None,
                            storage.device)
            new[nd.buffer(storage)] = nd.buffer(fresh)
            storage = fresh
        placeholders.append(storage)
    entry.placeholders = placeholders

    def change(node: Node) -> Node:
        found = node if known is None else substitute(node, known)
        return fix_sizes(found, values, new) if values else found

    _change(entry, change, values)
    if scalars is not None:
        entry.scalars = scalars.plan if scalars.plan.positions else None


def detached(entry: E, recorder: Recorder) -> tuple[E, Any]:
    """Return a copy of a capture that is not compiled, and keeps no arrays from outside alive.

    With it what `Entry._compile` asks a `Recorder`.
    """
    new: dict[Node, Node] = {}
    captured: dict[Storage, Any] = {}
    for storage, source in recorder.captured.items():
        empty = Storage(storage.dtype, storage.size, None, storage.device, None, storage.shared)
        new[nd.buffer(storage)] = nd.buffer(empty)
        captured[empty] = source
    made = copy(entry)
    _change(made, lambda node: substitute(node, new.get), {})
    return made, SimpleNamespace(captured=captured, draws=recorder.draws,
                                 by_hand=recorder.by_hand, outside=recorder.outside)  # fmt: skip


def _change(entry: Entry, change: Callable[[Node], Node], values: Mapping[str, Dim]) -> None:
    """Rebuild all that a capture holds of its graph; without `values` sizes stay as they are."""
    nodes: dict[Node, int] = {}
    slots = {slot: nodes.setdefault(change(node), len(nodes))
             for node, slot in entry.nodes.items()}

    def size(given: Any) -> Any:
        return replaced(given, values) if values else given

    def out(given: Out) -> Out:
        return Out(slots[given.slot], tuple(map(size, given.shape)), given.dtype,
                   None if given.node is None else change(given.node), given.has_history)

    entry.nodes = nodes
    entry.outs = list(map(out, entry.outs))
    entry.template = _template(entry.template, out, size)
    entry.leaf_nodes = list(map(change, entry.leaf_nodes))
    entry.recorded = [(owner, change(node)) for owner, node in entry.recorded]
    entry.argument_writes = [(i, slots[slot]) for i, slot in entry.argument_writes]
    entry.writes = [(tensor, slots[slot], needs, leaf)
                    for tensor, slot, needs, leaf in entry.writes]
    entry.grad_writes = [(owner, slots[slot]) for owner, slot in entry.grad_writes]
    entry.grads = [(owner, None if given is None else out(given)) for owner, given in entry.grads]
    entry.draws = [(generator, size(blocks)) for generator, blocks in entry.draws]


def _template(value: Any, out: Callable[[Out], Out], size: Callable[[Any], Any]) -> Any:
    if isinstance(value, Out):
        return out(value)
    if isinstance(value, Expr):
        return size(value)
    return with_items(number_of(value), lambda v: _template(v, out, size))
