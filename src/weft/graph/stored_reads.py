"""Copies out of devices that only store values: which part of memory to read, and what is left.

Nothing is computed on such a device, so a copy of a view is a copy of what the view shows, where
storage can read that at once, and else of the memory that the view lies in, from its first element
to its last, and the view of that on the other side.

    copy(slice(reshape(stored)))  ->  reshape(copy(part of stored))
    copy(permute(reshape(stored)))  ->  strided(copy(part of stored))
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple, cast

from weft.errors import DeviceError
from weft.ir import infer
from weft.ir import node as nd
from weft.ir.expr import Expr
from weft.ir.node import Node, Storage
from weft.ir.op import Op, storage_only

__all__ = ["Part", "part_of_leaf", "read_parts"]

Part = Callable[[Storage, int, Sequence[int], Sequence[int]], Storage | None]


class _Region(NamedTuple):
    """Where the elements of a view lie in a flat array, in elements.

    Attributes
    ----------
    first : int
        The element at index 0 of every axis.
    shape, strides : tuple of int
        Sizes, and how far neighbours are apart; steps may be negative.
    """

    first: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @property
    def span(self) -> tuple[int, int]:
        """The lowest element, and how many there are up to the highest."""
        if 0 in self.shape:
            return 0, 0
        ends = [(n - 1) * s for n, s in zip(self.shape, self.strides, strict=True)]
        low = self.first + sum(min(0, e) for e in ends)
        return low, self.first + sum(max(0, e) for e in ends) - low + 1

    @property
    def is_contiguous(self) -> bool:
        """Whether the elements lie one behind the other, in row-major order."""
        return 0 in self.shape or all(
            n == 1 or s == row
            for n, s, row in zip(self.shape, self.strides, _row_major(self.shape), strict=True))


def read_parts(outputs: Sequence[Node], part: Part | None = None) -> list[Node]:
    """Return a graph whose copies out of storage copy leaves, or parts of leaves, alone.

    Parameters
    ----------
    outputs
        The graph.
    part
        ``(storage, first, shape, strides)``: returns a storage of these elements alone, given by
        the first and by steps in elements; None for elements with gaps that are not to be read
        so. Without it a part is a slice of the flat leaf, see `part_of_leaf`.

    Raises
    ------
    DeviceError
        If an output is a view of stored values with gaps, which only a copy closes, or, without
        `part`, any view of them.
    """
    made: dict[Node, Node] = {}
    for node in nd.toposort(outputs):
        if node.op is Op.COPY and node.args[0].device in storage_only:
            made[node] = _copied(node.args[0], node.device, part)
        elif node.device in storage_only:
            made[node] = node
        else:
            made[node] = nd.with_args(node, tuple([made[a] for a in node.args]))
    return [_own(made[o], part) if o.device in storage_only else made[o] for o in outputs]


def part_of_leaf(node: Node) -> tuple[Node, int] | None:
    """Return the flat leaf that a node is a part of, and the part's first element.

    None for what is no slice of stored values that `read_parts` has made.
    """
    below = nd.base(node)
    if below.op is not Op.SLICE or below.device not in storage_only:
        return None
    return nd.base(below.args[0]), below.attr.starts[0]


def _copied(view: Node, device: str, part: Part | None) -> Node:
    """Return a view of stored values on another device."""
    leaf, region, above = _region(view)
    if region is None:
        found = infer.copy(leaf, device)
    else:
        stored = _part(leaf, region, part)
        if stored is None:
            low, count = region.span
            found = infer.strided(infer.copy(_flat(leaf, low, count, part), device), region.shape,
                                  region.first - low, region.strides)
        else:
            found = infer.reshape(infer.copy(stored, device), region.shape)
    for node in above:
        found = nd.with_args(node, (found,))
    return found


def _own(output: Node, part: Part | None) -> Node:
    """Return an output that stays where it is stored."""
    if nd.base(output).op is Op.BUFFER:
        return output
    leaf, region, above = _region(output)
    found = None if region is None or above else _part(leaf, region, part)
    if region is None or found is None or found.op is not Op.BUFFER:
        raise DeviceError("realize", found=f"a view of a tensor on {output.device}",
                          expected="elements that lie there one behind the other",
                          hint="copy it, as in x.to('cpu')")
    return infer.reshape(found, region.shape)


def _part(leaf: Node, region: _Region, part: Part | None) -> Node | None:
    """Return the elements of a region as a flat array, None if they have gaps that stay."""
    if region.is_contiguous:
        return _flat(leaf, *region.span, part)
    found = part(leaf.attr, region.first, region.shape, region.strides) if part else None
    return None if found is None else nd.buffer(found)


def _flat(leaf: Node, first: int, count: int, part: Part | None) -> Node:
    """Return elements of a flat leaf that lie one behind the other."""
    if first == 0 and count == leaf.shape[0]:
        return leaf
    if part is None:
        return infer.slice_(leaf, (first,), (count,))
    return nd.buffer(cast(Storage, part(leaf.attr, first, (count,), (1,))))


def _region(view: Node) -> tuple[Node, _Region | None, list[Node]]:
    """Return the leaf of a view, where the elements lie in it, and the moves that this leaves out.

    There is no region of an array of symbolic size.
    """
    chain: list[Node] = []
    while view.op is not Op.BUFFER:
        chain.append(view)
        view, = view.args
    chain.reverse()
    if isinstance(view.shape[0], Expr):
        return view, None, chain
    region = _Region(0, (view.shape[0],), (1,))
    for i, node in enumerate(chain):
        moved = _moved(region, node)
        if moved is None:
            return view, region, chain[i:]
        region = moved
    return view, region, []


def _moved(region: _Region, node: Node) -> _Region | None:
    """Return the region of a move of a region, None if strides do not tell it."""
    if any(isinstance(n, Expr) for n in node.shape):
        return None
    shape: tuple[int, ...] = tuple([n for n in node.shape if not isinstance(n, Expr)])
    first, strides = region.first, region.strides
    if node.op is Op.RESHAPE:
        if region.is_contiguous:
            return _Region(first, shape, _row_major(shape))
        kept = [s for n, s in zip(region.shape, strides, strict=True) if n != 1]
        if [n for n in region.shape if n != 1] != [n for n in shape if n != 1]:
            return None
        return _Region(first, shape, tuple([0 if n == 1 else kept.pop(0) for n in shape]))
    if node.op is Op.PERMUTE:
        return _Region(first, shape, tuple([strides[a] for a in node.attr]))
    if node.op is Op.SLICE:
        starts = node.attr.starts
        if any(isinstance(s, Expr) for s in starts):
            return None
        first += sum(a * s for a, s in zip(starts, strides, strict=True))
        steps = zip(node.attr.steps, strides, strict=True)
        return _Region(first, shape, tuple([a * s for a, s in steps]))
    if node.op is Op.STRIDED and region.is_contiguous:
        return _Region(first + node.attr.offset, shape, node.attr.strides)
    return region if node.op in (Op.CONTIGUOUS, Op.DETACH) else None


def _row_major(shape: Sequence[int]) -> tuple[int, ...]:
    return tuple([math.prod(shape[i + 1:]) for i in range(len(shape))])
