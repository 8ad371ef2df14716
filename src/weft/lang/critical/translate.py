"""One critical function and the types of its arguments, as a kernel of loop level.

It is a kernel without threads whose results are memories of one element each: a scalar is one, a
tuple, a named tuple or a dataclass one for each number in it.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from typing import Any, Final

from weft.errors import KernelError
from weft.ir import expr as ex
from weft.ir.record import Record
from weft.ir.stmt import (
    Alloc,
    Atomic,
    Body,
    Kernel,
    Location,
    Memory,
    Meta,
    Prefetch,
    Print,
    Stmt,
    Store,
)
from weft.ir.traverse import walk
from weft.lang.core import scalars
from weft.lang.core.intrinsics import Intrinsic
from weft.lang.core.values import Group, Known, Value, Wrong, describe
from weft.lang.reader.frames import Frame
from weft.lang.reader.functions import Functions
from weft.lang.source import liveness
from weft.lang.source.source import Problems, Source, Stop, read_source
from weft.lang.values.types import (
    ConstantType,
    GroupType,
    KernelType,
    Parameters,
    ScalarType,
)

__all__ = ["STACK", "Translated", "proof_error", "translate", "written"]

STACK: Final = 64 << 10  # bytes of local arrays: what any thread has left on its stack

_ALLOWED: Final = frozenset({
    "brev", "clz", "ffs", "fma", "local", "popc", "rsqrt", "selp", "threadfence",
    "threadfence_block", "threadfence_system", "atomic",
})  # fmt: skip

Chain = tuple[tuple[str, Location], ...]


class Translated(Record):
    """A critical function at loop level.

    Attributes
    ----------
    kernel : Kernel
        Its parameters are the arrays and then one memory of one element for each result.
    result : KernelType
        What it returns.
    chains : dict of Stmt to tuple of (str, Location)
        For statements that may end in a call: the functions that are inlined there, from the
        critical function inwards, each with the place where it was called.
    place : Location
        Where it begins.
    """

    kernel: Kernel
    result: KernelType
    chains: dict[Stmt, Chain]
    place: Location


class _Lowering(Functions):
    """Reads a function that runs alone, and notes through which calls it came to a statement."""

    def __init__(self, source: Source, problems: Problems) -> None:
        super().__init__(source, problems)
        place = Location(source.file, source.tree.lineno, source.tree.col_offset)
        self.chain: list[tuple[str, Location]] = [(source.name, place)]
        self.chains: dict[Stmt, Chain] = {}

    def locate(self, stmt: Stmt, node: ast.AST) -> None:
        """Remember where a statement comes from, and through which calls."""
        super().locate(stmt, node)
        if isinstance(stmt, Print | Alloc):
            self.chains[stmt] = tuple(self.chain)

    def inline(self, function: Callable[..., Any], args: list[Value], named: dict[str, Value],
               node: ast.AST) -> Value:  # fmt: skip
        """Return what another function gives."""
        self.chain.append((function.__name__, self.source.place(node)))
        try:
            return super().inline(function, args, named, node)
        finally:
            self.chain.pop()

    def _intrinsic(self, callee: Intrinsic, args: list[Value], named: dict[str, Value],
                   node: ast.Call) -> Value:  # fmt: skip
        if callee.name.partition(".")[0] not in _ALLOWED:
            raise self.wrong(node, f"gpu.{callee.name} in a critical function",
                             "it has no threads beside it: use @weft.kernel")
        return super()._intrinsic(callee, args, named, node)


def translate(function: Callable[..., Any], types: Mapping[str, KernelType],
              returns: KernelType | None, *, checked: bool = True,
              prefetch: bool = False) -> Translated:  # fmt: skip
    """Return the kernel that a critical function is for arguments of some types.

    Parameters
    ----------
    function
        A plain function.
    types
        Type of each parameter, by name, in order.
    returns
        What its results are converted to; None for what they are.
    checked
        Whether every access is checked against the bounds of its array.
    prefetch
        Whether the first line of each array is asked for before anything else is done.

    Raises
    ------
    KernelError
        With everything that is wrong in the function.
    """
    source = read_source(function)
    problems = Problems(source.name)
    lowering = _Lowering(source, problems)
    lowering.checked = checked
    parameters = Parameters()
    values = {name: parameters.value(name, kind) for name, kind in types.items()}
    for name in types:
        lowering.name(name)  # no other memory takes it
    tree = source.tree
    call = ast.copy_location(ast.Call(ast.Name(source.name), [], []), tree)
    leaves: list[tuple[Memory, ex.Expr]] = []
    result: KernelType = ConstantType(None)
    with lowering.into() as out:
        lowering.frames.append(Frame(source, None))
        if prefetch and len(parameters.memories) > 1:
            for memory in parameters.memories:
                lowering.emit(Prefetch(memory, (ex.index(0),) * len(memory.shape)), tree)
        try:
            found = lowering._read_function(source, values, call)
            _check_ends(lowering, found)
            result = _results(lowering, found, returns, "result", leaves)
        except Stop:
            pass
        for memory, value in leaves:
            lowering.emit(Store(memory, (ex.index(0),), value), tree)
    body = (*(alloc for _, alloc in lowering.private.values()), *out)
    _check_stack(lowering, body)
    problems.check()
    params = (*parameters.memories, *(memory for memory, _ in leaves))
    kernel = Kernel(source.name, params, body, Meta("custom"), lowering.locations)
    return Translated(kernel, result, lowering.chains, lowering.chain[0][1])


def written(kernel: Kernel) -> frozenset[str]:
    """Return the names of the memories that a kernel writes to."""
    return frozenset(s.memory.name for s in walk(kernel.body) if isinstance(s, Store | Atomic))


def _check_ends(lowering: _Lowering, found: Value) -> None:
    """Refuse a function that returns a value on some ways only."""
    tree = lowering.source.tree
    if (not isinstance(found, Known) or found.value is not None) and (
        not liveness.always_jumps(tree.body)
    ):
        last = tree.body[-1]
        raise lowering.wrong(last, f"{lowering.source.name} returns nothing behind this statement "
                             "and a value elsewhere", "end it with a return")


def _results(lowering: _Lowering, value: Value, wanted: KernelType | None, name: str,
             leaves: list[tuple[Memory, ex.Expr]]) -> KernelType:  # fmt: skip
    """Add a memory for each number of a result; return its type."""
    node = lowering.source.tree.returns or lowering.source.tree
    if isinstance(value, Wrong):
        raise Stop
    if isinstance(value, Known) and value.value is None:
        if wanted is not None and wanted != ConstantType(None):
            raise lowering.wrong(node, f"{lowering.source.name} returns nothing",
                                 "it is annotated with a result")
        return ConstantType(None)
    if isinstance(value, Group):
        if wanted is not None and (not isinstance(wanted, GroupType)
                                   or len(wanted.items) != len(value.items)):
            raise lowering.wrong(node, f"{lowering.source.name} returns {describe(value)}",
                                 "it is annotated with another result")
        wants = wanted.items if isinstance(wanted, GroupType) else (None,) * len(value.items)
        items = tuple(_results(lowering, v, w, f"{name}.{k}", leaves)
                      for k, (v, w) in enumerate(zip(value.items, wants, strict=True)))
        if isinstance(wanted, GroupType) and wanted.kind is not None:
            return GroupType(items, wanted.names, wanted.kind)
        return GroupType(items, value.names, value.kind)
    if wanted is not None and not isinstance(wanted, ScalarType):
        raise lowering.wrong(node, f"{lowering.source.name} returns {describe(value)}",
                             "it is annotated with another result")
    number = lowering.number_of(value)
    if number is None:
        raise lowering.wrong(node, f"{lowering.source.name} returns {describe(value)}",
                             "a critical function returns numbers, and tuples and structs of them")
    d = number.dtype if wanted is None else wanted.dtype
    memory = Memory(lowering.name(name), d, (ex.index(1),))
    leaves.append((memory, scalars.convert(number, d)))
    return ScalarType(d)


def _check_stack(lowering: _Lowering, body: Body) -> None:
    """Refuse local arrays that a stack may not have room for."""
    total = 0
    for stmt in walk(body):
        if not isinstance(stmt, Alloc) or stmt.memory.scope != "local":
            continue
        memory = stmt.memory
        size = memory.dtype.itemsize
        for extent in memory.shape:
            size *= int(extent.attr)
        total += size
        if total > STACK:
            place = lowering.locations[stmt]
            node = ast.Pass(lineno=place.line, col_offset=place.column)
            lowering.problems.note(
                lowering.source, node, f"local arrays of {total} bytes: a critical function has "
                f"{STACK} on its stack, and allocates nothing",
                f"calls: {_told(lowering.chains[stmt])}; pass the array as an argument")
            return


def _told(chain: Chain) -> str:
    """Return a chain of calls as text: names, and the lines on which they are called."""
    first, *rest = chain
    return " -> ".join([f"{first[0]} (line {first[1].line})",
                        *(f"{name} (called on line {place.line})" for name, place in rest)])


def proof_error(name: str, translated: Translated, violations: list[tuple[str, tuple[str, ...]]]
                ) -> KernelError:  # fmt: skip
    """Return the error for machine code that does more than a function may.

    Parameters
    ----------
    name
        The function.
    translated
        It at loop level: it tells the line.
    violations
        Of each: what the machine code does, and the functions of it that lead there.
    """
    problems = Problems(name)
    prints = [s for s in walk(translated.kernel.body) if isinstance(s, Print)]
    for what, chain in violations:
        blamed = prints if "printf" in what else []
        for stmt in blamed:
            place = translated.kernel.locations[stmt]
            calls = f"{_told(translated.chains[stmt])} -> print -> {' -> '.join(chain[1:])}"
            problems.note(_At(place), ast.Pass(lineno=place.line, col_offset=place.column), what,
                          f"calls: {calls}")
        if not blamed:
            place = translated.place
            problems.note(_At(place), ast.Pass(lineno=place.line, col_offset=place.column), what,
                          "calls: " + " -> ".join(part or "a computed address" for part in chain))
    try:
        problems.check()
    except KernelError as error:
        return error
    raise AssertionError("a proof that fails without a violation")


class _At(Source):
    """A file as the source of a problem."""

    def __init__(self, place: Location) -> None:
        self.file = place.file
        self.tree = ast.parse("def f(): ...").body[0]  # type: ignore[assignment]
