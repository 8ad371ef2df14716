"""OpenCL C of one kernel: an entry for each of its phases.

An entry is ``__kernel void NAME(__global u8 *b0, i64 o0, ..., i64 v0, ..., __global struct
weft_status *status, __global u8 *scratch)``: for each parameter a buffer and the byte of it at
which the array begins, then the value of each variable. Any number of work-groups is right.
`scratch` begins with what all groups share; behind that are private arrays that are large.

On devices that are processors a group is one work-item, which takes a run of the iterations of the
phase's parallel loop, in vectors. On devices of threads each work-item takes single iterations
(`weft.renderers.launches.work_items`).

The text begins with a comment that tells the runtime about entries and scratch memory, as JSON.

Vectors are those of clang (`vector_size`), which the compilers of drivers are built on.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any, ClassVar, Final

from weft.errors import UnsupportedError
from weft.ir import dtype as dt
from weft.ir import linear as li
from weft.ir.dtype import DType
from weft.ir.linear import Inst, LinearKernel, Value
from weft.ir.op import Op, Operation
from weft.ir.stmt import Memory
from weft.renderers import ranges
from weft.renderers.base import FENCES_AROUND, PLAIN, Source, Style
from weft.renderers.cstyle.base import CStyleRenderer, Writer
from weft.renderers.cstyle.c.function import Function
from weft.renderers.cstyle.c.renderer import CWriter
from weft.renderers.cstyle.narrow import convert_narrow, is_narrow
from weft.renderers.cstyle.opencl.atomic import FENCE, FENCES, atomic
from weft.renderers.cstyle.opencl.target import ROUNDED
from weft.renderers.cstyle.opencl.text import FAIL, PRELUDE, PRINTED, RESERVED
from weft.renderers.cstyle.operations import define
from weft.renderers.cstyle.split import split_vectors
from weft.renderers.cstyle.text import UNARY, Text, atom, infix
from weft.renderers.launches.launch_split import arrays_of, phases
from weft.renderers.launches.work_items import Launch, Launches, launches
from weft.renderers.primitives import check
from weft.target import SIMT, VECTOR, Target

__all__ = ["OpenCLRenderer", "OpenCLWriter"]

_SPACES: Final = {VECTOR: ("__global ", "__private "),
                  SIMT: ("__global ", "__private ", "__local ")}  # fmt: skip
ROUNDING: Final = "-cl-fp32-correctly-rounded-divide-sqrt"
_LONG: Final = re.compile(r"\b(0x[0-9a-f]+|\d+)(u?)ll\b")
# Without fmod: on vectors PoCL's never terminates for some combinations of lanes.
_BUILTIN: Final = frozenset((Op.SQRT, Op.FLOOR, Op.CEIL, Op.TRUNC, Op.ROUND, Op.MAD,
                             Op.COPYSIGN))  # fmt: skip
_VECTORS: Final = (2, 4, 8, 16)
_INTEGERS: Final = {1: "char", 2: "short", 4: "int", 8: "long"}
_NUMBER: Final = Value("", -1, dt.int64)
_SHARED: Final = li.Loop(_NUMBER, _NUMBER, li.PARALLEL)  # an entry is the body of some such loop


class OpenCLWriter(CWriter):
    """Writes one phase of a kernel."""

    SPACE: ClassVar[str] = "SPACE "
    INT128: ClassVar[bool] = False
    WRAPS: ClassVar[bool] = False  # no option of OpenCL asks for it
    ATOMIC: ClassVar[Callable[..., Text]] = staticmethod(atomic)
    COUNTS: ClassVar[tuple[str, str]] = "popcount", "clz"
    RESERVED: ClassVar[frozenset[str]] = CWriter.RESERVED | RESERVED

    def __init__(self, target: Target, kernel: LinearKernel, name: str, cut: Launches,
                 before: OpenCLWriter | None = None) -> None:  # fmt: skip
        self._sharing = False  # inside the parallel loop that groups share
        self._spaces: dict[str, str] = {}  # of arrays that are no parameters
        super().__init__(target, kernel, name)
        self.cut = cut
        if before is not None:  # one text: what was written before is there
            self.typedefs, self.helpers = before.typedefs, before.helpers
            self._numbers = before._numbers
        self.printed: list[tuple[str, list[str]]] = [] if before is None else before.printed
        self.first = before is None
        self.promoted = {k: v for k, v in self.promoted.items() if k not in cut.scratch}
        self.function = Function(kernel, 0, len(kernel.code), self.regions, _SHARED, False,
                                 self.promoted)  # fmt: skip

    # the text

    def entry(self, run: str = "") -> str:
        """Return the entry of the phase."""
        slots = [self.names.take(f"size_{k}") for k in range(len(self.kernel.variables))]
        self.slots = slots
        for m in self.kernel.params:
            self.known(self.memories[m.name], self._pointer(m))
        heads = []
        for name, (memory, place) in self.cut.scratch.items():
            own = self.memories[name] = self.names.take(name)
            kind = f"__global {self.stored(memory.dtype)} *"
            self.known(own, kind)
            heads.append((name, f"  {kind}const {own} = ({kind})(scratch + {place});"))
        self.code(0, len(self.kernel.code))
        params, lines = [], []
        for k, m in enumerate(self.kernel.params):
            buffer, start = self.names.take(f"b{k}"), self.names.take(f"o{k}")
            params += [f"__global u8 *{buffer}", f"i64 {start}"]
            kind = self._pointer(m)
            lines.append(
                f"  {kind}{self.memories[m.name]} = ({kind.removesuffix('restrict ')})"
                f"({buffer} + {start});"
            )
        params += [f"i64 {name}" for name in slots]
        params += ["__global struct weft_status *status", "__global u8 *scratch"]
        used = {name for i in self.kernel.code for name in arrays_of(i)}
        lines += [line for name, line in heads if name in used]
        if self.function.private.heap:
            lines.append(
                f"  __global u8 *const heap = scratch + {self.cut.nbytes} + "
                f"get_group_id(0) * {self.function.private.heap_bytes};"
            )
        if not self.first and self.kernel.messages:
            lines.append("  if (status->code != 0) return;")
        head = f"__kernel void {self.symbol}({', '.join(params)}) {{"
        return "\n".join([head, *lines, *self.function.lines, "}"])

    # words

    def helper(self, name: str, text: Any) -> str:
        """Return a function of the prelude: one for each address space that it takes."""
        if name not in self.helpers:
            made = text()
            if self.SPACE in made:
                spaces = _SPACES[self.target.style]
                made = "\n".join(made.replace(self.SPACE, space) for space in spaces)
            self.helpers[name] = made
        return name

    def function_name(self, op: Operation, d: DType) -> str:
        """Return the function of floats, which the language has for all widths."""
        return self.FLOATS[op]

    def special(self, value: float, d: DType) -> str:
        """Return an infinity or NaN."""
        if value != value:
            return "nan((u32)0)" if d is dt.float32 else "nan((u64)0)"
        one = "INFINITY" if d is dt.float32 else "(f64)INFINITY"
        return f"-{one}" if value < 0 else one

    @property
    def streams(self) -> bool:
        """Whether vectors are stored past the caches, by compilers that can."""
        return True

    def every(self, mask: str, d: DType, lanes: int) -> str:
        """Return whether a mask is of all lanes, as a function of the language tells."""
        kind = _INTEGERS[d.itemsize]
        return f"all(__builtin_astype({mask}, {kind}{lanes}))" if lanes in _VECTORS else ""

    def vector_call(self, op: Operation, d: DType, lanes: int, names: str) -> list[str]:
        """Return the statements of a function of vectors that the language has."""
        if op not in _BUILTIN or lanes not in _VECTORS:
            return []
        kind = f"{'float' if d is dt.float32 else 'double'}{lanes}"
        given = ", ".join(f"__builtin_astype({n}, {kind})" for n in names)
        return [f"return __builtin_astype({self.FLOATS[op]}({given}), {self.type(d, lanes)});"]

    # memory

    def _pointer(self, m: Memory, own: bool = False) -> str:
        return f"__global {super()._pointer(m, own)}"

    def space_of(self, inst: li.StorageInst, on_heap: bool) -> str:
        """Return the address space of a new array: the heap is a part of the scratch buffer."""
        space = "__global " if on_heap else "__private "
        if inst.memory.scope == "shared":
            space = "__local "
        if inst.base is not None:
            space = self._spaces.get(inst.base.name, "__global ")
        self._spaces[inst.memory.name] = space
        return space

    def prefetch(self, inst: li.PrefetchInst) -> None:
        """Ask for the cache line of an element, on processors: there all memory is one space."""
        if self.target.style == VECTOR:
            name = define(self, "fetch_line", "void", f"{self.SPACE}const void *p",
                          "#if __has_builtin(__builtin_prefetch) && !defined(WEFT_NO_PREFETCH)",
                          "__builtin_prefetch((const void *)(u64)p, 0, 3);", "#endif")
            at = infix("+", Text(self.memory(inst.memory)), self.operand(inst.offset))
            self.emit(f"{self.call(name, at).text};")

    def atomic(self, inst: li.AtomicInst) -> None:
        """Write an atomic operation, whose order is that of fences around it."""
        before, after = FENCES_AROUND[inst.order]
        self._fence(before, inst.scope)
        super().atomic(inst)
        self._fence(after, inst.scope)

    def fence(self, inst: li.FenceInst) -> None:
        """Order memory."""
        self._fence(inst.order, inst.scope)

    def _fence(self, order: str, scope: str) -> None:
        if order and scope != "thread":  # whose order is that of the text
            self.emit(f"{self.helper('WEFT_FENCE', lambda: FENCE)}({FENCES[order]});")

    # control flow

    def variable(self, inst: li.VariableInst) -> None:
        """Read the value of a variable."""
        self.ranges[inst.result.id] = inst.bounds.min, inst.bounds.max
        named = inst.result.replace(name=inst.bounds.name)
        self.declare(named, self.slots[inst.slot])

    def instruction(self, inst: Inst, position: int) -> int:
        """Write one instruction; the outermost parallel loop is shared by the groups."""
        if (
            isinstance(inst, li.Loop)
            and inst.kind == li.PARALLEL
            and not self._sharing
            and (self.depth == 1)
        ):
            self._sharing = True
            end = self.regions[position].end
            ranges.record_loop(self.ranges, inst.var, inst.extent)
            name = self.named(inst.var)
            self.texts[inst.var.id] = atom(name)
            self.known(name, "i64")
            extent, last = self.arg(inst.extent, UNARY), self.names.take("last")
            share, begin = self.names.take("share"), self.names.take("begin")
            groups = "(i64)get_num_groups(0)"
            self.emit(f"const i64 {share} = ({extent} + {groups} - 1) / {groups};")
            self.emit(f"const i64 {begin} = (i64)get_group_id(0) * {share};")
            self.emit(f"const i64 {last} = {begin} + {share} < {extent} ? {begin} + {share} : "
                      f"{extent};")
            self.open(f"for (i64 {name} = {begin}; {name} < {last}; {name}++) {{")
            self.code(position + 1, end)
            self.close()
            self._sharing = False
            return end
        return Writer.instruction(self, inst, position)

    def leave(self, code: str) -> list[str]:
        """Return the statements that leave the phase with a code."""
        return [f"{code};", "return;"]

    def _ask(self) -> None:
        """Write nothing: the host cannot reach a launch that runs."""

    def special_register(self, inst: li.SpecialInst) -> None:
        """Read where the work-item is."""
        self.declare(inst.result, f"(i64)get_{inst.register}(0)")

    def barrier(self, inst: Inst) -> None:
        """Wait for the group; nothing where it is one work-item."""
        if self.target.style == SIMT:
            self.emit("barrier(CLK_GLOBAL_MEM_FENCE | CLK_LOCAL_MEM_FENCE);")
        elif self._sharing:
            raise UnsupportedError(
                "render",
                found="a barrier inside a parallel loop",
                expected="the loop split at the barrier",
            )

    def print_line(self, inst: li.PrintInst) -> None:
        """Write a line, as its number and its values, behind the status record."""
        values, dtypes = [], []
        for a in inst.args:
            if a.lanes > 1:
                raise UnsupportedError("print", found=f"a vector of {a.lanes} lanes",
                                       expected="a scalar")
            d, text = a.dtype, self.operand(a)
            if is_narrow(d):
                d, text = dt.float32, convert_narrow(self, text, d, dt.float32, 1)
            bits = self.bitcast(text, d, dt.unsigned(d.bits)) if d.kind == "f" else text
            values.append(self.cast(dt.int64, bits).text)
            dtypes.append(d.text)
        line = inst.text
        if not line.endswith("\n"):
            line = " ".join([line, *(["{}"] * len(values))]) + "\n"
        self.printed.append((line, dtypes))
        params = "".join(f", i64 v{k}" for k in range(len(values)))
        count = len(values) + 1
        name = define(self, f"weft_print{len(values)}", "void",
                      f"__global struct weft_status *status, i64 line{params}",
                      "const u32 at = atomic_add((volatile __global u32 *)(status + 1), "
                      f"{count}u);",
                      "__global i64 *words = (__global i64 *)(status + 1) + 1 + at;",
                      f"if (at > {PRINTED - count}u) {{",
                      f"  if (at < {PRINTED}u) words[0] = -1;  // the end of what found room",
                      "  return;", "}", "words[0] = line;",
                      *(f"words[{k + 1}] = v{k};" for k in range(len(values))))
        call = self.call(name, "status", str(len(self.printed) - 1), *values)
        self.emit(f"{call.text};")


class OpenCLRenderer(CStyleRenderer):
    """Writes kernels in OpenCL C."""

    LANGUAGE: ClassVar[str] = "opencl"
    WRITER: ClassVar[type[Writer]] = OpenCLWriter

    def render(self, kernel: LinearKernel, name: str | None = None, style: Style = PLAIN
               ) -> Source:  # fmt: skip
        """Return the source of one kernel; its first line is what the runtime has to know.

        Raises
        ------
        UnsupportedError
            For what the language or the device lacks.
        """
        check(self.target, kernel)
        whole, symbol = split_vectors(kernel, self.target.vector_bytes), name or kernel.name
        cut = self._launches(whole)
        entries: list[dict[str, str | int]] = []
        bodies: list[str] = []
        writer: OpenCLWriter | None = None
        own, fails = cut.per_item, False
        for number, launch in enumerate(cut.launches):
            part = whole.replace(code=launch.code)
            writer = OpenCLWriter(self.target, part, f"{symbol}_{number}", cut, writer)
            bodies.append(writer.entry())
            entries.append({"name": writer.symbol, "groups": launch.groups,
                            "items": launch.items})  # fmt: skip
            own = max(own, writer.function.private.heap_bytes)
            fails = fails or writer.fails
        assert writer is not None  # every kernel has a phase
        head = {"entries": entries, "shared": cut.nbytes, "own": own, "fails": fails,
                "prints": writer.printed, "room": PRINTED if writer.printed else 0,
                "options": [ROUNDING] if ROUNDED in self.target.features else []}  # fmt: skip
        pieces = [PRELUDE, "\n".join(writer.typedefs.values()), *([FAIL] * fails),
                 *writer.helpers.values(), *bodies]  # fmt: skip
        text = _LONG.sub(r"\1\2l", "\n\n".join(piece for piece in pieces if piece))
        return Source(self.LANGUAGE, symbol, f"// weft {json.dumps(head)}\n\n{text}\n")

    def _launches(self, kernel: LinearKernel) -> Launches:
        """Return the launches of a kernel, whose parallel loops are shared by groups or items."""
        if self.target.style == SIMT:
            return launches(kernel, self.target)
        cut = phases(kernel)
        made = tuple([Launch(phase.code, phase.groups, 1) for phase in cut.phases])
        return Launches(made, cut.shared, cut.nbytes, 0)
