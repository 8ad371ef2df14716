"""What a schedule will cost, read off its loop nest: static features and a first estimate.

Counted are the instructions by kind, the bytes that cross each level of the caches, what does not
fit into registers, and how well threads and lanes are used. The estimate adds them up in cycles
with coarse weights; it only has to order candidates, and measurements correct it.
"""

from __future__ import annotations

import math
from typing import Final, NamedTuple

from weft.ir import expr as ex
from weft.ir import stmt as st
from weft.ir.bounds import Ranges
from weft.ir.expr import Expr
from weft.ir.op import Op
from weft.ir.stmt import Body, For, Kernel, Memory, Reduce, Stmt
from weft.target import Target

_HEAVY: Final = frozenset({
    Op.EXP, Op.EXP2, Op.EXPM1, Op.LOG, Op.LOG2, Op.LOG10, Op.LOG1P, Op.SIN, Op.COS, Op.TAN, Op.TANH,
    Op.ERF, Op.ERFC, Op.SIGMOID, Op.POW, Op.ATAN2, Op.FMOD, Op.MOD, Op.FLOORDIV, Op.DIV, Op.SQRT,
})  # fmt: skip
_HEAVY_CYCLES: Final = 12.0
_UNKNOWN: Final = 64  # iterations of a loop whose extent nothing limits
_MOST: Final = 1 << 40
_PARALLEL_CYCLES: Final = 6000.0  # to hand a region over to the threads

NAMES: Final = ("arithmetic", "memory", "gathers", "masks", "loops", "l1", "l2", "l3", "spill",
                "serial", "regions", "scalar", "streamed", "code")  # fmt: skip


class Features(NamedTuple):
    """The static features of one schedule: `cycles` estimated, and `values` in order of `NAMES`."""

    cycles: float
    values: tuple[float, ...]


class _Loop(NamedTuple):
    var: Expr
    extent: int
    kind: str


class _Use(NamedTuple):
    """One access with the loops around it, outermost first."""

    memory: Memory
    subscripts: tuple[Expr, ...]
    loops: tuple[_Loop, ...]


