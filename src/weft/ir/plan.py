"""Plan level: the host program that runs kernels, as data.

A plan is an ordered list of steps over four kinds of memory: ``input`` and ``output`` slots (what a
caller passes, never handles), one ``arena`` in which allocations are ranges of bytes, and
``constant`` blocks that travel with the plan. Sizes are int64 expressions over the plan's
variables. Its text (`weft.ir.plan_parse` reads it back) is exact::

    plan "step" {
      variable "n" 1 1024
      input (mul n 4)
      output (mul n 4)
      arena 65536
      program "relu" ("n" 1 1024) reads (mul n 4) writes (mul n 4)
      alloc 0 at 0 size (mul n 4)
      launch "relu" [input 0, arena 0] (n)
      free 0
    }
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Final

from weft.ir import dtype as dt
from weft.ir import expr as ex
from weft.ir.expr import Expr
from weft.ir.op import Op
from weft.ir.record import Record

__all__ = [
    "SPACES",
    "Access",
    "Alloc",
    "Constant",
    "Copy",
    "Fill",
    "Free",
    "Launch",
    "Parallel",
    "Plan",
    "ProgramRef",
    "Ref",
    "Step",
    "Wait",
    "print_plan",
    "steps_of",
]

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
    """A kernel that the plan launches: its key, VARIABLEs in ABI order, and buffers."""

    key: str
    variables: tuple[Expr, ...]
    buffers: tuple[Access, ...]


class Constant(Record):
    """A block that the plan brings along, by the digest of its bytes."""

    digest: str
    size: int


class Step(Record):
    """Base of steps."""


class Alloc(Step):
    """Take `size` bytes of the arena at `offset`, known as allocation `index` from here on."""

    index: int
    offset: Size
    size: Size


class Free(Step):
    """End the life of an allocation."""

    index: int


class Launch(Step):
    """Run a program on buffers, with values for its variables."""

    key: str
    buffers: tuple[Ref, ...]
    variables: tuple[Size, ...] = ()


class Copy(Step):
    """Copy `size` bytes; the two ranges do not overlap."""

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
    """Steps that may run at the same time; all of them have happened after it."""

    steps: tuple[Step, ...]


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
        Bytes of the arena.
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


def steps_of(plan: Plan) -> Iterator[Step]:
    """Yield every step in order, those of a parallel region after it."""
    stack = list(reversed(plan.steps))
    while stack:
        step = stack.pop()
        yield step
        if isinstance(step, Parallel):
            stack.extend(reversed(step.steps))


# printing

_WORD: Final = re.compile(r"[A-Za-z_][A-Za-z_0-9]*")


def _quoted(text: str) -> str:
    return json.dumps(text)


def _variable(v: Expr) -> str:
    return f"{_quoted(v.attr.name)} {v.attr.min} {v.attr.max}"


def _size(size: Size) -> str:
    if isinstance(size, int):
        return str(size)
    shown: dict[Expr, str] = {}
    for e in ex.toposort([size]):
        if e.op is Op.CONST:
            shown[e] = f"#{e.attr}"  # an expression, where a bare number is a Python int
        elif e.op is Op.VARIABLE:
            shown[e] = e.attr.name if _WORD.fullmatch(e.attr.name) else _quoted(e.attr.name)
        else:
            kind = "" if e.dtype is dt.int64 else f".{e.dtype.text}"
            shown[e] = f"({e.op.name}{kind} {' '.join(shown[a] for a in e.args)})"
    return shown[size]


def _ref(ref: Ref) -> str:
    return f"{ref.space} {ref.index}" + (f" + {ref.offset}" if ref.offset else "")


def _step(step: Step) -> str:
    if isinstance(step, Alloc):
        return f"alloc {step.index} at {_size(step.offset)} size {_size(step.size)}"
    if isinstance(step, Free):
        return f"free {step.index}"
    if isinstance(step, Launch):
        values = f" ({', '.join(map(_size, step.variables))})" if step.variables else ""
        return f"launch {_quoted(step.key)} [{', '.join(map(_ref, step.buffers))}]{values}"
    if isinstance(step, Copy):
        return f"copy {_ref(step.target)} from {_ref(step.source)} size {_size(step.size)}"
    if isinstance(step, Fill):
        return f"fill {_ref(step.target)} size {_size(step.size)} byte {step.byte}"
    assert isinstance(step, Wait)
    return "wait " + ", ".join(map(str, step.steps))


def print_plan(plan: Plan) -> str:
    """Return the exact text of a plan."""
    lines = [f"plan {_quoted(plan.name)} {{"]
    for v in plan.variables:
        lines.append(f"  variable {_variable(v)}")
    for i, size in enumerate(plan.inputs):
        mark = "updated " if i in plan.updated else ""
        lines.append(f"  {mark}input {_size(size)}")
    lines.extend(f"  output {_size(size)}" for size in plan.outputs)
    lines.extend(f"  constant {_quoted(c.digest)} {c.size}" for c in plan.constants)
    if plan.arena != 0:
        lines.append(f"  arena {_size(plan.arena)}")
    for p in plan.programs:
        names = f" ({', '.join(map(_variable, p.variables))})" if p.variables else ""
        accesses = "".join(f" {a.kind} {_size(a.size)}" for a in p.buffers)
        lines.append(f"  program {_quoted(p.key)}{names}{accesses}")
    stack: list[tuple[Step | None, int]] = [(s, 1) for s in reversed(plan.steps)]
    while stack:
        step, depth = stack.pop()
        indent = "  " * depth
        if step is None:
            lines.append(f"{indent}}}")
        elif isinstance(step, Parallel):
            lines.append(f"{indent}parallel {{")
            stack.append((None, depth))
            stack.extend((s, depth + 1) for s in reversed(step.steps))
        else:
            lines.append(indent + _step(step))
    return "\n".join([*lines, "}"]) + "\n"
