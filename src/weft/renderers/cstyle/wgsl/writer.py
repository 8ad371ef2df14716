"""The walk over one launch of a kernel in WGSL."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar, Final

from weft.ir import dtype as dt
from weft.ir import linear as li
from weft.ir.dtype import DType
from weft.ir.linear import Inst, LinearKernel, Value
from weft.ir.op import Op, Operation
from weft.renderers import ranges
from weft.renderers.base import CUT, encode_float
from weft.renderers.cstyle.base import Writer
from weft.renderers.cstyle.context import Row
from weft.renderers.cstyle.narrow import is_narrow
from weft.renderers.cstyle.text import ADD, ATOM, UNARY, Text, atom
from weft.renderers.cstyle.wgsl.loop_bounds import turns
from weft.renderers.cstyle.wgsl.memory import Place, atomic, get, put
from weft.renderers.cstyle.wgsl.operations import ROWS, is_wide
from weft.renderers.cstyle.wgsl.target import ENDS_LOOPS
from weft.renderers.cstyle.wgsl.text import HEAD_WORDS, PRINTED, RECORD_WORDS, RESERVED
from weft.renderers.cstyle.wgsl.uniformity import divergent, shared_value, shared_word
from weft.renderers.launches.launch_split import arrays_of
from weft.renderers.launches.work_items import Launches
from weft.target import Target

__all__ = ["WGSLWriter"]

_ALL: Final = (1 << 64) - 1
_OFFSETS: Final = 32  # bits of an offset: bindings have less than 2**31 bytes
_TURNS: Final = 50_000  # of loops of a work-item, above which some drivers may end them
_REGISTERS: Final = {
    li.LOCAL_ID: "bitcast<i32>(local_id)", li.GROUP_ID: "bitcast<i32>(group_id.x)",
    li.NUM_GROUPS: "bitcast<i32>(num_groups.x)",
}  # fmt: skip
_HEAD: Final = ("@builtin(local_invocation_index) local_id: u32, "
                "@builtin(workgroup_id) group_id: vec3<u32>, "
                "@builtin(num_workgroups) num_groups: vec3<u32>")  # fmt: skip


class WGSLWriter(Writer):
    """Writes one launch of a kernel."""

    TYPES: ClassVar[dict[DType, str]] = {
        d: "bool" if d.is_bool else "vec2<u32>" if d.bits == 64 else
        "i32" if d.kind == "i" else "f32" if d is dt.float32 else "u32" for d in dt.ALL
    }  # fmt: skip
    ROWS: ClassVar[dict[Operation, Row]] = ROWS
    WRAPS: ClassVar[bool] = True
    RESERVED: ClassVar[frozenset[str]] = RESERVED

    def __init__(self, target: Target, kernel: LinearKernel, name: str, items: int, cut: Launches,
                 before: WGSLWriter | None = None) -> None:  # fmt: skip
        super().__init__(target, kernel, name)
        self.items = items
        self.first = before is None
        self.functions: dict[str, None] = {}  # of the library
        self.used: dict[str, dict[str, None]] = {}  # accessors, by array
        self.shared: dict[str, int] = {}  # words of arrays of groups
        self.printed: list[tuple[str, list[str]]] = []
        self.places: dict[str, Place] = {}
        if before is None:
            self._place_arrays(cut)
        else:  # one text: what was written before is there
            self.helpers, self.functions, self.used = before.helpers, before.functions, before.used
            self.names, self.memories, self.sizes = before.names, before.memories, before.sizes
            self.shared, self.printed = before.shared, before.printed
            self.places = dict(before.places)
        self.fails = False
        self.names.take(name)
        self.literals: set[int] = set()
        self.bases = {i.base.name for i in kernel.code
                      if isinstance(i, li.StorageInst) and i.base is not None}
        self.read = {name for i in kernel.code if not isinstance(i, li.StoreInst)
                     and not isinstance(i, li.StorageInst) for name in arrays_of(i)}
        self.read |= self.bases
        self.divergent = divergent(kernel.code)
        self.users: dict[int, list[Inst]] = {}
        for inst in kernel.code:
            for v in inst.operands():
                self.users.setdefault(v.id, []).append(inst)

    def _place_arrays(self, cut: Launches) -> None:
        """Note where parameters and arrays in the scratch buffer are."""
        for m in self.kernel.params:
            called = self.memories[m.name]
            self.places[m.name] = Place(called, called, f"weft.{called}_at")
            self.used[called] = {}
        for array, (memory, at) in cut.scratch.items():
            called = self.names.take(array)
            self.places[array] = Place(called, "scratch", f"{at // memory.dtype.itemsize}u")

    # the text

    def entry(self) -> str:
        """Return the entry of the launch."""
        code = self.kernel.code
        if not self.first and self.kernel.messages:
            failed = f"{self.accessor('status', 'load')}(0u)"
            if any(isinstance(inst, li.BarrierInst) for inst in code):
                failed = f"{shared_word(self, f'vec2<u32>({failed}, 0u)')}.x"
            self.emit(f"if ({failed} != 0u) {{ return; }}")
        self.code(0, len(code))
        if ENDS_LOOPS in self.target.features and turns(self.kernel.code) > _TURNS:
            self._test_loops()
        head = f"@compute @workgroup_size({self.items})\nfn {self.name}({_HEAD}) {{"
        return "\n".join([head, *self.lines, "}"])

    def _test_loops(self) -> None:
        """Fail if loops have come to the turn at which the driver ends each of them."""
        self.fails = True
        for use in ("cas", "store"):
            self.accessor("status", use)
        code, zero = CUT + (1 << 32), self.literal(0, dt.int64).text
        for line in ("var weft_left = weft_zero() + 3u;",
                     "for (; weft_left != 0u; weft_left -= 1u + weft_zero()) {", "}",
                     f"if (weft_left != 0u) {{ weft_fail({code}u, 0u, {zero}, {zero}); }}"):
            self.emit(line)

    def accessor(self, array: str, what: str) -> str:
        """Return a function of words of an array: load, store, or one that is atomic."""
        self.used.setdefault(array, {})[what] = None
        return f"weft_{what}_{array}"

    def function(self, name: str) -> str:
        """Return a function of the library, which is written before the kernel."""
        self.functions[name] = None
        return name

    # words

    def cast(self, d: DType, text: Text) -> Text:
        """Return a word as another of 32 bits."""
        return self.call(f"bitcast<{self.type(d)}>", text)

    def integer(self, text: Text, source: DType, to: DType) -> Text:
        """Return an integer or bool as an integer of another type, wrapped around."""
        if is_wide(source):
            if is_wide(to):
                return text
            text, source = atom(f"{text.at(ATOM)}.x"), dt.uint32
        if source.is_bool:
            low = self.call("select", "0u", "1u", text)
            if is_wide(to):
                return self.call("vec2<u32>", low, "0u")
            return self.call("select", "0i", "1i", text) if to.kind == "i" else low
        if is_wide(to):
            if source.kind == "u":
                return self.call("vec2<u32>", text, "0u")
            return self.call(self.function("weft_i64_of_i32"), text)
        if to.bits >= 32:
            return text if source.kind == to.kind else self.cast(to, text)
        if source.kind == to.kind and source.bits <= to.bits:
            return text
        if source.kind == "u" and source.bits < to.bits:
            return self.cast(to, text)
        bits = text if source.kind == "u" else self.cast(dt.uint32, text)
        if to.kind == "u":
            return atom(f"({bits.at(UNARY)} & {(1 << to.bits) - 1:#x}u)")
        room = 32 - to.bits
        return atom(f"(bitcast<i32>({bits.at(UNARY)} << {room}u) >> {room}u)")

    def bitcast(self, text: Text, source: DType, to: DType) -> Text:
        """Return the same bits as a value of another type of that width."""
        a, b = self.type(source), self.type(to)
        if source is to or (a == b and source.bits >= 32):
            return text
        if source.bits == 32:
            return self.call(f"bitcast<{b}>", text)
        return self._short(text, source, to)

    def _short(self, text: Text, source: DType, to: DType) -> Text:
        """Return the bits of an element of 8 or 16 bits as another type's."""
        plain = source if source.kind in "iu" else dt.unsigned(source.bits)
        return self.integer(text, plain, to if to.kind in "iu" else dt.unsigned(to.bits))

    def literal(self, value: Any, d: DType) -> Text:
        """Return a scalar constant."""
        if d.is_bool:
            return atom("true" if value else "false")
        if is_wide(d):
            bits = (encode_float(float(value), d) if d.kind == "f" else int(value)) & _ALL
            return atom(f"vec2<u32>({bits & 0xFFFFFFFF}u, {bits >> 32}u)")
        if d is dt.float32:
            return self._real(float(value))
        if d.kind == "f":
            return atom(f"{encode_float(float(value), d):#x}u")
        if d.kind == "u":
            return atom(f"{int(value)}u")
        if int(value) == dt.int32.min:
            return atom("(-2147483647i - 1i)")
        return Text(f"{int(value)}i", UNARY if value < 0 else ATOM)

    def _real(self, value: float) -> Text:
        bits = encode_float(value, dt.float32)
        exponent = bits >> 23 & 0xFF
        if exponent in (0, 255) and bits != 0:  # which compilers refuse, or flush
            return self.call(self.function("weft_float"), f"{bits:#x}u")
        if abs(value) < 1 << 24 and value * 4 == int(value * 4):
            return Text(f"{value!r}f", UNARY if value < 0 else ATOM)
        return self.call("bitcast<f32>", f"{bits:#x}u")

    def hoisted(self, text: Text, d: DType) -> str:
        """Return a name for a value, written before what uses it."""
        name = self.names.take("held")
        self.emit(f"let {name} = {text.text};")
        return name

    def runtime(self, inst: li.Compute) -> tuple[Text, ...]:
        """Return operands, of which one at least is no constant: compilers refuse some of these."""
        texts = [self.operand(v) for v in inst.args]
        if all(v.id in self.literals for v in inst.args):
            texts[0] = atom(self.hoisted(texts[0], inst.args[0].dtype))
        return tuple(texts)

    def kept(self, inst: li.Compute, text: Text) -> Text:
        """Return a result of float arithmetic so that no driver folds it into what uses it."""
        if all(isinstance(user, li.StoreInst) for user in self.users.get(inst.result.id, ())):
            return text
        return self.call(self.function("weft_keep"), text)

    def is_asked_for(self, value: Value) -> bool:
        """Whether anybody reads a value, be it from a private array."""
        for user in self.users.get(value.id, ()):
            memory = user.memory.name if isinstance(user, li.StoreInst) else ""
            kept = bool(memory) and self.places[memory].private
            if not kept or memory in self.read:
                return True
        return False

    def is_natural(self, value: Value) -> bool:
        """Whether an integer is known not to be negative."""
        return self.ranges.get(value.id, (-1, -1))[0] >= 0

    def is_positive(self, value: Value) -> bool:
        """Whether an integer is known to be more than 0."""
        return self.ranges.get(value.id, (-1, -1))[0] > 0

    # instructions

    def declare(self, value: Value, text: Text | str) -> None:
        """Write a constant of the block."""
        self.type(value.dtype, value.lanes)
        name = self.named(value)
        self.emit(f"let {name} = {text if isinstance(text, str) else text.text};")
        self.texts[value.id] = atom(name)

    def compute(self, inst: li.Compute) -> None:
        """Write a pure operation."""
        result = inst.result
        if inst.op is Op.CONST:
            self.numbers[result.id] = inst.attr
            if result.lanes == 1:
                self.texts[result.id] = self.row(inst)(self, inst)
                self.literals.add(result.id)
                ranges.record(self.ranges, inst, (dt.int32, dt.int64))
                return
        ranges.record(self.ranges, inst, (dt.int32, dt.int64))
        self.define(result, self.row(inst)(self, inst))

    def variable(self, inst: li.VariableInst) -> None:
        """Read the value of a variable."""
        self.ranges[inst.result.id] = inst.bounds.min, inst.bounds.max
        self.texts[inst.result.id] = atom(f"weft.{self.sizes[inst.bounds.name]}")

    def special_register(self, inst: li.SpecialInst) -> None:
        """Read where the work-item is."""
        text = atom(_REGISTERS.get(inst.register) or f"{self.items}i")
        value = inst.result
        self.ranges[value.id] = (0, int(dt.int32.max))
        self.define(value, self.integer(text, dt.int32, dt.int64) if is_wide(value.dtype) else text)

    def index(self, value: Value) -> str:
        """Return an offset as a word."""
        text = self.operand(value)
        number = self.number(value)
        if number is not None:
            return f"{int(number) & 0xFFFFFFFF}u"
        if is_wide(value.dtype):
            return f"{text.at(ATOM)}.x"
        return f"u32({text.text})"

    def place(self, name: str) -> Place:
        """Return where an array is."""
        found: Place = self.places[name]
        return found

    def load(self, inst: li.LoadInst) -> None:
        """Write a load of one element."""
        value = inst.result
        self.type(value.dtype, value.lanes)
        text = get(self, self.place(inst.memory.name), inst.memory.dtype, self.index(inst.offset))
        if inst.mask is None or self.number(inst.mask):
            self.declare(value, text)
            return
        fill = self.literal(0, value.dtype) if inst.fill is None else self.operand(inst.fill)
        name = self.named(value)
        self.emit(f"var {name}: {self.type(value.dtype)} = {fill.text};")
        self.emit(f"if ({self.arg(inst.mask)}) {{ {name} = {text.text}; }}")
        self.texts[value.id] = atom(name)

    def store(self, inst: li.StoreInst) -> None:
        """Write a store of one element."""
        self.type(inst.value.dtype, inst.value.lanes)
        line = put(self, self.place(inst.memory.name), inst.memory.dtype, self.index(inst.offset),
                   self.operand(inst.value))  # fmt: skip
        if inst.mask is not None and not self.number(inst.mask):
            line = f"if ({self.arg(inst.mask)}) {{ {line} }}"
        self.emit(line)

    def storage(self, inst: li.StorageInst) -> None:
        """Declare an array of the block, or of the group."""
        memory, size = inst.memory, max(inst.size, 1)
        name, d = self.names.take(memory.name), memory.dtype
        if inst.base is not None:
            self.places[memory.name] = self._overlaid(name, inst.base.name, d)
            return
        words = -(-size * d.itemsize // 4)
        if memory.scope == "shared":
            self.places[memory.name] = Place(name, name, "")
            self.shared[name] = words
            self.used.setdefault(name, {})
            return
        if memory.name in self.bases:
            self.emit(f"var {name}: array<u32, {words}>;")
            self.places[memory.name] = Place(name, name, "", True)
            return
        kind = self.type(d)
        self.emit(f"var {name}: {kind if size == 1 else f'array<{kind}, {size}>'};")
        self.places[memory.name] = Place(name, "", "", True, size)

    def _overlaid(self, name: str, base: str, d: DType) -> Place:
        """Return the place of an array that is the bytes of another."""
        under = self.place(base)
        if not under.base:
            return under._replace(name=name)
        size = next(m.dtype.itemsize for m in li.memories(self.kernel) if m.name == base)
        if under.words == "scratch":
            return under._replace(name=name, base=f"{int(under.base[:-1]) * size // d.itemsize}u")
        return under._replace(name=name, base=f"({under.base} * {size}u / {d.itemsize}u)")

    def atomic(self, inst: li.AtomicInst) -> None:
        """Write an atomic operation."""
        made = atomic(self, inst, self.place(inst.memory.name), self.index(inst.offset),
                      self.operand(inst.value), self.operand(inst.compare or inst.value))
        if self.uses.count.get(inst.result.id):
            self.declare(inst.result, made)
        else:
            self.emit(f"_ = {made.text};")

    # control flow

    @contextmanager
    def _alike(self, inst: Inst) -> Iterator[None]:
        """Have an instruction read values that are known to be the same for all items."""
        before = {v.id: self.operand(v) for v in self.divergent.get(id(inst), ())}
        for value in self.divergent.get(id(inst), ()):
            self.texts[value.id] = shared_value(self, before[value.id], value)
        yield
        self.texts.update(before)

    def loop(self, inst: li.Loop) -> None:
        """Begin a loop."""
        with self._alike(inst):
            super().loop(inst)

    def if_begin(self, inst: li.IfBegin) -> None:
        """Begin a branch."""
        with self._alike(inst):
            super().if_begin(inst)

    def open_loop(self, inst: li.Loop, begin: str, end: str) -> None:
        """Begin a loop over [begin, end)."""
        name = self.named(inst.var)
        self.texts[inst.var.id] = atom(name)
        d = inst.var.dtype
        if inst.begin is None:
            begin = self.literal(0, d).text
        if is_wide(d):
            add, less = self.function("weft_add64"), self.function("weft_lt_i64")
            one = self.literal(1, d).text if inst.step is None else self.arg(inst.step)
            self.open(f"for (var {name} = {begin}; {less}({name}, {end}); "
                      f"{name} = {add}({name}, {one})) {{")  # fmt: skip
            return
        step = "1i" if inst.step is None else self.arg(inst.step, ADD)
        self.open(f"for (var {name} = {begin}; {name} < {end}; {name} += {step}) {{")

    def while_begin(self, inst: li.WhileBegin) -> None:
        """Begin the head of a while loop."""
        self.open("loop {")

    def while_test(self, inst: li.WhileTest) -> None:
        """Write the test of a while loop."""
        with self._alike(inst):
            self.emit(f"if (!{self.arg(inst.condition, UNARY)}) {{ break; }}")

    def check(self, inst: li.AssertInst) -> None:
        """Write an assertion: on failure write the status and leave the kernel."""
        if self.number(inst.condition):
            return
        self.fails = True
        self.accessor("status", "cas")
        self.accessor("status", "store")
        value, bound = (self.literal(0, dt.int64).text if v is None else self._word(v).text
                        for v in (inst.value, inst.bound))
        call = f"weft_fail({inst.message + 1}u, {inst.message}u, {value}, {bound});"
        leave = " return;" if inst.stops else ""  # others wait for the item
        with self._alike(inst):
            self.emit(f"if (!{self.arg(inst.condition, UNARY)}) {{ {call}{leave} }}")

    def _word(self, value: Value) -> Text:
        """Return a value as a word of 64 bits, as it is reported and printed."""
        d, text = value.dtype, self.operand(value)
        if is_narrow(d):
            text, d = self.call(self.function(f"weft_f32_of_{d.text}"), text), dt.float32
        if d.kind == "f" and d.bits == 32:
            return self.call("vec2<u32>", self.call("bitcast<u32>", text), "0u")
        return text if is_wide(d) else self.integer(text, d, dt.int64)

    def barrier(self, inst: Inst) -> None:
        """Wait for the group."""
        self.emit("storageBarrier();")
        self.emit("workgroupBarrier();")

    def fence(self, inst: li.FenceInst) -> None:
        """Write nothing: the order of one thread is that of its text, and there is no other."""

    def print_line(self, inst: li.PrintInst) -> None:
        """Write a line, as its number and its values, behind the status record."""
        values = [self._word(v) for v in inst.args]
        dtypes = [dt.float32.text if is_narrow(v.dtype) else v.dtype.text for v in inst.args]
        line = inst.text
        if not line.endswith("\n"):
            line = " ".join([line, *(["{}"] * len(values))]) + "\n"
        self.printed.append((line, dtypes))
        count = len(values) + 1
        name = f"weft_print{len(values)}"
        store = self.accessor("status", "store")
        add = self.accessor("status", "add")
        params = "".join(f", v{k}: vec2<u32>" for k in range(len(values)))
        first = RECORD_WORDS + HEAD_WORDS
        self.helper(name, lambda: "\n".join([
            f"fn {name}(line: u32{params}) {{",
            f"  let at = {add}({RECORD_WORDS}u, {count}u);",
            f"  let place = {first}u + 2u * at;",
            f"  if (at > {PRINTED - count}u) {{",
            f"    if (at < {PRINTED}u) {{  // the end of what found room",
            f"      {store}(place, 0xffffffffu);",
            f"      {store}(place + 1u, 0xffffffffu);", "    }", "    return;", "  }",
            f"  {store}(place, line);", f"  {store}(place + 1u, 0u);",
            *(f"  {store}(place + {2 * k + 2 + half}u, v{k}.{'xy'[half]});"
              for k in range(len(values)) for half in (0, 1)), "}"]))  # fmt: skip
        call = self.call(name, f"{len(self.printed) - 1}u", *values)
        self.emit(f"{call.text};")

