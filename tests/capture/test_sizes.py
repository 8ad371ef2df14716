"""Sizes that change from call to call: one capture for all sizes, or one each where it must."""

import collections
import gc
import random
import time

import numpy as np
import pytest

import weft
from weft import background, nn
from weft.capture import usage
from weft.errors import WeftError
from weft.ir import expr as ex
from weft.nn import functional as F

pytestmark = pytest.mark.usefixtures("compiled")

SIZES = (3, 5, 1, 0, 7, 64, 65, 33, 5, 130)
W = weft.tensor(np.random.default_rng(0).standard_normal((8, 8)).astype(np.float32))


@pytest.fixture(autouse=True)
def _slow_machine(monkeypatch):
    """Give sizes plans of their own by the number of calls alone."""
    monkeypatch.setattr(usage, "LONG", 1e9)


def rows(*shape):
    return np.random.default_rng([*shape]).standard_normal(shape).astype(np.float32)


def outcome(function, *given):
    try:
        found = function(*given)
    except (WeftError, ArithmeticError, ValueError, IndexError, TypeError) as error:
        return type(error)
    return [f.numpy() if isinstance(f, weft.Tensor) else f
            for f in (found if isinstance(found, tuple) else (found,))]  # fmt: skip


def agree(function, make=lambda n: [rows(n, 8)], values=SIZES):
    """Check a captured function at sizes against eager results; return it."""
    jitted = weft.jit(function)
    for n in values:
        given = [weft.tensor(a) for a in make(n)]
        found, wanted = outcome(jitted, *given), outcome(function, *given)
        if isinstance(wanted, type):
            assert found is wanted, n
            continue
        assert len(found) == len(wanted)
        for a, b in zip(found, wanted, strict=True):
            assert np.shape(a) == np.shape(b), n
            np.testing.assert_allclose(a, b, 2e-5, 2e-5, err_msg=str(n))
    return jitted


ANY_SIZE = {
    "elementwise": lambda x: (x * 2).tanh() + 1,
    "rows": lambda x: (x @ W).softmax(-1),
    "columns": lambda x: (x.sum(0), x.mean(0), x.sum()),
    "counted": lambda x: x.sum(0) / x.shape[0] + x.numel(),
    "norm": lambda x: x.layer_norm((8,)) + x.shape[0],
    "products": lambda x: x @ x.T,
    "views": lambda x: (x.T, x.reshape(-1), x[None], x[:, 2:5]),
    "isinstance": lambda x: x * 2 if isinstance(x.shape[0], int) else x,
    "equal to itself": lambda x: x * 2 if x.shape == (x.T.shape[1], 8) else x,
    "unequal": lambda x: x * 2 if x.shape[0] == x.shape[0] + 1 else x,
    "cat": lambda x: weft.cat([x, x * 2]),
    "positions": lambda x: x + weft.arange(x.shape[0]).reshape(-1, 1),
    "attention": lambda x: F.scaled_dot_product_attention(x[None], x[None], x[None],
                                                          is_causal=True),
    "view of a table": lambda x: x + weft.ones(256, 8)[: x.shape[0]],
}  # fmt: skip
KNOWN_SIZE = {
    "equals": lambda x: x * 3 if x.shape[0] == 5 else x,
    "shape equals": lambda x: x * 3 if x.shape == (5, 8) else x,
    "in": lambda x: x * 3 if x.shape[0] in (33, 65) else x,
    "unequal": lambda x: x * 3 if x.shape[0] != 64 else x,
    "loop": lambda x: sum([x * i for i in range(x.shape[0])], x),
    "text": lambda x: x * len(f"{x.shape[0]:4d} {x.shape}"),
    "power": lambda x: x * x.shape[0] ** -0.5,
    "exact type": lambda x: x * (2 if type(x.shape[0]) is int and x.shape[0] > 6 else 3),
    "length": lambda x: x * len(x),
    "float": lambda x: x * float(x.shape[0]) ** -0.5,
    "numpy": lambda x: x + weft.tensor(np.arange(x.shape[0], dtype=np.float32)).unsqueeze(1),
}


@pytest.mark.grid
@pytest.mark.parametrize("name", ANY_SIZE)
def test_one_capture_serves_all_sizes(name):
    jitted = agree(ANY_SIZE[name])
    assert jitted.captures <= 4, jitted.explain_captures()  # 3, n, 1 and 0
    assert "float32[n0, 8]" in jitted.explain_captures()


@pytest.mark.grid
@pytest.mark.parametrize("name", KNOWN_SIZE)
def test_functions_that_know_the_size_are_captured_for_each(name):
    jitted = agree(KNOWN_SIZE[name])
    assert jitted.captures >= len({*SIZES} - {0}), jitted.explain_captures()
    assert "sizes are constants: " in jitted.explain_captures()
    assert "test_sizes.py" in jitted.explain_captures()


