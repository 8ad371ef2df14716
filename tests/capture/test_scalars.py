"""Numbers that change from call to call: one capture for all values, or one each where it must."""

import functools
import json
import math
import pickle
import random
import struct

import numpy as np
import pytest

import weft
from weft import nn, optim
from weft.errors import CaptureError, DTypeError, WeftError

pytestmark = pytest.mark.usefixtures("compiled")

X = (np.arange(12, dtype=np.float32) - 5).reshape(3, 4) / 4
FLOATS = (0.1, 0.5, 0.0, -0.0, math.nan, math.inf, -math.inf, 1.0, 2.5, 1e300, -1e-320, 0.3)
WHOLE = (3, 2, 0, 1, -1, 7, 1 << 20, -(1 << 31), 1 << 40, (1 << 63) - 1, -(1 << 63))
HUGE = (1 << 63, 1 << 70, -(1 << 90))


def outcome(function, *given):
    """Return what a call gives: its values with types, or the error."""
    try:
        found = function(*given)
    except (WeftError, ArithmeticError, ValueError, TypeError) as error:
        return type(error), str(error).split("\n")[0]
    found = found if isinstance(found, tuple) else (found,)
    return [(f.dtype.name, f.shape, f.numpy().tobytes() if f.dtype.kind != "f" else
             [repr(v) for v in f.double().ravel().tolist()]) if isinstance(f, weft.Tensor)
            else (type(f), repr(f)) for f in found]  # fmt: skip


def agree(function, values, tensor=X, rounds=3):
    """Check a captured function for numbers, each some times; return how often it was captured."""
    given = weft.tensor(tensor)
    jitted = weft.jit(function)
    wanted = [outcome(function, given, v) for v in values]
    before = weft.compile_count()
    for _ in range(rounds):  # in Python, then by way of the native dispatch
        for value, expected in zip(values, wanted, strict=True):
            assert outcome(jitted, given, value) == expected, value
    assert weft.compile_count() - before >= jitted.captures
    return jitted


COMPUTED = {
    "affine": lambda x, n: x * n + 1,
    "reversed": lambda x, n: 2 - n * x - (n - x),
    "quotient": lambda x, n: x / (n * n + 1.5),
    "derived": lambda x, n: x * (n / (2.5 + n * n)) - (-n) + abs(n) * x,
    "where": lambda x, n: weft.where(x > 0.5, x, n),
    "compare": lambda x, n: (x > n, x <= n, x == n, n != x),
    "clamp": lambda x, n: x.clamp(-n, n),
    "full": lambda x, n: weft.full((2, 3), n) + x.sum(),
    "fill": lambda x, n: x.clone().fill_(n),
    "assign": lambda x, n: x.clone().masked_fill_(x > 0, n),
    "alpha": lambda x, n: x.add(x, alpha=n).sub(1, alpha=n),
    "lerp": lambda x, n: x.lerp(x * 2, n),
    "types": lambda x, n: (x.double() * n, x.half() + n, x.bfloat16() - n),
    "integers": lambda x, n: (x.long() + n, x.int() * n),
    "maximum": lambda x, n: (x.maximum(n), x.minimum(n)),
    "tensor": lambda x, n: weft.tensor(n) * x,
    "sum": lambda x, n: x + sum([n, n, 1]),
    "isinstance": lambda x, n: x * n if isinstance(n, int | float) else x,
    "closed": lambda x, n: functools.reduce(lambda a, b: a + b * n, [1, 2, 3]) * x,
}
KNOWN = {
    "branch": lambda x, n: x * n if n > 0.3 else x + n,
    "truth": lambda x, n: x * (n or 5),
    "equal": lambda x, n: x * 3 if n == 2.5 else x,
    "member": lambda x, n: x * 3 if n in (0.5, 3) else x,
    "key": lambda x, n: x * {0.5: 2, 3: 4}.get(n, 7),
    "type": lambda x, n: x * n if type(n) is float and n > 0.3 else x,
    "types": lambda x, n: x * n if type(n) in (float, str) else x,
    "by type": lambda x, n: x * {float: 2, int: 3}[type(n)],
    "float": lambda x, n: x * float(n),
    "sine": lambda x, n: x * math.sin(min(abs(n), 1.0)),
    "text": lambda x, n: x * len(f"{n:.3f}"),
    "shown": lambda x, n: x * len(str(n)),
    "percent": lambda x, n: x * len("%g" % n),  # noqa: UP031
    "numpy": lambda x, n: x * weft.tensor(np.full(4, n, np.float32)),
    "array": lambda x, n: x * weft.tensor(np.array([n, 1, 2, 3]) * 2),
    "scalar": lambda x, n: x * np.float32(n),
    "list": lambda x, n: x * weft.tensor([n, 1.0, 2.0, 3.0]),
    "exponent": lambda x, n: x ** n,
    "round": lambda x, n: x * round(n, 1),
    "packed": lambda x, n: x * struct.pack("d", n)[0],
    "json": lambda x, n: x * len(json.dumps(n)),
    "pickled": lambda x, n: x * pickle.loads(pickle.dumps(n)),
    "result": lambda x, n: (x * n, n),
    "sorted": lambda x, n: x * sorted([n, 0.4])[0],
    "whole": lambda x, n: x * (n.is_integer() if isinstance(n, float) else 5),
}  # fmt: skip


