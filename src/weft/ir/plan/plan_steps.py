"""The records of plan level: memory, steps, plans. See `weft.ir.plan.plan`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from weft.ir.expr import Expr
from weft.ir.record import Record

__all__ = ["SPACES", "Access", "Alloc", "Constant", "Copy", "Fill", "Free", "Launch", "Parallel",
           "Plan", "ProgramRef", "Ref", "Size", "Step", "Wait", "steps_of"]  # fmt: skip

SPACES: Final = ("input", "output", "arena", "constant")
Size = Expr | int  # bytes


class Ref(Record):
    """A place in memory: `offset` bytes into slot `index`, in the arena into that allocation."""

    space: str
    index: int
    offset: int = 0


class Access(Record):
    """What a program does to one of its buffers: ``reads``, ``writes`` or ``updates`` (both)."""

    kind: str
    size: Size


class ProgramRef(Record):
    """A kernel that the plan launches: its key, VARIABLEs in ABI order, buffers, and device."""

    key: str
    variables: tuple[Expr, ...]
    buffers: tuple[Access, ...]
    device: int = 0


class Constant(Record):
    """A block that the plan brings along, by the digest of its bytes."""

    digest: str
    size: int


class Step(Record):
    """Base of steps."""


class Alloc(Step):
    """Take `size` bytes of a device's arena at `offset`, known as allocation `index` from here."""

    index: int
    offset: Size
    size: Size
    device: int = 0


class Free(Step):
    """End the life of an allocation."""

    index: int


class Launch(Step):
    """Run a program on buffers of its device, with values for its variables.

    ``groups`` are the blocks of threads along x, y, z, and ``threads`` those of a block; both are
    empty on devices that have none.
    """

    key: str
    buffers: tuple[Ref, ...]
    variables: tuple[Size, ...] = ()
    groups: tuple[Size, ...] = ()
    threads: tuple[Size, ...] = ()


class Copy(Step):
    """Copy `size` bytes, also from device to device; the two ranges do not overlap."""

    target: Ref
    source: Ref
    size: Size


class Fill(Step):
    """Set `size` bytes to `byte`."""

    target: Ref
    size: Size
    byte: int = 0


class Wait(Step):
    """Wait until earlier steps, by their number in the order of `steps_of`, have happened."""

    steps: tuple[int, ...]


class Parallel(Step):
    """Steps that may run at the same time; all of them have happened after it.

    ``saves`` is about how many nanoseconds that saves, 0 if nobody knows.
    """

    steps: tuple[Step, ...]
    saves: int = 0


class Plan(Record):
    """One host program.

    Attributes
    ----------
    name : str
        For readers.
    variables : tuple of Expr
        VARIABLEs, sorted by name.
    inputs, outputs : tuple of int or Expr
        Bytes of each slot.
    updated : tuple of int
        Inputs that the plan may write.
    constants : tuple of Constant
        Blocks that it brings along.
    arena : int or Expr
        Bytes of the arena of the first device.
    devices : tuple of str
        Names of the devices, if it matters which they are; numbers stand for them elsewhere.
    arenas : tuple of int or Expr
        Bytes of the arenas of the devices behind the first.
    input_devices, output_devices : tuple of int
        Where each slot is; empty if all are on the first.
    programs : tuple of ProgramRef
        Kernels.
    steps : tuple of Step
        What it does.
    """

    name: str
    variables: tuple[Expr, ...] = ()
    inputs: tuple[Size, ...] = ()
    outputs: tuple[Size, ...] = ()
    updated: tuple[int, ...] = ()
    constants: tuple[Constant, ...] = ()
    arena: Size = 0
    programs: tuple[ProgramRef, ...] = ()
    steps: tuple[Step, ...] = ()
    devices: tuple[str, ...] = ()
    arenas: tuple[Size, ...] = ()
    input_devices: tuple[int, ...] = ()
    output_devices: tuple[int, ...] = ()

    def device_of(self, ref: Ref, allocations: Mapping[int, int]) -> int:
        """Return the number of the device that a place in memory is on.

        Parameters
        ----------
        ref
            The place; constants are on the first device.
        allocations
            The devices of the allocations that live.
        """
        if ref.space == "arena":
            return allocations[ref.index]
        slots = {"input": self.input_devices, "output": self.output_devices}.get(ref.space, ())
        return slots[ref.index] if slots else 0


def steps_of(plan: Plan) -> Iterator[Step]:
    """Yield every step in order, those of a parallel region after it."""
    stack = list(reversed(plan.steps))
    while stack:
        step = stack.pop()
        yield step
        if isinstance(step, Parallel):
            stack.extend(reversed(step.steps))
