"""Loop level: one kernel as a tree of positioned statements.

Statements are immutable but not interned: two equal barriers are two statements, so they compare
by identity. A body is a tuple of statements; a name bound by LET, LOAD, REDUCE, ATOMIC or CALL is
visible to the rest of its body. Every bound name is unique in the kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from weft.ir import expr as ex
from weft.ir.dtype import DType
from weft.ir.expr import Expr
from weft.ir.record import Record

Body = tuple["Stmt", ...]

SERIAL: Final = "serial"
PARALLEL: Final = "parallel"
VECTOR: Final = "vector"
UNROLLED: Final = "unrolled"
THREADS: Final = "thread.x"  # also the kind of any loop that the threads of a group deal out
GPU_AXES: Final = tuple(f"{level}.{axis}" for level in ("block", "thread") for axis in "xyz")
AXIS_KINDS: Final = (SERIAL, PARALLEL, VECTOR, UNROLLED, *GPU_AXES)

SCOPES: Final = ("global", "shared", "local", "register", "constant")
CHECK: Final = "<check>"  # the file of assertion places; the line numbers the kernel's checks


class Location(Record):
    """A place in a user's source."""

    file: str
    line: int
    column: int = 0


class Memory(Record):
    """A named array of the kernel: a parameter (scope ``global``) or an ALLOC.

    The layout is row-major and contiguous. ``shape`` is in elements; a size may be symbolic.
    ``local`` is private to one iteration of the enclosing parallel loop, ``register`` is local
    memory that must be promoted to registers (constant indices after unrolling), ``shared``
    belongs to a block of GPU threads.
    """

    name: str
    dtype: DType
    shape: tuple[Expr, ...]
    scope: str = "global"

    def __hash__(self) -> int:
        return hash(self.name)  # nearly unique in a kernel, and looked up in every pass

    @property
    def size(self) -> Expr:
        """Number of elements, as an int64 expression."""
        total = ex.index(1)
        for extent in self.shape:
            total = total * extent
        return total


class Stmt(Record):
    """Base of statements. Equality is identity."""

    __hash__ = object.__hash__

    def __eq__(self, other: object) -> bool:
        return self is other

    def bodies(self) -> tuple[Body, ...]:
        """Return the nested bodies, in order."""
        return ()

    def with_bodies(self, *bodies: Body) -> Stmt:
        """Return this statement with other nested bodies."""
        return self

    def exprs(self) -> tuple[Expr, ...]:
        """Return the expressions it evaluates itself, in order (None left out)."""
        return ()

    def map_exprs(self, fn: Callable[[Expr], Expr]) -> Stmt:
        """Return this statement with `fn` applied to each of `exprs()` (not to binders)."""
        return self

    def binds(self) -> tuple[Expr, ...]:
        """Return the VARs it binds for the statements after it (or, for loops, inside it)."""
        return ()

    def reads(self) -> tuple[Memory, ...]:
        """Return the memories that it reads itself."""
        return ()

    def writes(self) -> tuple[Memory, ...]:
        """Return the memories that it writes itself."""
        return ()


class Let(Stmt):
    """``let %var = value``: name a pure value."""

    var: Expr
    value: Expr

    def exprs(self) -> tuple[Expr, ...]:
        return (self.value,)

    def map_exprs(self, fn: Callable[[Expr], Expr]) -> Stmt:
        return Let(self.var, fn(self.value))

    def binds(self) -> tuple[Expr, ...]:
        return (self.var,)


def _map_optional(fn: Callable[[Expr], Expr], e: Expr | None) -> Expr | None:
    return None if e is None else fn(e)


def _present(*items: Expr | None) -> tuple[Expr, ...]:
    return tuple(e for e in items if e is not None)


class Load(Stmt):
    """``load %var = memory[index]``: read one element, or one per lane.

    Where `mask` is false nothing is read and the value is `fill` (zero if None). A vector variable
    with all-scalar indices reads consecutive elements of the last axis.
    """

    var: Expr
    memory: Memory
    index: tuple[Expr, ...]
    mask: Expr | None = None
    fill: Expr | None = None

    def exprs(self) -> tuple[Expr, ...]:
        return self.index + _present(self.mask, self.fill)

    def map_exprs(self, fn: Callable[[Expr], Expr]) -> Stmt:
        return Load(self.var, self.memory, tuple(map(fn, self.index)),
                    _map_optional(fn, self.mask), _map_optional(fn, self.fill))

    def binds(self) -> tuple[Expr, ...]:
        return (self.var,)

    def reads(self) -> tuple[Memory, ...]:
        return (self.memory,)