@pytest.mark.grid
@pytest.mark.parametrize("name", COMPUTED)
def test_one_capture_serves_all_values(name):
    for values in (FLOATS, WHOLE):
        jitted = agree(COMPUTED[name], values)
        failed = sum(isinstance(outcome(COMPUTED[name], weft.tensor(X), v), tuple) for v in values)
        wide = len([v for v in values if abs(v) >= 1 << 31]) if name == "integers" else 0
        wide += name == "clamp" and any(v != v for v in values)  # a NaN limits everything
        assert jitted.captures <= 2 + max(failed, wide), jitted.explain_captures()
    agree(COMPUTED[name], (1, 2, *HUGE, 3, True, 1.0, False, -0.0))


@pytest.mark.grid
@pytest.mark.parametrize("name", KNOWN)
def test_functions_that_know_the_value_are_captured_for_each(name):
    values = [v for v in FLOATS if math.isfinite(v)][:6]
    jitted = agree(KNOWN[name], values, rounds=2)
    assert jitted.captures == len(values)
    assert "the argument n is a constant: " in jitted.explain_captures()
    assert "test_scalars.py" in jitted.explain_captures() or name in ("json", "numpy", "result")
    agree(KNOWN[name], [3, 2, 1, 4], rounds=2)


@pytest.mark.grid
@pytest.mark.parametrize("kind", ["int64", "int32", "uint8", "bool"])
def test_integers_meet_numbers(kind):
    x = np.arange(6).astype(kind)
    for function in (lambda x, n: x * n, lambda x, n: x + n, lambda x, n: x < n,
                     lambda x, n: n - x, lambda x, n: x == n, lambda x, n: x // n,
                     lambda x, n: x % n, lambda x, n: x & n, lambda x, n: x / n):  # fmt: skip
        agree(function, (1, 2, 3, 0, 200, 255, 256, -1, 1 << 31, 1 << 40), x, rounds=2)
        agree(function, (0.5, 1.5, 3.0, -0.0), x, rounds=2)


def drawn(seed):
    """Return a random function of a tensor and numbers, and whether it needs their values."""
    pick = random.Random(seed)
    makers = [
        lambda a, n, m: a * n, lambda a, n, m: a + n / 4, lambda a, n, m: (n - a) * 0.5,
        lambda a, n, m: a.clamp(-2.0, 2.0) * (m * n), lambda a, n, m: weft.where(a > n, a, m),
        lambda a, n, m: a.tanh() - (n + m) * 0.25, lambda a, n, m: a / (m * m + 2),
        lambda a, n, m: a.softmax(-1) * n, lambda a, n, m: (a * m).sum(0, keepdim=True) + a,
        lambda a, n, m: a.maximum(m * 0.5), lambda a, n, m: a if m == 0 else a * 2,
        lambda a, n, m: a.roll(1, 0) + n * (2.0 ** (m % 3)),
    ]  # fmt: skip
    steps = [pick.choice(makers) for _ in range(pick.randint(1, 5))]

    def program(x, n, m):
        for step in steps:
            x = step(x, n, m)
        return x

    return program


@pytest.mark.grid
@pytest.mark.parametrize("seed", range(12))
def test_drawn_programs(seed):
    pick = random.Random(seed + 1000)
    program, x = drawn(seed), weft.tensor(X)
    jitted = weft.jit(program)
    for _ in range(12):
        n = pick.choice([pick.uniform(-2, 2), 0.0, -0.0, 1.0, math.inf, pick.randint(-3, 3)])
        m = pick.choice([0, 1, 2, pick.randint(-5, 5)])
        expected = program(x, n, m).numpy()
        np.testing.assert_allclose(jitted(x, n, m).numpy(), expected, 1e-6, 1e-6)


