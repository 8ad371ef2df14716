"""What strategies ask about a loop nest: sizes, strides, element width, amount of work."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from functools import lru_cache
from typing import TYPE_CHECKING, Final, TypeVar

from weft.errors import ScheduleError
from weft.imports import Late
from weft.ir import dtype as dt
from weft.ir import expr as ex
from weft.ir import stmt as st
from weft.ir import traverse
from weft.ir.bounds import Ranges
from weft.ir.expr import Expr
from weft.ir.op import Op
from weft.ir.stmt import Body, For, Kernel, Reduce, Stmt
from weft.schedule import Schedule
from weft.schedule.analysis.space import HEAVY, constant
from weft.schedule.choices import Choices, Value
from weft.target import ARRAY_BYTES, LARGE_BYTES, PRIVATE_BYTES, CostModel, Target

if TYPE_CHECKING:
    from weft.schedule.analysis import subscripts
    from weft.schedule.analysis.subscripts import Access, Space
else:
    subscripts = Late("weft.schedule.analysis.subscripts")

V = TypeVar("V", bound=Value)

MAX_LANES: Final = 64
COMPUTE: Final = "compute"  # the hint of a kernel whose loops `strategies.loops` schedules
HEAVY_COST: Final = 15  # a transcendental in simple operations, roughly
LONG: Final = frozenset({  # what takes about twice as long, in float64 or by several steps
    Op.SIN, Op.COS, Op.TAN, Op.ERFC, Op.ASINH, Op.ACOSH, Op.ATANH,
})  # fmt: skip


class Plan:
    """A strategy at work: the schedule so far, the target, and the reasons to tell the user.

    Attributes
    ----------
    schedule : Schedule
        Takes the primitives.
    target : Target
        The machine.
    threads : int
        How many threads the kernel may use.
    why : list of str
        One clause per decision, for ``weft explain``.
    forms : dict of str to None
        The forms that contractions of the kernel took, in order, each once.
    choices : Choices
        What was decided, and what could have been.
    private_bytes : int
        What each nest of the kernel may keep in private arrays, which lie side by side.
    """

    def __init__(self, kernel: Kernel, target: Target, threads: int,
                 choices: Choices | None = None) -> None:
        self.schedule = Schedule(kernel)
        self.target, self.threads = target, threads
        self.choices = Choices() if choices is None else choices
        self.why: list[str] = []
        self.forms: dict[str, None] = {}
        self.private_bytes = PRIVATE_BYTES // max(sum(isinstance(s, For) for s in kernel.body), 1)

    @property
    def costs(self) -> CostModel:
        """What work takes on the target."""
        return self.target.costs

    def is_worth_threads(self, amount: int) -> bool:
        """Whether so many weighted operations are worth sharing among threads."""
        return self.threads > 1 and amount >= self.costs.parallel_work

    @property
    def kernel(self) -> Kernel:
        """The kernel as scheduled so far (its trace is put into ``meta`` at the end)."""
        return self.schedule.bare

    def hints(self) -> tuple[tuple[str, str], ...]:
        """Return what the report says of the schedule: the forms of contractions, and why."""
        forms = (("form", ", ".join(self.forms)),) if self.forms else ()
        return (*forms, ("why", "; ".join(dict.fromkeys(self.why)) or "serial"))

    def attempt(self, primitive: str, *arguments: object, **named: object) -> bool:
        """Apply a primitive if it is legal; whether it was."""
        try:
            getattr(self.schedule, primitive)(*arguments, **named)
        except ScheduleError:
            return False
        return True

    def pick(self, name: str, default: V, options: Iterable[V], key: Hashable = None) -> V:
        """Return a decision: the default, or what a search decided (`Choices.pick`)."""
        return self.choices.pick(name, default, options, key)  # type: ignore[return-value]

    def stream_outputs(self, most: int = 0) -> None:
        """Write outputs past the caches that are too large to stay there: as large as `most`.

        By default these are outputs that no cache keeps until they are read again.
        """
        l3, most = self.target.l3_bytes, most or self.costs.stream_bytes
        limit = min(most, l3 * 5 // 8) if l3 else most
        touched = sum(size_of(m.size) * m.dtype.itemsize for m in self.kernel.params)
        if touched >= 2 * l3 > 0:  # beside all that is read, hardly any of it would stay
            limit = min(limit, l3 // 4)
        body = self.kernel.body
        written = traverse.stores(body)
        read = traverse.loads(body)
        for memory in self.kernel.params:
            if memory not in written or memory in read:
                continue
            nbytes = size_of(memory.size) * memory.dtype.itemsize
            large = nbytes >= max(limit, 1)
            if nbytes >= self.target.l2_bytes > 0:
                large = self.pick("stream", large, (True, False), memory.name)
            if large:
                self.schedule.stream(memory.name)
                self.why.append(f"{memory.name} is larger than the cache: non-temporal stores")


_NO_FACTS: Final = Ranges()


def size_of(e: Expr) -> int:
    """Return the value of a size, its largest for a symbolic one."""
    n = constant(e)
    return n if n is not None else max(_NO_FACTS.of(e).hi, 0)


def product(extents: Iterable[Expr]) -> int:
    """Return the number of points of an iteration space."""
    total = 1
    for e in extents:
        total *= size_of(e)
    return total


def flat_stride(space: Space, access: Access, var: Expr) -> int | None:
    """Return the distance in elements between the accesses of neighbouring iterations."""
    if not access.index:
        return 0
    steps = [space.stride(i, var) for i in access.index]
    if all(s == 0 for s in steps):
        return 0
    if any(s is None for s in steps):
        return space.stride(space.flat(access.memory, access.index), var)
    total, scale = 0, 1
    for step, extent in zip(reversed(steps), reversed(access.memory.shape), strict=True):
        if step:
            total += step * scale
        scale *= size_of(extent)
    return total


def strides(space: Space, body: Body, var: Expr) -> list[tuple[Access, int | None]]:
    """Return the accesses of a body with their distance per iteration of `var`."""
    return [(a, flat_stride(space, a, var)) for a in subscripts.accesses(body)]


def _value_exprs(body: Body) -> list[Expr]:
    """Return the expressions that compute data, not subscripts or extents."""
    out: list[Expr] = []
    for stmt in traverse.walk(body):
        if isinstance(stmt, st.Store | st.Let):
            out.append(stmt.value)
        elif isinstance(stmt, Reduce):
            out.extend(a.update for a in stmt.accumulators)
        elif isinstance(stmt, st.If):
            out.append(stmt.condition)
    return out


class Cost:
    """What one pass over a body costs, and how wide its data is.

    Attributes
    ----------
    ops : int
        Weighted operations of one point of the innermost loops.
    heavy : int
        How many transcendental operations there are among them.
    itemsize : int
        Bytes of the widest type that is computed or stored.
    """

    def __init__(self, body: Body) -> None:
        self.ops, self.heavy, self.itemsize = _measured(body)


@lru_cache(maxsize=16)  # the steps of a strategy ask again and again
def _measured(body: Body) -> tuple[int, int, int]:
    nodes = ex.toposort(_value_exprs(body))
    data = {v for s in traverse.walk(body) for v in s.binds() if not isinstance(s, For)}
    heavy = sum(e.op in HEAVY for e in nodes)
    moves = 0
    width = 1
    for stmt in traverse.walk(body):
        if isinstance(stmt, st.Load | st.Store):
            moves += 1
            width = max(width, stmt.memory.dtype.itemsize)
        elif isinstance(stmt, Reduce):
            width = max([width, *[a.var.dtype.itemsize for a in stmt.accumulators]])
    ops = moves + sum(1 for e in nodes if e.args) + HEAVY_COST * heavy
    for e in nodes:
        if any(a in data for a in e.args):
            data.add(e)
        elif not e.dtype.is_float:
            continue  # arithmetic on loop variables, most of which stays scalar
        if e.args:
            narrow = e.dtype.is_float and e.dtype.itemsize < 4
            width = max(width, 4 if narrow else e.dtype.itemsize)
    return ops, heavy, width


def work(body: Body) -> int:
    """Return the weighted operations of a body, loops counted."""
    total = 0
    stack: list[tuple[Stmt, int]] = [(s, 1) for s in body]
    while stack:
        stmt, times = stack.pop()
        if isinstance(stmt, For):
            times *= size_of(stmt.extent)
        elif isinstance(stmt, Reduce):
            times *= product(a.extent for a in stmt.axes)
            total += times * _weight([a.update for a in stmt.accumulators])
        elif isinstance(stmt, st.Store):
            total += times * (1 + _weight([stmt.value]))
        elif isinstance(stmt, st.Let):
            total += times * _weight([stmt.value])
        elif isinstance(stmt, st.Load):
            total += times
        for body_inside in stmt.bodies():
            stack.extend((s, times) for s in body_inside)
    return total


def _weight(exprs: list[Expr]) -> int:
    """Return the weighted operations of expressions; vectors of float64 have half the lanes."""
    total = 0
    for e in ex.toposort(exprs):
        if e.op in HEAVY:
            total += HEAVY_COST * (2 if e.op in LONG else 1) * (2 if e.dtype is dt.float64 else 1)
        elif e.args:
            total += 1
    return total


def registers(plan: Plan) -> int:
    """Return how many vector registers there are."""
    return max(getattr(plan.target, "vector_registers", 16), 8)


def private_arrays(kernel: Kernel) -> set[st.Memory]:
    """Return the private arrays of a kernel."""
    return {s.memory for s in traverse.walk(kernel.body) if isinstance(s, st.Alloc)}


def fit_privately(plan: Plan, arrays: Iterable[st.Memory], large: bool = False) -> bool:
    """Whether private arrays are small enough, each and all of them together.

    A form that gains much by `large` panels may have more of them.
    """
    each, times = (LARGE_BYTES, LARGE_BYTES // PRIVATE_BYTES) if large else (ARRAY_BYTES, 1)
    sizes = [size_of(m.size) * m.dtype.itemsize for m in arrays]
    return max(sizes, default=0) <= each and sum(sizes) <= times * plan.private_bytes


def power_above(n: int) -> int:
    """Return the smallest power of two that is at least `n`."""
    return 1 << max(n - 1, 0).bit_length()


def chain_of(loop: For) -> list[For]:
    """Return the serial loops that nest perfectly, outermost first."""
    out = [loop]
    while len(out[-1].body) == 1:
        inner = out[-1].body[0]
        if not isinstance(inner, For) or inner.kind != st.SERIAL:
            break
        out.append(inner)
    return out


def find(kernel: Kernel, name: str) -> For | None:
    """Return the FOR with this name."""
    return next((s for s in traverse.walk(kernel.body)
                 if isinstance(s, For) and s.var.attr == name), None)


def loop_of(plan: Plan, name: str) -> For:
    """Return a FOR that there is."""
    loop = find(plan.kernel, name)
    assert loop is not None
    return loop


def shares_evenly(n: int, threads: int) -> bool:
    """Whether so many iterations keep all threads busy about as long."""
    return n > 0 and (n % threads == 0 or n >= 4 * threads)


def parallelise(plan: Plan, names: list[str], amount: int) -> str | None:
    """Run the best of some loops (outermost first) on threads; return its name.

    A loop is good if its iterations can be shared out evenly; the outermost good one wins, because
    every entry of a parallel loop costs a hand-over.
    """
    if not plan.is_worth_threads(amount):
        return None
    sizes: list[tuple[str, int]] = []
    for name in names:
        loop = find(plan.kernel, name)
        if loop is not None:
            sizes.append((name, size_of(loop.extent)))
    threads = plan.threads
    even = [name for name, n in sizes if shares_evenly(n, threads)]
    rest = [name for name, n in sorted(sizes, key=lambda s: -s[1]) if n >= 2 and name not in even]
    order = [*even, *rest]
    first = plan.pick("shared loop", 0, range(-1, len(order)), tuple(names)) if order else -1
    if first < 0:
        return None
    for name in [order[first], *order[:first], *order[first + 1 :]]:
        if plan.attempt("parallel", name):
            plan.why.append(f"{name} is shared out to {threads} threads")
            return name
    return None
