"""Graph level: whole-array operations as immutable, interned nodes.

Elementwise rows of the op table apply to nodes of one shape and dtype (constants have shape ``()``
and are expanded explicitly), so the front end decides broadcasting and promotion. Each
movement op is a pure index map (`weft.kernelize.common.indexing`). A matmul is
``reduce(sum, mul(expand(a), expand(b)))``; strategies find it by its index pattern.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from typing import Any, Final

from weft.errors import LaunchError
from weft.ir import dtype as dt
from weft.ir.dtype import DType
from weft.ir.expr import Bounds, Expr
from weft.ir.intern import Table, intern, key_of
from weft.ir.op import Op, Operation, place_of, refuse_devices, storage_only
from weft.ir.record import Record
from weft.ir.size import canonical
from weft.ir.stmt import Location
from weft.weak import WeakTable

Triple = tuple[int, int, int]

HOST: Final = "cpu"  # the device whose memory is that of this process
Dim = int | Expr  # a symbolic size is an int64 expression of VARIABLEs
Shape = tuple[Dim, ...]


class Storage:
    """Identity of one array in memory: a leaf of the graph.

    Attributes
    ----------
    dtype, size : DType, Dim
        Element type and number of elements.
    buffer : object
        What the runtime allocated, or None for a placeholder (a jit argument).
    device : str
        Where it lives: by default where its buffer is, or the memory of this process. Empty for a
        placeholder of a number, which any device may read.
    origin : Node or None
        The node that was realized into this storage, kept for differentiation only.
    """

    __slots__ = ("__weakref__", "_constant", "buffer", "device", "dtype", "origin", "shared",
                 "size")  # fmt: skip

    def __init__(self, dtype: DType, size: Dim, buffer: Any = None, device: str | None = None,
                 origin: Node | None = None, shared: bool = False) -> None:  # fmt: skip
        self.dtype, self.size, self.buffer = dtype, size, buffer
        if device is None:
            device = HOST if buffer is None else buffer.device
        self.device, self.origin, self.shared = device, origin, shared
        self._constant: weakref.ref[Storage] | None = None

    def constant(self) -> Storage:
        """Return the same array without its origin, which readers would otherwise keep alive."""
        if self.origin is None or self.shared:
            return self
        found = None if self._constant is None else self._constant()
        if found is None or found.buffer is not self.buffer:
            found = Storage(self.dtype, self.size, self.buffer, self.device)
            self._constant = weakref.ref(found)
        return found


class SliceAttr(Record):
    """``out[i] = in[start + i * step]`` on each axis; steps may be negative, never 0."""

    starts: tuple[Dim, ...]
    steps: tuple[int, ...]


class PadAttr(Record):
    """`before` elements of `value` in front of each axis; the shape gives the number behind."""

    before: tuple[Dim, ...]
    value: bool | int | float


class WindowAttr(Record):
    """``out[.., o, .., w] = in[.., o * step + w * dilation, ..]``, w appended as the last axis."""

    axis: int
    size: int
    step: int
    dilation: int


class UnwindowAttr(Record):
    """``out[.., i, .., w] = in[.., (i - w * dilation) / step, .., w]``, else 0.

    Zero where that is no whole index in range. Summed over w it is the adjoint of WINDOW.
    """

    axis: int
    step: int
    dilation: int


class StridedAttr(Record):
    """``out[i0, i1, ...] = flat[offset + i0 * strides[0] + ...]``, in elements."""

    offset: int
    strides: tuple[int, ...]


class ReduceAttr(Record):
    """Kind (sum prod max min any all) and sorted axes; the axes are dropped.

    `single` tells what the gradient of a max is: all of it at one element, as pooling has it (the
    first of equals, the last NaN), or shared by all that are largest. The value is the same.
    """

    kind: str
    axes: tuple[int, ...]
    single: bool = False


class ArgAttr(Record):
    """``max`` or ``min`` and the axis; the first of equal values wins, NaN before all."""

    kind: str
    axis: int


class ScanAttr(Record):
    """Inclusive scan: kind (sum prod max min linear) along an axis; `reverse`: from its end."""

    kind: str
    axis: int
    reverse: bool = False


class SortAttr(Record):
    """Stable sort along an axis; NaN last (first if descending); `keep`: the first, -1 all."""

    axis: int
    descending: bool
    keep: int = -1


# What gathers and scatters are called whose negative indices were moved up by the size before: a
# report counts them from the end again.
FROM_THE_END: Final = frozenset({"index", "index_select", "take", "take_along_dim"})


class GatherAttr(Record):
    """``out[i, j] = src[index[i, j], j]`` for axis 0, as torch.gather; `wrap` allows negatives."""

    axis: int
    what: str = "gather"


class ScatterAttr(Record):
    """``out = base; out[index[i, j], j] (op)= updates[i, j]``; kind set add prod max min.

    Updates are applied in row-major order, so `set` keeps the last and sums are reproducible.
    """

    axis: int
    kind: str
    what: str = "scatter"


class LaunchAttr(Record):
    """A kernel of blocks and threads on whole arrays.

    ``code`` is the text of a loop-level kernel without variables, whose parameters are the
    operands; ``name`` what reports call it. ``writes`` are the operands, by number, of which it
    makes new values: the parts of the tuple. It finds their old values in their places, but for
    those in ``fresh``, every element of which it sets and none of which it reads. ``why`` tells
    how it came to be.
    """

    code: str
    name: str
    writes: tuple[int, ...]
    fresh: tuple[int, ...] = ()
    why: tuple[str, ...] = ()


class Check(Record):
    """What a failed check of a launch says: its place, its message, and of how many threads.

    Of loops there are no threads. ``bounds`` tells that it is about an index, ``error`` what is
    raised.
    """

    place: Location
    message: str
    blocks: Triple | None
    threads: Triple | None
    bounds: bool = False
    error: type[LaunchError] = LaunchError


class LaunchPlace(Location):
    """Where a launch stands, and what its checks say by the marks at the ends of their messages."""

    checks: Mapping[str, Check] = {}


class RandomPlace(Location):
    """The user's line for a node that only serves to make random numbers."""