def test_numbers_lie_in_containers_and_keywords():
    @weft.jit
    def step(x, options, *, scale):
        return x * options["rate"] + options["shift"][1] * scale

    x = weft.tensor(X)
    for i in range(6):
        found = step(x, {"rate": i / 8, "shift": [7, i]}, scale=0.25 * i)
        np.testing.assert_array_equal(found.numpy(), X * np.float32(i / 8) + i * 0.25 * i)
    assert step.captures == 2


def test_only_the_number_that_decides_is_constant():
    @weft.jit
    def step(x, rate, n):
        for _ in range(n):
            x = x * rate
        return x

    x = weft.tensor(X)
    for rate, n in ((0.5, 1), (0.25, 2), (0.75, 2), (1.5, 1), (0.1, 2), (0.3, 1)):
        expected = X
        for _ in range(n):
            expected = expected * np.float32(rate)
        np.testing.assert_array_equal(step(x, rate, n).numpy(), expected)
    assert step.captures == 3
    assert "the argument n is a constant" in step.explain_captures()
    assert "argument rate" not in step.explain_captures()
    assert "float32[3, 4], float, 2" in step.explain_captures()


def test_numbers_can_be_pinned():
    for static in ("rate", 1, ["rate"], (1,)):
        step = weft.jit(lambda x, rate: x * rate, static=static)
        for i in range(4):
            step(weft.tensor(X), i / 4)
        assert step.captures == 4
        assert "static=" in step.explain_captures()
    with pytest.raises(DTypeError, match="static"):
        weft.jit(lambda x: x, static=1.5)


def test_gradients_and_state():
    """A step with a rate that changes: gradients, parameters and what a backward reads later."""
    weft.manual_seed(0)
    net = nn.Linear(4, 2)
    twin = nn.Linear(4, 2)
    twin.load_state_dict(net.state_dict())
    x = weft.tensor(X)

    def update(model, rate, decay):
        model.zero_grad()
        loss = (model(x) * decay).square().sum()
        loss.backward()
        with weft.no_grad():
            for p in model.parameters():
                p -= rate * p.grad
        return loss

    step = weft.jit(lambda rate, decay: update(net, rate, decay))
    for i in range(8):
        found, expected = step(0.01 / (i + 1), 1 - i / 16), update(twin, 0.01 / (i + 1), 1 - i / 16)
        np.testing.assert_allclose(found.numpy(), expected.numpy(), 1e-6)
    for a, b in zip(net.parameters(), twin.parameters(), strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), 1e-6)
    assert step.captures <= 3  # gradients were not there at first


def test_backward_of_a_replay_reads_the_number_of_its_call():
    scale = weft.jit(lambda x, n: (x * n).exp())
    x = weft.tensor(X).requires_grad_()
    for n in (0.5, 0.25, 1.5, 2.0):
        x.grad = None
        found = scale(x, n)
        scale(x, 9.0)
        found.sum().backward()
        np.testing.assert_allclose(x.grad.numpy(), np.float32(n) * np.exp(X * np.float32(n)), 1e-5)


def test_random_numbers_go_on():
    noisy = weft.jit(lambda x, n: x + weft.rand(3, 4) * n)
    x = weft.tensor(X)
    seen = []
    weft.manual_seed(3)
    for i in range(6):
        seen.append(noisy(x, 1.0 + i).numpy())
    weft.manual_seed(3)
    for i in range(6):
        np.testing.assert_array_equal(seen[i], (x + weft.rand(3, 4) * (1.0 + i)).numpy())
    assert noisy.captures == 2


def test_a_number_that_is_kept_is_a_number_again():
    class Model:
        scale = 1.0

        def __call__(self, x, n):
            self.scale = n
            return x * self.scale

    model = Model()
    jitted = weft.jit(model)
    for n in (0.5, 0.25, 0.125):
        jitted(weft.tensor(X), n)
    assert type(model.scale) is float
    kept = []
    append = weft.jit(lambda x, n: kept.append(n) or x * n)
    for n in (0.5, 0.25, 0.125):
        append(weft.tensor(X), n)
    for value in kept:
        assert isinstance(value, float)
        assert value > 0.1
        assert f"{value * 2:.2f}" in ("1.00", "0.50", "0.25")


