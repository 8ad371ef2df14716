"""One compute function and the types of its arguments, as loop nests as they were written."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from weft.ir import expr as ex
from weft.ir import stmt as st
from weft.ir.expr import Expr
from weft.ir.record import Record
from weft.ir.stmt import For, Kernel, Meta, Stmt
from weft.ir.traverse import Rewriter, stores, walk
from weft.lang.compute.arguments import Declared
from weft.lang.compute.arrays import Arrays
from weft.lang.compute.nests import LoopPlace, Nests
from weft.lang.reader.frames import Frame
from weft.lang.source import liveness
from weft.lang.source.source import Problems, read_source
from weft.lang.values.types import KernelType

__all__ = ["Written", "translate", "written_memories"]

_THREADS = (st.Barrier, st.Fence, st.Collective)


class Written(Record):
    """A compute function as a kernel of serial loops, and where its loops stand.

    ``constants`` are the arrays that it takes from outside, the last of its parameters.
    """

    kernel: Kernel
    places: Mapping[Expr, LoopPlace]
    constants: tuple[Any, ...]


def translate(function: Callable[..., Any], types: Mapping[str, KernelType],
              declared: Declared, checked: bool) -> Written:
    """Return the loop nests that a Python function is for arguments of some types.

    Raises
    ------
    KernelError
        With everything that is wrong in the function.
    """
    source = read_source(function)
    problems = Problems(source.name)
    lowering = Nests(source, problems)
    lowering.checked, lowering.flat, lowering.stoppable = checked, declared.flat, True
    for memory_name, kind in types.items():
        lowering.env[memory_name] = declared.value(memory_name, kind)
        lowering.name(memory_name)  # no other memory takes it
    body = source.tree.body
    with lowering.into() as out:
        flag = lowering.flag("returned", liveness.needs_flag(body), source.tree)
        lowering.frames.append(Frame(source, flag))
        lowering.run(body)
    for stmt in (*lowering.shared, *walk(tuple(out))):
        if isinstance(stmt, _THREADS) or (isinstance(stmt, st.Alloc) and
                                          stmt.memory.scope == "shared"):
            where = lowering.locations.get(stmt)
            node = source.tree if where is None else _At(where)
            problems.note(source, node,  # type: ignore[arg-type]
                          "compute functions have no threads",
                          "write a weft.kernel for what threads do together")
    problems.check()
    constants = tuple(lowering.constants.values())
    memories = (*declared.memories, *(m for c in constants for m in c.memories))
    arrays = tuple((alloc, lowering.titles.get(key[0]) or alloc.memory.name)
                   for key, (_, alloc) in lowering.private.items())
    made = Arrays(arrays, lowering.exposed, lowering.locations).declared(tuple(out))
    kernel = Kernel(source.name, memories, made, Meta("custom"), lowering.locations)
    kernel, places = _named(kernel, lowering.places)
    return Written(kernel, places, tuple(a for c in constants for a in c.arrays))


def written_memories(function: Callable[..., Any], types: Mapping[str, KernelType],
                     declared: Declared) -> frozenset[str]:
    """Return the names of the arrays that a function writes to."""
    written = translate(function, types, declared, False)
    return frozenset(m.name for m in stores(written.kernel.body))


def _named(kernel: Kernel, places: Mapping[Expr, LoopPlace]
           ) -> tuple[Kernel, dict[Expr, LoopPlace]]:  # fmt: skip
    """Give loops their names in the source, which reading them several times has numbered."""
    loops = [s.var for s in walk(kernel.body) if isinstance(s, For) and s.var in places]
    taken = {str(v.attr) for s in walk(kernel.body) for v in s.binds() if v not in places}
    taken |= {m.name for m in kernel.params}
    renamed: dict[Expr, Expr] = {}
    for var in loops:
        base = name = places[var].name
        count = 0
        while name in taken:
            count += 1
            name = f"{base}_{count}"
        taken.add(name)
        renamed[var] = ex.var(name, var.dtype)

    class Names(Rewriter):
        def visit(self, stmt: Stmt) -> Stmt:
            if isinstance(stmt, For) and stmt.var in renamed:
                made = For(renamed[stmt.var], stmt.extent, stmt.kind, stmt.body)
                self.carry(stmt, made)
                stmt = made
            return stmt.map_exprs(lambda e: ex.substitute([e], renamed)[0])

    return Names(kernel).run(), {renamed[v]: places[v] for v in loops}


class _At:
    """A place in the form in which problems take it."""

    def __init__(self, place: st.Location) -> None:
        self.lineno, self.col_offset = place.line, place.column
