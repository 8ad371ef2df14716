"""Contractions of random shapes, compiled and run: small integers make every sum exact."""

import numpy as np
import pytest

import weft

RNG = np.random.default_rng(20)
SHAPES = 44


def whole(*shape, dtype=np.float32):
    return RNG.integers(-4, 5, shape).astype(dtype)


def size(most):
    """A size of any magnitude up to `most`: small, odd and large ones alike."""
    return int(np.exp(RNG.uniform(0, np.log(most + 1))))


def exact(found, reference):
    np.testing.assert_array_equal(found.numpy().astype(np.float64), reference)


def tensors(*arrays):
    return [weft.from_numpy(a) for a in arrays]


@pytest.mark.grid
@pytest.mark.parametrize("layout", ["nn", "nt", "tn", "tt"])
def test_matmul(layout):
    for _ in range(SHAPES):
        m, n, k = size(160), size(160), size(300)
        a = whole(m, k) if layout[0] == "n" else whole(k, m).T
        b = whole(k, n) if layout[1] == "n" else whole(n, k).T
        x, y = tensors(a, b)
        exact(x @ y, a.astype(np.float64) @ b)


def test_matmul_with_few_rows_or_columns():
    for number in range(SHAPES):
        few, many, k = int(RNG.integers(1, 10)), size(700), size(700)
        m, n = (few, many) if number % 2 else (many, few)
        a, b = whole(m, k), whole(k, n)
        x, y = tensors(a, b)
        exact(x @ y, a.astype(np.float64) @ b)


@pytest.mark.slow
def test_few_rows_times_a_matrix_that_no_cache_holds():
    for _ in range(SHAPES):
        m, k, n = (int(RNG.integers(*r)) for r in ((1, 10), (300, 900), (600, 2000)))
        a, b = whole(m, k), whole(k, n)
        x, y = tensors(a, b)
        exact((x @ y).relu(), np.maximum(a.astype(np.float64) @ b, 0))
        exact(x[0] @ y, a[0].astype(np.float64) @ b)


def test_threads_share_strips_that_do_not_divide_evenly():
    """Seven strips of columns at two threads: each copies its panels itself."""
    for rows, depth, columns in ((147, 201, 197), (150, 97, 220), (61, 129, 90)):
        a, b = whole(rows, depth), whole(columns, depth)
        x, y = tensors(a, b)
        exact((x @ y.T).relu(), np.maximum(a.astype(np.float64) @ b.T, 0))


@pytest.mark.grid
@pytest.mark.parametrize("columns", [2, 3, 5, 6, 7, 9, 11, 12, 13, 15, 17])
@pytest.mark.parametrize("depth", [5, 16, 33, 75])
def test_panels_that_are_no_power_of_two_wide(columns, depth):
    for batch, rows in ((3, 20), (1, 65), (2, 8)):
        a, b = whole(batch, rows, depth), whole(batch, columns, depth)
        x, y = tensors(a, b)
        exact(weft.einsum("bqd,bkd->bqk", x, y), np.einsum("bqd,bkd->bqk", a.astype(np.float64), b))


@pytest.mark.parametrize("shape", [
    (1, 0, 20), (1, 1, 33), (1, 4001, 17), (1, 3001, 75), (1, 2048, 137), (1, 601, 449),
    (1, 701, 700), (2, 1999, 150), (3, 1503, 200), (5, 37, 448), (61, 67, 61), (4, 300, 1031),
    (1, 64, 33001)])
def test_vectors_times_matrices_of_their_own(shape):
    batch, k, n = shape
    a, b = whole(batch, 1, k), whole(batch, k, n)
    x, y = tensors(a, b)
    exact((x @ y).relu(), np.maximum(a.astype(np.float64) @ b, 0))
    exact(x[0, 0] @ y[0], a[0, 0].astype(np.float64) @ b[0])
    same = x @ y
    assert (x @ y).numpy().tobytes() == same.numpy().tobytes()


def test_streams_with_several_tiles_of_rows_and_several_matrices():
    for m, k, n in ((9, 700, 601), (47, 640, 513), (95, 601, 550), (24, 2100, 131),
                    (25, 100, 2800), (89, 210, 1310), (128, 200, 2050), (191, 720, 733),
                    (33, 1282, 517), (40, 16103, 260)):
        a, b = whole(m, k), whole(k, n)
        x, y = tensors(a, b)
        exact((x @ y).relu(), np.maximum(a.astype(np.float64) @ b, 0))
    for batch, m, k, n in ((5, 1, 37, 211), (4, 1, 300, 97), (3, 1, 16, 64), (2, 2, 700, 601)):
        a, b = whole(batch, m, k), whole(batch, k, n)
        x, y = tensors(a, b)
        exact(x @ y, a.astype(np.float64) @ b)


