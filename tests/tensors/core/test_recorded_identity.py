"""Equal expressions of several tensors: each tensor has a gradient, and hooks, of its own."""

import copy

import numpy as np
import pytest

import weft
from capabilities import module
from seeds import seeds

torch = module("torch")


def leaf(framework, values=(1.0, 2.0)):
    return framework.tensor(list(values), requires_grad=True)


def grads(framework, output, *inputs):
    take = weft.grad if framework is weft else torch.autograd.grad
    return [g.tolist() for g in take(output, inputs)]


def equal_products(m):
    x = leaf(m)
    y, z = x * 5, x * 5
    return grads(m, y.sum() + (z * 3).sum(), y, z, x)


def a_view_in_the_shape_of_its_base(m):
    x = leaf(m)
    return [grads(m, (v * 2).sum() + (x * 3).sum(), v, x)
            for v in (x.view(2), x[:], x.expand(2), x.permute(0), x.reshape(2))]


def views_of_the_same_elements(m):
    x = leaf(m)
    y, z = x[0], x[0]
    return grads(m, y * 2 + z * 3, y, z, x)


def a_view_and_back(m):
    y = leaf(m) * 1.5
    there = y.view(2, 1)
    back = there.view(2)
    return grads(m, (back * 2).sum() + (y * 3).sum(), there, y, back)


def a_sum_within_a_mean(m):
    x = leaf(m)
    total = x.sum()
    return grads(m, total + x.mean(), total)


def a_sum_after_a_mean(m):
    x = leaf(m)
    mean = x.mean()
    total = x.sum()
    return grads(m, total + mean, total, mean)


def a_maximum_and_a_softmax(m):
    x = leaf(m)
    first = x.amax(0, keepdim=True)
    weights = x.softmax(0)
    last = x.amax(0, keepdim=True)
    return grads(m, (weights * first * last).sum(), first, last)


def retained(m):
    x = leaf(m)
    y, z = x * 2, x * 2
    y.retain_grad()
    (y * 3 + z).sum().backward()
    return y.grad.tolist(), x.grad.tolist()


def second_order(m):
    x = leaf(m)
    y, z = x * 2, x * 2
    (first,) = (weft.grad if m is weft else torch.autograd.grad)(
        (y * y * z).sum(), x, create_graph=True)
    return first.tolist(), grads(m, first.sum(), x)


def by_a_gradient_that_is_a_tensor(m):
    x = leaf(m)
    y = x * 3
    (first,) = (weft.grad if m is weft else torch.autograd.grad)(
        (x * y).sum(), x, create_graph=True)
    return grads(m, (first * first).sum(), x)


def written_in_place(m):
    x = leaf(m)
    y = x * 1
    z = y * 2
    y.mul_(2)
    return grads(m, (y * 3 + z * 5).sum(), y, z, x)


def views_of_what_is_written(m):
    x = leaf(m)
    y = m.zeros(2)
    v, w = y[:1], y[:1]
    y.add_(x * 3)
    return v.requires_grad, grads(m, (v * 2 + w * 5).sum(), v, w, x)


def hooks_of_turns(m):
    x, seen, loss = leaf(m), [], 0
    for turn in range(3):
        y = x * 2
        y.register_hook(lambda g, turn=turn: seen.append(turn))
        loss = loss + y.sum()
    loss.backward()
    return sorted(seen), x.grad.tolist()


def a_hook_of_one_of_two(m):
    x = leaf(m)
    y, z, v, w = x * 2, x * 2, x[:1], x[:1]
    y.register_hook(lambda g: g * 10)
    v.register_hook(lambda g: g * 100)
    (y.sum() + z.sum() + v.sum() + w.sum()).backward()
    return x.grad.tolist()


def a_copy_of_what_was_overwritten(m):
    found = []
    for copy_of in (lambda t: t.clone(), lambda t: m.cat([t])):
        x = leaf(m)
        y = x * 2
        with m.no_grad():
            y.add_(1)
        z = copy_of(y)
        found.append(grads(m, (y * 3).sum() + (z * 2).sum(), y, z))
    return found


