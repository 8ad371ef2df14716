"""Deferred computation: nodes and buffers with known graphs, and how they are realized.

All hidden state of realizing stands here:

* A parameter has a storage of its own from the start, so that its gradient is only its own; until
  somebody looks, the storage has no memory but a *definition*: the node with its value.
* A realize computes what is asked for and, in the same plan, what its thread has left waiting: the
  parameters it defined, the state its layers updated, the losses it called ``backward`` on. Nobody
  has to ask for these, and their failures are theirs: when the joint plan fails, what was asked for
  is computed alone, and the rest keeps its definitions until it is asked for.
* Values are immutable and definitions pure, so threads need no lock: a graph that reads a storage
  without memory gets the definition in its place. Two threads may compute one value; the first
  one's memory is kept.
* What graphs read that was realized stays in memory for them, whatever becomes of its tensor.
* What a tensor holds and was computed on the way to other values, again and again, is kept when it
  is computed once more: loops that look at a sum of their state each turn compile a few plans, not
  one a turn, and compute a turn once. `_again` says when.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from typing import Any, Final, cast

from weft import driver
from weft.exchange import host
from weft.ir import infer
from weft.ir import node as nd
from weft.ir.node import Node, Storage
from weft.ir.op import Op
from weft.locks import mutex
from weft.tensors.core.thread_state import state
from weft.weak import WeakTable

__all__ = ["compute", "compute_alone", "define", "flush", "note_losses", "note_realized",
           "note_state", "take_losses", "take_state"]  # fmt: skip

_definitions: Final[WeakTable[Storage, Node]] = WeakTable()
_NEVER: Final = -(1 << 30)
_MOST_HELD: Final = 8  # times that a value is computed without being kept while a tensor holds it
_filling: Final = mutex()
_realized: Final[WeakTable[Node, Callable[[], Node | None]]] = WeakTable()
_any_defined, _any_realized = _definitions.entries, _realized.entries


class _Waiting(threading.local):
    """What this thread will compute with its next realize."""

    def __init__(self) -> None:
        self.storages: list[weakref.ref[Storage]] = []
        self.losses: list[weakref.ref[Any]] = []
        self.state: list[weakref.ref[Any]] = []


_waiting: Final = _Waiting()


def define(storage: Storage, node: Node) -> None:
    """Give a storage without memory its value, to be computed with the next realize."""
    _definitions[storage] = node
    _waiting.storages.append(weakref.ref(storage))


def note_realized(node: Node, leaf: Node) -> None:
    """Note the leaf with a node's value, for graphs that still refer to the node.

    They keep its memory, not the leaf itself, which may know the node as its origin; memory that
    is shared with NumPy only as long as the leaf is there.
    """
    storage = cast(Storage, host.leaf_storage(leaf))
    if storage.shared:
        _realized[node] = weakref.ref(leaf)
        return
    if storage.origin is not None:
        kept = host.leaf(storage.constant(), cast("tuple[int, ...]", leaf.shape))
        nd.base(kept).computed = nd.base(leaf).computed
        leaf = kept
    _realized[node] = lambda: leaf


def note_losses(outputs: Iterable[Any]) -> None:
    """Remember what `backward` was called on, for `take_losses`."""
    _waiting.losses[:] = [r for r in _waiting.losses if r() is not None]
    _waiting.losses.extend(weakref.ref(t) for t in outputs)


def take_losses() -> list[Any]:
    """Return what `backward` was called on and nobody has looked at: it shares the step's work."""
    return _taken(_waiting.losses)


def note_state(*tensors: Any) -> None:
    """Let the next realize compute tensors that were written.

    Nobody asks for running statistics, nor perhaps for a tensor whose views are read: what they
    were computed from would stay alive.
    """
    if state.capture is None:
        _waiting.state.extend(weakref.ref(t) for t in tensors)


def take_state() -> list[Any]:
    """Return what `note_state` has noted."""
    return _taken(_waiting.state)


