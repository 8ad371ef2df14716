"""An int or a slice as the only index, which goes a short way, held against NumPy: all of them."""

import itertools

import numpy as np
import pytest

import weft

BOUNDS = (None, -7, -3, -2, -1, 0, 1, 2, 4, 7)
KEYS = [*range(-6, 7), *(slice(*b) for b in itertools.product(BOUNDS, BOUNDS, (None, 1, 2, 3, 0)))]


def outcome(array, key):
    """Return a part, or that there is none."""
    try:
        return array[key]
    except (IndexError, ValueError, weft.errors.WeftError):
        return None


@pytest.mark.parametrize("shape", [(), (0,), (1,), (2,), (5,), (3, 2), (1, 2), (0, 2)])
@pytest.mark.parametrize("tracked", [False, True])
def test_parts(shape, tracked):
    array = np.arange(float(np.prod(shape))).reshape(shape)
    tensor = weft.tensor(array, requires_grad=tracked)
    expected = [outcome(array, key) for key in KEYS]
    found = [outcome(tensor, key) for key in KEYS]
    weft.realize(*[f for f in found if f is not None])
    for key, e, f in zip(KEYS, expected, found, strict=True):
        assert (e is None) == (f is None), key
        if e is not None and f is not None:
            np.testing.assert_array_equal(f.detach().numpy(), e, err_msg=str(key))


@pytest.mark.parametrize("key", [0, -1, slice(1, None), slice(None, None, 2), slice(None)])
def test_parts_are_views(key):
    array, tensor = np.zeros((3, 2)), weft.zeros(3, 2)
    part = tensor[key]
    part += 1
    array[key] += 1
    assert tensor.tolist() == array.tolist()


def test_parts_of_sizes_that_are_read_at_each_call():
    @weft.jit
    def ends(x):
        return x[0] + x[-1], x[1:].sum()

    for n in (3, 5, 4, 2):
        array = np.arange(float(n))
        both, rest = ends(weft.tensor(array))
        assert both.item() == array[0] + array[-1]
        assert rest.item() == array[1:].sum()
