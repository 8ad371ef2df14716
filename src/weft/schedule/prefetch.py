"""The primitive that asks for memory before it is needed."""

from __future__ import annotations

from weft.errors import ScheduleError
from weft.ir import expr as ex
from weft.ir.stmt import Body, For, Kernel, Load, Prefetch, Reduce
from weft.schedule.space import Edit, find_loop, find_memory


def prefetch(kernel: Kernel, memory: str, loop: str, ahead: str, distance: int = 1) -> Kernel:
    """Ask for what a later iteration of an outer loop reads ("prefetch" in TVM and Halide).

    for i: { for j: a[i, j] ...; for k: { x = a[i, k]; ... } }        (loop = k, ahead = i)
    ->  for i: { for j: a[i, j] ...; for k: { prefetch a[i + 1, k]; x = a[i, k]; ... } }

    It changes speed only. The addresses beyond the last iteration are asked for in vain; no
    machine faults on them.

    Parameters
    ----------
    memory : str
        Read in `loop`.
    loop : str
        The innermost loop, or reduce axis, around the load; the work there hides the latency.
    ahead : str
        A loop around it, whose variable is part of the load's subscript.
    distance : int
        Iterations of `ahead`, at least 1.

    Raises
    ------
    ScheduleError
        If the loop does not read the memory, or reads it at a place that `ahead` does not change.
    """
    what = f"prefetch({memory}, {loop}, {ahead}, {distance})"
    site = find_loop(kernel, loop, "prefetch")
    source = find_memory(kernel, memory, "prefetch")
    outer = find_loop(kernel, ahead, "prefetch")
    if distance < 1 or not any(p is outer.stmt for p in site.parents):
        raise ScheduleError(what, found=f"{ahead} at distance {distance}",
                            expected=f"a loop around {loop} and a distance of at least 1")
    body = site.body
    found = next((s for s in body if isinstance(s, Load) and s.memory is source), None)
    if found is None or outer.var not in ex.free_vars(found.index):
        raise ScheduleError(what, found=f"no load of {memory} in {loop} that {ahead} moves",
                            expected="a load at a place that varies with the outer loop")
    index = tuple(ex.substitute(found.index, {outer.var: outer.var + distance}))
    at = next(p for p, s in enumerate(body) if s is found)
    edit = Edit(kernel)
    hint = Prefetch(source, index)
    edit.locate(found, hint)
    new: Body = (*body[:at], hint, *body[at:])
    stmt = site.stmt
    assert isinstance(stmt, For | Reduce)
    return edit.replace(site.parents, stmt, (stmt.with_bodies(new),))