def _taken(noted: list[weakref.ref[Any]]) -> list[Any]:
    found = {id(t): t for t in (r() for r in noted) if t is not None}
    noted.clear()
    return list(found.values())


def compute_alone(node: Node) -> Any:
    """Return the memory of a value that needs nothing else to be computed, the short way.

    None where that does not do: something is waiting, or the graph is large or new.
    """
    if _waiting.storages or _waiting.state or _any_defined:
        return None
    return driver.compute(node, _leaf_of if _any_realized else None)


def flush() -> None:
    """Compute the parameters that this thread has defined or updated, at once.

    Those that cannot be computed say so when they are asked for.
    """
    if _waiting.storages:
        compute((), (), ())


def compute(asked: Sequence[Node], storages: Sequence[Storage], more: Sequence[Node]
            ) -> tuple[list[Node], list[Node] | None]:  # fmt: skip
    """Return leaves with the values of `asked`, and give `storages` their memory.

    `more` is computed as well if that succeeds: it is None in the result otherwise.
    """
    noted = [s for s in (r() for r in _waiting.storages) if s is not None and s.buffer is None]
    _waiting.storages.clear()
    if noted or more:
        try:
            found = _run([*asked, *more], [*storages, *noted])
            return found[: len(asked)], found[len(asked):]
        except Exception:  # not of what was asked for, perhaps; if it is, it comes again
            if not more and all(s in storages for s in noted):
                raise
    if not asked and not storages:
        return [], None
    return _run(asked, storages), None


def _run(asked: Sequence[Node], storages: Sequence[Storage]) -> list[Node]:
    wanted, needed = _defined([*asked, *map(nd.buffer, storages)])
    roots = [*needed.values(), *wanted[: len(asked)]]
    was: dict[Node, Node] = {}
    if _any_realized:  # what is asked for is computed; what it is made of may be there already
        whole = set(roots)
        roots = _substitute(roots, lambda n: None if n in whole else _leaf_of(n), was)
    kept: list[tuple[Any, Node]] = []
    results = driver.realize(roots, also=lambda nodes: _again(nodes, set(roots), was, kept))
    for (tensor, node), result in zip(kept, results[len(roots):], strict=True):
        nd.base(result).computed = driver.MOST_COMPUTED + 1
        tensor._install_leaf(node, result)
    del results[len(roots):]
    for storage, result in zip(needed, results, strict=False):
        made = host.leaf_storage(result)
        if made is not None:
            with _filling:
                if storage.buffer is None:
                    storage.buffer = made.buffer
            _definitions.pop(storage, None)
    return results[len(needed):]


def _again(nodes: Sequence[Node], roots: Container[Node], was: Mapping[Node, Node],
           kept: list[tuple[Any, Node]]) -> list[Node]:  # fmt: skip
    """Count what is computed, and return what is to be kept because it would be computed again.

    These are the values that tensors hold among those computed from one that was computed before,
    more than `MOST_COMPUTED` times, and that its tensor has let go, or from one that was kept for
    this reason. (Once is no reason: a loss is looked at, and then its gradients are computed from
    the same values, of which only those should take memory that a kernel reads.) Values that are
    still held are computed `_MOST_HELD` times, so that few sums depend on what was looked at.

    Parameters
    ----------
    nodes
        All that will be computed, operands first.
    was
        The nodes that tensors know, where others stand for them in `nodes`.
    kept
        The tensors and the nodes that they know are added to it.
    """
    known = [was.get(n, n) for n in nodes] if was else nodes
    often: dict[Node, Node] = {}  # in order, so that equal loops have equal plans
    on_the_way = []
    for node, theirs in zip(nodes, known, strict=True):
        if (theirs.computed > driver.MOST_COMPUTED and _is_repeated(theirs)) or (
                often and any(a in often for a in node.args)):
            often[node] = theirs
        if theirs.holder is not None and node not in roots:
            on_the_way.append(theirs)
    driver.count_computed(on_the_way)
    found = []
    for node, theirs in often.items():
        tensor = _holder(theirs)
        if node.args and node not in roots and tensor is not None and (
                tensor._base is None and tensor._shared is None):
            kept.append((tensor, theirs))
            found.append(node)
    if not found:
        for node, theirs in often.items():  # nobody holds them: no more looks at these
            if node.args:
                theirs.computed = _NEVER
    return found


