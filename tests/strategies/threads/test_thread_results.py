"""Schedules for devices of threads compute what the nest does, as nests and as launches."""

import numpy as np
import pytest

import graphs
from graphs import el, leaf
from launch_costs import A100, flat
from weft.ir import dtype as dt
from weft.ir import infer
from weft.ir.interpret.interpret import run, run_launch
from weft.ir.op import Op
from weft.kernelize.build import kernelize
from weft.renderers.launches.work_items import launches
from weft.strategies.threads.choose import choose_for_threads

TARGET = A100.replace(group_items=64)


def turned(x, *order):
    return infer.contiguous(infer.permute(x, order))


def padded():
    x = infer.pad(leaf(37, 41), (1, 2), (3, 1), 9.0)
    return turned(infer.slice_(x, (0, 42), (41, 43), (1, -1)), 1, 0)


TILED = {
    "even": lambda: turned(leaf(64, 96), 1, 0),
    "odd": lambda: turned(leaf(70, 41), 1, 0),
    "narrow": lambda: turned(leaf(3, 200, 5), 2, 1, 0),
    "channels": lambda: turned(leaf(2, 11, 13, 3), 0, 3, 1, 2),
    "heads": lambda: turned(leaf(2, 33, 3, 40), 0, 2, 3, 1),
    "small": lambda: turned(leaf(70, 41, dtype=dt.int8), 1, 0),
    "added": lambda: el(Op.ADD, leaf(50, 50), infer.permute(leaf(50, 50), (1, 0))),
    "two": lambda: el(Op.ADD, infer.permute(leaf(50, 34), (1, 0)),
                      el(Op.MUL, leaf(34, 50), infer.permute(leaf(50, 34), (1, 0)))),
    "padded": padded,
}  # fmt: skip
ROWS = {
    "softmax": lambda: graphs.softmax(leaf(5, 300)),
    "layer_norm": lambda: graphs.layer_norm(leaf(7, 257)),
    "short": lambda: graphs.softmax(leaf(9, 45)),
    "sum": lambda: infer.reduce(leaf(6, 1000), "sum", (1,)),
    "whole": lambda: infer.reduce(leaf(66, 100), "sum", (0, 1)),
}


@pytest.mark.parametrize("name", [*TILED, *ROWS])
def test_results(name, rng):
    (step,) = kernelize([(TILED | ROWS)[name]()])
    made = choose_for_threads(step.kernel, TARGET, TARGET.cores)
    tiled = any(line.startswith("stage(") for line in made.meta.schedule)
    assert tiled == (name in TILED), dict(made.meta.hints)["why"]
    params = [rng.integers(-8, 8, m.size.attr).astype(m.dtype.numpy) for m in step.kernel.params]
    expected, nest, launched = ([p.copy() for p in params] for _ in range(3))
    run(step.kernel, expected)
    run(made, nest)
    linear = flat(made, TARGET)
    cut = launches(linear, TARGET).launches
    if name != "whole":
        (launch,) = cut
        run_launch(linear.replace(code=launch.code), launch.groups, launch.items, launched)
    for e, n, f in zip(expected, nest, launched, strict=True):
        np.testing.assert_allclose(n, e, rtol=1e-5, atol=1e-6)
        if name != "whole":
            np.testing.assert_allclose(f, n, rtol=1e-5, atol=1e-6)  # exp is a polynomial there
