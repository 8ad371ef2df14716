"""One function of an LLVM module: the instructions of a kernel, or the body of a parallel loop."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from weft.errors import UnsupportedError, VerifyError
from weft.imports import Late
from weft.ir import linear as li
from weft.ir.linear import Inst, Value
from weft.ir.op import Op
from weft.ir.stmt import Memory
from weft.renderers import ranges
from weft.renderers.base import NO_MEMORY, STOPPED
from weft.renderers.llvm import llvm_memory as memory
from weft.renderers.llvm.llvm_failure import LAUNCH, report
from weft.renderers.llvm.llvm_kernel import Captured, KernelText, Region, symbol
from weft.renderers.llvm.llvm_ops import compute
from weft.renderers.llvm.llvm_types import FunctionWriter, element, stored, vector
from weft.target import LARGE_BYTES

if TYPE_CHECKING:
    from weft.renderers.llvm import llvm_atomic, llvm_print
else:
    llvm_atomic = Late("weft.renderers.llvm.llvm_atomic")
    llvm_print = Late("weft.renderers.llvm.llvm_print")

__all__ = ["Function"]

_POOL: Final = "weft_parallel_for"
_LINE: Final = 64  # bytes of a cache line
_TURNS: Final = 256  # of loops that may not end, after which one asks for an interrupt


class Function(FunctionWriter):
    """The entry function, or the body of one parallel loop (`parallel` is its Loop)."""

    def __init__(self, owner: KernelText, parallel: li.Loop | None) -> None:
        super().__init__(owner.module)
        self.owner, self.parallel = owner, parallel
        self.allocas: list[str] = []
        self._on_heap: list[str] = []
        self._turns = ""  # the count of turns up to the next question for an interrupt
        self._leaves: list[int] = []  # where the function returns, in its lines
        self.prologue: list[str] = []
        self.pointers: dict[str, str] = {}  # by memory name
        self.open: list[Region] = []
        self.captured: dict[str, Captured] = {}
        self.env_bytes = 0
        self.heap_bytes = 0

    # entry and exit -----------------------------------------------------------------

    def text(self, head: str) -> str:
        """Return the whole function."""
        if self.owner.stops and self.parallel is None:
            for place in reversed(self._leaves):
                self.lines.insert(place, "  call void @weft.turned(ptr %launch)")
            self._leaves = [place + k for k, place in enumerate(self._leaves)]
            self.allocas.append("  %launch = alloca [16 x i8], align 8")
            self.prologue = [*LAUNCH, *self.prologue]
        if not self.heap_bytes:
            return "\n".join([head, "entry:", *self.allocas, *self.prologue, *self.lines, "}"])
        for place in reversed(self._leaves):
            self.lines.insert(place, "  call void @free(ptr %heap.own)")
        return "\n".join([head, "start:", *self.allocas, *self.prologue, *self._reserve(),
                          "entry:", *self.lines, "}"])

    def heap(self, size: int) -> str:
        """Return the address of bytes that the function has while it runs, too many for a stack."""
        self.status()
        name = f"%heap.{self.heap_bytes}"
        self._on_heap.append(f"  {name} = getelementptr i8, ptr %heap, i64 {self.heap_bytes}")
        self.heap_bytes += size
        return name

    def _reserve(self) -> list[str]:
        """Return the code that gets the heap memory of the function in one piece, or fails."""
        size, line = self.heap_bytes + _LINE, _LINE - 1
        if self.parallel is None:
            status, ret = "%status", f"ret i32 {NO_MEMORY}"
        else:
            status, ret = self.captured["status"].name, "ret void"
        self.module.declare("declare noalias ptr @malloc(i64)")
        self.module.declare("declare void @free(ptr)")
        return [
            f"  %heap.own = call noalias ptr @malloc(i64 {size})",
            "  %heap.none = icmp eq ptr %heap.own, null",
            "  br i1 %heap.none, label %heap.lacks, label %heap.there",
            "heap.lacks:",
            *report(status, f"{NO_MEMORY}", f"{NO_MEMORY - 1}", f"{size}", "0"),
            f"  {ret}",
            "heap.there:",
            "  %heap.number = ptrtoint ptr %heap.own to i64",
            "  %heap.before = sub i64 0, %heap.number",
            f"  %heap.pad = and i64 %heap.before, {line}",
            "  %heap = getelementptr inbounds i8, ptr %heap.own, i64 %heap.pad",
            *self._on_heap,
            "  br label %entry",
        ]

    def private(self, size: int) -> str:
        """Return the address of some bytes on the stack."""
        name = f"%own{len(self.allocas)}"
        self.allocas.append(f"  {name} = alloca [{size} x i8], align 16")
        return name

    def leave(self, ret: str) -> None:
        """Append a return; non-temporal stores are ordered before it."""
        if self.streams and self.owner.target.arch == "x86_64":
            self.perform("llvm.x86.sse.sfence")
        self._leaves.append(len(self.lines))
        self.put(ret)

    def pointer(self, mem: Memory) -> str:
        """Return the base address of a memory."""
        known = self.pointers.get(mem.name)
        if known is not None:
            return known
        if self.parallel is not None:
            text = self.capture(f"memory {mem.name}", "ptr", 8, mem)
        else:
            slot = self.owner.memories.slot(mem)
            text = f"%p{slot}"
            at = "%buffers"
            if slot:
                at = f"%p{slot}.at"
                self.prologue.append(f"  {at} = getelementptr ptr, ptr %buffers, i64 {slot}")
            self.prologue.append(f"  {text} = load ptr, ptr {at}")
        self.pointers[mem.name] = text
        return text

    def ref(self, value: Value) -> str:
        """Return the operand text of a value, captured from the caller if it lies outside."""
        literal = self.module.literals.get(value.id)
        if literal is not None:
            return literal
        name = self.names.get(value.id)
        if name is None:
            if value.id in self.displaced:
                start, distance = self.displaced[value.id]
                return self.once(f"add i64 {self.ref(start)}, {distance}")
            if self.parallel is None:
                raise VerifyError("render", found=f"{value!r} used before its definition")
            name = self.capture_value(value)
            self.names[value.id] = name
        return name

    def status(self) -> str:
        """Return the address of the status record."""
        return "%status" if self.parallel is None else self.capture("status", "ptr", 8, "%status")

    def capture(self, key: str, kind: str, size: int, source: Value | Memory | str) -> str:
        """Return what the caller's block holds under `key`, loaded at entry."""
        known = self.captured.get(key)
        if known is not None:
            return known.name
        offset = -(-self.env_bytes // size) * size
        self.env_bytes = offset + size
        name = f"%c{len(self.captured)}"
        self.captured[key] = Captured(offset, kind, name, source)
        self.prologue.append(f"  {name}.at = getelementptr i8, ptr %env, i64 {offset}")
        self.prologue.append(f"  {name} = load {kind}, ptr {name}.at, align {min(size, 64)}")
        return name

    def capture_value(self, value: Value) -> str:
        """Capture one value; bools travel as bytes."""
        kind = vector(stored(value.dtype), value.lanes)
        size = 1 << max(3, (value.dtype.itemsize * value.lanes - 1).bit_length())
        name = self.capture(f"value {value.id}", kind, size, value)
        if value.dtype.kind == "b":
            self.prologue.append(f"  {name}.b = trunc {kind} {name} to {self.type_of(value)}")
            name += ".b"
        return name

    # instructions -------------------------------------------------------------------

    def code(self, begin: int, end: int) -> None:
        """Write the instructions from `begin` up to `end`."""
        code = self.owner.kernel.code
        position = begin
        while position < end:
            inst = code[position]
            kind = type(inst)
            if isinstance(inst, li.Compute):
                self.compute(inst)
            elif isinstance(inst, li.Loop):
                if inst.kind == li.PARALLEL and self.parallel is None:
                    position = self.region(inst, position)
                elif inst.begin is None is inst.step:
                    self.loop(inst, "0", self.ref(inst.extent))
                else:
                    raise UnsupportedError("render", found="a loop of a work-item",
                                           expected="loops that begin at 0")
            else:
                writer = _WRITERS.get(kind)
                if writer is None:
                    raise UnsupportedError("render", found=kind.__name__,
                                           expected="an instruction of kernel level")
                writer(self, inst)
            position += 1

    def define(self, value: Value, text: str) -> None:
        """Record what a value is called."""
        if text.startswith("%"):
            self.names[value.id] = text
        else:
            self.module.literals[value.id] = text

    def compute(self, inst: li.Compute) -> None:
        """Write a pure instruction."""
        if not memory.displace(self, inst):
            self.define(inst.result, compute(self, inst))
        ranges.record(self.module.ranges, inst)
        if inst.op is Op.CONST:
            self.module.numbers[inst.result.id] = inst.attr
        elif inst.op is Op.BROADCAST and inst.args[0].id in self.module.numbers:
            self.module.numbers[inst.result.id] = self.module.numbers[inst.args[0].id]

    def loop(self, inst: li.Loop, begin: str, end: str) -> None:
        """Write the head of a loop over [begin, end), tested at its end."""
        region = Region(inst)
        region.head, region.after = self.label("loop"), self.label("end")
        before = self.block
        # Between loops that may not run LLVM would keep tiles in memory.
        if begin == "0" and ranges.of(self.module.ranges, inst.extent)[0] > 0:
            self.put(f"br label %{region.head}")
        else:
            some = self.new(f"icmp slt i64 {begin}, {end}")
            self.put(f"br i1 {some}, label %{region.head}, label %{region.after}")
        self.begin(region.head)
        region.phi = len(self.lines)
        # The other arm, from the end of the body, is filled in when that is known.
        name = f"%i{inst.var.id}"
        region.other = end
        ranges.record_loop(self.module.ranges, inst.var, inst.extent)
        self.put(f"{name} = phi i64 [ {begin}, %{before} ], [ {name}.next, %")
        self.names[inst.var.id] = name
        self.open.append(region)

    def end_loop(self, inst: Inst) -> None:
        """Write the end of the innermost loop."""
        region = self.open.pop()
        assert isinstance(region.inst, li.Loop)
        name = f"%i{region.inst.var.id}"
        self.lines[region.phi] += f"{self.block} ]"
        self.put(f"{name}.next = add nuw nsw i64 {name}, 1")
        more = self.new(f"icmp slt i64 {name}.next, {region.other}")
        back = self.module.loop_end()
        self.put(f"br i1 {more}, label %{region.head}, label %{region.after}{back}")
        self.begin(region.after)

    def region(self, inst: li.Loop, position: int) -> int:
        """Write a parallel loop as a function of its own and a call of the pool."""
        owner = self.owner
        end = owner.regions[position].end
        extent = self.ref(inst.extent)
        body = Function(owner, inst)
        body.loop(inst, "%begin", "%end")
        body.code(position + 1, end + 1)
        body.leave("ret void")
        plain = f"{owner.name}.par{len(owner.functions)}"
        name = symbol(plain)
        head = f"define internal void {name}(ptr noalias %env, i64 %begin, i64 %end) #0 {{"
        owner.functions.append(body.text(head))
        env = self.environment(body)
        known = self.module.numbers.get(inst.extent.id)
        if known is not None and known <= 1:
            if known == 1:
                self.put(f"call void {name}(ptr {env}, i64 0, i64 1)")
        else:
            self.module.imports[_POOL] = None
            self.perform(_POOL, ("ptr", name), ("ptr", env), ("i64", extent))
        if "status" in body.captured:
            self.after_region()
        return end

    def environment(self, body: Function) -> str:
        """Store what a parallel body captured in a block on this stack; return its address."""
        if not body.captured:
            return "null"
        env = f"%env{len(self.owner.functions)}"
        self.allocas.append(f"  {env} = alloca [{body.env_bytes} x i8], align 64")
        for entry in body.captured.values():
            source, kind = entry.source, entry.kind
            if isinstance(source, str):
                text = source
            elif isinstance(source, Memory):
                text = self.pointer(source)
            else:
                text = self.ref(source)
                if source.dtype.kind == "b":
                    text = self.new(f"zext {self.typed(source)} to {kind}")
            at = self.new(f"getelementptr i8, ptr {env}, i64 {entry.offset}")
            self.put(f"store {kind} {text}, ptr {at}, align 8")
        return env

    def after_region(self) -> None:
        """Return early if an iteration of the region failed."""
        code = self.new("load atomic i32, ptr %status acquire, align 8")
        failed = self.new(f"icmp ne i32 {code}, 0")
        out, on = self.label("failed"), self.label("on")
        self.put(f"br i1 {failed}, label %{out}, label %{on}")
        self.begin(out)
        self.leave(f"ret i32 {code}")
        self.begin(on)

    def check(self, inst: li.AssertInst) -> None:
        """Write an assertion: on failure write the status once and leave the function."""
        condition = self.ref(inst.condition)
        if condition == "true":
            return
        value = "0" if inst.value is None else self.ref(inst.value)
        bound = "0" if inst.bound is None else self.ref(inst.bound)
        status = self.status()
        self.owner.asserts = True
        bad, on = self.label("failed"), self.label("on")
        weights = self.module.unlikely
        self.put(f"br i1 {condition}, label %{on}, label %{bad}, !prof {weights}")
        self.begin(bad)
        reported = f"i32 {inst.message}, i64 {value}, i64 {bound}"
        self.put(f"call void @weft.fail(ptr {status}, {reported})")
        self.leave(f"ret i32 {inst.message + 1}" if self.parallel is None else "ret void")
        self.begin(on)

    def variable(self, inst: li.VariableInst) -> None:
        """Read the value of a variable."""
        name = f"%v{inst.result.id}"
        base = "%vars" if self.parallel is None else self.capture("vars", "ptr", 8, "%vars")
        at = self.new(f"getelementptr i64, ptr {base}, i64 {inst.slot}")
        low, high = inst.bounds.min, inst.bounds.max
        self.module.ranges[inst.result.id] = (low, high)
        node = ""
        if high < (1 << 63) - 1:
            node = ", !range " + self.module.node(f"!{{i64 {low}, i64 {high + 1}}}")
        self.put(f"{name} = load i64, ptr {at}{node}")
        self.names[inst.result.id] = name

    def while_begin(self, inst: Inst) -> None:
        """Write the start of a while loop."""
        region = Region(inst)
        region.head, region.after = self.label("while"), self.label("end")
        self.put(f"br label %{region.head}")
        self.begin(region.head)
        self.open.append(region)

    def while_test(self, inst: li.WhileTest) -> None:
        """Write the test of a while loop."""
        region, body = self.open[-1], self.label("body")
        self.put(f"br i1 {self.ref(inst.condition)}, label %{body}, label %{region.after}")
        self.begin(body)

    def end_while(self, inst: Inst) -> None:
        """Write the end of a while loop."""
        region = self.open.pop()
        if isinstance(region.inst, li.WhileBegin) and region.inst.endless:
            self._stop_if_asked(region.head)
        else:
            self.put(f"br label %{region.head}{self.module.loop_end()}")
        self.begin(region.after)

    def _stop_if_asked(self, head: str) -> None:
        """Write the way back to the head of a loop, which an interrupt makes one out of it."""
        self.owner.stops = True
        self.module.imports |= {"weft_turns": None, "weft_turned": None, "weft_stop": None}
        if not self._turns:
            self._turns = "%turns"
            self.allocas.append("  %turns = alloca [4 x i8], align 4")
            self.prologue.append(f"  store i32 {_TURNS}, ptr %turns, align 4")
        launch = "%launch"
        if self.parallel is not None:
            launch = self.capture("launch", "ptr", 8, "%launch")
        ask, on, out = self.label("ask"), self.label("on"), self.label("stopped")
        left = self.new(f"sub i32 {self.new('load i32, ptr %turns, align 4')}, 1")
        self.put(f"store i32 {left}, ptr %turns, align 4")
        some = self.new(f"icmp ne i32 {left}, 0")
        self.put(f"br i1 {some}, label %{head}, label %{ask}, !prof {self.module.unlikely}")
        self.begin(ask)
        stop = self.new(f"call i64 @weft_turns(ptr {launch})")
        goes = self.new(f"icmp eq i64 {stop}, 0")
        self.put(f"br i1 {goes}, label %{on}, label %{out}, !prof {self.module.unlikely}")
        self.begin(on)
        self.put(f"store i32 {_TURNS}, ptr %turns, align 4")
        self.put(f"br label %{head}")
        self.begin(out)
        self.put(f"call void @weft.stopped(ptr {self.status()})")
        self.leave(f"ret i32 {STOPPED}" if self.parallel is None else "ret void")

    def if_begin(self, inst: li.IfBegin) -> None:
        """Write a branch."""
        region, then = Region(inst), self.label("then")
        region.other, region.after = self.label("else"), self.label("end")
        self.put(f"br i1 {self.ref(inst.condition)}, label %{then}, label %{region.other}")
        self.begin(then)
        self.open.append(region)

    def otherwise(self, inst: Inst) -> None:
        """Write the start of the other branch."""
        region = self.open[-1]
        self.put(f"br label %{region.after}")
        self.begin(region.other)
        region.other = ""

    def end_if(self, inst: Inst) -> None:
        """Write the end of a branch."""
        region = self.open.pop()
        self.put(f"br label %{region.after}")
        if region.other:  # no else
            self.begin(region.other)
            self.put(f"br label %{region.after}")
        self.begin(region.after)

    def barrier(self, inst: Inst) -> None:
        """Accept a barrier outside parallel regions, where there is one thread."""
        if self.parallel is not None:
            raise UnsupportedError("render", found="a barrier inside a parallel loop",
                                   expected="the loop split at the barrier")

    def call(self, inst: li.CallInst) -> None:
        """Call a scalar function of the process by its symbol."""
        if len(inst.vars) > 1 or any(v.lanes > 1 for v in (*inst.vars, *inst.args)):
            raise UnsupportedError("render", found=f"a call of {inst.callee}",
                                   expected="scalar arguments and at most one result")
        result = element(inst.vars[0].dtype) if inst.vars else "void"
        args = [(element(a.dtype), self.ref(a)) for a in inst.args]
        self.module.imports[inst.callee] = None
        if inst.vars:
            self.names[inst.vars[0].id] = self.intrinsic(inst.callee, result, *args)
        else:
            self.perform(inst.callee, *args)

    def clock(self, inst: li.ClockInst) -> None:
        """Read the processor's counter where programs may, else the system's clock."""
        if inst.kind == "cycles" and self.owner.target.arch == "x86_64":
            self.module.declare("declare i64 @llvm.readcyclecounter()")
            self.names[inst.result.id] = self.new("call i64 @llvm.readcyclecounter()")
            return
        at = f"%clock{len(self.allocas)}"
        self.allocas.append(f"  {at} = alloca [16 x i8], align 8")
        self.module.declare("declare i32 @clock_gettime(i32, ptr)")
        monotonic = 1 if sys.platform == "linux" else 6
        self.new(f"call i32 @clock_gettime(i32 {monotonic}, ptr {at})")
        seconds = self.new(f"load i64, ptr {at}")
        rest = self.new(f"load i64, ptr {self.new(f'getelementptr i8, ptr {at}, i64 8')}")
        whole = self.new(f"mul i64 {seconds}, 1000000000")
        self.names[inst.result.id] = self.new(f"add i64 {whole}, {rest}")


def _storage(f: Function, inst: li.StorageInst) -> None:
    mem = inst.memory
    if inst.base is not None:
        f.pointers[mem.name] = f.pointer(inst.base)
        return
    size, fits = memory.stack_bytes(f.allocas, inst)
    total = size + f.heap_bytes
    if f.owner.kernel.meta.kind != "custom" and total > LARGE_BYTES:
        found = f"{size} bytes of {mem.name}, {total} in all"
        raise UnsupportedError("render", found=found, hint="tile the loop so that less is kept",
                               expected=f"private arrays of {LARGE_BYTES} bytes in all")
    if not fits:
        f.pointers[mem.name] = f.heap(size)
        return
    f.pointers[mem.name] = name = f"%m{len(f.allocas)}"
    f.allocas.append(f"  {name} = alloca [{size} x i8], align {max(inst.align, 64)}")


def _address(f: Function, inst: li.AddressInst) -> None:
    f.names[inst.result.id] = f.new(f"ptrtoint ptr {f.pointer(inst.memory)} to i64")


_WRITERS: Final[dict[type[Inst], Callable[[Function, Any], None]]] = {
    li.LoadInst: lambda f, i: memory.load(f, f.owner.memories, i, f.pointer(i.memory)),
    li.StoreInst: lambda f, i: memory.store(f, f.owner.memories, i, f.pointer(i.memory)),
    li.StorageInst: _storage,
    li.VariableInst: Function.variable,
    li.EndLoop: Function.end_loop,
    li.WhileBegin: Function.while_begin,
    li.WhileTest: Function.while_test,
    li.EndWhile: Function.end_while,
    li.IfBegin: Function.if_begin,
    li.Else: Function.otherwise,
    li.EndIf: Function.end_if,
    li.AssertInst: Function.check,
    li.BarrierInst: Function.barrier, li.FenceInst: lambda f, i: llvm_atomic.fence(f, i),
    li.AtomicInst: lambda f, i: llvm_atomic.atomic(f, i, f.pointer(i.memory)),
    li.CallInst: Function.call, li.ClockInst: Function.clock, li.AddressInst: _address,
    li.PrintInst: lambda f, i: llvm_print.line(f, i),
    li.PrefetchInst: lambda f, i: memory.prefetch(f, i, f.pointer(i.memory)),
}  # fmt: skip
