"""Captured functions: signatures, effects, errors."""

import gc

import numpy as np
import pytest

import weft
from weft import nn


def test_values_and_captures():
    calls = []

    @weft.jit
    def f(x, y, scale=1.0):
        calls.append(1)
        return (x * y).sum(0) * scale, {"max": x.max()}

    for seed in range(3):
        a, b = np.random.default_rng(seed).normal(size=(2, 3, 4)).astype(np.float32)
        total, rest = f(weft.tensor(a), weft.tensor(b))
        np.testing.assert_allclose(total.numpy(), (a * b).sum(0), 1e-5)
        assert rest["max"].item() == a.max()
    assert len(calls) == f.captures == 1
    f(weft.tensor(a), weft.tensor(b), 2.0)
    f(weft.tensor(a), weft.tensor(b), scale=2.0)
    assert f.captures == 3


def test_new_signatures_capture_anew():
    @weft.jit
    def f(x):
        return x * 2

    for x in (weft.ones(3), weft.ones(4), weft.ones(3, 1), weft.ones(3, dtype=weft.float64)):
        assert f(x).tolist() == (x * 2).tolist()
    assert f.captures == 4
    a = np.arange(12.0).reshape(3, 4)
    for view in (a, a.T, a[:, ::-1], a[::2], np.asfortranarray(a)):
        np.testing.assert_array_equal(f(view).numpy(), view * 2)
    assert f.captures == 9
    b = a + 1
    np.testing.assert_array_equal(f(b[:, ::-1]).numpy(), b[:, ::-1] * 2)
    assert f.captures == 9


def test_lazy_and_view_arguments():
    @weft.jit
    def f(x):
        return x + 1

    base = weft.arange(6).reshape(2, 3)
    assert f(base.T).tolist() == [[1, 4], [2, 5], [3, 6]]
    assert f(base[1:] * 2).tolist() == [[7, 9, 11]]
    part = base[0]
    part.realize()
    base[0, 0] = 10
    assert f(part).tolist() == [11, 2, 3]


def test_outputs_never_alias():
    @weft.jit
    def f(x):
        return x * 2, x

    a = np.ones(4, np.float32)
    first, same = f(a)
    a[:] = 5
    second, _ = f(a)
    assert first.tolist() == [2.0] * 4
    assert same.tolist() == [1.0] * 4
    assert second.tolist() == [10.0] * 4


def test_captured_tensors_are_read_at_each_replay():
    w = weft.ones(2)
    lazy = weft.ones(2) * 3

    @weft.jit
    def f(x):
        return x * w + lazy

    assert f(weft.ones(2)).tolist() == [4.0, 4.0]
    w[0] = 10.0
    lazy.zero_()
    assert f(weft.ones(2)).tolist() == [10.0, 1.0]
    assert f.captures == 1


def test_mutations_are_written_back():
    count = weft.zeros(2)
    view = count[1:]

    @weft.jit
    def f(x):
        count.add_(x)
        view.mul_(2)
        return count * 1

    assert f(weft.ones(2)).tolist() == [1.0, 2.0]
    assert f(weft.ones(2)).tolist() == [2.0, 6.0]
    assert count.tolist() == [2.0, 6.0]
    assert view.tolist() == [6.0]


def test_arguments_may_be_written():
    @weft.jit
    def f(x):
        x += 1
        return x * 2

    x = weft.zeros(3)
    assert f(x).tolist() == [2.0] * 3
    assert f(x).tolist() == [4.0] * 3
    assert x.tolist() == [2.0] * 3


def test_training_step():
    def run(jitted):
        weft.manual_seed(0)
        model = nn.Sequential(
            nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Dropout(0.25), nn.Linear(4, 1)
        )
        optimizer = weft.optim.Adam(model.parameters(), lr=0.05)
        x = weft.tensor(np.random.default_rng(0).normal(size=(8, 3)).astype(np.float32))

        def step(x):
            optimizer.zero_grad()
            loss = model(x).square().mean()
            loss.backward()
            optimizer.step()
            return loss

        function = weft.jit(step) if jitted else step
        losses = []
        for i in range(4):
            if i == 2:
                optimizer.param_groups[0]["lr"] = 0.01
            losses.append(function(x).item())
        return (
            losses,
            [p.numpy() for p in model.parameters()],
            model[1].running_mean.numpy(),
            (model[0].weight.grad.numpy(), function),
        )

    eager, captured = run(False), run(True)
    np.testing.assert_allclose(eager[0], captured[0], 1e-5)
    for a, b in zip(eager[1], captured[1], strict=True):
        np.testing.assert_allclose(a, b, 1e-4, 1e-5)
    np.testing.assert_allclose(eager[2], captured[2], 1e-5)
    np.testing.assert_allclose(eager[3][0], captured[3][0], 1e-3, 1e-6)
    assert captured[3][1].captures == 1


