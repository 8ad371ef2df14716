"""What convolutions are made of: their parts, their chains of sums, the box they read.

The operand that is read through windows (overlapping, strided, or masked where they reach over the
border) is called the image, the other one the weight, whichever of a convolution and its gradients
it is.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import Final

from weft.ir import expr as ex
from weft.ir import traverse
from weft.ir.expr import Expr
from weft.ir.stmt import Alloc, For, Load, Reduce
from weft.schedule.analysis import guard
from weft.schedule.analysis.space import constant
from weft.schedule.analysis.subscripts import Access, Space, accesses
from weft.schedule.loops.omit import is_multiple
from weft.strategies.common.contraction_pattern import (
    Parameters,
    Pattern,
    is_fixed,
    native_lanes,
    tile_split,
)
from weft.strategies.common.nest import Plan, flat_stride, loop_of, power_above, product, size_of

SHORTEST: Final = 8  # terms of a chain: what follows it costs two of them
PARTWISE: Final = 1.1  # roundings beside those of a sum part by part
MAC_ITEM: Final = 4  # of elements that are multiplied as they are
CLOSE: Final = 2  # elements between neighbours that share lines
MOST_STARTS: Final = 1 << 10  # rows of an image that are counted
NARROW: Final = 2  # channels from which on a box of many bytes is gone through in blocks
FEW_TERMS: Final = 12  # of sums whose results leave along a row as they are computed
MOST_PAST: Final = 1 << 10  # elements behind a copy that tiles may reach
MOST_PIECES: Final = 4  # vectors of a row of a box that are written out


class Windowed:
    """The parts of a convolution: loads, loops over channels, positions, and what both share.

    Those of the shared loops that move the weights alone are ``apart``.
    """

    def __init__(self, image: Load, weight: Load, channels: list[For], positions: list[For],
                 shared: list[For]) -> None:
        self.image, self.weight = image, weight
        self.channels, self.positions, self.shared = channels, positions, shared
        self.apart: list[For] = []


def find_windows(plan: Plan, pattern: Pattern) -> Windowed | None:
    """Return a convolution's parts, None if the contraction is none."""
    loads = [s for s in pattern.reduce.body if isinstance(s, Load)]
    if len(loads) != 2 or any(isinstance(s, Reduce) for s in pattern.reduce.body):
        return None
    space = Space(plan.kernel)
    windows = [s for s in loads if s.mask is not None or _overlaps(space, pattern, s)
               or _skips(space, pattern, s)]
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
    if len(shared) + len(positions) + len(channels) != len(pattern.rows):
        return None
    return Windowed(image, weight, channels, positions, shared)


def _sums_along(plan: Plan, pattern: Pattern, native: int) -> bool:
    """Whether a long reduced axis is contiguous in both operands: a gradient of weights."""
    space, inside = Space(plan.kernel), accesses(pattern.reduce.body)
    return any(2 * size_of(a.extent) >= native and all(
        flat_stride(space, x, a.var) in (0, 1) for x in inside) for a in pattern.reduce.axes)


