"""What a scheduled nest costs, counted from its loops, whichever primitives made them.

Tests of strategies compare these numbers instead of traces: two schedules with equal costs are
equally good, and one that moves less is better. Counts are of one launch. Iterations of vector
loops are one instruction; what does not depend on an unrolled loop is computed once for all its
iterations. Loops whose extents depend on other loops are counted exactly; conditions count as true
unless they only depend on loops and `exact` is given. `sizes` are those of variables, by name.
"""

import math
from collections import Counter
from itertools import product

from weft.ir import expr as ex
from weft.ir import traverse
from weft.ir.bounds import prove_true
from weft.ir.interpret.interpret import evaluate
from weft.ir.op import MATRICES, Op
from weft.ir.stmt import (
    PARALLEL,
    UNROLLED,
    VECTOR,
    Alloc,
    For,
    If,
    Let,
    Load,
    Prefetch,
    Reduce,
    Store,
)
from weft.strategies import choose
from weft.target import Target

WIDE = Target("cpu", "x86_64", vector_bytes=64, vector_registers=32, l1_bytes=32 << 10,
              l2_bytes=1 << 20, l3_bytes=32 << 20, cores=2)
WORDS = (Op.DOT2, Op.DOT4, Op.DOT4S, *MATRICES)


class Cost:
    """The counts of a nest.

    Attributes
    ----------
    read, written : Counter
        Elements loaded from and stored to each memory, by name; what vectors load counts by lane.
    loads, stores : int
        Instructions.
    masks : Counter
        Those of them that are under a mask, or a condition that lanes decide, which may be false,
        by memory; `masked` is their sum.
    products : Counter
        Instructions that multiply, by the name of the operation.
    computed : int
        Elements that products compute, those of all lanes: more than needed where tiles overlap.
    prefetched : Counter
        Prefetches of each memory.
    branches : int
        Conditions that are tested: those that loops decide which are not unrolled.
    shares : list of int
        How many iterations each parallel loop has.
    form : str
        What `explain` names the form of its contractions.
    private : dict
        Bytes of each array that the nest allocates; of them `registers`: the largest one there.
    """

    def __init__(self, kernel, exact=False, sizes=None):
        self.read, self.written, self.masks, self.products = (Counter() for _ in range(4))
        self.prefetched, self.store_steps = Counter(), Counter()
        self.loads = self.stores = self.branches = self.computed = 0
        self.shares, self.private, self.registers = [], {}, 0
        self.form = dict(kernel.meta.hints).get("form", "")
        _Walk(self, kernel, exact, sizes=sizes)

    @property
    def masked(self):
        return sum(self.masks.values())

    @property
    def multiplications(self):
        return sum(self.products.values())

    @property
    def unit(self):
        """What multiplies: ``matrix`` or ``dot`` instructions if there are any, else ``vector``."""
        found = " ".join(self.products)
        return next((unit for unit in ("matrix", "dot") if unit in found), "vector")

    @property
    def lanes(self):
        """Elements that one product computes: of one vector loop, which may be several vectors."""
        return self.computed // self.multiplications

    @property
    def tile(self):
        """Rows of results of four bytes that are in registers at the same time, and lanes."""
        return self.registers // (4 * self.lanes), self.lanes

    def stored_at_once(self, name):
        """Return how many elements a store to a memory has, on average."""
        return self.written[name] / self.store_steps[name]


def costs_on(target, record):
    """Return what each kernel that was compiled costs where `target` schedules it.

    The processor that the tests run on has its own vectors and registers.
    """
    return [Cost(choose(built.nest, target, target.cores)) for built in record.built]


def orders(kernel, name):
    """Return how far the stores to a memory move in an iteration of each loop around them.

    Elements, the outermost loop first; loops within a tile, that are unrolled or vectors, and those
    that threads share are left out.
    """
    walk = _Walk(Cost.__new__(Cost), kernel, False, visit=False)
    around, store = next((around, s) for around, s in _paths(kernel.body, ())
                         if isinstance(s, Store) and s.memory.name == name)
    return [abs(walk.step(store, s.var)) for s in around
            if isinstance(s, For) and s.kind not in (PARALLEL, VECTOR, UNROLLED)]


def lead(kernel, name):
    """Return by how many elements a memory is prefetched before it is loaded; 0 if it is not."""
    walk = _Walk(Cost.__new__(Cost), kernel, False, visit=False)
    first = {type(s): s for s in reversed(list(traverse.walk(kernel.body)))
             if isinstance(s, Load | Prefetch) and s.memory.name == name}
    if Prefetch not in first:
        return 0
    return walk.offset(first[Prefetch]) - walk.offset(first[Load])


