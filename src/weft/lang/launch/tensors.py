"""Weft's tensors as arguments of kernels: memory to read, and memory to write to.

A tensor's value is immutable and others may still have to read it, so a kernel writes over the
memory of a tensor only where nobody else knows the value; else it gets memory of its own, with the
same elements. Either way the tensor, and all its views, have the new value after the launch.
"""

from __future__ import annotations

import sys
from collections.abc import Container, Sequence
from typing import Any, Final, cast

import numpy as np

from weft.errors import CaptureError, GradientError, LaunchError
from weft.exchange import host
from weft.ir import node as nd
from weft.ir.node import Storage
from weft.lang.launch.signature import told
from weft.runtimes.base import View
from weft.tensors.core.layouts import Layout, row_major
from weft.tensors.core.lazy_tensor import TensorCore
from weft.tensors.core.owners import show_memory
from weft.tensors.core.tensor_value import flush_readers, realize_all
from weft.tensors.core.thread_state import state

__all__ = ["Distant", "Written", "readable", "together"]

Member = tuple[int, Layout, TensorCore]  # place of an argument, where it lies, what it is

_WORK: Final = 10_000  # of a search for an element that two views have in common
_SOMEWHERE: Final = 1 << 32  # an address that is only compared
_ADDRESS_BITS: Final = 48  # of addresses that a process may have
_OWN_REFERENCES: Final = 3  # to a buffer: its tensor's, and two of the look


def readable(tensor: TensorCore) -> Any:
    """Return a buffer with the value of a tensor, contiguous in row-major order."""
    if state.capture is not None:
        raise CaptureError("launch of a kernel", found="a tensor of a captured function",
                           expected="a launch outside of weft.jit")
    if tensor._base is None and tensor._shared is None:
        realize_all((tensor,))
        buffer = tensor._buffer
        if buffer is not None:  # makes no node, with which the value would be known to a graph
            return buffer
    return tensor._storage().buffer


def together(tensors: Sequence[tuple[str, int, TensorCore]], written: Container[str],
             strided: bool, kernel: str) -> list[tuple[list[Member], Written | Seen]]:  # fmt: skip
    """Return which arguments have to lie in one memory, because a write to one changes others.

    Each with its place and its layout in the memory, of which the launch writes to the base.
    Without `strided` only those are joined that lie in it without gaps. Views of memory that has
    another owner lie in that, for the launch may be given it by another name as well.

    Raises
    ------
    LaunchError
        If views cannot be joined that overlap, and one of which is written to.
    """
    groups: dict[int, list[tuple[str, int, TensorCore]]] = {}
    for entry in tensors:
        groups.setdefault(id(_base(entry[2])), []).append(entry)
    found: list[tuple[list[Member], Written | Seen]] = []
    for group in groups.values():
        base = _base(group[0][2])
        owned = base._shared is not None and any(t is not base for _, _, t in group)
        if not owned and (len(group) < 2 or not any(name in written for name, _, _ in group)):
            continue
        apart: list[tuple[str, Layout | None]] = []  # what gets memory of its own
        members: list[tuple[bool, Member]] = []
        left: dict[Layout, list[tuple[str, Member]]] = {}
        for name, index, tensor in group:
            layout: Layout | None = cast(Any, tensor)._layout()
            if layout is not None and layout.symbol is not None:
                layout = None
            if layout is not None and _fits(layout, strided, name in written):
                members.append((name in written, (index, layout, tensor)))
            elif layout is not None:
                copied = index, layout.replace(offset=0), tensor
                left.setdefault(layout, []).append((name, copied))
            if layout is None or not members or members[-1][1][0] != index:
                apart.append((name, layout))
        for same in left.values():  # one view, given several times, is one copy
            changed = [(name, m) for name, m in same if name in written]
            if len(same) > 1 and changed:
                name, (_, _, tensor) = changed[0]
                found.append(([m for _, m in same],
                              Written(tensor, f"argument {told(name)} of {kernel}")))
        ends = [_ends(layout) for _, (_, layout, _) in members]
        meet = [k for k, (a, b) in enumerate(ends) if any(
            a < d and c < b and (members[k][0] or members[m][0])
            for m, (c, d) in enumerate(ends) if m != k)]
        if owned:
            meet = list(range(len(members)))
        names = {index: name for name, index, _ in group}
        joined = [(names[m[1][0]], m[1][1]) for m in members]
        _check_apart(apart, joined, written, kernel)
        if not meet:
            continue
        name = next((n for n, _ in joined if n in written), "")
        target = Written(base, f"argument {told(name)} of {kernel}") if name else (
            Seen(readable(base)))
        found.append(([members[k][1] for k in meet], target))
    return found


