"""The window form of a contraction: convolutions as a matrix product that is never written out.

The operand that is read through windows (overlapping, strided, or masked where they reach over the
border) is copied row by row into a box of its own: read once, without masks, with its zeros in
place. The lanes run along the output channels, so any stride and any width fill the registers;
the rows of the register tile are neighbouring positions.
"""

from __future__ import annotations

from weft.ir.stmt import For, Load, Reduce
from weft.schedule.dependence import Space, accesses
from weft.schedule.space import constant
from weft.strategies.contraction_pattern import (
    MAC_SPEED,
    Parameters,
    Pattern,
    copy_loops,
    epilogue_cost,
    native_lanes,
    order_loops,
    registers,
    tile_rows,
    tile_split,
)
from weft.strategies.nest import Cost, Plan, find, flat_stride, product, size_of, work


class _Found:
    """The parts of a convolution: the loads, the channel loop, positions, and what both share."""

    def __init__(self, image: Load, weight: Load, channel: For, positions: list[For],
                 shared: list[For]) -> None:
        self.image, self.weight = image, weight
        self.channel, self.positions, self.shared = channel, positions, shared


def _find(plan: Plan, pattern: Pattern) -> _Found | None:
    loads = [s for s in pattern.reduce.body if isinstance(s, Load)]
    if len(loads) != 2 or any(isinstance(s, Reduce) for s in pattern.reduce.body):
        return None
    space = Space(plan.kernel)
    windows = [s for s in loads if s.mask is not None or _overlaps(space, pattern, s)]
    if len(windows) != 1:
        return None
    image = windows[0]
    weight = loads[1] if image is loads[0] else loads[0]
    if image.memory is weight.memory:
        return None
    seen = [set().union(*[space.symbols(i) for i in s.index]) for s in (image, weight)]
    channels = [r for r in pattern.rows if r.var in seen[1] and r.var not in seen[0]]
    positions = [r for r in pattern.rows if r.var in seen[0] and r.var not in seen[1]]
    shared = [r for r in pattern.rows if r.var in seen[0] and r.var in seen[1]]
    if len(channels) != 1 or len(positions) < 1 or (
            len(shared) + len(positions) + 1 != len(pattern.rows)):
        return None
    return _Found(image, weight, channels[0], positions, shared)


def _overlaps(space: Space, pattern: Pattern, load: Load) -> bool:
    """Whether a dimension moves with a position and with a reduced axis: a window."""
    reduced = {a.var for a in pattern.reduce.axes}
    outer = {r.var for r in pattern.rows}
    return any(space.symbols(i) & reduced and space.symbols(i) & outer for i in load.index)


def schedule_window(plan: Plan, pattern: Pattern, p: Parameters) -> bool:
    """Schedule the window form; whether it fits and pays."""
    found = _find(plan, pattern)
    if found is None:
        return False
    native = native_lanes(plan, pattern)
    channels, reduced = size_of(found.channel.extent), product(
        a.extent for a in pattern.reduce.axes)
    extents = [r.extent for r in pattern.rows] + [a.extent for a in pattern.reduce.axes]
    if channels < native or any(constant(e) is None for e in extents):
        return False
    many = registers(plan) >= 32
    lanes = 2 * native if channels >= 2 * native else native
    itemsize = Cost(pattern.rows[-1].body).itemsize
    while reduced * lanes * itemsize > p.panel_bytes:
        lanes //= 2
        if lanes < native:
            return False
    positions = product(f.extent for f in found.positions)
    if positions < p.pack_rows:
        return False
    return _Convolution(plan, pattern, found, lanes, 14 if many else 6).apply(p)


