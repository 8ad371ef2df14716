"""The primitive `unmask`: leave the choice of 0 to loads whose masks make it."""

from __future__ import annotations

from weft.ir.stmt import Kernel, Load, Stmt
from weft.ir.traverse import Rewriter, walk
from weft.schedule.analysis import guard as gd
from weft.schedule.analysis.space import Edit, find_reduce


def unmask(kernel: Kernel, accumulator: str) -> Kernel:
    """Leave out the choices of 0 in a REDUCE that the masks of its loads make already.

    reduce k (s=0) { load v = x[i + k - 1] where c;  s + where(c, v, 0) * w }
    ->  reduce k (s=0) { load v = x[i + k - 1] where c;  s + v * w }

    A load gives +0 where its mask does not hold. So does ``where(d, v, 0)`` for each part d of the
    mask, and no bit changes. The kernel is returned as it is if there is no such choice.

    Parameters
    ----------
    accumulator : str
        Name of an accumulator of the REDUCE.
    """
    site = find_reduce(kernel, accumulator, "unmask")
    free = {s.var: s.mask for s in walk(site.reduce.body)
            if isinstance(s, Load) and s.mask is not None and gd.is_zero(s.fill)}

    class Unmask(Rewriter):
        def visit(self, stmt: Stmt) -> Stmt:
            return gd.unmasked(stmt, free)

    rewriter = Unmask(kernel)
    (made,) = rewriter.body((site.reduce,))
    if made is site.reduce:
        return kernel
    edit = Edit(kernel)
    edit.locations = rewriter.locations
    return edit.replace(site.parents, site.reduce, (made,))