class Node:
    """One whole-array operation.

    Attributes
    ----------
    op, dtype, shape, args, attr
        The row of the op table, element type, sizes, operand nodes, attribute record.
    device : str
        Where the value is: that of its operands. Empty for what is computed from constants alone,
        which any device may do.
    computed : int
        How often it was computed on the way to something else, since a tensor held it.
    holder : weakref.ref or None
        The tensor that took it for its value last.
    serial : int
        0 for the one node with these parts. Otherwise it is what was recorded of one tensor (see
        `own`), and no other expression of the same parts is this node.
    used : bool
        Whether it is an operand, or a tensor's value.
    """

    __slots__ = ("__weakref__", "args", "attr", "computed", "device", "dtype", "holder", "op",
                 "serial", "shape", "used")  # fmt: skip

    op: Operation
    dtype: DType
    shape: Shape
    args: tuple[Node, ...]
    attr: Any
    device: str
    computed: int
    holder: weakref.ref[Any] | None
    serial: int
    used: bool

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.shape)

    def __repr__(self) -> str:
        attr = "" if self.attr is None else f", {self.attr!r}"
        return f"<{self.op.name} {self.dtype.text}{list(self.shape)}{attr}>"


_BUFFER: Final = Op.BUFFER
_COPY: Final = Op.COPY
_RESHAPE: Final = Op.RESHAPE
_interned: Final[Table[Node]] = {}
locations: Final[WeakTable[Node, Location]] = WeakTable()
watcher: Callable[[Node], None] | None = None  # is told of each new node
serials: Final = itertools.count(1)  # of nodes that stand for one tensor's value alone
OWN: Final = "own"  # the attribute of a DETACH whose gradient goes to its operand (see `own`)


def make(op: Operation, dtype: DType, shape: Shape, args: tuple[Node, ...] = (),
         attr: Any = None, serial: int = 0) -> Node:  # fmt: skip
    """Return the one node with these parts, unchecked (`weft.ir.infer` builds checked nodes)."""
    key: tuple[Any, ...] = (op, dtype, shape, args, attr if attr is None else key_of(attr))
    if serial:
        key = (*key, serial)
    known = _interned.get(key)
    found = None if known is None else known()
    # Python changes threads at calls: there is none between a look at a node and what follows.
    if found is not None and found.serial == serial:
        found.used = True  # by who made it, who may be another thread that is about to record it
        return found
    if found is not None:  # it has become what one tensor recorded
        _interned.pop(key, None)
    made = Node.__new__(Node)
    made.op, made.dtype, made.shape, made.args, made.attr = op, dtype, shape, args, attr
    made.computed, made.holder, made.serial, made.used = 0, None, serial, False
    device = ""
    for arg in args:
        arg.used = True
        if arg.device is not device and arg.device:
            if device:
                refuse_devices(op, device, arg.device)
            device = arg.device
    if op is _BUFFER or op is _COPY or device in storage_only:
        device = place_of(op, device, attr)
    made.device = device
    found = intern(_interned, key, made)
    if found is not made:  # another thread made it meanwhile
        if found.serial != serial:
            return make(op, dtype, shape, args, attr, serial)
        found.used = True
    if watcher is not None:
        watcher(found)
    return found


