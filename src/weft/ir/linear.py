"""Kernel level: one kernel as the linear structured list that renderers walk.

Every instruction produces at most a few named values; regions are delimited by begin/end markers
(``Loop``/``EndLoop``, ``IfBegin``/``Else``/``EndIf``, ``WhileBegin``/``WhileTest``/``EndWhile``).
A value is visible from its instruction to the end of the region that holds it; what ``WhileBegin``
.. ``WhileTest`` computes is visible up to ``EndWhile``. There are no phis: values that change live
in memories of scope ``register`` or ``local``.

Memory is flat here: an offset counts elements of the memory's dtype from its start.

* scalar offset, scalar value: one element;
* scalar offset, vector value of L lanes: L consecutive elements starting there (any alignment);
* vector offset (int64, L lanes), vector value: a gather or scatter, lane by lane; the lanes of a
  scatter are stored in lane order, so the highest active lane wins on equal offsets.

A mask is a bool with the lanes of the value; where it is false memory is not touched, and a load
gives `fill` (zero if None). bool is one byte in memory: any byte but 0 is true, stores write 0
or 1.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, ClassVar, Final

from weft.errors import VerifyError
from weft.ir import expr as ex
from weft.ir.dtype import DType
from weft.ir.expr import Bounds, Expr
from weft.ir.op import Op, Operation
from weft.ir.record import Record
from weft.ir.stmt import GPU_AXES, Location, Memory, Meta

SERIAL: Final = "serial"
PARALLEL: Final = "parallel"
LOOP_KINDS: Final = (SERIAL, PARALLEL, *GPU_AXES)

# Special registers: where a work-item is in its launch, each in one dimension and below 2^31.
LOCAL_ID: Final = "local_id"  # its number in its work-group
LOCAL_SIZE: Final = "local_size"  # the work-items of a group
GROUP_ID: Final = "group_id"
NUM_GROUPS: Final = "num_groups"
REGISTERS: Final = (LOCAL_ID, LOCAL_SIZE, GROUP_ID, NUM_GROUPS)

COMPUTE_GROUPS: Final = ("leaf", "unary", "binary", "ternary", "native", "dot", "convert",
                        "vector")


class Value(Record):
    """One named result; compared by identity.

    `id` is unique and dense in its kernel, `name` is a hint for readers and may repeat or be
    empty.
    """

    name: str
    id: int
    dtype: DType
    lanes: int = 1

    __hash__ = object.__hash__

    def __eq__(self, other: object) -> bool:
        return self is other

    def __repr__(self) -> str:
        return f"%{self.name}.{self.id}:{typename(self.dtype, self.lanes)}"


def typename(dtype: DType, lanes: int) -> str:
    """Return the printed type: ``f32`` or ``f32x16``."""
    return dtype.text if lanes == 1 else f"{dtype.text}x{lanes}"


class Inst(Record):
    """Base of instructions. Equality is identity.

    `_defines` and `_uses` name the fields that hold the values it makes and reads: a Value, None,
    or a tuple of Values.
    """

    _defines: ClassVar[tuple[str, ...]] = ()
    _uses: ClassVar[tuple[str, ...]] = ()

    __hash__ = object.__hash__

    def __eq__(self, other: object) -> bool:
        return self is other

    def _values(self, fields: tuple[str, ...]) -> tuple[Value, ...]:
        found: list[Value] = []
        for name in fields:
            item = getattr(self, name)
            if type(item) is tuple:
                found.extend(item)
            elif item is not None:
                found.append(item)
        return tuple(found)

    def results(self) -> tuple[Value, ...]:
        """Return the values it defines."""
        return self._values(self._defines)

    def operands(self) -> tuple[Value, ...]:
        """Return the values it uses, in order (absent ones left out)."""
        return self._values(self._uses)


class Compute(Inst):
    """``result = op(args)``: a pure row of the op table (not VAR, not VARIABLE).

    The result carries the type: a CAST goes from ``args[0].dtype`` to ``result.dtype``. `attr` is
    the value of a CONST (which may have lanes: a splat), the lane of EXTRACT, 0 or 1 of HALF, the
    distance of SLIDE, the lanes of REVERSE, the lanes that SHUFFLE picks ("0_4_1_5").
    """

    _defines = ("result",)
    _uses = ("args",)
    result: Value
    op: Operation
    args: tuple[Value, ...] = ()
    attr: Any = None


class VariableInst(Inst):
    """``result = vars[slot]``: the int64 value of a symbolic `Variable`, with its bounds."""

    _defines = ("result",)
    result: Value
    slot: int
    bounds: Bounds


class LoadInst(Inst):
    """``result = memory[offset]``; the result has the dtype of the memory."""

    _defines = ("result",)
    _uses = ("offset", "mask", "fill")
    result: Value
    memory: Memory
    offset: Value
    mask: Value | None = None
    fill: Value | None = None


class StoreInst(Inst):
    """``memory[offset] = value``; `streaming` asks for a non-temporal store."""

    _uses = ("offset", "value", "mask")
    memory: Memory
    offset: Value
    value: Value
    mask: Value | None = None
    streaming: bool = False


class StorageInst(Inst):
    """Declare an uninitialised memory that lives to the end of the region.

    `size` is its number of elements: the largest over the bounds of the variables in its shape.
    Renderers reserve it once per function (or outlined parallel body), aligned for vectors and to
    `align` bytes. With `base` it is the bytes of that memory, declared before.
    """

    memory: Memory
    size: int
    base: Memory | None = None
    align: int = 16


class Loop(Inst):
    """``for var in [0, extent)``; up to the matching `EndLoop`.

    `kind` is ``serial``, ``parallel`` or an axis of a GPU. Iterations of a parallel loop are
    independent; there is an implicit barrier after it. A serial loop of a work-item begins at
    `begin`, which is not negative, and goes on by `step`, which is positive (0 and 1 if None).
    """

    _defines = ("var",)
    _uses = ("extent", "begin", "step")
    var: Value
    extent: Value
    kind: str = SERIAL
    begin: Value | None = None
    step: Value | None = None


class EndLoop(Inst):
    """End of the innermost open `Loop`."""


class WhileBegin(Inst):
    """Start of the head of a while loop, which is run before every test.

    An interrupt may stop the kernel after each turn of an `endless` one.
    """

    endless: bool = False


class WhileTest(Inst):
    """End of the head: leave the loop unless `condition` holds; the body follows."""

    _uses = ("condition",)
    condition: Value


class EndWhile(Inst):
    """End of the innermost open while loop: back to its head."""


class IfBegin(Inst):
    """Run what follows, up to `Else` or `EndIf`, if the scalar `condition` holds."""

    _uses = ("condition",)
    condition: Value


class Else(Inst):
    """Start of the other branch of the innermost open `IfBegin`."""


class EndIf(Inst):
    """End of the innermost open `IfBegin`."""


class AssertInst(Inst):
    """Stop the kernel with message number `message` unless the scalar `condition` holds.

    `value` and `bound` (int64 scalars) are reported with it. One that does not stop is of a
    work-item that others wait for: the failure is noted, and the code goes on.
    """

    _uses = ("condition", "value", "bound")
    condition: Value
    message: int
    value: Value | None = None
    bound: Value | None = None
    stops: bool = True


class BarrierInst(Inst):
    """Wait for every iteration of the enclosing parallel (or thread) loops of this scope."""

    scope: str = "block"


class FenceInst(Inst):
    """Order what is done before and after, for the threads of `scope`."""

    scope: str = "device"
    order: str = "seq_cst"


class SpecialInst(Inst):
    """``result = register``: one of `REGISTERS`, an int64."""

    _defines = ("result",)

    result: Value
    register: str


class ClockInst(Inst):
    """``result = clock``: what a clock says now (cycles or nanoseconds), an int64."""

    _defines = ("result",)

    result: Value
    kind: str = "cycles"


class AddressInst(Inst):
    """``result = address of memory``: where its first element lies, an int64."""

    _defines = ("result",)

    result: Value
    memory: Memory


class AtomicInst(Inst):
    """``result = memory[offset]; memory[offset] = kind(result, value)``, indivisibly.

    `kind` is one of add sub min max and or xor exch cas inc dec; cas stores `value` where the old
    value equals `compare`. All scalar.
    """

    _defines = ("result",)
    _uses = ("offset", "value", "compare")
    result: Value
    kind: str
    memory: Memory
    offset: Value
    value: Value
    compare: Value | None = None
    scope: str = "device"
    order: str = "relaxed"


class CallInst(Inst):
    """Call a device function by name."""

    _defines = ("vars",)
    _uses = ("args",)
    vars: tuple[Value, ...]
    callee: str
    args: tuple[Value, ...]


class PrintInst(Inst):
    """Print a text and values."""

    _uses = ("args",)
    text: str
    args: tuple[Value, ...] = ()


class PrefetchInst(Inst):
    """Ask for the cache line of an element; any offset is allowed."""

    _uses = ("offset",)
    memory: Memory
    offset: Value


class LinearKernel(Record):
    """One kernel at kernel level.

    Attributes
    ----------
    name : str
        The symbol.
    params : tuple of Memory
        Global arrays in ABI order: ``buffers[i]`` holds ``params[i]``.
    variables : tuple of Expr
        VARIABLEs in ABI order (sorted by name): ``vars[i]`` holds ``variables[i]``.
    code : tuple of Inst
        The instructions.
    messages : tuple of (text, Location or None)
        What an `AssertInst` refers to.
    meta : Meta
        What is known beside the code.
    """

    name: str
    params: tuple[Memory, ...]
    variables: tuple[Expr, ...]
    code: tuple[Inst, ...]
    messages: tuple[tuple[str, Location | None], ...] = ()
    meta: Meta = Meta()

    __hash__ = object.__hash__

    def __eq__(self, other: object) -> bool:
        return self is other


OPENERS: Final = (Loop, WhileBegin, IfBegin)
MIDDLES: Final = (WhileTest, Else)
CLOSERS: Final = (EndLoop, EndWhile, EndIf)
_FAMILY: Final[dict[type[Inst], str]] = {
    Loop: "loop", EndLoop: "loop", WhileBegin: "while", WhileTest: "while", EndWhile: "while",
    IfBegin: "if", Else: "if", EndIf: "if",
}  # fmt: skip


class Region(Record):
    """Positions of one region in the code: of its begin, WhileTest or Else (or None), and end."""

    begin: int
    middle: int | None
    end: int


def regions(code: Iterable[Inst]) -> dict[int, Region]:
    """Return every region by the position of its begin marker.

    Raises
    ------
    VerifyError
        If markers do not match.
    """
    found: dict[int, Region] = {}
    stack: list[tuple[str, int, int | None]] = []
    position = -1
    for position, inst in enumerate(code):
        family = _FAMILY.get(type(inst))
        if family is None:
            continue
        if isinstance(inst, OPENERS):
            stack.append((family, position, None))
            continue
        if not stack or stack[-1][0] != family:
            raise VerifyError("regions", found=f"{type(inst).__name__} at {position}",
                              expected=f"an open {stack[-1][0] if stack else 'region'}")
        _, begin, middle = stack.pop()
        if isinstance(inst, MIDDLES):
            if middle is not None:
                raise VerifyError("regions", found=f"a second {type(inst).__name__} at {position}")
            stack.append((family, begin, position))
            continue
        if isinstance(inst, EndWhile) and middle is None:
            raise VerifyError("regions", found=f"EndWhile at {position}", expected="a WhileTest")
        found[begin] = Region(begin, middle, position)
    if stack:
        raise VerifyError("regions", found=f"{stack[-1][0]} at {stack[-1][1]} without an end")
    return found


class LinearBuilder:
    """Appends instructions and numbers their values."""

    def __init__(self) -> None:
        self.code: list[Inst] = []
        self.count = 0

    def value(self, name: str, dtype: DType, lanes: int = 1) -> Value:
        """Return a new value."""
        self.count += 1
        return Value(name, self.count - 1, dtype, lanes)

    def emit(self, inst: Inst) -> None:
        """Append an instruction."""
        self.code.append(inst)

    def compute(self, op: Operation, dtype: DType, lanes: int, args: tuple[Value, ...] = (),
                attr: Any = None, name: str = "") -> Value:  # fmt: skip
        """Append a `Compute` and return its result."""
        result = self.value(name, dtype, lanes)
        self.code.append(Compute(result, op, args, attr))
        return result

    def const(self, value: ex.Scalar, dtype: DType, lanes: int = 1) -> Value:
        """Append a constant."""
        return self.compute(Op.CONST, dtype, lanes, (), value)


def memories(kernel: LinearKernel) -> Iterator[Memory]:
    """Yield the parameters, then the storages in program order."""
    yield from kernel.params
    for inst in kernel.code:
        if isinstance(inst, StorageInst):
            yield inst.memory
