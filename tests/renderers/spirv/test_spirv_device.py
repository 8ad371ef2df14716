"""What a driver computes with our SPIR-V, where others were wrong: on lavapipe."""

import numpy as np
import pytest

import weft

pytestmark = pytest.mark.requires("vulkan:lavapipe")
DEVICE = "vulkan:lavapipe"


def on_device(array):
    return weft.asarray(array, device=DEVICE)


@pytest.mark.parametrize("d", [np.int8, np.int16, np.int32, np.int64])
def test_extended_numbers_compare_with_constants(d):
    """Mesa folds such comparisons to constants if it sees an extension by the sign."""
    x = np.array([-7, -1, 0, 1, 4, 5, 100], d)
    wide = on_device(x).to(weft.int64)
    for bound in (-3, 0, 1, 5):
        assert (wide < bound).numpy().tolist() == (x < bound).tolist()
        assert (wide >= bound).numpy().tolist() == (x >= bound).tolist()


def test_a_loop_longer_than_the_driver_s_limit_runs_to_its_end(rng):
    x = rng.integers(-3, 4, 70_070).astype(np.float32)
    assert weft.sum(on_device(x)).item() == float(x.sum())


def test_multiply_adds_are_exact_through_a_transcendental_function(rng):
    x = rng.uniform(-80, 80, 5000).astype(np.float32)
    want = np.exp(x.astype(np.float64))
    assert np.abs(weft.exp(on_device(x)).numpy() / want - 1).max() < 2.0**-23


def test_subnormal_numbers_are_kept():
    x = np.array([1e-40, -1e-45, 3e-39], np.float32)
    assert np.array_equal((on_device(x) + on_device(x)).numpy(), x + x)
