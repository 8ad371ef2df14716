"""Constants that keep changing become data, so that a loop over values compiles once.

A constant is part of a kernel's text: it folds, and it costs nothing to read. But ``x * rate`` with
another rate at each step would compile a kernel for each. A graph that was met `PATIENCE` times
with other constants is therefore computed by a plan that reads them from memory, and a lone
constant always is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from weft.driver import device
from weft.driver.structure import Structure
from weft.ir import infer
from weft.ir import node as nd
from weft.ir.dtype import DType
from weft.ir.node import Node, Storage
from weft.ir.op import Op

PATIENCE: Final = 4
_TRACKED: Final = 4096  # graphs whose constants are counted at a time

_seen: Final[dict[Any, int]] = {}


def is_plain(node: Node) -> bool:
    """Whether a node is one constant, perhaps spread over a shape."""
    while node.op in (Op.EXPAND, Op.RESHAPE, Op.CONTIGUOUS, Op.DETACH):
        node = node.args[0]
    return node.op is Op.CONST


def as_data(nodes: Sequence[Node]) -> list[Node]:
    """Return the nodes with every number constant below them read from memory."""
    made: dict[Node, Node] = {}
    for node in nd.toposort(nodes):
        if node.op is Op.CONST and not node.dtype.is_bool:
            made[node] = _leaf(node.attr, node.dtype)
        else:
            made[node] = nd.with_args(node, tuple([made[a] for a in node.args]))
    return [made[n] for n in nodes]


def is_restless(structure: Structure) -> bool:
    """Count a graph that has no plan yet; whether its like came too often with other constants."""
    rows, outputs = structure.key
    key = (tuple(
        (*row[:4], None) if row[0] == Op.CONST.name and row[1] != "bool" else row for row in rows
    ), outputs)  # fmt: skip
    if len(_seen) >= _TRACKED:
        _seen.clear()
    count = _seen[key] = _seen.get(key, 0) + 1
    return count > PATIENCE


def _leaf(value: bool | int | float, dtype: DType) -> Node:
    """Return a 0-d array that holds a value."""
    buffer = device.allocate(dtype.itemsize)
    buffer.view()[: dtype.itemsize] = _encode(value, dtype)
    return infer.reshape(nd.buffer(Storage(dtype, 1, buffer)), ())


def _encode(value: bool | int | float, dtype: DType) -> bytes:
    if dtype.is_float:
        from weft.renderers.base import encode_float

        return encode_float(value, dtype).to_bytes(dtype.itemsize, "little")
    return int(value).to_bytes(dtype.itemsize, "little", signed=dtype.kind == "i")
