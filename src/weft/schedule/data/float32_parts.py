"""Sums of products of float32 as sums of products of bfloat16 parts.

A float32 is the sum of three bfloat16: ``high``, rounded from it to the nearest, ``middle``,
rounded from the rest, and ``low``, what is left, which is exact because 8 + 8 + 8 bits and two
signs hold the 24 of a float32. A product of two such sums has nine terms. The three smallest
(middle * low, low * middle, low * low) stay below 2**-24 of the product together, and are left out:
what remains differs from the exact product by less than its rounding to float32 would. Each term is
exact in float32, and so are products whose own result is: with 24 bits between them, one factor has
no low part where the other has a middle one. The high parts are to be multiplied in a sweep of
their own behind that of the others, which so join where little is rounded.

That holds where nothing overflows and no part, no product and no sum falls below the normal
numbers, which products of matrices take for zero. It is known from the least and the largest
magnitude of both operands:

* elements of at least 2**-100 have parts of at least 2**-124;
* products of at least 2**-96 lose less than 2**-24 of themselves with what falls below 2**-126;
* sums of `n` products of at most 2**126 / n do not overflow, whichever order they are added in.

`measure` finds these in the high parts and `guard` asks for them. Zeros count neither as small nor
as large.
"""

from __future__ import annotations

from typing import Final

from weft.errors import ScheduleError
from weft.ir import dtype as dt
from weft.ir import expr as ex
from weft.ir import stmt as st
from weft.ir.expr import Expr
from weft.ir.op import Op
from weft.ir.stmt import (
    Accumulator,
    Alloc,
    Axis,
    Body,
    For,
    If,
    Kernel,
    Load,
    Memory,
    Reduce,
    Store,
)
from weft.ir.traverse import walk
from weft.schedule.analysis.space import Copy, Edit, find_for, find_memory, find_reduce, scan
from weft.schedule.data.tensorize import factors_of

PARTS: Final = 3  # of a float32
LEAST: Final = 2.0 ** -100  # of an element
LEAST_PRODUCT: Final = 2.0 ** -96
MOST_SUM: Final = 2.0 ** 126
_HALF: Final = 0x8000  # of the last place of a bfloat16
_HIGH: Final = 0xFFFF0000
_MAGNITUDE: Final = 0x7FFFFFFF
_LEAST_BITS: Final = 0x10000  # of the least bfloat16 above zero
_NONE: Final = 0x7E800000  # 2**126, less than which any element that is not zero shall be


def separable_factors(stmt: Reduce) -> tuple[Expr, Expr] | None:
    """Return the two float32 whose products a REDUCE sums, one of them perhaps a bfloat16."""
    factors = factors_of(stmt)
    if factors is None or any(f.dtype is not dt.float32 for f in factors):
        return None
    casts = [f for f in factors if f.op is Op.CAST]
    if len(casts) > 1 or any(f.args[0].dtype is not dt.bfloat16 for f in casts):
        return None
    return factors


def separate(kernel: Kernel, accumulator: str) -> Kernel:
    """Sum the products of the parts of two float32 instead of their own (as "3xTF32" does).

    reduce k (s) {s + a * b}
    ->  reduce k, s.l in 3, s.h in s.l + 1 (s)
            {s + cast.f32(part(a, 2 - s.l)) * cast.f32(part(b, s.h))}

    with part 0 of a value high, 1 middle and 2 low. A factor that is a bfloat16 stays as it is, and
    the other one has its axis alone.

    Raises
    ------
    ScheduleError
        If the REDUCE is no sum of products of float32. Ref: Henry, Tang, Heinecke, "Leveraging the
        bfloat16 artificial intelligence datatype for higher-precision computations", ARITH 2019.
    """
    site = find_reduce(kernel, accumulator, "separate")
    stmt = site.reduce
    factors = separable_factors(stmt)
    if factors is None:
        raise ScheduleError(f"separate({accumulator})", found="no sum of products of float32",
                            expected="an update s + a * b")
    edit = Edit(kernel)
    left, right = (edit.names.index(f"{accumulator}.{end}") for end in "lh")
    axes = list(stmt.axes)
    levels = [left * -1 + (PARTS - 1), right]
    both = all(f.op is not Op.CAST for f in factors)
    if factors[0].op is not Op.CAST:
        axes.append(Axis(left, ex.index(PARTS)))
    if factors[1].op is not Op.CAST:
        axes.append(Axis(right, left + 1 if both else ex.index(PARTS)))
    a, b = (f if f.op is Op.CAST else ex.cast(part(f, level), dt.float32)
            for f, level in zip(factors, levels, strict=True))
    acc = stmt.accumulators[0]
    new = acc.replace(update=acc.var + a * b)
    return edit.replace(site.parents, stmt, (Reduce(tuple(axes), (new,), stmt.body),))