def test_an_optimizer_gets_its_rate():
    weft.manual_seed(1)
    net = nn.Linear(4, 1)
    adam = optim.Adam(net.parameters(), lr=0.1)

    @weft.jit
    def step(x, rate):
        adam.param_groups[0]["lr"] = rate
        adam.zero_grad()
        loss = net(x).square().mean()
        loss.backward()
        adam.step()
        return loss

    losses = [step(weft.tensor(X), 0.1 / (i + 1)).item() for i in range(12)]
    assert losses[-1] < losses[0]
    assert step.captures <= 5


def test_captured_functions_within_others():
    inner = weft.jit(lambda x, n: x * n)
    outer = weft.jit(lambda x, n: inner(x, n + 1) - inner(x, 2))
    for n in (0.5, 0.25, 3.5, 1.25):
        np.testing.assert_allclose(outer(weft.tensor(X), n).numpy(), X * (n + 1) - X * 2, 1e-6)
    assert outer.captures == 2


def test_compile_count_stands_still_in_a_warm_loop():
    step = weft.jit(lambda x, t: x * t + t)
    x = weft.tensor(X)
    step(x, 0.5), step(x, 0.75)
    before = weft.compile_count()
    for i in range(50):
        step(x, i / 7)
    assert weft.compile_count() == before


@pytest.mark.parametrize("capture", [lambda f: f, weft.jit], ids=["eager", "jit"])
def test_limits_that_are_nan_limit_everything(capture):
    values = np.array([-2.0, 0.25, np.nan, np.inf], np.float32)
    cut = capture(lambda x, low, high: (x.clamp(low, high), x.clamp(min=low), x.clamp(max=high)))
    for low, high in ((-1.0, 0.5), (0.0, 2.0), (np.nan, 1.0), (0.0, np.nan), (0.5, np.inf)):
        found = cut(weft.tensor(values), low, high)
        wanted = (np.clip(values, low, high), np.maximum(values, np.float32(low)),
                  np.minimum(values, np.float32(high)))  # fmt: skip
        for a, b in zip(found, wanted, strict=True):
            np.testing.assert_array_equal(a.numpy(), b)


def test_limits_that_change_leave_gradients_as_they_are():
    x = weft.tensor([-2.0, 0.0, 0.5, 1.0, 3.0], requires_grad=True)
    cut = weft.jit(lambda x, low, high: x.clamp(low, high))
    for low, high in ((-1.0, 2.0), (0.0, 1.0), (0.5, 0.5), (0.0, 2.0)):
        x.grad = None
        cut(x, low, high).sum().backward()
        inside = (x.detach().numpy() >= low) & (x.detach().numpy() <= high)
        np.testing.assert_array_equal(x.grad.numpy(), inside.astype(np.float32))


def test_numbers_and_sizes_can_be_pinned_as_dynamic():
    for dynamic in ("rate", [1], ["rate"], ("x", "rate")):
        step = weft.jit(lambda x, rate: x * rate, dynamic=dynamic)
        for i in range(4):
            np.testing.assert_array_equal(step(weft.ones(4 + i), i / 4), np.full(4 + i, i / 4))
    needs = weft.jit(lambda x, rate: x * rate if rate > 0.3 else x, dynamic="rate")
    needs(weft.tensor(X), 0.25)
    for _ in range(2):
        with pytest.raises(CaptureError, match=r"argument rate needed.*rate > 0.3"):
            needs(weft.tensor(X), 0.5)
    rows = weft.jit(lambda x: sum([x * i for i in range(x.shape[0])], x), dynamic="x")
    rows(weft.ones(4))
    for _ in range(2):
        with pytest.raises(CaptureError, match=r"size of an argument needed.*range"):
            rows(weft.ones(5))
    with pytest.raises(DTypeError, match="dynamic"):
        weft.jit(lambda x: x, dynamic=1.5)


def test_numbers_beside_dynamic_axes_are_read_at_each_call():
    n = weft.Variable("n", 1, 64)

    @weft.jit(dynamic={"x": {0: n}})
    def step(x, rate, power=1):
        return x * rate + (x.shape[0] if power > 1 else 0)

    for i in range(8):
        for power in (1, 2):
            found = step(weft.ones(3 + i, 4), i / 8, power)
            wanted = np.full((3 + i, 4), i / 8 + (3 + i) * (power - 1), np.float32)
            np.testing.assert_array_equal(found.numpy(), wanted)
    assert step.captures <= 4, step.explain_captures()
    pinned = weft.jit(lambda x, rate: x * rate, dynamic={"x": {0: n}}, static="rate")
    for i in range(4):
        np.testing.assert_array_equal(pinned(weft.ones(3 + i), i / 8), np.full(3 + i, i / 8))
    assert pinned.captures == 4