def tiles_of(kernel, name, axis):
    """Return which tiles write an axis of a memory; a condition chooses how each is computed.

    Parameters
    ----------
    name, axis
        The memory, and its axis.

    Returns
    -------
    list of list of (tuple of int, int, int)
        For each store in the code what it writes, in the order in which it is executed: iterations
        of the loops that threads share, the index at which the tile begins, and the index that is
        written. Only loops that the index depends on are gone through.
    """
    walk = _Walk(Cost.__new__(Cost), kernel, False, visit=False)
    paths = list(_paths(kernel.body, ()))
    ((outside, fork),) = [(path, s) for path, s in paths if isinstance(s, If) and s.orelse]
    per_tile = {s.var for s in outside if isinstance(s, For)}
    stores = [(path, s) for path, s in paths if isinstance(s, Store) and s.memory.name == name]
    if not any(fork in path for path, _ in stores):  # but of partial sums, by the same loops
        partial, index = next((s.memory, s.index) for path, s in paths if fork in path
                              and isinstance(s, Store) and len(s.index) > 2
                              and ex.free_vars(s.index) & per_tile)
        ends = next(s for path, s in reversed(paths)
                    if isinstance(s, Load) and s.memory is partial)
        per_tile = {s.var for s in stores[0][0] if isinstance(s, For)} - {
            v for inside, e in zip(index, ends.index, strict=True)
            if not ex.free_vars([inside]) <= per_tile for v in ex.free_vars([e])}
    return [list(_written(walk, path, s, axis, per_tile)) for path, s in stores]


def _written(walk, path, store, axis, per_tile):
    """Yield what a store writes: the share, the beginning of the tile, and the index."""
    place = walk.inline(store.index[axis])
    needed = ex.free_vars([place])
    loops = [s for s in path if isinstance(s, For) and s.var in needed]
    conditions = [s.condition for s in path if isinstance(s, If) and not s.orelse]
    parts = [part for c in (*conditions, *filter(None, [store.mask]))
             for part in _parts(walk.inline(c)) if ex.free_vars([part]) <= needed]
    for at in product(*(range(walk.value(s.extent)) for s in loops)):
        values = dict(zip([s.var for s in loops], at, strict=True))
        if all(evaluate(part, values) for part in parts):
            begin = {v: value * (v in per_tile) for v, value in values.items()}
            share = tuple(values[s.var] for s in loops if s.kind == PARALLEL)
            yield share, int(evaluate(place, begin)), int(evaluate(place, values))


def _parts(condition):
    """Return the conditions of which all must hold."""
    return ([part for a in condition.args for part in _parts(a)] if condition.op is Op.AND
            else [condition])  # fmt: skip


def _paths(body, around):
    """Yield each statement with the loops and conditions around it."""
    for s in body:
        yield around, s
        for inner in s.bodies():
            yield from _paths(inner, (*around, s))


