"""Launches inside of `weft.jit`: nodes of the captured graph, which the replay runs natively.

A launch is a function of values there: of each tensor that the kernel writes to it makes a new
value, which the tensor has from then on. Sizes and numbers are those of the capture.
"""

from __future__ import annotations

from types import NoneType
from typing import TYPE_CHECKING, Any, Final
from zlib import crc32

import numpy as np

from weft.errors import CaptureError, GradientError, LaunchError, raised, said, user_location
from weft.exchange import host as exchange
from weft.ir import dtype as dt
from weft.ir import expr as ex
from weft.ir import infer
from weft.ir import node as nd
from weft.ir.expr import Expr
from weft.ir.node import HOST, Node, Storage
from weft.ir.stmt import Assert, Atomic, Kernel, Load, Location, Memory, Print, Stmt, Store
from weft.ir.text.text import print_kernel
from weft.ir.traverse import map_exprs, walk
from weft.kernelize.launch import BOUNDS
from weft.lang.source.closures import names_of
from weft.schedule.launch_fusion.conflicts import THREAD, meet
from weft.schedule.launch_fusion.footprint import Footprint, footprint, sets_after_reading, sets_all
from weft.schedule.launch_fusion.rename import renamed
from weft.tensors.core.lazy_tensor import TensorCore
from weft.tensors.core.thread_state import state

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weft.lang.launch.marshal import Host
    from weft.lang.launch.protocol import Launched

_NUMBERS: Final = (bool, int, float, complex, str, NoneType, np.generic)

__all__ = ["Taken", "belongs", "launch_captured", "marked", "note", "operands"]


def belongs(args: tuple[Any, ...]) -> bool:
    """Whether a launch is one of the captured function: on tensors, or on numbers alone."""
    stack = list(args)
    arrays = False
    while stack:
        value = stack.pop()
        if isinstance(value, TensorCore):
            return True
        if isinstance(value, tuple):
            stack.extend(value)
        elif hasattr(value, "__dataclass_fields__") and not isinstance(value, type):
            stack.extend(getattr(value, f) for f in value.__dataclass_fields__)
        else:
            arrays |= not isinstance(value, _NUMBERS)
    return not arrays


def launch_captured(launch: Launched, args: tuple[Any, ...]) -> None:
    """Note a launch on tensors in the capture that is on."""
    name = launch.kernel.__name__
    taken = Taken(f"launch of {name}", launch.take(args))
    nest, constants = launch.kernel._nest_of(taken.types, launch, 32)
    kernel, nodes, writes = operands(nest, constants, taken)
    kernel, checks = marked(kernel, launch.grid, launch.block, launch.kernel)
    print_of = footprint(kernel, {})
    others = {m for s in walk(kernel.body) if not isinstance(s, Load | Store | Atomic)
              for m in (*s.reads(), *s.writes())}  # which the footprint does not tell of
    plain = [k for k in writes if kernel.params[k] not in others]
    fresh = [k for k in plain if sets_all(print_of, kernel.params[k])]
    for k in plain:
        if k not in fresh and _reads_own(print_of, kernel.params[k]):
            kernel = _reading_apart(kernel, kernel.params[k])
            nodes.append(nodes[k])
            fresh.append(k)
    note(name, kernel, checks, taken, nodes, writes, fresh)


def operands(nest: Kernel, constants: Sequence[Any],
             taken: Taken) -> tuple[Kernel, list[Node], list[int]]:  # fmt: skip
    """Return a kernel for the values of a launch, what it is given, and what of it is written."""
    nodes = [t._value() for t in taken.tensors]
    home = next((n.device for n in nodes if n.device), HOST)
    leaves = map(_leaf, constants)
    nodes += leaves if home == HOST else [infer.copy(leaf, home) for leaf in leaves]
    kernel = _fixed(nest, taken, len(nodes))
    written = {memory for s in walk(kernel.body) for memory in s.writes()}
    writes = [k for k, m in enumerate(kernel.params) if m in written]
    taken.check_written(writes)
    return kernel, nodes, writes


def note(name: str, kernel: Kernel, checks: dict[str, nd.Check], taken: Taken, nodes: list[Node],
         writes: list[int], fresh: list[int]) -> None:  # fmt: skip
    """Make a node of a kernel, and its results the values of what it writes to.

    Parameters
    ----------
    name, kernel, checks
        What it is called, and what `marked` returned.
    taken, nodes, writes
        What it is given, and which of its operands it writes to.
    fresh
        Those of them whose old values it does not need.
    """
    recorder: Any = state.capture
    acts = not writes or _acts(kernel, checks)
    if acts:  # each after the one before it, as if there were a tensor that all of them change
        before = recorder.effects
        if before is None:
            fresh.append(len(nodes))
            before = infer.full((1,), 0, dt.int64)
        writes.append(len(nodes))
        nodes.append(before)
        memory = Memory("effects", dt.int64, (ex.index(1),))
        kernel = kernel.replace(params=(*kernel.params, memory))
    for k in fresh:  # only their sizes count
        zero = False if nodes[k].dtype.is_bool else 0.0 if nodes[k].dtype.is_float else 0
        nodes[k] = infer.full(nodes[k].shape, zero, nodes[k].dtype)
    outs = infer.launch(print_kernel(kernel), name, nodes, writes, fresh)
    place = user_location()
    if place is not None:
        nd.locations.setdefault(outs[0].args[0], nd.LaunchPlace(*place, 0, checks))
    if acts:
        recorder.effects = outs[-1]
    for out, position in zip(outs, writes, strict=True):
        if position < len(taken.tensors):
            taken.tensors[position]._write(out)


