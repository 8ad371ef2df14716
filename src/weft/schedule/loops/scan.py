"""The primitive that runs a recurrence in vector lanes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from weft.errors import ScheduleError
from weft.ir import expr as ex
from weft.ir import traverse
from weft.ir.expr import Expr
from weft.ir.op import Op, Operation
from weft.ir.stmt import SERIAL, VECTOR, Alloc, Body, For, Kernel, Let, Load, Memory, Stmt, Store
from weft.schedule.analysis import dependence as dep
from weft.schedule.analysis import subscripts as sub
from weft.schedule.analysis.space import Edit, constant, find_for
from weft.schedule.loops.loops import MAX_LANES, vector_obstacle

ASSOCIATIVE: Final = (Op.ADD, Op.MUL, Op.MIN, Op.MAX)


class _Recurrence(NamedTuple):
    """``before = carry; after = op(before, value); carry = after`` among other statements."""

    load: Load
    let: Let
    store: Store
    op: Operation
    value: Expr
    pre: Body
    post: Body


def scan(kernel: Kernel, loop: str, lanes: int, each: int = 1) -> Kernel:
    """Run a recurrence over an associative op in vector lanes (a prefix sum in log steps).

    for k in n: { v = x[k]; c = carry[0]; let r = c + v; carry[0] = r; y[k] = r }
    ->  for k.o in n/L: {
            alloc t[L]
            for k.v in L vector: { v = x[k]; t[k.v] = v }
            v0, v1 = t[0:L:2], t[1:L:2]                                      (each = 2)
            s = v0 + v1; s1 = s + slide(s, s, 1) in lanes 1 and up, else s; s2 = ...
            c = carry[0]; carry[0] = c + s..[L/2-1]
            b = c in lane 0, else c + slide(s.., s.., 1)
            t[0:L:2], t[1:L:2] = b + v0, b + (v0 + v1)
            for k.w in L vector: { r = t[k.w]; y[k] = r } }
        for k.t in n%L: { as before }

    The log steps are between lanes that have added up `each` neighbours, so that a block takes few
    of them. If the value is cast to another type for the recurrence, or the result after it, such
    neighbours change their lanes in the narrow type. The order of floating-point additions changes,
    as it does where a reduction is vectorised.

    Parameters
    ----------
    loop : str
        A serial loop whose only dependence between iterations is the carry.
    lanes : int
        Elements of a block: a power of two, 2 to 64.
    each : int
        Neighbours in one lane: a power of two, at most half of `lanes`.

    Raises
    ------
    ScheduleError
        If the body is no such recurrence. Ref: Hillis and Steele, CACM 1986.
    """
    what = f"scan({loop}, {lanes}, {each})"
    if lanes < 2 or lanes & (lanes - 1) or lanes > MAX_LANES:
        raise ScheduleError(what, found=f"{lanes} lanes",
                            expected=f"a power of two from 2 to {MAX_LANES}")
    if each < 1 or each & (each - 1) or 2 * each > lanes:
        raise ScheduleError(what, found=f"{each} neighbours in a lane",
                            expected=f"a power of two from 1 to {lanes // 2}")
    site = find_for(kernel, loop, "scan")
    if site.kind != SERIAL:
        raise ScheduleError(what, found=f"a loop of kind {site.kind}", expected="a serial loop")
    if any(isinstance(p, For) and p.kind == VECTOR for p in site.parents):
        raise ScheduleError(what, found="a vector loop around it", expected="serial loops")
    found = _match(site.body, what)
    obstacle = vector_obstacle(site.body)
    if obstacle is not None:
        raise ScheduleError(what, found=obstacle, expected="statements that have a vector form")
    rest = (*found.pre, Let(found.let.var, found.value), *found.post)
    carried = dep.carried(sub.Space(kernel), site.var, rest)
    if carried is not None:
        raise ScheduleError(what, found=carried, expected="no dependence beside the carry")
    return _apply(Edit(kernel), site.loop, site.parents, found, lanes, each)


def _match(body: Body, what: str) -> _Recurrence:
    inside = {s.memory for s in traverse.walk(body) if isinstance(s, Alloc)}
    for at, load in enumerate(body):
        if not isinstance(load, Load) or load.memory.scope == "global" or load.memory in inside:
            continue
        found = _recurrence(body, at, load)
        if found is not None:
            return found
    raise ScheduleError(what, found="no recurrence through one private element",
                        expected="a load, an associative operation and a store of the result")


def _recurrence(body: Body, at: int, load: Load) -> _Recurrence | None:
    rest = body[at + 1:]
    if len(rest) < 2 or load.mask is not None:
        return None
    let, store = rest[0], rest[1]
    if not (isinstance(let, Let) and isinstance(store, Store) and store.memory is load.memory
            and store.index == load.index and store.mask is None and store.value is let.var):
        return None
    value, op = let.value, let.value.op
    if op not in ASSOCIATIVE or load.var not in value.args or value.args[0] is value.args[1]:
        return None
    other = value.args[1] if value.args[0] is load.var else value.args[0]
    pre, post = body[:at], rest[2:]
    outside = (*pre, *post)
    if any(isinstance(s, Load | Store) and s.memory is load.memory for s in traverse.walk(outside)):
        return None
    local = {v for s in traverse.walk(pre) for v in s.binds()} | {load.var}
    if any(local & ex.free_vars(s.exprs()) for s in traverse.walk(post)) or any(
            load.var in ex.free_vars([e]) for e in (other, *load.index)):
        return None
    return _Recurrence(load, let, store, op, other, pre, post)


def _apply(edit: Edit, loop: For, parents: tuple[Stmt, ...], found: _Recurrence,
           lanes: int, each: int) -> Kernel:  # fmt: skip
    names, k, size = edit.names, loop.var, ex.index(lanes)
    zero = (ex.index(0),)
    block = names.index(f"{k.attr}.o")
    first = block * lanes
    value, result = found.value, found.let.var
    if each > 1:
        value, result = value.args[0] if value.op is Op.CAST else value, _result(found)
    taken = Memory(names.fresh(f"{k.attr}.s"), value.dtype, (size,), "register")
    given = taken if result.dtype is taken.dtype else Memory(
        names.fresh(f"{k.attr}.r"), result.dtype, (size,), "register")

    reading = names.index(f"{k.attr}.v")
    read = edit.copy((*found.pre, Store(taken, (reading,), value)), {k: first + reading})
    whole = ex.var(names.fresh(f"{k.attr}.p"), value.dtype, lanes)
    scanned = _Block(found, lambda: names.fresh(f"{k.attr}.p"))
    written, last = scanned.run(whole, each)
    carry = edit.copy((found.load, Store(found.store.memory, found.store.index, last)),
                      {k: first})  # fmt: skip
    out = _interleave([ex.cast(w, result.dtype) for w in written])

    writing = names.index(f"{k.attr}.w")
    back = names.var(str(found.let.var.attr), ex.var("", result.dtype))
    write = (Load(back, given, (writing,)),
             *edit.copy(found.post, {k: first + writing, result: back}))
    main = For(block, loop.extent // lanes, SERIAL, (
        *map(Alloc, dict.fromkeys((taken, given))), For(reading, size, VECTOR, read),
        Load(whole, taken, zero), carry[0], *scanned.steps, Store(given, zero, out), carry[1],
        For(writing, size, VECTOR, write)))  # fmt: skip
    made: Body = (main,)
    n = constant(loop.extent)
    if n is None or n % lanes:
        left = names.index(f"{k.attr}.t")
        start = (loop.extent // lanes) * lanes
        rest = edit.duplicate(loop.body, {k: start + left}, ".t")
        made = (main, For(left, loop.extent % lanes, SERIAL, rest))
    return edit.replace(parents, loop, made)


def _result(found: _Recurrence) -> Expr:
    """Return what the statements behind the recurrence read: its value, or one cast of it."""
    value = found.let.var
    below = ex.toposort([e for s in traverse.walk(found.post) for e in s.exprs()])
    users = [e for e in below if value in e.args]
    if len(users) == 1 and users[0].op is Op.CAST and not any(
            value in s.exprs() for s in traverse.walk(found.post)):
        return users[0]
    return value


class _Block:
    """The statements that scan the elements of one block."""

    def __init__(self, found: _Recurrence, fresh: Callable[[], str]) -> None:
        self.found, self.fresh = found, fresh
        self.steps: list[Stmt] = []

    def let(self, value: Expr) -> Expr:
        """Name a value."""
        made = ex.var(self.fresh(), value.dtype, value.lanes)
        self.steps.append(Let(made, value))
        return made

    def run(self, block: Expr, each: int) -> tuple[list[Expr], Expr]:
        """Return the results, of every `each`-th element, and the next carry."""
        op, before = self.found.op, self.found.load.var
        lanes = block.lanes // each
        own: list[Expr] = []
        for at in range(each):
            picks = range(at, block.lanes, each)
            part = block if each == 1 else ex.shuffle(block, block, picks)
            part = self.let(ex.cast(part, before.dtype))
            own.append(self.let(ex.binary(op, own[-1], part)) if own else part)
        prefix, places = own[-1], 1
        lane = ex.ramp(ex.index(0), lanes)
        while places < lanes:
            # A rotation and a masked operation: moving neutral elements in is slow on some
            # processors.
            joined = ex.binary(op, ex.slide(prefix, prefix, places), prefix)
            keeps = lane.lt(ex.broadcast(ex.index(places), lanes))
            prefix, places = self.let(ex.where(keeps, prefix, joined)), 2 * places
        last = ex.binary(op, before, ex.extract(prefix, lanes - 1))
        start = ex.broadcast(before, lanes)
        if each == 1:
            return [self.let(ex.binary(op, start, prefix))], last
        up = self.let(ex.binary(op, start, ex.slide(prefix, prefix, 1)))
        start = self.let(ex.where(lane.lt(ex.broadcast(ex.index(1), lanes)), start, up))
        return [self.let(ex.binary(op, start, part)) for part in own], last


def _interleave(parts: list[Expr]) -> Expr:
    """Return the lanes of several vectors in turn."""
    count, lanes = len(parts), parts[0].lanes
    while len(parts) > 1:
        width = parts[0].lanes
        parts = [ex.shuffle(a, b, range(2 * width))
                 for a, b in zip(parts[::2], parts[1::2], strict=True)]
    picks = [part * lanes + lane for lane in range(lanes) for part in range(count)]
    return parts[0] if count == 1 else ex.shuffle(parts[0], parts[0], picks)
