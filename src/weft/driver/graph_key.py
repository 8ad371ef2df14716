"""The structural key of a graph, which its plan is cached by; arrays at leaves are left out."""

from __future__ import annotations

import struct
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from weft.driver.context import Context, context
from weft.imports import importing
from weft.ir import node as nd
from weft.ir.expr import Expr
from weft.ir.node import Node, Storage
from weft.ir.op import MOVES, Op, Operation, storage_only

_BUFFER: Final = Op.BUFFER
_COPY: Final = Op.COPY
_DETACH: Final = Op.DETACH
_pack: Final = struct.Struct("<d").pack
MOST_COMPUTED: Final = 1  # times that a value is computed without being kept, if a tensor holds it
_LONGEST: Final = 400  # words of a key that `quick_key` makes: some 70 nodes


def _plain(op: Operation, attr: Any) -> Any:
    """Return an attribute as it stands in keys, which tell -0.0 from 0.0."""
    if op is Op.CONST and type(attr) is float:
        return _pack(attr)
    return (attr.before, repr(attr.value)) if op is Op.PAD else attr


def quick_key(root: Node, known: Callable[[Node], Node | None] | None
           ) -> tuple[Any, list[Storage], list[Node]] | None:  # fmt: skip
    """Return a key of a small graph with what `known` answers for replaced, its leaves, and nodes.

    Equal keys mean equal graphs, whose leaves are those of the `Structure` in its order. The nodes
    are those that tensors may hold, but for the root, which is kept. None: the graph is
    large, there are copies between devices, or values in it were computed too often.
    """
    number: dict[Node, int] = {}
    leaves: list[Storage] = []
    inside: list[Node] = []
    key: list[Any] = []  # flat: each node's part begins with its operation
    below: list[tuple[Node, tuple[Node, ...], Iterator[Node]]] = []  # whose operands come first
    node = root
    args = node.args if known is None else _replaced(node.args, known)
    rest = iter(args)
    while True:
        for arg in rest:
            if arg not in number:
                below.append((node, args, rest))
                node = arg
                args = node.args if known is None else _replaced(node.args, known)
                rest = iter(args)
                break
        else:
            if node.computed > MOST_COMPUTED:
                return None
            number[node] = len(number)
            op, attr = node.op, node.attr
            key += (op, node.dtype, node.shape)
            if op is _BUFFER:
                leaves.append(attr)
            elif attr is not None and op is not _DETACH:  # what it says is of gradients
                if op is _COPY:
                    return None
                key.append(_plain(op, attr))
            for arg in args:
                key.append(number[arg])
            if len(key) > _LONGEST:
                return None
            if not below:
                return tuple(key), leaves, inside
            if args and node.holder is not None:
                inside.append(node)
            node, args, rest = below.pop()


def _replaced(args: tuple[Node, ...], known: Callable[[Node], Node | None]) -> tuple[Node, ...]:
    return tuple([(known(a) or a) if a.args else a for a in args])


def count_computed(nodes: Iterable[Node]) -> None:
    """Note that values were computed which a tensor holds or has held when they were.

    What only moves arrays in memory is not computed.
    """
    for node in nodes:
        holder = node.holder
        if holder is not None and (node.computed or holder() is not None):
            source = node
            while source.op in MOVES:
                source = source.args[0]
            if source.args:
                node.computed += 1


class Structure:
    """A graph numbered operands first.

    Attributes
    ----------
    nodes : list of Node
    leaves : list of Storage
        Distinct arrays in memory in the order they are met: the inputs of the plan.
    key : tuple
        Equal exactly for graphs that one plan computes.
    updates : tuple of (int, int)
        Outputs, each with the leaf whose memory it may take.
    resident : tuple of int
        Leaves of which calls may keep copies, because their elements seldom change.
    context : Context
        The device that the graph is computed on, or what is on no device of it.
    devices : tuple of str
        The devices of its values, if they are several or not the default device.
    has_copies : bool
        Whether values are placed on devices or copied between them.
    """

    __slots__ = ("context", "devices", "has_copies", "key", "leaves", "nodes", "resident",
                 "updates")  # fmt: skip

    context: Context

    def __init__(self, outputs: Sequence[Node], updates: Mapping[int, Storage] | None = None,
                 resident: Container[Storage] = ()) -> None:  # fmt: skip
        self.nodes = nd.toposort(outputs)
        named = {n.device for n in self.nodes}
        named.discard("")
        first = context()
        if named and (len(named) > 1 or first.name not in named):
            self.devices = tuple(sorted(named))
            computing = [d for d in (outputs[0].device, *self.devices)
                         if d and d not in storage_only]
            self.context = context(computing[0]) if computing else first
        else:
            self.devices, self.context = (), first
        self.leaves: list[Storage] = []
        number: dict[Node, int] = {}
        rows: list[tuple[Any, ...]] = []
        self.has_copies = False
        for i, node in enumerate(self.nodes):
            number[node] = i
            op, attr = node.op, node.attr
            if op is Op.BUFFER:
                attr = len(self.leaves)
                self.leaves.append(node.attr)
            elif attr is not None:
                self.has_copies |= op is Op.COPY
                attr = None if op is Op.DETACH else _plain(op, attr)
            rows.append((op.name, node.dtype.text, node.shape,
                         tuple([number[a] for a in node.args]), attr))
        self.key: tuple[Any, ...] = (tuple(rows), tuple([number[o] for o in outputs]))
        if self.context.name != nd.HOST or self.devices:
            self.key = (*self.key, "on", self.context.name,
                        tuple([s.device for s in self.leaves]) if len(self.devices) > 1 else ())
        self.updates: tuple[tuple[int, int], ...] = ()
        if updates:
            slots = {storage: i for i, storage in enumerate(self.leaves)}
            self.updates = tuple([(o, slots[s]) for o, s in updates.items() if s in slots])
            self.key = (*self.key, self.updates)
        self.resident = tuple([i for i, s in enumerate(self.leaves) if s in resident])
        if self.resident:
            self.key = (*self.key, "resident", self.resident)

    @property
    def is_native(self) -> bool:
        """Whether all of it is computed on one device, by native code of this process.

        Native code leaves out what only says where values are. Where neither a leaf nor the default
        device says it, too, queues run the graph.
        """
        if self.devices and self.has_copies and not any(s.device for s in self.leaves):
            return False
        return len(self.devices) < 2 and self.context.is_native

    def text(self) -> str:
        """Return the key as text that is the same in every process."""
        symbols: dict[Expr, None] = {}
        for node in self.nodes:
            symbols.update(dict.fromkeys(d for d in node.shape if isinstance(d, Expr)))
            places: tuple[nd.Dim, ...] = ()
            if node.op is Op.SLICE:
                places = node.attr.starts
            elif node.op is Op.PAD:
                places = node.attr.before
            symbols.update(dict.fromkeys(d for d in places if isinstance(d, Expr)))
        if not symbols:
            return repr(self.key)
        with importing:
            from weft.ir.text.text_expr import print_expr  # names alone do not tell the bounds

        return "\n".join((repr(self.key), *map(print_expr, symbols)))
