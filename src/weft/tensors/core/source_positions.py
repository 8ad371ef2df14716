"""User source positions of nodes that can fail at run time."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import Final

from weft import driver
from weft.config import config, watchers
from weft.errors import user_location
from weft.ir import node as nd
from weft.ir.node import Node
from weft.ir.stmt import Location

_RANDOM: Final = os.path.join(os.path.dirname(os.path.dirname(__file__)), "api", "random.py")
# Where graphs are compiled.
_REALIZES: Final = frozenset(
    f.__code__.co_filename for f in (driver.realize, driver.Compiled.__init__))
_blocks: Final[set[object]] = set()  # those of `noted_lines` that are open
_DEPTH: Final = 60  # frames between a new node and the function that made the plan


def stamp(node: Node) -> Node:
    """Note the user's line for a node whose data may be out of range when it runs."""
    if node not in nd.locations:
        place = user_location()
        if place is not None:
            nd.locations[node] = Location(*place)
    return node


def _note(node: Node) -> None:
    """Remember which line of the user's made a node, so that ``WEFT_CHECK=1`` can name it.

    What a plan is made of while a value is computed stands for no line of its own.
    """
    files, frame = set(), sys._getframe(1)
    for _ in range(_DEPTH):
        files.add(frame.f_code.co_filename)
        if frame.f_back is None:
            break
        frame = frame.f_back
    place = user_location() if _REALIZES.isdisjoint(files) else None
    if place is not None:
        kind = nd.RandomPlace if _RANDOM in files else Location
        nd.locations.setdefault(node, kind(*place))


def _decide(node: Node) -> None:
    """Look at the settings when the first node is made: not before, since nobody asked for them."""
    nd.watcher = _note if _blocks or config().check else None
    if nd.watcher is not None:
        nd.watcher(node)


def _follow_settings() -> None:
    nd.watcher = _decide


@contextlib.contextmanager
def noted_lines() -> Iterator[None]:
    """Remember the user's line of every node that is made inside the block (`nd.locations`).

    Blocks may lie in each other, and overlap on several threads.
    """
    block = object()
    _blocks.add(block)
    nd.watcher = _note
    try:
        yield
    finally:
        _blocks.discard(block)
        _follow_settings()


watchers.append(_follow_settings)
_follow_settings()
