"""The primitive that runs a recurrence in vector lanes."""

from __future__ import annotations

from typing import Final, NamedTuple

from weft.errors import ScheduleError
from weft.ir import expr as ex
from weft.ir import traverse
from weft.ir.expr import Expr
from weft.ir.op import Op, Operation
from weft.ir.stmt import SERIAL, VECTOR, Alloc, Body, For, Kernel, Let, Load, Memory, Stmt, Store
from weft.schedule import dependence as dep
from weft.schedule.loops import MAX_LANES, vector_obstacle
from weft.schedule.space import Edit, constant, find_for

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


def scan(kernel: Kernel, loop: str, lanes: int) -> Kernel:
    """Run a recurrence over an associative op in vector lanes (a prefix sum in log steps).

    for k in n: { v = x[k]; c = carry[0]; let r = c + v; carry[0] = r; y[k] = r }
    ->  for k.o in n/L: {
            alloc t[L]
            for k.v in L vector: { v = x[k]; t[k.v] = v }
            s = t[0:L]; s1 = s + slide(s, s, 1) in lanes 1 and up, else s; s2 = ...
            c = carry[0]; t[0:L] = c + s..; carry[0] = c + s..[L-1]
            for k.w in L vector: { r = t[k.w]; y[k] = r } }
        for k.t in n%L: { as before }

    The order of floating-point additions changes, as it does where a reduction is vectorised.

    Parameters
    ----------
    loop : str
        A serial loop whose only dependence between iterations is the carry.
    lanes : int
        A power of two, 2 to 64.

    Raises
    ------
    ScheduleError
        If the body is no such recurrence. Ref: Hillis and Steele, CACM 1986.
    """
    what = f"scan({loop}, {lanes})"
    if lanes < 2 or lanes & (lanes - 1) or lanes > MAX_LANES:
        raise ScheduleError(what, found=f"{lanes} lanes",
                            expected=f"a power of two from 2 to {MAX_LANES}")
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
    carried = dep.carried(dep.Space(kernel), site.var, rest)
    if carried is not None:
        raise ScheduleError(what, found=carried, expected="no dependence beside the carry")
    return _apply(Edit(kernel), site.loop, site.parents, found, lanes)


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
           lanes: int) -> Kernel:  # fmt: skip
    names, k = edit.names, loop.var
    dtype = found.let.var.dtype
    zero = (ex.index(0),)
    block = names.index(f"{k.attr}.o")
    first = block * lanes
    tile = Memory(names.fresh(f"{k.attr}.s"), dtype, (ex.index(lanes),), "register")

    reading = names.index(f"{k.attr}.v")
    read = edit.copy((*found.pre, Store(tile, (reading,), found.value)), {k: first + reading})
    steps: list[Stmt] = []
    prefix = ex.var(names.fresh(f"{k.attr}.p"), dtype, lanes)
    steps.append(Load(prefix, tile, zero))
    lane = ex.ramp(ex.index(0), lanes)
    places = 1
    while places < lanes:
        # A rotation and a masked operation: moving neutral elements in is slow on some processors.
        longer = ex.var(names.fresh(f"{k.attr}.p"), dtype, lanes)
        joined = ex.binary(found.op, ex.slide(prefix, prefix, places), prefix)
        keeps = lane.lt(ex.broadcast(ex.index(places), lanes))
        steps.append(Let(longer, ex.where(keeps, prefix, joined)))
        prefix, places = longer, 2 * places
    before = found.load.var
    whole = ex.binary(found.op, ex.broadcast(before, lanes), prefix)
    last = ex.binary(found.op, before, ex.extract(prefix, lanes - 1))
    carry = edit.copy((found.load, Store(found.store.memory, found.store.index, last)),
                      {k: first})  # fmt: skip
    steps += [carry[0], Store(tile, zero, whole), carry[1]]

    writing = names.index(f"{k.attr}.w")
    result = names.var(str(found.let.var.attr), found.let.var)
    write = (Load(result, tile, (writing,)),
             *edit.copy(found.post, {k: first + writing, found.let.var: result}))
    size = ex.index(lanes)
    main = For(block, loop.extent // lanes, SERIAL, (
        Alloc(tile), For(reading, size, VECTOR, read), *steps,
        For(writing, size, VECTOR, write)))  # fmt: skip
    made: Body = (main,)
    n = constant(loop.extent)
    if n is None or n % lanes:
        left = names.index(f"{k.attr}.t")
        start = (loop.extent // lanes) * lanes
        rest = edit.duplicate(loop.body, {k: start + left}, ".t")
        made = (main, For(left, loop.extent % lanes, SERIAL, rest))
    return edit.replace(parents, loop, made)
