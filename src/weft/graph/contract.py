"""Reductions of reductions: movement goes into the inner one, and both become one.

    sum(move(sum(a * b)))  ->  sum(move(a) * move(b))

The gradient of a convolution is such a nest: windows of products are folded back by sums. Merged,
it is one contraction with index maps instead of an array of window gradients. Sums change their
order by this, which is a property of REDUCE. A movement that fills with zeros masks the factors
that vary along its axis; a factor that repeats there stays as it is, so a term that is left out
counts as 0 times that factor, as in a convolution with zero padding.

A sum of several products is split into one contraction for each.
"""

from __future__ import annotations

import functools
import math
import sys
from collections.abc import Callable, Container, Sequence
from typing import Final

from weft.graph import movement
from weft.ir import infer
from weft.ir import node as nd
from weft.ir.expr import Expr
from weft.ir.node import Node, Shape
from weft.ir.op import Op, Operation

MATERIALISE: Final = 16  # what an element written to memory and read again costs, in terms
OVERLAP: Final = 1.6  # more terms that a dense convolution may have than its windows side by side
FEW_CHANNELS: Final = 8  # of results: fewer do not fill vectors
LANES: Final = 16  # results of a vector
HALVES: Final = 1.5  # times as many terms of 16 bits are multiplied in the same time, and more
SEVERAL: Final = 1 << 20  # terms from which on it pays to make two kernels of one
NARROW: Final = 5  # of how many vectors one is used where neither channels nor positions fill it
WRITTEN: Final = 28  # positions of a row in which taps outside of a picture cost nothing
SEARCH: Final = 100  # nodes looked at below a reduction
TERMS: Final = 32  # of a sum that is split into contractions
ROW: Final = 16  # elements, from which on rows are worth moving as a whole: a line
_LINKS: Final = frozenset({Op.RESHAPE, Op.PERMUTE, Op.SLICE, Op.PAD, Op.WINDOW, Op.UNWINDOW})
_MERGED: Final = frozenset({"sum", "prod", "max", "min", "any", "all"})


def merge_nested(node: Node, shared: Container[Node]) -> Node | None:
    """Return a reduction of a (moved) reduction of its kind as one reduction.

    Nodes in `shared` have other users; their work is not done twice.
    """
    kind = node.attr.kind
    chain: list[Node] = []
    inner = node.args[0]
    while inner.op in _LINKS and inner not in shared and len(chain) < 8:
        if not _fills_neutral(inner, kind):
            return None
        chain.append(inner)
        inner = inner.args[0]
    if inner.op is not Op.REDUCE or inner.attr.kind != kind or inner in shared:
        return None
    if not _pays(node, inner, chain):
        return _positions_last(node, inner, chain) if kind == "sum" else None
    lead = len(inner.attr.axes)
    operand = _lifted(inner, chain)
    axes = (*range(lead), *(a + lead for a in node.attr.axes))
    return infer.reduce(operand, kind, axes)


def move_inside(node: Node, shared: Container[Node]) -> Node | None:
    """Return a reduction of a moved operand for a moved reduction, where that saves work.

    slice(reduce(x)) -> reduce(slice(x)); permute(sum(a * b)) -> sum(permute(a) * permute(b)).
    """
    inner = node.args[0]
    if inner.op is not Op.REDUCE or inner in shared:
        return None
    if node.op is Op.PERMUTE and inner.args[0].op is not Op.MUL:
        return None
    if node.op is Op.SLICE and not _shrinks(node):
        return None
    operand = _lifted(inner, [node])
    lead = len(inner.attr.axes)
    order = (*range(lead, operand.ndim), *range(lead))  # the reduced axes last, as they usually are
    operand = _apply(operand, lambda x: movement.permute(x, order), ())
    return infer.reduce(operand, inner.attr.kind, range(operand.ndim - lead, operand.ndim))


def moves_rows(node: Node) -> bool:
    """Whether a node puts the rows of its operand into another order, each as a whole."""
    last = node.shape[-1] if node.shape else 1
    return (node.op is Op.PERMUTE and node.attr[-1] == node.ndim - 1
            and isinstance(last, int) and last >= ROW)


