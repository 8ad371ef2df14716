"""The primitives `alias` and `unite`: a second name for a memory, as long as it is scheduled."""

from __future__ import annotations

from typing import Final

from weft.errors import ScheduleError
from weft.ir.stmt import Kernel, Load, Memory, Stmt
from weft.ir.traverse import Rewriter, stores, walk
from weft.schedule.analysis.space import Names, find_memory
from weft.schedule.data.memory import swap_memory

_AGAIN: Final = ".again"  # behind the name of a memory: one of its other names


def alias(kernel: Kernel, memory: str, *names: str) -> Kernel:
    """Let some loads of a parameter read it by another name, as if it were given twice.

    load u = a[k, i]; load v = a[k, j]  ->  load u = a[k, i]; load v = a.again[k, j]

    Primitives that copy or fetch a memory take all of its loads for one operand. So those of
    ``a.T @ a`` have a name each until both are scheduled; `unite` gives them their memory back.

    Parameters
    ----------
    memory : str
        A parameter that the kernel does not write.
    *names : str
        Bound by loads of it.

    Raises
    ------
    ScheduleError
        If the memory is written or not a parameter, or a name is not that of one of its loads.
    """
    what = f"alias({', '.join([memory, *names])})"
    found = find_memory(kernel, memory, "alias")
    if found not in kernel.params or found in stores(kernel.body):
        raise ScheduleError(what, found=f"{memory}, which the kernel allocates or writes",
                            expected="a parameter that is only read")
    loads = {s.var.attr for s in walk(kernel.body) if isinstance(s, Load) and s.memory is found}
    if not names or not loads.issuperset(names):
        raise ScheduleError(what, found=f"loads {', '.join(names) or '(none)'} of {memory}",
                            expected="one of " + (", ".join(sorted(loads)) or "(none)"))
    made = found.replace(name=Names(kernel).fresh(f"{memory}{_AGAIN}"))

    class Redirect(Rewriter):
        def visit(self, stmt: Stmt) -> Stmt:
            if isinstance(stmt, Load) and stmt.memory is found and stmt.var.attr in names:
                return stmt.replace(memory=made)
            return stmt

    return Redirect(kernel.replace(params=(*kernel.params, made))).run()


def unite(kernel: Kernel) -> Kernel:
    """Give everything that `alias` gave another name its memory back.

    load u = a[k, i]; load v = a.again[k, j]  ->  load u = a[k, i]; load v = a[k, j]
    """
    known = {m.name: m for m in kernel.params}
    made = kernel
    for memory in kernel.params:
        origin = _origin(memory, known)
        if origin is not None:
            made = swap_memory(made, memory, origin, lambda index: index)
    left = tuple([m for m in kernel.params if _origin(m, known) is None])
    return made if len(left) == len(kernel.params) else made.replace(params=left)


def _origin(memory: Memory, known: dict[str, Memory]) -> Memory | None:
    """Return the parameter that a memory is another name of, None if it is none."""
    name, again, number = memory.name.rpartition(_AGAIN)
    return known.get(name) if again and not number.strip("0123456789") else None
