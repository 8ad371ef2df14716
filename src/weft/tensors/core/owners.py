"""Which tensor a leaf of the graph belongs to: for its gradient, its hooks, and shared memory."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any, Final

from weft.exchange import host
from weft.ir import node as nd
from weft.ir.node import Node, Storage
from weft.tensors.core import views
from weft.weak import WeakTable

__all__ = ["adopt", "hooks_of_leaves", "hooks_of_nodes", "leaves", "note_leaf", "of_storage",
           "renew", "show_memory", "showing"]  # fmt: skip

# Nodes that stand for a tensor whose gradient may be asked for, with that tensor.
leaves: Final[WeakTable[Node, weakref.ref[Any]]] = WeakTable()

# What backward calls with the gradient of a leaf, or of a node: also of a leaf that is gone.
hooks_of_leaves: Final[WeakTable[Any, dict[int, Callable[[Node], Node]]]] = WeakTable()
hooks_of_nodes: Final[WeakTable[Node, dict[int, Callable[[Node], Node]]]] = WeakTable()
_any_hooks: Final = hooks_of_leaves.entries

# Storages over memory that somebody else owns, with the tensors that show it.
showing: Final[WeakTable[Storage, weakref.ref[Any]]] = WeakTable()


def note_leaf(tensor: Any, node: Node) -> Node:
    """Note the value of a leaf that requires a gradient, and return the node it is known by."""
    node = nd.flat_leaf(node)
    leaves[node] = weakref.ref(tensor)
    if _any_hooks:
        hooks = hooks_of_leaves.get(tensor)
        if hooks is not None:
            hooks_of_nodes[node] = hooks
    return node


def adopt(tensor: Any, storage: Storage) -> None:
    """Note that a tensor's writes must reach memory that somebody else owns."""
    tensor._shared = storage
    showing[storage] = weakref.ref(tensor)


def of_storage(storage: Storage) -> Any:
    """Return the tensor that shows a storage, or that lies in it as a leaf; None without any."""
    ref = showing.get(storage) or leaves.get(nd.buffer(storage))
    return None if ref is None else ref()


def renew(tensor: Any, old: Storage) -> None:
    """Let a tensor that shows memory of others by the storage `old` do so by a new one."""
    shows = tensor._node is not None and host.leaf_storage(tensor._node) is old
    if tensor._shared is old or (shows and tensor._shared is not None):
        adopt(tensor, Storage(old.dtype, old.size, old.buffer, old.device, old.origin,
                              shared=True))  # fmt: skip
        if shows:
            show_memory(tensor)


def show_memory(tensor: Any) -> None:
    """Let what lies in memory of others be the value of the tensor that shows it."""
    storage = tensor._shared
    tensor._node, tensor._buffer = host.leaf(storage, tensor.shape), storage.buffer
    tensor._version += views.REALIZED
    if tensor._requires_grad and tensor._is_leaf:
        note_leaf(tensor, tensor._node)