def turned(node: Node, order: Sequence[int]) -> Node:
    """sum(a * b) -> permute(sum(permute(a) * permute(b))), stored in an order that others want.

    Those others see it as it was; whoever reads in the new order finds rows that are one axis.
    """
    made = move_inside(movement.permute(node, order), ())
    if made is None:
        return node
    inverse = [0] * node.ndim
    for place, axis in enumerate(order):
        inverse[axis] = place
    return movement.permute(made, inverse)


def unfold_factors(node: Node, shared: Container[Node]) -> Node | None:
    """sum(unwindow(a * b)) -> sum(unwindow(a) * b), where b repeats along what is folded back.

    The gradient of a depthwise convolution is a convolution then, too.
    """
    chain: list[Node] = []
    product = node.args[0]
    while product.op in _LINKS and product not in shared and len(chain) < 8:
        if not _fills_neutral(product, node.attr.kind):
            return None
        chain.append(product)
        product = product.args[0]
    if product.op is not Op.MUL or product in shared or not chain or (
            chain[0].op is not Op.UNWINDOW):
        return None
    for number, link in reversed(list(enumerate(chain))):
        make, masked = _LIFTS[link.op](link, 0)
        if masked and not any(_repeats(f, a) for f in product.args for a in masked):
            return None
        product = _apply(product, make, masked, _alone(link, masked, chain[:number]))
    return infer.reduce(product, "sum", node.attr.axes)


def split_sum(node: Node) -> Node | None:
    """sum(a * b + c) -> sum(a * b) + sum(c), where the first is a contraction.

    Operands that several matmuls share get such sums as gradients.
    """
    axes, total = node.attr.axes, node.args[0]
    if node.attr.kind != "sum" or total.op not in (Op.ADD, Op.MAD) or not node.dtype.is_float:
        return None
    terms: list[Node] = []
    stack = [total]
    while stack and len(terms) + len(stack) <= TERMS:
        term = stack.pop()
        if term.op is Op.MAD:
            product = infer.elementwise(Op.MUL, *term.args[:2])
            parts = [product, term.args[2]] if _is_contraction(product, axes) else []
        else:
            parts = list(term.args) if term.op is Op.ADD else []
        stack.extend(reversed(parts))
        if not parts:
            terms.append(term)
    products = [t for t in terms if _is_contraction(t, axes)]
    if stack or not products:
        return None
    rest = [t for t in terms if t not in products]
    if rest:
        products.append(functools.reduce(_plus, rest))
    return functools.reduce(_plus, [infer.reduce(p, "sum", axes) for p in products])


def _plus(a: Node, b: Node) -> Node:
    return infer.elementwise(Op.ADD, a, b)


def _is_contraction(x: Node, axes: tuple[int, ...]) -> bool:
    """Whether both factors of a product repeat along some axis that a sum keeps."""
    kept = [a for a in range(x.ndim) if a not in axes]
    return x.op is Op.MUL and all(any(movement.constant_along(f, a) for a in kept) for f in x.args)


def _fills_neutral(link: Node, kind: str) -> bool:
    """Whether what a movement fills in does not change a reduction of its zeros."""
    if link.op is Op.UNWINDOW:
        return kind == "sum"
    return link.op is not Op.PAD or (kind == "sum" and link.attr.value == 0)


def _shrinks(node: Node) -> bool:
    sizes = (_elements(node.shape), _elements(node.args[0].shape))
    return None not in sizes and sizes[0] < sizes[1]  # type: ignore[operator]


def _elements(shape: Shape) -> int | None:
    total = 1
    for dim in shape:
        if isinstance(dim, Expr):
            return None
        total *= dim
    return total