class Store(Stmt):
    """``store memory[index] = value`` (where `mask` holds).

    `streaming` asks for a non-temporal store; it changes speed, never the result.
    """

    memory: Memory
    index: tuple[Expr, ...]
    value: Expr
    mask: Expr | None = None
    streaming: bool = False

    def exprs(self) -> tuple[Expr, ...]:
        return (*self.index, self.value, *_present(self.mask))

    def map_exprs(self, fn: Callable[[Expr], Expr]) -> Stmt:
        return Store(self.memory, tuple(map(fn, self.index)), fn(self.value),
                     _map_optional(fn, self.mask), self.streaming)

    def writes(self) -> tuple[Memory, ...]:
        return (self.memory,)


class Alloc(Stmt):
    """``alloc memory``: an array that lives to the end of the enclosing body; uninitialised.

    It begins at a multiple of `align` bytes, at least 16. With `base` it is no memory of its own:
    the bytes of `base`, which was declared before, as elements of another type.
    """

    memory: Memory
    align: int = 16
    base: Memory | None = None

    def exprs(self) -> tuple[Expr, ...]:
        return self.memory.shape


class For(Stmt):
    """``for %var in extent``: iterate from 0 in steps of 1. `kind` is one of `AXIS_KINDS`."""

    var: Expr
    extent: Expr
    kind: str
    body: Body

    def bodies(self) -> tuple[Body, ...]:
        return (self.body,)

    def with_bodies(self, *bodies: Body) -> Stmt:
        return For(self.var, self.extent, self.kind, bodies[0])

    def exprs(self) -> tuple[Expr, ...]:
        return (self.extent,)

    def map_exprs(self, fn: Callable[[Expr], Expr]) -> Stmt:
        return For(self.var, fn(self.extent), self.kind, self.body)

    def binds(self) -> tuple[Expr, ...]:
        return (self.var,)


class While(Stmt):
    """Run `head`, test `condition` (which sees the names of `head`), run `body`, repeat.

    An `endless` one is not known to end: an interrupt may stop the kernel after each turn.
    """

    head: Body
    condition: Expr
    body: Body
    endless: bool = False

    def bodies(self) -> tuple[Body, ...]:
        return (self.head, self.body)

    def with_bodies(self, *bodies: Body) -> Stmt:
        return While(bodies[0], self.condition, bodies[1], self.endless)

    def exprs(self) -> tuple[Expr, ...]:
        return (self.condition,)

    def map_exprs(self, fn: Callable[[Expr], Expr]) -> Stmt:
        return While(self.head, fn(self.condition), self.body, self.endless)


class If(Stmt):
    """``if condition``: run `then` or `orelse`."""

    condition: Expr
    then: Body
    orelse: Body = ()

    def bodies(self) -> tuple[Body, ...]:
        return (self.then, self.orelse)

    def with_bodies(self, *bodies: Body) -> Stmt:
        return If(self.condition, *bodies)

    def exprs(self) -> tuple[Expr, ...]:
        return (self.condition,)

    def map_exprs(self, fn: Callable[[Expr], Expr]) -> Stmt:
        return If(fn(self.condition), self.then, self.orelse)


class Block(Stmt):
    """A named region, which schedule primitives address; transparent to names."""

    name: str
    body: Body

    def bodies(self) -> tuple[Body, ...]:
        return (self.body,)

    def with_bodies(self, *bodies: Body) -> Stmt:
        return Block(self.name, bodies[0])


LEFT: Final = "left"  # an empty block where threads leave the kernel


class Axis(Record):
    """One axis of a REDUCE."""

    var: Expr
    extent: Expr
    kind: str = SERIAL


class Accumulator(Record):
    """One running value of a REDUCE.

    ``var`` names the value inside the body (before the update) and, after the statement, the
    result. ``init`` is neutral: ``combine(init, x) == x``. ``update`` gives the next value from
    `var`, the axes and the names of the body. ``combine`` merges two partial results, named
    ``lhs(var)`` and ``rhs(var)``; all accumulators of one REDUCE are combined at once (argmax,
    Welford and online softmax need each other's partial values).
    """

    var: Expr
    init: Expr
    update: Expr
    combine: Expr


def lhs(v: Expr) -> Expr:
    """Return the name of the left partial result in a combine expression."""
    return ex.var(f"{v.attr}.l", v.dtype, v.lanes)


def rhs(v: Expr) -> Expr:
    """Return the name of the right partial result in a combine expression."""
    return ex.var(f"{v.attr}.r", v.dtype, v.lanes)


