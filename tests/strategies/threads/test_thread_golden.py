"""One trace of each form of the schedules for devices of threads, and what its launches cost."""

import pytest

import graphs
from graphs import leaf
from launch_costs import A100, launch_costs
from weft.ir import infer
from weft.kernelize.build import kernelize
from weft.strategies.threads.choose import choose_for_threads

FORMS = {
    "elementwise": lambda: graphs.el(graphs.Op.EXP, leaf(1024, 4096)),
    "transposed": lambda: infer.contiguous(infer.permute(leaf(4096, 4096), (1, 0))),
    "softmax": lambda: graphs.softmax(leaf(4096, 4096)),
    "layer_norm": lambda: graphs.layer_norm(leaf(4096, 4096)),
    "columns": lambda: infer.reduce(leaf(1024, 4096), "sum", (0,)),
    "scan": lambda: infer.scan(leaf(4096, 1000), "sum", 1),
    "long_scan": lambda: infer.scan(leaf(1 << 20), "sum", 0),
    "column_scan": lambda: infer.scan(leaf(1 << 14, 32), "max", 0),
    "whole_sum": lambda: infer.reduce(leaf(4096, 4096), "sum", (0, 1)),
}


@pytest.mark.parametrize("form", FORMS)
def test_trace_and_costs(form, golden):
    (step,) = kernelize([FORMS[form]()], A100)
    made = choose_for_threads(step.kernel, A100, A100.cores)
    lines = [line for cost in launch_costs(made) for line in ("", *cost.lines())]
    golden(f"threads/{form}.txt", "\n".join((*made.meta.schedule, *lines)))