def _holder(node: Node) -> Any:
    """Return the tensor that has the node for its value now."""
    tensor = None if node.holder is None else node.holder()
    return tensor if tensor is not None and tensor._node is node else None


def _is_repeated(node: Node) -> bool:
    """Return whether a value that was computed several times is a reason to keep others."""
    return not node.args or node.computed > _MOST_HELD or _holder(node) is None


def _leaf_of(node: Node) -> Node | None:
    ref = _realized.get(node)
    leaf = None if ref is None else ref()
    if leaf is not None and not node.device and leaf.device != driver.default_device():
        return None  # constants are computed where they are needed
    return leaf


def _definition(node: Node) -> Node | None:
    """Return what a leaf without memory stands for; None for other nodes."""
    if node.op is not Op.BUFFER:
        return None
    found = _definitions.get(node.attr)  # before the look at the memory, which comes first
    return found if node.attr.buffer is None else None


def _defined(roots: Sequence[Node]) -> tuple[list[Node], dict[Storage, Node]]:
    """Return `roots` without leaves that have no memory, and the definition of each such leaf.

    Definitions come in the order in which they depend on each other; they too read only memory
    that is there.
    """
    needed: dict[Storage, Node] = {}
    if not _any_defined:
        return list(roots), needed
    new: dict[Node, Node | None] = {}
    stack: list[tuple[Node, Node | None, bool]] = [(r, None, False) for r in reversed(roots)]
    while stack:
        node, definition, ready = stack.pop()
        if ready:
            if definition is not None:
                value = cast(Node, new[definition])
                needed[node.attr] = value
                new[node] = infer.reshape(value, node.shape)
            else:
                new[node] = _rebuilt(node, new)
        elif node not in new:
            definition = _definition(node)
            new[node] = None
            below = node.args if definition is None else (definition,)
            stack.append((node, definition, True))
            stack.extend((a, None, False) for a in below if a not in new)
    return [cast(Node, new[r]) for r in roots], needed


def _rebuilt(node: Node, new: dict[Node, Node | None]) -> Node:
    return nd.with_args(node, tuple([cast(Node, new[a]) for a in node.args]))


def _substitute(roots: Sequence[Node], known: Callable[[Node], Node | None],
                was: dict[Node, Node]) -> list[Node]:  # fmt: skip
    """Return `roots` with every node that `known` answers for replaced, outermost first.

    Values of constants alone are computed again for work on other devices than they are. What
    stands for a node because its operands were replaced is noted in `was`.
    """
    order: list[Node] = []
    new: dict[Node, Node | None] = {}
    stack: list[tuple[Node, bool]] = [(r, False) for r in reversed(roots)]
    changed = constants = False
    while stack:
        node, ready = stack.pop()
        if ready:
            order.append(node)
            continue
        if node in new:
            continue
        found = known(node)
        new[node] = found
        if found is not None:
            changed = True
            constants = constants or not node.device
            continue
        if node.args:
            stack.append((node, True))
            stack.extend((a, False) for a in node.args if a not in new)
        else:
            new[node] = node
    if not changed:
        return list(roots)
    if constants and any(n.op is Op.COPY or n.device not in ("", driver.default_device())
                         for n in order):  # fmt: skip
        return _substitute(roots, lambda n: known(n) if n.device else None, was)
    for node in order:
        made = new[node] = _rebuilt(node, new)
        if made is not node:
            was[made] = node
    return [cast(Node, new[r]) for r in roots]
