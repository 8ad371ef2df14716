"""The interpreter of loop level: statements to Python source."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import Any

from weft.errors import UnsupportedError, VerifyError
from weft.ir import expr as ex
from weft.ir import reduction
from weft.ir.expr import Expr
from weft.ir.interpret.interpret_code import PythonCode, apply, atomic_op, zero
from weft.ir.interpret.interpret_scalar import function
from weft.ir.op import Op
from weft.ir.stmt import (
    Accumulator,
    Address,
    Alloc,
    Assert,
    Atomic,
    Barrier,
    Block,
    Body,
    Call,
    Clock,
    Fence,
    For,
    If,
    Kernel,
    Let,
    Load,
    Memory,
    Prefetch,
    Print,
    Reduce,
    Stmt,
    Store,
    While,
    lhs,
    rhs,
)  # fmt: skip


class LoopCode(PythonCode):
    """Translates one kernel."""

    def __init__(self, kernel: Kernel, functions: Mapping[str, Callable[..., Any]]) -> None:
        super().__init__()
        self.kernel, self.functions = kernel, functions
        self.names: dict[Expr, str] = {}
        self.scopes: list[list[Expr]] = [[]]
        self.arrays: dict[Memory, str] = {}
        self.shapes: dict[Memory, list[str]] = {}
        for position, memory in enumerate(kernel.params):
            self.arrays[memory] = f"p{position}"

    def translate(self) -> Callable[..., None]:
        """Return the kernel as a function of its flat arrays and {variable: value}."""
        for memory in self.kernel.params:
            self.shapes[memory] = [self.value(e) for e in memory.shape]
        self.body(self.kernel.body)
        return self.compile(self.kernel.name, [*self.arrays_of_params(), "variables"])

    def arrays_of_params(self) -> list[str]:
        """Return the parameter names of the function."""
        return [f"p{i}" for i in range(len(self.kernel.params))]

    # expressions

    def bind(self, e: Expr, name: str) -> str:
        """Give a Python name to the value of an expression, to the end of the scope."""
        if e not in self.names:
            self.scopes[-1].append(e)
        self.names[e] = name
        return name

    def open(self) -> None:
        """Open a scope."""
        self.scopes.append([])

    def close(self) -> None:
        """Forget what was bound since `open`."""
        for e in self.scopes.pop():
            del self.names[e]

    def value(self, e: Expr) -> str:
        """Return the Python name of an expression, after emitting what it needs."""
        if e in self.names:
            return self.names[e]
        stack = [e]
        while stack:
            top = stack[-1]
            if top in self.names:
                stack.pop()
                continue
            missing = [a for a in top.args if a not in self.names]
            if missing:
                stack.extend(reversed(missing))
                continue
            stack.pop()
            self.define(top)
        return self.names[e]

    def define(self, e: Expr) -> None:
        """Emit one operation whose operands have names."""
        if e.op is Op.VAR:
            raise VerifyError("interpret", found=f"the unbound name {e.attr}",
                              expected="a name bound by an enclosing statement")
        name = self.fresh()
        if e.op is Op.VARIABLE:
            self.emit(f"{name} = variables[{e.attr.name!r}]")
        else:
            operand = e.args[-1].dtype if e.args else None
            args = [self.names[a] for a in e.args]
            text = self.operation(e.op, operand, e.dtype, e.lanes, e.attr, args)
            self.emit(f"{name} = {text}")
        self.bind(e, name)

    # statements

    def body(self, body: Body) -> None:
        """Translate statements in the current scope."""
        for stmt in body:
            handler = _HANDLERS.get(type(stmt))
            if handler is None:
                raise UnsupportedError("interpret", found=type(stmt).__name__)
            handler(self, stmt)

    def scoped(self, body: Body) -> None:
        """Translate a nested body in a scope of its own."""
        self.open()
        self.body(body)
        self.close()

    def _let(self, s: Let) -> None:
        name = self.fresh("v")
        self.emit(f"{name} = {self.value(s.value)}")
        self.bind(s.var, name)

    def flat(self, memory: Memory, index: Sequence[Expr], place: str) -> str:
        """Emit the check of a scalar index and return its flat offset."""
        names, sizes = [self.value(i) for i in index], self.shapes[memory]
        if not names:
            return "0"
        test = " and ".join(f"0 <= {i} < {n}" for i, n in zip(names, sizes, strict=True))
        self.emit(f"if not ({test}): out_of_bounds({memory.name!r}, ({', '.join(names)},), "
                  f"({', '.join(sizes)},), {place})")
        flat = names[0]
        for i, n in zip(names[1:], sizes[1:], strict=True):
            flat = f"({flat}) * {n} + {i}"
        return flat

    def offsets(self, memory: Memory, index: Sequence[Expr], lanes: int, mask: str,
                place: str) -> str:  # fmt: skip
        """Return the call that computes the flat offset of each lane."""
        names = ", ".join([*(self.value(i) for i in index), ""]).strip()
        sizes = ", ".join([*self.shapes[memory], ""]).strip()
        return (f"lane_offsets(({names}), ({sizes}), {lanes}, {mask}, {memory.name!r}, {place})")

    def _load(self, s: Load) -> None:
        array, place = self.array(s.memory), self.place(self.kernel.locations.get(s))
        name = self.fresh("v")
        mask = "True" if s.mask is None else self.value(s.mask)
        fill = repr(zero(s.var.dtype)) if s.fill is None else self.value(s.fill)
        if s.var.lanes > 1:
            offsets = self.offsets(s.memory, s.index, s.var.lanes, mask, place)
            self.emit(f"{name} = vector_load({array}, {s.memory.name!r}, {offsets}, "
                      f"{fill}, {place})")
        else:
            self._scalar_load(s, name, array, place, mask, fill)
        self.bind(s.var, name)

    def _scalar_load(self, s: Load, name: str, array: str, place: str, mask: str,
                    fill: str) -> None:  # fmt: skip
        for i in s.index:
            self.value(i)
        if s.mask is not None:
            self.emit(f"{name} = {fill}")
            self.emit(f"if {mask}:")
            self.indent += 1
        self.emit(f"{name} = {array}[{self.flat(s.memory, s.index, place)}]")
        if s.memory.scope != "global":
            index = ", ".join(self.value(i) for i in s.index)
            self.emit(f"if {name} is None: uninitialised({s.memory.name!r}, ({index}), {place})")
        if s.mask is not None:
            self.indent -= 1

    def array(self, memory: Memory) -> str:
        """Return the Python name of a memory in scope."""
        if memory not in self.arrays:
            raise VerifyError("interpret", found=f"the memory {memory.name}",
                              expected="a parameter or an alloc before its use")
        return self.arrays[memory]

    def _store(self, s: Store) -> None:
        array, place = self.array(s.memory), self.place(self.kernel.locations.get(s))
        value = self.value(s.value)
        mask = "True" if s.mask is None else self.value(s.mask)
        if s.value.lanes > 1:
            offsets = self.offsets(s.memory, s.index, s.value.lanes, mask, place)
            self.emit(f"vector_store({array}, {s.memory.name!r}, {offsets}, {value}, {place})")
            return
        for i in s.index:
            self.value(i)
        if s.mask is not None:
            self.emit(f"if {mask}:")
            self.indent += 1
        self.emit(f"{array}[{self.flat(s.memory, s.index, place)}] = {value}")
        if s.mask is not None:
            self.indent -= 1

    def _clock(self, s: Clock) -> None:
        name = self.fresh("v")
        self.emit(f"{name} = {self.object(time.perf_counter_ns)}()")
        self.bind(s.var, name)

    def _address(self, s: Address) -> None:
        name = self.fresh("v")
        self.emit(f"{name} = 0")  # of lists: aligned to anything
        self.bind(s.var, name)

    def _alloc(self, s: Alloc) -> None:
        if s.base is not None:
            raise UnsupportedError("interpret", found=f"{s.memory.name}, which lies over other "
                                   "memory", expected="memories of their own")
        name = self.fresh("m")
        sizes = [self.value(e) for e in s.memory.shape]
        self.emit(f"{name} = [None] * ({' * '.join(sizes) or '1'})")
        self.arrays[s.memory], self.shapes[s.memory] = name, sizes

    def _loop(self, s: For) -> None:
        name = self.fresh("i")
        self.begin(f"for {name} in range({self.value(s.extent)}):", outline=True)
        self.open()
        self.bind(s.var, name)
        self.body(s.body)
        self.close()
        self.end()

    def _while(self, s: While) -> None:
        self.begin("while True:")
        self.open()
        self.body(s.head)
        condition = self.value(s.condition)
        self.emit(f"if not {condition}: break")
        self.body(s.body)
        self.close()
        self.end()

    def _if(self, s: If) -> None:
        self.emit(f"if {self.value(s.condition)}:")
        self.indent += 1
        self.emit("pass")
        self.scoped(s.then)
        self.indent -= 1
        if s.orelse:
            self.emit("else:")
            self.indent += 1
            self.scoped(s.orelse)
            self.indent -= 1

    def _block(self, s: Block) -> None:
        self.body(s.body)

    def _reduce(self, s: Reduce) -> None:
        extents = [self.value(a.extent) for a in s.axes]
        current = [self.fresh("a") for _ in s.accumulators]
        partials = self.partials(s, current)
        names = [self.fresh("i") for _ in s.axes]
        ranges = ", ".join(f"range({n})" for n in extents)
        targets = "".join(f"{n}," for n in names)
        self.begin(f"for ({targets}) in {self.object(product, 'product')}({ranges}):")
        self.open()
        for axis, name in zip(s.axes, names, strict=True):
            self.bind(axis.var, name)
        for a, name in zip(s.accumulators, current, strict=True):
            self.bind(a.var, name)
        slot = ""
        if partials:
            slot = f"{partials}[{self.slot(s)}]"
            self.emit(f"{', '.join(current)}, = {slot}")
        self.body(s.body)
        updates = [self.value(a.update) for a in s.accumulators]
        target = slot if partials else ", ".join(current) + ","
        self.emit(f"{target} = {', '.join(updates)},")
        self.close()
        self.end()
        if partials:
            vector = reduction.vector_axis(s)
            lanes = 1 if vector is None else int(vector.extent.attr)
            tree = self.object(_tree(lanes, self.combiner(s.accumulators)))
            self.emit(f"{', '.join(current)}, = {tree}({partials})")
        for a, name in zip(s.accumulators, current, strict=True):
            self.bind(a.var, name)

    def partials(self, s: Reduce, current: list[str]) -> str:
        """Emit the initial values; return the name of the list of partial results, if any."""
        inits = ", ".join(self.value(a.init) for a in s.accumulators) + ","
        axes = [*reduction.unrolled_axes(s)]
        lanes = reduction.vector_axis(s)
        count = 1
        for axis in axes + ([lanes] if lanes else []):
            count *= int(axis.extent.attr)
        if count <= 1:
            self.emit(f"{', '.join(current)}, = {inits}")
            return ""
        name = self.fresh("parts")
        self.emit(f"{name} = [({inits})] * {count}")
        return name

    def slot(self, s: Reduce) -> str:
        """Return the position of the partial result of the current point."""
        text = "0"
        lanes = reduction.vector_axis(s)
        for axis in reduction.unrolled_axes(s) + ([lanes] if lanes else []):
            text = f"({text}) * {axis.extent.attr} + {self.names[axis.var]}"
        return text

    def combiner(self, accumulators: Sequence[Accumulator]) -> Callable[..., tuple[Any, ...]]:
        """Return the function that merges two tuples of partial results."""
        left = [lhs(a.var) for a in accumulators]
        right = [rhs(a.var) for a in accumulators]

        def combine(x: tuple[Any, ...], y: tuple[Any, ...]) -> tuple[Any, ...]:
            env = dict(zip(left + right, (*x, *y), strict=True))
            return evaluate_all([a.combine for a in accumulators], env)

        return combine

    def _assert(self, s: Assert) -> None:
        condition = self.value(s.condition)
        if s.condition.lanes > 1:
            condition = f"all({condition})"
        value = "None" if s.value is None else self.value(s.value)
        bound = "None" if s.bound is None else self.value(s.bound)
        place = self.place(self.kernel.locations.get(s))
        self.emit(f"if not {condition}: failed({s.message!r}, {value}, {bound}, {place})")

    def _atomic(self, s: Atomic) -> None:
        array, place = self.array(s.memory), self.place(self.kernel.locations.get(s))
        d = s.memory.dtype
        op = atomic_op(s.kind, d)
        fn = None if op is None else self.object(function(op, d, d), ("atomic", op, d))
        compare = None if s.compare is None else self.value(s.compare)
        value = self.value(s.value)
        name = self.fresh("v")
        offset = self.flat(s.memory, s.index, place)
        self.emit(f"{name} = exchange({array}, {offset}, {s.kind!r}, {value}, {compare}, {fn})")
        self.bind(s.var, name)

    def _call(self, s: Call) -> None:
        if s.callee not in self.functions:
            raise UnsupportedError("interpret", found=f"a call of {s.callee}",
                                   hint="pass it in functions=")
        names = [self.fresh("v") for _ in s.vars]
        args = ", ".join(self.value(a) for a in s.args)
        target = ", ".join(names) + ", = " if names else ""
        self.emit(f"{target}{self.object(self.functions[s.callee])}({args})")
        for v, name in zip(s.vars, names, strict=True):
            self.bind(v, name)

    def _print(self, s: Print) -> None:
        values = ", ".join(self.text_of(self.value(a), a.dtype, a.lanes) for a in s.args)
        if s.text.endswith("\n"):
            self.emit(f"print({s.text!r}.format({values}), end='')")
        else:
            self.emit(f"print({s.text!r}, {values})")

    def _nothing(self, s: Stmt) -> None:
        """Barriers and prefetches change nothing when iterations run one after another."""


_HANDLERS: dict[type[Stmt], Callable[[LoopCode, Any], None]] = {
    Let: LoopCode._let, Load: LoopCode._load, Store: LoopCode._store, Alloc: LoopCode._alloc,
    For: LoopCode._loop, While: LoopCode._while, If: LoopCode._if, Block: LoopCode._block,
    Reduce: LoopCode._reduce, Assert: LoopCode._assert, Atomic: LoopCode._atomic,
    Call: LoopCode._call, Print: LoopCode._print, Barrier: LoopCode._nothing,
    Clock: LoopCode._clock, Address: LoopCode._address,
    Fence: LoopCode._nothing, Prefetch: LoopCode._nothing,
}  # fmt: skip


Partial = tuple[Any, ...]


def _tree(lanes: int, combine: Callable[[Partial, Partial], Partial]) -> Callable[..., Partial]:
    """Return the function that combines all partial results of a REDUCE."""

    def rows(x: Sequence[Partial], y: Sequence[Partial]) -> Sequence[Partial]:
        return [combine(a, b) for a, b in zip(x, y, strict=True)]

    def tree(parts: list[Partial]) -> Partial:
        vectors = [parts[i : i + lanes] for i in range(0, len(parts), lanes)]
        return reduction.combine_halves(reduction.combine_adjacent(vectors, rows), combine)

    return tree


def evaluate_all(roots: Sequence[Expr], env: Mapping[Expr, Any]) -> tuple[Any, ...]:
    """Return the values of expressions; see `weft.ir.interpret.interpret.evaluate`."""
    values: dict[Expr, Any] = {}
    for e in ex.toposort(roots):
        if e in env:
            values[e] = env[e]
        elif e.op is Op.VAR or e.op is Op.VARIABLE:
            raise VerifyError("evaluate", found=f"{e!r} without a value")
        else:
            operand = e.args[-1].dtype if e.args else None
            values[e] = apply(e.op, operand, e.dtype, e.lanes, e.attr,
                              [values[a] for a in e.args])  # fmt: skip
    return tuple(values[r] for r in roots)
