"""Convolutions on devices of threads as implicit matrix products: results, forms and costs."""

import math

import numpy as np
import pytest

import weft
from graphs import conv2d, el, full, leaf
from launch_costs import A100, launch_costs
from launch_runs import launched
from weft.graph.autodiff import gradients
from weft.graph.simplify import simplify
from weft.ir import expr as ex
from weft.ir import infer
from weft.ir import node as nd
from weft.ir.interpret import interpret
from weft.ir.op import Op
from weft.ir.text.text import print_kernel
from weft.ir.traverse import walk
from weft.ir.verify.verify import verify
from weft.kernelize.build import kernelize
from weft.passes.legalize import legalize
from weft.passes.linearize import linearize
from weft.passes.vector.vectorize import vectorize
from weft.renderers.launches.work_items import launches
from weft.schedule import Schedule
from weft.strategies.threads.choose import choose_for_threads

SMALL = A100.replace(max_items=64, group_items=64, shared_bytes=16 << 10)


def convolution(x, w, stride=1, padding=0, dilation=1, groups=1):
    """Return the convolution of N C ... with O C/groups ..., in any number of dimensions."""
    count, n = x.shape[0], w.ndim - 2
    inner, outputs = w.shape[1], w.shape[0] // groups
    x = infer.reshape(x, (count, groups, inner, *x.shape[2:]))
    edge = (0, 0, 0, *(padding,) * n)
    x = infer.pad(x, edge, edge)
    for at, size in enumerate(w.shape[2:]):
        x = infer.window(x, 3 + at, size, stride, dilation)
    spatial = x.shape[3 : 3 + n]
    x = infer.permute(x, (0, 1, *range(3, 3 + n), 2, *range(3 + n, 3 + 2 * n)))
    x = infer.reshape(x, (count, groups, 1, *spatial, inner, *w.shape[2:]))
    w = infer.reshape(w, (1, groups, outputs, *(1,) * n, inner, *w.shape[2:]))
    shape = (count, groups, outputs, *spatial, inner, *w.shape[-n:])
    terms = el(Op.MUL, infer.expand(x, shape), infer.expand(w, shape))
    total = infer.reduce(terms, "sum", tuple(range(3 + n, 4 + 2 * n)))
    return infer.reshape(total, (count, groups * outputs, *spatial))


def rectified(x, w):
    """Return a convolution with a bias and an activation behind it."""
    y = convolution(x, w, padding=1)
    bias = infer.reshape(leaf(w.shape[0]), (1, w.shape[0], 1, 1))
    return el(Op.MAX, el(Op.ADD, y, infer.expand(bias, y.shape)), full(y, 0.0))


def gradient(wanted, **named):
    """Return the maker of a gradient by the input (0) or by the weights (1)."""

    def make(x, w):
        y = convolution(x, w, **named)
        (found,) = gradients([y], [leaf(*y.shape, dtype=y.dtype)], [(x, w)[wanted]])
        return found

    return make


def with_options(**named):
    return lambda x, w: convolution(x, w, **named)


PROGRAMS = {
    "one dimension": (with_options(padding=2), (2, 5, 19), (17, 5, 4)),
    "two": (with_options(padding=1), (2, 3, 5, 7), (18, 3, 3, 3)),
    "three": (with_options(padding=1), (1, 2, 3, 4, 5), (16, 2, 2, 3, 3)),
    "no padding": (with_options(), (3, 4, 6, 5), (16, 4, 2, 3)),
    "stride": (with_options(stride=2, padding=3), (2, 3, 9, 11), (16, 3, 7, 7)),
    "dilation": (with_options(dilation=2, padding=2), (2, 3, 6, 7), (17, 3, 3, 3)),
    "groups": (with_options(groups=2, padding=1), (1, 6, 5, 6), (34, 3, 3, 3)),
    "everything": (with_options(stride=3, dilation=2, groups=2, padding=4),
                   (3, 4, 11, 13), (32, 2, 3, 4)),
    "few outputs": (with_options(padding=1), (2, 4, 12, 13), (5, 4, 3, 3)),
    "few in each group": (with_options(padding=1, groups=3), (2, 6, 11, 12), (12, 2, 3, 3)),
    "points": (with_options(), (3, 20, 3, 3), (19, 20, 1, 1)),
    "epilogue": (rectified, (1, 3, 5, 7), (18, 3, 3, 3)),
    "by the input": (gradient(0, padding=1), (2, 17, 4, 5), (6, 17, 3, 3)),
    "by the input, stride": (gradient(0, stride=2, padding=1), (2, 16, 8, 9), (9, 16, 3, 3)),
    "by the weights": (gradient(1, padding=1), (2, 3, 5, 6), (17, 3, 3, 3)),
    "by the weights, stride": (gradient(1, stride=2, padding=3), (2, 3, 9, 9), (16, 3, 7, 7)),
    "by the weights, groups": (gradient(1, groups=2, padding=1), (2, 6, 5, 4), (32, 3, 3, 3)),
}  # fmt: skip
FLOATS = (weft.float64, weft.float16, weft.bfloat16)
ROWS = [*((name, weft.float32) for name in PROGRAMS),
        *(("two", d) for d in (*FLOATS, weft.int8, weft.int32, weft.int64))]  # fmt: skip


