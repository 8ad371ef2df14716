"""The verifier of kernel level: regions, definitions before uses, types, memories, barriers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NoReturn

from weft.errors import VerifyError
from weft.ir import dtype as dt
from weft.ir import linear as li
from weft.ir.dtype import DType
from weft.ir.expr import variables
from weft.ir.linear import Inst, LinearKernel, Value
from weft.ir.op import Op
from weft.ir.stmt import FENCE_ORDERS, ORDERS, THREAD_SCOPES, Memory
from weft.ir.text.text_linear import inst_text, value_text
from weft.ir.verify.verify_expr import fault, show_type


def verify_linear(kernel: LinearKernel) -> None:
    """Check a kernel at kernel level.

    Raises
    ------
    VerifyError
        If it is not legal; the message names the instruction.
    """
    li.regions(kernel.code)
    _Verifier(kernel).run()


class _Region:
    """An open region: what it defines, and whether threads may take it differently."""

    __slots__ = ("divergent", "memories", "values")

    def __init__(self, divergent: bool) -> None:
        self.values: list[Value] = []
        self.memories: list[Memory] = []
        self.divergent = divergent


class _Verifier:
    def __init__(self, kernel: LinearKernel) -> None:
        self.kernel = kernel
        self.visible: set[Value] = set()
        self.ids: set[int] = set()
        self.memories: set[Memory] = set()
        self.memory_names: set[str] = set()
        self.varying: set[Value] = set()
        self.regions: list[_Region] = [_Region(False)]
        self.current: Inst | None = None

    def run(self) -> None:
        kernel = self.kernel
        names = [v.attr.name for v in kernel.variables]
        if names != sorted(set(names)):
            self.fail(f"the variables {', '.join(names)}", "each once, sorted by name")
        for memory in kernel.params:
            if memory.scope not in ("global", "constant"):
                self.fail(f"the parameter {memory.name} in scope {memory.scope}", "global")
            self.declare(memory)
        for inst in kernel.code:
            self.current = inst
            check = _CHECK.get(type(inst))
            if check is None:
                self.fail(type(inst).__name__, "an instruction of kernel level")
            for v in inst.operands():
                if v not in self.visible:
                    self.fail(f"{value_text(v)}", "a value defined before, in an open region")
            check(self, inst)
        missing = set(range(len(self.ids))) - self.ids
        if missing:
            self.current = None
            self.fail(f"{len(self.ids)} values without number {min(missing)}", "dense numbers")

    def fail(self, found: str, expected: str | None = None) -> NoReturn:
        """Raise the error of the current instruction."""
        operation = f"verify {self.kernel.name}"
        where = None
        if self.current is not None:
            operation += f", at `{_line(self.current)}`"
            if isinstance(self.current, li.AssertInst):
                where = self._place(self.current.message)
        raise VerifyError(operation, found=found, expected=expected, where=where)

    def _place(self, message: int) -> tuple[str, int] | None:
        if not 0 <= message < len(self.kernel.messages):
            return None
        place = self.kernel.messages[message][1]
        return None if place is None else (place.file, place.line)

    # --- definitions

    def define(self, *values: Value) -> None:
        inst = self.current
        assert inst is not None
        varying = any(v in self.varying for v in inst.operands())
        for v in values:
            if v in self.visible or v.id in self.ids:
                self.fail(f"a second {value_text(v)}", "numbers that are unique in the kernel")
            self.ids.add(v.id)
            self.visible.add(v)
            self.regions[-1].values.append(v)
            if varying:
                self.varying.add(v)

    def declare(self, memory: Memory) -> None:
        if memory.name in self.memory_names:
            self.fail(f"a second memory {memory.name}", "names that are unique in the kernel")
        unknown = variables(memory.shape) - set(self.kernel.variables)
        if unknown:
            self.fail(f"the unknown variable {next(iter(unknown))!r}", "one of the kernel's")
        self.memory_names.add(memory.name)
        self.memories.add(memory)
        self.regions[-1].memories.append(memory)

    def open(self, divergent: bool) -> None:
        self.regions.append(_Region(self.regions[-1].divergent or divergent))

    def close(self) -> None:
        region = self.regions.pop()
        self.visible.difference_update(region.values)
        self.memories.difference_update(region.memories)

    # --- types

    def type(self, v: Value | None, what: str, dtype: DType, lanes: int | None = 1) -> None:
        if v is None:
            return
        if v.dtype is not dtype or (lanes is not None and v.lanes != lanes):
            expected = show_type((dtype, lanes)) if lanes is not None else dtype.text
            self.fail(f"{what} of type {show_type((v.dtype, v.lanes))}", expected)

    def access(self, memory: Memory, offset: Value, lanes: int) -> None:
        if memory not in self.memories:
            self.fail(f"the memory {memory.name}", "a parameter or a storage in an open region")
        self.type(offset, "the offset", dt.int64, None)
        if offset.lanes not in (1, lanes):
            self.fail(f"an offset with {offset.lanes} lanes", f"1 or {lanes}")

    # --- instructions

    def compute(self, i: li.Compute) -> None:
        if i.op is Op.VAR or i.op is Op.VARIABLE:
            self.fail(i.op.name, "an operation on values")
        args = [(a.dtype, a.lanes) for a in i.args]
        wrong = fault(i.op, (i.result.dtype, i.result.lanes), args, i.attr)
        if wrong is not None:
            self.fail(wrong)
        self.define(i.result)

    def variable(self, i: li.VariableInst) -> None:
        known = self.kernel.variables
        if not 0 <= i.slot < len(known) or known[i.slot].attr != i.bounds:
            self.fail(f"variable {i.slot}, {i.bounds.name}", "a variable of the kernel")
        self.type(i.result, "the result", dt.int64)
        self.define(i.result)

    def load(self, i: li.LoadInst) -> None:
        lanes = i.result.lanes
        self.access(i.memory, i.offset, lanes)
        self.type(i.mask, "the mask", dt.bool_, lanes)
        self.type(i.fill, "the fill value", i.memory.dtype, lanes)
        self.type(i.result, "the result", i.memory.dtype, lanes)
        self.define(i.result)
        if i.memory.scope in ("local", "register"):
            self.varying.add(i.result)

    def store(self, i: li.StoreInst) -> None:
        lanes = i.value.lanes
        self.access(i.memory, i.offset, lanes)
        self.type(i.mask, "the mask", dt.bool_, lanes)
        self.type(i.value, "the value", i.memory.dtype, lanes)
        if i.memory.scope == "constant":
            self.fail(f"a store to the constant {i.memory.name}", "memory that may be written")

    def storage(self, i: li.StorageInst) -> None:
        if i.memory.scope not in ("local", "register", "shared") or i.size < 0:
            self.fail(f"{i.memory.scope} storage of {i.size} elements",
                      "local, register or shared, of at least 0")
        if i.base is not None and i.base.scope != i.memory.scope:
            self.fail(f"{i.memory.scope} storage over {i.base.scope} memory", "one scope")
        self.declare(i.memory)

    def address(self, i: li.AddressInst) -> None:
        self.type(i.result, "the address", dt.int64)
        self.define(i.result)

    def special(self, i: li.SpecialInst) -> None:
        self.type(i.result, "a special register", dt.int64)
        if i.register not in li.REGISTERS:
            self.fail(f"the register {i.register}", "one of " + ", ".join(li.REGISTERS))
        self.define(i.result)
        if i.register == li.LOCAL_ID:
            self.varying.add(i.result)

    def clock(self, i: li.ClockInst) -> None:
        self.type(i.result, "the time", dt.int64)
        self.define(i.result)
        self.varying.add(i.result)

    def loop(self, i: li.Loop) -> None:
        if i.kind not in li.LOOP_KINDS:
            self.fail(f"the loop kind {i.kind!r}", "one of " + ", ".join(li.LOOP_KINDS))
        self.type(i.extent, "the extent", dt.int64)
        self.type(i.begin, "the begin", dt.int64)
        self.type(i.step, "the step", dt.int64)
        if i.kind != li.SERIAL and not (i.begin is None is i.step):
            self.fail(f"a {i.kind} loop with a begin or a step", "a serial one")
        self.type(i.var, "the loop variable", dt.int64)
        self.open(any(v in self.varying for v in i.operands()))
        self.define(i.var)
        if i.kind != li.SERIAL:
            self.varying.add(i.var)

    def end(self, i: Inst) -> None:
        self.close()

    def while_begin(self, i: li.WhileBegin) -> None:
        self.open(True)

    def while_test(self, i: li.WhileTest) -> None:
        self.type(i.condition, "the condition", dt.bool_)

    def if_begin(self, i: li.IfBegin) -> None:
        self.type(i.condition, "the condition", dt.bool_)
        self.open(i.condition in self.varying)

    def otherwise(self, i: li.Else) -> None:
        divergent = self.regions[-1].divergent
        self.close()
        self.open(divergent)

    def assert_(self, i: li.AssertInst) -> None:
        self.type(i.condition, "the condition", dt.bool_)
        self.type(i.value, "a reported value", dt.int64)
        self.type(i.bound, "a reported value", dt.int64)
        if not 0 <= i.message < len(self.kernel.messages):
            self.fail(f"message {i.message}", f"one of {len(self.kernel.messages)}")

    def barrier(self, i: li.BarrierInst) -> None:
        if self.regions[-1].divergent:
            self.fail("a barrier under a condition or loop that differs between threads",
                      "uniform control")

    def fence(self, i: li.FenceInst) -> None:
        self.ordering(i, FENCE_ORDERS)

    def ordering(self, i: li.FenceInst | li.AtomicInst, orders: tuple[str, ...]) -> None:
        if i.scope not in THREAD_SCOPES:
            self.fail(f"the scope {i.scope!r}", "one of " + ", ".join(THREAD_SCOPES))
        if i.order not in orders:
            self.fail(f"the order {i.order!r}", "one of " + ", ".join(orders))

    def atomic(self, i: li.AtomicInst) -> None:
        self.access(i.memory, i.offset, 1)
        for v in (i.value, i.compare, i.result):
            self.type(v, "an atomic's value", i.memory.dtype)
        if (i.kind == "cas") != (i.compare is not None):
            self.fail(f"the atomic {i.kind}", "a value to compare exactly for cas")
        self.ordering(i, ORDERS)
        self.define(i.result)
        self.varying.add(i.result)

    def call(self, i: li.CallInst) -> None:
        self.define(*i.vars)
        self.varying.update(i.vars)

    def print_(self, i: li.PrintInst) -> None:
        """Any values may be printed."""

    def prefetch(self, i: li.PrefetchInst) -> None:
        self.access(i.memory, i.offset, 1)


_CHECK: Final[dict[type[Inst], Callable[[_Verifier, Any], None]]] = {
    li.Compute: _Verifier.compute, li.VariableInst: _Verifier.variable,
    li.LoadInst: _Verifier.load, li.StoreInst: _Verifier.store, li.StorageInst: _Verifier.storage,
    li.Loop: _Verifier.loop, li.EndLoop: _Verifier.end, li.WhileBegin: _Verifier.while_begin,
    li.WhileTest: _Verifier.while_test, li.EndWhile: _Verifier.end, li.IfBegin: _Verifier.if_begin,
    li.Else: _Verifier.otherwise, li.EndIf: _Verifier.end, li.AssertInst: _Verifier.assert_,
    li.BarrierInst: _Verifier.barrier, li.FenceInst: _Verifier.fence,
    li.SpecialInst: _Verifier.special, li.ClockInst: _Verifier.clock,
    li.AddressInst: _Verifier.address,
    li.AtomicInst: _Verifier.atomic, li.CallInst: _Verifier.call,
    li.PrintInst: _Verifier.print_, li.PrefetchInst: _Verifier.prefetch,
}  # fmt: skip


def _line(inst: Inst) -> str:
    try:
        return inst_text(inst)
    except Exception:  # what is malformed may not even print
        return type(inst).__name__
