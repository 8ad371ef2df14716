"""A captured function does what the function does: histories, aliases, modes, gradients."""

import threading

import numpy as np
import pytest

import weft
from weft import nn

pytestmark = pytest.mark.usefixtures("compiled")

# ---- what a gradient is of -----------------------------------------------------------------------


def test_gradients_are_of_the_values_at_the_call():
    def run(wrap):
        x = weft.tensor([2.0, 3.0], requires_grad=True)
        mask = weft.tensor([1.0, 0.0])
        other = weft.tensor([5.0, 5.0])
        f = wrap(lambda a, b: (a * a * mask * b).sum())
        f(x, other)
        y = f(x, other)
        with weft.no_grad():
            x.add_(10)
        mask.fill_(7.0)
        other.zero_()
        y.backward()
        return x.grad.tolist()

    assert run(weft.jit) == run(lambda f: f) == [20.0, 0.0]


def test_an_older_loss_after_a_step():
    def run(wrap):
        w = weft.tensor(1.0, requires_grad=True)
        optimizer = weft.optim.SGD([w], lr=0.5)
        f = wrap(lambda p: p * p)
        g = wrap(lambda: w * w)
        found = []
        for function in (lambda: f(w), g):
            first, second = function(), function()
            first.backward()
            optimizer.step()
            optimizer.zero_grad()
            second.backward()
            found.append(w.grad.item())
            optimizer.zero_grad()
        return found

    assert run(weft.jit) == run(lambda f: f)


def test_gradients_with_arrays_and_dropped_units():
    w = weft.tensor([2.0, 3.0], requires_grad=True)
    f = weft.jit(lambda x: (w * x).sum())
    a = np.array([4.0, 5.0], np.float32)
    y = f(a)
    a[:] = 0
    y.backward()
    assert w.grad.tolist() == [4.0, 5.0]
    w.grad = None
    b = np.arange(8, dtype=np.float32).reshape(2, 4)
    f(b.T[2, ::-1]).backward()
    assert w.grad.tolist() == [6.0, 2.0]
    big = weft.ones(100, requires_grad=True)
    y = weft.jit(lambda x: nn.functional.dropout(big * x, 0.5, True))(weft.ones(100))
    y.sum().backward()
    assert big.grad.tolist() == y.tolist()


# ---- one tensor, two names -----------------------------------------------------------------------


def test_arguments_that_are_one_tensor():
    def run(wrap):
        @wrap
        def f(a, b):
            a.add_(1)
            return b * 1

        x, y = weft.zeros(2), weft.ones(2)
        found = [f(x, y).tolist(), f(x, x).tolist(), f(y, x).tolist(), f(x, x).tolist()]
        return found, x.tolist(), y.tolist()

    assert run(weft.jit) == run(lambda f: f)


def test_arguments_that_overlap():
    def run(wrap):
        @wrap
        def f(a, b):
            a.mul_(2)
            b.add_(1)
            return a.sum() + b.sum()

        x = weft.arange(6.0)
        parts = [(x, x[1:3]), (x[:3], x[2:5]), (x.reshape(2, 3).T, x[:2]), (x[1:2], x)]
        return [(f(a, b).item(), x.tolist()) for a, b in parts * 2]

    assert run(weft.jit) == run(lambda f: f)


def test_an_argument_that_the_function_knows_by_itself():
    def run(wrap):
        c, d = weft.ones(3), weft.zeros(3)

        @wrap
        def f(a):
            a.add_(1)
            return c * 10

        found = [f(x).tolist() for x in (c, d, c, d, c[1:], d, c)]
        return found, c.tolist(), d.tolist()

    assert run(weft.jit) == run(lambda f: f)


def test_a_function_changes_its_own_tensor_and_reads_an_argument():
    def run(wrap):
        c = weft.ones(3)

        @wrap
        def f(a):
            c.add_(1)
            return a * 1

        other = weft.zeros(3)
        return [f(x).tolist() for x in (other, c, c, other, c[:2])], c.tolist()

    assert run(weft.jit) == run(lambda f: f)


def test_only_changes_make_names_matter():
    c = weft.ones(3)
    f = weft.jit(lambda a: a * c)
    for x in (c, weft.zeros(3), c):
        f(x)
    assert f.captures == 1


def test_twins_with_equal_values():
    def run(wrap):
        a = weft.ones(2)
        b = a.clone()
        p = nn.Parameter(a, requires_grad=False)
        f = wrap(lambda x: x + a * 100 + b * 10 + p)
        found = [f(weft.zeros(2)).tolist()]
        b.zero_()
        p.mul_(3)
        return [*found, f(weft.zeros(2)).tolist()]

    assert run(weft.jit) == run(lambda f: f)


# ---- memory shared with NumPy --------------------------------------------------------------------


def test_a_replay_lets_readers_of_shared_memory_go_first():
    a = np.zeros(3, np.float32)
    t = weft.from_numpy(a)
    f = weft.jit(lambda: t.add_(5) * 1)
    f()
    a[:] = 0
    y = t + 1
    f()
    assert y.tolist() == [1.0] * 3
    assert a.tolist() == [5.0] * 3


# ---- modes and gradients -------------------------------------------------------------------------