class Reduce(Stmt):
    """Reduce over `axes`: the body runs for each point, then every accumulator is updated.

    Updates of one point are simultaneous. The order of points is row-major over the axes as
    written; vector and unrolled axes keep one partial result per lane, combined at the end in
    a fixed tree, so a result depends on the schedule and never on the run.
    """

    axes: tuple[Axis, ...]
    accumulators: tuple[Accumulator, ...]
    body: Body

    def bodies(self) -> tuple[Body, ...]:
        return (self.body,)

    def with_bodies(self, *bodies: Body) -> Stmt:
        return Reduce(self.axes, self.accumulators, bodies[0])

    def exprs(self) -> tuple[Expr, ...]:
        return (*(a.extent for a in self.axes), *(a.init for a in self.accumulators),
                *(e for a in self.accumulators for e in (a.update, a.combine)))

    def map_exprs(self, fn: Callable[[Expr], Expr]) -> Stmt:
        axes = tuple(Axis(a.var, fn(a.extent), a.kind) for a in self.axes)
        accs = tuple(Accumulator(a.var, fn(a.init), fn(a.update), fn(a.combine))
                     for a in self.accumulators)
        return Reduce(axes, accs, self.body)

    def binds(self) -> tuple[Expr, ...]:
        return tuple(a.var for a in self.accumulators)


MOST_WAITING: Final = 1 << 18  # threads of a grid that waits for all of them, on a CPU


class Barrier(Stmt):
    """Wait for every iteration of the enclosing parallel (or thread) loops of this scope.

    In scope ``warp`` it waits for the threads of `mask` (uint32, a bit a thread; None for all).
    """

    scope: str = "block"
    mask: Expr | None = None

    def exprs(self) -> tuple[Expr, ...]:
        return _present(self.mask)

    def map_exprs(self, fn: Callable[[Expr], Expr]) -> Stmt:
        return Barrier(self.scope, _map_optional(fn, self.mask))


# The memory model that these words are of: docs/design/memory_model.md.
THREAD_SCOPES: Final = ("thread", "warp", "block", "device", "system")  # the narrowest first
ORDERS: Final = ("relaxed", "acquire", "release", "acq_rel", "seq_cst")
FENCE_ORDERS: Final = ORDERS[1:]
ACQUIRES: Final = ("acquire", "acq_rel", "seq_cst")
NEAR: Final = THREAD_SCOPES[:3]  # those that lie within a block
RELEASES: Final = ("release", "acq_rel", "seq_cst")


class Fence(Stmt):
    """Order what this thread does before and after, for the threads of `scope`."""

    scope: str = "device"
    order: str = "seq_cst"


SHUFFLES: Final = ("shuffle_idx", "shuffle_up", "shuffle_down", "shuffle_xor")
VOTES: Final = ("vote_any", "vote_all", "vote_eq", "ballot")
MATCHES: Final = ("match_any", "match_all")
COUNTS: Final = ("count", "all", "any")


class Collective(Stmt):
    """``var = kind(args)``: what the threads of a warp or block find out together.

    * ``shuffle_*`` (value, int64): the value of another thread of the warp: of the thread with
      that number, or so many below or above, or with the number xor. Numbers count within groups
      of `width` threads; where there is no such thread, a thread keeps its own value.
    * ``vote_*`` (bool): whether the predicate holds for any, for all, or for all or none; as a
      bool. ``ballot`` (bool): the threads for which it holds, as bits.
    * ``match_any`` (value): the threads with the same value, as bits. ``match_all``: all of
      them if all have the same value, else 0.
    * ``count``, ``all``, ``any`` (bool) in scope ``block``: a barrier that counts the threads for
      which the predicate holds (int64), or tells whether it holds for all or any (bool).

    `mask` (uint32, a bit a thread) names the threads of the warp that take part; None for all.
    """

    var: Expr
    kind: str
    args: tuple[Expr, ...]
    mask: Expr | None = None
    width: int = 32
    scope: str = "warp"

    def exprs(self) -> tuple[Expr, ...]:
        return (*self.args, *_present(self.mask))

    def map_exprs(self, fn: Callable[[Expr], Expr]) -> Stmt:
        return Collective(self.var, self.kind, tuple(map(fn, self.args)),
                          _map_optional(fn, self.mask), self.width, self.scope)

    def binds(self) -> tuple[Expr, ...]:
        return (self.var,)


