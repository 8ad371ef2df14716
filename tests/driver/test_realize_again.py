"""Graphs that come again with other arrays are computed the short way, to the same values."""

import gc
import threading
import weakref

import numpy as np
import pytest

import weft
from weft.driver.plans import plan_cache, resized, runtime_constants
from weft.errors import BoundsError
from weft.tensors.core import pending


@pytest.fixture
def shorts(monkeypatch):
    """Note whether each realize of one tensor went the short way."""
    found = []
    plan_cache.forget()  # a table that is full of other tests' plans drops new ones first
    resized._alike.clear()  # no plan of other tests serves these graphs
    runtime_constants._seen.clear()
    short = pending.compute_alone

    def note(node):
        buffer = short(node)
        found.append(buffer is not None)
        return buffer

    monkeypatch.setattr(pending, "compute_alone", note)
    return found


def fresh(rng, *shape):
    return weft.tensor(rng.standard_normal(shape, dtype=np.float32))


def test_other_arrays(shorts, rng):
    for i in range(4):
        a, b = fresh(rng, 3, 5), fresh(rng, 3, 5)
        out = (a * b + a).realize()
        np.testing.assert_allclose(out.numpy(), a.numpy() * b.numpy() + a.numpy(), rtol=1e-6)
        version = out._version
        assert out.realize()._version == version
        assert shorts[-1] is (i > 0)
    twice = (a * a + a).realize()  # the same but for which arrays are one
    np.testing.assert_allclose(twice.numpy(), a.numpy() ** 2 + a.numpy(), rtol=1e-6)
    assert shorts[-1] is False


def test_results_are_arrays_like_others(shorts, rng):
    a = fresh(rng, 4)
    (a + 1.5).realize()
    out = (a + 1.5).realize()
    assert shorts[-1]
    expected = a.numpy() + np.float32(1.5)
    np.testing.assert_array_equal((out * 2).numpy(), expected * 2)
    np.testing.assert_array_equal(out[1:3].numpy(), expected[1:3])
    out[0] = 7.0
    assert out[0].item() == 7.0
    np.testing.assert_array_equal(out.numpy()[1:], expected[1:])
    out.requires_grad_()
    out.sum().backward()
    assert out.grad.tolist() == [1, 1, 1, 1]


def test_signs_of_zeros_and_values_of_constants(shorts):
    x = weft.ones(3).realize()
    for _ in range(3):
        assert not np.signbit((x * 0.0).realize().numpy()).any()
        assert np.signbit((x * -0.0).realize().numpy()).all()
        assert (x * 3).realize().tolist() == [3, 3, 3]
        assert (x * True).realize().tolist() == [1, 1, 1]
        assert np.signbit(x.pad((1, 0), value=-0.0).realize().numpy()[0])
        assert not np.signbit(x.pad((1, 0), value=0.0).realize().numpy()[0])
    assert any(shorts)


def test_what_others_read_is_computed_once(shorts, rng):
    a = fresh(rng, 6)
    for _ in range(3):
        shared = a.exp()
        first, second = shared + 1, shared + 2
        shared.realize()
        plans = len(plan_cache._plans)
        np.testing.assert_allclose(first.realize().numpy(), np.exp(a.numpy()) + 1, rtol=1e-6)
        np.testing.assert_allclose(second.realize().numpy(), np.exp(a.numpy()) + 2, rtol=1e-6)
    assert shorts[-3:] == [True] * 3
    assert len(plan_cache._plans) == plans


def test_failures_name_the_line(shorts):
    table = weft.arange(4).realize()
    for _ in range(3):
        assert table[weft.tensor([1, 3])].realize().tolist() == [1, 3]
        with pytest.raises(BoundsError, match="test_realize_again"):
            table[weft.tensor([1, 4])].realize()


def test_memory_of_numpy(shorts):
    memory = np.ones(3, np.float32)
    shared = weft.from_numpy(memory)
    for value in (1.0, 2.0, 3.0):
        memory[:] = value
        assert (shared * 2).realize().tolist() == [2 * value] * 3
        late = shared + 0.5
        shared[0] = 9.0  # lets its readers go first
        assert late.tolist() == [value + 0.5] * 3
        shared.realize()
        assert memory.tolist() == [9.0, value, value]


@pytest.mark.slow
def test_plans_keep_no_arrays():
    x = weft.rand(1000).realize()
    buffer = weakref.ref(x._buffer)
    for _ in range(3):
        (x.tanh() * 0.3125).realize()
    del x
    gc.collect()
    assert buffer() is None


def test_threads_at_once():
    wrong = []

    def work(number):
        x = weft.full((500,), float(number)).realize()
        for i in range(100):
            if (((x + i) * 2).softmax(0) - 1 / 500).realize().abs().max().item() > 1e-6:
                wrong.append((number, i))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_view_in_memory_that_a_tensor_holds_is_read_the_short_way(shorts, rng):
    """It is computed by nobody, however often it is read."""
    table = fresh(rng, 4, 6).realize()
    turned = table.T
    for i in range(8):
        out = (turned * fresh(rng, 6, 4)).realize()
        assert out.shape == (6, 4)
        assert shorts[-1] is (i > 0)
