"""Graphs over memory that others own: which leaves read it, and which of them are recorded.

A graph is a value, but what it reads of such memory changes when somebody writes there. Values
that are still to be computed are computed before a write. What backward will read is remembered
here instead, and gets a copy at the first write.
"""

from __future__ import annotations

from typing import Any, Final, cast

from weft.exchange import host
from weft.ir import history, infer
from weft.ir import node as nd
from weft.ir.node import Node, Storage
from weft.ir.op import Op
from weft.weak import Living

__all__ = ["apart", "copied", "note_recorded", "reads", "recorded_over"]

_recorded: Final = Living[Storage]()


def apart(node: Node, tracked: bool) -> Node:
    """Return a value that is to have memory of its own, as a copy if it is that of others.

    With `tracked`, gradients go to what it is copied from.
    """
    source = node
    while source.op is Op.RESHAPE or source.op is Op.DETACH:
        source = source.args[0]
    if source.op is not Op.BUFFER or not source.attr.shared:
        return node
    made = infer.contiguous(node)
    return infer.overwritten(made, node) if tracked else made


def copied(storage: Storage) -> Storage:
    """Return another storage with a copy of the elements."""
    buffer = host.head(storage.buffer, int(cast(Any, storage.size)) * storage.dtype.itemsize)
    return Storage(storage.dtype, storage.size, buffer, storage.device)


def reads(node: Node, buffer: Any = None) -> bool:
    """Return whether a graph reads memory that others own; with `buffer`, some of that memory."""
    return any(
        n.op is Op.BUFFER and n.attr.shared and n.attr.buffer is not None
        and (buffer is None or host.overlap(n.attr.buffer, buffer))  # slices of one array overlap
        for n in nd.toposort([node])
    )  # fmt: skip


def note_recorded(node: Node) -> bool:
    """Remember what a graph for backward reads of such memory; return whether it reads any."""
    seen, stack, found = {node}, [node], False
    while stack:
        n = stack.pop()
        if n.op is Op.BUFFER and n.attr.shared:
            _recorded.add(n.attr)
            found = True
        below = (*n.args, *history.recorded_nodes(n)) if n.op is Op.DETACH else n.args
        stack.extend(a for a in below if a not in seen)
        seen.update(below)
    return found


def recorded_over(buffer: Any) -> list[Storage]:
    """Return the recorded leaves over some of the memory that is about to change."""
    return [s for s in _recorded
            if s.shared and s.buffer is not None and host.overlap(s.buffer, buffer)]  # fmt: skip
