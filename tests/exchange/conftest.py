"""The front end is tested on the graph oracle: what it builds, apart from how that is compiled."""

from oracle import compiled, oracle

__all__ = ["compiled", "oracle"]