@pytest.mark.parametrize("layout", ["nn", "nt", "tt"])
def test_wide_results_of_short_sums(layout):
    for m, n, k in ((331, 1009, 17), (97, 4099, 3), (1031, 513, 60)):
        a = whole(m, k) if layout[0] == "n" else whole(k, m).T
        b = whole(k, n) if layout[1] == "n" else whole(n, k).T
        c, wanted = whole(n), a.astype(np.float64) @ b
        x, y, z = tensors(a, b, c)
        exact(x @ y, wanted)
        exact((x @ y + z).relu(), np.maximum(wanted + c, 0))


@pytest.mark.slow
def test_rows_of_half_vectors():
    for n in (9, 17, 20, 24, 33, 37, 40, 49, 56):
        for m, k in ((1, 5), (67, 31), (19, 401)):
            a, b, c = whole(3, m, k), whole(3, k, n), whole(n)
            wanted = a.astype(np.float64) @ b
            x, y, z = tensors(a, b, c)
            exact(x @ y, wanted)
            exact((x[1] @ y[1] + z).abs(), np.abs(wanted[1] + c))


def test_batched_matmul():
    for number in range(SHAPES):
        batch, m, n, k = int(RNG.integers(1, 5)), size(90), size(90), size(90)
        a = whole(batch, m, k)
        b = whole(batch, k, n) if number % 2 else whole(batch, n, k).transpose(0, 2, 1)
        x, y = tensors(a, b)
        exact(x @ y, a.astype(np.float64) @ b)


def test_batched_matrix_times_vector():
    for batch, m, k in ((179, 16, 128), (53, 7, 40), (5, 61, 33), (11, 1, 65)):
        a, b, c = whole(batch, m, k), whole(batch, k, 1), whole(batch, 1, m)
        x, y, z = tensors(a, b, c)
        exact(x @ y, a.astype(np.float64) @ b)
        exact(z @ x, c.astype(np.float64) @ a)


def test_both_operands_transposed():
    for m, n, k in ((512, 623, 5), (64, 512, 12), (7, 300, 33), (257, 31, 70)):
        a, b = whole(k, m).T, whole(n, k).T
        x, y = tensors(a, b)
        exact(x @ y + 1, a.astype(np.float64) @ b + 1)


@pytest.mark.grid
@pytest.mark.parametrize("shape", [(40, 3000, 70), (300, 2500, 33), (70, 1021, 130), (9, 5000, 64),
                                   (129, 4096, 128), (300, 700, 290),
                                   (257, 521, 513), (2100, 2049, 40), (9001, 70, 100)])
def test_long_sums_are_cut_into_blocks(shape):
    m, k, n = shape
    for a, b in ((whole(m, k), whole(k, n)), (whole(k, m).T, whole(k, n)),
                 (whole(m, k), whole(n, k).T)):
        x, y = tensors(a, b)
        exact((x @ y + 1).relu(), np.maximum(a.astype(np.float64) @ b + 1, 0))


@pytest.mark.parametrize("dtype", [np.float64, np.int32, np.int8, np.float16])
def test_other_types(dtype):
    for _ in range(10):
        m, n, k = size(90), size(90), size(60)
        a, b = whole(m, k, dtype=dtype), whole(k, n, dtype=dtype)
        x, y = tensors(a, b)
        exact(x @ y, (a.astype(np.int64) @ b.astype(np.int64)).astype(dtype))