def test_gradients_accumulate_as_they_would():
    w = weft.ones(2, requires_grad=True)

    @weft.jit
    def f(x):
        (w * x).sum().backward()

    x = weft.tensor([1.0, 2.0])
    f(x)
    assert w.grad.tolist() == [1.0, 2.0]
    f(x)
    f(x)
    assert w.grad.tolist() == [3.0, 6.0]
    w.grad = None
    f(x)
    assert w.grad.tolist() == [1.0, 2.0]


def test_argument_gradients():
    @weft.jit
    def f(x):
        (x * x).sum().backward()

    x = weft.tensor([1.0, 2.0], requires_grad=True)
    f(x)
    f(x)
    assert x.grad.tolist() == [4.0, 8.0]


def test_gradients_flow_out():
    w = weft.tensor([2.0, 3.0], requires_grad=True)

    @weft.jit
    def f(x):
        return (x * w).sin()

    x = weft.tensor([0.5, 0.1], requires_grad=True)
    f(x)
    out = f(x)
    assert out.requires_grad
    out.sum().backward()
    np.testing.assert_allclose(w.grad.numpy(), x.numpy() * np.cos(x.numpy() * w.numpy()), 1e-5)
    np.testing.assert_allclose(x.grad.numpy(), w.numpy() * np.cos(x.numpy() * w.numpy()), 1e-5)
    with weft.no_grad():
        assert not f(x).requires_grad


def test_random_numbers_advance():
    @weft.jit
    def f(x):
        return x + weft.rand(4), weft.randn(2)

    weft.manual_seed(3)
    captured = [tuple(t.tolist() for t in f(weft.zeros(4))) for _ in range(3)]
    weft.manual_seed(3)
    eager = [(weft.rand(4).tolist(), weft.randn(2).tolist()) for _ in range(3)]
    assert captured == eager


@pytest.mark.parametrize(
    "read",
    [
        lambda t: t.item(),
        lambda t: bool(t),
        lambda t: t.numpy(),
        lambda t: t.tolist(),
        lambda t: float(t),
        lambda t: np.asarray(t),
        lambda t: 5 if t > 0 else 6,
        lambda t: t.reshape(1).nonzero(),
        lambda t: weft.manual_seed(1),
    ],
)
def test_reading_values_is_an_error(read):
    outer = weft.zeros(1)

    @weft.jit
    def f(x):
        outer.add_(1)
        return read(x.sum())

    with pytest.raises(weft.CaptureError) as caught:
        f(weft.ones(2))
    assert caught.value.where.file == __file__
    assert outer.tolist() == [0.0]
    assert (weft.ones(1) + outer).item() == 1.0  # the capture is over


def test_an_exception_restores_everything():
    w = weft.ones(2, requires_grad=True)
    state = weft.zeros(2)
    weft.manual_seed(5)

    @weft.jit
    def f(x):
        state.add_(x)
        (w * x).sum().backward()
        with weft.no_grad():
            w.sub_(w.grad)
        weft.rand(3)
        raise KeyError("mine")

    with pytest.raises(KeyError):
        f(weft.ones(2))
    assert w.grad is None
    assert w.tolist() == [1.0, 1.0]
    assert w.requires_grad
    assert state.tolist() == [0.0, 0.0]
    after = weft.rand(3).tolist()
    weft.manual_seed(5)
    assert after == weft.rand(3).tolist()
    (w * 2).sum().backward()
    assert w.grad.tolist() == [2.0, 2.0]


def test_nested_and_methods():
    @weft.jit
    def inner(x):
        return x * 2

    class Model:
        @weft.jit
        def forward(self, x):
            return inner(x) + 1

    assert Model().forward(weft.ones(2)).tolist() == [3.0, 3.0]
    with pytest.raises(weft.CaptureError, match="set"):
        weft.jit(lambda x: x)({1, 2})


def test_kept_tensors_say_so():
    kept = []

    @weft.jit
    def f(x):
        kept.append(x * 2)
        return x

    f(weft.ones(2))
    with pytest.raises(weft.CaptureError, match="kept"):
        kept[0].numpy()


def test_realize_inside_a_capture_does_nothing():
    @weft.jit
    def f(x):
        y = (x * 2).realize()
        weft.realize(y)
        return y + 1

    assert f(weft.ones(2)).tolist() == [3.0, 3.0]
    assert "captured" in weft.jit(lambda x: [repr(x), x])(weft.ones(2))[0]


@pytest.mark.requires("torch")
def test_arrays_of_torch():
    import torch

    f = weft.jit(lambda x: x * 2)
    assert f(torch.arange(3)).tolist() == [0, 2, 4]
    assert f(torch.ones(2, 3).T).shape == (3, 2)


@pytest.mark.slow
def test_memory_is_given_back():
    f = weft.jit(lambda x: (x * 2, x + 1))
    x = weft.ones(10)
    for _ in range(3):
        f(x)
    gc.collect()
    before = len(gc.get_objects())
    for _ in range(50):
        f(x)
    gc.collect()
    assert len(gc.get_objects()) - before < 50