def _check_apart(apart: list[tuple[str, Layout | None]], joined: list[tuple[str, Layout]],
                 written: Container[str], kernel: str) -> None:  # fmt: skip
    """Refuse copies of views that overlap what the launch writes to, or others that it reads."""
    for k, (name, layout) in enumerate(apart):
        for other, another in (*apart[:k], *joined):
            changed = (name in written) + (other in written)
            if not changed or layout == another:
                continue
            known = layout is not None and another is not None
            if any(n in written and e is not None and _is_expanded(e)
                   for n, e in ((name, layout), (other, another))):
                continue  # which is an error of its own
            # Of views without a known layout only writes to both are sure to get lost.
            if _overlap(cast(Any, layout), cast(Any, another)) if known else changed == 2:
                raise LaunchError(f"launch of {kernel}", found=f"{told(other)} and {told(name)}, "
                                  "views of one tensor that overlap, and of which it writes to one",
                                  expected="views without gaps, copies, or NumPy arrays")


def _overlap(a: Layout, b: Layout) -> bool:
    """Whether two layouts in one memory have an element in common."""
    low = min(_ends(a)[0], _ends(b)[0])
    held = [_At(_SOMEWHERE - low + layout.offset, layout) for layout in (a, b)]
    try:
        one, other = map(np.asarray, held)
        return np.shares_memory(one, other, max_work=cast(Any, _WORK))
    except np.exceptions.TooHardError:
        return True


class _At:
    """Bytes at an address that nobody looks at, one for each element of a layout."""

    def __init__(self, address: int, layout: Layout) -> None:
        self.__array_interface__ = {"data": (address, True), "shape": layout.shape, "version": 3,
                                    "strides": layout.strides, "typestr": "|i1"}


def _base(tensor: TensorCore) -> TensorCore:
    return tensor if tensor._base is None else tensor._base


def _is_expanded(layout: Layout) -> bool:
    return any(s == 0 and n > 1 for n, s in zip(layout.shape, layout.strides, strict=True))


def _fits(layout: Layout, strided: bool, written: bool) -> bool:
    if written and _is_expanded(layout):
        return False  # which is an error of its own
    whole = row_major(layout.shape)
    return strided or all(n < 2 or a == b for n, a, b in zip(
        layout.shape, layout.strides, whole.strides, strict=True))


def _ends(layout: Layout) -> tuple[int, int]:
    """Return between which elements of the memory those of a layout lie."""
    if 0 in layout.shape:
        return 0, 0
    steps = [(n - 1) * s for n, s in zip(layout.shape, layout.strides, strict=True)]
    return (layout.offset + sum(s for s in steps if s < 0),
            layout.offset + sum(s for s in steps if s > 0) + 1)


class Distant:
    """Numbers that stand for addresses of memory of devices: above all that a process may have."""

    def __init__(self) -> None:
        self._buffers: list[Any] = []

    def stand_in(self, buffer: Any) -> int:
        """Return what stands for the address of a buffer."""
        if buffer not in self._buffers:
            self._buffers.append(buffer)
        number: int = 1 + self._buffers.index(buffer)
        return number << _ADDRESS_BITS

    def place(self, address: int) -> View | None:
        """Return the memory that an address stands for; None for one of the host."""
        number = address >> _ADDRESS_BITS
        if not number:
            return None
        return View(self._buffers[number - 1], address & ((1 << _ADDRESS_BITS) - 1))


class Seen:
    """Memory that a launch reads where it lies.

    Attributes
    ----------
    buffer : Buffer
        The memory.
    """

    def __init__(self, buffer: Any) -> None:
        self.buffer = buffer

    def finish(self) -> None:
        """Do nothing: it is as it was."""


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
            # Its owner, if it has one, is to see it when the launch is over; and the next launch
            # on a view would otherwise compute again what all launches before it wrote.
            realize_all((tensor._base,))
        elif tensor._shared is not None:
            show_memory(tensor)


def _is_its_own(tensor: TensorCore) -> bool:
    """Whether no graph and no array knows the value, so that its memory may be written over."""
    buffer = tensor._buffer
    return (tensor._base is None and tensor._node is None and buffer is not None
            and tensor._history is None and not buffer.readonly
            and sys.getrefcount(buffer) <= _OWN_REFERENCES)