def part(value: Expr, level: Expr) -> Expr:
    """Return the high (0), middle (1) or low (2) part of a float32 as a bfloat16.

    The high part of a value that is not zero is not zero either, or `measure` would not see it:
    what would be rounded to zero, below 2**-134, becomes the least bfloat16.
    """
    size = ex.bitcast(value, dt.uint32) & _MAGNITUDE
    vanishes = (size - 1).lt(_HALF - 1)  # a zero less 1 is the largest of all
    least = ex.bitcast(ex.const(_LEAST_BITS, dt.uint32), dt.float32)
    high = ex.where(vanishes, least, _rounded(value))
    rest = value - high
    middle = _rounded(rest)
    low = rest - middle
    whole = ex.where(level.eq(0), high, ex.where(level.eq(1), middle, low))
    return ex.bitcast(ex.cast(ex.bitcast(whole, dt.uint32) >> 16, dt.uint16), dt.bfloat16)


def _rounded(value: Expr) -> Expr:
    """Return a float32 rounded to the nearest bfloat16."""
    return ex.bitcast((ex.bitcast(value, dt.uint32) + _HALF) & _HIGH, dt.float32)


def sweep(kernel: Kernel, accumulator: str) -> Kernel:
    """Go through the pairs of parts in two sweeps: all but those of two high parts, then these.

    reduce k, s.l in 3, s.h in s.l + 1 (s) {s + x[s.l] * y[s.h]}
    ->  reduce k, s.w in 2, s.p in 5 - 4 * s.w (s) {s + x[(s.p + 1) // 2 + 2 * s.w] * y[s.p // 2]}

    Neighbours share a part. With k inside of s.w only products of high parts are added to large
    sums, and so rounded beside them. Of a factor alone the parts are max(s.p, 2 * s.w), from
    the low one on.

    Raises
    ------
    ScheduleError
        If the REDUCE has no axes that `separate` made.
    """
    site = find_reduce(kernel, accumulator, "sweep")
    stmt = site.reduce
    ends = {end: a for end in "lh" for a in stmt.axes if a.var.attr == f"{accumulator}.{end}"}
    if not ends:
        raise ScheduleError(f"sweep({accumulator})", found="no axes of parts",
                            expected="the axes that `separate` makes", hint="separate first")
    edit = Edit(kernel)
    high, pair = (edit.names.index(f"{accumulator}.{end}") for end in "wp")
    # Maxima tell ranges that no part is beyond the last one.
    if len(ends) == 2:
        extent = high * -4 + 5
        places = {"l": ex.maximum((pair + 1) // 2, high * 2), "h": pair // 2}
    else:
        extent, up = high * -1 + 2, ex.maximum(pair, high * 2)
        places = {"l": up, "h": up * -1 + (PARTS - 1)}
    copy = Copy(edit.locations, {axis.var: places[end] for end, axis in ends.items()})
    axes = [a for a in stmt.axes if a not in ends.values()]
    axes += [Axis(high, ex.index(2)), Axis(pair, extent)]
    accumulators = tuple([a.replace(update=copy.expr(a.update)) for a in stmt.accumulators])
    return edit.replace(site.parents, stmt, (Reduce(tuple(axes), accumulators,
                                                    copy.body(stmt.body)),))


def fork(kernel: Kernel, loop: str) -> Kernel:
    """Give a loop a second body, which another condition than `true` can choose later.

    for i: s[i]  ->  for i: { if true: s[i] else: s.u[i] }      (names of the copy end in ".u")
    """
    site = find_for(kernel, loop, "fork")
    edit = Edit(kernel)
    copy = edit.duplicate(site.loop.body, {}, ".u")
    body = (If(ex.const(True, dt.bool_), site.loop.body, copy),)
    return edit.replace(site.parents, site.loop, (site.loop.with_bodies(body),))


def measure(kernel: Kernel, panel: str, axis: int, high: int, loop: str = "") -> Kernel:
    """Find the least and the largest magnitude in a panel of words right behind its copy.

    alloc p[3, n]; for q.p: ... p[...] = ...
    ->  alloc p[3, n]; for q.p: ... p[...] = ...
        reduce p.g in n (p.lo, p.hi) {bits of the least, less 1, and of the largest of p[2, p.g]}

    Parameters
    ----------
    panel : str
        A memory that `precompute` made, of two bfloat16 in each word.
    axis, high : int
        Which dimension is that of the parts (-1: none), and the index of the high ones.
    loop : str
        The loop of the copy along the first dimension: then each of its iterations finds magnitudes
        of its own, which are kept in arrays.
    """
    what = f"measure({panel})"
    found = next(((s, p) for s, p in scan(kernel)
                  if isinstance(s, Alloc) and s.memory.name == panel), None)
    if found is None or found[0].memory.dtype is not dt.uint32:
        raise ScheduleError(what, found=f"no memory {panel} of words", expected="a panel of words")
    alloc, parents = found
    siblings = next(b for b in parents[-1].bodies() if any(s is alloc for s in b))
    nest = siblings[next(p for p, s in enumerate(siblings) if s is alloc) + 1]
    if not isinstance(nest, For) or (loop and nest.var.attr != loop):
        raise ScheduleError(what, found=f"a {type(nest).__name__} behind {panel}",
                            expected=f"its copy, a loop {loop}".rstrip())
    edit, extents = Edit(kernel), _filled(nest, alloc.memory)
    if not loop:
        return edit.replace(parents, nest, (nest, _magnitudes(edit, alloc.memory, extents, axis,
                                                              high)))
    reduce = _magnitudes(edit, alloc.memory, extents, axis, high, nest.var)
    size = alloc.memory.shape[:1]
    kept = [Memory(edit.names.fresh(f"{a.var.attr}.all"), dt.uint32, size, "local")
            for a in reduce.accumulators]
    stores = [Store(m, (nest.var,), a.var) for m, a in zip(kept, reduce.accumulators, strict=True)]
    return edit.replace(parents, nest, (
        *map(Alloc, kept), nest.with_bodies((*nest.body, reduce, *stores))))


def guard(kernel: Kernel, loop: str, left: str, right: str, terms: int) -> Kernel:
    """Take the first body of a fork only where products of parts are as good as float32.

    for i: { if true: ... else: ... }
    ->  for i: { if p.lo, p.hi and those of the other panel are good enough: ... else: ... }

    Parameters
    ----------
    loop : str
        The loop that `fork` gave two bodies, which compute the same sums.
    left, right : str
        The panels of words that the first body multiplies, whose magnitudes `measure` found.
    terms : int
        How many products a sum has.

    Raises
    ------
    ScheduleError
        If there are no such loop and magnitudes.
    """
    what = f"guard({loop}, {left}, {right})"
    site = find_for(kernel, loop, "guard")
    found = next((s for s in site.loop.body if isinstance(s, If) and s.orelse
                  and s.condition.op is Op.CONST), None)
    if found is None:
        raise ScheduleError(what, found=f"no fork in {loop}", expected="a loop with two bodies",
                            hint=f"fork({loop}) first")
    edit = Edit(kernel)
    loads: Body = ()
    bounds = []
    for panel in (left, right):
        for end in ("lo", "hi"):
            name = f"{panel}.{end}"
            bits = _bound(kernel, name)
            if bits is None:
                kept = find_memory(kernel, f"{name}.all", "guard")
                bits = edit.names.var(f"{name}.one", ex.const(0, dt.uint32))
                loads += (Load(bits, kept, (site.var,)),)
            bounds.append(ex.bitcast(bits + 1 if end == "lo" else bits, dt.float32))
    a, most_a, b, most_b = bounds
    good = a.ge(LEAST) & b.ge(LEAST) & (a * b).ge(LEAST_PRODUCT) & (
        most_a * most_b).le(MOST_SUM / terms)
    return edit.replace((*site.parents, site.loop), found,
                        (*loads, found.replace(condition=good)))


def _bound(kernel: Kernel, name: str) -> Expr | None:
    """Return the result of a REDUCE outside of all loops but those around its use, by name."""
    kept = {s.memory.name for s in walk(kernel.body) if isinstance(s, Alloc)}
    if f"{name}.all" in kept:
        return None
    return next((v for s in walk(kernel.body) if isinstance(s, Reduce)
                 for v in s.binds() if v.attr == name), None)


def _filled(nest: For, memory: Memory) -> list[Expr]:
    """Return how far a copy fills the dimensions of its panel: the last block may be shorter."""
    extents = {s.var: s.extent for s in walk((nest,)) if isinstance(s, For)}
    index = next(s.index for s in walk((nest,)) if isinstance(s, Store) and s.memory is memory)
    return [extents.get(at, most) for at, most in zip(index, memory.shape, strict=True)]


def _magnitudes(edit: Edit, memory: Memory, extents: list[Expr], axis: int, high: int,
                first: Expr | None = None) -> Reduce:
    """Return the REDUCE for the bits of the least magnitude, less 1, and of the largest one."""
    axes: list[Axis] = []
    index: list[Expr] = []
    for number, extent in enumerate(extents):
        if number == axis or (number == 0 and first is not None):
            index.append(ex.index(high) if number == axis or first is None else first)
            continue
        axes.append(Axis(edit.names.index(f"{memory.name}.g{number}"), extent))
        index.append(axes[-1].var)
    word = ex.var(edit.names.fresh(f"{memory.name}.w"), dt.uint32)
    least, most = (ex.var(edit.names.fresh(f"{memory.name}.{end}"), dt.uint32)
                   for end in ("lo", "hi"))
    halves = [(word << 16) & _MAGNITUDE, word & (_MAGNITUDE & _HIGH)]
    low, top = least, most
    for half in halves:  # a zero less 1 is the largest of all
        low, top = ex.minimum(low, half - 1), ex.maximum(top, half)
    accumulators = (
        Accumulator(least, ex.const(_NONE, dt.uint32), low,
                    ex.minimum(st.lhs(least), st.rhs(least))),
        Accumulator(most, ex.const(0, dt.uint32), top, ex.maximum(st.lhs(most), st.rhs(most))))
    body: Body = (Load(word, memory, tuple(index)),)
    return Reduce(tuple(axes), accumulators, body)


__all__ = ["PARTS", "fork", "guard", "measure", "part", "separable_factors", "separate",
           "sweep"]