def prepare(plan: Plan, pattern: Pattern, p: Parameters) -> tuple[Windowed, int] | None:
    """Return a convolution whose lanes run along its channels, and how many; None if it is none.

    Sizes of loops around tiles may be symbolic: those of images and rows.
    """
    found = find_windows(plan, pattern)
    if found is None or not found.channels or not found.positions:
        return None
    native = native_lanes(plan, pattern)
    if len(found.channels) > 1:  # taps whose results stay apart: each is a convolution of its own
        channel = max(found.channels, key=lambda f: constant(f.extent) or 0)
        found.apart = [f for f in found.channels if f is not channel]
        found.shared = [*found.apart, *found.shared]
        found.channels = [channel]
    channels = size_of(found.channels[0].extent)
    if not is_fixed(pattern, [*found.shared, *found.positions[:-1]]):
        return None
    x = found.positions[-1].var
    strided = Space(plan.kernel).stride(found.image.index[-1], x) not in (1, -1)
    large = strided and box_of_rows(plan, pattern, found, 1) > plan.costs.image_bytes
    if channels < (NARROW if large else min(native, 8)) and not _rows_are_short(
            found, channels, native):
        return None
    if _leave_along_rows(plan, pattern, found):
        return None
    if 2 * channels < native and _sums_along(plan, pattern, native):
        return None  # the inner form fills its registers
    lanes = 2 * native
    if channels < lanes or -(-channels // lanes) * lanes * 8 > -(-channels // native) * native * 9:
        lanes = native  # two vectors would leave much of the last one idle
    while lanes >= 2 * channels:
        lanes //= 2
    if product(f.extent for f in found.positions) < p.turn_rows:
        return None
    return found, lanes


def _rows_are_short(found: Windowed, channels: int, native: int) -> bool:
    """Whether vectors of a few channels are enough fewer than vectors along rows of positions."""
    width = size_of(found.positions[-1].extent)
    return 5 * width <= 4 * channels * -(-width // min(native, power_above(width + 1) // 2))


def _leave_along_rows(plan: Plan, pattern: Pattern, found: Windowed) -> bool:
    """Whether turning results would cost more than summing them: few terms, in one dimension.

    Not where a line of many results belongs to two rows: of several images it leaves twice.
    """
    native, x = native_lanes(plan, pattern), found.positions[-1]
    width, item = size_of(x.extent), found.image.memory.dtype.itemsize
    _, moved = _windows(Space(plan.kernel), pattern, found)
    if moved != {x.var} or width < 2 * native or product(
            a.extent for a in pattern.reduce.axes) > FEW_TERMS:
        return False
    return len(found.positions) == 1 or width % native == 0 or 2 * item * product(
        r.extent for r in pattern.rows) <= plan.target.l2_bytes


def taps_last(plan: Plan, pattern: Pattern, found: Windowed, positions: list[For]) -> Pattern:
    """Put the taps that move the image with some positions last: their loop is the innermost.

    Where lanes are positions of a row, taps of a column are written out: rows of a tile share what
    those read. Of ``n`` rows and ``k`` taps of a column, ``n + k - 1`` rows of the image are read;
    of ``k`` taps of a row, each row of the tile reads ``k`` vectors of its own. Where lanes are
    channels, taps of a row are last: whether its line is inside is asked before all of them.
    """
    moved = {f.var for f in positions}
    beside = set().union(*[seen for seen in map(Space(plan.kernel).symbols, found.image.index)
                           if moved & seen])
    axes = tuple(sorted(pattern.reduce.axes, key=lambda a: a.var in beside))
    if axes != pattern.reduce.axes:
        plan.schedule.reorder(*[a.var.attr for a in axes])
    return pattern.replace(reduce=pattern.reduce.replace(axes=axes))


def _overlaps(space: Space, pattern: Pattern, load: Load) -> bool:
    """Whether a dimension moves with a position and with a reduced axis: a window."""
    reduced = {a.var for a in pattern.reduce.axes}
    outer = {r.var for r in pattern.rows}
    return any(space.symbols(i) & reduced and space.symbols(i) & outer for i in load.index)


def _skips(space: Space, pattern: Pattern, load: Load) -> bool:
    """Whether positions step over elements in a dimension of their own: a strided convolution."""
    outer = {r.var for r in pattern.rows}
    steps = [space.stride(i, v) for i in load.index for v in space.symbols(i) & outer]
    return any(s is not None and s > 1 for s in steps)


def is_part(space: Space, pattern: Pattern) -> bool:
    """Whether places between results are left out: those of a strided gradient with one remainder.

    Each has the windows that reach its positions, which may be of one point.
    """
    return any(a.write and (space.stride(i, r.var) or 0) > 1
               for a in accesses(pattern.rows[-1].body) for i in a.index for r in pattern.rows)


def is_adjoint(space: Space, pattern: Pattern, found: Windowed) -> bool:
    """Whether a contraction is a gradient by images: what its sums leave out is no zero.

    Its image is read for every s-th place alone, or for the others as well, by taps that move it
    the other way than the weights.
    """
    return is_part(space, pattern) or _reaches_some(pattern, found.image) or (
        _overlaps(space, pattern, found.image) and adjoint_taps(space, pattern, found) > 1)


def _reaches_some(pattern: Pattern, load: Load) -> bool:
    """Whether a load takes place for the rows alone that a stride reaches."""
    rows = {r.var for r in pattern.rows}
    asked = [] if load.mask is None else guard.parts(load.mask)
    return any(is_multiple(c) and ex.free_vars([c]) & rows for c in asked)


def adjoint_taps(space: Space, pattern: Pattern, found: Windowed) -> int:
    """Return the taps of a gradient by images, which move these one way, the weights the other."""
    moves = {a: [flat_stride(space, Access(s), a.var) or 0 for s in (found.image, found.weight)]
             for a in pattern.reduce.axes}
    return product(a.extent for a, (image, weight) in moves.items() if image * weight < 0)


def sum_chains(plan: Plan, pattern: Pattern, found: Windowed, p: Parameters) -> Parameters:
    """Return parameters with which gradients err no more than where they are made of products.

    By the images, others sum the products of all channels for each tap of the window, and add up
    the taps afterwards, where images are strided or groups have few channels; by the weights, they
    sum those of one image after the other. Of ``c * t`` roundings ``c + t`` follow one another so.
    Hardly more do here: chains of n terms have ``n + c * t / n``.
    """
    space, axes = Space(plan.kernel), pattern.reduce.axes
    terms, taps = product(a.extent for a in axes), adjoint_taps(space, pattern, found)
    if taps > 1:
        steps = [flat_stride(space, a, f.var) or 0 for f in found.positions[-1:]
                 for a in accesses(pattern.rows[-1].body) if a.write]
        if max(steps, default=0) <= 1 and not (
                found.shared and terms < taps * native_lanes(plan, pattern)):
            return p  # of all channels at once, products are summed in one chain elsewhere, too
        return _no_more_than(p, terms, taps)
    sums = window_sums(space, pattern, found)
    if is_convolution(space, pattern, found):
        return p
    if found.shared and len(axes) > 1:  # small products, summed in the lanes of vectors
        p = p.replace(nested_chain=min(p.nested_chain, max(math.isqrt(terms), 2 * SHORTEST)))
    return _no_more_than(p, terms, terms // sums)


def _windows(space: Space, pattern: Pattern, found: Windowed) -> tuple[set[Expr], set[Expr]]:
    """Return the reduced axes and the positions that move the image together."""
    seen = [space.symbols(i) for i in found.image.index]
    axes, outside = {a.var for a in pattern.reduce.axes}, {f.var for f in found.positions}
    windows = set().union(*[i for i in seen if i & axes and i & outside])
    return windows & axes, windows & outside


def window_sums(space: Space, pattern: Pattern, found: Windowed) -> int:
    """Return the terms of a sum along the windows alone."""
    axes, _ = _windows(space, pattern, found)
    return product(a.extent for a in pattern.reduce.axes if a.var in axes)


def is_convolution(space: Space, pattern: Pattern, found: Windowed) -> bool:
    """Whether sums go over the taps of windows: the gradient of weights sums over pictures.

    The images of a batch lie farthest apart: there they are summed, too. Where there is one image
    or one channel alone, a picture is what has more points than a window has taps.
    """
    axes, outside = _windows(space, pattern, found)
    others = [{a.var for a in pattern.reduce.axes} - axes,
              {f.var for f in found.positions} - outside]
    far = [max([0, *[abs(flat_stride(space, Access(found.image), v) or 0) for v in some]])
           for some in others]
    if all(far):
        return bool(axes) and far[0] < far[1]
    return bool(axes) and window_sums(space, pattern, found) <= product(
        f.extent for f in found.positions if f.var in outside)


def _no_more_than(p: Parameters, terms: int, parts: int) -> Parameters:
    """Return parameters for sums that err as those of some parts of them, added up, do."""
    most = PARTWISE * (parts + terms // parts)
    chain = int(most + math.sqrt(max(most * most - 4 * terms, 0))) // 2
    return p.replace(nested_chain=min(p.nested_chain, max(chain, SHORTEST)))


def copy_box(plan: Plan, image: Load, loop: str) -> None:
    """Copy the box that one iteration of a loop reads, vectorised along its last dimension."""
    memory = image.memory
    known = {s.var for s in traverse.walk(plan.kernel.body) if isinstance(s, For)}
    plan.schedule.window(memory.name, loop)
    last = next((s for s in traverse.walk(plan.kernel.body) if isinstance(s, For)
                 and s.var not in known and not isinstance(s.body[0], For)), None)
    if last is None:
        return
    n, name = size_of(last.extent), last.var.attr
    lanes = plan.target.vector_bytes // max(memory.dtype.itemsize, 4)
    while lanes > 2 and lanes >= 2 * n:
        lanes //= 2
    known.add(last.var)
    tile_split(plan, name, last.extent, lanes)
    # Another box of the same image may have loops of these names already.
    outer, inner = [s.var.attr for s in traverse.walk(plan.kernel.body) if isinstance(s, For)
                    and s.var not in known and s.var.attr.startswith(f"{name}.")]
    if -(-n // lanes) <= MOST_PIECES:  # what lies outside is known then, piece by piece
        plan.attempt("unroll", outer)
    plan.schedule.vectorize(inner)


def run_past(plan: Plan, loop: str) -> None:
    """Let tiles that reach past the last position read on in their copy of an image.

    Nobody reads what they gather there. A mask instead would be a branch in each step of all tiles,
    and sums that leave their registers around it.
    """
    space, inside = Space(plan.kernel), accesses(loop_of(plan, loop).body)
    copies = {s.memory for s in traverse.walk(plan.kernel.body) if isinstance(s, Alloc)}
    copies -= {a.memory for a in inside if a.write}
    for memory in {a.memory: None for a in inside if a.memory in copies}:
        total = product(memory.shape)
        last = max(int(space.ranges.of(space.flat(memory, a.index)).hi)
                   for a in inside if a.memory is memory)
        if total <= last < total + MOST_PAST:
            plan.schedule.flatten(memory.name, last + 1 - total)


def box_of_rows(plan: Plan, pattern: Pattern, found: Windowed, rows: int) -> int:
    """Return the bytes of the image that some rows of positions read."""
    space, total = Space(plan.kernel), found.image.memory.dtype.itemsize
    counts = {a.var: size_of(a.extent) for a in pattern.reduce.axes}
    counts[found.positions[-1].var] = size_of(found.positions[-1].extent)
    if len(found.positions) > 1:
        counts[found.positions[-2].var] = rows
    for i in found.image.index:
        total *= 1 + sum(abs(space.stride(i, v) or 0) * (n - 1) for v, n in counts.items())
    return total


def lies_near(plan: Plan, image: Load, counts: dict[Expr, int]) -> bool:
    """Whether what some loops read of an image stays near where it lies.

    Neighbours have to share lines, and the lines may not fall on few sets of the first cache: a
    set has as many places as the cache has pages.
    """
    item, line = image.memory.dtype.itemsize, plan.target.line_bytes
    if item < MAC_ITEM:
        return False
    space = Space(plan.kernel)
    starts, length = [0], 1
    for var, n in counts.items():
        step = abs(flat_stride(space, Access(image), var) or 0)
        if step <= CLOSE:
            length += step * (n - 1)
        else:
            starts = [s + step * i for s in starts for i in range(n)]
        if len(starts) > MOST_STARTS:
            return False
    lines = {at for s in starts for at in range(s * item // line, (s + length) * item // line + 1)}
    sets = Counter(at % (plan.costs.page_bytes // line) for at in lines)
    return 2 * max(sets.values()) <= plan.target.l1_bytes // plan.costs.page_bytes


def even_block(depth: int, most: int) -> int:
    """Return the steps of a block: a divisor if it is not much smaller, else nearly even ones.

    Where all blocks are as long, panels are turned in whole squares of registers.
    """
    divisor = max(d for d in range(1, most + 1) if depth % d == 0)
    return divisor if 3 * divisor >= 2 * most else -(-depth // -(-depth // most))