def test_the_mode_of_a_module():
    model = nn.Sequential(nn.Dropout(0.5), nn.BatchNorm1d(4))
    f = weft.jit(lambda x: model[0](x))
    x = weft.ones(2000)
    assert 0 < (f(x) == 0).sum().item() < 2000
    model.eval()
    assert f(x).tolist() == x.tolist()
    model.train()
    assert 0 < (f(x) == 0).sum().item() < 2000
    assert f.captures == 2

    @weft.jit
    def g(x):
        model.eval()
        out = model[0](x)
        model.train()
        return out

    for _ in range(3):
        assert g(x).tolist() == x.tolist()
    assert g.captures == 1


def test_a_step_with_the_backward_outside():
    def run(wrap):
        w = weft.tensor([1.0, 2.0], requires_grad=True)
        optimizer = weft.optim.SGD([w], lr=0.1, momentum=0.9)
        step = wrap(lambda: optimizer.step())
        for i in range(5):
            optimizer.zero_grad()
            (w * w * (i + 1)).sum().backward()
            step()
        return w.tolist(), step

    eager, captured = run(lambda f: f), run(weft.jit)
    np.testing.assert_allclose(captured[0], eager[0], 1e-5)
    assert captured[1].captures == 1


def test_gradients_changed_in_place():
    def run(wrap):
        w = weft.tensor([1.0, 2.0], requires_grad=True)

        @wrap
        def f():
            w.grad.mul_(2)
            return w.grad + 1

        found = []
        for i in range(3):
            w.grad = None
            (w * i).sum().backward()
            kept = w.grad
            found.append((f().tolist(), w.grad.tolist(), kept.tolist(), kept is w.grad))
        return found

    assert run(weft.jit) == run(lambda f: f)


def test_gradients_of_arguments_are_replaced_and_added():
    def run(wrap):
        x = weft.tensor([1.0, 2.0], requires_grad=True)

        @wrap
        def anew(x):
            x.grad = None
            (x * x).sum().backward()

        @wrap
        def more(x):
            (x * x).sum().backward()
            return x.grad * 1

        found = []
        for f in (more, more, anew, anew, more, more):
            f(x)
            found.append(x.grad.tolist())
        return found

    assert run(weft.jit) == run(lambda f: f)


def test_parameters_frozen_after_the_capture():
    def run(wrap):
        weft.manual_seed(0)
        model = nn.Linear(3, 1)
        optimizer = weft.optim.SGD(model.parameters(), lr=0.1)

        @wrap
        def step(x):
            optimizer.zero_grad()
            loss = model(x).sum()
            loss.backward()
            optimizer.step()
            return loss

        found = []
        for learned in (True, True, False, False, True):
            model.weight.requires_grad_(learned)
            step(weft.ones(1, 3))
            found.append((model.weight.numpy(), model.bias.numpy()))
        return found, step

    eager, (captured, step) = run(lambda f: f)[0], run(weft.jit)
    for a, b in zip(eager, captured, strict=True):
        np.testing.assert_allclose(a[0], b[0], 1e-5)
        np.testing.assert_allclose(a[1], b[1], 1e-5)
    assert step.captures == 2


# ---- captures and what is around them ------------------------------------------------------------


def test_an_error_at_the_end_of_a_capture_ends_it():
    w = weft.ones(2, requires_grad=True)
    kept = []
    weft.jit(lambda x: (kept.append(x * 2), x)[1])(weft.ones(2))

    def f(x):
        w.grad = kept[0]
        return x * 1

    with pytest.raises(weft.CaptureError):
        weft.jit(f)(weft.ones(2))
    assert w.grad is None
    assert (weft.ones(2) + 1).tolist() == [2.0, 2.0]


def test_a_capture_does_not_show_in_other_threads():
    w = weft.ones(3, requires_grad=True)
    view = w.detach()[1:]
    (w * 2).sum().backward()
    inside, go_on = threading.Event(), threading.Event()

    @weft.jit
    def f(x):
        with weft.no_grad():
            w.add_(x)
            view.mul_(2)
        w.grad.zero_()
        inside.set()
        assert go_on.wait(60)
        return w * 1

    results = []
    thread = threading.Thread(target=lambda: results.append(f(weft.ones(3)).tolist()))
    thread.start()
    try:
        assert inside.wait(60)
        seen = w.tolist(), view.tolist(), w.grad.tolist(), (w * 3).tolist()
    finally:
        go_on.set()
        thread.join(60)
    assert seen == ([1.0] * 3, [1.0] * 2, [2.0] * 3, [3.0] * 3)
    assert results == [[2.0, 4.0, 4.0]]
    assert w.tolist() == [2.0, 4.0, 4.0]
    assert view.tolist() == [4.0, 4.0]
    assert w.grad.tolist() == [0.0] * 3


def test_learning_may_be_switched_in_a_capture():
    w = weft.ones(2, requires_grad=True)

    @weft.jit
    def f(x):
        w.requires_grad_(False)
        y = (w * x).sum()
        w.requires_grad_(True)
        return y

    assert not f(weft.ones(2)).requires_grad
    assert w.requires_grad
    (w * 3).sum().backward()
    assert w.grad.tolist() == [3.0, 3.0]
    with pytest.raises(weft.CaptureError, match="view"):
        weft.jit(lambda x: view.requires_grad_() * x)(view := weft.ones(4)[1:])
