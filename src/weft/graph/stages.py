"""Split a graph whose values are on several devices into graphs of one device each.

A copy from one device to another ends one graph and begins another: its operand is a result of
the first, and its value a leaf of the second. What a later graph of the same device reads of an
earlier one is handed over as a result and a leaf, too, so that nothing is computed twice. Graphs
are ordered by how many copies lead to them, so that each comes after those that it reads from.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from weft.graph.stored_reads import part_of_leaf
from weft.ir import infer
from weft.ir import node as nd
from weft.ir.node import Node, Storage
from weft.ir.op import Op

__all__ = ["Stage", "Stages", "split_by_device"]

_REPEATING: Final = (Op.EXPAND, Op.WINDOW, Op.STRIDED)  # views of more elements than there are


class Stage(NamedTuple):
    """A graph of one device.

    Attributes
    ----------
    device : str
        Where it is computed.
    values : list of Node
        What it computes: nodes of the whole graph.
    outputs : list of Node
        The same values as a graph of this device alone, without copies.
    copies : list of (Node, Node)
        What is copied to the device before: a value or leaf of the whole graph, and the flat leaf
        that has it here.
    """

    device: str
    values: list[Node]
    outputs: list[Node]
    copies: list[tuple[Node, Node]]


class Stages(NamedTuple):
    """A whole graph as graphs of one device each.

    Attributes
    ----------
    stages : list of Stage
        In an order in which they can run.
    handed : dict of Node to Node
        Values that later stages read, and the flat leaf by which they do.
    arrived : dict of Node to Node
        Copies between devices, and the flat leaf that each fills.
    """

    stages: list[Stage]
    handed: dict[Node, Node]
    arrived: dict[Node, Node]


def split_by_device(outputs: Sequence[Node], default: str) -> Stages:
    """Return the stages of a graph.

    Parameters
    ----------
    outputs
        The graph.
    default
        Where values are computed that are on no device.
    """
    order = nd.toposort(outputs)
    level: dict[Node, int] = {}
    for node in order:
        level[node] = max([level[a] + _crosses(node) for a in node.args], default=0)
    handed: dict[Node, Node] = {}
    arrived: dict[Node, Node] = {}
    results: dict[tuple[int, str], dict[Node, None]] = {}
    copies: dict[tuple[int, str], list[tuple[Node, Node]]] = {}

    def wanted(node: Node) -> None:
        if (nd.base(node).op is not Op.BUFFER and not _crosses(nd.base(node))
                and part_of_leaf(node) is None):  # fmt: skip
            results.setdefault((level[node], node.device or default), {})[node] = None

    for node in order:
        if _crosses(node):
            arrived[node] = _leaf(node, node.device)
            copies.setdefault((level[node], node.device), []).append((node.args[0], arrived[node]))
            wanted(node.args[0])
            continue
        for operand in map(_unexpanded, node.args):
            below = nd.base(operand)
            if (level[operand] < level[node] and operand.device and operand not in handed
                    and below.op is not Op.BUFFER and not _crosses(below)):  # fmt: skip
                handed[operand] = _leaf(operand, operand.device)
                wanted(operand)
    for node in outputs:
        wanted(node)
    stages = []
    for key in sorted({*results, *copies}):
        rank, device = key
        values = list(results.get(key, ()))
        known = {n: infer.reshape(leaf, n.shape) for n, leaf in arrived.items()
                 if n.device == device and level[n] <= rank}
        known.update({n: infer.reshape(leaf, n.shape) for n, leaf in handed.items()
                      if n.device == device and level[n] < rank})
        stages.append(Stage(device, values, nd.without_copies(values, known), copies.get(key, [])))
    return Stages(stages, handed, arrived)


def _crosses(node: Node) -> bool:
    """Whether a node copies from one device to another."""
    return (node.op is Op.COPY and bool(node.args[0].device)
            and node.args[0].device != node.device)


def _unexpanded(node: Node) -> Node:
    """Return what a view repeats, the node itself if it repeats nothing.

    Views cost nothing where they are read; handed over they would take memory for each element.
    """
    found = below = node
    while below.op.group == "movement" and below.op is not Op.UNWINDOW:  # which adds
        if below.op in _REPEATING:
            found = below.args[0]
        below = below.args[0]
    return found


def _leaf(node: Node, device: str) -> Node:
    """Return a flat leaf without memory for the value of a node."""
    return nd.buffer(Storage(node.dtype, nd.size(node.shape), None, device))
