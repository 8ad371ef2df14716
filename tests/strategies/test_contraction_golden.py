"""One trace of each form of a contraction, and its cost: what a change of the form shows first."""

import functools

import pytest
from test_contraction_gradient import gradient
from test_contraction_matrix import TARGET, WITHOUT
from test_contraction_taps import narrow

import schedule_nests as nests
import weft
from schedule_costs import Cost
from weft.kernelize.build import kernelize
from weft.strategies import choose, contraction
from weft.target import Target

WIDE = Target("cpu", "x86_64", vector_bytes=64, vector_registers=32, l1_bytes=32 << 10,
              l2_bytes=1 << 20, cores=2)


def strip():
    x, w = (weft.zeros(*shape).realize() for shape in ((2, 64, 11, 7), (6, 64, 3, 3)))
    (step,) = kernelize([x.conv2d(w, padding=1)._read()], WIDE)
    return step.kernel


FORMS = {
    "register_tile": (lambda: nests.matmul(200, 96, 300), WIDE),
    "dot_product": (lambda: nests.matmul(18, 18, 512, right="jk"), WIDE),
    "gemv": (lambda: nests.vectors_times_matrices(1, 500, 300), WIDE),
    "skinny_gemm": (lambda: nests.matmul(8, 1024, 768), WIDE),
    "split_float32": (lambda: nests.matmul(300, 300, 512), TARGET),
    "implicit_gemm": (lambda: nests.convolution(14, 14, 1, 1, 16, 32), WIDE),
    "channel_blocked": (lambda: nests.convolution(14, 14, 1, 1, 256, 256), WIDE),
    "depthwise": (lambda: nests.convolution(12, 40, 1, 1, 3, 2), WIDE),
    "short_rows": (strip, WIDE),
    "weight_gradient": (functools.partial(
        gradient, (4, 3, 32, 32), (3, 3, 3, 3), weft.float32, padding=1), WIDE),
    "dot_instructions": (lambda: nests.narrow(61, 70, 40), WITHOUT),
    "matrix_gemm": (lambda: nests.narrow(64, 64, 96), TARGET),
    "matrix_convolution": (lambda: narrow(3, 18, 1, 1, 16, 32), TARGET),
    "matrix_convolution_taps": (lambda: narrow(12, 10, 1, 1, 13, 20), TARGET),
    "matrix_weight_gradient": (functools.partial(
        gradient, (2, 32, 20, 34), (32, 32, 3, 3), padding=1), TARGET),
}  # fmt: skip


def test_each_form_has_a_trace():
    found = {function.__module__.rpartition(".")[2] for name, function in vars(contraction).items()
             if name.startswith("schedule_") and name != "schedule_contraction"}
    assert found == FORMS.keys()


@pytest.mark.parametrize("form", FORMS)
def test_trace(form, golden):
    make, target = FORMS[form]
    made = choose(make(), target, 2)
    cost = Cost(made)
    assert cost.form == form
    golden(f"contraction/{form}.txt", "\n".join((*made.meta.schedule, "", *table(cost))))


def table(cost):
    """Return what a nest costs, a line for each memory."""
    yield f"products: {cost.multiplications} of {cost.lanes} elements"
    yield f"shares of threads: {cost.shares}"
    for name in sorted({*cost.read, *cost.written, *cost.prefetched}):
        yield (f"{name}: {cost.read[name]} read, {cost.written[name]} written, "
               f"{cost.prefetched[name]} prefetched, {cost.private.get(name, 0)} bytes of its own")
