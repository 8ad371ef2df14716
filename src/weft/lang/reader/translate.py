"""One function and the types of its arguments, as a kernel of loop level."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from weft.errors import KernelError
from weft.imports import Late
from weft.ir import dtype as dt
from weft.ir import expr as ex
from weft.ir.expr import Expr
from weft.ir.record import Record
from weft.ir.stmt import PARTLY, Barrier, Body, For, Kernel, Meta, Stmt
from weft.ir.traverse import walk
from weft.lang.core.intrinsics import WARP
from weft.lang.reader.frames import Frame
from weft.lang.reader.functions import Functions
from weft.lang.source import liveness
from weft.lang.source.source import Problems, Source, read_source
from weft.lang.values.types import KernelType, Parameters
from weft.passes.spmd.control_flow import leaves
from weft.passes.spmd.early_exit import may_exit_early, without_early_exits

if TYPE_CHECKING:
    from weft.lang.values import records
else:
    records = Late("weft.lang.values.records")

__all__ = ["GridNeeded", "Launch", "translate"]

_MOST_BLOCKS: Final = (1 << 31) - 1


class Launch(Record):
    """The shape of a launch that a kernel is compiled for.

    Attributes
    ----------
    block : tuple of int
        Threads of a block along x, y, z.
    ndim : int
        Axes of the grid that may have more than one block.
    shared : int
        Bytes of shared memory whose size the launch gives.
    grid : tuple of int or None
        Blocks along x, y, z, where they are compiled in: a kernel with a barrier of the grid needs
        them.
    warp : int
        Threads of a warp of the device: 32, or 64 on some of AMD's.
    """

    block: tuple[int, int, int]
    ndim: int = 1
    shared: int = 0
    grid: tuple[int, int, int] | None = None
    warp: int = WARP


class GridNeeded(Exception):
    """A kernel that must be compiled for the size of its grid."""


def translate(function: Callable[..., Any], types: Mapping[str, KernelType], launch: Launch, *,
              wraps: bool = False, checked: bool = True, sanitised: bool = False,
              fma: bool | None = None, strict: bool = False, constants: list[Any] | None = None,
              functions: dict[str, None] | None = None) -> Kernel:  # fmt: skip
    """Return the kernel that a Python function is for arguments of some types.

    Parameters
    ----------
    function
        A plain function; its body runs once for each thread.
    types
        Type of each parameter, by name, in order.
    launch
        What is known of the launch.
    wraps
        Whether negative indices count from the end of an axis.
    checked
        Whether every access is checked against the bounds of its array.
    fma
        Whether products are fused with the sums they go into; None: in accumulations.
    strict
        Whether a division by zero stops the kernel.
    sanitised
        Whether to write the kernel for the sanitiser: returns from the kernel are marked, and
        indices that are always wrong are left to be found.
    constants
        Gets the NumPy arrays that the kernel takes beside its arguments, as they are now: those
        that it knows from outside. Without it they are an error.
    functions
        Gets the names of the device functions that it calls.

    Returns
    -------
    Kernel
        Loops over blocks and threads around the body; its parameters are the arrays in order.

    Raises
    ------
    KernelError
        With everything that is wrong in the function.
    """
    known = [] if constants is None else constants
    try:
        source = read_source(function)
        for flat in (False, True):
            known.clear()
            try:
                return _translate(source, types, launch, flat, wraps, checked, sanitised, fma,
                                  strict, None if constants is None else known, functions)
            except records.FlatNeeded:
                continue
    except RecursionError:
        raise KernelError(f"kernel {function.__name__}", found="lines that lie more deeply in each "
                          "other than Python can follow", expected="parts of them in names, or in "
                          "functions") from None
    raise AssertionError("no memory has more than one axis")


def _translate(source: Source, types: Mapping[str, KernelType], launch: Launch, flat: bool,
               wraps: bool, checked: bool, sanitised: bool, fma: bool | None, strict: bool,
               constants: list[Any] | None,
               functions: dict[str, None] | None) -> Kernel:  # fmt: skip
    """Return the kernel, with memories of their shapes or with `flat` of one axis each."""
    problems = Problems(source.name)
    lowering = Functions(source, problems)
    lowering.wraps, lowering.checked, lowering.sanitised = wraps, checked, sanitised
    lowering.flat = flat
    lowering.fma, lowering.strict = fma, strict
    lowering.stoppable = not sanitised
    lowering.dynamic_bytes, lowering.warp = launch.shared, launch.warp
    parameters = Parameters(flat)
    for name, kind in types.items():
        lowering.env[name] = parameters.value(name, kind)
        lowering.name(name)  # no other memory takes it
    axes = _axes(lowering, launch)
    body = source.tree.body
    with lowering.into() as out:
        flag = lowering.flag("returned", liveness.needs_flag(body), source.tree)
        lowering.frames.append(Frame(source, flag))
        lowering.run(body)
    if constants is None:
        for node in lowering.constants.values():
            problems.note(source, node.node, "an array from outside of the kernel",
                          "pass it as an argument")
    else:
        constants.extend(a for c in lowering.constants.values() for a in c.arrays)
    problems.check()
    if functions is not None:
        functions.update(lowering.functions)
    memories = (*parameters.memories,
                *(m for c in lowering.constants.values() for m in c.memories))
    if launch.grid is None and any(isinstance(s, Barrier) and s.scope == "grid"
                                   for s in walk(tuple(out))):
        raise GridNeeded
    inner = (*(alloc for _, alloc in lowering.private.values()), *out)
    if not sanitised and leaves(inner) and not may_exit_early(inner):
        inner = without_early_exits(inner, lowering.locations)
    nest = _nest(inner, (*lowering.dynamic_allocs(), *lowering.shared), axes)
    hints = ((PARTLY, tuple(sorted(lowering.partly))),) if lowering.partly else ()
    return Kernel(source.name, memories, nest, Meta("custom", hints=hints), lowering.locations)


def _axes(lowering: Functions, launch: Launch) -> list[tuple[str, Expr, Expr]]:
    """Return kind, variable and extent of each axis of the launch, outermost first."""
    axes: list[tuple[str, Expr, Expr]] = []
    zero, one = ex.index(0), ex.index(1)
    for position in (2, 1, 0):
        axis = "xyz"[position]
        blocks = one
        index = zero
        if position < launch.ndim:
            blocks = ex.Variable(f"grid.{axis}", 1, _MOST_BLOCKS)
            if launch.grid is not None:
                blocks = ex.index(launch.grid[position])
            index = ex.var(f"block.{axis}", dt.int64)
            axes.append((f"block.{axis}", index, blocks))
        lowering.specials[f"block.{axis}"] = index
        lowering.specials[f"gridDim.{axis}"] = blocks
    for position in (2, 1, 0):
        axis = "xyz"[position]
        threads = ex.index(launch.block[position])
        index = zero
        if launch.block[position] > 1:
            index = ex.var(f"thread.{axis}", dt.int64)
            axes.append((f"thread.{axis}", index, threads))
        lowering.specials[f"thread.{axis}"] = index
        lowering.specials[f"blockDim.{axis}"] = threads
    x, y, z = (lowering.specials[f"thread.{axis}"] for axis in "xyz")
    number = x + (y + z * launch.block[1]) * launch.block[0]
    lowering.specials["laneid"] = number % WARP
    for _, index, extent in axes:
        lowering.limits[index] = (0, extent - 1)
        lowering.visible_in(index)
        lowering.name(str(index.attr))
    return axes


def _nest(body: Body, shared: Sequence[Stmt], axes: list[tuple[str, Expr, Expr]]) -> Body:
    """Return the loops of a launch around a body; shared memory belongs to the block."""
    inner = [a for a in axes if a[0].startswith("thread")]
    outer = [a for a in axes if a[0].startswith("block")]
    for kind, index, extent in reversed(inner):
        body = (For(index, extent, kind, body),)
    body = (*shared, *body)
    for kind, index, extent in reversed(outer):
        body = (For(index, extent, kind, body),)
    return body