def marked(kernel: Kernel, blocks: nd.Triple | None, threads: nd.Triple | None,
           function: object) -> tuple[Kernel, dict[str, nd.Check]]:  # fmt: skip
    """Return the kernel with a mark at the end of each check's message, and what marks stand for.

    What is compiled must not depend on the lines of the source; marks are numbers in the kernel.
    The function that it was made of knows the exceptions of the program.
    """
    known = names_of(function)
    digest = crc32(print_kernel(kernel).encode())
    checks: dict[str, nd.Check] = {}
    marks: dict[Stmt, str] = {}
    for s in walk(kernel.body):
        if isinstance(s, Assert) and s not in marks:
            mark = marks[s] = f"{digest:08x}.{len(marks)}"
            place = kernel.locations.get(s) or Location("", 0)
            checks[mark] = nd.Check(place, said(s.message), blocks, threads, s.message == BOUNDS,
                                    raised(s.message, known))

    def turned(s: Stmt) -> Stmt:
        return s.replace(message=f"{s.message} #{marks[s]}") if isinstance(s, Assert) else s

    return map_exprs(kernel, lambda e: e, turned), checks


def _acts(kernel: Kernel, checks: dict[str, nd.Check]) -> bool:
    """Whether a kernel does more than write: it prints, or asserts something of its own."""
    return any(not c.bounds for c in checks.values()) or any(
        isinstance(s, Print) for s in walk(kernel.body))


def _reads_own(made: Footprint, memory: Memory) -> bool:
    """Whether every element is set by the one thread that reads it, and has read it by then."""
    if not sets_after_reading(made, memory):
        return False
    touches = [t for t in made.touches if t.memory is memory]
    return all(meet(made, a, made, b) == THREAD for a in touches for b in touches
               if b.writes and not a.writes)


def _reading_apart(kernel: Kernel, memory: Memory) -> Kernel:
    """Return a kernel that finds old values of a parameter in one of its own, the last one."""
    old = memory.replace(name=f"{memory.name}.old")

    def turned(s: Stmt) -> Stmt:
        return s.replace(memory=old) if isinstance(s, Load) and s.memory is memory else s

    made = map_exprs(kernel, lambda e: e, turned)
    return made.replace(params=(*kernel.params, old))


class Taken:
    """What a launch is given: distinct tensors, and numbers."""

    def __init__(self, name: str, host: Host) -> None:
        self.name, self.host, self.types = name, host, host.types
        self.tensors: list[TensorCore] = []
        self.numbers: dict[str, int] = {}  # of tensors, by the name of the parameter
        for name, _, tensor in self.host.tensors:
            self.tensor(name, tensor)
        if self.host.kept or self.host.copies:
            raise CaptureError(self.name, found="an array that is no tensor",
                               expected="tensors, as arguments of the captured function are",
                               hint="make one with weft.tensor")

    def tensor(self, name: str, tensor: TensorCore) -> None:
        """Take a tensor that is passed for a parameter."""
        if any(isinstance(n, Expr) for n in tensor.shape):
            raise CaptureError(self.name, found=f"a symbolic size of {name}: {tensor.shape}",
                               expected="sizes that are known when the function is captured")
        for number, known in enumerate(self.tensors):
            if _same(known, tensor):
                self.numbers[name] = number
                return
        self.numbers[name] = len(self.tensors)
        self.tensors.append(tensor)

    def check_written(self, writes: list[int]) -> None:
        """Refuse to write to what has a gradient, or is seen by another name."""
        for k in writes:
            if k >= len(self.tensors):
                raise LaunchError(self.name, found="a write to an array from outside",
                                  expected="a tensor that is an argument")
            tensor = self.tensors[k]
            if tensor._requires_grad and state.grad:
                raise GradientError(self.name, found="a tensor that requires a gradient",
                                    expected="one that does not: a kernel has no gradient",
                                    hint="launch it inside weft.no_grad()")
            if any(_base(t) is _base(tensor) for t in self.tensors if t is not tensor):
                raise CaptureError(self.name, found="several views of one tensor, one of which "
                                   "the kernel writes to", expected="one view, or copies")


def _base(tensor: TensorCore) -> TensorCore:
    return tensor if tensor._base is None else tensor._base


def _same(a: TensorCore, b: TensorCore) -> bool:
    """Whether two tensors are one, or the same view of one."""
    return a is b or (_base(a) is _base(b) and a.shape == b.shape and a._path == b._path)


def _leaf(array: Any) -> Node:
    """Return a leaf with what an array from outside of the kernel holds."""
    dtype = exchange.dtype_of(array, "launch")
    storage = Storage(dtype, array.size, exchange.fill(dtype, array))
    return infer.reshape(nd.buffer(storage), array.shape)


def _fixed(nest: Kernel, taken: Taken, count: int) -> Kernel:
    """Return the kernel for these sizes and numbers, with a parameter for each tensor."""
    values: dict[Expr, Expr] = {}
    exprs = [e for s in walk(nest.body) for e in s.exprs()]
    for e in ex.variables([*exprs, *(n for m in nest.params for n in m.shape)]):
        values[e] = ex.index(taken.host.variables[e.attr.name])
    memories: dict[Memory, Memory] = {}
    order: dict[int, Memory] = {}
    constants = iter(range(len(taken.tensors), count))
    for memory in nest.params:
        number = taken.numbers.get(memory.name)
        if number is None:
            number = next(constants)
        if number not in order:
            shape = tuple(ex.substitute(memory.shape, values))
            order[number] = memory.replace(shape=shape)
        memories[memory] = order[number]
    made = renamed(nest, 0, values, memories)
    return made.replace(params=tuple(order[k] for k in range(count)))
