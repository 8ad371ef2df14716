"""What the user of a loop nest asks of its schedule: each wish is met, or told to be unmet.

Wishes are hints of the kernel, ``("wish tile", (8, 32))``. Those that a strategy decides anyway are
given to it as choices; the rest is done before the strategies run, or after.

* ``tile`` and ``workgroup``: sizes along the outermost loops of a nest. A contraction takes them as
  the results that it keeps in registers; other nests are cut, and a workgroup is what one thread
  does at a time.
* ``shared``: arrays of which the part that a tile or workgroup reads is copied to near memory.
* ``vector_width``: lanes of a vector; ``unroll``: copies of the body of an innermost loop.
* ``tensor_cores``: that matrix instructions are used; ``coalesced``: that vectors access elements
  that lie side by side.
* ``vectors`` and ``threads``: False to use none.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from weft.errors import ScheduleError
from weft.ir import expr as ex
from weft.ir import stmt as st
from weft.ir.stmt import For, Kernel, Reduce
from weft.ir.traverse import walk
from weft.schedule.analysis.space import constant
from weft.schedule.analysis.subscripts import Access, Space
from weft.strategies.common.nest import Plan, chain_of, find, flat_stride, size_of

__all__ = ["PREFIX", "UNMET", "UserRequests"]

PREFIX: Final = "wish "
UNMET: Final = "unmet"  # the hint that tells which wishes are not met
_NESTS: Final = 16  # of one kernel whose vectors a wish can decide


class UserRequests:
    """The wishes of one kernel.

    Attributes
    ----------
    unmet : list of str
        Why wishes are not met.
    """

    def __init__(self, kernel: Kernel) -> None:
        self.given: dict[str, Any] = {k.removeprefix(PREFIX): v for k, v in kernel.meta.hints
                                      if k.startswith(PREFIX)}
        self.unmet: list[str] = []
        self.tiled = False

    def __bool__(self) -> bool:
        return bool(self.given)

    @property
    def sizes(self) -> tuple[int, ...]:
        """The tile, else the workgroup."""
        return tuple(self.given.get("tile") or self.given.get("workgroup") or ())

    def choices(self, lanes: int) -> Mapping[str, Any]:
        """Return the decisions of strategies that are wished for; a register has `lanes`."""
        made: dict[str, Any] = {}
        if self.given.get("tensor_cores"):
            made["contraction.form"] = "matrix"
        width = self.given.get("vector_width")
        if width:
            made |= {f"lanes.{k}" if k > 1 else "lanes": width for k in range(1, _NESTS)}
        if len(self.sizes) >= 2:
            rows, columns = self.sizes[-2:]
            made["contraction.wished"] = True
            made["contraction.rows"] = max(n for n in (2, 4, 6, 8, 10, 12, 14, 16)
                                           if n <= max(rows, 2))
            made["contraction.vectors"] = max(n for n in (1, 2, 4) if n <= max(columns // lanes, 1))
        return made

    # --- before the strategy

    def cut(self, plan: Plan, loop: For, contraction: bool) -> None:
        """Cut a nest into tiles, and copy what is wanted near to each."""
        sizes = self.sizes
        if not sizes:
            return
        if contraction:
            self.tiled = True
            return
        chain = chain_of(loop)
        if len(chain) < len(sizes):
            return
        saved = plan.schedule.mark()
        names = [str(c.var.attr) for c in chain]
        outer, inner = [], []
        try:
            for name, size, found in zip(names, sizes, chain, strict=False):
                n = constant(found.extent)
                if n is not None and n <= size:
                    inner.append(name)
                    continue
                if not plan.attempt("split", name, size, "overlap"):
                    plan.schedule.split(name, size, "trim")  # keeps the nest free of conditions
                outer.append(f"{name}.o")
                inner.append(f"{name}.i")
            rest = names[len(sizes):]
            if len(outer) + len(inner) + len(rest) > 1:
                plan.schedule.reorder(*outer, *inner, *rest)
            for memory in self.given.get("shared", ()):
                self._stage(plan, memory, outer, [*inner, *rest])
        except ScheduleError as error:
            plan.schedule.reset(saved)
            self.unmet.append(f"tiles of {sizes}: {error.operation}: {error.found}")
            return
        self.tiled = True
        plan.why.append(f"tiles of {'×'.join(map(str, sizes))}")

    def _stage(self, plan: Plan, memory: str, outer: list[str], inside: list[str]) -> None:
        if not outer:
            return
        site = find(plan.kernel, outer[-1])
        assert site is not None
        loads = [s for s in walk(site.body) if isinstance(s, st.Load) and s.memory.name == memory]
        if not loads:
            return
        used = {str(v.attr) for s in loads for v in ex.free_vars(s.index)}
        axes = [str(a.var.attr) for s in walk(site.body) if isinstance(s, Reduce) for a in s.axes]
        plan.schedule.stage(memory, outer[-1], tuple(n for n in (*inside, *axes) if n in used))
        plan.why.append(f"{memory} is copied for each tile")

    # --- after it

    def finish(self, plan: Plan) -> None:
        """Do what comes last, and see which wishes are met."""
        if self.sizes and not self.tiled and not self.unmet:
            self.unmet.append(f"tiles of {self.sizes}: no nest of independent loops is as deep")
        for memory in self.given.get("shared", ()):
            if not any(f"stage({memory}," in step for step in plan.schedule.trace):
                self.unmet.append(f"shared {memory}: it needs a tile or workgroup of a nest that "
                                  "only reads it")
        count = self.given.get("unroll")
        if count and not self._unroll(plan, count):
            self.unmet.append(f"unroll={count}: no innermost loop has as many iterations")
        width = self.given.get("vector_width")
        if width:
            found = sorted({size_of(e) for e in _vectors(plan.kernel)})
            if width not in found:
                self.unmet.append(f"vector_width={width}: vectors here have "
                                  f"{', '.join(map(str, found)) or 'no'} lanes")
        if self.given.get("tensor_cores") and not any(
                s.startswith("matrix(") for s in plan.schedule.trace):
            self.unmet.append("tensor_cores: no product here that matrix instructions of this "
                              "target can do")
        if self.given.get("coalesced"):
            self._side_by_side(plan)
        if self.given.get("vectors") and not _vectors(plan.kernel):
            self.unmet.append("vectorizable: nothing runs in vectors")
        if self.given.get("async_copy"):
            self.unmet.append("async_copy: this target has no asynchronous copies")

    def _unroll(self, plan: Plan, count: int) -> bool:
        done = False
        for name, extent in _innermost(plan.kernel):
            n = constant(extent)
            if n is not None and n < count:
                continue
            saved = plan.schedule.mark()
            try:
                if n == count:
                    plan.schedule.unroll(name)
                else:
                    plan.schedule.split(name, count, "mask" if n is not None and n % count == 0
                                        else "peel")
                    plan.schedule.unroll(f"{name}.i")
                done = True
            except ScheduleError:
                plan.schedule.reset(saved)
        return done

    def _side_by_side(self, plan: Plan) -> None:
        space = Space(plan.kernel)
        for loop in walk(plan.kernel.body):
            if not isinstance(loop, For) or loop.kind != st.VECTOR:
                continue
            for stmt in walk(loop.body):
                if not isinstance(stmt, st.Load | st.Store) or stmt.memory.scope != "global":
                    continue
                access = Access(stmt)
                if flat_stride(space, access, space.canonical(loop.var)) not in (0, 1, -1):
                    self.unmet.append(f"coalesced: {access!r} does not run along "
                                      f"{str(loop.var.attr).split('.')[0]}")
                    return


def _vectors(kernel: Kernel) -> list[Any]:
    """Return the extents of the vector loops and axes."""
    found = []
    for stmt in walk(kernel.body):
        if isinstance(stmt, For) and stmt.kind == st.VECTOR:
            found.append(stmt.extent)
        elif isinstance(stmt, Reduce):
            found += [a.extent for a in stmt.axes if a.kind == st.VECTOR]
    return found


def _innermost(kernel: Kernel) -> list[tuple[str, Any]]:
    """Return the serial loops and axes inside of which there are none but vectors and copies."""
    found: list[tuple[str, Any]] = []
    for stmt in walk(kernel.body):
        if not isinstance(stmt, For | Reduce):
            continue
        inside = [s for body in stmt.bodies() for s in walk(body)]
        if any((isinstance(s, For) and s.kind == st.SERIAL) or isinstance(s, Reduce)
               for s in inside):
            continue
        if isinstance(stmt, For) and stmt.kind == st.SERIAL:
            found.append((str(stmt.var.attr), stmt.extent))
        elif isinstance(stmt, Reduce):
            found += [(str(a.var.attr), a.extent) for a in stmt.axes[-1:] if a.kind == st.SERIAL]
    return found