def reference_conv(x, w, stride, padding, groups, dilation):
    n, c, height, width = x.shape
    o, inner, kh, kw = w.shape
    padded = np.zeros((n, c, height + 2 * padding, width + 2 * padding))
    padded[:, :, padding : padding + height, padding : padding + width] = x
    windows = np.lib.stride_tricks.sliding_window_view(
        padded, ((kh - 1) * dilation + 1, (kw - 1) * dilation + 1), axis=(2, 3))
    windows = windows[:, :, ::stride, ::stride, ::dilation, ::dilation]
    windows = windows.reshape(n, groups, inner, *windows.shape[2:])
    weights = w.astype(np.float64).reshape(groups, o // groups, inner, kh, kw)
    out = np.einsum("ngchwpq,gocpq->ngohw", windows, weights, optimize=True)
    return out.reshape(n, o, *out.shape[3:])


@pytest.mark.slow
def test_convolution():
    for number in range(SHAPES):
        groups = int(RNG.choice([1, 1, 1, 2, 4]))
        inner, outputs = size(20), size(40)
        if number % 5 == 0:
            inner, groups, outputs = 1, size(20), 1
        kernel, stride = int(RNG.integers(1, 5)), int(RNG.choice([1, 1, 2, 3]))
        dilation, padding = int(RNG.choice([1, 1, 2])), int(RNG.integers(0, kernel))
        least = (kernel - 1) * dilation + 1
        x = whole(int(RNG.integers(1, 4)), inner * groups, least + size(30), least + size(40))
        w = whole(outputs * groups, inner, kernel, kernel)
        found = weft.from_numpy(x).conv2d(weft.from_numpy(w), stride=stride, padding=padding,
                                          groups=groups, dilation=dilation)
        exact(found, reference_conv(x, w, stride, padding, groups, dilation))


@pytest.mark.grid
@pytest.mark.parametrize("shape", [(2, 300, 7, 7, 40, 3), (1, 256, 14, 14, 33, 3),
                                   (3, 70, 9, 30, 64, 7), (1, 1030, 5, 13, 32, 2),
                                   (2, 260, 7, 7, 128, 3), (1, 211, 13, 11, 70, 3)])
def test_convolution_over_many_channels(shape):
    n, c, height, width, o, kernel = shape
    x, w = whole(n, c, height, width), whole(o, c, kernel, kernel)
    for stride in (1, 2):
        found = weft.from_numpy(x).conv2d(weft.from_numpy(w), stride=stride, padding=kernel // 2)
        exact(found.relu(), np.maximum(reference_conv(x, w, stride, kernel // 2, 1, 1), 0))


def test_gradients_of_a_convolution():
    for _ in range(12):
        channels, outputs, kernel = size(12), size(24), int(RNG.integers(1, 4))
        x = whole(2, channels, kernel + size(20), kernel + size(20))
        w = whole(outputs, channels, kernel, kernel)
        a, b = tensors(x, w)
        a.requires_grad = b.requires_grad = True
        y = a.conv2d(b, padding=kernel // 2)
        up = whole(*y.shape)
        (y * weft.from_numpy(up)).sum().backward()
        # Each gradient is linear: check it against the value along a direction of whole numbers.
        dx, dw = whole(*x.shape), whole(*w.shape)
        for direction, grad, moved in ((dx, a.grad, (dx, w)), (dw, b.grad, (x, dw))):
            value = reference_conv(*moved, 1, kernel // 2, 1, 1)
            assert (grad.numpy().astype(np.float64) * direction).sum() == (value * up).sum()


def test_results_repeat():
    x, y = tensors(*(RNG.standard_normal(s).astype(np.float32) for s in ((130, 700), (700, 90))))
    first = (x @ y).numpy()
    for _ in range(3):
        np.testing.assert_array_equal((x @ y).numpy(), first)


@pytest.mark.requires("torch")
@pytest.mark.parametrize("shape", [(64, 3001, 48), (300, 1024, 301), (1, 4096, 96), (4, 4096, 160)])
@pytest.mark.parametrize("layout", ["nn", "nt", "tn"])
def test_products_round_as_pytorchs(shape, layout):
    import torch

    m, k, n = shape
    a, b = (RNG.standard_normal(s).astype(np.float32) for s in ((m, k), (k, n)))
    wanted = a.astype(np.float64) @ b.astype(np.float64)
    a = np.ascontiguousarray(a.T).T if layout[0] == "t" else a
    b = np.ascontiguousarray(b.T).T if layout[1] == "t" else b

    def error(found):
        return np.sqrt(np.mean((found - wanted) ** 2))

    theirs = error((torch.from_numpy(a) @ torch.from_numpy(b)).numpy())
    assert error((weft.from_numpy(a) @ weft.from_numpy(b)).numpy()) <= (
        1.0 if (m, layout) == (4, "nn") else 1.5) * theirs  # streams add sums of sums


@pytest.mark.requires("torch")
@pytest.mark.parametrize("channels", [64, 200, 515])
def test_convolutions_round_as_pytorchs(channels):
    import torch

    x = RNG.standard_normal((2, channels, 13, 14)).astype(np.float32)
    w = RNG.standard_normal((40, channels, 3, 3)).astype(np.float32)
    t, v = torch.from_numpy(x), torch.from_numpy(w)
    wanted = torch.conv2d(t.double(), v.double(), padding=1).numpy()
    ours = weft.from_numpy(x).conv2d(weft.from_numpy(w), padding=1).numpy()
    errors = [np.sqrt(np.mean((found - wanted) ** 2))
              for found in (ours, torch.conv2d(t, v, padding=1).numpy())]
    assert errors[0] <= 1.5 * errors[1]