def spread(x: Node, shape: Shape) -> Node:
    """Return a 0-d value at all places of a shape, which is that of another node."""
    return make(Op.EXPAND, x.dtype, shape, (x,)) if shape else x


def own(node: Node) -> Node:
    """Return a value as one tensor records it: with a place of its own in the autograd graph.

    What one tensor recorded is no other's, although both computed the same: each has a gradient,
    and hooks, of its own. Passes over values make the one node of equal parts of it again.
    """
    serial = next(serials)
    if node.used or node.serial or not node.args or node.op is _RESHAPE:  # or of a leaf
        return make(Op.DETACH, node.dtype, node.shape, (node,), OWN, serial)
    node.serial = serial  # no call before: another thread would have seen a node without one
    return node


def with_args(node: Node, args: tuple[Node, ...]) -> Node:
    """Return the same operation on other operands, said to stand where the node stands."""
    if args == node.args and not node.serial:
        return node
    made = make(node.op, node.dtype, node.shape, args, node.attr)
    if node in locations:
        locations.setdefault(made, locations[node])
    return made


def const(value: bool | int | float, dtype: DType, operation: str = "const") -> Node:
    """Return a 0-d constant node, which `operation` reads: errors name it."""
    return make(Op.CONST, dtype, (), (), dt.check_value(value, dtype, operation))


def buffer(storage: Storage) -> Node:
    """Return the flat leaf node of a storage."""
    return make(Op.BUFFER, storage.dtype, (storage.size,), (), storage)


def variable(v: Expr) -> Node:
    """Return the 0-d int64 node of a symbolic `Variable`."""
    bounds: Bounds = v.attr
    return make(Op.VARIABLE, dt.int64, (), (), bounds)


def size(shape: Shape) -> Dim:
    """Return the number of elements of a shape."""
    total: Dim = 1
    for dim in shape:
        total = total * dim if isinstance(total, Expr) or not isinstance(dim, Expr) else dim * total
    return canonical(total) if isinstance(total, Expr) else total


def flat_leaf(node: Node) -> Node:
    """Return the flat BUFFER below a leaf: reshapes of a leaf read it directly."""
    return node.args[0] if node.op is Op.RESHAPE and node.args[0].op is Op.BUFFER else node


def base(node: Node) -> Node:
    """Return the array that a node shows in its own or another shape: reshapes are taken off."""
    while node.op is Op.RESHAPE or node.attr is OWN:
        node = node.args[0]
    return node


def toposort(roots: Iterable[Node], known: Container[Node] = ()) -> list[Node]:
    """Return every distinct node below `roots`, operands before users, iteratively.

    Nodes in `known`, and what is only below these, are left out.
    """
    done: dict[Node, None] = {}
    stack: list[tuple[Node, Iterator[Node]]] = []
    for root in roots:
        if root in done or root in known:
            continue
        stack.append((root, iter(root.args)))
        while stack:
            node, rest = stack[-1]
            for arg in rest:
                if arg not in done and arg not in known:
                    stack.append((arg, iter(arg.args)))
                    break
            else:
                done[node] = None
                stack.pop()
    return list(done)


_NOTHING: Final[Mapping[Node, Node]] = {}


def without_copies(outputs: Iterable[Node], known: Mapping[Node, Node] = _NOTHING) -> list[Node]:
    """Return a graph without copies, which is all on one device; `known` nodes are replaced."""
    roots, made = list(outputs), dict(known)
    for node in toposort(roots, known):
        if node.op is Op.COPY:
            made[node] = made[node.args[0]]
        else:
            made[node] = with_args(node, tuple([made[a] for a in node.args]))
    return [made[o] for o in roots]
