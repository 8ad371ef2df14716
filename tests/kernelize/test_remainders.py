"""Sums over every s-th tap are cut by remainders, and give what they gave."""

import numpy as np
import pytest

import schedule_nests as nests
import weft
from schedule_nests import assert_same, loop, memory, v
from weft.ir import expr as ex
from weft.ir.op import Op
from weft.ir.stmt import (
    VECTOR,
    Accumulator,
    Alloc,
    Axis,
    For,
    Kernel,
    Load,
    Meta,
    Reduce,
    Store,
    lhs,
    rhs,
)
from weft.ir.traverse import walk
from weft.ir.verify.verify import verify
from weft.kernelize.windows.phase_split import split_phases
from weft.strategies import choose
from weft.target import Target

CASES = [(9, 3, 2, 1), (10, 3, 2, 1), (13, 5, 3, 1), (12, 2, 3, 1), (11, 3, 2, 2), (13, 4, 4, 2),
         (7, 1, 3, 1), (16, 5, 2, 3), (5, 5, 2, 1)]  # fmt: skip


def adjoint(length, kernel, step, dilation):
    """y[i] = the sum of g[(i - k*d) // s] * w[k] where s divides i - k*d and it is inside."""
    count = (length - (kernel - 1) * dilation - 1) // step + 1
    g, w, y = memory("g", count), memory("w", kernel), memory("y", length)
    i, k, a, b, s = v("i"), v("k"), nests.f("a"), nests.f("b"), nests.f("s")
    moved = i - k * dilation
    inside = moved.ge(0) & (moved % step).eq(0) & (moved // step).lt(count)
    zero = ex.const(0.0, a.dtype)
    update = s + ex.where(inside, a, zero) * b
    reduce = Reduce((Axis(k, ex.index(kernel)),),
                    (Accumulator(s, zero, update, lhs(s) + rhs(s)),),
                    (Load(a, g, (moved // step,), inside), Load(b, w, (k,))))  # fmt: skip
    body = loop("i", length, reduce, Store(y, (i,), s))
    return Kernel("adjoint", (g, w, y), (body,), Meta(kind="contraction"))


@pytest.mark.parametrize(("length", "kernel", "step", "dilation"), CASES)
def test_one_nest_for_each_remainder(length, kernel, step, dilation):
    made = adjoint(length, kernel, step, dilation)
    cut = split_phases(made)
    verify(cut)
    assert_same(made, cut)
    assert len(cut.body) == min(step, length)
    terms = [e for s in walk(cut.body) for e in s.exprs()]
    assert not any(e.op is Op.MOD for e in ex.toposort(terms))
    points = sum(s.extent.attr * t.axes[0].extent.attr for s in cut.body if isinstance(s, For)
                 for t in s.body if isinstance(t, Reduce))  # fmt: skip
    assert points <= (length + step) * (kernel + step) // step  # of length * kernel before


def test_other_sums_are_left_alone():
    """A condition outside the factors, and steps of 1."""
    made = adjoint(9, 3, 1, 1)
    assert split_phases(made) is made
    loop_, = adjoint(9, 3, 2, 1).body
    reduce = loop_.body[0]
    acc = reduce.accumulators[0]
    most = acc.replace(combine=ex.binary(Op.MAX, lhs(acc.var), rhs(acc.var)))
    other = made.with_body((For(loop_.var, loop_.extent, loop_.kind, (
        Reduce(reduce.axes, (most,), reduce.body), *loop_.body[1:])),))  # fmt: skip
    assert split_phases(other) is other


@pytest.mark.grid
@pytest.mark.requires("torch")
@pytest.mark.parametrize(("shape", "weight", "options"), [
    ((2, 3, 9, 12), (4, 3, 3, 3), {"stride": 2, "padding": 1}),
    ((2, 17, 11, 13), (5, 17, 3, 5), {"stride": (2, 3), "padding": (1, 2), "dilation": (1, 2)}),
    ((1, 16, 15, 20), (16, 4, 3, 3), {"stride": 2, "groups": 4}),
    ((2, 6, 13, 18), (12, 1, 3, 3), {"stride": 2, "padding": 1, "groups": 6}),  # depthwise
    ((2, 6, 13, 18), (6, 1, 3, 3), {"padding": 1, "groups": 6}),
    ((3, 5, 31), (7, 5, 4), {"stride": 3, "dilation": 2}),
    ((1, 2, 7, 8, 9), (3, 2, 3, 2, 3), {"stride": 2, "padding": 1}),
    ((2, 3, 1, 5), (2, 3, 1, 1), {"stride": 2}),
    ((2, 40, 20, 23), (3, 40, 3, 3), {"padding": 1}),  # few channels of results
    ((5, 3, 20, 40), (37, 3, 3, 3), {"padding": 1}),  # many, a long sum that is cut
    ((1, 9, 20, 8), (8, 9, 7, 7), {"padding": 3, "dilation": 2}),
    ((8, 7, 25, 6), (128, 7, 3, 3), {}),  # few channels on short rows: windows side by side
    ((3, 7, 67, 11), (32, 7, 7, 7), {"stride": 2}),
    ((2, 26, 39, 9), (40, 26, 7, 7), {}),  # most taps lie outside of a row
    ((3, 20, 12, 13), (16, 20, 7, 7), {"padding": 3}),  # rows of taps that overlap
    ((2, 9, 12, 15), (13, 9, 5, 5), {"padding": 2}),  # lanes that a vector has not all of
    ((2, 5, 17, 17), (3, 5, 9, 9), {"dilation": 2}),  # one window
    ((8, 17, 13, 49), (457, 17, 5, 5), {"stride": 2}),  # four nests share the private memory
])  # fmt: skip
def test_gradients_of_convolutions(shape, weight, options):
    import torch

    n = len(shape) - 2
    rng = np.random.default_rng(len(shape) + shape[1])
    a, b = (rng.standard_normal(s).astype(np.float32) for s in (shape, weight))
    x, w = (torch.tensor(t, dtype=torch.float64, requires_grad=True) for t in (a, b))
    y = getattr(torch.nn.functional, f"conv{n}d")(x, w, **options)
    g = rng.standard_normal(y.shape).astype(np.float32)
    y.backward(torch.tensor(g, dtype=torch.float64))
    u, f = weft.from_numpy(a).requires_grad_(), weft.from_numpy(b).requires_grad_()
    (getattr(u, f"conv{n}d")(f, **options) * weft.from_numpy(g)).sum().backward()
    for mine, theirs in ((u.grad, x.grad), (f.grad, w.grad)):
        want = theirs.numpy()
        np.testing.assert_allclose(mine.numpy(), want, rtol=0, atol=2e-6 * np.abs(want).max())


def test_all_remainders_copy_their_boxes_in_vectors():
    """Loops of the later ones have names of their own: they were copied element by element."""
    images, channels, outputs, count, kernel = 3, 8, 9, 12, 4
    g, w = memory("g", images, channels, count), memory("w", channels, outputs, kernel)
    y = memory("y", images, outputs, 2 * count + 2)
    m, o, c, i, k = (v(name) for name in "mocik")
    a, b, s = (nests.f(name) for name in "abs")
    inside = (i - k).ge(0) & ((i - k) % 2).eq(0) & ((i - k) // 2).lt(count)
    zero = ex.const(0.0, a.dtype)
    reduce = Reduce((Axis(c, ex.index(channels)), Axis(k, ex.index(kernel))),
                    (Accumulator(s, zero, s + ex.where(inside, a, zero) * b, lhs(s) + rhs(s)),),
                    (Load(a, g, (m, c, (i - k) // 2), inside), Load(b, w, (c, o, k))))
    body = loop("m", images, loop("o", outputs, loop("i", 2 * count + 2, reduce,
                                                     Store(y, (m, o, i), s))))
    before = Kernel("adjoint", (g, w, y), (body,), Meta(kind="contraction"))
    made = choose(split_phases(before), Target("cpu", "x86_64", vector_bytes=16,
                                                    vector_registers=32, cores=1), 1)
    assert_same(before, made)
    boxes = {s.memory for s in walk(made.body) if isinstance(s, Alloc)
             and s.memory.name.startswith("g.w")}
    assert len(boxes) == 2
    copies = [s for s in walk(made.body) if isinstance(s, For) and any(
        isinstance(t, Store) and t.memory in boxes for t in walk(s.body)) and not any(
        isinstance(t, For) for t in s.body)]
    assert len(copies) == 2
    assert all(s.kind == VECTOR for s in copies)


def windows_apart(length, points, taps, dilation, start, sign):
    """y[i] = the sum of g[i + start + sign*d*k] * w[k] where it is inside."""
    g, w, y = memory("g", points), memory("w", taps), memory("y", length)
    i, k, a, b, s = v("i"), v("k"), nests.f("a"), nests.f("b"), nests.f("s")
    place = i + k * dilation + start if sign > 0 else i - k * dilation + start
    inside = ex.index(-1).lt(place) & place.lt(points)
    zero = ex.const(0.0, a.dtype)
    reduce = Reduce((Axis(k, ex.index(taps)),),
                    (Accumulator(s, zero, s + ex.where(inside, a, zero) * b, lhs(s) + rhs(s)),),
                    (Load(a, g, (place,), inside), Load(b, w, (k,))))
    body = loop("i", length, reduce, Store(y, (i,), s))
    return Kernel("apart", (g, w, y), (body,), Meta(kind="contraction"))


@pytest.mark.parametrize(("length", "points", "taps", "dilation", "start", "sign"), [
    (5, 1, 3, 2, 0, -1), (6, 2, 3, 2, 0, -1), (4, 2, 3, 2, 1, -1), (13, 3, 4, 4, 1, -1),
    (2, 2, 3, 2, -2, 1), (3, 1, 5, 3, -6, 1), (11, 2, 4, 3, 0, -1)])
def test_one_tap_where_a_picture_has_no_more_points_than_lie_between_taps(
        length, points, taps, dilation, start, sign):
    made = windows_apart(length, points, taps, dilation, start, sign)
    cut = split_phases(made)
    verify(cut)
    assert_same(made, cut)
    reduces = [s for s in walk(cut.body) if isinstance(s, Reduce)]
    assert reduces
    assert {s.axes[0].extent.attr for s in reduces} == {1}
    assert not any(s.mask is not None for s in walk(cut.body) if isinstance(s, Load))


@pytest.mark.parametrize("case", [
    (7, 3, 3, 2, 0, -1),  # two taps of a window are inside
    (9, 2, 3, 2, 0, -1),  # positions behind the last tap
    (6, 2, 3, 2, -3, -1)])
def test_other_windows_are_not_cut(case):
    made = windows_apart(*case)
    assert split_phases(made) is made


@pytest.mark.requires("torch")
@pytest.mark.parametrize(("shape", "taps", "padding"), [
    ((2, 21, 13, 5), 3, 0), ((3, 8, 5, 17), 3, 0), ((1, 19, 11, 6), 5, 2), ((2, 6, 9, 9), 5, 0)])
def test_gradients_of_windows_whose_taps_lie_apart(shape, taps, padding):
    import torch
    import torch.nn.functional as tf

    rng = np.random.default_rng(6)
    x = torch.from_numpy(rng.standard_normal(shape))
    w = torch.from_numpy(rng.standard_normal((7, shape[1], taps, taps)))
    x.requires_grad_()
    out = tf.conv2d(x, w, padding=padding, dilation=2)
    g = torch.from_numpy(rng.standard_normal(tuple(out.shape)))
    out.backward(g)
    wide = weft.tensor(w.numpy().astype(np.float32)), weft.tensor(g.numpy().astype(np.float32))
    found = weft.grad(lambda t: (t.conv2d(wide[0], padding=padding, dilation=2) * wide[1]).sum())(
        weft.tensor(x.detach().numpy().astype(np.float32)))
    np.testing.assert_allclose(found.numpy(), x.grad.numpy(), rtol=1e-4, atol=1e-4)


def test_comparisons_of_truths_have_no_places():
    made = windows_apart(5, 1, 3, 2, 0, -1)
    reduce = made.body[0].body[0]
    acc, first = reduce.accumulators[0], reduce.body[0]
    truths = first.var.gt(0.0).lt(first.var.lt(1.0))
    update = ex.substitute([acc.update], {first.var: ex.where(truths, first.var, 0.0)})[0]
    body = loop("i", 5, reduce.replace(accumulators=(acc.replace(update=update),)),
                *made.body[0].body[1:])
    other = made.replace(body=(For(made.body[0].var, made.body[0].extent, made.body[0].kind,
                                   body.body),))
    assert_same(other, split_phases(other))


@pytest.mark.parametrize(("outputs", "count"), [(6, 2), (2, 2), (1, 1)])
def test_long_rows_of_several_channels_are_cut(outputs, count):
    """Short sums that share a picture are products; alone they are written row by row."""
    g, w, y = memory("g", 15), memory("w", outputs, 5), memory("y", outputs, 33)
    moved, zero = v("i") - v("k"), ex.const(0.0, nests.f("a").dtype)
    inside = moved.ge(0) & (moved % 2).eq(0) & (moved // 2).lt(15)
    update = nests.f("s") + ex.where(inside, nests.f("a"), zero) * nests.f("b")
    reduce = Reduce((Axis(v("k"), ex.index(5)),),
                    (Accumulator(nests.f("s"), zero, update, lhs(nests.f("s")) + rhs(
                        nests.f("s"))),),
                    (Load(nests.f("a"), g, (moved // 2,), inside),
                     Load(nests.f("b"), w, (v("o"), v("k")))))  # fmt: skip
    out = Store(y, (v("o"), v("i")), nests.f("s"))
    made = Kernel("channels", (g, w, y), (loop("o", outputs, loop("i", 33, reduce, out)),),
                  Meta(kind="rowwise"))
    cut = split_phases(made, rows=False)
    assert_same(made, cut)
    assert len(cut.body) == count
