"""Writes one launch of a kernel as an entry point: instructions, control flow, arrays.

The only thing that an entry is given is the address of the launch's arguments, as a pushed
constant: an address for each parameter, the value of each variable, the addresses of the status
record and of the scratch memory, eight bytes each.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final, NamedTuple

from weft.errors import UnsupportedError
from weft.ir import dtype as dt
from weft.ir import linear as li
from weft.ir.linear import Inst, LinearKernel, Value
from weft.ir.stmt import Memory
from weft.renderers import ranges
from weft.renderers.cstyle.uses import Uses
from weft.renderers.spirv import opcodes as spv
from weft.renderers.spirv.atomic import atomic
from weft.renderers.spirv.failure import fail, failed, print_line
from weft.renderers.spirv.function import Term
from weft.renderers.spirv.memory import Physical, Place, Private, at, read
from weft.renderers.spirv.module import Module
from weft.renderers.spirv.operations import ROWS, is_foreign
from weft.renderers.spirv.values import Values

__all__ = ["LaunchWriter"]

_WORD: Final = 8  # bytes of an argument
_SHARED: Final = "shared"
_COUNT_BITS: Final = 31  # of numbers of work-items and work-groups


class _Region(NamedTuple):
    """A region that is open: the block behind it, and what its other instructions need."""

    after: int
    turn: int = 0
    begin: int = 0
    step: int = 0
    next: int = 0
    var: int = 0
    other: int = 0


class LaunchWriter(Values):
    """Writes one launch.

    Attributes
    ----------
    INSTRUCTIONS : mapping of instruction class to str
        The method that writes each instruction.
    fails : bool
        Whether it has assertions.
    """

    INSTRUCTIONS: ClassVar[Mapping[type[Inst], str]] = {
        li.Compute: "compute", li.VariableInst: "variable", li.LoadInst: "load",
        li.StoreInst: "store", li.StorageInst: "storage", li.Loop: "loop", li.EndLoop: "end_loop",
        li.WhileBegin: "while_begin", li.WhileTest: "while_test", li.EndWhile: "end_while",
        li.IfBegin: "if_begin", li.Else: "otherwise", li.EndIf: "end_if", li.AssertInst: "check",
        li.BarrierInst: "barrier", li.FenceInst: "fence", li.AtomicInst: "atomic",
        li.PrintInst: "print_line", li.PrefetchInst: "prefetch", li.AddressInst: "address",
        li.SpecialInst: "special",
    }  # fmt: skip

    def __init__(self, module: Module, fused: Mapping[str, bool], kernel: LinearKernel,
                 code: Sequence[Inst], items: int, scratch: Mapping[str, tuple[Memory, int]],
                 printed: list[tuple[str, list[str]]]) -> None:  # fmt: skip
        super().__init__(module, fused)
        self.kernel, self.code, self.items, self.scratch = kernel, code, items, scratch
        self.printed, self.fails = printed, False
        self.places: dict[str, Place] = {}
        self._globals: dict[int, None] = {}  # variables of the module that it uses
        self._arguments: dict[int, Term] = {}
        self._specials: dict[str, Term] = {}
        self._regions: list[_Region] = []
        self._atomics = {i.memory.name for i in code if isinstance(i, li.AtomicInst)}
        self._roots: dict[str, str] = {}
        for i in code:
            if isinstance(i, li.StorageInst) and i.base is not None:
                self._roots[i.memory.name] = i.base.name
        for name in list(self._atomics):
            while name in self._roots:
                name = self._roots[name]
                self._atomics.add(name)

    def write(self, name: str, stops: bool) -> None:
        """Write the entry; one that `stops` ends where a launch before it has failed."""
        self._arrive()
        if stops:
            self._stop()
        dead = Uses(self.code).dead
        for position, inst in enumerate(self.code):
            if position not in dead:
                method = self.INSTRUCTIONS.get(type(inst))
                if method is None:
                    raise UnsupportedError(self.module.device, found=type(inst).__name__,
                                           expected="an instruction that SPIR-V has")
                getattr(self, method)(inst)
        self.f.finish()
        self.module.entry(self.f, name, self.items, self._globals)

    # arguments

    def _arrive(self) -> None:
        """Read, before everything else, the arguments that the code uses."""
        f, module = self.f, self.module
        pushed = module.pushed()
        self._globals[pushed] = None
        typed = module.pointer(spv.PUSH_CONSTANT, module.type("u64"))
        member = f.typed(spv.ACCESS_CHAIN, typed, pushed, f.const("u32", 0).id)
        block = f.emit(spv.LOAD, "u64", member)
        used = {name for i in self.code for name in _arrays_of(i)}
        count = len(self.kernel.params)

        def argument(slot: int) -> Term:
            return read(f, block + _WORD * slot, "u64")

        for k, memory in enumerate(self.kernel.params):
            if memory.name in used:
                self.places[memory.name] = Physical(memory.dtype, argument(k))
        for i in self.code:
            if isinstance(i, li.VariableInst) and i.slot not in self._arguments:
                self._arguments[i.slot] = argument(count + i.slot)
        count += len(self.kernel.variables)
        self.status = argument(count)
        if used & set(self.scratch):
            start = argument(count + 1)
            for name in used & set(self.scratch):
                memory, place = self.scratch[name]
                self.places[name] = Physical(memory.dtype, start + place)
        for i in self.code:
            if isinstance(i, li.SpecialInst) and i.register not in self._specials:
                self._specials[i.register] = self._special(i.register)

    def _special(self, register: str) -> Term:
        f, module = self.f, self.module
        if register == "local_size":
            return f.const("u64", self.items)
        number = {"local_id": spv.LOCAL_INVOCATION_ID, "group_id": spv.WORKGROUP_ID,
                  "num_groups": spv.NUM_WORKGROUPS}.get(register)  # fmt: skip
        if number is None:
            raise UnsupportedError(module.device, found=f"the register {register}",
                                   expected="numbers of work-items and work-groups")
        variable = module.builtin(number)
        self._globals[variable] = None
        vector = f.typed(spv.LOAD, module.vector, variable)
        return f.emit(spv.COMPOSITE_EXTRACT, "u32", vector, 0).to("u64")

    def _stop(self) -> None:
        """Leave where a launch before this one has failed, all work-items of a group or none."""
        f, module = self.f, self.module
        state = failed(f, self.status)
        if any(isinstance(i, li.BarrierInst) for i in self.code) and any(
                isinstance(i, li.AssertInst) for i in self.code):  # fmt: skip
            # Another group may fail just now: one work-item looks for all of its group.
            seen = Private.declare(f, module, dt.uint32, 1, True, False)
            self._globals[seen.variable] = None
            zero = f.const("u32", 0)
            if "local_id" not in self._specials:
                self._specials["local_id"] = self._special("local_id")
            f.when(self._specials["local_id"].eq(0),
                   lambda: seen.store(f, zero, state.choose(f.const("u32", 1), 0)))
            self.barrier(None)
            state = seen.load(f, zero).ne(0)
        f.when(state, f.leave)

    # values

    def define(self, value: Value, term: Term) -> None:
        """Remember what a value is."""
        self.terms[value.id] = term

    def compute(self, inst: li.Compute) -> None:
        """Write a pure operation."""
        row = ROWS.get(inst.op)
        if row is None or is_foreign(inst):
            raise self.lacks(inst)
        if not inst.args:
            self.numbers[inst.result.id] = inst.attr
        ranges.record(self.ranges, inst)
        self.define(inst.result, row(self, inst))

    def variable(self, inst: li.VariableInst) -> None:
        """Name the value of a variable."""
        self.ranges[inst.result.id] = inst.bounds.min, inst.bounds.max
        self.define(inst.result, self._arguments[inst.slot])

    def special(self, inst: li.SpecialInst) -> None:
        """Name a number of the work-item."""
        self.ranges[inst.result.id] = 0, (1 << _COUNT_BITS) - 1
        self.define(inst.result, self._specials[inst.register])

    # memory

    def place(self, memory: Memory) -> Place:
        """Return where an array is."""
        return self.places[memory.name]

    def storage(self, inst: li.StorageInst) -> None:
        """Declare an array of a work-item or a work-group."""
        memory = inst.memory
        if memory.name in self.scratch:
            return
        if inst.base is not None:
            base = self.places[inst.base.name]
            if isinstance(base, Physical):
                self.places[memory.name] = Physical(memory.dtype, base.address)
            else:
                assert isinstance(base, Private)
                self.places[memory.name] = base.over(memory.dtype)
            return
        is_shared = memory.scope == _SHARED
        made = Private.declare(self.f, self.module, memory.dtype, inst.size, is_shared,
                               memory.name in self._atomics)  # fmt: skip
        self.places[memory.name] = made
        if is_shared:
            self._globals[made.variable] = None

    def load(self, inst: li.LoadInst) -> None:
        """Write a load of one element."""
        if inst.result.lanes > 1:
            raise _vector(inst.result)
        place, offset = self.place(inst.memory), self.term(inst.offset)
        if inst.mask is None or self.number(inst.mask):
            self.define(inst.result, place.load(self.f, offset))
            return
        d = inst.result.dtype
        fill = self.literal(0, d) if inst.fill is None else self.term(inst.fill)
        self.define(inst.result, self.f.value_when(
            self.term(inst.mask), lambda: place.load(self.f, offset), fill))

    def store(self, inst: li.StoreInst) -> None:
        """Write a store of one element."""
        if inst.value.lanes > 1:
            raise _vector(inst.value)
        place, offset = self.place(inst.memory), self.term(inst.offset)
        value = self.term(inst.value)
        if inst.mask is None or self.number(inst.mask):
            place.store(self.f, offset, value)
        else:
            self.f.when(self.term(inst.mask), lambda: place.store(self.f, offset, value))

    def atomic(self, inst: li.AtomicInst) -> None:
        """Write an atomic operation."""
        self.define(inst.result, atomic(self, inst, self.place(inst.memory)))

    def prefetch(self, inst: li.PrefetchInst) -> None:
        """Ask for nothing: a prefetch is no more than a hint."""

    def address(self, inst: li.AddressInst) -> None:
        """Say where an array begins."""
        place = self.place(inst.memory)
        if not isinstance(place, Physical):
            raise UnsupportedError(self.module.device, found=f"the address of {inst.memory.name}",
                                   expected="addresses of parameters only")
        self.define(inst.result, place.address)

    # work-groups

    def barrier(self, inst: li.BarrierInst | None) -> None:
        """Wait for the work-items of the group, and see what they wrote."""
        f = self.f
        group = f.const("u32", spv.SCOPE_GROUP).id
        f.effect(spv.CONTROL_BARRIER, group, group, self._ordered())

    def fence(self, inst: li.FenceInst) -> None:
        """Order memory."""
        group = inst.scope == "block"
        scope = self.f.const("u32", spv.SCOPE_GROUP if group else spv.SCOPE_DEVICE).id
        self.f.effect(spv.MEMORY_BARRIER, scope, self._ordered())

    def _ordered(self) -> int:
        order = spv.ACQUIRE_RELEASE | spv.BUFFERS | spv.GROUP_MEMORY
        return self.f.const("u32", order).id

    # failures and lines

    def check(self, inst: li.AssertInst) -> None:
        """Write an assertion: on failure write the status once and leave the work-item."""
        if self.number(inst.condition):
            return
        self.fails = True
        f, condition = self.f, self.term(inst.condition)
        index, bound = (f.const("u64", 0) if x is None else self.term(x)
                        for x in (inst.value, inst.bound))

        def stop() -> None:
            fail(self, self.status, inst.message, index, bound)
            f.leave()

        f.when(~condition, stop)

    def print_line(self, inst: li.PrintInst) -> None:
        """Write a line behind the status record."""
        print_line(self, self.status, inst, self.printed)

    # control flow

    def loop(self, inst: li.Loop) -> None:
        """Begin a loop."""
        if inst.kind != li.SERIAL:
            raise UnsupportedError("render", found=f"a loop over {inst.kind}",
                                   expected="launches, with such loops shared out before")
        f, module = self.f, self.module
        begin_value: Value | None = getattr(inst, "begin", None)
        step_value: Value | None = getattr(inst, "step", None)
        first = f.const("u64", 0) if begin_value is None else self.term(begin_value)
        step = f.const("u64", 1) if step_value is None else self.term(step_value)
        extent = self.term(inst.extent)
        ranges.record_loop(self.ranges, inst.var, inst.extent)
        before = f.block
        begin, test, inside, turn, after, following = (module.id() for _ in range(6))
        f.branch(begin)
        f.label(begin)
        var = f.emit(spv.PHI, "u64", first.id, before, following, turn)
        f.effect(spv.LOOP_MERGE, after, turn, 0)
        f.branch(test)
        f.label(test)
        f.branch_if(var.slt(extent), inside, after)
        f.label(inside)
        self.define(inst.var, var)
        self._regions.append(_Region(after, turn, begin, step.id, following, var.id))

    def end_loop(self, inst: Inst) -> None:
        """End a loop."""
        f, region = self.f, self._regions.pop()
        f.branch(region.turn)
        f.label(region.turn)
        typed = self.module.type("u64")
        f.effect(spv.I_ADD, typed, region.next, region.var, region.step)
        f.branch(region.begin)
        f.label(region.after)

    def while_begin(self, inst: li.WhileBegin) -> None:
        """Begin the head of a while loop."""
        f, module = self.f, self.module
        begin, test, turn, after = (module.id() for _ in range(4))
        f.branch(begin)
        f.label(begin)
        f.effect(spv.LOOP_MERGE, after, turn, 0)
        f.branch(test)
        f.label(test)
        self._regions.append(_Region(after, turn, begin))

    def while_test(self, inst: li.WhileTest) -> None:
        """Write the test of a while loop."""
        inside = self.module.id()
        self.f.branch_if(self.term(inst.condition), inside, self._regions[-1].after)
        self.f.label(inside)

    def end_while(self, inst: Inst) -> None:
        """End a while loop."""
        f, region = self.f, self._regions.pop()
        f.branch(region.turn)
        f.label(region.turn)
        f.branch(region.begin)
        f.label(region.after)

    def if_begin(self, inst: li.IfBegin) -> None:
        """Begin a branch."""
        f = self.f
        yes, no, after = (self.module.id() for _ in range(3))
        f.effect(spv.SELECTION_MERGE, after, 0)
        f.branch_if(self.term(inst.condition), yes, no)
        f.label(yes)
        self._regions.append(_Region(after, other=no))

    def otherwise(self, inst: Inst) -> None:
        """Begin the other branch."""
        f, region = self.f, self._regions.pop()
        f.branch(region.after)
        f.label(region.other)
        self._regions.append(_Region(region.after))

    def end_if(self, inst: Inst) -> None:
        """End a branch."""
        f, region = self.f, self._regions.pop()
        f.branch(region.after)
        if region.other:
            f.label(region.other)
            f.branch(region.after)
        f.label(region.after)


def _arrays_of(inst: Inst) -> list[str]:
    found: Any = getattr(inst, "memory", None)
    base: Any = getattr(inst, "base", None)
    return [m.name for m in (found, base) if isinstance(m, Memory)]


def _vector(value: Value) -> UnsupportedError:
    return UnsupportedError("render", found=f"a vector of {value.lanes} lanes",
                            expected="scalars, for devices of work-items")
