"""What a thread is doing: whether it records gradients, and which capture it is in."""

import threading
from typing import Any, Protocol

from weft.ir.node import Node

__all__ = ["Capture", "state"]


class Capture(Protocol):
    """What a running `weft.jit` capture is told; `weft.frontend.jit` implements it."""

    def read(self, tensor: Any, node: Node) -> Node:
        """Return the node to use for a tensor whose value is used."""
        ...

    def created(self, tensor: Any) -> None:
        """Note a new tensor."""
        ...

    def changing(self, tensor: Any) -> None:
        """Note that a tensor is about to get another value."""
        ...

    def grad_read(self, tensor: Any) -> None:
        """Note that a tensor's gradient is looked at."""
        ...

    def grad_written(self, tensor: Any) -> None:
        """Note that a tensor's gradient is about to be replaced."""
        ...

    def counter(self, generator: Any) -> Node:
        """Return the node of a random generator's state."""
        ...

    def counter_start(self, generator: Any) -> int:
        """Return the generator's count when the capture began."""
        ...

    def refuse(self, operation: str) -> None:
        """Raise: a value was asked for."""
        ...


class _State(threading.local):
    grad: bool = True
    capture: Capture | None = None


state = _State()
