"""What tiles of contractions ask for before it is needed: panels, rows to come, results."""

from __future__ import annotations

from weft.ir.stmt import For, Load, Memory, Store
from weft.ir.traverse import walk
from weft.schedule.analysis.space import constant
from weft.schedule.analysis.subscripts import Space, accesses
from weft.strategies.common.contraction_pattern import Pattern
from weft.strategies.common.nest import Plan, find, flat_stride, size_of


def prefetch_operands(plan: Plan, pattern: Pattern, packed: dict[str, bool], row: For, tile: str,
              panel: str, around: str = "", *, broad: bool) -> None:
    """Ask for what no core fetches ahead by itself, while tiles are summed.

    Rows of the next panel are short and lie far apart. If few tiles read a panel, they are asked
    for between runs of the tiles' steps, unless tiles are so narrow that asking would take as long
    as it saves. If many do, between the sums of a tile, where it costs nothing; so are rows of the
    next tile, which begin in pages of their own, and results, whose lines lie apart and are stored
    all at once.

    Parameters
    ----------
    packed : dict
        The operand that is copied into panels, and whether they are turned.
    row : For
        The loop over rows before it was split.
    tile, panel : str
        The loops over tiles of rows, and around them over panels.
    around : str
        The loop around `panel` that moves on when that begins anew; none if empty.
    broad : bool
        Whether tiles are as broad as the registers allow.
    """
    copies = {memory: find_copy(plan, memory) for memory, strided in packed.items() if not strided}
    costs = plan.costs
    few = (costs.prefetch_whole_panel_rows if plan.target.whole_vectors
           else costs.prefetch_panel_rows)
    if size_of(row.extent) <= few:
        if broad:
            _ask_in_steps(plan, pattern, copies, row, tile, panel, around)
        copies = {}
    _ask_between_sums(plan, pattern, copies, row, tile, panel)


def _ask_in_steps(plan: Plan, pattern: Pattern, copies: dict[str, str | None], row: For,
                  tile: str, panel: str, around: str) -> None:
    """Ask for the next panel between runs of the tiles' steps, if it comes from memory."""
    for memory, copy in copies.items():
        reads = [a.memory for a in accesses(pattern.reduce.body) if a.memory.name == memory]
        if copy is None or not _is_far(plan, reads[0]):
            continue  # no panel, or near enough
        rows = _inner(tile)
        steps = next(s for s in walk(plan.kernel.body) if isinstance(s, For)
                     and any(isinstance(b, For) and b.var.attr == rows for b in s.body))
        if plan.attempt("prefetch", memory, steps.var.attr, panel, granularity="row", read=copy,
                        first=tile, around=around):
            plan.why.append(f"the next panel of {memory} is asked for meanwhile")


def _ask_between_sums(plan: Plan, pattern: Pattern, copies: dict[str, str | None], row: For,
                      tile: str, panel: str) -> None:
    """Ask for rows, results and panels in each turn of the loop that starts sums anew."""
    rows = _inner(tile)
    turns = next((s for s in walk(plan.kernel.body) if isinstance(s, For) and any(
        isinstance(b, For) and b.var.attr == f"{rows}.z" for b in s.body)), None)
    if turns is None or turns.var.attr == tile or not constant(turns.extent):
        return
    name, asked = str(turns.var.attr), []
    moving = {a.memory: flat_stride(Space(plan.kernel), a, row.var)
              for a in accesses(pattern.reduce.body)}
    end = find(plan.kernel, f"{rows}.end")
    written = {s.memory for s in walk(end.body if end else ()) if isinstance(s, Store)}
    for memory in plan.kernel.params:
        ahead, wanted, what = name, dict[str, str | int](distance=0, read=f"{rows}.end"), "lines"
        if memory in written:
            pass
        elif moving.get(memory):
            count = plan.costs.prefetch_row_lines
            ahead, wanted, what = tile, {"count": count, "read": rows}, "rows"
        elif memory in moving and (copy := copies.get(memory.name)):
            ahead, wanted, what = panel, {"read": copy, "first": tile}, "the next panel"
        else:
            continue
        if _is_far(plan, memory) and plan.attempt("prefetch", memory.name, name, ahead,
                                                  granularity="rows", **wanted):
            asked.append(f"{what} of {memory.name}")
    if asked:
        plan.why.append(f"{', '.join(asked)} asked for between sums")


def _inner(tile: str) -> str:
    """Return the loop over the rows of a tile, from the one over tiles or over some of them."""
    return f"{tile.removesuffix('.i').removesuffix('.o')}.i"


def _is_far(plan: Plan, memory: Memory) -> bool:
    """Whether a parameter does not stay in the second cache."""
    return size_of(memory.size) * memory.dtype.itemsize > plan.target.l2_bytes


def find_copy(plan: Plan, memory: str) -> str | None:
    """Return the outermost loop that does nothing but copy a panel of an operand."""
    for stmt in walk(plan.kernel.body):
        if isinstance(stmt, For) and stmt.var.attr.endswith(".s"):
            inside = [s for s in walk(stmt.body) if not isinstance(s, For)]
            if any(isinstance(s, Load) and s.memory.name == memory for s in inside):
                return str(stmt.var.attr)
    return None
