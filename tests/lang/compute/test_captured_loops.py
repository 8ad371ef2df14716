"""Functions of loops inside of `weft.jit`: parts of the plan, replayed natively."""

import numpy as np
import pytest

import weft
from weft.errors import (
    BoundsError,
    CaptureError,
    DTypeError,
    GradientError,
    KernelError,
    LaunchError,
)

pytestmark = pytest.mark.usefixtures("compiled")


@weft.compute
def matmul(a, b, out):
    for i, j in weft.ndrange(a.shape[0], b.shape[1]):
        s = 0.0
        for k in range(a.shape[1]):
            s += a[i, k] * b[k, j]
        out[i, j] = s


@weft.compute
def saxpy(a, x, y):
    for i in range(x.shape[0]):
        y[i] += a * x[i]


@weft.compute
def running(x):
    for i in range(1, x.shape[0]):
        x[i] += x[i - 1]


@weft.compute
def take(x, index, out):
    for i in range(out.shape[0]):
        out[i] = x[index[i]]


@weft.compute
def filled(x, n, value):
    for i in range(n):
        x[i] = value


@weft.compute
def inner(x, out):
    for i, j in weft.ndrange((1, x.shape[0] - 1), (1, x.shape[1] - 1)):
        out[i, j] = (x[i - 1, j] + x[i + 1, j] + x[i, j - 1] + x[i, j + 1]) * 0.25


@pytest.mark.parametrize(("m", "k", "n"), [(1, 1, 1), (7, 5, 3), (64, 48, 33), (3, 0, 2),
                                           (0, 4, 2)])
def test_a_product_between_operations(m, k, n):
    @weft.jit
    def f(a, b):
        out = weft.zeros(m, n).double()
        matmul(a * 2, b, out)
        return weft.relu(out) + 1

    for seed in range(3):
        rng = np.random.default_rng(seed)
        a, b = rng.standard_normal((m, k)), rng.standard_normal((k, n))
        np.testing.assert_allclose(f(weft.tensor(a), weft.tensor(b)).numpy(),
                                   np.maximum(2 * a @ b, 0) + 1, rtol=1e-12)


@pytest.mark.grid
@pytest.mark.parametrize("n", [0, 1, 2, 13, 1000])
@pytest.mark.parametrize("dtype", [weft.float32, weft.float64, weft.int64])
def test_old_values_and_order(n, dtype):
    @weft.jit
    def f(x):
        y = x * 2
        saxpy(3, x, y)
        running(y)
        return y, x

    for seed in range(3):
        x = np.random.default_rng(seed).integers(-4, 5, n)
        y, same = f(weft.tensor(x).to(dtype))
        np.testing.assert_array_equal(y.numpy(), np.cumsum(5 * x))
        np.testing.assert_array_equal(same.numpy(), x)


def test_elements_that_no_loop_sets_stay():
    @weft.jit
    def f(x):
        out = weft.full(x.shape, 7.0)
        inner(x, out)
        return out

    x = np.random.default_rng(0).random((6, 9)).astype(np.float32)
    expected = np.full((6, 9), 7, np.float32)
    expected[1:-1, 1:-1] = (x[:-2, 1:-1] + x[2:, 1:-1] + x[1:-1, :-2] + x[1:-1, 2:]) / 4
    for _ in range(3):
        np.testing.assert_allclose(f(weft.tensor(x)).numpy(), expected, rtol=1e-6)


def test_one_tensor_twice_and_state():
    state = weft.ones(6)

    @weft.jit
    def f(x):
        saxpy(1.0, x, x)
        saxpy(1.0, x, state)
        return x

    for k in range(1, 4):
        np.testing.assert_array_equal(f(weft.ones(6)).numpy(), [2] * 6)
        np.testing.assert_array_equal(state.numpy(), [1 + 2 * k] * 6)


def test_numbers_are_those_of_the_capture():
    @weft.jit
    def f(x, n, value):
        filled(x, n=n, value=value)
        return x

    for n, value in ((0, 1.0), (3, 2.0), (5, -1.5), (3, 2.0)):
        for _ in range(2):
            np.testing.assert_array_equal(f(weft.zeros(5), n, value).numpy(),
                                          [value] * n + [0] * (5 - n))
    with pytest.raises(BoundsError, match="found index 5") as found:
        f(weft.zeros(5), 6, 1.0).numpy()
    assert "x[i] = value" in str(found.value)


def test_failures_tell_the_line():
    @weft.jit
    def f(x, index):
        out = weft.zeros(index.shape)
        take(x, index, out)
        return out

    x = weft.arange(10).float()
    np.testing.assert_array_equal(f(x, weft.tensor([3, 0, 9])).numpy(), [3, 0, 9])
    for bad in (10, -1):
        with pytest.raises(BoundsError, match=f"found index {bad}") as found:
            f(x, weft.tensor([3, bad, 9])).numpy()
        assert "out[i] = x[index[i]]" in str(found.value)


def test_assertions_run_though_nobody_reads():
    @weft.compute
    def positive(x):
        for i in range(x.shape[0]):
            assert x[i] > 0, "not positive"

    @weft.jit
    def f(x):
        positive(x)
        return x + 1

    np.testing.assert_array_equal(f(weft.ones(3)).numpy(), [2] * 3)
    for _ in range(2):
        with pytest.raises(LaunchError, match="not positive"):
            f(weft.tensor([1.0, 0.0, 1.0]))


def test_refusals():
    @weft.jit
    def views(x):
        saxpy(1.0, x[1:], x[:-1])
        return x

    with pytest.raises(CaptureError, match="views of one tensor"):
        views(weft.ones(5))

    @weft.jit
    def learned(x):
        y = x * 1
        saxpy(1.0, x, y)
        return y

    with pytest.raises(GradientError):
        learned(weft.ones(5).requires_grad_())

    @weft.jit
    def arrays(x):
        saxpy(1.0, np.ones(5, np.float32), x)
        return x

    with pytest.raises(CaptureError, match="no tensor"):
        arrays(weft.ones(5))

    @weft.jit
    def few(x):
        saxpy(1.0, x)

    with pytest.raises(LaunchError, match="missing"):
        few(weft.ones(5))

    @weft.compute
    def annotated(x: weft.float64[:]):
        x[0] = 1

    with pytest.raises(DTypeError):
        weft.jit(lambda x: annotated(x))(weft.ones(5))

    @weft.compute(kind="matmul")
    def no_product(x):
        for i in range(x.shape[0]):
            x[i] += 1

    with pytest.raises(KernelError, match="matmul"):
        weft.jit(lambda x: no_product(x))(weft.ones(5))


def test_beside_kernels():
    @weft.kernel
    def plus(x):
        i = weft.gpu.grid(1)
        if i < x.size:
            x[i] += 1

    @weft.jit
    def f(x):
        plus[1, 8](x)
        running(x)
        plus[1, 8](x)
        return x

    for _ in range(3):
        np.testing.assert_array_equal(f(weft.ones(5)).numpy(), [3, 5, 7, 9, 11])
