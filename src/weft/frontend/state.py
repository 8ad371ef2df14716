"""What a thread is doing: whether it records gradients, and which capture it is in."""

import threading
from typing import Any, Protocol

from weft.ir.node import Node

__all__ = ["Capture", "Counted", "later", "state"]


class Capture(Protocol):
    """What a running `weft.jit` capture is told; `weft.frontend.jit` implements it."""

    def created(self, tensor: Any) -> None:
        """Note a new tensor."""
        ...

    def read(self, tensor: Any) -> Node:
        """Return the node of a base's value."""
        ...

    def changing(self, tensor: Any) -> None:
        """Note that a tensor is about to get another value, or to be learned or not."""
        ...

    def keep(self, tensor: Any, node: Node) -> bool:
        """Keep a tensor's new value; False if the tensor belongs to the capture and keeps it."""
        ...

    def gradient(self, tensor: Any) -> Any:
        """Return a tensor's gradient."""
        ...

    def keep_gradient(self, tensor: Any, value: Any) -> bool:
        """Keep a tensor's new gradient; False if the tensor belongs to the capture."""
        ...

    def mode(self, module: Any, training: bool) -> None:
        """Note that a module's mode is looked at."""
        ...

    def set_mode(self, module: Any) -> None:
        """Note that a module's mode is set."""
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


class Counted(Protocol):
    """What finds results whose size is data; `weft.frontend.counted` implements it."""

    def distinct(self, x: Any, inverse: bool, counts: bool) -> list[Any]:
        """Return the distinct values of a tensor, and what else is asked for."""
        ...

    def true_places(self, mask: Any, apart: bool) -> list[Any]:
        """Return the places of true elements, by axis or a row each."""
        ...

    def chosen(self, x: Any, mask: Any) -> Any:
        """Return the elements where a mask of the same shape is true."""
        ...


class _Later:
    """What methods of tensors need that is itself made of tensors: put here when it is there."""

    counted: Counted


class _State(threading.local):
    grad: bool = True
    capture: Capture | None = None


state = _State()
later = _Later()
