"""Writes one launch of a kernel as an entry point: instructions, control flow, arrays.

The only thing that an entry is given is the address of the launch's arguments, as a pushed
constant: an address for each parameter, the value of each variable, the addresses of the status
record and of the scratch memory, eight bytes each.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final

from weft.errors import UnsupportedError
from weft.ir import dtype as dt
from weft.ir import linear as li
from weft.ir.linear import Inst, LinearKernel, Value
from weft.ir.stmt import Memory
from weft.renderers import ranges
from weft.renderers.base import CUT, FENCES_AROUND
from weft.renderers.cstyle.uses import Uses
from weft.renderers.spirv import opcodes as spv
from weft.renderers.spirv.atomic import ORDERS, atomic, fence
from weft.renderers.spirv.failure import fail, failed, print_line
from weft.renderers.spirv.function import Term
from weft.renderers.spirv.memory import Physical, Place, Private, read
from weft.renderers.spirv.module import Module
from weft.renderers.spirv.operations import ROWS, is_foreign
from weft.renderers.spirv.unrolling import unrolled
from weft.renderers.spirv.values import Values

__all__ = ["LaunchWriter"]

_WORD: Final = 8  # bytes of an argument
_SHARED: Final = "shared"
_COUNT_BITS: Final = 31  # of numbers of work-items and work-groups


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
        li.StoreInst: "store", li.StorageInst: "storage", li.AssertInst: "check",
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
        self._declared: dict[int, Private] = {}
        self._globals: dict[int, None] = {}  # variables of the module that it uses
        self._arguments: dict[int, Term] = {}
        self._specials: dict[str, Term] = {}
        self.regions = li.regions(code)
        uses = Uses(code)
        self.dead, self.used = uses.dead, uses.count
        self.times: dict[int, int] = {}
        self.limit, self.waits = 0, False
        self._atomics = {i.memory.name for i in code if isinstance(i, li.AtomicInst)}
        self._roots: dict[str, str] = {}
        for i in code:
            if isinstance(i, li.StorageInst) and i.base is not None:
                self._roots[i.memory.name] = i.base.name
        for name in list(self._atomics):
            while name in self._roots:
                name = self._roots[name]
                self._atomics.add(name)

    def write(self, name: str, stops: bool, workers: int, limit: int,
              waits: bool) -> None:  # fmt: skip
        """Write the entry.

        Parameters
        ----------
        name : str
            What it is called.
        stops : bool
            Whether it ends where a launch before it has failed.
        workers, limit : int
            See `weft.renderers.spirv.unrolling.unrolled`.
        waits : bool
            See `weft.renderers.spirv.atomic.fence`.
        """
        self.limit, self.waits = limit, waits
        self.times = unrolled(self.code, self.regions, workers, limit)
        self._arrive()
        if stops:
            self._stop()
        self.walk(0, len(self.code))
        self.f.finish()
        self.module.entry(self.f, name, self.items, self._globals)

    def walk(self, begin: int, end: int) -> None:
        """Write the instructions between two positions."""
        position = begin
        while position < end:
            inst = self.code[position]
            region = self.regions.get(position)
            if region is not None:
                self.region(inst, position, region)
                position = region.end
            elif position not in self.dead:
                method = self.INSTRUCTIONS.get(type(inst))
                if method is None:
                    raise UnsupportedError(self.module.device, found=type(inst).__name__,
                                           expected="an instruction that SPIR-V has")
                getattr(self, method)(inst)
            position += 1

    def region(self, inst: Inst, position: int, region: li.Region) -> None:
        """Write a region."""
        if isinstance(inst, li.IfBegin):
            self.branch(inst, position, region)
        elif isinstance(inst, li.WhileBegin):
            self.while_loop(position, region)
        elif isinstance(inst, li.Loop):
            self.loop(inst, position, region)

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
            return read(f, block + _WORD * slot if slot else block, "u64")

        for k, memory in enumerate(self.kernel.params):
            if memory.name in used:
                self.places[memory.name] = Physical(memory.dtype, argument(k))
        for i in self.code:
            if isinstance(i, li.VariableInst) and i.slot not in self._arguments:
                self._arguments[i.slot] = argument(count + i.slot)
        count += len(self.kernel.variables)
        self.status = argument(count)
        self.zero = (self.status & 1).to("u32")  # addresses of records are even
        if used & set(self.scratch):
            start = argument(count + 1)
            for name in used & set(self.scratch):
                memory, place = self.scratch[name]
                self.places[name] = Physical(memory.dtype, start + place)
        for i in self.code:
            if isinstance(i, li.SpecialInst) and i.register not in self._specials and (
                    i.result.id in self.used):  # fmt: skip
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
        vector = f.typed(spv.LOAD, module.vector(3), variable)
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
        if all(v.id in self.fixed for v in inst.args):
            self.fixed.add(inst.result.id)
        ranges.record(self.ranges, inst)
        self.define(inst.result, row(self, inst))

    def variable(self, inst: li.VariableInst) -> None:
        """Name the value of a variable."""
        self.ranges[inst.result.id] = inst.bounds.min, inst.bounds.max
        self.define(inst.result, self._arguments[inst.slot])

    def special(self, inst: li.SpecialInst) -> None:
        """Name a number of the work-item."""
        if inst.result.id not in self.used:
            return
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
        made = self._declared.get(id(inst))  # unrolled bodies have one array
        if made is None:
            made = Private.declare(self.f, self.module, memory.dtype, inst.size, is_shared,
                                   memory.name in self._atomics)  # fmt: skip
            self._declared[id(inst)] = made
        self.places[memory.name] = made
        if is_shared:
            self._globals[made.variable] = None

    def load(self, inst: li.LoadInst) -> None:
        """Write a load of one element."""
        if inst.result.lanes > 1:
            raise _vector(inst.result)
        place, offset = self.place(inst.memory), self._offset(inst.offset)
        if inst.mask is None or self.number(inst.mask):
            self.define(inst.result, place.load(self.f, offset))
            return
        d = inst.result.dtype
        fill = self.literal(0, d) if inst.fill is None else self.term(inst.fill)
        self.define(inst.result, self.f.value_when(
            self.term(inst.mask), lambda: place.load(self.f, offset), fill))

    def _offset(self, value: Value) -> Term | int:
        """Return an offset, as a number where it is one."""
        known: int | None = self.number(value)
        return self.term(value) if known is None else known

    def store(self, inst: li.StoreInst) -> None:
        """Write a store of one element."""
        if inst.value.lanes > 1:
            raise _vector(inst.value)
        place, offset = self.place(inst.memory), self._offset(inst.offset)
        value = self.term(inst.value)
        if inst.mask is None or self.number(inst.mask):
            place.store(self.f, offset, value)
        else:
            self.f.when(self.term(inst.mask), lambda: place.store(self.f, offset, value))

    def atomic(self, inst: li.AtomicInst) -> None:
        """Write an atomic operation, whose order is that of fences around it."""
        before, after = FENCES_AROUND[inst.order]
        if before:
            fence(self.f, before, inst.scope, self.status, self.waits)
        self.define(inst.result, atomic(self, inst, self.place(inst.memory)))
        if after:
            fence(self.f, after, inst.scope, self.status, self.waits)

    def prefetch(self, inst: li.PrefetchInst) -> None:
        """Ask for nothing: a prefetch is no more than a hint."""

    def address(self, inst: li.AddressInst) -> None:
        """Say where an array begins."""
        place = self.place(inst.memory)
        assert isinstance(place, Physical)
        self.define(inst.result, place.address)

    # work-groups

    def barrier(self, inst: li.BarrierInst | None) -> None:
        """Wait for the work-items of the group, and see what they wrote."""
        f = self.f
        group = f.const("u32", spv.SCOPE_GROUP).id
        f.effect(spv.CONTROL_BARRIER, group, group, f.const("u32", ORDERS["acq_rel"]).id)

    def fence(self, inst: li.FenceInst) -> None:
        """Order memory."""
        fence(self.f, inst.order, inst.scope, self.status, self.waits)

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
            if inst.stops:
                f.leave()

        f.when(~condition, stop)

    def print_line(self, inst: li.PrintInst) -> None:
        """Write a line behind the status record."""
        print_line(self, self.status, inst, self.printed)

    # control flow

    def loop(self, inst: li.Loop, position: int, region: li.Region) -> None:
        """Write a loop, its body as often as it is unrolled."""
        if inst.kind != li.SERIAL:
            raise UnsupportedError("render", found=f"a loop over {inst.kind}",
                                   expected="launches, with such loops shared out before")
        f, module = self.f, self.module
        ranges.record_loop(self.ranges, inst.var, inst.extent)
        times = self.times.get(position, 1)
        if times < 0:
            for k in range(ranges.of(self.ranges, inst.extent)[1]):
                self.define(inst.var, f.const("u64", k))
                self.walk(position + 1, region.end)
            return
        first = f.const("u64", 0) if inst.begin is None else self.term(inst.begin)
        step = f.const("u64", 1) if inst.step is None else self.term(inst.step)
        extent = self.term(inst.extent)
        before, following = f.block, module.id()
        begin, test, inside, turn, after = (module.id() for _ in range(5))
        f.branch(begin)
        f.label(begin)
        var = f.emit(spv.PHI, "u64", first.id, before, following, turn)
        f.effect(spv.LOOP_MERGE, after, turn, 0)
        f.branch(test)
        f.label(test)
        f.branch_if(var.slt(extent), inside, after)
        f.label(inside)
        self.define(inst.var, var)
        self.walk(position + 1, region.end)
        for k in range(1, times):
            self.define(inst.var, var + step * k)
            f.when(self.term(inst.var).slt(extent), lambda: self.walk(position + 1, region.end))
        f.branch(turn)
        f.label(turn)
        whole = step if times == 1 else step * times
        f.effect(spv.I_ADD, module.type("u64"), following, var.id, whole.id)
        f.branch(begin)
        f.label(after)
        if self.limit:
            self._cut((extent - var).op("s<=", 0))

    def while_loop(self, position: int, region: li.Region) -> None:
        """Write a while loop, head and body as often as it is unrolled."""
        f, module = self.f, self.module
        assert region.middle is not None
        begin, test, turn, after = (module.id() for _ in range(4))
        ended = f.variable(f.const("u32", 0)) if self.limit else None
        f.branch(begin)
        f.label(begin)
        f.effect(spv.LOOP_MERGE, after, turn, 0)
        f.branch(test)
        f.label(test)
        for _ in range(max(self.times.get(position, 1), 1)):
            self.walk(position + 1, region.middle)
            condition = self.code[region.middle]
            assert isinstance(condition, li.WhileTest)
            goes = self.term(condition.condition)
            if ended is not None:
                ended.set(goes.choose(f.const("u32", 0), 1))
            inside = module.id()
            f.branch_if(goes, inside, after)
            f.label(inside)
            self.walk(region.middle + 1, region.end)
        f.branch(turn)
        f.label(turn)
        f.branch(begin)
        f.label(after)
        if ended is not None:
            self._cut(ended.get().ne(0))

    def _cut(self, is_done: Term) -> None:
        """Fail where the driver has ended a loop before its end."""
        self.fails = True
        zero = self.f.const("u64", 0)

        def stop() -> None:
            fail(self, self.status, CUT - 1, zero, zero)
            self.f.leave()

        self.f.when(~is_done, stop)

    def branch(self, inst: li.IfBegin, position: int, region: li.Region) -> None:
        """Write a branch."""
        f = self.f
        yes, after = self.module.id(), self.module.id()
        no = after if region.middle is None else self.module.id()
        f.effect(spv.SELECTION_MERGE, after, 0)
        f.branch_if(self.term(inst.condition), yes, no)
        f.label(yes)
        self.walk(position + 1, region.end if region.middle is None else region.middle)
        f.branch(after)
        if region.middle is not None:
            f.label(no)
            self.walk(region.middle + 1, region.end)
            f.branch(after)
        f.label(after)


def _arrays_of(inst: Inst) -> list[str]:
    found: Any = getattr(inst, "memory", None)
    base: Any = getattr(inst, "base", None)
    return [m.name for m in (found, base) if isinstance(m, Memory)]


def _vector(value: Value) -> UnsupportedError:
    return UnsupportedError("render", found=f"a vector of {value.lanes} lanes",
                            expected="scalars, for devices of work-items")
