"""Eager code whose sizes change: a plan for all sizes from the third on."""

import random

import numpy as np
import pytest

import weft
from weft.driver.plans import resized
from weft.errors import WeftError
from weft.nn import functional as F

X = np.random.default_rng(0).standard_normal((300, 16)).astype(np.float32)
W = np.random.default_rng(1).standard_normal((16, 16)).astype(np.float32)


@pytest.fixture(autouse=True)
def _forget():
    resized._alike.clear()


def plans(function, sizes, most=4):
    """Return how many plans a loop over sizes makes, and check each result."""
    x, w = weft.tensor(X).realize(), weft.tensor(W).realize()
    before = weft.compile_count()
    found = [function(x, w, n) for n in sizes]
    values = [f.numpy() for f in found]
    count = weft.compile_count() - before
    assert count <= most
    for n, value in zip(sizes, values, strict=True):
        wanted = weft.jit(lambda x, w, n=n: function(x, w, n))(x, w)
        assert value.shape == wanted.shape
        np.testing.assert_allclose(value, wanted.numpy(), 1e-5, 1e-5, err_msg=str(n))
    return count


PROGRAMS = {
    "slice": lambda x, w, n: x[:n] * 2 + 1,
    "middle": lambda x, w, n: x[n : 2 * n, 3:9].exp(),
    "end": lambda x, w, n: x[-n:] - x[:n],
    "cat": lambda x, w, n: weft.cat([x[:n], x[5:10] * 2]),
    "pad": lambda x, w, n: F.pad(x[:20], (0, 0, n, 2 * n)),
    "roll": lambda x, w, n: x.roll(n, 0),
    "stack": lambda x, w, n: weft.stack([x[n : n + 4], x[2 * n : 2 * n + 4]]),
    "arange": lambda x, w, n: x[:n] * weft.arange(n)[:, None] + weft.arange(2 * n)[n:, None],
    "mask": lambda x, w, n: weft.where(weft.arange(n) < 5, x[:n, 0], 0.0),
    "sort": lambda x, w, n: x[:n].sort(0)[0],
    "gather": lambda x, w, n: x[weft.arange(n) * 2 % 7],
    "two": lambda x, w, n: x[:n, : n % 5 + 3] * 2,
}  # fmt: skip
SUMS = {
    "sum": lambda x, w, n: x[:n].sum(0) / n,
    "rows": lambda x, w, n: (x[:n] @ w).softmax(-1),
    "square": lambda x, w, n: x[:n] @ x[:n].T,
    "flat": lambda x, w, n: x[:n].reshape(-1)[2:].cumsum(0),
    "both": lambda x, w, n: weft.cat([x[:n], x[: n + 3]]).mean(1),
    "product": lambda x, w, n: (1 + x[:n] / 99).repeat(9, 1).reshape(-1).cumprod(0),
    "logarithm": lambda x, w, n: x[:n].repeat(30, 1).reshape(-1).logcumsumexp(0),
    "scatter": lambda x, w, n: x[0].repeat(9).scatter_add(
        0, weft.arange(16 * n) % 7, x[:n].reshape(-1)),
    "tril": lambda x, w, n: (x[:n] @ x[:n].T).tril().softmax(-1) @ x[:n],
    "attention": lambda x, w, n: F.scaled_dot_product_attention(
        x[None, :n], x[None, :n], x[None, :n], is_causal=True),
}  # fmt: skip


@pytest.mark.grid
@pytest.mark.parametrize("name", PROGRAMS)
def test_sizes_compile_a_few_times(name):
    most = {"two": 8, "middle": 5}.get(name, 4)
    plans(PROGRAMS[name], [7, 11, 6, 20, 35, 3, 12, 64, 33, 99, 5], most)


@pytest.mark.grid
@pytest.mark.parametrize("name", SUMS)
def test_sums_have_the_same_bits_whenever_they_are_computed(name):
    """Graphs that add up floats get a plan for each size, whatever was computed before."""
    x, w = weft.tensor(X).realize(), weft.tensor(W).realize()
    before, first = weft.compile_count(), {}
    for n in [40, 33, 7, 11, 6, 20, 35, 40, 12, 64, 33, 7, 99, 40, 7, *[64, 99, 35] * 4]:
        found = SUMS[name](x, w, n).numpy()
        np.testing.assert_array_equal(found, first.setdefault(n, found))
    assert weft.compile_count() - before == len(first)


