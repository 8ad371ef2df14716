"""Captured functions called with PyTorch tensors: in native code, with the checks of Python's."""

import gc
import random

import numpy as np
import pytest

import weft
from capabilities import module
from weft.capture.jit import Jitted

pytestmark = pytest.mark.requires("torch")
DTYPES = ("float32", "float64", "float16", "bfloat16", "int8", "int32", "int64", "uint8", "bool")


@pytest.fixture
def torch():
    return module("torch")


@pytest.fixture
def misses(monkeypatch):
    """Count the calls that native code gives up."""
    count, miss = [0], Jitted._miss

    def counted(self, args, kwargs):
        count[0] += 1
        return miss(self, args, kwargs)

    monkeypatch.setattr(Jitted, "_miss", counted)
    return count


def native(f, *args, misses, **kwargs):
    """Call a function until calls like this one are native; return the last result."""
    for _ in range(3):
        f(*args, **kwargs)
    before = misses[0]
    found = f(*args, **kwargs)
    assert misses[0] == before, "the call went through Python"
    return found


@pytest.mark.parametrize("dtype", DTYPES)
def test_values_of_each_type(torch, misses, dtype):
    f = weft.jit(lambda x: x.astype(weft.float64) * 2)
    for shape in [(), (1,), (5,), (3, 1, 4), (1, 1)]:
        x = (torch.rand(shape) * 100).to(getattr(torch, dtype))
        found = native(f, x, misses=misses)
        assert found.tolist() == (x.double() * 2).tolist()
        x.zero_()
        assert np.all(f(x).numpy() == 0)


def test_arguments_in_containers_and_by_name(torch, misses):
    f = weft.jit(lambda pair, table, scale: pair[0] + pair[1] * table["b"] * scale)
    x, y, z, s = (torch.full((4,), float(i)) for i in range(4))
    found = native(f, (x, y), {"b": z}, scale=s, misses=misses)
    assert found.tolist() == [6.0] * 4
    mixed = native(f, (x, weft.ones(4)), {"b": np.full(4, 5, np.float32)}, scale=s, misses=misses)
    assert mixed.tolist() == [15.0] * 4


def test_a_tensor_given_twice(torch, misses):
    f = weft.jit(lambda x, y: x - 2 * y)
    x, y = torch.ones(3), torch.zeros(3)
    assert native(f, x, x, misses=misses).tolist() == [-1] * 3
    assert native(f, x, y, misses=misses).tolist() == [1] * 3
    assert f(y, y).tolist() == [0] * 3


def test_what_the_rows_do_not_know_goes_the_usual_way(torch):
    """Random tensors of all layouts after a native dispatch is there: the results are Python's."""
    rng = random.Random()
    f = weft.jit(lambda x: x.astype(weft.float64).sum(-1) + 1)
    base = torch.arange(240, dtype=torch.float32)
    for _ in range(4):
        f(base.view(12, 20))
    for _ in range(60):
        x = base.to(getattr(torch, rng.choice(DTYPES[:3] + DTYPES[5:6]))).view(12, 20)
        for step in rng.sample(["turn", "cut", "every", "one", "wide", "empty"], 2):
            if step == "turn":
                x = x.T
            elif step == "cut":
                x = x[1:, :rng.randint(1, x.shape[1])]
            elif step == "every":
                x = x[:, ::2]
            elif step == "one":
                x = x[:1]
            elif step == "wide":
                x = x[:, :1].expand(-1, 3)
            elif step == "empty" and rng.random() < 0.3:
                x = x[:0]
        want = (x.double().sum(-1) + 1).tolist()
        for _ in range(3):
            assert f(x).tolist() == want


def test_one_element_whose_sign_is_to_be_turned(torch, misses):
    f = weft.jit(lambda x: x + 0)
    x = torch.tensor([3.0])
    assert native(f, x, misses=misses).tolist() == [3]
    for turned in (torch._neg_view(x), torch.complex(x, x).conj().imag):
        with pytest.raises(weft.errors.DeviceError, match="resolve_neg"):
            f(turned)
        with pytest.raises(weft.errors.DeviceError, match="resolve_neg"):
            weft.tensor(turned)
        assert f(turned.resolve_neg()).tolist() == turned.tolist()


def test_memory_that_is_not_aligned(torch):
    f = weft.jit(lambda x: x + 1)
    assert [f(torch.zeros(3)).tolist() for _ in range(4)][-1] == [1] * 3
    raw = bytearray(16)
    odd = torch.frombuffer(raw, dtype=torch.float32, count=3, offset=1)
    for _ in range(3):
        assert f(odd).tolist() == [1] * 3


def test_tensors_that_are_learned_are_refused_as_before(torch):
    f = weft.jit(lambda x: x * 2)
    x = torch.ones(4)
    for _ in range(4):
        f(x)
    for g in (weft.jit(lambda x: x * 2), f):
        with pytest.raises((BufferError, RuntimeError, weft.errors.WeftError), match="grad"):
            g(x.requires_grad_())


def test_memory_lives_through_a_call_that_lets_others_run(torch):
    f = weft.jit(lambda x: (x * 2).sum())
    for i in range(4):
        assert f(torch.full((1 << 18,), float(i))).item() == i * (1 << 19)
        gc.collect()


def test_a_written_argument_is_left_alone(torch):
    """As for NumPy: what a function does to an array is its own."""

    @weft.jit
    def f(x):
        x += 1
        return x

    x, y = torch.zeros(3), np.zeros(3, np.float32)
    for _ in range(4):
        assert f(x).tolist() == f(y).tolist() == [1] * 3
    assert x.tolist() == y.tolist()
