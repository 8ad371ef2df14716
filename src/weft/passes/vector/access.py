"""Memory accesses under vectorisation, on flat memories.

Every memory becomes one-dimensional. With offset ``base + stride * lane`` an access is contiguous
for stride 1, one scalar access for stride 0, and a gather or scatter otherwise. Masks of enclosing
conditions are joined to the masks of the accesses.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Mapping
from typing import Final

from weft.errors import VerifyError
from weft.ir import dtype as dt
from weft.ir import expr as ex
from weft.ir.bounds import Limit
from weft.ir.dtype import DType
from weft.ir.expr import Expr
from weft.ir.op import Op
from weft.ir.stmt import (
    Alloc,
    Assert,
    Atomic,
    Body,
    If,
    Kernel,
    Let,
    Load,
    Location,
    Memory,
    Prefetch,
    Stmt,
    Store,
    While,
)
from weft.ir.traverse import walk
from weft.passes.common.flat import flat_index, flat_memory, ranges_at
from weft.passes.common.lanes import (
    MOST_BITS,
    Affine,
    Mapped,
    Mapper,
    Mask,
    Scope,
    any_of,
    conjunction,
    first_lane,
    is_small,
)
from weft.rules import index as index_rules

_NOTHING: Final[Mapping[Expr, tuple[Limit, Limit]]] = {}
_QUOTIENTS: Final = frozenset({Op.FLOORDIV, Op.MOD})
LINE_BYTES: Final = 64  # of a cache line, on nearly every machine; a wrong guess costs speed only


class AccessLowering(Mapper):
    """Emits accesses, lets and assertions; hands out names that are unique in the output."""

    def __init__(self, kernel: Kernel) -> None:
        super().__init__()
        self.kernel = kernel
        self.locations: dict[Stmt, Location] = {}
        self.strided: dict[Stmt, Affine] = {}  # vector accesses for `passes.strided`
        self._flat: dict[Stmt, Expr] = {}
        self._used: set[str] = set()
        self._copies: dict[str, int] = {}
        self._used.update(m.name for m in kernel.params)
        self._reserved: set[str] = set()
        for s in walk(kernel.body):
            self._reserved.update(v.attr for v in s.binds())
            if isinstance(s, Alloc):
                self._reserved.add(s.memory.name)
        self.flags: set[Expr] = set()  # read from an array of bools of the threads of a block
        self._names_read: set[Expr] | None = None
        self.counters = _counters(kernel.body)
        self._ranges_at = ranges_at(kernel.body)
        self._simplifiers: dict[int, index_rules.Simplifier] = {}

    # output

    def emit(self, out: list[Stmt], stmt: Stmt, source: Stmt) -> None:
        """Append a statement that comes from `source`."""
        out.append(stmt)
        location = self.kernel.locations.get(source)
        if location is not None:
            self.locations[stmt] = location

    def fresh(self, name: str) -> str:
        """Return a name for a copy of a source name: the name itself for the first copy."""
        if name not in self._used:
            self._used.add(name)
            return name
        count = self._copies.get(name, 0)
        while True:
            count += 1
            made = f"{name}.{count}"
            if made not in self._used and made not in self._reserved:
                break
        self._copies[name] = count
        self._used.add(made)
        return made

    def new_var(self, name: str, dtype: DType, lanes: int = 1) -> Expr:
        """Return a new name of the output."""
        return ex.var(self.fresh(name), dtype, lanes)

    def name(self, out: list[Stmt], name: str, value: Expr, source: Stmt) -> Expr:
        """Bind a value to a new name, unless it is one already."""
        if not value.args:
            return value
        var = self.new_var(name, value.dtype, value.lanes)
        self.emit(out, Let(var, value), source)
        return var

    # names

    def is_read(self, var: Expr) -> bool:
        """Whether anything in the source reads a name."""
        if self._names_read is None:
            self._names_read = ex.free_vars(e for s in walk(self.kernel.body) for e in s.exprs())
        return var in self._names_read

    def let(self, s: Let, scope: Scope, out: list[Stmt]) -> None:
        """Bind a LET: forms that index rules look through stay visible to them."""
        m = self.map(s.value, scope)
        if isinstance(m, Expr):
            transparent = m.dtype is dt.int64 and m.lanes == 1 and is_small(m)
            if not transparent:
                m = self.name(out, str(s.var.attr), m, s)
        scope.mapped[s.var] = m

    def alloc(self, s: Alloc, scope: Scope, out: list[Stmt]) -> None:
        """Give an ALLOC to the output; inside a vector loop each lane gets a copy of its own."""
        sizes = [self.map(e, scope) for e in s.memory.shape]
        if not all(isinstance(e, Expr) and e.lanes == 1 for e in sizes):
            raise VerifyError(f"alloc {s.memory.name}", found="a size that differs by lane",
                              expected="one size in all lanes of a vector loop")
        plain = s.memory.replace(shape=tuple(e for e in sizes if isinstance(e, Expr)))
        copies = 1 if s.memory in self.counters else scope.lanes
        made = flat_memory(plain, self.fresh(s.memory.name), copies)
        scope.memories[s.memory.name] = (made, copies)
        base = None if s.base is None else scope.memory(s.base)[0]
        self.emit(out, Alloc(made, s.align, base), s)
        if copies > 1 and not s.memory.shape:
            # A value for every lane: what is read is never undefined, so no mask is needed.
            zeros = ex.const(0, made.dtype, scope.lanes)
            self.emit(out, Store(made, (ex.index(0),), zeros), s)

    # accesses

    def _simplifier(self, s: Stmt) -> index_rules.Simplifier:
        known = self._ranges_at.get(s, _NOTHING)
        found = self._simplifiers.get(id(known))
        if found is None:
            found = self._simplifiers[id(known)] = index_rules.Simplifier(known)
        return found

    def offset(self, s: Stmt, memory: Memory, index: tuple[Expr, ...],
               scope: Scope) -> tuple[Memory, Mapped]:  # fmt: skip
        """Return the flat memory of the output and the offset of an access in it."""
        flat = self._flat.get(s)
        if flat is None:
            flat = flat_index(memory, index)
            if flat.args and flat.lanes == 1:
                flat = _numbers_last(self._simplifier(s).simplify(flat), scope)
            self._flat[s] = flat
        target, copies = scope.memory(memory)
        m = self.map(flat, scope)
        if copies == 1:
            return target, m
        if isinstance(m, Affine):
            return target, Affine(m.base * copies, m.stride * copies + 1)
        if m.lanes == 1:
            return target, Affine(m * copies, 1)
        lanes = m.lanes
        return target, m * copies + ex.ramp(ex.index(0), lanes)

    def condition(self, s: Load | Store) -> Expr | None:
        """Return the mask of an access; of quotients, ranges of loops know more than of values."""
        mask = s.mask
        if mask is None or not any(e.op in _QUOTIENTS for e in ex.toposort([mask])):
            return mask
        return self._simplifier(s).simplify(mask)

    def own_mask(self, mask: Expr | None, scope: Scope) -> Expr | None:
        """Return the mask that an access was written with, scalar or vector; None if true."""
        mask = self._unproven(mask, scope)
        return None if mask is None else self.scalar_vector(self.map(mask, scope), scope.lanes)

    def _unproven(self, mask: Expr | None, scope: Scope) -> Expr | None:
        """Return a mask without the conditions that always hold; None if all do."""
        if mask is None:
            return None
        if mask.op is Op.AND:
            parts = [p for a in mask.args if (p := self._unproven(a, scope)) is not None]
            return ex.binary(Op.AND, *parts) if len(parts) > 1 else next(iter(parts), None)
        holds = self.proves(self.scalar_vector(self.map(mask, scope), scope.lanes))
        return None if holds else mask

    def total_mask(self, mask: Expr | None, scope: Scope) -> Mask | None:
        """Return the lanes in which an access takes place; None if all do."""
        mask = self._unproven(mask, scope)
        own = self.own_mask(mask, scope)
        if own is None:
            return scope.mask
        assert mask is not None
        if own.lanes > 1:
            return self.masked(mask, scope)
        outer = scope.mask
        if outer is None:
            return Mask(ex.broadcast(own, scope.lanes), own)
        both = ex.binary(Op.AND, outer.lanes, ex.broadcast(own, scope.lanes))
        return Mask(both, conjunction(outer.any, own))

    def load(self, s: Load, scope: Scope, out: list[Stmt]) -> None:
        """Emit a LOAD as a scalar, contiguous or gathering one."""
        if s.memory.dtype.is_bool and s.memory.scope == "local":
            self.flags.add(s.var)
        memory, offset = self.offset(s, s.memory, s.index, scope)
        fill = None if s.fill is None else self.map(s.fill, scope)
        name = str(s.var.attr)
        if s.var.lanes > 1 and scope.lanes == 1:
            assert isinstance(offset, Expr)
            assert isinstance(fill, Expr | None)
            var = scope.mapped[s.var] = self.new_var(name, s.var.dtype, s.var.lanes)
            own = self.own_mask(self.condition(s), scope)
            self.emit(out, Load(var, memory, (offset,), own, fill), s)
            return
        if isinstance(offset, Expr) and offset.lanes == 1:
            scope.mapped[s.var] = self._uniform_load(s, memory, offset, fill, scope, out)
            return
        lanes = scope.lanes if isinstance(offset, Affine) else offset.lanes
        private = s.mask is None and not s.memory.shape
        mask = None if private else self.total_mask(self.condition(s), scope)
        if isinstance(offset, Affine) and offset.stride == -1 and mask is None:
            made = self.new_var(name, s.var.dtype, lanes)
            first = self._lowest(offset, lanes)
            self.emit(out, Load(made, memory, (first,)), s)
            scope.mapped[s.var] = self.name(out, name, ex.reverse(made), s)
            return
        var = self.new_var(name, s.var.dtype, lanes)
        base = self._position(offset, lanes)
        self.emit(out, Load(var, memory, (base,), None if mask is None else mask.lanes,
                            None if fill is None else self.vector(fill, lanes)), s)  # fmt: skip
        self._note(out[-1], offset, mask)
        scope.mapped[s.var] = var

    @staticmethod
    def _lowest(offset: Affine, lanes: int) -> Expr:
        """Return the offset of the last lane of an access that runs backwards."""
        return ex.binary(Op.SUB, offset.base, ex.index(lanes - 1))

    def _position(self, offset: Mapped, lanes: int) -> Expr:
        """Return the first offset of a contiguous access, else the vector of offsets."""
        if isinstance(offset, Affine) and offset.stride == 1:
            return offset.base
        return self.vector(offset, lanes)

    def _uniform_load(self, s: Load, memory: Memory, offset: Expr, fill: Mapped | None,
                      scope: Scope, out: list[Stmt]) -> Expr:  # fmt: skip
        """Read an element once for all lanes; lanes that are masked get their fill after it."""
        if s.memory in self.counters:
            count = self.new_var(str(s.var.attr), s.var.dtype)
            self.emit(out, Load(count, memory, (offset,)), s)
            return count
        own = self.own_mask(self.condition(s), scope)
        total = self.total_mask(self.condition(s), scope) if scope.lanes > 1 else None
        guard = own if total is None else total.any
        if guard is not None and self.proves(guard):
            guard = None
        # A scalar fill can be given to the load itself; otherwise lanes are chosen afterwards.
        late = own is not None and (own.lanes > 1 or not isinstance(fill, Expr | None)
                                    or (isinstance(fill, Expr) and fill.lanes > 1))  # fmt: skip
        direct = fill if isinstance(fill, Expr) and not late else None
        var = self.new_var(str(s.var.attr), s.var.dtype, s.var.lanes)
        self.emit(out, Load(var, memory, (offset,), guard, direct), s)
        if not late:
            return var
        assert own is not None
        lanes = scope.lanes
        other = ex.const(0, s.var.dtype, lanes) if fill is None else self.vector(fill, lanes)
        chosen = ex.where(ex.broadcast(own, lanes), ex.broadcast(var, lanes), other)
        return self.name(out, str(s.var.attr), chosen, s)

    def store(self, s: Store, scope: Scope, out: list[Stmt]) -> None:
        """Emit a STORE as a scalar, contiguous or scattering one."""
        memory, offset = self.offset(s, s.memory, s.index, scope)
        value = self.map(s.value, scope)
        if scope.lanes == 1:
            assert isinstance(offset, Expr)
            assert isinstance(value, Expr)
            mask = self.own_mask(self.condition(s), scope)
            self.emit(out, Store(memory, (offset,), value, mask, s.streaming), s)
            return
        lanes = scope.lanes
        total = None if s.memory in self.counters else self.total_mask(self.condition(s), scope)
        if isinstance(offset, Expr) and offset.lanes == 1:
            self._uniform_store(s, memory, offset, value, total, lanes, out)
            return
        if isinstance(offset, Affine) and offset.stride == -1 and total is None:
            turned = ex.reverse(self.vector(value, lanes))
            self.emit(out, Store(memory, (self._lowest(offset, lanes),), turned, None,
                                 s.streaming), s)  # fmt: skip
            return
        if total is not None and not s.memory.shape and isinstance(offset, Affine):
            # A register of each lane: a choice between values can stay in registers, a masked
            # access to memory cannot.
            old = self.new_var("old", memory.dtype, lanes)
            self.emit(out, Load(old, memory, (offset.base,)), s)
            chosen = ex.where(total.lanes, self.vector(value, lanes), old)
            self.emit(out, Store(memory, (offset.base,), chosen), s)
            return
        self.emit(out, Store(memory, (self._position(offset, lanes),), self.vector(value, lanes),
                             None if total is None else total.lanes, s.streaming), s)  # fmt: skip
        self._note(out[-1], offset, total)

    def _note(self, made: Stmt, offset: Mapped, mask: Mask | None) -> None:
        simple = mask is None or (isinstance(made, Load) and made.fill is None)
        if simple and isinstance(offset, Affine) and offset.stride > 1:
            self.strided[made] = offset

    def _uniform_store(self, s: Store, memory: Memory, offset: Expr, value: Mapped,
                       mask: Mask | None, lanes: int, out: list[Stmt]) -> None:  # fmt: skip
        """Write what the last active lane writes to an address that all lanes share."""
        if isinstance(value, Expr) and value.lanes == 1:
            guard = None if mask is None or self.proves(mask.any) else mask.any
            self.emit(out, Store(memory, (offset,), value, guard), s)
        elif mask is None:
            last = ex.extract(self.vector(value, lanes), lanes - 1)
            self.emit(out, Store(memory, (offset,), last), s)
        else:
            places = ex.broadcast(offset, lanes)
            self.emit(out, Store(memory, (places,), self.vector(value, lanes), mask.lanes), s)

    def prefetch(self, s: Prefetch, scope: Scope, out: list[Stmt]) -> None:
        """Emit a PREFETCH for every cache line of consecutive lanes, else of the first lane."""
        memory, offset = self.offset(s, s.memory, s.index, scope)
        base = offset.base if isinstance(offset, Affine) else ex.extract(offset, 0)
        step = max(LINE_BYTES // memory.dtype.itemsize, 1)
        count = scope.lanes if isinstance(offset, Affine) and offset.stride == 1 else 1
        for first in range(0, count, step):
            self.emit(out, Prefetch(memory, (base + first,)), s)

    # assertions

    def assertion(self, s: Assert, scope: Scope, out: list[Stmt]) -> None:
        """Emit an ASSERT; of several failing lanes the first is reported."""
        condition = self.scalar_vector(self.map(s.condition, scope), scope.lanes)
        if condition.lanes == 1 and self.proves(condition):
            return
        report = [None if e is None else self.map(e, scope) for e in (s.value, s.bound)]
        if condition.lanes == 1 and all(
            m is None or (isinstance(m, Expr) and m.lanes == 1) for m in report
        ):
            if scope.mask is not None:
                idle = ex.unary(Op.NOT, scope.mask.any)
                condition = ex.binary(Op.OR, condition, idle)
            value, bound = (m if isinstance(m, Expr) else None for m in report)
            self.emit(out, Assert(condition, s.message, value, bound), s)
            return
        ends = self.at_ends(s.condition, scope) if scope.mask is None else None
        if ends is not None:
            checked: list[Stmt] = []
            self._lane_assertion(s, condition, report, scope, checked)
            self.emit(out, If(ex.unary(Op.NOT, ends), tuple(checked)), s)
            return
        self._lane_assertion(s, condition, report, scope, out)

    def at_ends(self, e: Expr, scope: Scope, holds: bool = True) -> Expr | None:
        """Return whether comparisons hold (or not) in the first and the last lane, so in all.

        None if what they compare does not count up with the lanes.
        """
        if e.op is Op.NOT:
            return self.at_ends(e.args[0], scope, not holds)
        if e.op is (Op.AND if holds else Op.OR):
            parts = [self.at_ends(a, scope, holds) for a in e.args]
            if parts[0] is None or parts[1] is None:
                return None
            return conjunction(parts[0], parts[1])
        m = self.map(e, scope)
        if isinstance(m, Expr) and m.lanes == 1:
            return m if holds else ex.unary(Op.NOT, m)
        if e.op not in (Op.LT, Op.LE) or e.args[0].dtype is not dt.int64:
            return None
        sides: list[Affine] = []
        for a in e.args if holds else e.args[::-1]:
            side = self.map(a, scope)
            if isinstance(side, Expr) and side.lanes > 1:
                return None
            sides.append(side if isinstance(side, Affine) else Affine(side, 0))
            if not self.stays_in_range(sides[-1].base):
                return None
        x, y = sides
        last = x.stride - y.stride > 0
        ends = [a.base + a.stride * (scope.lanes - 1) if last else a.base for a in sides]
        op = e.op if holds else (Op.LE if e.op is Op.LT else Op.LT)
        return ex.binary(op, ends[0], ends[1])

    def _lane_assertion(self, s: Assert, condition: Expr, report: list[Mapped | None],
                        scope: Scope, out: list[Stmt]) -> None:  # fmt: skip
        """Emit an assertion that may hold in some lanes only."""
        lanes = scope.lanes
        bad = ex.unary(Op.NOT, ex.broadcast(condition, lanes))
        if scope.mask is not None:
            bad = ex.binary(Op.AND, scope.mask.lanes, bad)
        bad = self.name(out, "bad", bad, s)
        inner: list[Stmt] = []
        value, bound = self._first(report, bad, inner, s)
        self.emit(inner, Assert(ex.const(False, dt.bool_), s.message, value, bound), s)
        self.emit(out, If(any_of(bad), tuple(inner)), s)

    def _first(self, report: list[Mapped | None], bad: Expr, out: list[Stmt],
               s: Stmt) -> list[Expr | None]:  # fmt: skip
        """Return what is to be reported of the first lane whose flag is set.

        Nearly always that follows from the lane's number: to choose among the lanes of a vector
        takes a compiler as long as the rest of a small kernel.
        """
        lane: Expr | None = None
        found: list[Expr | None] = []
        for m in report:
            if m is None or (isinstance(m, Expr) and m.lanes == 1):
                found.append(m)
            elif isinstance(m, Expr) or bad.lanes > MOST_BITS:
                found.append(first_lane(bad, self.vector(m, bad.lanes)))
            else:
                if lane is None:
                    bits = self.name(out, "bits", ex.bits(bad), s)
                    one = ex.const(1, bits.dtype)
                    below = ex.binary(Op.AND, bits - one, ex.unary(Op.NOT, bits))
                    count = ex.cast(ex.unary(Op.POPCOUNT, below), dt.int64)
                    lane = self.name(out, "lane", count, s)
                found.append(m.base + lane * m.stride)
        return found


def _numbers_last(index: Expr, scope: Scope) -> Expr:
    """Return an index whose terms in unrolled loops are added last: copies share all before them.

    What is left of those terms in a copy is one number. Behind them comes the lane.
    """
    terms: list[Expr] = []
    while index.op is Op.ADD:
        index, last = index.args
        terms.append(last)
    terms.append(index)
    terms.reverse()
    return functools.reduce(operator.add, sorted(terms, key=lambda t: _known(t, scope)))


def _known(term: Expr, scope: Scope) -> int:
    """Return 2 for multiples of the lane, 1 for those of numbers (as in a copy), else 0."""
    if term.op is Op.MUL and term.args[1].op is Op.CONST:
        term = term.args[0]
    held = scope.holder(term)
    known = term if held is None else held.mapped[term]
    if isinstance(known, Affine):
        return 2
    return 1 if known.op is Op.CONST else 0


def _counters(body: Body) -> set[Memory]:
    """Return the registers that count the turns of a while loop: alike in all lanes in it.

    A lane that has left a loop does not come back, so those in it have made equally many turns.
    """
    loops: list[tuple[Body, While]] = []
    uses: dict[Memory, int] = {}
    for s in walk(body):
        for part in s.bodies() or ():
            loops.extend((part, w) for w in part if isinstance(w, While))
        if isinstance(s, Load | Store | Atomic) and s.memory.scope == "register":
            uses[s.memory] = uses.get(s.memory, 0) + 1
    found: set[Memory] = set()
    for around, loop in loops:
        place = around.index(loop)
        for made in around[:place]:
            memory = made.memory if isinstance(made, Alloc) else None
            if memory is None or memory.shape or memory.scope != "register":
                continue
            starts = [s for s in around[:place] if isinstance(s, Store) and s.memory is memory
                      and s.value.op is Op.CONST and s.mask is None]
            reads = [s for s in loop.head if isinstance(s, Load) and s.memory is memory]
            steps = [s for s in loop.body if isinstance(s, Store) and s.memory is memory
                     and s.mask is None]
            if len(starts) == len(reads) == len(steps) == 1 and uses[memory] == 3 and _steps(
                    steps[0].value, reads[0].var):
                found.add(memory)
    return found


def _steps(value: Expr, old: Expr) -> bool:
    """Whether a value is `old` and a constant."""
    return value.op is Op.ADD and value.args[0] is old and value.args[1].op is Op.CONST
