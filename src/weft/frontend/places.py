"""The places in a user's source that errors at run time point at."""

from __future__ import annotations

from weft.errors import user_location
from weft.ir import node as nd
from weft.ir.node import Node
from weft.ir.stmt import Location


def stamp(node: Node) -> Node:
    """Note the user's line for a node whose data may be out of range when it runs."""
    if node not in nd.locations:
        place = user_location()
        if place is not None:
            nd.locations[node] = Location(*place)
    return node
