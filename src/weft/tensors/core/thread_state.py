"""Thread-local state: gradient mode and the active capture."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from weft.ir.node import Node

__all__ = ["Capture", "Counted", "later", "outside_capture", "state"]


class Capture(Protocol):
    """What a running `weft.jit` capture is told; `weft.capture.jit` implements it."""

    def created(self, tensor: Any) -> None:
        """Note a new tensor."""
        ...

    def owns(self, tensor: Any) -> bool:
        """Whether a tensor was made in the capture."""
        ...

    def read(self, tensor: Any) -> Node:
        """Return the node of a base's value."""
        ...

    def changing(self, tensor: Any) -> None:
        """Note that a tensor is about to get another value, or to be learned or not."""
        ...

    def may_share(self, base: Any, made: Any, size: Any) -> None:
        """Note that a symbolic size decides if a view of a base became a view or a copy."""
        ...

    def doubt(self, base: Any) -> Any:
        """Return a size that decides if a base is one, and no view; None if it is for all sizes."""
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

    def depends(self, owner: Any, name: str, value: object) -> None:
        """Note that an attribute of an object is looked at, which may change between calls."""
        ...

    def sets(self, owner: Any) -> None:
        """Note that this attribute is set."""
        ...

    def draw(self, generator: Any, blocks: Any) -> tuple[Node, Any]:
        """Return the node of a random stream's state, and how many blocks were taken before."""
        ...

    def refuse(self, operation: str) -> None:
        """Raise: a value was asked for."""
        ...


class Counted(Protocol):
    """What finds results whose size is data; `weft.capture.dynamic_results` implements it."""

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


@contextmanager
def outside_capture() -> Iterator[None]:
    """Make tensors in a block that outlive the capture which it may be in."""
    capture = state.capture
    state.capture = None
    try:
        yield
    finally:
        state.capture = capture


later = _Later()