def _pays(node: Node, inner: Node, chain: list[Node]) -> bool:
    """Whether one reduction costs less than two and the array between them."""
    moved = [m for m in chain if m.op is not Op.RESHAPE or not _trivial(m)]
    if not moved:
        return _is_product_of_repeated(inner.args[0]) or not _reads_reductions(inner.args[0])
    if inner.args[0].op is Op.MUL and any(m.op is Op.RESHAPE for m in moved):
        return False  # a reshape would hide the axes of a contraction
    before, kept = _elements(inner.args[0].shape), _elements(inner.shape)
    outer = _elements(node.args[0].shape)
    if before is None or kept is None or outer is None or kept == 0:
        return False
    steps = [m.attr.step // math.gcd(m.attr.step, m.attr.dilation)
             for m in moved if m.op is Op.UNWINDOW]
    terms = outer // math.prod(steps) * (before // kept)  # those that are not left out
    if steps and inner.args[0].op is Op.MUL:
        terms = _as_computed(terms, node, inner, moved)
    # what is folded back is gathered, element by element
    most = OVERLAP * before + MATERIALISE * (kept + outer) if steps else (
        before + MATERIALISE * kept)
    if any(_stored(f) is not f for f in inner.args[0].args):
        most *= HALVES
    return bool(terms <= most)