class Atomic(Stmt):
    """``var = memory[index]; memory[index] = op(var, value)`` in one indivisible step.

    `scope` says for whom it is indivisible, `order` what it says about accesses before and after
    it; a device may do more than is asked for.
    """

    var: Expr
    kind: str  # add sub min max and or xor exch cas inc dec
    memory: Memory
    index: tuple[Expr, ...]
    value: Expr
    compare: Expr | None = None
    scope: str = "device"
    order: str = "relaxed"

    def exprs(self) -> tuple[Expr, ...]:
        return (*self.index, self.value, *_present(self.compare))

    def map_exprs(self, fn: Callable[[Expr], Expr]) -> Stmt:
        return Atomic(self.var, self.kind, self.memory, tuple(map(fn, self.index)),
                      fn(self.value), _map_optional(fn, self.compare), self.scope, self.order)

    def binds(self) -> tuple[Expr, ...]:
        return (self.var,)

    def reads(self) -> tuple[Memory, ...]:
        return (self.memory,)

    def writes(self) -> tuple[Memory, ...]:
        return (self.memory,)


def is_ordering(s: Stmt) -> bool:
    """Whether any memory may hold something else after a statement, as other threads wrote it."""
    return isinstance(s, Barrier | Fence) or (isinstance(s, Atomic) and s.order != "relaxed")


CLOCKS: Final = ("cycles", "nanoseconds")


class Clock(Stmt):
    """``var = clock``: what a clock of the device says now, as an int64 that grows."""

    var: Expr
    kind: str = "cycles"

    def binds(self) -> tuple[Expr, ...]:
        return (self.var,)


class Address(Stmt):
    """``var = address of memory``: where its first element lies, as an int64."""

    var: Expr
    memory: Memory

    def binds(self) -> tuple[Expr, ...]:
        return (self.var,)

    def reads(self) -> tuple[Memory, ...]:
        return (self.memory,)


class Call(Stmt):
    """Call a device function by name; binds its results."""

    vars: tuple[Expr, ...]
    callee: str
    args: tuple[Expr, ...]

    def exprs(self) -> tuple[Expr, ...]:
        return self.args

    def map_exprs(self, fn: Callable[[Expr], Expr]) -> Stmt:
        return Call(self.vars, self.callee, tuple(map(fn, self.args)))

    def binds(self) -> tuple[Expr, ...]:
        return self.vars


class Assert(Stmt):
    """Stop the kernel with a typed error unless `condition` holds.

    `message` is what the user reads; `value` and `bound` (int64) are reported with it: for an
    index error the index and the size.
    """

    condition: Expr
    message: str
    value: Expr | None = None
    bound: Expr | None = None

    def exprs(self) -> tuple[Expr, ...]:
        return (self.condition, *_present(self.value, self.bound))

    def map_exprs(self, fn: Callable[[Expr], Expr]) -> Stmt:
        return Assert(fn(self.condition), self.message, _map_optional(fn, self.value),
                      _map_optional(fn, self.bound))


class Print(Stmt):
    """Print a text and values from inside a kernel.

    A text that ends with a line break is a format with a ``{}`` for each value; values follow any
    other text, on the same line.
    """

    text: str
    args: tuple[Expr, ...] = ()

    def exprs(self) -> tuple[Expr, ...]:
        return self.args

    def map_exprs(self, fn: Callable[[Expr], Expr]) -> Stmt:
        return Print(self.text, tuple(map(fn, self.args)))


class Prefetch(Stmt):
    """Ask for a cache line; changes speed, never the result."""

    memory: Memory
    index: tuple[Expr, ...]

    def exprs(self) -> tuple[Expr, ...]:
        return self.index

    def map_exprs(self, fn: Callable[[Expr], Expr]) -> Stmt:
        return Prefetch(self.memory, tuple(map(fn, self.index)))


PARTLY: Final = "partly written"  # hint: names of memories of whose elements parts are written


class Meta(Record):
    """What is known of a kernel beside its code.

    ``kind`` is the strategy kind (elementwise, rowwise, contraction, attention, scan, sort,
    scatter, pack, custom);
    ``schedule`` the replayable trace that has been applied; ``flops`` and ``traffic`` the
    arithmetic operations and bytes of one launch (0: unknown); ``fastmath`` allows FMA
    contraction and reassociation.
    """

    kind: str = "custom"
    schedule: tuple[str, ...] = ()
    flops: int = 0
    traffic: int = 0
    fastmath: bool = False
    hints: tuple[tuple[str, Any], ...] = ()


class Kernel(Record):
    """One kernel at loop level.

    ``params`` are the global arrays in ABI order. ``locations`` maps statements to source places;
    it stands beside the code and takes no part in equality of text or in cache keys.
    """

    name: str
    params: tuple[Memory, ...]
    body: Body
    meta: Meta = Meta()
    locations: Mapping[Stmt, Location] = {}

    __hash__ = object.__hash__

    def __eq__(self, other: object) -> bool:
        return self is other

    def with_body(self, body: Body, **changes: Any) -> Kernel:
        """Return the kernel with another body (and other changed fields)."""
        return self.replace(body=body, **changes)