def drawn(seed):
    pick = random.Random(seed)
    steps = [pick.choice([
        lambda x, w, n, k: x * 2 + k, lambda x, w, n, k: x @ w, lambda x, w, n, k: x.softmax(-1),
        lambda x, w, n, k: weft.cat([x, x[: n // 2]]), lambda x, w, n, k: x[k:], lambda x, w, n, k:
        x - x.mean(0), lambda x, w, n, k: x.cumsum(0), lambda x, w, n, k: F.pad(x, (0, 0, k, n)),
        lambda x, w, n, k: x.flip(0), lambda x, w, n, k: x * n, lambda x, w, n, k: x.roll(n, 0),
        lambda x, w, n, k: weft.where(x > 0, x, x.sum(1, keepdim=True)),
        lambda x, w, n, k: x[n % 3 :: 2], lambda x, w, n, k: x.reshape(-1, 8).repeat(1, 2),
    ]) for _ in range(pick.randint(1, 4))]  # fmt: skip
    k = pick.randint(1, 3)

    def program(x, w, n):
        x = x[:n]
        for step in steps:
            x = step(x, w, n, k)
        return x

    return program


@pytest.mark.parametrize("seed", [pytest.param(s, marks=pytest.mark.grid) for s in range(40)])
def test_drawn_programs(seed):
    pick = random.Random(seed)
    sizes = [pick.choice([pick.randint(8, 30), pick.randint(8, 90)]) for _ in range(9)]
    plans(drawn(seed), sizes, most=len(sizes))


def test_a_growing_sequence():
    x = weft.zeros(1, 4).realize()
    before = weft.compile_count()
    for i in range(60):
        x = weft.cat([x, weft.full((1, 4), float(i))]).realize()
    assert weft.compile_count() - before <= 8
    np.testing.assert_array_equal(x.numpy()[:, 1], [0, *range(60)])


def test_sizes_that_come_again_get_a_plan_of_their_own():
    x = weft.tensor(X).realize()
    for n in (7, 9, 13, 21):
        (x[:n] * 3).numpy()
    counts = []
    for _ in range(6):
        before = weft.compile_count()
        np.testing.assert_array_equal((x[:40] * 3).numpy(), X[:40] * 3)
        counts.append(weft.compile_count() - before)
    assert counts[:2] == counts[4:] == [0, 0]
    assert 1 <= counts[2] + counts[3] <= 2  # one reads the 3 from memory, if others were there


@pytest.mark.slow
def test_gradients_of_batches_of_any_size():
    weft.manual_seed(0)
    net = weft.nn.Sequential(weft.nn.Linear(16, 8), weft.nn.ReLU(), weft.nn.Linear(8, 3))
    for n in (9, 12, 5, 30, 17, 64, 21, 8):
        net.zero_grad()
        loss = F.cross_entropy(net(weft.tensor(X[:n])), weft.arange(n) % 3)
        loss.backward()
        found = [p.grad.numpy() for p in net.parameters()]

        def again(x, y):
            net.zero_grad()
            F.cross_entropy(net(x), y).backward()
            return [p.grad for p in net.parameters()]

        if n in (17, 8):
            for a, b in zip(found, weft.jit(again)(weft.tensor(X[:n]), weft.arange(n) % 3),
                            strict=True):  # fmt: skip
                np.testing.assert_allclose(a, b.numpy(), 1e-4, 1e-6)


def test_errors_name_the_line_of_their_call():
    x = weft.tensor(X).realize()
    for n in (7, 9, 13, 21, 34):
        place = weft.tensor(np.arange(n)).realize()
        x[place].numpy()
    place = weft.tensor(np.arange(33) * 10).realize()
    with pytest.raises(WeftError, match=r"x\[place\] \* 3"):
        (x[place] * 3).numpy()


def test_parts_of_ranges_whose_sizes_change():
    """Where a part begins is a variable that no array need have as its size."""
    for n in (5, 6, 7, 9, 12, 20):
        whole = np.arange(n)
        for k in (2, 3):
            parts = weft.arange(n).chunk(k)
            size = -(-n // k)
            for i, part in enumerate(parts):
                np.testing.assert_array_equal(part.numpy(), whole[i * size : (i + 1) * size])
        np.testing.assert_array_equal(weft.arange(n)[n // 2 :].pad((n // 3, 1)).numpy(),
                                      np.pad(whole[n // 2 :], (n // 3, 1)))