def _as_computed(terms: int, node: Node, inner: Node, moved: list[Node]) -> int:
    """Return how many terms of a merged sum over windows could be computed in the same time."""
    folds = [(m, _followed(m.attr.axis, below), _followed(m.args[0].ndim - 1, below))
             for i, m in enumerate(moved) if m.op is Op.UNWINDOW for below in [moved[i + 1:]]]
    places = [axis for _, axis, tap in folds if axis is not None and tap is not None]
    found = _parts(inner, places[-1]) if len(places) == len(folds) else None
    if found is None or any(_elements(m.shape) is None for m, _, _ in folds):
        return terms
    if any(tap is not None and axis is not None and tap < axis for _, axis, tap in folds):
        return sys.maxsize  # taps come first: the sum is stored as windows are read
    kept, which, first = found
    weight, image = inner.args[0].args[which], inner.args[0].args[1 - which]
    sizes = [int(inner.args[0].shape[a]) for a in kept]
    channels = math.prod([sizes[a] for a in range(first)
                          if not _repeats(weight, kept[a])])
    row = max(a for a in range(len(kept)) if _repeats(weight, kept[a])
              and not _repeats(image, kept[a]))
    width = int(node.shape[-1])
    for m, axis, _ in folds:
        every = m.attr.step // math.gcd(m.attr.step, m.attr.dilation)
        whole = int(m.shape[m.attr.axis])
        if axis == row:
            width //= every
        points = int(m.args[0].shape[m.attr.axis]) * every
        # Taps outside of the picture are skipped, along a row if it is written out.
        if channels >= FEW_CHANNELS and points < whole and (axis != row or width <= WRITTEN):
            terms = terms * points // whole
    if channels < FEW_CHANNELS:
        return terms * NARROW if width < LANES and terms >= SEVERAL else terms
    return terms * (-(-channels // LANES) * LANES) // channels


def _is_product_of_repeated(x: Node) -> bool:
    return x.op is Op.MUL and all(a.op is Op.EXPAND for a in x.args)


def _reads_reductions(x: Node) -> bool:
    """Whether a value is computed from other reductions.

    A reduction of such rows shares a kernel with those, which one of the whole array could not.
    """
    seen: set[Node] = set()
    stack = [x]
    while stack and len(seen) < SEARCH:
        node = stack.pop()
        if node in seen:
            continue
        seen.add(node)
        if node.op in (Op.REDUCE, Op.ARGREDUCE):
            return True
        stack.extend(node.args)
    return False


def _trivial(m: Node) -> bool:
    return movement.only_ones(m.args[0].shape, m.shape)


def _positions_last(node: Node, inner: Node, chain: list[Node]) -> Node | None:
    """sum(unwindow(sum(a * b))), the inner sum stored as windows are read: positions last.

    Taps that lie side by side would be written, and read again, with a stride each.
    """
    at = next((i for i in reversed(range(len(chain))) if chain[i].op is Op.UNWINDOW), None)
    if at is None or inner.args[0].op is not Op.MUL:
        return None
    axis = _followed(chain[at].attr.axis, chain[at + 1:])
    if axis is None or axis + 1 == inner.ndim or any(map(_has_windows, inner.args[0].args)):
        return None  # or a convolution along another axis, which has its own order
    found = _parts(inner, axis)
    if found is None:
        return None
    kept, _, first = found
    order = [*range(first), *range(axis + 1, inner.ndim), *range(first, axis + 1)]
    factors = [movement.permute(f, (*[kept[a] for a in order], *inner.attr.axes))
               for f in inner.args[0].args]
    product = infer.elementwise(Op.MUL, *factors)
    x = infer.reduce(product, "sum", range(len(order), product.ndim))
    x = movement.permute(x, tuple([order.index(a) for a in range(len(order))]))
    for link in reversed(chain):
        x = movement.BUILDERS[link.op](link, x)
    return infer.reduce(x, "sum", node.attr.axes)


def _followed(axis: int, chain: list[Node]) -> int | None:
    """Return which axis of its source is one of a chain of views; None if that is not clear."""
    for link in chain:
        if link.op is Op.PERMUTE:
            axis = link.attr[axis]
        elif link.op is Op.RESHAPE and _trivial(link):
            axis = _same_axis(link, axis)
        elif link.op is not Op.UNWINDOW and link.op is not Op.SLICE:
            return None
    return axis


def _parts(inner: Node, axis: int) -> tuple[list[int], int, int] | None:
    """Return a sum of products by its positions, of which `axis` is the last.

    The kept axes of the product, the number of the factor that is the weight, and the first of the
    positions; None if `axis` is none.
    """
    product = inner.args[0]
    kept = [a for a in range(product.ndim) if a not in inner.attr.axes]
    other = [_repeats(f, kept[axis]) for f in product.args]
    if sum(other) != 1:
        return None
    weight, image = product.args[other.index(True)], product.args[other.index(False)]
    first = axis
    while first and _repeats(weight, kept[first - 1]) and not (
            _repeats(image, kept[first - 1])):
        first -= 1
    return kept, other.index(True), first


def _has_windows(x: Node) -> bool:
    while x.op.group == "movement":
        if x.op is Op.WINDOW or x.op is Op.UNWINDOW:
            return True
        x = x.args[0]
    return False


def _same_axis(link: Node, axis: int) -> int:
    """Return which axis of its operand an axis of a reshape is that leaves out or adds ones."""
    before = sum(not infer.same_dim(d, 1) for d in link.shape[:axis])
    long = [a for a, d in enumerate(link.args[0].shape) if not infer.same_dim(d, 1)]
    return long[before] if before < len(long) else 0


def _lifted(inner: Node, chain: list[Node]) -> Node:
    """Return the operand of a reduction, reduced axes first, moved by a chain on its result."""
    x, axes = inner.args[0], inner.attr.axes
    lead = len(axes)
    order = (*axes, *(a for a in range(x.ndim) if a not in axes))
    x = _apply(x, lambda f: movement.permute(f, order), ())
    for number, link in reversed(list(enumerate(chain))):
        make, masked = _LIFTS[link.op](link, lead)
        x = _apply(x, make, masked, _alone(link, [a - lead for a in masked], chain[:number]))
    return x


def _alone(link: Node, masked: Sequence[int], chain: list[Node]) -> bool:
    """Whether whole sums are filled with zeros, so that none of their terms is there.

    Then all factors are filled: a zero times an infinity would be NaN.
    """
    return link.op is Op.PAD and bool(masked) and all(_stays(a, chain) for a in masked)


def _stays(axis: int, chain: list[Node]) -> bool:
    """Whether an axis is still one of positions alone behind the movements of a chain."""
    for link in reversed(chain):
        if link.op is Op.PERMUTE:
            axis = link.attr.index(axis)
        elif link.op in (Op.WINDOW, Op.UNWINDOW):
            if link.attr.axis == axis:
                return False
        elif link.op is Op.RESHAPE:
            before, after = link.args[0].shape, link.shape
            if before[: axis + 1] != after[: axis + 1]:
                return False
    return True


Move = Callable[[Node], Node]


def _apply(x: Node, move: Move, masked: tuple[int, ...], every: bool = False) -> Node:
    """Move a value; of a product, move the factors, filling with zeros at least one of them.

    `every`: all of them are filled.
    """
    if x.op is not Op.MUL:
        return move(x)
    if every:
        return infer.elementwise(Op.MUL, *[move(f) for f in x.args])
    constant = [bool(masked) and all(_repeats(f, a) for a in masked) for f in x.args]
    if all(constant):
        constant = [False, True]
    sides = [_stretched(f, move(f).shape, masked) if c else move(f)
             for f, c in zip(map(_stored, x.args), constant, strict=True)]
    return infer.elementwise(Op.MUL, *[
        infer.cast(s, f.dtype) for s, f in zip(sides, x.args, strict=True)])


def _stored(factor: Node) -> Node:
    """Return a factor in the narrower type that it is stored in, in which it is moved."""
    chain: list[Node] = []
    x = factor
    while x.op in _LINKS or x.op is Op.EXPAND:
        if not _fills_neutral(x, "sum"):
            return factor
        chain.append(x)
        x = x.args[0]
    if x.op is not Op.CAST or x.args[0].dtype.itemsize >= x.dtype.itemsize:
        return factor
    x = x.args[0]
    for link in reversed(chain):
        x = movement.BUILDERS[link.op](link, x)
    return x


def _repeats(factor: Node, axis: int) -> bool:
    """Whether a factor, or what is cast to it, repeats along an axis."""
    return movement.constant_along(_stored(factor), axis)


def _stretched(x: Node, shape: Shape, axes: tuple[int, ...]) -> Node:
    """Return a value that repeats along `axes` repeated to other sizes there."""
    short = x.args[0]
    return movement.expand(short, shape)


def _lift_reshape(link: Node, lead: int) -> tuple[Move, tuple[int, ...]]:
    return lambda x: movement.reshape(x, x.shape[:lead] + link.shape), ()


def _lift_permute(link: Node, lead: int) -> tuple[Move, tuple[int, ...]]:
    order = (*range(lead), *(a + lead for a in link.attr))
    return lambda x: movement.permute(x, order), ()


def _lift_slice(link: Node, lead: int) -> tuple[Move, tuple[int, ...]]:
    starts, steps = (0,) * lead + link.attr.starts, (1,) * lead + link.attr.steps
    return lambda x: movement.slice_(x, starts, x.shape[:lead] + link.shape, steps), ()


def _lift_pad(link: Node, lead: int) -> tuple[Move, tuple[int, ...]]:
    before = (0,) * lead + link.attr.before
    masked = tuple(a + lead for a, (m, n) in enumerate(zip(link.args[0].shape, link.shape,
                                                           strict=True))
                   if not infer.same_dim(m, n))  # fmt: skip
    return (lambda x: movement.pad(x, before, x.shape[:lead] + link.shape, link.attr.value),
            masked)


def _lift_window(link: Node, lead: int) -> tuple[Move, tuple[int, ...]]:
    attr = link.attr.replace(axis=link.attr.axis + lead)
    return lambda x: movement.window(x, attr, x.shape[:lead] + link.shape), ()


def _lift_unwindow(link: Node, lead: int) -> tuple[Move, tuple[int, ...]]:
    attr: nd.UnwindowAttr = link.attr.replace(axis=link.attr.axis + lead)
    return lambda x: movement.unwindow(x, attr, x.shape[:lead] + link.shape), (attr.axis,)


_LIFTS: Final[dict[Operation, Callable[[Node, int], tuple[Move, tuple[int, ...]]]]] = {
    Op.RESHAPE: _lift_reshape,
    Op.PERMUTE: _lift_permute,
    Op.SLICE: _lift_slice,
    Op.PAD: _lift_pad,
    Op.WINDOW: _lift_window,
    Op.UNWINDOW: _lift_unwindow,
}
"""The same movement behind `lead` further axes, and the axes it fills with zeros."""
