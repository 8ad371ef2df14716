"""The interpreter of kernel level: instructions to Python source.

What work-items do together is a generator for each of them, which waits at barriers of the group
(`weft.ir.interpret.interpret.run_launch`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from weft.errors import UnsupportedError, VerifyError
from weft.ir.interpret.interpret_code import PythonCode, atomic_op, zero
from weft.ir.interpret.interpret_scalar import function
from weft.ir.linear import (
    AddressInst,
    AssertInst,
    AtomicInst,
    BarrierInst,
    CallInst,
    ClockInst,
    Compute,
    Else,
    EndIf,
    EndLoop,
    EndWhile,
    FenceInst,
    IfBegin,
    Inst,
    LinearKernel,
    LoadInst,
    Loop,
    PrefetchInst,
    PrintInst,
    SpecialInst,
    StorageInst,
    StoreInst,
    Value,
    VariableInst,
    WhileBegin,
    WhileTest,
    regions,
)  # fmt: skip
from weft.ir.stmt import Memory


class LinearCode(PythonCode):
    """Translates one kernel."""

    def __init__(self, kernel: LinearKernel, functions: Mapping[str, Callable[..., Any]],
                 item: bool = False) -> None:  # fmt: skip
        super().__init__()
        self.kernel, self.functions = kernel, functions
        self.item = item  # what one work-item does, which waits for others
        self.arrays: dict[Memory, str] = {m: f"p{i}" for i, m in enumerate(kernel.params)}
        self.defined: set[int] = set()

    def translate(self) -> Callable[..., None]:
        """Return the kernel as a function of its flat arrays and {variable: value}."""
        regions(self.kernel.code)
        for inst in self.kernel.code:
            handler = _HANDLERS.get(type(inst))
            if handler is None:
                raise UnsupportedError("interpret", found=type(inst).__name__)
            handler(self, inst)
        parameters = [f"p{i}" for i in range(len(self.kernel.params))]
        if not self.item:
            return self.compile(self.kernel.name, [*parameters, "variables"])
        self.emit("yield")
        return self.compile(self.kernel.name, [*parameters, "variables", "registers", "group"])

    def use(self, v: Value) -> str:
        """Return the Python name of a defined value."""
        if v.id not in self.defined:
            raise VerifyError("interpret", found=f"a use of {v!r} before its definition")
        return f"v{v.id}"

    def define(self, v: Value) -> str:
        """Return the Python name of a new value."""
        if v.id in self.defined:
            raise VerifyError("interpret", found=f"a second definition of {v!r}")
        self.defined.add(v.id)
        return f"v{v.id}"

    def array(self, memory: Memory) -> str:
        """Return the Python name of a memory."""
        if memory not in self.arrays:
            raise VerifyError("interpret", found=f"the memory {memory.name}",
                              expected="a parameter or a storage before its use")
        return self.arrays[memory]

    def _compute(self, inst: Compute) -> None:
        args = [self.use(v) for v in inst.args]
        r = inst.result
        operand = inst.args[-1].dtype if inst.args else None
        text = self.operation(inst.op, operand, r.dtype, r.lanes, inst.attr, args)
        self.emit(f"{self.define(r)} = {text}")

    def _variable(self, inst: VariableInst) -> None:
        self.emit(f"{self.define(inst.result)} = variables[{inst.bounds.name!r}]")

    def offsets(self, offset: Value, lanes: int, mask: Value | None) -> str:
        """Return the list of flat offsets of an access, None where masked."""
        name = self.use(offset)
        several = name if offset.lanes > 1 else f"range({name}, {name} + {lanes})"
        if mask is None:
            return several
        masks = self.use(mask) if mask.lanes > 1 else f"({self.use(mask)},) * {lanes}"
        return f"[i if m else None for i, m in zip({several}, {masks})]"

    def _load(self, inst: LoadInst) -> None:
        array, r = self.array(inst.memory), inst.result
        fill = repr(zero(r.dtype)) if inst.fill is None else self.use(inst.fill)
        if r.lanes > 1:
            offsets = self.offsets(inst.offset, r.lanes, inst.mask)
            self.emit(f"{self.define(r)} = vector_load({array}, {inst.memory.name!r}, "
                      f"{offsets}, {fill}, None)")
            return
        offset, mask = self.use(inst.offset), inst.mask
        name = self.define(r)
        if mask is not None:
            self.emit(f"{name} = {fill}")
            self.emit(f"if {self.use(mask)}:")
            self.indent += 1
        self.check(inst.memory, offset)
        self.emit(f"{name} = {array}[{offset}]")
        if inst.memory.scope != "global":
            self.emit(f"if {name} is None: uninitialised({inst.memory.name!r}, {offset}, None)")
        if mask is not None:
            self.indent -= 1

    def check(self, memory: Memory, offset: str) -> None:
        """Emit the check of a scalar offset."""
        array = self.arrays[memory]
        self.emit(f"if not 0 <= {offset} < len({array}): "
                  f"out_of_bounds({memory.name!r}, {offset}, len({array}), None)")

    def _store(self, inst: StoreInst) -> None:
        array, value = self.array(inst.memory), self.use(inst.value)
        if inst.value.lanes > 1:
            offsets = self.offsets(inst.offset, inst.value.lanes, inst.mask)
            self.emit(f"vector_store({array}, {inst.memory.name!r}, {offsets}, {value}, None)")
            return
        offset = self.use(inst.offset)
        if inst.mask is not None:
            self.emit(f"if {self.use(inst.mask)}:")
            self.indent += 1
        self.check(inst.memory, offset)
        self.emit(f"{array}[{offset}] = {value}")
        if inst.mask is not None:
            self.indent -= 1

    def _clock(self, inst: ClockInst) -> None:
        self.emit(f"{self.define(inst.result)} = {self.object(time.perf_counter_ns)}()")

    def _address(self, inst: AddressInst) -> None:
        self.emit(f"{self.define(inst.result)} = 0")  # of lists: aligned to anything

    def _storage(self, inst: StorageInst) -> None:
        if inst.base is not None:
            raise UnsupportedError("interpret", found=f"{inst.memory.name}, which lies over other "
                                   "memory", expected="memories of their own")
        name = self.fresh("m")
        made = f"[None] * {inst.size}"
        if inst.memory.scope == "shared" and self.item:
            made = f"group.setdefault({inst.memory.name!r}, {made})"
        self.emit(f"{name} = {made}")
        self.arrays[inst.memory] = name

    def _loop(self, inst: Loop) -> None:
        begin = "0" if inst.begin is None else self.use(inst.begin)
        step = "1" if inst.step is None else self.use(inst.step)
        turns = f"range({begin}, {self.use(inst.extent)}, {step})"
        self.begin(f"for {self.define(inst.var)} in {turns}:", outline=not self.item)

    def _special(self, inst: SpecialInst) -> None:
        if not self.item:
            raise UnsupportedError("interpret", found=f"the register {inst.register}",
                                   expected="a launch of work-items")
        self.emit(f"{self.define(inst.result)} = registers[{inst.register!r}]")

    def _barrier(self, inst: BarrierInst) -> None:
        if self.item:
            self.emit("yield")

    def _end_block(self, _: Inst) -> None:
        self.end()

    def _while_begin(self, _: WhileBegin) -> None:
        self.begin("while True:")

    def _while_test(self, inst: WhileTest) -> None:
        self.emit(f"if not {self.use(inst.condition)}: break")

    def _if_begin(self, inst: IfBegin) -> None:
        self.emit(f"if {self.use(inst.condition)}:")
        self.indent += 1
        self.emit("pass")

    def _else(self, _: Else) -> None:
        self.indent -= 1
        self.emit("else:")
        self.indent += 1
        self.emit("pass")

    def _end_if(self, _: EndIf) -> None:
        self.indent -= 1

    def _assert(self, inst: AssertInst) -> None:
        text, location = self.kernel.messages[inst.message]
        value = "None" if inst.value is None else self.use(inst.value)
        bound = "None" if inst.bound is None else self.use(inst.bound)
        self.emit(f"if not {self.use(inst.condition)}: "
                  f"failed({text!r}, {value}, {bound}, {self.place(location)})")

    def _atomic(self, inst: AtomicInst) -> None:
        d = inst.memory.dtype
        op = atomic_op(inst.kind, d)
        array, offset = self.array(inst.memory), self.use(inst.offset)
        fn = None if op is None else self.object(function(op, d, d), ("atomic", op, d))
        compare = None if inst.compare is None else self.use(inst.compare)
        self.check(inst.memory, offset)
        value = self.use(inst.value)
        self.emit(f"{self.define(inst.result)} = exchange({array}, {offset}, {inst.kind!r}, "
                  f"{value}, {compare}, {fn})")

    def _call(self, inst: CallInst) -> None:
        if inst.callee not in self.functions:
            raise UnsupportedError("interpret", found=f"a call of {inst.callee}",
                                   hint="pass it in functions=")
        args = ", ".join(self.use(a) for a in inst.args)
        target = ", ".join(self.define(v) for v in inst.vars) + ", = " if inst.vars else ""
        self.emit(f"{target}{self.object(self.functions[inst.callee])}({args})")

    def _print(self, inst: PrintInst) -> None:
        values = ", ".join(self.text_of(self.use(a), a.dtype, a.lanes) for a in inst.args)
        if inst.text.endswith("\n"):
            self.emit(f"print({inst.text!r}.format({values}), end='')")
        else:
            self.emit(f"print({inst.text!r}, {values})")

    def _nothing(self, _: Inst) -> None:
        """Fences and prefetches change nothing when iterations run one after another."""


_HANDLERS: dict[type[Inst], Callable[[LinearCode, Any], None]] = {
    Compute: LinearCode._compute, VariableInst: LinearCode._variable, LoadInst: LinearCode._load,
    StoreInst: LinearCode._store, StorageInst: LinearCode._storage, Loop: LinearCode._loop,
    EndLoop: LinearCode._end_block, WhileBegin: LinearCode._while_begin,
    WhileTest: LinearCode._while_test, EndWhile: LinearCode._end_block,
    IfBegin: LinearCode._if_begin, Else: LinearCode._else, EndIf: LinearCode._end_if,
    AssertInst: LinearCode._assert, AtomicInst: LinearCode._atomic, CallInst: LinearCode._call,
    PrintInst: LinearCode._print, BarrierInst: LinearCode._barrier, FenceInst: LinearCode._nothing,
    PrefetchInst: LinearCode._nothing, ClockInst: LinearCode._clock,
    AddressInst: LinearCode._address, SpecialInst: LinearCode._special,
}  # fmt: skip
