"""Weft's tensors as arguments of kernels: memory to read, and memory to write to.

A tensor's value is immutable and others may still have to read it, so a kernel writes over the
memory of a tensor only where nobody else knows the value; else it gets memory of its own, with the
same elements. Either way the tensor, and all its views, have the new value after the launch.
"""

from __future__ import annotations

import sys
from collections.abc import Container, Sequence
from typing import Any, Final, cast

from weft.errors import CaptureError, GradientError, LaunchError
from weft.exchange import host
from weft.frontend.core import TensorCore, flush_readers
from weft.frontend.state import state
from weft.frontend.views import Layout, row_major
from weft.ir import node as nd
from weft.ir.node import Storage

__all__ = ["Written", "readable", "together"]

Member = tuple[int, Layout, TensorCore]  # place of an argument, where it lies, what it is

_OWN_REFERENCES: Final = 3  # to a buffer: its tensor's, and two of the look


def readable(tensor: TensorCore) -> Any:
    """Return a buffer with the value of a tensor, contiguous in row-major order."""
    if state.capture is not None:
        raise CaptureError("launch of a kernel", found="a tensor of a captured function",
                           expected="a launch outside of weft.jit")
    return tensor._storage().buffer


def together(tensors: Sequence[tuple[str, int, TensorCore]], written: Container[str],
             strided: bool, kernel: str) -> list[tuple[list[Member], Written]]:  # fmt: skip
    """Return which arguments have to lie in one memory, because a write to one changes others.

    Each with its place and its layout in the memory, of which the launch writes to the base.
    Without `strided` only those are joined that lie in it without gaps.
    """
    groups: dict[int, list[tuple[str, int, TensorCore]]] = {}
    for entry in tensors:
        groups.setdefault(id(_base(entry[2])), []).append(entry)
    found = []
    for group in groups.values():
        if len(group) < 2 or not any(name in written for name, _, _ in group):
            continue
        members: list[tuple[bool, Member]] = []
        left: dict[Layout, list[tuple[str, Member]]] = {}
        for name, index, tensor in group:
            layout: Layout | None = cast(Any, tensor)._layout()
            if layout is not None and _fits(layout, strided, name in written):
                members.append((name in written, (index, layout, tensor)))
            elif layout is not None:
                copied = index, layout.replace(offset=0), tensor
                left.setdefault(layout, []).append((name, copied))
        for same in left.values():  # one view, given several times, is one copy
            changed = [(name, m) for name, m in same if name in written]
            if len(same) > 1 and changed:
                name, (_, _, tensor) = changed[0]
                found.append(([m for _, m in same],
                              Written(tensor, f"argument {name} of {kernel}")))
        ends = [_ends(layout) for _, (_, layout, _) in members]
        meet = [k for k, (a, b) in enumerate(ends) if any(
            a < d and c < b and (members[k][0] or members[m][0])
            for m, (c, d) in enumerate(ends) if m != k)]
        if meet:
            name = next(n for n, _, _ in group if n in written)
            found.append(([members[k][1] for k in meet],
                          Written(_base(group[0][2]), f"argument {name} of {kernel}")))
    return found


def _base(tensor: TensorCore) -> TensorCore:
    return tensor if tensor._base is None else tensor._base


def _fits(layout: Layout, strided: bool, written: bool) -> bool:
    if written and any(s == 0 and n > 1 for n, s in zip(layout.shape, layout.strides, strict=True)):
        return False  # which is an error of its own
    whole = row_major(layout.shape)
    return strided or whole is None or all(
        n < 2 or a == b for n, a, b in zip(layout.shape, layout.strides, whole.strides,
                                           strict=True))


def _ends(layout: Layout) -> tuple[int, int]:
    """Return between which elements of the memory those of a layout lie."""
    if 0 in layout.shape:
        return 0, 0
    steps = [(n - 1) * s for n, s in zip(layout.shape, layout.strides, strict=True)]
    return (layout.offset + sum(s for s in steps if s < 0),
            layout.offset + sum(s for s in steps if s > 0) + 1)


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
