"""What a mask of the tensor's own shape chooses, computed at once, against NumPy."""

import numpy as np
import pytest

import weft
from seeds import seeds

pytestmark = pytest.mark.usefixtures("compiled")
KINDS = ("float32", "float64", "float16", "int8", "int64", "uint16", "bool")


@pytest.mark.grid
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", [(), (1,), (17,), (5, 7), (3, 1, 40), (70_001,)])
@pytest.mark.parametrize("seed", seeds(2))
def test_elements_come_in_order(shape, kind, seed):
    rng = np.random.default_rng(seed)
    x = np.asarray(rng.integers(-100, 100, shape)).astype(kind)
    for share in (0.0, 0.01, 0.5, 1.0):
        mask = np.asarray(rng.random(shape) < share)
        tensor = weft.tensor(x)
        for got in (tensor[weft.tensor(mask)], tensor[mask],
                    tensor.masked_select(weft.tensor(mask))):
            assert got.dtype == tensor.dtype
            np.testing.assert_array_equal(got.numpy(), x[mask], strict=True)


def test_views_and_what_is_not_computed_yet():
    x = np.random.default_rng(3).standard_normal((9, 6)).astype(np.float32)
    tensor = weft.tensor(x)
    np.testing.assert_array_equal(tensor.T[(tensor * 2 > 1).T].numpy(), x.T[(x * 2 > 1).T])
    np.testing.assert_array_equal((tensor + 1)[tensor > 0].numpy(), (x + 1)[x > 0])


def test_the_result_does_not_follow_later_writes():
    tensor = weft.tensor([1.0, 2.0, 3.0])
    chosen = tensor[weft.tensor([True, False, True])]
    tensor[:] = 0
    assert chosen.tolist() == [1.0, 3.0]


def test_gradients_go_through():
    x = weft.tensor([1.0, 2.0, 3.0], requires_grad=True)
    (x[weft.tensor([True, False, True])] ** 2).sum().backward()
    assert x.grad.tolist() == [2.0, 0.0, 6.0]


def test_a_capture_refuses_it():
    x = weft.tensor([1.0, 2.0])
    with pytest.raises(weft.WeftError, match=r"x\[mask\]"):
        weft.jit(lambda t: t[t > 1])(x)


@pytest.mark.grid
@pytest.mark.parametrize("kind", ["bool", "int32", "float32"])
@pytest.mark.parametrize("shape", [(1,), (17,), (0,), (5, 7), (70_001,)])
@pytest.mark.parametrize("seed", seeds(2))
def test_places_of_true_elements(shape, kind, seed):
    x = np.random.default_rng(seed).integers(0, 2, shape).astype(kind)
    tensor = weft.tensor(x)
    np.testing.assert_array_equal(tensor.nonzero().numpy(), np.argwhere(x), strict=True)
    for got, want in zip(tensor.nonzero(as_tuple=True), np.nonzero(x), strict=True):
        np.testing.assert_array_equal(got.numpy(), want, strict=True)