def scheduled(name, dtype=weft.float32, target=SMALL, units=4):
    program, *shapes = PROGRAMS[name]
    (step,) = kernelize(simplify([program(*(leaf(*s, dtype=dtype) for s in shapes))]))
    return step, choose_for_threads(step.kernel, target, units)


def arrays(kernel, rng, dtype):
    return [rng.integers(-4, 5, math.prod(d.attr for d in m.shape)).astype(dtype.numpy)
            for m in kernel.params]  # fmt: skip


@pytest.mark.parametrize(("name", "dtype"), ROWS, ids=str)
def test_blocks_compute_what_the_nest_does(name, dtype, rng):
    step, made = scheduled(name, dtype)
    assert "blocks" in dict(made.meta.hints)["why"]
    assert any(line.startswith("stage(") for line in made.meta.schedule)
    assert not any(e.op is Op.WHERE for s in walk(made.body) for e in ex.toposort(list(s.exprs())))
    verify(made)
    again = Schedule.replay(step.kernel, made.meta.schedule).kernel
    assert print_kernel(again) == print_kernel(
        made.replace(meta=made.meta.replace(hints=step.kernel.meta.hints)))
    operands = arrays(step.kernel, rng, dtype)
    wanted, found, run = ([x.copy() for x in operands] for _ in range(3))
    interpret.run(step.kernel, wanted)
    interpret.run(made, found)
    for w, f in zip(wanted, found, strict=True):
        np.testing.assert_array_equal(f, w)
    linear = linearize(vectorize(legalize(made, SMALL)))
    launched(linear, run, {}, 2, SMALL)
    for w, f in zip(wanted, run, strict=True):
        np.testing.assert_array_equal(f, w)
    assert all(launch.items <= SMALL.max_items for launch in launches(linear, SMALL).launches)


def test_zeros_of_the_padding_and_of_the_last_terms_add_nothing():
    """Infinities, NaN and signed zeros at the borders, and sums whose length is odd."""
    step, made = scheduled("two")
    operands = [np.ones(math.prod(d.attr for d in m.shape), np.float32) for m in made.params]
    image, weights = operands[:2]
    image[:7] = np.inf, -0.0, 1, -1, np.nan, -0.0, 0
    image[-9:] = -np.inf
    weights[::5], weights[1::7] = -0.0, -1
    wanted, found, run = ([x.copy() for x in operands] for _ in range(3))
    interpret.run(step.kernel, wanted)
    interpret.run(made, found)
    launched(linearize(vectorize(legalize(made, SMALL))), run, {}, 2, SMALL)
    for result in (found, run):
        np.testing.assert_array_equal(result[-1].view(np.int32), wanted[-1].view(np.int32))
    assert np.isnan(wanted[-1]).any()
    assert np.isfinite(wanted[-1]).any()


