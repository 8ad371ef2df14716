"""Materialise vector and unrolled axes and reductions, in one pass over the tree.

Before: any kernel of loop level. After: straight-line vector code under ``for`` (serial, parallel,
GPU axes), ``while`` and ``if`` with scalar conditions; no REDUCE, no BLOCK; one-dimensional
memories; every index is one flat offset.

* ``for i in L vector`` (L a power of two, 2 to 64): L lanes of straight-line code. Uniform values
  stay scalar; conditions that differ by lane become masks; loops and reductions inside stay loops
  over vectors; a while loop turns until no lane is left in it. Atomics and prints happen lane
  after lane. A body with calls or barriers, or another extent, runs serially.
* ``for i in n unrolled`` (n constant): n copies of the body with fresh names.
* ``reduce``: see `weft.passes.vector.reduce`.

Limits: one vector axis at a time (a vector axis inside another runs serially).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from weft.errors import UnsupportedError
from weft.imports import Late
from weft.ir import dtype as dt
from weft.ir import expr as ex
from weft.ir import reduction
from weft.ir.expr import Expr
from weft.ir.op import Op
from weft.ir.stmt import (
    SERIAL,
    SHUFFLES,
    THREADS,
    UNROLLED,
    VECTOR,
    Address,
    Alloc,
    Assert,
    Atomic,
    Barrier,
    Block,
    Body,
    Call,
    Clock,
    Collective,
    Fence,
    For,
    If,
    Kernel,
    Let,
    Load,
    Memory,
    Prefetch,
    Print,
    Reduce,
    Stmt,
    Store,
    While,
)  # fmt: skip
from weft.ir.tile import MatrixLoad, MatrixMultiply, MatrixStore
from weft.ir.traverse import walk
from weft.passes.common.flat import flat_memory
from weft.passes.common.lanes import Affine, Mapped, Mask, Scope, any_of
from weft.passes.vector.horizontal_sums import gather
from weft.passes.vector.packed_words import join_words
from weft.passes.vector.reduce import ReduceLowering
from weft.passes.vector.strided import regroup

if TYPE_CHECKING:
    from weft.passes.vector import atomics, fragments, warp
else:
    atomics = Late("weft.passes.vector.atomics")
    fragments = Late("weft.passes.vector.fragments")
    warp = Late("weft.passes.vector.warp")

_SHORT: Final = 40  # statements of a branch that is written twice


def memories_of_groups(kernel: Kernel) -> frozenset[str]:
    """Return the arrays that the threads of a group share: allocated outside of their loops."""
    found: list[str] = []
    own: set[str] = set()
    dealt = False
    for stmt in walk(kernel.body):
        if isinstance(stmt, Alloc):
            found.append(stmt.memory.name)
        elif isinstance(stmt, For) and stmt.kind == THREADS:
            dealt = True
            own.update(s.memory.name for s in walk(stmt.body) if isinstance(s, Alloc))
    return frozenset(found) - own if dealt else frozenset()


def vectorize(kernel: Kernel, legal: Callable[[Expr], Expr] = lambda e: e) -> Kernel:
    """Return the kernel with vector and unrolled axes and reductions materialised.

    `legal` writes what products of fragments compute in operations of the target.

    Raises
    ------
    VerifyError
        If a REDUCE has a parallel axis, or an ALLOC in a vector loop differs in size by lane.
    """
    pass_ = Vectorize(kernel)
    pass_.of_groups = memories_of_groups(kernel)
    pass_.legal = legal
    scope = pass_.root
    params = []
    for memory in kernel.params:
        flat = flat_memory(memory)
        scope.memories[memory.name] = (flat, 1)
        params.append(flat)
    out: list[Stmt] = []
    pass_.lower(kernel.body, scope, out)
    body = tuple(out)
    apart = bool(dict(kernel.meta.hints).get("noalias", kernel.meta.kind != "custom"))
    body = gather(body, pass_.folds, pass_.locations, apart)
    body = join_words(body, pass_.strided, pass_.locations, apart)
    body = regroup(body, pass_.strided, pass_.locations, apart)
    return kernel.replace(params=tuple(params), body=body, locations=pass_.locations)


class Vectorize(ReduceLowering):
    """The statements beside accesses and reductions."""

    of_groups: frozenset[str] = frozenset()  # local arrays that threads of a group share

    @property
    def twice(self) -> bool:
        """Whether to write branches twice, with masks and without.

        Kernels of users guard all that they do by comparing indices with sizes. Those made from
        graphs have masks at the ends of their arrays only.
        """
        return self.kernel.meta.kind == "custom"

    def lower(self, body: Body, scope: Scope, out: list[Stmt]) -> None:
        """Emit the statements of a body."""
        for s in body:
            handler = _HANDLERS.get(type(s))
            if handler is None:
                raise UnsupportedError("vectorize", found=type(s).__name__)
            handler(self, s, scope, out)

    def _for(self, s: For, scope: Scope, out: list[Stmt]) -> None:
        if s.kind == UNROLLED and s.extent.args:  # of loops around, which are numbers by now
            s = s.replace(extent=self._scalar(s.extent, scope))
        lanes, copies = reduction.lanes_of(s), reduction.copies_of(s)
        if s.kind == SERIAL and ex.is_const(s.extent, 1):
            copies = 1
        if lanes > 1 and scope.lanes == 1 and _has_lanes(s.body):
            inner = scope.child(lanes)
            inner.mapped[s.var] = Affine(ex.index(0), 1)
            self.lower(s.body, inner, out)
            return
        if copies is not None:
            for i in range(copies):
                inner = scope.child()
                inner.mapped[s.var] = ex.index(i)
                self.lower(s.body, inner, out)
            return
        kind = SERIAL if s.kind in (VECTOR, UNROLLED) or scope.lanes > 1 else s.kind
        var, extent, inner = self.loop(s, s.var, s.extent, kind, scope)
        body: list[Stmt] = []
        self.lower(s.body, inner, body)
        self.emit(out, For(var, extent, kind, tuple(body)), s)

    def _if(self, s: If, scope: Scope, out: list[Stmt]) -> None:
        condition = self.scalar_vector(self.map(s.condition, scope), scope.lanes)
        if self.proves(condition):
            self.lower(s.then, scope.child(), out)
            return
        if condition.lanes > 1:
            holds = bool(s.then)  # an early return has nothing there
            ends = None
            if scope.mask is None and self.twice and _is_short(s.then if holds else s.orelse):
                ends = self.at_ends(s.condition, scope, holds)
                if ends is None and holds and s.condition in self.flags:  # of who is there
                    ends = ex.bits(condition).eq((1 << condition.lanes) - 1)
            some: list[Stmt] = [] if ends is not None else out
            if s.then:
                self._masked_branch(s, s.then, self.masked(s.condition, scope), scope, some)
            if s.orelse:
                other = self.masked(s.condition, scope, holds=False)
                self._masked_branch(s, s.orelse, other, scope, some)
            if ends is not None:  # all lanes of nearly all vectors: without masks
                every: list[Stmt] = []
                self.lower(s.then if holds else s.orelse, scope.child(), every)
                self.emit(out, If(ends, tuple(every), tuple(some)), s)
            return
        if ex.is_const(condition, False):
            self.lower(s.orelse, scope.child(), out)
            return
        then: list[Stmt] = []
        orelse: list[Stmt] = []
        self.lower(s.then, scope.child(), then)
        self.lower(s.orelse, scope.child(), orelse)
        self.emit(out, If(self._undecided(condition), tuple(then), tuple(orelse)), s)

    def _undecided(self, condition: Expr) -> Expr:
        """Return what is to be asked of a condition: the parts that ranges do not prove."""
        if condition.op is not Op.AND:
            return condition
        a, b = condition.args
        if self.proves(a):
            return self._undecided(b)
        return self._undecided(a) if self.proves(b) else self._undecided(a) & self._undecided(b)

    def _masked_branch(self, s: If, body: Body, mask: Mask, scope: Scope,
                       out: list[Stmt]) -> None:  # fmt: skip
        """Emit a branch for the lanes that take it; one that costs much is skipped if none does."""
        if not _is_costly(body):
            self.lower(body, scope.child(mask=mask), out)
            return
        lanes = self.name(out, "lanes", mask.lanes, s)
        inner: list[Stmt] = []
        self.lower(body, scope.child(mask=Mask(lanes, ex.const(True, dt.bool_))), inner)
        self.emit(out, If(any_of(lanes), tuple(inner)), s)

    def _while(self, s: While, scope: Scope, out: list[Stmt]) -> None:
        if scope.lanes > 1:
            self._lane_while(s, scope, out)
            return
        inner = scope.child()
        head: list[Stmt] = []
        body: list[Stmt] = []
        self.lower(s.head, inner, head)
        condition = self._scalar(s.condition, inner)
        self.lower(s.body, inner, body)
        self.emit(out, While(tuple(head), condition, tuple(body), s.endless), s)

    def _lane_while(self, s: While, scope: Scope, out: list[Stmt]) -> None:
        """Emit a while loop that turns until no lane is left in it."""
        every = ex.const(True, dt.bool_, scope.lanes)
        active = Memory(self.fresh("active"), dt.bool_, (ex.index(scope.lanes),), "register")
        start = every if scope.mask is None else scope.mask.lanes
        self.emit(out, Alloc(active), s)
        self.emit(out, Store(active, (ex.index(0),), start), s)
        head: list[Stmt] = []
        body: list[Stmt] = []
        entering = self.new_var("entering", dt.bool_, scope.lanes)
        self.emit(head, Load(entering, active, (ex.index(0),)), s)
        inner = scope.child(mask=Mask(entering, any_of(entering)))
        self.lower(s.head, inner, head)
        holds = self.vector(self.map(s.condition, inner), scope.lanes)
        turning = self.name(head, "turning", ex.binary(Op.AND, entering, holds), s)
        inside = inner.child(mask=Mask(turning, ex.const(True, dt.bool_)))
        self.emit(body, Store(active, (ex.index(0),), turning), s)
        self.lower(s.body, inside, body)
        self.emit(out, While(tuple(head), any_of(turning), tuple(body), s.endless), s)

    def _block(self, s: Block, scope: Scope, out: list[Stmt]) -> None:
        self.lower(s.body, scope, out)

    def _scalar(self, e: Expr, scope: Scope) -> Expr:
        m = self.map(e, scope)
        assert isinstance(m, Expr)
        assert m.lanes == 1
        return m

    def _atomic(self, s: Atomic, scope: Scope, out: list[Stmt]) -> None:
        if atomics.is_private(s.memory) and s.memory.name not in self.of_groups:
            atomics.update(self, s, scope, out)
            return
        if scope.lanes > 1:
            self._one_by_one(s, scope, out)
            return
        memory, offset = self.offset(s, s.memory, s.index, scope)
        assert isinstance(offset, Expr)
        var = self.new_var(str(s.var.attr), s.var.dtype)
        compare = None if s.compare is None else self._scalar(s.compare, scope)
        value = self._scalar(s.value, scope)
        self.emit(out, Atomic(var, s.kind, memory, (offset,), value, compare, s.scope,
                                s.order), s)
        scope.mapped[s.var] = var

    def _one_by_one(self, s: Atomic | Print, scope: Scope, out: list[Stmt]) -> None:
        """Emit what active lanes do one after another, in a loop over the lanes."""
        lanes, zero = scope.lanes, ex.index(0)
        k = self.new_var("lane", dt.int64)
        body: list[Stmt] = []

        def of_lane(value: Mapped | None, name: str) -> Expr | None:
            """Return the value of lane k: uniform, or read from where all lanes put theirs."""
            if value is None or (isinstance(value, Expr) and value.lanes == 1):
                return value if isinstance(value, Expr) else None
            if isinstance(value, Affine):
                return value.base + k * value.stride
            held = Memory(self.fresh(name), value.dtype, (ex.index(lanes),), "local")
            self.emit(out, Alloc(held), s)
            self.emit(out, Store(held, (zero,), value), s)
            var = self.new_var(name, value.dtype)
            self.emit(body, Load(var, held, (k,)), s)
            return var

        if isinstance(s, Print):
            args = tuple(of_lane(self.map(a, scope), "printed") for a in s.args)
            self.emit(body, Print(s.text, tuple(a for a in args if a is not None)), s)
        else:
            memory, offset = self.offset(s, s.memory, s.index, scope)
            place = of_lane(offset, "place")
            value = of_lane(self.map(s.value, scope), "value")
            compare = None if s.compare is None else of_lane(self.map(s.compare, scope), "expected")
            assert place is not None
            assert value is not None
            old = Memory(self.fresh("old"), s.var.dtype, (ex.index(lanes),), "local")
            self.emit(out, Alloc(old), s)
            self.emit(out, Store(old, (zero,), ex.const(0, s.var.dtype, lanes)), s)
            var = self.new_var(str(s.var.attr), s.var.dtype)
            self.emit(body, Atomic(var, s.kind, memory, (place,), value, compare, s.scope,
                                s.order), s)
            self.emit(body, Store(old, (k,), var), s)
        turn: tuple[Stmt, ...] = tuple(body)
        if scope.mask is not None:
            held = Memory(self.fresh("active"), dt.bool_, (ex.index(lanes),), "local")
            self.emit(out, Alloc(held), s)
            self.emit(out, Store(held, (zero,), scope.mask.lanes), s)
            active = self.new_var("active", dt.bool_)
            turn = (Load(active, held, (k,)), If(active, turn))
        self.emit(out, For(k, ex.index(lanes), SERIAL, turn), s)
        if isinstance(s, Atomic):
            result = self.new_var(str(s.var.attr), s.var.dtype, lanes)
            self.emit(out, Load(result, old, (zero,)), s)
            scope.mapped[s.var] = result

    def _call(self, s: Call, scope: Scope, out: list[Stmt]) -> None:
        made = tuple(self.new_var(str(v.attr), v.dtype) for v in s.vars)
        args = tuple(self._scalar(a, scope) for a in s.args)
        self.emit(out, Call(made, s.callee, args), s)
        scope.mapped.update(zip(s.vars, made, strict=True))

    def _clock(self, s: Clock, scope: Scope, out: list[Stmt]) -> None:
        var = scope.mapped[s.var] = self.new_var(str(s.var.attr), dt.int64)
        self.emit(out, Clock(var, s.kind), s)

    def _address(self, s: Address, scope: Scope, out: list[Stmt]) -> None:
        var = scope.mapped[s.var] = self.new_var(str(s.var.attr), dt.int64)
        self.emit(out, Address(var, scope.memory(s.memory)[0]), s)

    def _print(self, s: Print, scope: Scope, out: list[Stmt]) -> None:
        if scope.lanes > 1:
            self._one_by_one(s, scope, out)
            return
        self.emit(out, Print(s.text, tuple(self._scalar(a, scope) for a in s.args)), s)

    def _barrier(self, s: Barrier, scope: Scope, out: list[Stmt]) -> None:
        if s.scope != "warp":  # the lanes of a vector never wait for each other
            self.emit(out, s, s)

    def _fence(self, s: Fence, scope: Scope, out: list[Stmt]) -> None:
        self.emit(out, s, s)

    def _collective(self, s: Collective, scope: Scope, out: list[Stmt]) -> None:
        lanes = scope.lanes
        active = ex.const(True, dt.bool_, lanes) if scope.mask is None else scope.mask.lanes
        args = [self.map(a, scope) for a in s.args]
        if s.kind in SHUFFLES:
            value = warp.shuffle(self, s, args, lanes, out)
        else:
            mask = None if s.mask is None else self.scalar_vector(self.map(s.mask, scope), lanes)
            value = warp.vote(s.kind, self.vector(args[0], lanes), active, mask)
        scope.mapped[s.var] = self.name(out, str(s.var.attr), value, s)


_HANDLERS: Final[dict[type[Stmt], Callable[[Vectorize, Any, Scope, list[Stmt]], None]]] = {
    Let: Vectorize.let, Load: Vectorize.load, Store: Vectorize.store, Alloc: Vectorize.alloc,
    For: Vectorize._for, If: Vectorize._if, While: Vectorize._while, Block: Vectorize._block,
    Reduce: Vectorize.reduce, Assert: Vectorize.assertion, Atomic: Vectorize._atomic,
    Call: Vectorize._call, Print: Vectorize._print, Barrier: Vectorize._barrier,
    Fence: Vectorize._fence, Collective: Vectorize._collective,
    Prefetch: Vectorize.prefetch, Clock: Vectorize._clock, Address: Vectorize._address,
    MatrixLoad: lambda *words: fragments.access(*words),
    MatrixStore: lambda *words: fragments.access(*words),
    MatrixMultiply: lambda *words: fragments.multiply(*words),
}  # fmt: skip



def _has_lanes(body: Body) -> bool:
    """Whether the iterations of a vector loop can run side by side."""
    return not any(isinstance(s, Call) or (isinstance(s, Barrier) and s.scope != "warp")
                   for s in walk(body))


def _is_short(body: Body) -> bool:
    """Whether a branch is worth a second version, for the case that all lanes take it."""
    return sum(1 for _ in walk(body)) <= _SHORT


def _is_costly(body: Body) -> bool:
    """Whether a branch is worth a test whether any lane takes it."""
    return any(isinstance(s, While | Atomic | Print) for s in walk(body))


__all__ = ["vectorize"]
