"""The verifier of plan level: slots, sizes, lifetimes, ranges of the arena, parallel regions.

A size in variables is checked at every corner of their ranges (at most 64 corners). Sizes of
arrays are products of sums of variables that are not negative, so they grow with each of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import islice, product
from typing import Final, NoReturn

from weft.errors import LaunchError, VariableError, VerifyError
from weft.ir import expr as ex
from weft.ir.expr import Expr
from weft.ir.plan.plan import (
    SPACES,
    Alloc,
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
    print_plan,
)
from weft.ir.program import evaluate_launch

__all__ = ["verify_plan"]

_CORNERS: Final = 64
Values = tuple[int, ...]  # of one size, corner by corner


def verify_plan(plan: Plan) -> Plan:
    """Return the plan if it is well formed.

    Raises
    ------
    VerifyError
        Naming the step: a slot that is not there, a range past its end, memory used before it was
        written or after it was freed, allocations that overlap, an output that is never written,
        steps of a parallel region that depend on each other.
    """
    _Verifier(plan).run()
    return plan


class _Verifier:
    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.programs = {p.key: p for p in plan.programs}
        self.corners = _corners(plan.variables)
        self.live: dict[int, tuple[Values, Values]] = {}  # allocation -> offset, size
        self.homes: dict[int, int] = {}  # allocation -> device
        self.used: set[int] = set()
        self.written: set[tuple[str, int]] = set()
        self.number = -1
        self.step: Step | None = None

    def run(self) -> None:
        plan = self.plan
        self.check_header()
        self.arenas = [self.values(size) for size in (plan.arena, *plan.arenas)]
        self.slots = {
            "input": [self.values(s) for s in plan.inputs],
            "output": [self.values(s) for s in plan.outputs],
            "constant": [self.values(c.size) for c in plan.constants],
        }
        self.written |= {("input", i) for i in range(len(plan.inputs))}
        self.written |= {("constant", i) for i in range(len(plan.constants))}
        self.body(plan.steps)
        self.step = None
        for i in range(len(plan.outputs)):
            if ("output", i) not in self.written:
                self.fail(f"output {i} that no step writes", "every output written")

    def check_header(self) -> None:
        plan = self.plan
        names = [v.attr.name for v in plan.variables]
        if names != sorted(set(names)):
            self.fail(f"the variables {names}", "them sorted and unique")
        if len(self.programs) != len(plan.programs):
            self.fail("two programs with one key", "unique keys")
        sizes = [*plan.inputs, *plan.outputs, plan.arena, *plan.arenas,
                 *(c.size for c in plan.constants)]
        for program in plan.programs:
            sizes.extend(a.size for a in program.buffers)
            unknown = [a.kind for a in program.buffers if a.kind not in _KINDS]
            if unknown:
                self.fail(f"the access {unknown[0]}", "one of " + ", ".join(_KINDS))
        count = max(len(plan.devices), 1)
        if len(set(plan.devices)) != len(plan.devices):
            self.fail(f"the devices {plan.devices}", "each device once")
        if plan.arenas and len(plan.arenas) != count - 1:
            self.fail(f"{len(plan.arenas)} more arenas", f"{count - 1}, one for each more device")
        for slots, homes in ((plan.inputs, plan.input_devices),
                             (plan.outputs, plan.output_devices)):
            if homes and (len(homes) != len(slots) or not all(0 <= d < count for d in homes)):
                self.fail(f"slots on devices {homes}", f"{len(slots)} numbers below {count}")
        for program in plan.programs:
            if not 0 <= program.device < count:
                self.fail(f"a program on device {program.device}", f"a number below {count}")
        for i in plan.updated:
            if not 0 <= i < len(plan.inputs):
                self.fail(f"updated input {i}", f"an input below {len(plan.inputs)}")

    def fail(self, found: str, expected: str) -> NoReturn:
        where = f"plan {self.plan.name}"
        if self.step is not None:
            text = print_plan(Plan("", steps=(self.step,))).splitlines()[1].strip()
            where += f", step {self.number}: {text}"
        raise VerifyError(where, found=found, expected=expected)

    def values(self, size: Size) -> Values:
        """Return a size at every corner, none of them negative."""
        if isinstance(size, int):
            found: Values = (size,) * len(self.corners)
        else:
            unknown = ex.variables([size]) - set(self.plan.variables)
            if unknown:
                self.fail(f"the variable {next(iter(unknown)).attr.name}", "one of the plan's")
            try:
                found = tuple(evaluate_launch(size, corner) for corner in self.corners)
            except (LaunchError, VariableError) as error:
                self.fail(str(error.found), "sizes within int64")
        if min(found) < 0:
            self.fail(f"the size {min(found)}", "a size that is not negative")
        return found

    def body(self, steps: Iterable[Step], region: bool = False) -> None:
        touched: dict[tuple[str, int], tuple[int, bool]] = {}
        first = self.number
        for step in steps:
            self.number += 1
            self.step = step
            reads, writes = self.one(step, region)
            if region:
                self.apart(touched, self.number, reads, writes)
            if isinstance(step, Wait) and region and any(n > first for n in step.steps):
                self.fail("a wait for a step of its own region", "steps before the region")
            self.written |= writes

    def apart(self, touched: dict[tuple[str, int], tuple[int, bool]], number: int,
              reads: set[tuple[str, int]], writes: set[tuple[str, int]]) -> None:  # fmt: skip
        """Check that a step of a region shares nothing written with another one."""
        for place in sorted(reads | writes):
            before = touched.get(place)
            writing = place in writes
            if before is not None and (writing or before[1]):
                self.fail(f"{place[0]} {place[1]}, which step {before[0]} of the region uses too",
                          "steps that are independent")
            if before is None or writing:
                touched[place] = (number, writing)

    def one(self, step: Step, region: bool) -> tuple[set[tuple[str, int]], set[tuple[str, int]]]:
        """Check one step; return the places that it reads and writes."""
        reads: set[tuple[str, int]] = set()
        writes: set[tuple[str, int]] = set()
        if isinstance(step, Alloc | Free | Parallel) and region:
            self.fail(type(step).__name__.lower(), "launches, copies and fills in a region")
        if isinstance(step, Alloc):
            self.alloc(step)
        elif isinstance(step, Free):
            if self.live.pop(step.index, None) is None:
                self.fail(f"allocation {step.index}", "a live allocation")
            self.written.discard(("arena", step.index))
        elif isinstance(step, Launch):
            self.launch(step, reads, writes)
        elif isinstance(step, Copy):
            size = self.values(step.size)
            self.use(step.source, size, reads)
            self.use(step.target, size, writes, writing=True)
            self.disjoint(step, size)
        elif isinstance(step, Fill):
            if not 0 <= step.byte <= 255:
                self.fail(f"byte {step.byte}", "0 to 255")
            self.use(step.target, self.values(step.size), writes, writing=True)
        elif isinstance(step, Wait):
            late = [n for n in step.steps if not 0 <= n < self.number]
            if late or not step.steps:
                self.fail(f"a wait for step {late}", "steps before it")
        elif isinstance(step, Parallel):
            self.body(step.steps, region=True)
        return reads, writes

    def alloc(self, step: Alloc) -> None:
        offset, size = self.values(step.offset), self.values(step.size)
        if step.index in self.used:
            self.fail(f"allocation {step.index} again", "a new number for each allocation")
        self.used.add(step.index)
        if not 0 <= step.device < len(self.arenas):
            self.fail(f"device {step.device}", f"one with an arena, below {len(self.arenas)}")
        for start, length, arena in zip(offset, size, self.arenas[step.device], strict=True):
            if start + length > arena:
                self.fail(f"bytes {start} to {start + length}", f"an arena of {arena} bytes")
        self.homes[step.index] = step.device
        for other, (taken, extent) in self.live.items():
            if self.homes[other] != step.device:
                continue
            pairs = zip(offset, size, taken, extent, strict=True)
            if any(a < c + d and c < a + b for a, b, c, d in pairs):
                self.fail(f"bytes of allocation {other}, which is live", "ranges that are apart")
        self.live[step.index] = (offset, size)

    def launch(self, step: Launch, reads: set[tuple[str, int]],
               writes: set[tuple[str, int]]) -> None:  # fmt: skip
        program = self.programs.get(step.key)
        if program is None:
            self.fail(f"the program {step.key}", "one of " + ", ".join(self.programs))
        if len(step.buffers) != len(program.buffers) or (
            len(step.variables) != len(program.variables)
        ):
            found = f"{len(step.buffers)} buffers, {len(step.variables)} variables"
            self.fail(found, f"{len(program.buffers)} and {len(program.variables)}")
        pairs = zip(program.variables, step.variables, strict=True)
        given = {v.attr.name: self.values(value) for v, value in pairs}
        for sizes in (step.groups, step.threads):
            if sizes and (len(sizes) != 3 or any(min(self.values(size)) < 1 for size in sizes)):
                self.fail(f"{len(sizes)} launch sizes", "three, of at least 1")
        for ref, access in zip(step.buffers, program.buffers, strict=True):
            size = self.buffer_size(program, access.size, given)
            if ref.space != "constant" and self.home(ref) not in (None, program.device):
                self.fail(f"{ref.space} {ref.index} on device {self.home(ref)}",
                          f"memory of device {program.device}, where the program runs")
            if access.kind != "writes":
                self.use(ref, size, reads)
            if access.kind != "reads":
                self.use(ref, size, writes, writing=True)

    def home(self, ref: Ref) -> int | None:
        """Return the device of a place, None where there is no such place."""
        try:
            return self.plan.device_of(ref, self.homes)
        except (KeyError, IndexError):
            return None

    def buffer_size(self, program: ProgramRef, size: Size, given: Mapping[str, Values]) -> Values:
        """Return the bytes of a program's buffer, in the values of its launch."""
        if isinstance(size, int):
            return (size,) * len(self.corners)
        found = []
        for corner in range(len(self.corners)):
            values = {name: v[corner] for name, v in given.items()}
            try:
                found.append(evaluate_launch(size, values))
            except (LaunchError, VariableError) as error:
                self.fail(str(error.found), f"the variables of {program.key}")
        return tuple(found)

    def use(self, ref: Ref, size: Values, places: set[tuple[str, int]],
            writing: bool = False) -> None:  # fmt: skip
        """Check an access and add its place."""
        if ref.space not in SPACES:
            self.fail(f"the space {ref.space}", "one of " + ", ".join(SPACES))
        if ref.space == "arena":
            if ref.index not in self.live:
                self.fail(f"arena {ref.index}", "a live allocation")
            room = self.live[ref.index][1]
        else:
            slots = self.slots[ref.space]
            if not 0 <= ref.index < len(slots):
                self.fail(f"{ref.space} {ref.index}", f"one of {len(slots)}")
            room = slots[ref.index]
        if ref.offset < 0 or any(ref.offset + s > r for s, r in zip(size, room, strict=True)):
            self.fail(f"{max(size)} bytes at {ref.offset} of {ref.space} {ref.index}",
                      f"a range within its {max(room)} bytes")
        place = (ref.space, ref.index)
        if writing and (
            ref.space == "constant"
            or (ref.space == "input" and ref.index not in self.plan.updated)
        ):
            self.fail(f"a write of {ref.space} {ref.index}", "memory that may be written")
        if not writing and place not in self.written:
            self.fail(f"a read of {ref.space} {ref.index}", "a write before it")
        places.add(place)

    def disjoint(self, step: Copy, size: Values) -> None:
        a, b = step.target, step.source
        if (a.space, a.index) == (b.space, b.index) and abs(a.offset - b.offset) < max(size):
            self.fail("a copy onto itself", "ranges that are apart")


_KINDS: Final = ("reads", "writes", "updates")


def _corners(variables: Iterable[Expr]) -> list[dict[str, int]]:
    """Return assignments at the ends of all ranges, the largest values among the first."""
    limits = [v.attr for v in variables]
    choices = product(*((b.max, b.min) for b in limits))
    found = [dict(zip((b.name for b in limits), values, strict=True))
             for values in islice(choices, _CORNERS - 1)]  # fmt: skip
    return [*found, {b.name: b.min for b in limits}]