class _Walk:
    """One pass over a kernel: loops around the current statement, and what names depend on."""

    def __init__(self, cost, kernel, exact, visit=True, sizes=None):
        self.cost, self.exact, self.sizes = cost, exact, sizes or {}
        self.loops = []  # (variable, iterations, kind), the outermost first
        self.guarded = 0  # conditions around the current statement that lanes decide
        self.ranges = {}  # the first and the last value of their variables
        self.known = {}  # values of loop variables that extents or conditions depend on
        self.uses = {}  # the loop variables that a bound name depends on
        self.lets = {}  # names that are no data, and expressions without them
        self.inlined = {}
        self.deciding = self._deciding(kernel.body)
        if visit:
            self.body(kernel.body)

    def _deciding(self, body):
        """Return the loop variables that extents (and conditions, if exact) depend on."""
        roots = []
        for stmt in traverse.walk(body):
            if isinstance(stmt, Let):
                self.lets[stmt.var] = stmt.value
            elif isinstance(stmt, For):
                roots.append(stmt.extent)
            elif isinstance(stmt, Reduce):
                roots.extend(a.extent for a in stmt.axes)
            elif self.exact and isinstance(stmt, If):
                roots.append(stmt.condition)
            elif self.exact and isinstance(stmt, Load | Store) and stmt.mask is not None:
                roots.append(stmt.mask)
        lanes = {s.var for s in traverse.walk(body) if isinstance(s, For) and s.kind == VECTOR}
        return ex.free_vars([self.inline(r) for r in roots]) - lanes

    def inline(self, e):
        """Return an expression with all names replaced by what they were bound to."""
        if e not in self.inlined:
            full = e
            while found := {v: self.lets[v] for v in ex.free_vars([full]) if v in self.lets}:
                (full,) = ex.substitute([full], found)
            sizes = {v: ex.index(self.sizes[v.attr.name]) for v in ex.variables([full])}
            self.inlined[e] = ex.substitute([full], sizes)[0] if sizes else full
        return self.inlined[e]

    def step(self, store, var):
        """Return how many elements an access moves in the first iteration of a loop."""
        return self.offset(store, var) - self.offset(store)

    def offset(self, access, var=None):
        """Return the element that is accessed where all loops but one, in its second, begin."""
        flat = 0
        for e, extent in zip(access.index, access.memory.shape, strict=True):
            e = self.inline(e)
            values = {v: int(v is var) for v in ex.free_vars([e])}
            flat = flat * int(evaluate(extent)) + int(evaluate(e, values))
        return flat

    def value(self, e):
        """Return what an extent or a condition is here; None for data."""
        e = self.inline(e)
        names = ex.free_vars([e])
        if not names <= self.known.keys():
            return None
        return int(evaluate(e, {v: self.known[v] for v in names}))

    def holds(self, condition):
        """Whether a condition counts as true here."""
        if condition is None or not self.exact:
            return True
        return self.value(condition) in (None, 1)

    def may_fail(self, mask):
        """Whether a mask is false in some iterations of the loops around it."""
        return mask is not None and not prove_true(self.inline(mask), self.ranges)

    def depends(self, exprs):
        """Return the loop variables that expressions depend on, loaded values among them."""
        found = set()
        for v in ex.free_vars([self.inline(e) for e in exprs]):
            found |= self.uses.get(v, {v})
        return found

    def times(self, exprs, lanes=False):
        """Return how many instructions (or lanes of them) one statement is."""
        needed = self.depends(exprs)
        return math.prod(n for var, n, kind in self.loops
                         if (kind not in (VECTOR, UNROLLED)
                             or (var in needed and (kind == UNROLLED or lanes))))

    def body(self, body):
        for stmt in body:
            self.statement(stmt)

    def statement(self, s):
        self.multiply(s)
        if isinstance(s, For):
            self.loop(s)
        elif isinstance(s, Reduce):
            self.reduce(s)
        elif isinstance(s, Load):
            self.uses[s.var] = self.depends(s.index)
            if self.holds(s.mask) and s.memory.scope != "register":
                self.cost.read[s.memory.name] += self.times(s.index, lanes=True)
                self.cost.loads += self.times(s.index)
                if self.guarded or self.may_fail(s.mask):
                    self.cost.masks[s.memory.name] += self.times(s.index)
        elif isinstance(s, Store):
            if self.holds(s.mask) and s.memory.scope != "register":
                self.cost.written[s.memory.name] += self.times(s.index, lanes=True)
                self.cost.stores += self.times(s.index)
                self.cost.store_steps[s.memory.name] += self.times(s.index)
                if self.guarded or self.may_fail(s.mask):
                    self.cost.masks[s.memory.name] += self.times(s.index)
        elif isinstance(s, Alloc):
            size = s.memory.dtype.itemsize * math.prod(self.value(e) for e in s.memory.shape)
            self.cost.private[s.memory.name] = size
            if s.memory.scope == "register":
                self.cost.registers = max(self.cost.registers, size)
        elif isinstance(s, Prefetch):
            self.cost.prefetched[s.memory.name] += self.times(s.index)
        elif isinstance(s, If):
            needed = self.depends([s.condition])
            if any(var in needed and kind not in (VECTOR, UNROLLED) for var, _, kind in self.loops):
                self.cost.branches += self.times([s.condition])
            taken = self.value(s.condition) if self.exact else None
            lanes = any(var in needed and kind == VECTOR for var, _, kind in self.loops)
            lanes = lanes and self.may_fail(s.condition)
            self.guarded += lanes
            self.body(s.then if taken in (None, 1) else s.orelse)
            self.guarded -= lanes
        else:
            for inner in s.bodies():
                self.body(inner)

    def multiply(self, s):
        """Count the multiplications of floats, and of words, that a statement makes."""
        if isinstance(s, Store) and not self.holds(s.mask):
            return
        if isinstance(s, Store | Let):
            self.count_products([s.value])

    def count_products(self, values):
        for e in ex.toposort(values):
            if (e.op in (Op.MUL, Op.MAD) and e.dtype.is_float) or e.op in WORDS:
                self.cost.products[e.op.name] += self.times([e])
                self.cost.computed += e.lanes * self.times([e], lanes=True)

    def loop(self, s):
        count = self.value(s.extent)
        if s.kind == PARALLEL:
            self.cost.shares.append(count)
        self.inside(s.var, count, s.kind, lambda: self.body(s.body))

    def reduce(self, s):
        def axes(rest):
            if rest:
                a = rest[0]
                self.inside(a.var, self.value(a.extent), a.kind, lambda: axes(rest[1:]))
                return
            self.body(s.body)
            self.count_products([a.update for a in s.accumulators])

        axes(s.axes)
        for a in s.accumulators:
            self.uses[a.var] = set()

    def inside(self, var, count, kind, visit):
        """Visit a loop: once for all iterations, or each of them where something depends on it."""
        self.ranges[var] = 0, max(count - 1, 0)
        if var not in self.deciding:
            self.loops.append((var, count, kind))
            visit()
            self.loops.pop()
            return
        for at in range(count):
            self.known[var] = at
            self.ranges[var] = at, at
            visit()
        self.known.pop(var, None)
