"""How far long sums of convolutions are from float64: chains of additions have to stay short.

Errors are root-mean-square errors over root-mean-square results, in units of a rounding
(2⁻²⁴). A sum of n terms, added one to the other, errs by about √n / 3.5 of them.
"""

import numpy as np
import pytest

import weft

ROUNDING = 2.0**-24


def taps(kernel, stride, dilation, positions):
    """Yield each tap with the slices of a padded image that it meets."""
    for i in range(kernel):
        for j in range(kernel):
            yield (i, j), (slice(None), slice(None), *[
                slice(t * dilation, t * dilation + (m - 1) * stride + 1, stride)
                for t, m in zip((i, j), positions, strict=True)])


def in_float64(what, x, w, g, stride, padding, dilation, groups):
    """Return a convolution or one of its gradients, tap by tap."""
    x, w, g = (a.astype(np.float64) for a in (x, w, g))
    n, c, kernel = len(x), x.shape[1], w.shape[2]
    wide = np.pad(x, ((0, 0), (0, 0), (padding, padding), (padding, padding)))
    w5 = w.reshape(groups, -1, *w.shape[1:])
    g5 = g.reshape(n, groups, -1, *g.shape[2:])
    out = np.zeros({"forward": g5, "input": wide, "weight": w5}[what].shape)
    for (i, j), place in taps(kernel, stride, dilation, g.shape[2:]):
        part = wide[place].reshape(n, groups, c // groups, *g.shape[2:])
        if what == "forward":
            out += np.einsum("ngchw,goc->ngohw", part, w5[..., i, j])
        elif what == "input":
            part = np.einsum("ngohw,goc->ngchw", g5, w5[..., i, j])
            out[place] += part.reshape(n, c, *g.shape[2:])
        else:
            out[..., i, j] = np.einsum("ngohw,ngchw->goc", g5, part)
    if what == "input" and padding:
        out = out[:, :, padding:-padding, padding:-padding]
    return out.reshape({"forward": g, "input": x, "weight": w}[what].shape)


# What is computed, images, channels, height, width, outputs, kernel, stride, padding, dilation,
# groups, and the most roundings.
CASES = [
    ("forward", 2, 48, 31, 31, 48, 3, 2, 1, 1, 2, 3.1),
    ("forward", 1, 8, 48, 48, 8, 7, 1, 3, 1, 4, 2.2),
    ("forward", 2, 40, 24, 24, 64, 3, 1, 1, 1, 1, 3.7),
    ("forward", 2, 80, 12, 12, 16, 3, 1, 1, 1, 1, 3.75),
    ("input", 4, 1, 28, 28, 32, 3, 1, 1, 1, 1, 3.2),
    ("input", 2, 14, 41, 13, 8, 3, 1, 0, 1, 2, 1.4),
    ("weight", 2, 512, 7, 7, 64, 1, 1, 0, 1, 1, 2.5),
    ("weight", 2, 20, 34, 37, 16, 5, 2, 2, 1, 2, 3.1),
    ("weight", 8, 5, 35, 74, 10, 5, 1, 0, 1, 5, 3.2),
    ("weight", 6, 12, 12, 15, 16, 5, 1, 0, 1, 4, 2.05),
    ("weight", 2, 7, 21, 41, 70, 3, 1, 0, 2, 1, 3.2),
    # As few roundings as where each tap, or each image, is summed by itself.
    ("input", 3, 24, 19, 46, 8, 5, 2, 0, 1, 1, 1.5),
    ("input", 9, 3, 17, 32, 2, 7, 2, 0, 1, 1, 1.2),
    ("input", 3, 16, 14, 32, 32, 5, 2, 2, 1, 8, 1.25),
    ("input", 5, 4, 9, 33, 8, 3, 1, 1, 1, 4, 1.1),
    ("input", 2, 40, 12, 12, 240, 1, 1, 0, 1, 1, 3.9),
    ("weight", 5, 2, 128, 13, 3, 3, 2, 1, 2, 1, 2.3),
    ("weight", 16, 16, 62, 9, 32, 3, 1, 1, 1, 8, 3.0),
    ("weight", 8, 40, 14, 17, 16, 3, 1, 1, 1, 4, 2.2),
    ("weight", 7, 24, 8, 23, 17, 7, 2, 3, 2, 1, 1.6),
    ("weight", 16, 9, 64, 17, 9, 5, 1, 2, 1, 9, 3.6),
    ("weight", 3, 24, 24, 40, 5, 3, 2, 1, 1, 1, 2.1),
    ("weight", 3, 240, 9, 16, 32, 7, 1, 0, 1, 8, 1.8),
]


@pytest.mark.grid
@pytest.mark.parametrize("case", CASES, ids=[f"{c[0]}-{'x'.join(map(str, c[1:6]))}" for c in CASES])
def test_sums_start_anew(case):
    what, n, c, h, width, o, kernel, stride, padding, dilation, groups, most = case
    rng = np.random.default_rng(1)
    x = rng.standard_normal((n, c, h, width), np.float32)
    w = rng.standard_normal((o, c // groups, kernel, kernel), np.float32)
    options = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    positions = [(m + 2 * padding - (kernel - 1) * dilation - 1) // stride + 1 for m in (h, width)]
    g = rng.standard_normal((n, o, *positions), np.float32)
    tx, tw, tg = map(weft.from_numpy, (x, w, g))
    if what == "forward":
        found = tx.conv2d(tw, **options)
    elif what == "input":
        found = weft.grad(lambda t: (t.conv2d(tw, **options) * tg).sum())(tx)
    else:
        found = weft.grad(lambda t: (tx.conv2d(t, **options) * tg).sum())(tw)
    wanted = in_float64(what, x, w, g, **options)
    error = np.sqrt(np.mean((found.numpy() - wanted) ** 2) / np.mean(wanted**2)) / ROUNDING
    assert error < most
