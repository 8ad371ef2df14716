"""Weft's tensors as arguments of kernels: memory to read, and memory to write to.

A tensor's value is immutable and others may still have to read it, so a kernel writes over the
memory of a tensor only where nobody else knows the value; else it gets memory of its own, with the
same elements. Either way the tensor, and all its views, have the new value after the launch.
"""

from __future__ import annotations

import sys
from typing import Any, Final

from weft.errors import CaptureError, GradientError, LaunchError
from weft.exchange import host
from weft.frontend.core import TensorCore, flush_readers
from weft.frontend.state import state
from weft.ir import node as nd
from weft.ir.node import Storage

__all__ = ["Written", "readable"]

_OWN_REFERENCES: Final = 3  # to a buffer: its tensor's, and two of the look


def readable(tensor: TensorCore) -> Any:
    """Return a buffer with the value of a tensor, contiguous in row-major order."""
    if state.capture is not None:
        raise CaptureError("launch of a kernel", found="a tensor of a captured function",
                           expected="a launch outside of weft.jit")
    return tensor._storage().buffer


class Written:
    """A tensor that a launch writes to.

    Attributes
    ----------
    buffer : Buffer
        What the launch writes to. It holds the value of the tensor.
    """

    def __init__(self, tensor: TensorCore, what: str) -> None:
        readable(tensor)
        own = _is_its_own(tensor)
        old = readable(tensor)
        if tensor._requires_grad and state.grad:
            raise GradientError(what, found="a tensor that requires a gradient",
                                expected="one that does not: a kernel has no gradient",
                                hint="launch it inside weft.no_grad()")
        self._tensor = tensor
        shared = tensor._shared
        if tensor._base is None and shared is not None:
            if old.readonly:
                raise LaunchError(what, found="memory that is read-only")
            flush_readers(shared, tensor)
        elif not own:
            old = host.head(old, tensor.numel() * tensor.dtype.itemsize)
        self.buffer = old
        if tensor._base is None and shared is None:
            self._take(old)

    def _take(self, buffer: Any) -> None:
        """Make the tensor's value what lies in a buffer that nobody else knows."""
        tensor = self._tensor
        if tensor._requires_grad:
            tensor._assign(self._leaf())
            return
        tensor._node, tensor._buffer, tensor._history = None, buffer, None
        tensor._version += 1

    def _leaf(self) -> Any:
        tensor = self._tensor
        return host.leaf(Storage(tensor.dtype, nd.size(tensor.shape), self.buffer), tensor.shape)

    def finish(self) -> None:
        """Tell the tensor that its memory was written."""
        tensor = self._tensor
        self.buffer.version += 1
        if tensor._base is not None:
            tensor._write(self._leaf())
        elif tensor._shared is not None:
            tensor._node, tensor._buffer = host.leaf(tensor._shared, tensor.shape), self.buffer
            tensor._version += 1


def _is_its_own(tensor: TensorCore) -> bool:
    """Whether no graph and no array knows the value, so that its memory may be written over."""
    buffer = tensor._buffer
    return (tensor._base is None and tensor._node is None and buffer is not None
            and tensor._history is None and not buffer.readonly
            and sys.getrefcount(buffer) <= _OWN_REFERENCES)
