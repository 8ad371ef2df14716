"""Contractions: sums of products over axes that the output does not have.

They are found from the index pattern, whichever front end wrote them: matmul in any layout,
batched, einsum, convolution over windows, matrix times vector. Fourteen forms:

* **outer**: an output axis has unit stride in one operand and is absent from the other. A tile of
  rows x vectors of results lives in registers; each step of the reduced axes reads one piece of
  each operand and updates the whole tile.
* **inner**: the reduced axis has unit stride in both operands (``x @ w.T``, matrix times vector).
  A tile of results is kept as vectors of partial sums along the reduced axis.
* **window**: one operand is read through overlapping or masked windows (convolution). They are
  copied once, without masks, and the lanes run along the channels of the other operand.
* **deep**: a convolution whose weights no near cache holds: block by block of its reduced channels,
  with the sums of all results kept meanwhile.
* **filter**: gradients of weights with few channels: the lanes run along the rows of the images.
* **position**: windows with few channels of results (depthwise, grouped): the lanes run along the
  positions of a row.
* **strip**: windows with few channels of results and short rows: the lanes run along rows of the
  image that were copied one behind the other.
* **dot**: operands of bfloat16 or 8-bit integers are packed into words, of which one instruction
  multiplies all elements (where the target has it).
* **matrix**: the same by products of whole 16 x 16 matrices of words (AMX tiles).
* **parts**: products of float32 as products of matrices of the bfloat16 that they are sums of.
* **gradient**: gradients of bfloat16 convolutions by weights, by products of matrices along the
  positions, all places of the weights from one copy of the image.
* **slide**: convolutions of bfloat16 by products of matrices, all taps from one copy of the image,
  or those of a column, with short rows joined.
* **taps**: the same tap by tap, for windows that are too short, or move another way.
* **lines**: vectors times matrices, whose rows are read one by one.
* **stream**: few rows times a large matrix, which is read as it lies in memory.
"""

from __future__ import annotations

import contextlib
from typing import Final

from weft.errors import ScheduleError
from weft.schedule.loops import vector_obstacle
from weft.strategies.contraction_apart import tell_apart
from weft.strategies.contraction_deep import schedule_deep
from weft.strategies.contraction_dot import schedule_dot
from weft.strategies.contraction_edges import omit_gradient, omit_outside
from weft.strategies.contraction_filter import schedule_filter
from weft.strategies.contraction_gradient import schedule_gradient
from weft.strategies.contraction_inner import inner_cost, schedule_inner
from weft.strategies.contraction_lines import schedule_lines
from weft.strategies.contraction_matrix import schedule_matrix
from weft.strategies.contraction_outer import outer_cost, schedule_outer
from weft.strategies.contraction_parts import schedule_parts
from weft.strategies.contraction_pattern import SPACES, Parameters, Pattern, match, picked, usual
from weft.strategies.contraction_position import schedule_position
from weft.strategies.contraction_slide import schedule_slide
from weft.strategies.contraction_stream import schedule_stream
from weft.strategies.contraction_strip import schedule_strip
from weft.strategies.contraction_taps import schedule_taps
from weft.strategies.contraction_window import schedule_window
from weft.strategies.nest import Plan, fit_privately, private_arrays

__all__ = ["Parameters", "Pattern", "match", "omit_outside", "schedule_contraction"]

FLAT: Final = (schedule_outer, schedule_inner, schedule_lines, schedule_stream)  # no windows
LARGE: Final = (schedule_parts, schedule_gradient, schedule_slide, schedule_matrix,
                schedule_taps)  # of matrices
SMALLER: Final = 4  # how often a form is tried that keeps too much in private arrays
KEPT: Final = ("panel_bytes", "window_bytes", "whole_bytes", "sum_bytes", "dot_bytes",
               "matrix_bytes", "far_block")


def schedule_contraction(plan: Plan, pattern: Pattern, parameters: Parameters | None = None,
                         ) -> bool:
    """Schedule a contraction; whether one of the forms fits."""
    if vector_obstacle(pattern.rows[-1].body) is not None:
        return False
    name = pattern.reduce.accumulators[0].var.attr
    unscheduled = plan.schedule.mark()
    apart = tell_apart(plan, pattern)
    if apart:
        found = match(plan, pattern.rows[0].var.attr)
        assert found is not None
        pattern = found
    saved = plan.schedule.mark()
    reasons = len(plan.why)
    forms = [schedule_outer, schedule_inner]
    costs = [cost(plan, pattern, parameters or usual(plan.target))
             for cost in (outer_cost, inner_cost)]
    if costs[1] is not None and (costs[0] is None or costs[1] < costs[0]):
        forms.reverse()
    forms[:0] = [*LARGE, schedule_dot, schedule_filter, schedule_strip, schedule_deep,
                 schedule_window, schedule_position, schedule_lines, schedule_stream]
    names = [form.__name__.removeprefix("schedule_") for form in forms]
    first = plan.pick("contraction.form", "", names)
    if first:
        forms.insert(0, forms.pop(names.index(first)))
    decided = plan.choices.mark()
    before = private_arrays(plan.kernel)
    for form in forms:
        space = SPACES[form.__name__.removeprefix("schedule_")]
        for smaller in range(SMALLER):
            plan.attempt("contract", name)
            if form in FLAT:
                omit_gradient(plan, pattern)
            p = parameters or picked(plan, space)
            if smaller:
                p = p.replace(**{n: getattr(p, n) >> smaller for n in KEPT})
            fits = False
            with contextlib.suppress(ScheduleError):
                fits = form(plan, pattern, p)
            if fits and fit_privately(plan, private_arrays(plan.kernel) - before,
                                      large=form in LARGE):
                if apart:
                    plan.schedule.unite()
                return True
            plan.schedule.reset(saved)
            plan.choices.reset(decided)
            del plan.why[reasons:]
            if not fits:
                break
    plan.schedule.reset(unscheduled)
    return False
