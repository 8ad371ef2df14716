"""A kernel in names that do not collide with those of other kernels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from weft.ir import expr as ex
from weft.ir.expr import Expr
from weft.ir.op import Op
from weft.ir.stmt import Accumulator, Axis, Kernel, Location, Memory, Reduce, Stmt, lhs, rhs
from weft.ir.traverse import walk

__all__ = ["renamed"]

_LAUNCH: Final = tuple(f"{level}.{axis}" for level in ("block", "thread") for axis in "xyz")


def renamed(kernel: Kernel, number: int, variables: Mapping[Expr, Expr],
            memories: Mapping[Memory, Memory]) -> Kernel:  # fmt: skip
    """Return a kernel with other parameters and variables, and bound names of its own.

    Parameters
    ----------
    kernel : Kernel
        A kernel with loops over blocks and threads, whose axes keep their names.
    number : int
        Goes into the names that the kernel binds.
    variables : dict
        What stands for each VARIABLE.
    memories : dict
        What stands for each parameter.
    """
    return _Renamer(kernel, number, variables, memories).run()


class _Renamer:
    """Maps the fields of statements, whatever their kind."""

    def __init__(self, kernel: Kernel, number: int, variables: Mapping[Expr, Expr],
                 memories: Mapping[Memory, Memory]) -> None:  # fmt: skip
        self.kernel, self.number = kernel, number
        self.names: dict[Expr, Expr] = dict(variables)
        self.memories: dict[Memory, Memory] = dict(memories)
        self.done: dict[Expr, Expr] = {}
        self.locations: dict[Stmt, Location] = {}

    def run(self) -> Kernel:
        for s in walk(self.kernel.body):
            for v in s.binds():
                if v.attr not in _LAUNCH:
                    self.names[v] = ex.make(Op.VAR, v.dtype, (), f"{v.attr}.{self.number}",
                                            v.lanes)
            for a in s.accumulators if isinstance(s, Reduce) else ():
                for side in (lhs, rhs):  # whose names follow from that of the accumulator
                    self.names[side(a.var)] = side(self.names[a.var])
        body = tuple(self.stmt(s) for s in self.kernel.body)
        params = tuple(dict.fromkeys(self.memories[m] for m in self.kernel.params))
        return self.kernel.replace(params=params, body=body, locations=self.locations)

    def stmt(self, s: Stmt) -> Stmt:
        fields = {name: self.value(getattr(s, name)) for name in type(s)._fields}
        made: Stmt = s.replace(**fields)
        if s in self.kernel.locations:
            self.locations[made] = self.kernel.locations[s]
        return made

    def value(self, given: Any) -> Any:
        if isinstance(given, Expr):
            return self.expr(given)
        if isinstance(given, Memory):
            return self.memory(given)
        if isinstance(given, Stmt):
            return self.stmt(given)
        if isinstance(given, tuple):
            return tuple(map(self.value, given))
        if isinstance(given, Accumulator | Axis):
            fields = {name: self.value(getattr(given, name)) for name in type(given)._fields}
            return given.replace(**fields)
        return given

    def expr(self, e: Expr) -> Expr:
        found = self.done.get(e)
        if found is None:
            found = self.done[e] = ex.substitute([e], self.names)[0]
        return found

    def memory(self, memory: Memory) -> Memory:
        found = self.memories.get(memory)
        if found is None:
            shape = tuple(map(self.expr, memory.shape))
            found = memory.replace(name=f"{memory.name}.{self.number}", shape=shape)
            self.memories[memory] = found
        return found