@pytest.mark.slow
def test_choices_between_ranges_of_sizes_are_a_capture_each():
    def steps(x):
        n = x.shape[0]
        if n > 6:
            x = x * 3
        return x + 1 if n < 40 else x[:40]

    jitted = agree(steps)
    assert jitted.captures <= 6, jitted.explain_captures()  # 3, 1, 0; up to 6, up to 39, beyond
    jitted = agree(lambda x: x[-7:] * 2, values=(3, 5, 7, 9, 64, 6, 8))
    assert jitted.captures == 3, jitted.explain_captures()
    table = weft.ones(64, 8)
    jitted = agree(lambda x: x + table[: x.shape[0]], values=(3, 5, 2, 64, 33, 60))
    assert jitted.captures == 2
    assert agree(lambda x: x + table[: x.shape[0]]).captures <= 6


def test_axes_with_equal_sizes_and_others():
    def product(a, b):
        return a @ b + a.sum(1, keepdim=True)

    def make(n, m=None):
        return [rows(n, m or n), rows(m or n, 4)]

    jitted = agree(product, make, (3, 5, 9, 2))
    assert jitted.captures == 2
    agree(product, lambda n: make(n, 2 * n), (3, 5, 9, 2))
    both = weft.jit(product)
    for n, m in ((3, 4), (5, 6), (7, 9), (9, 7), (4, 4), (8, 6)):
        a, b = map(weft.tensor, make(n, m))
        np.testing.assert_allclose(both(a, b).numpy(), product(a, b).numpy(), 1e-5, 1e-5)
    assert both.captures == 2


def test_sizes_and_numbers_change_together():
    @weft.jit
    def step(x, t, n):
        return (x * t).softmax(0) * (2 if n > 3 else 3)

    for i in range(2, 14):
        x = weft.tensor(rows(i, 4))
        wanted = (x * (i / 7)).softmax(0) * (2 if i % 2 + 3 > 3 else 3)
        np.testing.assert_allclose(step(x, i / 7, i % 2 + 3).numpy(), wanted.numpy(), 1e-5)
    assert step.captures <= 4, step.explain_captures()


def drawn(seed):
    pick = random.Random(seed)
    makers = [
        lambda a: a.relu() + 1, lambda a: a.softmax(-1), lambda a: a - a.mean(0, keepdim=True),
        lambda a: a @ W, lambda a: weft.cat([a, a])[: a.shape[0]], lambda a: a.roll(1, -1),
        lambda a: a / a.shape[0], lambda a: a.cumsum(0), lambda a: a * a.sum(1, keepdim=True),
        lambda a: a if a.shape[0] > pick_limit else a * 2, lambda a: a.flip(0),
        lambda a: a[:, :4].repeat(1, 2), lambda a: a.T.contiguous().T, lambda a: a.tril(),
        lambda a: weft.where(a > 0, a, a.amax(0)), lambda a: a + weft.arange(a.shape[0])[:, None],
    ]  # fmt: skip
    pick_limit = pick.randint(1, 50)
    steps = [pick.choice(makers) for _ in range(pick.randint(1, 4))]

    def program(x):
        for step in steps:
            x = step(x)
        return x

    return program


@pytest.mark.grid
@pytest.mark.parametrize("seed", range(10))
def test_drawn_programs(seed):
    pick = random.Random(seed + 99)
    agree(drawn(seed), values=[pick.choice([0, 1, 2, 3, pick.randint(4, 90)]) for _ in range(7)])


@pytest.mark.slow
def test_gradients_of_a_model_with_batches_of_any_size():
    weft.manual_seed(0)
    net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3))

    @weft.jit
    def step(x, y):
        net.zero_grad()
        loss = F.cross_entropy(net(x), y)
        loss.backward()
        return loss, [p.grad for p in net.parameters()]

    for n in (16, 9, 7, 16, 5, 30):
        x, y = weft.tensor(rows(n, 8)), weft.arange(n) % 3
        loss, grads = step(x, y)
        grads = [g.numpy() for g in grads]
        net.zero_grad()
        wanted = F.cross_entropy(net(x), y)
        wanted.backward()
        np.testing.assert_allclose(loss.numpy(), wanted.numpy(), 1e-5)
        for g, p in zip(grads, net.parameters(), strict=True):
            np.testing.assert_allclose(g, p.grad.numpy(), 1e-4, 1e-5)
    assert step.captures <= 4, step.explain_captures()


def test_sizes_called_often_get_a_plan_of_their_own():
    @weft.jit
    def step(x):
        return (x * 2).softmax(-1)

    step(weft.tensor(rows(5, 8)))
    x = weft.tensor(rows(6, 8))
    for _ in range(usage.OFTEN + 2):
        step(x)
    background.drain()
    until = time.perf_counter() + 120
    while "float32[6, 8]" not in step.explain_captures() and time.perf_counter() < until:
        time.sleep(0.01)
    assert "float32[6, 8]" in step.explain_captures()
    before = weft.compile_count()
    for _ in range(5):
        np.testing.assert_allclose(step(x).numpy(), (x * 2).softmax(-1).numpy(), 1e-6)
    assert weft.compile_count() == before + 1  # the eager one


