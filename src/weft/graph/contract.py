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
from collections.abc import Callable, Container
from typing import Final

from weft.graph import movement
from weft.ir import infer
from weft.ir import node as nd
from weft.ir.expr import Expr
from weft.ir.node import Node, Shape
from weft.ir.op import Op, Operation

MATERIALISE: Final = 16  # what an element written to memory and read again costs, in terms
OVERLAP: Final = 1.6  # more terms that a dense convolution may have than its windows side by side
SEARCH: Final = 100  # nodes looked at below a reduction
TERMS: Final = 32  # of a sum that is split into contractions
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
        return None
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
    for link in reversed(chain):
        make, masked = _LIFTS[link.op](link, 0)
        if masked and not any(movement.constant_along(f, a) for f in product.args for a in masked):
            return None
        product = _apply(product, make, masked)
    return infer.reduce(product, "sum", node.attr.axes)


def split_sum(node: Node) -> Node | None:
    """sum(a * b + c) -> sum(a * b) + sum(c), where the first is a contraction.

    Operands that several matmuls share get such sums as gradients.
    """
    axes, total = node.attr.axes, node.args[0]
    if node.attr.kind != "sum" or total.op is not Op.ADD or not node.dtype.is_float:
        return None
    terms: list[Node] = []
    stack = [total]
    while stack and len(terms) + len(stack) <= TERMS:
        term = stack.pop()
        if term.op is Op.ADD:
            stack.extend(reversed(term.args))
        else:
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
    # what is folded back is gathered, element by element
    most = OVERLAP * before + MATERIALISE * (kept + outer) if steps else (
        before + MATERIALISE * kept)
    return bool(terms <= most)


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


def _lifted(inner: Node, chain: list[Node]) -> Node:
    """Return the operand of a reduction, reduced axes first, moved by a chain on its result."""
    x, axes = inner.args[0], inner.attr.axes
    lead = len(axes)
    order = (*axes, *(a for a in range(x.ndim) if a not in axes))
    x = _apply(x, lambda f: movement.permute(f, order), ())
    for link in reversed(chain):
        make, masked = _LIFTS[link.op](link, lead)
        x = _apply(x, make, masked)
    return x


Move = Callable[[Node], Node]


def _apply(x: Node, move: Move, masked: tuple[int, ...]) -> Node:
    """Move a value; of a product, move the factors, filling with zeros at least one of them."""
    if x.op is not Op.MUL:
        return move(x)
    left, right = x.args
    constant = [bool(masked) and all(movement.constant_along(f, a) for a in masked)
                for f in (left, right)]
    if all(constant):
        constant = [False, True]
    sides = [_stretched(f, move(f).shape, masked) if c else move(f)
             for f, c in zip((left, right), constant, strict=True)]
    return infer.elementwise(Op.MUL, *sides)


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