def a_copy_of_a_function_result(m):
    class Double((weft if m is weft else torch).autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return g * 2

    y = Double.apply(leaf(m))
    z = y.clone()
    return grads(m, (y * 3).sum() + (z * 2).sum() + (m.cat([y]) * 7).sum(), y, z)


def a_detached_tensor_that_is_written(m):
    x = leaf(m)
    d = (x * 2).detach()
    e = d.view(2, 1)
    d.mul_(x)
    first = grads(m, (d * 3).sum() + (e * 2).sum(), d)
    d = m.zeros(2).detach()
    e = d.view(2, 1)
    e.copy_(x.view(2, 1))
    return first + grads(m, (d * 3).sum() + (e * 2).sum(), d)


def a_hook_of_a_detached_tensor(m):
    x, y = leaf(m), m.zeros(2)
    d = y.detach()
    e = d[:1]
    d.add_(x)
    d.register_hook(lambda g: g * 10)
    ((d * 3).sum() + (e * 2).sum()).backward()
    return x.grad.tolist()


def gradients_of_each_other(m):
    x = leaf(m)
    y = x * x
    take = weft.grad if m is weft else torch.autograd.grad
    by_y, by_x = take((y * y * y).sum(), (y, x), create_graph=True)
    return grads(m, by_x.sum(), by_y)


def a_view_that_is_written(m):
    x, c = leaf(m), m.zeros(2)
    v = c.reshape(2)
    v.copy_(x * 2)
    w = v[:1]
    return grads(m, (v * 3).sum() + (w * 5).sum(), v, x)


PROGRAMS = [
    (equal_products, [[1, 1], [3, 3], [20, 20]]),
    (a_view_in_the_shape_of_its_base, [[[2, 2], [5, 5]]] * 5),
    (views_of_the_same_elements, [2, 3, [5, 0]]),
    (a_view_and_back, [[[2], [2]], [5, 5], [2, 2]]),
    (a_sum_within_a_mean, [1]),
    (a_sum_after_a_mean, [1, 1]),
    (a_maximum_and_a_softmax, [[2], [2]]),
    (retained, ([3, 3], [8, 8])),
    (second_order, ([24, 96], [[48, 96]])),
    (by_a_gradient_that_is_a_tensor, [[72, 144]]),
    (written_in_place, [[3, 3], [5, 5], [16, 16]]),
    (views_of_what_is_written, (True, [[2], [5], [21, 0]])),
    (hooks_of_turns, ([0, 1, 2], [6, 6])),
    (a_hook_of_one_of_two, [123, 22]),
    (a_copy_of_what_was_overwritten, [[[5, 5], [2, 2]]] * 2),
    (a_copy_of_a_function_result, [[12, 12], [2, 2]]),
    (a_detached_tensor_that_is_written, [[5, 5], [5, 5]]),
    (a_hook_of_a_detached_tensor, [50, 30]),
    (gradients_of_each_other, [[2, 4]]),
    (a_view_that_is_written, [[8, 3], [16, 6]]),
]


@pytest.mark.parametrize(("program", "expected"), PROGRAMS)
def test_gradients(program, expected):
    assert program(weft) == expected


@pytest.mark.requires("torch")
@pytest.mark.parametrize(("program", "expected"), PROGRAMS)
def test_as_torch(program, expected):
    assert program(torch) == expected


def two_products(x):
    y, z = x * 5, x * 5
    return weft.grad(y.sum() + (z * 3).sum(), y)[0], y, z


def test_in_a_capture():
    captured = weft.jit(two_products)
    for _ in range(3):
        x = leaf(weft)
        first, y, z = captured(x)
        assert [first.tolist(), y.tolist(), z.tolist()] == [[1, 1], [5, 10], [5, 10]]
        assert grads(weft, (y * z * z).sum(), y, z) == [[25, 100], [50, 200]]


def test_arguments_and_their_copies_in_a_capture():
    @weft.jit
    def step(x):
        y, z = x.clone(), x.expand(2)
        return weft.grad((y * 2).sum() + (x * 3).sum() + (z * 5).sum(), (y, x, z))

    for _ in range(2):
        assert [g.tolist() for g in step(leaf(weft))] == [[2, 2], [10, 10], [5, 5]]


@pytest.mark.parametrize("seen", [lambda y, view: y, lambda y, view: view])
def test_values_may_be_looked_at_between_uses_of_a_view(seen):
    x, found = leaf(weft), []
    y = x * 2
    view = y.view(2, 1)
    view.retain_grad()
    view.register_hook(lambda g: found.append(g.tolist()))
    loss = (view * 3).sum()
    seen(y, view).tolist()
    loss = loss + view.sum()
    assert grads(weft, loss, view) == [[[4], [4]]]
    loss.backward()
    assert view.grad.tolist() == [[4], [4]]
    assert found == [[[4], [4]]] * 2


def test_results_of_a_capture_within_each_other():
    @weft.jit
    def step(x):
        y, z = x * 2, x * 2
        return y, (y * z * y.view(2, 1)[:, 0]).sum()

    for _ in range(3):
        x = leaf(weft)
        y, total = step(x)
        assert grads(weft, total, y, x) == [[8, 32], [24, 96]]


OPERATIONS = [lambda x, y: x * y, lambda x, y: x + y, lambda x, y: (x - y).tanh(),
              lambda x, y: x.sum() + y, lambda x, y: x[::2].sum() * y,
              lambda x, y: x.view(3, 2).T.reshape(6) + y,
              lambda x, y: x.mean() * y.sum(), lambda x, y: x.expand(6) * 0.5]  # fmt: skip


@pytest.mark.requires("torch")
@pytest.mark.parametrize("seed", seeds(8))
def test_programs_of_repeated_operations(seed):
    """Few operations on few tensors: many expressions are equal, and each has its gradient."""
    found = []
    for framework in (weft, torch):
        rng = np.random.default_rng(seed)
        x = framework.tensor(rng.standard_normal(6), requires_grad=True)
        made = [x]
        for _ in range(14):
            a, b = (made[i] for i in rng.integers(max(0, len(made) - 6), len(made), 2))
            value = OPERATIONS[rng.integers(len(OPERATIONS))](a, b)
            made.append(value if value.dim() else value + framework.zeros(6, dtype=x.dtype))
        loss = sum(((v * w).sum() for v, w in zip(made[1:], rng.standard_normal(14), strict=True)),
                   (x * 0).sum())
        take = weft.grad if framework is weft else torch.autograd.grad
        found.append([g.numpy() for g in take(loss, made)])
    for ours, theirs in zip(*found, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-12)


def test_copies_of_views_share_what_they_shared():
    x = weft.zeros(4)
    x.add_(leaf(weft, (1.0, 2.0, 3.0, 4.0)))
    view = x[1:3]
    base, part = copy.deepcopy([x.detach(), view.detach()])
    base += 1
    assert part.tolist() == [3.0, 4.0]
