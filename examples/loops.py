"""Loop nests: heat in a plate, the distance of points, and what the compiler makes of each loop.

Run it with ``python examples/loops.py``. The functions are plain Python over arrays; the compiler
finds out which loops may be shared out to threads and run in vectors.
"""

import time

import numpy as np

import weft


@weft.compute
def heat(now, then, steps):
    for _ in range(steps):  # carries the plate from step to step: stays in order
        for i, j in weft.ndrange((1, now.shape[0] - 1), (1, now.shape[1] - 1)):
            around = now[i - 1, j] + now[i + 1, j] + now[i, j - 1] + now[i, j + 1]
            then[i, j] = now[i, j] + 0.2 * (around - 4 * now[i, j])
        for i, j in weft.ndrange((1, now.shape[0] - 1), (1, now.shape[1] - 1)):
            now[i, j] = then[i, j]


@weft.compute
def distances(a, b, out):
    for i, j in weft.ndrange(a.shape[0], b.shape[0]):
        s = 0.0
        for k in range(a.shape[1]):
            d = a[i, k] - b[j, k]
            s += d * d
        out[i, j] = np.sqrt(s)


@weft.compute(kind="matmul")
def product(a, b, out):
    for i in range(a.shape[0]):
        for k in range(a.shape[1]):
            for j in range(b.shape[1]):
                out[i, j] += a[i, k] * b[k, j]


def check(n: int = 400) -> str:
    """Compare each with NumPy; return what became of the loops of `heat`."""
    rng = np.random.default_rng(n)
    plate = rng.random((n, n + 3), np.float32)
    expected = plate.copy()
    for _ in range(3):
        inner = expected[1:-1, 1:-1]
        around = (expected[:-2, 1:-1] + expected[2:, 1:-1] + expected[1:-1, :-2]
                  + expected[1:-1, 2:])
        expected[1:-1, 1:-1] = inner + np.float32(0.2) * (around - 4 * inner)
    scratch = np.zeros_like(plate)
    heat(plate, scratch, 3)
    np.testing.assert_allclose(plate, expected, rtol=1e-4)

    a, b = rng.random((n, 7)), rng.random((n // 2, 7))
    out = np.zeros((n, n // 2))
    distances(a, b, out)
    np.testing.assert_allclose(out, np.linalg.norm(a[:, None] - b[None], axis=-1))

    x, y, z = rng.random((n, 50)), rng.random((50, n)), np.zeros((n, n))
    product(x, y, z)
    np.testing.assert_allclose(z, x @ y)
    return str(heat.explain(plate, scratch, 3))


if __name__ == "__main__":
    print(check())
    plate, scratch = np.ones((2, 2000, 2000), np.float32)
    heat(plate, scratch, 1)
    start = time.perf_counter()
    heat(plate, scratch, 20)
    print(f"{(time.perf_counter() - start) / 20 * 1e3:.2f} ms for a step of 2000 x 2000 points")
