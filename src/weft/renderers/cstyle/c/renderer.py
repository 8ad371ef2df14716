"""C text of one kernel for gcc and clang, with vectors, parallel regions and failures.

``i32 NAME(void *const *buffers, const i64 *vars, struct weft_status *status)``, as
`weft.renderers.llvm.llvm` has it, so that native plans call either: `buffers` holds the address of
each parameter, `vars` the value of each variable, and the first failure is written to `status`; the
function returns 0 or the code of a failure.

A parallel loop becomes a function that the thread pool calls (`weft_parallel_for`); what it needs
travels in a structure on the stack of the caller. Private arrays are declared in the block that has
them, so no two threads share one. Inside a parallel region further parallel loops run serially.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, Final

from weft.errors import UnsupportedError
from weft.ir import dtype as dt
from weft.ir import linear as li
from weft.ir.linear import Inst, LinearKernel
from weft.ir.stmt import Memory
from weft.renderers import ranges
from weft.renderers.base import NO_MEMORY, Source
from weft.renderers.cstyle.base import CStyleRenderer, Writer
from weft.renderers.cstyle.c.atomic import atomic, fence
from weft.renderers.cstyle.c.calls import call_function, clock, print_line
from weft.renderers.cstyle.c.context import Mask
from weft.renderers.cstyle.c.export import declared, exported
from weft.renderers.cstyle.c.function import Function
from weft.renderers.cstyle.c.memory import load, store
from weft.renderers.cstyle.c.promotion import promoted
from weft.renderers.cstyle.c.text import FAIL, NUMBER, PRELUDE, STOP, TURNS
from weft.renderers.cstyle.c.values import CValues
from weft.renderers.cstyle.split import split_vectors
from weft.renderers.cstyle.text import UNARY, Text, infix
from weft.target import Target

__all__ = ["CRenderer", "CWriter"]

_POOL: Final = "weft_parallel_for"
_LINE: Final = 64  # bytes of a cache line


class CWriter(CValues):
    """Writes one kernel in C.

    Attributes
    ----------
    ATOMIC : callable
        ``(writer, instruction, address, value, compare) -> Text``: an atomic operation as a call.
    """

    ATOMIC: ClassVar[Callable[..., Text]] = staticmethod(atomic)

    def __init__(self, target: Target, kernel: LinearKernel, name: str) -> None:
        super().__init__(target, kernel, name)
        hints = dict(kernel.meta.hints)
        # Only what a user wrote can be given one array twice: plans allocate outputs afresh.
        self.noalias = bool(hints.get("noalias", kernel.meta.kind != "custom"))
        self.symbol = self.names.take(name)
        self.externals: dict[str, str] = {}
        self.functions: list[str] = []  # parallel bodies, and what calls them
        self.fails = self.stops = self.prints = False
        self.regions = li.regions(kernel.code)
        self.overlaid = {m.name for i in kernel.code if isinstance(i, li.StorageInst)
                         and i.base is not None for m in (i.memory, i.base)}
        # Flags stay in memory: a byte each there, and as wide as what they choose in registers.
        flags = {i.memory.name for i in kernel.code if isinstance(i, li.StorageInst)
                 and i.memory.dtype.is_bool}
        self.promoted = {k: v for k, v in promoted(kernel.code).items() if k not in flags}
        self.places: dict[str, dict[int, str]] = {}  # variables of arrays, by name and place
        self._launches = any(isinstance(i, li.WhileBegin) and i.endless for i in kernel.code)
        self._endless: list[bool] = []  # of the while loops that are open
        self.function = self._function(0, len(kernel.code), None)

    # the text of a kernel

    def source(self) -> str:
        """Return the whole text."""
        main = self.function
        for m in self.kernel.params:
            self.known(self.memories[m.name], self._pointer(m))
        for name, kind in (("vars", "const i64 *"), ("status", "struct weft_status *"),
                           ("launch", "i64 *")):  # fmt: skip
            self.known(name, kind)
        self.code(0, len(self.kernel.code))
        params = [self.declaration(m) for m in self.kernel.params]
        params += ["const i64 *vars", "struct weft_status *status"]
        run = self.names.take(f"{self.symbol}_run")
        head = f"static i32 {run}({', '.join(params)}) {{"
        body = [head, *self._entrance(main), *main.lines, *self._exit(main, "i32"), "}"]
        parts = [self._remark(), PRELUDE, "\n".join(self.typedefs.values())]
        parts += [FAIL] if self.fails or self.stops else []
        parts += [STOP] if self.stops else []
        parts += [NUMBER] if self.prints else []
        parts += ["\n".join(self.externals.values()), *self.helpers.values(), *self.functions,
                  "\n".join(body), self.entry(run)]
        return "\n\n".join(part for part in parts if part) + "\n"

    def _remark(self) -> str:
        """Return a comment that says what the kernel is."""
        arrays = ", ".join(f"{m.name}: {m.dtype.text}" for m in self.kernel.params)
        text = f"{self.kernel.name} ({self.kernel.meta.kind}): {arrays}"
        return f"// {ascii(text)[1:-1]}".rstrip("\\")  # a last backslash would join the next line

    def entry(self, run: str) -> str:
        """Return the function that plans call."""
        args = [f"buffers[{i}]" for i in range(len(self.kernel.params))] + ["vars", "status"]
        head = f"i32 {self.symbol}(void *const *buffers, const i64 *vars, "
        head += "struct weft_status *status)"
        return declared(head, self.symbol, self.name) + (
            f" {{\n  return {run}({', '.join(args)});\n}}")

    def _function(self, begin: int, end: int, parallel: li.Loop | None) -> Function:
        launches = self._launches and parallel is None
        return Function(self.kernel, begin, end, self.regions, parallel, launches, self.promoted)

    def _entrance(self, f: Function) -> list[str]:
        """Return the first lines of a function: what it needs before its code."""
        lines = []
        if f.cleans and f.parallel is None:
            lines.append("  i32 result = 0;")
        if f.launches:
            lines.append("  i64 launch[2] = { __atomic_load_n(&weft_stop, __ATOMIC_RELAXED), 0 };")
        if f.stops:
            lines.append(f"  u32 turns = {TURNS};")
        if f.private.heap:
            size = f.private.heap_bytes + _LINE
            self.external("malloc", "extern void *malloc(__SIZE_TYPE__);")
            self.external("free", "extern void free(void *);")
            code = f"weft_fail(status, {NO_MEMORY}, {NO_MEMORY - 1}, {size}ll, 0)"
            lines += [f"  u8 *const own = malloc({size}ull);", "  if (own == 0) {",
                      f"    return {code};" if f.parallel is None else f"    {code};\n    return;",
                      "  }", f"  u8 *const heap = own + (-(u64)own & {_LINE - 1});"]  # fmt: skip
        return lines

    def _exit(self, f: Function, kind: str) -> list[str]:
        """Return the last lines of a function."""
        lines = []
        if any("goto leave;" in line for line in f.lines):
            lines.append("leave:;")
        if f.streams and self.streams:
            lines += ["#if __has_builtin(__builtin_ia32_sfence)", "  __builtin_ia32_sfence();",
                      "#endif"]  # fmt: skip
        if f.private.heap:
            lines.append("  free(own);")
        if f.launches:
            asked = "__atomic_load_n(&launch[1], __ATOMIC_RELAXED)"
            lines.append(f"  if ({asked}) weft_turned(launch);")
        if kind != "void":
            lines.append(f"  return {'result' if f.cleans else '0'};")
        return lines

    def leave(self, code: str) -> list[str]:
        """Return the statements that leave a function with a code."""
        f = self.function
        if f.parallel is not None:
            return [f"{code};"] * code.endswith(")") + ["goto leave;" if f.cleans else "return;"]
        return [f"result = {code};", "goto leave;"] if f.cleans else [f"return {code};"]

    def external(self, name: str, text: str) -> None:
        """Declare a function of the process, once."""
        self.externals.setdefault(name, text)

    # memory

    def _pointer(self, m: Memory, own: bool = False) -> str:
        """Return the type of a pointer to an array, as others see it that capture it."""
        const = "" if m.name in self.changed or own else "const "
        restrict = "restrict " if self.noalias and m.name not in self.overlaid else ""
        return f"{const}{self.stored(m.dtype)} *{restrict}"

    def declaration(self, m: Memory) -> str:
        """Return an array as a parameter of the function of the kernel."""
        return f"{self._pointer(m)}{self.memories[m.name]}"

    def memory(self, memory: Memory) -> str:
        """Return the name of an array."""
        return self.seen(self.memories[memory.name])

    def variables(self, memory: Memory) -> None:
        """Declare the variables that stand for an array."""
        lanes, places = self.promoted[memory.name]
        kind = self.type(memory.dtype, lanes)
        name = self.names.take(memory.name)
        names = {p: self.names.take(f"{name}_at{p}") if p else name for p in places}
        self.places[memory.name] = names
        self.emit(f"{kind} {', '.join(names.values())};")

    def storage(self, inst: li.StorageInst) -> None:
        """Declare an array of the block, or where it is on the heap."""
        memory = inst.memory
        if memory.name in self.promoted:
            self.variables(memory)
            return
        kind = self.stored(memory.dtype)
        name = self.memories[memory.name] = self.names.take(memory.name)
        place = self.function.private.heap.get(memory.name)
        space = self.space_of(inst, place is not None)
        if inst.base is not None:
            self.emit(f"{space}{kind} *const {name} = ({space}{kind} *){self.memory(inst.base)};")
        elif place is not None:
            self.emit(f"{space}{kind} *const {name} = ({space}{kind} *)(heap + {place});")
        else:
            self.emit(f"{space}{kind} {name}[{max(inst.size, 1)}] "
                      f"__attribute__((aligned({max(inst.align, _LINE)})));")
        self.known(name, self._pointer(memory, own=True))

    def space_of(self, inst: li.StorageInst, on_heap: bool) -> str:
        """Return the address space of a new array; one on the heap may find no memory there."""
        if on_heap and inst.base is None:
            self.fails = True
            self.seen("status")
        return ""

    def load(self, inst: li.LoadInst) -> None:
        """Write a load of any form."""
        if inst.memory.name in self.places:
            self.declare(inst.result, self.places[inst.memory.name][self.number(inst.offset)])
        elif inst.result.lanes == 1:
            super().load(inst)
        else:
            made = load(self, inst)
            if isinstance(made, Mask):
                self.define_mask(inst.result, made)
            else:
                self.declare(inst.result, made)

    def store(self, inst: li.StoreInst) -> None:
        """Write a store of any form."""
        if inst.memory.name in self.places:
            name = self.places[inst.memory.name][self.number(inst.offset)]
            self.emit(f"{name} = {self.arg(inst.value)};")
        elif inst.value.lanes == 1:
            super().store(inst)
        else:
            for line in store(self, inst):
                self.emit(line)

    def prefetch(self, inst: li.PrefetchInst) -> None:
        """Ask for the cache line of an element, for reading, into all levels."""
        at = infix("+", Text(self.memory(inst.memory)), self.operand(inst.offset))
        self.emit(f"__builtin_prefetch({at.text}, 0, 3);")

    def address(self, inst: li.AddressInst) -> None:
        """Say where an array begins."""
        self.declare(inst.result, f"(i64){self.memory(inst.memory)}")

    def atomic(self, inst: li.AtomicInst) -> None:
        """Write an atomic operation."""
        at = infix("+", Text(self.memory(inst.memory)), self.operand(inst.offset))
        compare = self.operand(inst.compare or inst.value)
        made = self.ATOMIC(self, inst, at, self.operand(inst.value), compare)
        if self.uses.count.get(inst.result.id):
            self.declare(inst.result, self.from_memory(made, inst.result.dtype))
        else:
            self.emit(f"{made.text};")

    # control flow

    def variable(self, inst: li.VariableInst) -> None:
        """Read the value of a variable."""
        self.ranges[inst.result.id] = inst.bounds.min, inst.bounds.max
        named = inst.result.replace(name=inst.bounds.name)
        self.declare(named, f"{self.seen('vars')}[{inst.slot}]")

    def instruction(self, inst: Inst, position: int) -> int:
        """Write one instruction; return the position of the last one that is written."""
        if isinstance(inst, li.Loop) and inst.kind == li.PARALLEL and (
                self.function.parallel is None):
            return self.region(inst, position)
        return super().instruction(inst, position)

    def open_loop(self, inst: li.Loop, begin: str, end: str) -> None:
        """Begin a loop over [begin, end)."""
        super().open_loop(inst, begin, end)
        self.known(self.texts[inst.var.id].text, self.type(dt.int64))

    def region(self, inst: li.Loop, position: int) -> int:
        """Write a parallel loop as a function of its own and a call of the pool."""
        end = self.regions[position].end
        outer, depth = self.function, self.depth
        body = self.function = self._function(position + 1, end, inst)
        self.depth = 1
        ranges.record_loop(self.ranges, inst.var, inst.extent)
        self.open_loop(inst, "begin", "end")
        self.code(position + 1, end)
        self.close()
        entrance = self._entrance(body)
        self.function, self.depth = outer, depth
        for name in body.captured:
            self.seen(name)
        call, env = self._outlined(body, entrance)
        known = self.number(inst.extent)
        if known is None or known > 0:
            env = self._environment(body, env)
            if known == 1:
                self.emit(f"{call}({env}, 0, 1);")
            else:
                self.imports[_POOL] = None
                self.external(_POOL, f"extern void {_POOL}(void (*body)(void *env, i64 begin, "
                                      "i64 end), void *env, i64 count);")
                self.emit(f"{_POOL}({call}, {env}, {self.arg(inst.extent)});")
        if "status" in body.captured:
            code = self.names.take("failed")
            self.emit(f"const i32 {code} = __atomic_load_n(&status->code, __ATOMIC_ACQUIRE);")
            self._if(f"{code} != 0", self.leave(code))
        return end

    def _outlined(self, body: Function, entrance: list[str]) -> tuple[str, str]:
        """Write the functions of a parallel region; return the one to call, and the structure."""
        number = len(self.functions)
        name = self.names.take(f"{self.symbol}_par{number}")
        params = ", ".join(["i64 begin", "i64 end", *(c.parameter for c in body.captured.values())])
        lines = [f"static void {name}_body({params}) {{", *entrance, *body.lines,
                 *self._exit(body, "void"), "}"]
        env = f"struct {name}_env"
        args = ["begin", "end", *(f"e->{n}" for n in body.captured)]
        if body.captured:
            members = " ".join(f"{c.member};" for c in body.captured.values())
            lines = [f"{env} {{ {members} }};", *lines]
        call = f"static void {name}(void *env, i64 begin, i64 end) {{"
        taken = [f"  const {env} *e = env;"] if body.captured else []
        lines += [call, *taken, f"  {name}_body({', '.join(args)});", "}"]
        self.functions.append("\n".join(lines))
        return name, env

    def _environment(self, body: Function, env: str) -> str:
        """Write the structure of what a region captured; return its address."""
        if not body.captured:
            return "0"
        name = self.names.take("env")
        self.emit(f"{env} {name} = {{ {', '.join(body.captured)} }};")
        return f"&{name}"

    def _if(self, condition: str, lines: list[str]) -> None:
        if len(lines) == 1:
            self.emit(f"if ({condition}) {lines[0]}")
        else:
            self.emit(f"if ({condition}) {{ {' '.join(lines)} }}")

    def check(self, inst: li.AssertInst) -> None:
        """Write an assertion: on failure write the status once and leave the function."""
        if self.number(inst.condition):
            return
        value, bound = ("0" if v is None else self.arg(v) for v in (inst.value, inst.bound))
        self.fails = True
        status = self.seen("status")
        code = f"weft_fail({status}, {inst.message + 1}, {inst.message}, {value}, {bound})"
        condition = f"__builtin_expect(!{self.arg(inst.condition, UNARY)}, 0)"
        self._if(condition, self.leave(code) if inst.stops else [f"{code};"])

    def end(self, inst: Inst) -> None:
        """End the innermost region."""
        if isinstance(inst, li.EndWhile) and self._endless.pop():
            self._ask()
        self.close()

    def while_begin(self, inst: li.WhileBegin) -> None:
        """Begin the head of a while loop."""
        self._endless.append(inst.endless)
        super().while_begin(inst)

    def _ask(self) -> None:
        """Write the end of a turn of a loop that an interrupt may stop."""
        self.stops = True
        self.imports |= {"weft_turns": None, "weft_turned": None, "weft_stop": None}
        status, launch = self.seen("status"), self.seen("launch")
        self.open("if (__builtin_expect(--turns == 0, 0)) {")
        self._if(f"weft_turns({launch}) != 0", self.leave(f"weft_stopped({status})"))
        self.emit(f"turns = {TURNS};")
        self.close()

    def barrier(self, inst: Inst) -> None:
        """Accept a barrier outside parallel regions, where there is one thread."""
        if self.function.parallel is not None:
            raise UnsupportedError("render", found="a barrier inside a parallel loop",
                                   expected="the loop split at the barrier")

    def fence(self, inst: li.FenceInst) -> None:
        """Order memory."""
        self.emit(fence(inst.order, inst.scope))

    # what `weft.renderers.cstyle.c.calls` writes

    def call_function(self, inst: li.CallInst) -> None:
        """Call a scalar function of the process by its symbol."""
        call_function(self, inst)

    def print_line(self, inst: li.PrintInst) -> None:
        """Print a line by one call of printf."""
        self.prints = True
        print_line(self, inst)

    def clock(self, inst: li.ClockInst) -> None:
        """Read the processor's counter where programs may, else the system's clock."""
        clock(self, inst)


class LibraryWriter(CWriter):
    """Writes one kernel with the entry of a library (`weft.renderers.cstyle.c.export`)."""

    def entry(self, run: str) -> str:
        """Return the function that plans call, and that of the library."""
        entry, name = self.symbol, self.name
        self.symbol, self.name = self.names.take(f"{entry}_plan"), f"{name}_plan"
        return "\n\n".join((super().entry(run), exported(self.kernel, entry, name, run)))


class CRenderer(CStyleRenderer):
    """Writes kernels in C for a CPU."""

    LANGUAGE: ClassVar[str] = "c"
    WRITER: ClassVar[type[Writer]] = CWriter

    def prepared(self, kernel: LinearKernel) -> LinearKernel:
        """Return the kernel in vectors that fit the registers."""
        return split_vectors(kernel, self.target.vector_bytes)

    def library(self, kernel: LinearKernel, name: str | None = None) -> Source:
        """Return the source of a kernel for a shared library.

        It has ``void NAME(void **args, unsigned long nargs)`` beside the entry that native plans
        call, whose name is ``NAME_plan``.

        Raises
        ------
        UnsupportedError
            For what C or the target lacks.
        """
        writer = LibraryWriter(self.target, self.prepared(kernel), name or kernel.name)
        return Source(self.LANGUAGE, name or kernel.name, writer.source(), tuple(writer.imports))
