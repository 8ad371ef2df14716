"""Turn constants that keep changing into run-time data, so that a loop compiles once.

A constant is part of a kernel's text: it folds, and it costs nothing to read. But ``x * rate`` with
another rate at each step would compile a kernel for each. A graph that was met before with another
float is therefore computed by a plan that reads this float from memory; its other constants stay
what they are, and one of the first floats that comes again gets a plan with it as a constant after
all. Integers, by which kernels divide and shift faster if they know them, are read from memory
after `PATIENCE` such graphs, and a lone constant always is.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from ctypes import c_double, c_float
from typing import TYPE_CHECKING, Any, Final

from weft.driver.context import host_context
from weft.driver.graph_key import Structure
from weft.ir import dtype as dt
from weft.ir import infer
from weft.ir import node as nd
from weft.ir.dtype import DType
from weft.ir.node import Node, Storage
from weft.ir.op import Op
from weft.ir.record import Record

if TYPE_CHECKING:
    from weft.runtimes.memory.buffer import Buffer

PATIENCE: Final = 4
_TRACKED: Final = 1024  # graphs whose constants are counted at a time
_MOST_SEEN: Final = 8  # constants of each that may get a plan of their own


def is_plain(node: Node) -> bool:
    """Whether a node is one constant, perhaps spread over a shape."""
    while node.op in (Op.EXPAND, Op.RESHAPE, Op.CONTIGUOUS, Op.DETACH):
        node = node.args[0]
    return node.op is Op.CONST


def as_data(nodes: Sequence[Node], chosen: Container[Node] | None = None) -> list[Node]:
    """Return the nodes with number constants below them read from memory: all, or some."""
    made: dict[Node, Node] = {}
    for node in nd.toposort(nodes):
        if _is_number(node) and (chosen is None or node in chosen):
            made[node] = _leaf(node.attr, node.dtype)
        else:
            made[node] = nd.with_args(node, tuple([made[a] for a in node.args]))
    return [made[n] for n in nodes]


class _Like(Record):
    """What is known of graphs that differ in nothing but constants."""

    first: tuple[Any, ...]  # the constants of the first
    varied: dict[int, int]  # those that differed since: how often
    seen: set[tuple[Any, ...]]  # constants of all of them; those that come again get a plan


_seen: Final[dict[int, _Like]] = {}  # by hash: of two alike other constants become data


def restless(structure: Structure) -> set[Node]:
    """Note a graph that has no plan yet; return the constants that keep changing in its like."""
    rows, outputs, *where = structure.key
    numbers = [node for node in structure.nodes if _is_number(node)]
    if not numbers:
        return set()
    key = hash((tuple(
        (*row[:4], None) if row[0] == Op.CONST.name and row[1] != "bool" else row for row in rows
    ), outputs, tuple(where)))  # fmt: skip
    values = tuple([row[4] for row in rows if row[0] == Op.CONST.name and row[1] != "bool"])
    if len(_seen) >= _TRACKED:
        _seen.clear()
    known = _seen.setdefault(key, _Like(values, {}, set()))
    if values in known.seen or len(values) != len(known.first):
        return set()
    if len(known.seen) < _MOST_SEEN:
        known.seen.add(values)
    for i, (value, first) in enumerate(zip(values, known.first, strict=True)):
        if value != first:
            known.varied[i] = known.varied.get(i, 0) + 1
    return {numbers[i] for i, count in known.varied.items()
            if count >= (1 if numbers[i].dtype.is_float else PATIENCE)}


def _is_number(node: Node) -> bool:
    return node.op is Op.CONST and not node.dtype.is_bool


def scalar(value: bool | int | float, dtype: DType) -> Buffer:
    """Return new memory with one element, rounded as a constant of a kernel is."""
    buffer: Buffer = host_context().native.pool.allocate(dtype.itemsize)
    buffer.view()[: dtype.itemsize] = _encode(value, dtype)
    return buffer


def _leaf(value: bool | int | float, dtype: DType) -> Node:
    """Return a 0-d array that holds a value."""
    return infer.reshape(nd.buffer(Storage(dtype, 1, scalar(value, dtype))), ())


def _encode(value: bool | int | float, dtype: DType) -> bytes:
    if dtype is dt.float32:
        return bytes(c_float(value))
    if dtype is dt.float64:
        return bytes(c_double(value))
    if dtype.is_float:
        from weft.renderers.base import encode_float

        return encode_float(value, dtype).to_bytes(dtype.itemsize, "little")
    return int(value).to_bytes(dtype.itemsize, "little", signed=dtype.kind == "i")
