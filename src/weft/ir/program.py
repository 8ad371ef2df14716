"""Program level: one kernel on its way to a device, and what follows from it.

A program passes through five stages, each adding one thing and losing none: ``sink`` (the loop
nest), ``device``, ``linear`` (the kernel-level list), ``source`` (text) and ``binary``. What a
launch needs to know (`Metadata`) is derived from the kernel, never declared beside it. Sizes of a
launch are `launch expressions`: int64 arithmetic over variables in which nothing wraps.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

from weft.errors import LaunchError, VariableError, VerifyError
from weft.ir import dtype as dt
from weft.ir import expr as ex
from weft.ir.expr import Bounds, Expr
from weft.ir.linear import AtomicInst, LinearKernel, LoadInst, StoreInst, VariableInst
from weft.ir.op import Op, Operation
from weft.ir.record import Record
from weft.ir.stmt import GPU_AXES, For, Kernel, Memory
from weft.ir.traverse import walk

__all__ = ["CORE_ID", "STAGES", "LaunchSize", "Metadata", "Program", "bind", "check_variables",
           "evaluate_launch", "launch_sizes", "metadata", "verify_launch"]  # fmt: skip

STAGES: Final = ("sink", "device", "linear", "source", "binary")
CORE_ID: Final = "core_id"  # a variable of this name counts cores: global size 0 is its max + 1
_LOWEST, _HIGHEST = -(1 << 63), (1 << 63) - 1

Size = Expr | int


class LaunchSize(Record):
    """A launch expression with values bound to some of its variables; a value at launch wins."""

    expr: Expr
    bound: tuple[tuple[str, int], ...] = ()


class Metadata(Record):
    """What follows from a kernel.

    Attributes
    ----------
    variables : tuple of Expr
        Its VARIABLEs, sorted by name, each once.
    params : tuple of Memory
        Its global arrays in ABI order.
    outs, ins : tuple of int
        Positions of the arrays that it writes, and reads.
    pure_ins : tuple of int
        Positions of the arrays that it only reads.
    special : tuple of str
        Index names with their axis: ``g0`` block, ``l0`` thread in its block, ``i0`` direct id.
    global_size : tuple of Expr
        For axes 0 to 2, the blocks, or the ids where `local_size` is None.
    local_size : tuple of Expr or None
        Threads of a block; None for direct ids.
    """

    variables: tuple[Expr, ...]
    params: tuple[Memory, ...]
    outs: tuple[int, ...]
    ins: tuple[int, ...]
    special: tuple[str, ...]
    global_size: tuple[Expr, Expr, Expr]
    local_size: tuple[Expr, Expr, Expr] | None

    @property
    def nbuffers(self) -> int:
        """Number of buffers that a launch takes."""
        return len(self.params)

    @property
    def pure_ins(self) -> tuple[int, ...]:
        """Positions of the arrays that are read and not written."""
        return tuple(i for i in self.ins if i not in self.outs)

    def __str__(self) -> str:
        """Return one line for each fact."""
        names = [m.name for m in self.params]
        lines = [
            "variables " + ", ".join(
                f"{v.attr.name} in {v.attr.min}..{v.attr.max}" for v in self.variables
            ),
            "globals " + ", ".join(f"{m.name}: {m.dtype.text}" for m in self.params),
            "outs " + ", ".join(names[i] for i in self.outs),
            "ins " + ", ".join(names[i] for i in self.ins),
            "pure ins " + ", ".join(names[i] for i in self.pure_ins),
            "special " + ", ".join(self.special),
            "global size " + ", ".join(map(ex.show, self.global_size)),
        ]
        if self.local_size is not None:
            lines.append("local size " + ", ".join(map(ex.show, self.local_size)))
        return "\n".join(line.rstrip() for line in lines)


def metadata(kernel: Kernel | LinearKernel) -> Metadata:
    """Return what follows from a kernel.

    Raises
    ------
    VerifyError
        If two variables share a name with different bounds, or two loops one hardware axis.
    """
    if isinstance(kernel, LinearKernel):
        return _of_linear(kernel)
    found: dict[Expr, None] = {}
    reads: dict[str, None] = {}
    writes: dict[str, None] = {}
    axes: dict[str, Expr] = {}
    roots: list[Expr] = [extent for m in kernel.params for extent in m.shape]
    for stmt in walk(kernel.body):
        roots.extend(stmt.exprs())
        reads.update(dict.fromkeys(m.name for m in stmt.reads()))
        writes.update(dict.fromkeys(m.name for m in stmt.writes()))
        if isinstance(stmt, For) and stmt.kind in GPU_AXES and (
            axes.setdefault(stmt.kind, stmt.extent) is not stmt.extent
        ):
            raise VerifyError("program", found=f"two extents of the axis {stmt.kind}",
                              expected="one loop for each hardware axis")
    found.update(dict.fromkeys(ex.variables(roots)))
    return _assemble(kernel.params, found, reads, writes, axes)


def _of_linear(kernel: LinearKernel) -> Metadata:
    found: dict[Expr, None] = dict.fromkeys(kernel.variables)
    reads: dict[str, None] = {}
    writes: dict[str, None] = {}
    for inst in kernel.code:
        if isinstance(inst, LoadInst | AtomicInst):
            reads[inst.memory.name] = None
        if isinstance(inst, StoreInst | AtomicInst):
            writes[inst.memory.name] = None
        if isinstance(inst, VariableInst):
            found[ex.make(Op.VARIABLE, dt.int64, (), inst.bounds)] = None
    return _assemble(kernel.params, found, reads, writes, {})


def _assemble(params: tuple[Memory, ...], found: Iterable[Expr], reads: dict[str, None],
              writes: dict[str, None], axes: dict[str, Expr]) -> Metadata:  # fmt: skip
    variables = tuple(sorted(found, key=lambda v: (v.attr.name, v.attr.min, v.attr.max)))
    for a, b in pairwise(variables):
        if a.attr.name == b.attr.name:
            raise VerifyError("program", found=f"{a.attr!r} and {b.attr!r}",
                              expected="one range for each variable")
    names = [m.name for m in params]
    one = ex.index(1)
    blocks = [axes.get(f"block.{axis}") for axis in "xyz"]
    threads = [axes.get(f"thread.{axis}") for axis in "xyz"]
    is_direct = not any(t is not None for t in threads)
    prefix = "i" if is_direct else "g"
    special = [f"{prefix}{k}" for k, e in enumerate(blocks) if e is not None]
    special += [f"l{k}" for k, e in enumerate(threads) if e is not None]
    sizes = [one if e is None else e for e in blocks]
    core = next((v for v in variables if v.attr.name == CORE_ID), None)
    if core is not None:
        special.append(CORE_ID)
        sizes[0] = ex.index(core.attr.max + 1)
    local = None if is_direct else _three([one if e is None else e for e in threads])
    return Metadata(
        variables, params, tuple(i for i, n in enumerate(names) if n in writes),
        tuple(i for i, n in enumerate(names) if n in reads), tuple(special), _three(sizes), local,
    )  # fmt: skip


def _three(sizes: Sequence[Expr]) -> tuple[Expr, Expr, Expr]:
    x, y, z = sizes
    return x, y, z


# stages


def _interface(kernel: Kernel | LinearKernel) -> list[tuple[str, str]]:
    """Return what a caller must know of the parameters (passes flatten their shapes)."""
    return [(p.name, p.dtype.text) for p in kernel.params]


class Program(Record):
    """One kernel for one device, as far as it has come.

    Attributes
    ----------
    name : str
        The symbol.
    sink : Kernel
        The loop nest.
    device, arch : str or None
        Device family, and the architecture that the binary is for.
    linear : LinearKernel or None
        Kernel level.
    language, source : str or None
        Text for a compiler.
    binary : bytes or None
        What a runtime loads.
    """

    name: str
    sink: Kernel
    device: str | None = None
    arch: str | None = None
    linear: LinearKernel | None = None
    language: str | None = None
    source: str | None = None
    binary: bytes | None = None

    __hash__ = object.__hash__

    def __eq__(self, other: object) -> bool:
        return self is other

    @property
    def stage(self) -> str:
        """The last stage that it has reached."""
        present = [getattr(self, stage) is not None for stage in STAGES]
        return STAGES[max(i for i, there in enumerate(present) if there)]

    def on(self, device: str, arch: str) -> Program:
        """Return the program with its device chosen (from ``sink``)."""
        return self.require("sink").replace(device=device, arch=arch).verify()

    def linearized(self, linear: LinearKernel) -> Program:
        """Return the program with its kernel level (from ``device``)."""
        return self.require("device").replace(linear=linear).verify()

    def rendered(self, language: str, source: str) -> Program:
        """Return the program with its source (from ``linear``)."""
        return self.require("linear").replace(language=language, source=source).verify()

    def compiled(self, binary: bytes) -> Program:
        """Return the program with its binary (from ``source``)."""
        return self.require("source").replace(binary=binary).verify()

    def require(self, stage: str) -> Program:
        """Return the program if it stands at exactly this stage.

        Raises
        ------
        VerifyError
            If it stands elsewhere.
        """
        if stage not in STAGES or self.stage != stage:
            raise VerifyError(f"program {self.name}", found=f"the stage {self.stage}",
                              expected=f"the stage {stage}")
        return self

    def verify(self) -> Program:
        """Return the program if what it holds fits its stage and together.

        Raises
        ------
        VerifyError
            If a stage was left out or holds something of another kind.
        """
        kinds: dict[str, type[Any]] = {"sink": Kernel, "device": str, "linear": LinearKernel,
                                       "source": str, "binary": bytes}  # fmt: skip
        reached = STAGES.index(self.stage)
        for stage in STAGES[: reached + 1]:
            held = getattr(self, stage)
            if not isinstance(held, kinds[stage]):
                raise VerifyError(f"program {self.name}", found=f"{type(held).__name__} as {stage}",
                                  expected=f"a {kinds[stage].__name__}")
        if (self.arch is None) is not (self.device is None) or (
            (self.language is None) is not (self.source is None)
        ):
            raise VerifyError(f"program {self.name}", found="half of a stage",
                              expected="device with arch, source with language")
        if self.linear is not None and _interface(self.linear) != _interface(self.sink):
            raise VerifyError(f"program {self.name}", found="other parameters at kernel level",
                              expected="those of the loop nest")
        return self

    @property
    def metadata(self) -> Metadata:
        """What follows from the kernel."""
        return metadata(self.sink)


# launches


def bind(variable: Expr, value: int) -> LaunchSize:
    """Return a variable as a size with a value of its own, which one given at launch replaces.

    Raises
    ------
    VariableError
        If the value is out of bounds.
    """
    _check_bounds(variable.attr, value)
    return LaunchSize(variable, ((variable.attr.name, value),))


def _check_bounds(limits: Bounds, value: object) -> int:
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise VariableError("launch", found=f"{limits.name} = {value!r}", expected="an integer")
    number = int(value.__index__())
    if not limits.min <= number <= limits.max:
        raise VariableError("launch", found=f"{limits.name} = {number}",
                            expected=f"a value from {limits.min} to {limits.max}")
    return number


def check_variables(variables: Sequence[Expr], values: Mapping[str, int]) -> list[int]:
    """Return the values of variables in ABI order.

    Raises
    ------
    VariableError
        If one is missing, not an integer, out of bounds, or not of this program.
    """
    known = {v.attr.name: v.attr for v in variables}
    missing = [name for name in known if name not in values]
    unknown = [name for name in values if name not in known]
    if missing or unknown:
        found = f"no value for {', '.join(missing)}" if missing else f"values for {unknown}"
        raise VariableError("launch", found=found, expected=f"values for {sorted(known)}")
    return [_check_bounds(limits, values[name]) for name, limits in known.items()]


def _floordiv(x: int, y: int) -> int:
    if y == 0:
        raise LaunchError("launch", found=f"{x} // 0", expected="a divisor that is not 0")
    return x // y


def _mod(x: int, y: int) -> int:
    if y == 0:
        raise LaunchError("launch", found=f"{x} % 0", expected="a divisor that is not 0")
    return x % y


_LAUNCH: Final[dict[Operation, Any]] = {
    Op.ADD: int.__add__, Op.SUB: int.__sub__, Op.MUL: int.__mul__, Op.FLOORDIV: _floordiv,
    Op.MOD: _mod, Op.MAX: max, Op.MIN: min, Op.NEG: int.__neg__, Op.ABS: int.__abs__,
}  # fmt: skip


def verify_launch(expr: Expr) -> None:
    """Check that an expression may stand for a launch size.

    Raises
    ------
    VerifyError
        For an operation or a type that launch expressions do not have.
    """
    for e in ex.toposort([expr]):
        if e.lanes != 1 or not e.dtype.is_integer:
            raise VerifyError("launch size", found=f"{ex.show(e)} of {e.dtype.name}",
                              expected="a scalar integer")
        if e.op not in _LAUNCH and e.op not in (Op.CONST, Op.VARIABLE, Op.CAST):
            raise VerifyError("launch size", found=e.op.name,
                              expected="const, variable, cast, " + ", ".join(
                                  op.name for op in _LAUNCH))


def evaluate_launch(size: Size | LaunchSize, values: Mapping[str, int]) -> int:
    """Return the value of a launch expression, in arithmetic that never wraps.

    Raises
    ------
    VariableError
        If a variable has no value, or one out of its bounds.
    LaunchError
        If a result leaves its type (int64, or the type of a cast), or a divisor is 0.
    VerifyError
        For an operation that launch expressions do not have.
    """
    if isinstance(size, int):
        return _fits(size, dt.int64, size)
    if isinstance(size, LaunchSize):
        values = {**dict(size.bound), **values}
        size = size.expr
    verify_launch(size)
    done: dict[Expr, int] = {}
    for e in ex.toposort([size]):
        if e.op is Op.CONST:
            done[e] = int(e.attr)
        elif e.op is Op.VARIABLE:
            if e.attr.name not in values:
                raise VariableError("launch", found=f"no value for {e.attr.name}",
                                    expected=f"a value from {e.attr.min} to {e.attr.max}")
            done[e] = _check_bounds(e.attr, values[e.attr.name])
        else:
            args = [done[a] for a in e.args]
            result = args[0] if e.op is Op.CAST else _LAUNCH[e.op](*args)
            done[e] = _fits(result, e.dtype, e)
    return done[size]


def _fits(value: int, d: dt.DType, of: Size) -> int:
    if not d.min <= value <= d.max:
        text = str(of) if isinstance(of, int) else ex.show(of, 80)
        raise LaunchError("launch", found=f"{text} = {value}", expected=f"a value of {d.name}")
    return value


def launch_sizes(sizes: Iterable[Size | LaunchSize], values: Mapping[str, int]) -> tuple[int, ...]:
    """Return the sizes of a launch, each at least 1.

    Raises
    ------
    LaunchError
        If a size is not positive, or as `evaluate_launch`.
    """
    found = tuple(evaluate_launch(size, values) for size in sizes)
    for axis, value in enumerate(found):
        if value <= 0:
            raise LaunchError("launch", found=f"size {value} of axis {axis}",
                              expected="a size of at least 1")
    return found