class _Convolution:
    """One convolution on its way through the primitives."""

    def __init__(self, plan: Plan, pattern: Pattern, found: _Found, lanes: int, rows: int) -> None:
        self.plan, self.pattern, self.found = plan, pattern, found
        self.lanes, self.rows = lanes, rows
        self.name = pattern.reduce.accumulators[0].var.attr

    def apply(self, p: Parameters) -> bool:
        plan, found = self.plan, self.found
        schedule = plan.schedule
        amount = work((self.pattern.rows[0],)) // MAC_SPEED
        o, x = found.channel.var.attr, found.positions[-1].var.attr
        width = size_of(found.positions[-1].extent)
        tile_split(plan, o, found.channel.extent, self.lanes)
        rest = [f.var.attr for f in found.positions[:-1]]
        high = self._second(width)
        inner = [x, f"{o}.i"]
        if high > 1:
            y = rest.pop()
            tile_split(plan, y, found.positions[-2].extent, high)
            inner.insert(0, f"{y}.i")
            rest.append(f"{y}.o")
        outer = [*[f.var.attr for f in found.shared], f"{o}.o", *rest]
        order = order_loops(plan, outer, inner, amount)
        # The loop whose iteration reads one box: the innermost outer one; there may be none but
        # that of the channels, which stands outside all of them.
        image, weight = found.image.memory, found.weight.memory
        schedule.window(image.name, order[-1])
        self._copy_box(image.name)
        if f"{o}.o" in order:
            self._pack(weight.name, f"{o}.o", f"{o}.i")
        tile = tile_rows(width, self.rows // max(high, 1))
        top = inner[0]
        if width > tile:
            tile_split(plan, x, found.positions[-1].extent, tile)
            schedule.sink(f"{x}.i")
            if high > 1:
                schedule.reorder(f"{x}.o", inner[0])
            else:
                top = f"{x}.i"
            x = f"{x}.i"
        self._tile(p, [top, x] if high > 1 else [x], f"{o}.i")
        plan.why.append(f"contraction: windows of {image.name} copied without masks, "
                        f"{tile * max(high, 1)}×{self.lanes} results in registers along "
                        f"{x} and {o}.i")
        return True

    def _second(self, width: int) -> int:
        """Return how many rows of positions a tile takes where one is too short to fill it."""
        positions = self.found.positions
        if len(positions) < 2 or 2 * width > self.rows:
            return 1
        return tile_rows(size_of(positions[-2].extent), self.rows // width)

    def _copy_box(self, memory: str) -> None:
        """Vectorise the copy of the box along its last dimension."""
        plan = self.plan
        last = next((s for d in range(len(self.found.image.index) - 1, -1, -1)
                     if (s := find(plan.kernel, f"{memory}.d{d}")) is not None), None)
        if last is None:
            return
        native = plan.target.vector_bytes // max(self.found.image.memory.dtype.itemsize, 4)
        n, name = size_of(last.extent), last.var.attr
        lanes = native
        while lanes > 2 and lanes >= 2 * n:
            lanes //= 2
        plan.schedule.split(name, lanes, "mask").vectorize(f"{name}.i")

    def _pack(self, memory: str, loop: str, column: str) -> None:
        plan = self.plan
        axes = tuple(a.var.attr for a in self.pattern.reduce.axes)
        if not plan.attempt("stage", memory, loop, (*axes, column)):
            return
        space = Space(plan.kernel)
        inner = find(plan.kernel, f"{column}.s")
        assert inner is not None
        steps = {flat_stride(space, a, inner.var) for a in accesses(inner.body) if not a.write}
        if steps == {1}:
            plan.schedule.vectorize(f"{column}.s")
        else:
            plan.schedule.unroll(f"{column}.s")

    def _tile(self, p: Parameters, rows: list[str], column: str) -> None:
        schedule = self.plan.schedule
        schedule.decompose_reduction(self.name, rows[0], spill=True)
        copies = copy_loops(self.plan, rows[0])
        nests = [[*[f"{r}.z" for r in rows], f"{column}.z"], [*rows, column], list(copies)]
        for nest in nests:
            for row in nest[:-1]:
                schedule.unroll(row)
            schedule.vectorize(nest[-1])
        last = [f"{r}.f" for r in rows]
        if epilogue_cost(self.pattern) > p.spill:
            schedule.vectorize(f"{column}.f")
            return
        # Results leave row by row of the output: along the positions, not along the lanes.
        if self.plan.attempt("reorder", f"{column}.f", *last):
            for row in last:
                schedule.unroll(row)
        else:
            schedule.vectorize(f"{column}.f")