def test_images_whose_number_changes_from_call_to_call(rng):
    count = ex.Variable("count", 1, 300)
    x = infer.reshape(nd.buffer(nd.Storage(weft.float32, count * (3 * 5 * 7))), (count, 3, 5, 7))
    w = leaf(18, 3, 3, 3)
    amounts = (0, 0, 1, 1)
    seen = infer.window(infer.window(infer.pad(x, amounts, amounts), 2, 3), 3, 3)
    seen = infer.reshape(infer.permute(seen, (0, 2, 3, 1, 4, 5)), (count, 1, 5, 7, 3, 3, 3))
    shape = (count, 18, 5, 7, 3, 3, 3)
    weights = infer.expand(infer.reshape(w, (1, 18, 1, 1, 3, 3, 3)), shape)
    y = infer.reduce(el(Op.MUL, infer.expand(seen, shape), weights), "sum", (4, 5, 6))
    (step,) = kernelize(simplify([y]))
    made = choose_for_threads(step.kernel, SMALL, 4)
    assert "blocks" in dict(made.meta.hints)["why"]
    linear = linearize(vectorize(legalize(made, SMALL)))
    for images in (1, 2, 5):
        sizes = {"count": images}
        operands = [rng.integers(-4, 5, int(interpret.evaluate(m.size, {count: images})))
                    .astype(np.float32) for m in made.params]  # fmt: skip
        wanted, run = ([a.copy() for a in operands] for _ in range(2))
        interpret.run(step.kernel, wanted, sizes)
        launched(linear, run, sizes, 3, SMALL)
        np.testing.assert_array_equal(run[-1], wanted[-1])


def test_tiles_keep_to_the_registers_of_a_thread():
    for registers in (8, 24, 32, 64):
        target = A100.replace(item_registers=registers)
        (step,) = kernelize([conv2d(leaf(4, 32, 28, 28), leaf(64, 32, 3, 3))])
        why = dict(choose_for_threads(step.kernel, target, 2).meta.hints)["why"]
        tall, wide = map(int, why.split(" by each")[0].split()[-1].split("x"))
        assert tall * wide + tall + wide <= registers
        assert tall * wide > 1


LARGE = {
    "3x3": (with_options(padding=1), (8, 64, 56, 56), (64, 64, 3, 3), 0.95),
    "7x7": (with_options(stride=2, padding=3), (16, 3, 224, 224), (64, 3, 7, 7), 0.8),
    "short rows": (with_options(padding=1), (8, 512, 7, 7), (512, 512, 3, 3), 0.95),
    "groups": (with_options(padding=1, groups=32), (8, 128, 28, 28), (128, 4, 3, 3), 0.95),
    "volumes": (with_options(padding=1), (2, 32, 16, 32, 32), (64, 32, 3, 3, 3), 0.95),
    "by the weights": (gradient(1, padding=1), (8, 64, 56, 56), (64, 64, 3, 3), 0.9),
    "by the input": (gradient(0, padding=1), (8, 64, 56, 56), (64, 64, 3, 3), 0.75),
}


@pytest.mark.parametrize("name", LARGE)
def test_what_large_ones_move(name):
    """Each operand is read once for each block that it belongs to, by whole sectors where it can.

    A stride leaves out every other element, and gradients by the input read 9 weights of a channel.
    """
    program, x, w, used = LARGE[name]
    (step,) = kernelize(simplify([program(leaf(*x), leaf(*w))]))
    made = choose_for_threads(step.kernel, A100, A100.cores)
    (cost,) = launch_costs(made)
    why = dict(made.meta.hints)["why"]
    rows, columns = map(int, why.split("blocks of ")[1].split()[0].split("x"))
    terms = step.kernel.meta.flops // 2
    assert sum(cost.read.values()) <= 1.1 * 4 * terms * (1 / rows + 1 / columns)
    assert sum(cost.written.values()) <= 1.1 * 4 * math.prod(
        d.attr for d in step.kernel.params[-1].shape)  # fmt: skip
    assert cost.used >= used
    assert cost.conflicts <= 0.01 * sum(b.turns for b in cost.shared.values())


@pytest.mark.parametrize("name", ["3x3", "by the weights"])
def test_trace(name, golden):
    program, x, w, _ = LARGE[name]
    (step,) = kernelize(simplify([program(leaf(*x), leaf(*w))]))
    made = choose_for_threads(step.kernel, A100, A100.cores)
    lines = [line for cost in launch_costs(made) for line in ("", *cost.lines())]
    golden(f"threads/convolution_{name.replace(' ', '_')}.txt",
           "\n".join((*made.meta.schedule, *lines)))
