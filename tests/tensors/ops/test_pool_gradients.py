"""The gradient of max pooling goes to one element of a window, as in PyTorch."""

import itertools

import numpy as np
import pytest

import weft

pytestmark = [pytest.mark.usefixtures("compiled"), pytest.mark.requires("torch")]
inf, nan = float("inf"), float("nan")

VALUES = {"normal": None, "ties": [0, 1], "nan": [nan, 1, 2], "low": [-inf, 0], "lowest": [-inf],
          "all_nan": [nan], "zeros": [0.0, -0.0]}  # fmt: skip
WINDOWS = [
    ((1, 2, 7, 9), {"kernel_size": 2}),
    ((1, 2, 7, 9), {"kernel_size": 3, "stride": 2, "padding": 1}),
    ((2, 1, 6, 8), {"kernel_size": 3, "stride": 1, "padding": 1}),
    ((1, 1, 9, 9), {"kernel_size": 2, "stride": 2, "padding": 1, "ceil_mode": True}),
    ((1, 1, 9, 9), {"kernel_size": 3, "stride": 2, "dilation": 2}),
    ((1, 1, 5, 5), {"kernel_size": 3, "stride": 4}),
    ((3, 1, 1, 1), {"kernel_size": 1}),
    ((2, 3, 17), {"kernel_size": 3, "stride": 2, "padding": 1}),
    ((1, 2, 40), {"kernel_size": 5, "stride": 1}),
]


@pytest.mark.grid
@pytest.mark.parametrize("values", VALUES)
@pytest.mark.parametrize("number", range(len(WINDOWS)))
def test_one_element_of_each_window(values, number):
    import torch

    shape, options = WINDOWS[number]
    name = f"max_pool{len(shape) - 2}d"
    rng = np.random.default_rng(number)
    a = rng.standard_normal(shape)
    a = (a if VALUES[values] is None else rng.choice(VALUES[values], shape)).astype(np.float32)
    x = torch.tensor(a, requires_grad=True)
    y, where = getattr(torch.nn.functional, name)(x, return_indices=True, **options)
    g = rng.integers(1, 9, y.shape).astype(np.float32)
    y.backward(torch.tensor(g))
    mine = weft.from_numpy(a).requires_grad_()
    out, places = getattr(mine, name)(return_indices=True, **options)
    (getattr(mine, name)(**options) * weft.from_numpy(g)).sum().backward()
    np.testing.assert_array_equal(out.detach().numpy(), y.detach().numpy())
    np.testing.assert_array_equal(places.numpy(), where.numpy())
    np.testing.assert_array_equal(mine.grad.numpy(), x.grad.numpy())


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
def test_other_types(dtype):
    """Every window gives its whole gradient to one element."""
    x = weft.zeros(1, 1, 6, 6, dtype=getattr(weft, dtype)).requires_grad_()
    x.max_pool2d(3, 3).sum().backward()
    got = x.grad.astype(weft.float32).numpy()[0, 0]
    want = np.zeros((6, 6), np.float32)
    for i, j in itertools.product((0, 3), (0, 3)):
        want[i, j] = 1
    np.testing.assert_array_equal(got, want)


def test_amax_still_shares():
    x = weft.zeros(2, 4).requires_grad_()
    x.amax(1).sum().backward()
    np.testing.assert_array_equal(x.grad.numpy(), np.full((2, 4), 0.25, np.float32))


@pytest.mark.parametrize("size", [(3, 4), (2, 5), (7, 8), (1, 1)])
@pytest.mark.parametrize("values", ["ties", "nan", "normal"])
def test_adaptive(size, values):
    import torch

    rng = np.random.default_rng(3)
    a = rng.standard_normal((2, 3, 9, 8))
    a = (a if VALUES[values] is None else rng.choice(VALUES[values], a.shape)).astype(np.float32)
    x = torch.tensor(a, requires_grad=True)
    y = torch.nn.functional.adaptive_max_pool2d(x, size)
    g = rng.integers(1, 9, y.shape).astype(np.float32)
    y.backward(torch.tensor(g))
    mine = weft.from_numpy(a).requires_grad_()
    (mine.adaptive_max_pool2d(size) * weft.from_numpy(g)).sum().backward()
    np.testing.assert_array_equal(mine.grad.numpy(), x.grad.numpy())
