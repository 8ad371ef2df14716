"""Scans from the end, linear recurrences and running log-sums, with their gradients."""

import numpy as np
import pytest

import weft
from weft.errors import DTypeError, ShapeError
from weft.ir import infer

SHAPES = [((1,), 0), ((7,), 0), ((0,), 0), ((5, 33), 1), ((3, 64), 1), ((2, 301), 1), ((40, 30), 0),
          ((4, 5, 6), 1), ((3, 0, 4), 1), ((33, 5), 0), ((50, 17), 1)]  # fmt: skip


def normal(shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def recurrence(a, b, axis, reverse=False, initial=0.0):
    a, b = (np.moveaxis(np.asarray(x, np.float64), axis, 0) for x in (a, b))
    if reverse:
        a, b = a[::-1], b[::-1]
    out, h = np.empty_like(b), np.broadcast_to(np.float64(initial), b.shape[1:])
    for k in range(len(b)):
        h = out[k] = a[k] * h + b[k]
    return np.moveaxis(out[::-1] if reverse else out, 0, axis)


@pytest.mark.grid
@pytest.mark.parametrize(("shape", "axis"), SHAPES)
@pytest.mark.parametrize("kind", ["sum", "prod", "max", "min", "logsumexp"])
def test_from_the_end(kind, shape, axis):
    x = weft.from_numpy(normal(shape))
    got = x._wrap(infer.scan(x._read(), kind, axis, True)).numpy()
    turned = x.flip(axis)
    want = turned._wrap(infer.scan(turned._read(), kind, axis)).numpy()
    np.testing.assert_allclose(got, np.flip(want, axis), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("shape", "axis"), SHAPES)
@pytest.mark.parametrize("reverse", [False, True])
def test_linear_recurrence(shape, axis, reverse):
    a, b = normal(shape, 1), normal(shape, 2)
    got = weft.linear_recurrence(weft.from_numpy(a), weft.from_numpy(b), axis, reverse=reverse)
    np.testing.assert_allclose(got.numpy(), recurrence(a, b, axis, reverse), rtol=1e-4, atol=1e-4)


def test_initial_value_broadcast_and_types():
    a, b, h = normal((4, 1), 1), normal((4, 9), 2), normal((4,), 3)
    found = weft.from_numpy(a).linear_recurrence(weft.from_numpy(b), 1, initial=weft.from_numpy(h))
    want = recurrence(np.broadcast_to(a, b.shape), b, 1, initial=h)
    np.testing.assert_allclose(found.numpy(), want, rtol=1e-5, atol=1e-5)
    narrow = weft.from_numpy(a).to(weft.float16).linear_recurrence(weft.ones((4, 9)).half())
    assert narrow.dtype is weft.float16
    with pytest.raises(ShapeError):
        weft.ones((2, 3)).linear_recurrence(weft.ones((2, 4)))
    with pytest.raises(DTypeError, match="float type"):
        infer.recurrence(weft.ones(3).int()._read(), weft.ones(3).int()._read(), 0)


def test_the_first_factor_does_not_count():
    a = weft.tensor([float("inf"), 2.0, 0.0, float("inf")])
    assert weft.linear_recurrence(a, weft.ones(4)).tolist() == [1.0, 3.0, 1.0, float("inf")]
    both = weft.stack([a, a], 1)
    assert weft.linear_recurrence(both, weft.ones((4, 2)), 0)[:, 1].tolist() == [
        1.0, 3.0, 1.0, float("inf")]


@pytest.mark.requires("torch")
@pytest.mark.parametrize(("shape", "axis"), [((6,), 0), ((3, 9), 1), ((7, 4), 0), ((1, 5), 1)])
@pytest.mark.parametrize("reverse", [False, True])
def test_gradient_of_a_recurrence(shape, axis, reverse):
    import torch

    data = [normal(shape, s) for s in (1, 2, 3)]
    ours = [weft.from_numpy(d.copy()).requires_grad_() for d in data[:2]]
    found = weft.grad(weft.linear_recurrence(*ours, axis, reverse=reverse), ours,
                      weft.from_numpy(data[2]))
    theirs = [torch.from_numpy(d).double().requires_grad_() for d in data[:2]]
    a, b = (t.movedim(axis, 0) for t in theirs)
    order = range(len(a))[::-1] if reverse else range(len(a))
    steps, h = {}, None
    for k in order:
        h = steps[k] = b[k] if h is None else a[k] * h + b[k]
    out = torch.stack([steps[k] for k in range(len(a))]).movedim(0, axis)
    wanted = torch.autograd.grad(out, theirs, torch.from_numpy(data[2]).double(),
                                 allow_unused=True)
    for got, want in zip(found, wanted, strict=True):
        want = np.zeros(shape) if want is None else want.numpy()
        np.testing.assert_allclose(got.numpy(), want, rtol=1e-4, atol=1e-4)


@pytest.mark.requires("torch")
@pytest.mark.parametrize(("shape", "axis"), [((300,), 0), ((3, 90), 1), ((70, 5), 0)])
def test_running_log_sums(shape, axis):
    import torch

    data = normal(shape) * 40
    data.flat[: 2] = -np.inf, 300.0
    weights = normal(shape, 4)
    x = weft.from_numpy(data.copy()).requires_grad_()
    y = x.logcumsumexp(axis)
    theirs = torch.from_numpy(data).double().requires_grad_()
    wanted = theirs.logcumsumexp(axis)
    np.testing.assert_allclose(y.detach().numpy(), wanted.detach().numpy(), rtol=1e-5, atol=1e-4)
    got = weft.grad(y, x, weft.from_numpy(weights))
    (want,) = torch.autograd.grad(wanted, theirs, torch.from_numpy(weights).double())
    finite = np.isfinite(data)
    np.testing.assert_allclose(got[0].numpy()[finite], want.numpy()[finite], rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize(("shape", "axis"), [((40_009,), 0), ((3, 8209), 1), ((4099, 3), 0)])
def test_running_log_sums_do_not_drift(shape, axis):
    """What one step rounds away does not add up over the steps: each value errs by its own ulp."""
    data = normal(shape, 6)
    found = weft.from_numpy(data).logcumsumexp(axis).numpy()
    wanted = np.logaddexp.accumulate(data.astype(np.float64), axis)
    np.testing.assert_allclose(found, wanted, rtol=1.5e-7, atol=1.5e-7)


def test_running_log_sums_keep_what_underflows():
    assert weft.tensor([0.0, 1000.0, -float("inf")]).logcumsumexp(0).tolist() == [0.0, 1000, 1000]
    nothing = weft.tensor([-float("inf")] * 3).logcumsumexp(0)
    assert nothing.tolist() == [-float("inf")] * 3
    assert weft.tensor([1.0, float("inf"), 2.0]).logcumsumexp(0).tolist()[1:] == [float("inf")] * 2