class _Counter:
    """Walks a kernel once and counts."""

    def __init__(self, kernel: Kernel, target: Target, threads: int) -> None:
        self.target, self.threads = target, threads
        self.plain = Ranges()
        self.count = dict.fromkeys(NAMES, 0.0)
        self.uses: list[_Use] = []
        self.entered: dict[Expr, float] = {}  # times a parallel loop is entered, by its variable
        self.held = 0.0  # vectors that want a register
        self.share = 1.0  # of the work that the longest thread does
        self._walk(kernel.body)

    def _extent(self, e: Expr) -> int:
        low, high = self.plain.of(e)
        del low
        return _UNKNOWN if high > _MOST else max(int(high), 0)

    def _walk(self, body: Body) -> None:
        stack: list[tuple[Stmt, tuple[_Loop, ...]]] = [(s, ()) for s in body]
        while stack:
            stmt, loops = stack.pop()
            inner = loops
            if isinstance(stmt, For):
                inner = (*loops, _Loop(stmt.var, self._extent(stmt.extent), stmt.kind))
                self._loop(inner)
            elif isinstance(stmt, Reduce):
                inner = loops + tuple(_Loop(a.var, self._extent(a.extent), a.kind)
                                      for a in stmt.axes)
                for depth in range(len(loops) + 1, len(inner) + 1):
                    self._loop(inner[:depth])
                self._compute([a.update for a in stmt.accumulators], inner)
                for a in stmt.accumulators:
                    self.held += self._vectors(a.var.dtype.itemsize, inner)
            elif isinstance(stmt, st.Load | st.Store | st.Atomic):
                self._access(stmt, loops)
            elif isinstance(stmt, st.Let):
                self._compute([stmt.value], loops)
            elif isinstance(stmt, st.Alloc) and stmt.memory.scope == "register":
                size = self._extent(stmt.memory.size) * stmt.memory.dtype.itemsize
                self.held = max(self.held, size / self.target.vector_bytes)
            for inside in stmt.bodies():
                stack.extend((s, inner) for s in inside)

    def _loop(self, loops: tuple[_Loop, ...]) -> None:
        last = loops[-1]
        if last.kind == st.SERIAL:
            self.count["loops"] += _times(loops)
        elif last.kind == st.PARALLEL:
            self.count["regions"] += _times(loops[:-1])
            rounds = -(-last.extent // max(self.threads, 1))
            self.share = min(self.share, rounds / max(last.extent, 1))
        else:
            self.count["code"] += 1

    def _vectors(self, itemsize: int, loops: tuple[_Loop, ...]) -> float:
        """Return how many registers a value takes over the vector loops around it."""
        lanes = math.prod(loop.extent for loop in loops if loop.kind == st.VECTOR)
        return max(math.ceil(lanes * itemsize / self.target.vector_bytes), 1)

    def _compute(self, exprs: list[Expr], loops: tuple[_Loop, ...]) -> None:
        nodes = [e for e in ex.toposort(exprs) if e.args]
        data = [e for e in nodes if e.dtype.is_float] or nodes
        if not data:
            return
        cycles = sum(_HEAVY_CYCLES if e.op in _HEAVY else 1.0 for e in data)
        times = _times(loops)
        width = max(e.dtype.itemsize for e in data)
        self.count["arithmetic"] += times * cycles * self._vectors(width, loops)
        if not any(loop.kind == st.VECTOR for loop in loops):
            self.count["scalar"] += times

    def _access(self, stmt: st.Load | st.Store | st.Atomic, loops: tuple[_Loop, ...]) -> None:
        if isinstance(stmt, st.Store | st.Atomic):
            self._compute([stmt.value], loops)
        memory, times = stmt.memory, _times(loops)
        if memory.scope == "register":
            return
        vectors = self._vectors(memory.dtype.itemsize, loops)
        self.count["memory"] += times * vectors
        if getattr(stmt, "mask", None) is not None:
            self.count["masks"] += times * vectors
        lanes = [loop for loop in loops if loop.kind == st.VECTOR]
        if lanes and not self._contiguous(stmt.index, lanes):
            self.count["gathers"] += times * math.prod(loop.extent for loop in lanes)
        self.uses.append(_Use(memory, tuple(stmt.index), loops))

    def _contiguous(self, index: tuple[Expr, ...], lanes: list[_Loop]) -> bool:
        """Whether neighbouring lanes touch neighbouring elements, or all the same one."""
        ranges = Ranges({v: (0, 0) for e in index for v in ex.free_vars([e])})
        still = [ranges.of(e) for e in index]
        moving = Ranges({v: (0, 0) for e in index for v in ex.free_vars([e])}
                        | {loop.var: (0, max(loop.extent - 1, 0)) for loop in lanes})
        widths = [moving.of(e)[1] - moving.of(e)[0] - (s[1] - s[0])
                  for e, s in zip(index, still, strict=True)]
        if not any(widths):
            return True
        points = math.prod(loop.extent for loop in lanes)
        return not any(widths[:-1]) and abs(widths[-1]) < points

    # ---- the caches ------------------------------------------------------------------------------

    def traffic(self, capacity: float) -> float:
        """Return the bytes that come from behind a cache that holds `capacity` bytes."""
        if not self.uses:
            return 0.0
        totals: dict[tuple[Expr, ...], dict[Memory, float]] = {}
        touched: list[list[float]] = []
        for use in self.uses:
            own = []
            for depth in range(len(use.loops) + 1):
                size = self._footprint(use, depth)
                own.append(size)
                path = tuple(loop.var for loop in use.loops[:depth])
                held = totals.setdefault(path, {})
                held[use.memory] = max(held.get(use.memory, 0.0), size)
            touched.append(own)
        total = 0.0
        counted: set[tuple[tuple[Expr, ...], Memory]] = set()
        for use, own in zip(self.uses, touched, strict=True):
            for depth, size in enumerate(own):
                path = tuple(loop.var for loop in use.loops[:depth])
                if depth == len(use.loops) or sum(totals[path].values()) <= capacity:
                    if (path, use.memory) not in counted:
                        counted.add((path, use.memory))
                        total += _times(use.loops[:depth], True) * size
                    break
        return total

    def _footprint(self, use: _Use, depth: int) -> float:
        """Return the bytes that an access touches while the loops from `depth` on run once."""
        inside = {loop.var: (0, max(loop.extent - 1, 0)) for loop in use.loops[depth:]}
        fixed = {loop.var: (0, 0) for loop in use.loops[:depth]}
        ranges = Ranges({**fixed, **inside})
        item = use.memory.dtype.itemsize
        total = float(item)
        for place, (e, extent) in enumerate(zip(use.subscripts, use.memory.shape, strict=True)):
            low, high = ranges.of(e)
            width = min(high - low + 1, self._extent(extent))
            if place == len(use.subscripts) - 1:
                width = max(width, min(self.target.line_bytes // item, self._extent(extent)))
            total *= max(width, 1)
        points = math.prod(loop.extent for loop in use.loops[depth:])
        return min(total, float(max(points, 1)) * self.target.line_bytes)


def _times(loops: tuple[_Loop, ...], every: bool = False) -> float:
    """Return how often a statement runs, a vector (unless `every` lane is meant) being one."""
    return float(math.prod(loop.extent for loop in loops if every or loop.kind != st.VECTOR))


def features(kernel: Kernel, target: Target, threads: int) -> Features:
    """Return the features of a scheduled kernel."""
    counter = _Counter(kernel, target, threads)
    count = counter.count
    streamed = sum(line.startswith("stream(") for line in kernel.meta.schedule)
    l1, l2 = target.l1_bytes or 32 << 10, target.l2_bytes or 256 << 10
    l3 = target.l3_bytes or 4 * l2
    count["l1"], count["l2"] = counter.traffic(l1 * 0.8), counter.traffic(l2 * 0.8)
    count["l3"] = counter.traffic(l3 * 0.5) if l3 > l2 else count["l2"]
    work = count["arithmetic"] + count["memory"]
    excess = max(counter.held + 3 - target.vector_registers, 0) / target.vector_registers
    count["spill"] = excess * work
    count["serial"] = counter.share
    count["streamed"] = float(streamed)
    compute = (max(count["arithmetic"] / 2, count["memory"] / 2) + count["loops"]
               + count["gathers"] * 1.5 + count["masks"] * 0.5 + count["spill"])
    cycles = max(compute, count["l1"] / 32, count["l2"] / 12) * counter.share
    cycles = max(cycles, count["l3"] / 6) + 0.25 * min(compute * counter.share, count["l3"] / 6)
    cycles += count["regions"] * _PARALLEL_CYCLES
    values = tuple(math.log1p(count[name]) for name in NAMES)
    return Features(max(cycles, 1.0), values)


__all__ = ["NAMES", "Features", "features"]
