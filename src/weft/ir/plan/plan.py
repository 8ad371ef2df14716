"""Plan level: the host program that runs kernels, as data.

A plan is an ordered list of steps over four kinds of memory: ``input`` and ``output`` slots (what a
caller passes, never handles), one ``arena`` in which allocations are ranges of bytes, and
``constant`` blocks that travel with the plan. Sizes are int64 expressions over the plan's
variables. It is printed and parsed exactly::

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

A plan of several devices names them in its header; inputs, outputs, arenas, programs and
allocations say ``on N`` where that is not the first::

    plan "move" {
      device "cpu"
      device "cuda:1"
      input 400
      output 400 on 1
      arena 65536 on 1
      program "relu" on 1 reads 400 writes 400
      alloc 0 on 1 at 0 size 400
      copy arena 0 from input 0 size 400
      launch "relu" [arena 0, output 0] groups (2, 1, 1) threads (64, 1, 1)
      free 0
    }
"""

from __future__ import annotations

import json
import re
from typing import Final

from weft.ir import dtype as dt
from weft.ir import expr as ex
from weft.ir.expr import Expr
from weft.ir.op import Op
from weft.ir.plan.plan_parse import parse_plan
from weft.ir.plan.plan_steps import (
    SPACES,
    Access,
    Alloc,
    Constant,
    Copy,
    Fill,
    Free,
    Launch,
    Parallel,
    Plan,
    ProgramRef,
    Ref,
    Size,
    Step,
    Wait,
    steps_of,
)

__all__ = ["SPACES", "Access", "Alloc", "Constant", "Copy", "Fill", "Free", "Launch", "Parallel",
           "Plan", "ProgramRef", "Ref", "Size", "Step", "Wait", "parse_plan", "print_plan",
           "steps_of"]  # fmt: skip

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
        return (f"alloc {step.index}{_on(step.device)} at {_size(step.offset)} "
                f"size {_size(step.size)}")
    if isinstance(step, Free):
        return f"free {step.index}"
    if isinstance(step, Launch):
        text = f"launch {_quoted(step.key)} [{', '.join(map(_ref, step.buffers))}]"
        for word, sizes in (("", step.variables), ("groups ", step.groups),
                            ("threads ", step.threads)):
            text += f" {word}({', '.join(map(_size, sizes))})" if sizes else ""
        return text
    if isinstance(step, Copy):
        return f"copy {_ref(step.target)} from {_ref(step.source)} size {_size(step.size)}"
    if isinstance(step, Fill):
        return f"fill {_ref(step.target)} size {_size(step.size)} byte {step.byte}"
    assert isinstance(step, Wait)
    return "wait " + ", ".join(map(str, step.steps))


def _on(device: int) -> str:
    return f" on {device}" if device else ""


def print_plan(plan: Plan) -> str:
    """Return the exact text of a plan."""
    lines = [f"plan {_quoted(plan.name)} {{"]
    lines.extend(f"  device {_quoted(name)}" for name in plan.devices)
    for v in plan.variables:
        lines.append(f"  variable {_variable(v)}")
    for i, size in enumerate(plan.inputs):
        mark = "updated " if i in plan.updated else ""
        on = _on(plan.input_devices[i]) if plan.input_devices else ""
        lines.append(f"  {mark}input {_size(size)}{on}")
    for i, size in enumerate(plan.outputs):
        on = _on(plan.output_devices[i]) if plan.output_devices else ""
        lines.append(f"  output {_size(size)}{on}")
    lines.extend(f"  constant {_quoted(c.digest)} {c.size}" for c in plan.constants)
    if plan.arena != 0:
        lines.append(f"  arena {_size(plan.arena)}")
    lines.extend(f"  arena {_size(n)} on {i}" for i, n in enumerate(plan.arenas, 1) if n != 0)
    for p in plan.programs:
        names = f" ({', '.join(map(_variable, p.variables))})" if p.variables else ""
        accesses = "".join(f" {a.kind} {_size(a.size)}" for a in p.buffers)
        lines.append(f"  program {_quoted(p.key)}{_on(p.device)}{names}{accesses}")
    stack: list[tuple[Step | None, int]] = [(s, 1) for s in reversed(plan.steps)]
    while stack:
        step, depth = stack.pop()
        indent = "  " * depth
        if step is None:
            lines.append(f"{indent}}}")
        elif isinstance(step, Parallel):
            saves = f"saves {step.saves} " if step.saves else ""
            lines.append(f"{indent}parallel {saves}{{")
            stack.append((None, depth))
            stack.extend((s, depth + 1) for s in reversed(step.steps))
        else:
            lines.append(indent + _step(step))
    return "\n".join([*lines, "}"]) + "\n"
