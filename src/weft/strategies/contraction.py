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
from weft.schedule.loops.loops import vector_obstacle
from weft.strategies.common.aliased_operands import separate_aliases
from weft.strategies.common.contraction_pattern import (
    SPACES,
    Parameters,
    Pattern,
    match,
    picked,
    usual,
)
from weft.strategies.common.nest import Plan, fit_privately, private_arrays
from weft.strategies.common.weight_gradient_borders import omit_gradient, omit_padding
from weft.strategies.convolution.channel_blocked import schedule_deep
from weft.strategies.convolution.depthwise import schedule_position
from weft.strategies.convolution.implicit_gemm import schedule_window
from weft.strategies.convolution.short_rows import schedule_strip
from weft.strategies.convolution.weight_gradient import schedule_filter
from weft.strategies.gemm.dot_product import dot_product_cost, schedule_inner
from weft.strategies.gemm.gemv import schedule_lines
from weft.strategies.gemm.register_tile import register_tile_cost, schedule_outer
from weft.strategies.gemm.skinny_gemm import schedule_stream
from weft.strategies.gemm.split_float32 import schedule_parts
from weft.strategies.matrix_units.dot_instructions import schedule_dot
from weft.strategies.matrix_units.matrix_convolution import schedule_slide
from weft.strategies.matrix_units.matrix_convolution_taps import schedule_taps
from weft.strategies.matrix_units.matrix_gemm import schedule_matrix
from weft.strategies.matrix_units.matrix_weight_gradient import schedule_gradient

__all__ = ["Parameters", "Pattern", "match", "omit_padding", "schedule_contraction"]

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
    apart = separate_aliases(plan, pattern)
    if apart:
        found = match(plan, pattern.rows[0].var.attr)
        assert found is not None
        pattern = found
    saved = plan.schedule.mark()
    reasons = len(plan.why)
    forms = [schedule_outer, schedule_inner]
    costs = [cost(plan, pattern, parameters or usual(plan.target))
             for cost in (register_tile_cost, dot_product_cost)]
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
                plan.forms[form.__module__.rpartition(".")[2]] = None
                return True
            plan.schedule.reset(saved)
            plan.choices.reset(decided)
            del plan.why[reasons:]
            if not fits:
                break
    plan.schedule.reset(unscheduled)
    return False