def test_sizes_can_be_pinned():
    jitted = weft.jit(lambda x, y: x * 2 + y.sum(), static="x")
    for n, m in ((3, 4), (5, 4), (5, 6), (5, 7), (7, 8), (7, 9)):
        jitted(weft.tensor(rows(n)), weft.tensor(rows(m)))
    shown = jitted.explain_captures()
    assert "float32[5], float32[n0]" in shown
    assert "float32[n0], " not in shown


def test_growing_sequence():
    @weft.jit
    def append(x, row):
        return weft.cat([x, row])

    x = weft.tensor(rows(1, 8))
    for i in range(1, 40):
        x = append(x, weft.tensor(rows(1, 8)) * i)
        assert x.shape == (i + 1, 8)
    np.testing.assert_allclose(x.numpy()[:, 0] / rows(1, 8)[0, 0], [1, *range(1, 40)], 1e-5)
    assert append.captures <= 3, append.explain_captures()


def test_a_size_beyond_the_range_gets_a_capture_with_a_larger_one():
    jitted = agree(lambda x: x.sum(0), values=(3, 5, 60, 1000, 1100, 20_000))
    assert jitted.captures <= 4, jitted.explain_captures()


LOOKED_UP = {
    "set": lambda x: x * 2 if x.shape[0] in {5, 64} else x,
    "dict": lambda x: x * {5: 2.0, 64: 3.0}.get(x.shape[0], 1.0),
    "shape": lambda x: x * 2 if x.shape in {(5, 8): 1} else x,
    "count": lambda x: x * collections.Counter([x.shape[0], 5])[5],
    "hash": lambda x: x * (hash(x.shape) % 3),
}


@pytest.mark.parametrize("name", LOOKED_UP)
def test_sizes_that_are_looked_up_are_numbers(name):
    # The first two sizes are in no table: as variables they would be in none later, either.
    jitted = agree(LOOKED_UP[name], values=(3, 7, 5, 64, 33, 5, 2))
    assert "hash of the size" in jitted.explain_captures()
    assert gc.isenabled()


def test_a_capture_that_keeps_what_is_interned_leaves_hashes_as_they_are():
    hashed, user = ex.Expr.__hash__, {}
    with pytest.raises(WeftError, match="hash of the size"), ex.deciding_equality():
        user[ex.Variable("n", 2, 64)] = 1
    assert ex.Expr.__hash__ is hashed


MOST = 40  # as many rows as the table has: the largest value of the sizes that slice it


UP_TO_THE_BOUND = {
    "sum": lambda x: F.pad(x.sum(1), (0, MOST - x.shape[0])),
    "rows": lambda x: F.pad(x.softmax(-1), (0, 0, 0, MOST - x.shape[0])),
    "scan": lambda x: F.pad(x.cumsum(0), (0, 0, 0, MOST - x.shape[0])),
    "sort": lambda x: F.pad(x.sort(0)[0], (0, 0, 0, MOST - x.shape[0])),
    "product": lambda x: F.pad(x @ W, (0, 0, 0, MOST - x.shape[0])).relu(),
    "beside": lambda x: weft.cat([x.exp(), F.pad(x.exp(), (0, 0, 0, MOST - x.shape[0]))]),
}


@pytest.mark.grid
@pytest.mark.parametrize("name", UP_TO_THE_BOUND)
def test_arrays_of_the_largest_size_are_no_arrays_of_the_size(name):
    table = weft.ones(MOST)

    def function(x):
        return UP_TO_THE_BOUND[name](x) + 0 * table[: x.shape[0]].sum(), x.sum(1) * 2

    agree(function, values=(3, 7, 5, 33, 40, 2))


def test_gradients_of_the_first_rows_of_a_table_are_zero_in_the_others():
    table = weft.tensor(rows(MOST, 8), requires_grad=True)

    def function(x):
        (table[: x.shape[1]] * x).sum().backward()
        found, table.grad = table.grad, None
        return found

    jitted = agree(function, lambda n: [rows(2, n, 8)], (3, 7, 5, 33, 40, 2))
    assert jitted.captures <= 4


@pytest.mark.parametrize("caught", [WeftError, Exception])
def test_an_error_that_a_function_catches_leads_it_no_other_way(caught):
    """Symbolic sizes may be refused where numbers are not: then the capture is of the numbers."""

    def halves(x, s):
        try:
            y = x.reshape(2, -1)
        except caught:
            y = x
        return y * s

    agree(halves, lambda n: [rows(n), 0.5], (4, 6, 7, 8, 9, 11, 10))
