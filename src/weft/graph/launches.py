"""Launches of kernels in a graph that become one.

A launch that reads what another one leaves is joined to it where
`weft.schedule.launch_fusion.legality` allows it, nothing else stands between the two, and no value
is lost: if both write to one array, nobody may want what is in it in between. What only the second
launch reads stays in registers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from weft.ir import infer
from weft.ir import node as nd
from weft.ir.node import Node
from weft.ir.op import Op
from weft.ir.stmt import For, Kernel, Memory
from weft.ir.text.text import print_kernel
from weft.ir.text.text_parse import parse_kernel
from weft.ir.traverse import walk
from weft.schedule.launch_fusion.fused_kernel import joined
from weft.schedule.launch_fusion.launches import Array, Group, Part
from weft.schedule.launch_fusion.legality import group
from weft.schedule.launch_fusion.pages import LARGE, PAGE, with_barriers

__all__ = ["join_launches"]

_ALIGNMENT: Final = 64


def join_launches(outputs: Sequence[Node]) -> list[Node]:
    """Return nodes of equal values whose launches are as few as may be."""
    found = list(outputs)
    refused: dict[Node, str] = {}
    while True:
        pair = _next_pair(found, refused)
        if pair is None:
            return _explained(found, refused)
        found = pair.replaced(found)


class _Pair(NamedTuple):
    """Two launches that become one.

    Attributes
    ----------
    values : dict of Node to Node
        For each part of the two the part of the new one.
    """

    values: dict[Node, Node]

    def replaced(self, outputs: Sequence[Node]) -> list[Node]:
        """Return the graph with the new launch."""
        new = dict(self.values)
        for node in nd.toposort(outputs):
            if node not in new:
                new[node] = nd.with_args(node, tuple([new.get(a, a) for a in node.args]))
        return [new[o] for o in outputs]


def _next_pair(outputs: Sequence[Node], refused: dict[Node, str]) -> _Pair | None:
    nodes = nd.toposort(outputs)
    launches = [n for n in nodes if _is_of_threads(n)]
    if len(launches) < 2:
        return None
    users: dict[Node, list[Node]] = {}
    for node in nodes:
        for arg in node.args:
            users.setdefault(arg, []).append(node)
    wanted = set(outputs)
    for second in launches:
        if second in refused:
            continue
        firsts = dict.fromkeys(a.args[0] for a in second.args if _is_part(a))
        for first in reversed(firsts):
            if not _stands_between(first, second):
                made = _joined(first, second, users, wanted)
                if isinstance(made, _Pair):
                    return made
                refused[second] = made
    return None


def _is_part(node: Node) -> bool:
    """Whether a value is a result of a launch for threads: of loops none is joined."""
    return node.op is Op.PROJECT and _is_of_threads(node.args[0])


def _is_of_threads(node: Node) -> bool:
    return node.op is Op.LAUNCH and '\nhint "compute"' not in node.attr.code


def _stands_between(first: Node, second: Node) -> bool:
    """Whether the second launch also reads what something else makes of the first one."""
    rest = [a for a in second.args if not (_is_part(a) and a.args[0] is first)]
    return first in nd.toposort(rest)


def _joined(first: Node, second: Node, users: dict[Node, list[Node]],
            wanted: set[Node]) -> _Pair | str:  # fmt: skip
    """Return two launches as one, or why they are not."""
    kept: set[Node] = set()  # parts of the first one that others read
    for k in range(len(first.attr.writes)):
        part = _part(first, k)
        if part in wanted or any(u is not second for u in users.get(part, ())):
            kept.add(part)
    for k, arg in enumerate(second.args):
        if k in second.attr.writes and arg in kept:
            return f"not fused: {second.attr.name} writes over what is read elsewhere"
    parts = _parts(first, second)
    groups, reasons = group(parts)
    if reasons:
        return reasons[0]
    made = groups[0]
    spare = [m for m, (part, k) in made.arrays.items() if part == 0 and k in first.attr.writes
             and _part(first, first.attr.writes.index(k)) not in kept
             and not _written_by(second, _part(first, first.attr.writes.index(k)))]
    kernel = joined(with_barriers(made, spare, parts), spare)
    return _Pair(_values(first, second, made, kernel))


def _part(launch: Node, k: int) -> Node:
    arg = launch.args[launch.attr.writes[k]]
    return nd.make(Op.PROJECT, arg.dtype, arg.shape, (launch,), k)


def _written_by(launch: Node, value: Node) -> bool:
    return any(launch.args[w] is value for w in launch.attr.writes)


def _parts(first: Node, second: Node) -> list[Part]:
    """Return the launches with addresses that tell which arrays are the same."""
    addresses: dict[object, int] = {}
    free = _ALIGNMENT
    made: list[Part] = []
    for number, launch in enumerate((first, second)):
        kernel = _kernel(launch)
        arrays: list[Array] = []
        for k, (arg, memory) in enumerate(zip(launch.args, kernel.params, strict=True)):
            # what is written lies apart from the old value
            key: object = (number, k) if k in launch.attr.writes else arg
            if number and _is_part(arg) and arg.args[0] is first:
                key = 0, first.attr.writes[arg.attr]
            nbytes = memory.dtype.itemsize
            for n in memory.shape:
                nbytes *= int(n.attr)
            if key not in addresses:  # a runtime lets large arrays begin with a page
                step = PAGE if nbytes >= LARGE else _ALIGNMENT
                addresses[key] = -(-free // step) * step
                free = addresses[key] + -(-max(nbytes, 1) // _ALIGNMENT) * _ALIGNMENT
            arrays.append(Array(addresses[key], nbytes, tuple(n.attr for n in memory.shape)))
        sizes = {s.kind: int(s.extent.attr) for s in walk(kernel.body)
                 if isinstance(s, For) and s.kind.startswith(("block.", "thread."))}
        grid, block = ((sizes.get(f"{level}.x", 1), sizes.get(f"{level}.y", 1),
                        sizes.get(f"{level}.z", 1)) for level in ("block", "thread"))
        most = dict(kernel.meta.hints).get("max_registers", 255)
        made.append(Part(launch.attr.name, kernel, grid, block, {}, tuple(arrays), most))
    return made


def _kernel(launch: Node) -> Kernel:
    """Return the kernel of a launch; all of it stands where the launch does."""
    kernel = parse_kernel(launch.attr.code)
    place = nd.locations.get(launch)
    if place is None:
        return kernel
    return kernel.replace(locations=dict.fromkeys(walk(kernel.body), place))


def _values(first: Node, second: Node, made: Group, kernel: Kernel) -> dict[Node, Node]:
    """Return the parts of the new launch for those of the two old ones."""
    args: list[Node] = []
    writes: list[int] = []
    fresh: list[int] = []
    number: dict[Memory, int] = {}
    for position, memory in enumerate(kernel.params):
        part, k = made.arrays[memory]
        launch = (first, second)[part]
        args.append(launch.args[k])
        if k in launch.attr.writes or any(
            second.args[w] is _at(first, part, k) for w in second.attr.writes
        ):
            number[memory] = len(writes)
            writes.append(position)
            if k in launch.attr.fresh:
                fresh.append(position)
    names = f"{first.attr.name}, {second.attr.name}"
    earlier = [w for w in first.attr.why if not w.startswith("fused: ")]
    parts = infer.launch(print_kernel(kernel), names, args, writes, fresh,
                         [f"fused: {names}", *earlier])
    for node in (second, first):
        if node in nd.locations:
            nd.locations.setdefault(parts[0].args[0], nd.locations[node])
    memories = {at: memory for memory, at in made.arrays.items()}
    values: dict[Node, Node] = {}
    for k, w in enumerate(first.attr.writes):
        memory = memories[0, w]
        if memory in number:
            values[_part(first, k)] = parts[number[memory]]
    for k, w in enumerate(second.attr.writes):
        arg = second.args[w]
        at = (0, first.attr.writes[arg.attr]) if _is_part(arg) and arg.args[0] is first else (1, w)
        values[_part(second, k)] = parts[number[memories[at]]]
    return values


def _at(first: Node, part: int, k: int) -> Node | None:
    """Return the value that the first launch leaves in one of its arrays."""
    if part or k not in first.attr.writes:
        return None
    return _part(first, first.attr.writes.index(k))


def _explained(outputs: Sequence[Node], refused: dict[Node, str]) -> list[Node]:
    """Return the graph with the reasons at its launches."""
    if not refused:
        return list(outputs)
    new: dict[Node, Node] = {}
    for node in nd.toposort(outputs):
        args = tuple([new[a] for a in node.args])
        attr = node.attr
        if node in refused:
            attr = attr.replace(why=(*attr.why, refused[node]))
        if args == node.args and attr is node.attr:
            new[node] = node
            continue
        new[node] = nd.make(node.op, node.dtype, node.shape, args, attr)
        if node in nd.locations:
            nd.locations.setdefault(new[node], nd.locations[node])
    return [new[o] for o in outputs]
