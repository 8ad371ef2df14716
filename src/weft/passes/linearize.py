"""From the vectorised statement tree to the linear list of kernel level.

Each distinct expression becomes one instruction per place that dominates its uses: the outermost
loop body in which its operands are known. Leaving loops that way (loop-invariant code motion) is
sound because expressions are pure and total. What only one side of a WHERE needs is computed behind
a test if its condition is UNLIKELY. An expression never leaves a conditional, whose work
it may be there to avoid, and vectors do not leave a parallel loop, whose body becomes a function.
Loads stay where they are, except that a load of global memory, of a whole matrix, or of a vector of
an array of its own in a kernel that no user wrote, is not repeated while nothing may have been
written to that memory since the same load.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from weft.errors import VerifyError
from weft.ir import expr as ex
from weft.ir.bounds import bounds
from weft.ir.expr import Expr
from weft.ir.linear import (
    LOOP_KINDS,
    AddressInst,
    AssertInst,
    AtomicInst,
    BarrierInst,
    CallInst,
    ClockInst,
    Compute,
    Else,
    EndIf,
    EndLoop,
    EndWhile,
    FenceInst,
    IfBegin,
    Inst,
    LinearKernel,
    LoadInst,
    Loop,
    PrefetchInst,
    PrintInst,
    StorageInst,
    StoreInst,
    Value,
    VariableInst,
    WhileBegin,
    WhileTest,
)  # fmt: skip
from weft.ir.op import Op
from weft.ir.stmt import (
    PARALLEL,
    Address,
    Alloc,
    Assert,
    Atomic,
    Barrier,
    Block,
    Body,
    Call,
    Clock,
    Fence,
    For,
    If,
    Kernel,
    Let,
    Load,
    Location,
    Memory,
    Prefetch,
    Print,
    Stmt,
    Store,
    While,
)
from weft.ir.traverse import walk
from weft.passes.common.flat import flat_index
from weft.passes.common.lanes import any_test
from weft.passes.vector.loop_collapse import collapse_loops
from weft.schedule.analysis.space import Names

FAR: Final = 4096  # elements outside of an array, from which on a masked load must not look
MATRIX_LANES: Final = 256  # of a matrix, which takes a tile register
KEPT_MATRICES: Final = 2  # of one factor in registers, beside the other and four results
NOALIAS: Final = "noalias"  # the hint that says that no two parameters overlap


def linearize(kernel: Kernel) -> LinearKernel:
    """Return the kernel as a linear list; `weft.passes.vector.vectorize` comes before.

    Raises
    ------
    VerifyError
        If a vector or unrolled loop or a reduction is left, or a local memory has no largest size.
    """
    return Linearizer(kernel).run()


class Region:
    """One body under construction: its instructions and what is known at its end."""

    __slots__ = ("code", "depth", "is_loop", "is_parallel", "loads", "parent", "values")

    def __init__(self, parent: Region | None, is_loop: bool, is_parallel: bool = False) -> None:
        self.parent, self.is_loop, self.is_parallel = parent, is_loop, is_parallel
        self.depth: int = 0 if parent is None else parent.depth + 1
        self.code: list[Inst] = []
        self.values: list[Expr] = []
        self.loads: dict[Any, Value] = {}


def _branches(e: Expr) -> bool:
    return e.op is Op.WHERE and e.args[0].op is Op.UNLIKELY


def _always(e: Expr) -> tuple[Expr, ...]:
    """Return the operands that are computed whether or not a branch is taken."""
    return (e.args[0], e.args[2]) if _branches(e) else e.args


class Linearizer:
    """Builds the list; one instance per kernel."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.names: Names | None = None  # of memories, made when one is needed
        self.count = 0
        self.region = self.root = Region(None, False)
        self.values: dict[Expr, Value] = {}
        self.depths: dict[Expr, int] = {}  # of the region in which an expression may be computed
        self.limits: dict[Expr, tuple[int, int]] = {}  # of variables of loops around
        self.zero: dict[Expr, Expr] = {}  # variables of loops around that others took in
        self.messages: dict[tuple[str, Location | None], int] = {}
        stmts = list(walk(kernel.body))
        # Memories that lie over others, and those below them.
        self.shared = {m.name for s in stmts if isinstance(s, Alloc) and s.base is not None
                       for m in (s.memory, s.base)}
        roots = [e for s in stmts for e in s.exprs()]
        found = ex.variables([*roots, *(d for m in kernel.params for d in m.shape)])
        self.variables = sorted(found, key=lambda v: str(v.attr.name))
        hints = dict(kernel.meta.hints)
        # Only code that a user wrote can be given one array twice: plans allocate outputs afresh.
        self.noalias = bool(hints.get(NOALIAS, kernel.meta.kind != "custom"))

    def run(self) -> LinearKernel:
        """Return the finished kernel."""
        self._body(self.kernel.body)
        return LinearKernel(self.kernel.name, self.kernel.params, tuple(self.variables),
                            tuple(self.region.code), tuple(self.messages), self.kernel.meta)

    # values

    def _new(self, name: str, like: Expr) -> Value:
        self.count += 1
        return Value(name, self.count - 1, like.dtype, like.lanes)

    def _bind(self, e: Expr, value: Value, region: Region) -> Value:
        self.values[e] = value
        self.depths[e] = region.depth
        region.values.append(e)
        return value

    def value(self, e: Expr) -> Value:
        """Return the value of an expression, after emitting what it needs."""
        known = self.values
        found = known.get(e)
        if found is not None:
            return found
        stack = [e]
        while stack:
            top = stack[-1]
            if top in known:
                stack.pop()
                continue
            args = top.args if top.op is not Op.WHERE else _always(top)
            missing = [a for a in args if a not in known]
            if missing:
                stack.extend(reversed(missing))
                continue
            stack.pop()
            self._compute(top)
        return known[e]

    def _compute(self, e: Expr) -> Value:
        if e.op is Op.VAR:
            raise VerifyError("linearize", found=f"the unbound name {e.attr}",
                              expected="a name bound by an enclosing statement")
        if e.op is Op.UNLIKELY:
            return self._same(e, e.args[0])
        if _branches(e) and e.args[1] not in self.values:
            return self._branch(e)
        region = self._place(e)
        result = self._new("", e)
        if e.op is Op.VARIABLE:
            inst: Inst = VariableInst(result, self.variables.index(e), e.attr)
        else:
            inst = Compute(result, e.op, tuple([self.values[a] for a in e.args]), e.attr)
        region.code.append(inst)
        return self._bind(e, result, region)

    def _same(self, e: Expr, known: Expr) -> Value:
        """Let an expression stand for the value of another one, and be forgotten with it."""
        value = self.values[e] = self.values[known]
        self.depths[e] = self.depths[known]
        self._forget_with(known, e)
        return value

    def _branch(self, e: Expr) -> Value:
        """Compute what is seldom taken behind a test of whether any lane takes it."""
        condition, seldom, usual = e.args
        condition = condition.args[0]
        inside = self.region
        region = self.region = self._place(e, self._depth(e))
        self.names = self.names or Names(self.kernel)
        memory = Memory(self.names.fresh("chosen"), e.dtype, (ex.index(e.lanes),), "local")
        start = self.value(ex.index(0))
        self._emit(StorageInst(memory, e.lanes))
        self._emit(StoreInst(memory, start, self.values[usual]))
        test = self.value(any_test(condition))
        self._open(False)
        value = self.value(ex.where(condition, seldom, usual))
        self._emit(StoreInst(memory, start, value))
        region.code += [IfBegin(test), *self._close(), EndIf()]
        result = self._new("", e)
        self._emit(LoadInst(result, memory, start))
        self.region = inside
        return self._bind(e, result, region)

    def _depth(self, e: Expr) -> int:
        """Return the depth of the innermost region that computed a part of an expression."""
        depth, stack, seen = 0, [e], set[Expr]()
        while stack:
            top = stack.pop()
            if top in seen:
                continue
            seen.add(top)
            known = self.depths.get(top)
            if known is None:
                stack.extend(top.args)
            else:
                depth = max(depth, known)
        return depth

    def _place(self, e: Expr, depth: int | None = None) -> Region:
        """Return the outermost region to which an expression may move (one not above `depth`)."""
        if not e.args:
            return self.root
        need = max([self.depths[a] for a in e.args]) if depth is None else depth
        region = self.region
        while region.depth > need and region.is_loop and region.parent is not None:
            if region.is_parallel and e.lanes > 1:
                break
            region = region.parent
        return region

    # regions

    def _open(self, is_loop: bool, is_parallel: bool = False) -> Region:
        outer = self.region
        self.region = Region(outer, is_loop, is_parallel)
        return self.region

    def _close(self) -> list[Inst]:
        """Leave a region: forget what it computed; return its instructions."""
        region = self.region
        for e in region.values:
            del self.values[e]
            del self.depths[e]
        assert region.parent is not None
        self.region = region.parent
        return region.code

    def _emit(self, inst: Inst) -> None:
        self.region.code.append(inst)

    def _body(self, body: Body) -> None:
        for s in body:
            handler = _HANDLERS.get(type(s))
            if handler is None:
                raise VerifyError("linearize", found=type(s).__name__,
                                  expected="statements that vectorize leaves")
            handler(self, s)

    # statements

    def _let(self, s: Let) -> None:
        self.value(s.value)
        self._same(s.var, s.value)

    def _forget_with(self, e: Expr, var: Expr) -> None:
        """Let a name be forgotten together with the expression it stands for."""
        region: Region | None = self.region
        while region is not None and region.depth > self.depths[e]:
            region = region.parent
        assert region is not None
        region.values.append(var)

    def _offset(self, memory: Memory, index: tuple[Expr, ...]) -> Value:
        offset = flat_index(memory, index)
        return self.value(ex.substitute([offset], self.zero)[0] if self.zero else offset)

    def _optional(self, e: Expr | None) -> Value | None:
        return None if e is None else self.value(e)

    def _masked_offset(self, s: Load) -> Value:
        """Return the offset of a load; 0 where all lanes of a masked one lie far outside.

        Nothing is read there, but processors take hundreds of cycles to find out that a page is
        missing that they need not read.
        """
        offset, size = flat_index(s.memory, s.index), s.memory.size
        if s.mask is None or offset.lanes > 1 or s.var.lanes < 2 or size.op is not Op.CONST:
            return self._offset(s.memory, s.index)
        if self.zero:
            offset = ex.substitute([offset], self.zero)[0]
        if ex.free_vars([offset]) <= self.limits.keys():
            low, high = bounds(offset, self.limits)
            if low <= -FAR or high >= size.attr + FAR:
                meets = ex.index(-s.var.lanes).lt(offset) & offset.lt(size)
                offset = ex.where(meets, offset, ex.index(0))
        return self.value(offset)

    def _load(self, s: Load) -> None:
        offset = self._masked_offset(s)
        mask, fill = self._optional(s.mask), self._optional(s.fill)
        key = (s.memory.name, offset, mask, fill, s.var.lanes)
        kept = self._is_kept(s)
        if kept:
            region: Region | None = self.region
            while region is not None:
                if key in region.loads:
                    found = region.loads[key] = region.loads.pop(key)  # the last to be forgotten
                    self._bind(s.var, found, self.region)
                    return
                # A loop comes back to its start after the writes of its body.
                region = region.parent if not region.is_loop else None
        result = self._new(str(s.var.attr), s.var)
        self._emit(LoadInst(result, s.memory, offset, mask, fill))
        self._bind(s.var, result, self.region)
        if kept:
            self.region.loads[key] = result
            if s.var.lanes == MATRIX_LANES:
                self._forget_matrices(s.memory)

    def _forget_matrices(self, memory: Memory) -> None:
        """Forget all matrices of a memory but the last few: no registers are left for more."""
        loads = self.region.loads
        known = [k for k in loads if k[0] == memory.name and k[-1] == MATRIX_LANES]
        for key in known[:-KEPT_MATRICES]:
            del loads[key]

    def _is_kept(self, s: Load) -> bool:
        """Whether the same load again takes this value, if nothing was written between."""
        if s.memory.scope == "global":
            return True
        least = 2 if self.noalias else MATRIX_LANES
        return (s.var.lanes >= least and s.memory.scope == "local"
                and s.memory.name not in self.shared)

    def _written(self, memory: Memory | None) -> None:
        """Forget the loads that a write may have changed (any memory, if None)."""
        is_own = memory is not None and memory.scope != "global"
        region: Region | None = self.region
        while region is not None:
            if memory is not None and (is_own or self.noalias):
                stale = [k for k in region.loads if k[0] == memory.name]
                for k in stale:
                    del region.loads[k]
            else:
                region.loads.clear()
            region = region.parent

    def _store(self, s: Store) -> None:
        offset, value = self._offset(s.memory, s.index), self.value(s.value)
        self._emit(StoreInst(s.memory, offset, value, self._optional(s.mask), s.streaming))
        self._written(s.memory)

    def _alloc(self, s: Alloc) -> None:
        size = bounds(s.memory.size).hi
        if size >= 1 << 62:
            raise VerifyError(f"alloc {s.memory.name}", found="a size without a bound",
                              expected="sizes made of constants and variables with bounds")
        self._emit(StorageInst(s.memory, max(size, 0), s.base, s.align))

    def _for(self, s: For) -> None:
        s, zero = collapse_loops(s)
        around, self.zero = self.zero, {**self.zero, **zero}
        self.limits[s.var] = (0, bounds(s.extent).hi - 1)
        extent = self.value(s.extent)
        if s.kind not in LOOP_KINDS:
            raise VerifyError("linearize", found=f"the {s.kind} loop {s.var.attr}",
                              expected="loops that vectorize leaves")
        inner = self._open(True, s.kind == PARALLEL)
        var = self._bind(s.var, self._new(str(s.var.attr), s.var), inner)
        self._body(s.body)
        code = self._close()
        self.region.code += [Loop(var, extent, s.kind), *code, EndLoop()]
        self.zero = around

    def _while(self, s: While) -> None:
        self._open(True)
        self._body(s.head)
        self._emit(WhileTest(self.value(s.condition)))
        self._body(s.body)
        code = self._close()
        self.region.code += [WhileBegin(s.endless), *code, EndWhile()]

    def _if(self, s: If) -> None:
        condition = self.value(s.condition)
        self._open(False)
        self._body(s.then)
        code: list[Inst] = [IfBegin(condition), *self._close()]
        if s.orelse:
            self._open(False)
            self._body(s.orelse)
            code += [Else(), *self._close()]
        self.region.code += [*code, EndIf()]

    def _block(self, s: Block) -> None:
        self._body(s.body)

    def _assert(self, s: Assert) -> None:
        message = (s.message, self.kernel.locations.get(s))
        number = self.messages.setdefault(message, len(self.messages))
        self._emit(AssertInst(self.value(s.condition), number, self._optional(s.value),
                              self._optional(s.bound)))  # fmt: skip

    def _barrier(self, s: Barrier) -> None:
        self._emit(BarrierInst(s.scope))
        self._written(None)

    def _fence(self, s: Fence) -> None:
        self._emit(FenceInst(s.scope, s.order))
        self._written(None)

    def _clock(self, s: Clock) -> None:
        result = self._new(str(s.var.attr), s.var)
        self._emit(ClockInst(result, s.kind))
        self._bind(s.var, result, self.region)

    def _address(self, s: Address) -> None:
        result = self._new(str(s.var.attr), s.var)
        self._emit(AddressInst(result, s.memory))
        self._bind(s.var, result, self.region)

    def _atomic(self, s: Atomic) -> None:
        offset, value = self._offset(s.memory, s.index), self.value(s.value)
        compare = self._optional(s.compare)
        result = self._new(str(s.var.attr), s.var)
        self._emit(AtomicInst(result, s.kind, s.memory, offset, value, compare, s.scope,
                              s.order))
        self._bind(s.var, result, self.region)
        self._written(s.memory if s.order == "relaxed" else None)

    def _call(self, s: Call) -> None:
        args = tuple(map(self.value, s.args))
        results = tuple(self._new(str(v.attr), v) for v in s.vars)
        self._emit(CallInst(results, s.callee, args))
        for v, result in zip(s.vars, results, strict=True):
            self._bind(v, result, self.region)
        self._written(None)

    def _print(self, s: Print) -> None:
        self._emit(PrintInst(s.text, tuple(map(self.value, s.args))))

    def _prefetch(self, s: Prefetch) -> None:
        self._emit(PrefetchInst(s.memory, self._offset(s.memory, s.index)))


_HANDLERS: Final[dict[type[Stmt], Callable[[Linearizer, Any], None]]] = {
    Let: Linearizer._let, Load: Linearizer._load, Store: Linearizer._store,
    Alloc: Linearizer._alloc, For: Linearizer._for, While: Linearizer._while, If: Linearizer._if,
    Block: Linearizer._block, Assert: Linearizer._assert, Atomic: Linearizer._atomic,
    Call: Linearizer._call, Print: Linearizer._print, Barrier: Linearizer._barrier,
    Fence: Linearizer._fence, Prefetch: Linearizer._prefetch, Clock: Linearizer._clock,
    Address: Linearizer._address,
}  # fmt: skip
