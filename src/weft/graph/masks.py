"""Gradients of ``max(x, k)`` that take their mask from the result, so that ``x`` need not be kept.

The gradient passes where ``x > k``, and there alone the result is above ``k``. Where `x` is a sum
that nothing else reads, only the result has to be stored until the gradient is computed: half the
memory, and half of what the sum's kernel writes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

from weft.graph.movement import constant
from weft.ir import node as nd
from weft.ir.node import Node
from weft.ir.op import Op

_MOVES: Final = frozenset({Op.RESHAPE, Op.PERMUTE})


def mask_by_results(outputs: Sequence[Node]) -> list[Node]:
    """Return nodes of equal values that ask results instead of what they were computed from.

        c = x <= k; y = where(c, k, x); where(c, 0, g)  ->  ...; where(y <= k, 0, g)

    Not a number is not less than any, in `x` as in `y`.
    """
    order = nd.toposort(outputs)
    found = {node.args[0]: node for node in order if _is_limited(node)}
    if not found:
        return list(outputs)
    uses = Counter(a for node in order for a in node.args)
    uses.update(outputs)
    found = {c: y for c, y in found.items()
             if uses[c] > 1 and uses[y.args[2]] == 2 and _is_sum(y.args[2], uses)}
    return _replaced(order, outputs, found) if found else list(outputs)


def _is_limited(node: Node) -> bool:
    """Whether a node is ``where(x <= k, k, x)``."""
    if node.op is not Op.WHERE:
        return False
    condition, least, x = node.args
    if condition.op is not Op.LE or condition.args[0] is not x:
        return False
    k, other = constant(condition.args[1]), constant(least)
    return k is not None and other is not None and bool(k.attr == other.attr)


def _is_sum(node: Node, uses: Mapping[Node, int]) -> bool:
    """Whether a value is computed, element by element, from a sum that nothing else reads."""
    stack, shape = [node], node.shape
    while stack:
        top = stack.pop()
        if top.op is Op.REDUCE and nd.size(top.shape) == nd.size(shape):
            return True
        if top.op.is_elementwise or top.op in _MOVES:
            stack.extend([a for a in top.args if uses[a] == 1])
    return False


def _replaced(order: Sequence[Node], outputs: Sequence[Node],
              found: Mapping[Node, Node]) -> list[Node]:  # fmt: skip
    """Return the outputs with each mask of `found` read from its result by all but that result."""
    done: dict[Node, Node] = {}
    masks: dict[Node, Node] = {}
    for node in order:
        if node.args and found.get(node.args[0]) is node:
            done[node] = nd.with_args(node, tuple([done[a] for a in node.args]))
            continue
        made = done[node] = nd.with_args(node, tuple([masks.get(a, done[a]) for a in node.args]))
        if node in found:
            _, least, x = found[node].args
            limited = nd.with_args(found[node], (made, least, done[x]))
            masks[node] = nd.with_args(made, (limited, made.args[1]))
    return [masks.get(o, done[o]) for o in outputs]
