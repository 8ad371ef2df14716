"""All-or-nothing updates of several tensors: an exception restores every value."""

from __future__ import annotations

from collections.abc import Iterator
from types import TracebackType
from typing import Any, Self

from weft.ir.node import Node
from weft.tensors.core.lazy_tensor import TensorCore
from weft.tensors.core.thread_state import state


class all_or_none:
    """A ``with`` block that changes tensors: if it fails, those it added have their old values."""

    def __init__(self) -> None:
        self._saved: list[tuple[TensorCore, Node | None, Any, Any, bool, bool]] = []
        self._tensors: list[TensorCore] = []

    def add(self, *tensors: TensorCore) -> None:
        """Note the values of tensors that are about to be changed."""
        for t in tensors:
            base = t if t._base is None else t._base
            self._saved.append((base, base._node, base._buffer, base._history,
                                base._requires_grad, base._is_leaf))  # fmt: skip
            self._tensors.append(t)

    def __iter__(self) -> Iterator[TensorCore]:
        return iter(self._tensors)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:  # fmt: skip
        if kind is None or state.capture is not None:  # a capture gives everything back itself
            return
        for base, node, buffer, history, requires_grad, is_leaf in reversed(self._saved):
            base._node, base._buffer, base._history = node, buffer, history
            base._requires_grad, base._is_leaf = requires_grad, is_leaf
            base._version += 1
