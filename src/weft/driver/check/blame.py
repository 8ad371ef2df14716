"""Find the first kernel of a graph that is wrong, and the stage that made it so.

Each kernel is run alone on what the interpretation of the graph says that it reads: first its loop
nest before its schedule in the interpreter of the loop level, then its machine code. If both are
right for every kernel, the plan is wrong: the order of its launches, or its memory.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

import numpy as np

from weft.driver import kernels
from weft.driver.check.compare import differing
from weft.driver.check.errors import Reference
from weft.driver.check.graph import Environment
from weft.driver.context import Context
from weft.driver.slices import Parts, take_slices
from weft.errors import CheckError, VerifyError
from weft.graph.launches import join_launches
from weft.graph.simplify import simplify
from weft.ir import node as nd
from weft.ir.dtype import DType
from weft.ir.expr import Expr
from weft.ir.interpret.interpret import run
from weft.ir.node import Node
from weft.ir.size import evaluate as evaluate_size
from weft.ir.stmt import For, Kernel, Reduce, While
from weft.kernelize.build import Step, kernelize
from weft.runtimes.memory.host_memory import ALIGNMENT
from weft.runtimes.native.executor.native import BufferRef, KernelStep, VariableRef

Runner = Callable[["Step", list[Any], Environment], None]

__all__ = ["Difference", "examine"]

_MOST_ITERATIONS: Final = 1 << 20  # of a loop nest that is interpreted: about a second
_UNWRITTEN: Final = 0xAB  # what memory holds before a kernel writes it


class Difference(NamedTuple):
    """An element that is wrong.

    Attributes
    ----------
    node : Node
        Whose value it belongs to.
    place : tuple of int
        Its index in the array.
    got, wanted, error : object
        What it is, what it should be, and how far both may be apart.
    wrong : int
        How many elements are wrong.
    """

    node: Node
    place: tuple[int, ...]
    got: Any
    wanted: Any
    error: float
    wrong: int

    @classmethod
    def first(cls, node: Node, got: Any, wanted: Any, error: Any, off: Any) -> Difference:
        """Return the first wrong element of an array; `off` marks all of them."""
        index = tuple(int(i) for i in np.unravel_index(int(np.argmax(off)), off.shape))
        reach = float(np.broadcast_to(error, off.shape)[index])
        return cls(node, index, got[index], wanted[index], reach, int(np.count_nonzero(off)))

    def raised(self, stage: str, kernel: str, where: tuple[str, int] | None) -> CheckError:
        """Return the error that tells of it."""
        return CheckError(
            f"WEFT_CHECK: {kernel}", where=where,
            found=f"{self.got} at {list(self.place)} of {self.node!r} ({self.wrong} wrong)",
            expected=f"{self.wanted}" + (f" within {self.error:.3g}" if self.error else " exactly"),
            hint=f"the first fault is in {stage}; please report it with this message",
        )


def examine(outputs: Sequence[Node], env: Environment, wrong: Difference | None,
            context: Context) -> None:  # fmt: skip
    """Run each kernel of a graph alone, and raise the first difference.

    Parameters
    ----------
    outputs
        The graph.
    env
        The arrays at its leaves, and the values of its variables.
    wrong
        An element of a result that the plan got wrong, if there is one.
    context
        The device that it ran on.

    Raises
    ------
    CheckError
        If a kernel is wrong, or the plan is.
    """
    cut, parts = take_slices(outputs)
    env = Environment({**env.arrays, **_arrays(parts, env)}, env.variables)
    simple = join_launches(simplify(cut))
    steps = kernelize(simple, context.target)
    nodes = [*cut, *simple, *(n for s in steps for n in (*s.inputs, *s.outputs))]
    known = Reference(env)
    known.add(nodes)
    values, errors = known.values, known.errors
    for node, made in zip(cut, simple, strict=True):
        found = _difference(node, values[made], values[node], errors[node] + errors[made])
        if found is not None:
            raise found.raised("the simplification of the graph", "a graph", _line(node))
    for step in steps:
        _examine_step(step, values, errors, env, context)
    if wrong is not None:
        raise wrong.raised("the plan: its order of launches or its memory",
                           f"a plan of {len(steps)} kernels", _line(wrong.node))


def _arrays(parts: Parts, env: Environment) -> dict[nd.Storage, Any]:
    """Return what the parts of leaves hold that are leaves of their own."""
    found = {}
    for part, (source, offset) in parts.items():
        first = offset // part.dtype.itemsize
        found[part] = env.arrays[source][first : first + env.size(part.size)]
    return found


def _examine_step(step: Step, values: Mapping[Node, Any], errors: Mapping[Node, Any],
                  env: Environment, context: Context) -> None:  # fmt: skip
    native: Runner = partial(_run_native, context=context)
    ways: list[tuple[str, Runner]] = [
        ("code generation: the schedule, the passes or the compiler", native)]
    if _iterations(step.kernel, env) <= _MOST_ITERATIONS:
        ways.insert(0, ("lowering: its loop nest before any schedule", _interpret))
    for stage, function in ways:
        arrays = _memory(step, values, env)
        try:
            function(step, arrays, env)
        except VerifyError as error:
            raise CheckError(f"WEFT_CHECK: kernel {step.kernel.name}", found=error.message,
                             hint=f"the first fault is in {stage}",
                             where=_line(*step.outputs)) from error  # fmt: skip
        stored = arrays[len(step.inputs) : len(step.inputs) + len(step.outputs)]
        for node, array in zip(step.outputs, stored, strict=True):
            found = _difference(node, array.reshape(env.shape(node)), values[node], errors[node])
            if found is not None:
                raise found.raised(stage, f"kernel {step.kernel.name}", _line(node, *step.outputs))


def _difference(node: Node, got: Any, wanted: Any, error: Any) -> Difference | None:
    wanted = np.ascontiguousarray(wanted).reshape(got.shape)
    off = differing(got, wanted, np.broadcast_to(error, got.shape))
    return Difference.first(node, got, wanted, error, off) if off.any() else None


def _memory(step: Step, values: Mapping[Node, Any], env: Environment) -> list[Any]:
    """Return arrays for the parameters of a kernel: operands, results, scratch."""
    arrays = []
    for node in step.inputs:
        arrays.append(_aligned(math.prod(env.shape(node)), node.dtype))
        arrays[-1][:] = np.asarray(values[node]).reshape(-1)
    arrays += [_aligned(math.prod(env.shape(n)), n.dtype) for n in step.outputs]
    return arrays + [_aligned(env.size(m.size), m.dtype) for m in step.scratch]


def _aligned(size: int, dtype: DType) -> Any:
    """Return an array that begins where a cache line does, as those of the pool do."""
    nbytes = size * dtype.itemsize
    raw = np.full(nbytes + ALIGNMENT, _UNWRITTEN, np.uint8)
    start = -raw.ctypes.data % ALIGNMENT
    return raw[start : start + nbytes].view(dtype.numpy)


def _interpret(step: Step, arrays: list[Any], env: Environment) -> None:
    with np.errstate(all="ignore"):
        run(step.kernel, arrays, env.variables)


def _run_native(step: Step, arrays: list[Any], env: Environment, context: Context) -> None:
    code = kernels.compiled(step.kernel, context)
    kernels.load([code], context)
    refs = [BufferRef.input(i) for i in range(len(arrays))]
    launch = KernelStep(code.address, refs, [VariableRef(i) for i in range(len(code.variables))],
                        code.name)
    plan = context.native.plan([launch], len(arrays), 0, 0, len(code.variables), True,
                                 [code.library])
    plan.call(*(a.ctypes.data for a in arrays), 0, *(env.variables[v] for v in code.variables))


def _iterations(kernel: Kernel, env: Environment) -> int:
    """Return how often the innermost statements of a nest run, if its bounds say so."""
    total, stack = 0, [(kernel.body, 1)]
    while stack:
        body, times = stack.pop()
        for stmt in body:
            inner = times
            if isinstance(stmt, While):
                return _MOST_ITERATIONS + 1
            for extent in _extents(stmt):
                inner *= _size(extent, env)
            total += inner
            stack.extend((b, inner) for b in stmt.bodies())
    return total


def _extents(stmt: Any) -> list[Any]:
    if isinstance(stmt, For):
        return [stmt.extent]
    return [axis.extent for axis in stmt.axes] if isinstance(stmt, Reduce) else []


def _size(extent: Any, env: Environment) -> int:
    try:
        return max(evaluate_size(extent, env.variables), 1)
    except (KeyError, AssertionError):  # it depends on an outer loop
        from weft.ir.bounds import bounds as bounds_of

        return max(bounds_of(extent, {}).hi, 1) if isinstance(extent, Expr) else 1


def _line(*nodes: Node) -> tuple[str, int] | None:
    """Return the user's line of the first node below these that has one, nearest first."""
    queue, seen = list(nodes), set(nodes)
    for node in queue:
        place = nd.locations.get(node)
        if place is not None and place.file:
            return place.file, place.line
        queue.extend(a for a in node.args if a not in seen)
        seen.update(node.args)
    return None
