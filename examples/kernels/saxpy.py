"""saxpy, ``y = a * x + y``: a kernel runs once for each thread of a grid of blocks."""

import numpy as np

import weft
from weft import gpu


@weft.kernel
def saxpy(a, x, y):
    i = gpu.grid(1)  # the number of this thread in the whole grid
    if i < x.size:  # the last block has threads beyond the end
        y[i] += a * x[i]


def check(n: int = 1_000_003) -> str:
    rng = np.random.default_rng(n)
    x, y = rng.random((2, n), np.float32)
    expected = y + np.float32(2.5) * x
    saxpy[max(weft.cdiv(n, 256), 1), 256](np.float32(2.5), x, y)
    np.testing.assert_allclose(y, expected, rtol=1e-6)
    return f"y = 2.5 * x + y for {n} elements"


def sides(n: int = 1_000_003):
    """Return the work by the kernel, and the same by NumPy, to be timed."""
    x, y = np.random.default_rng(n).random((2, n), np.float32)
    ours, a, launch = y.copy(), np.float32(2.5), saxpy[max(weft.cdiv(n, 256), 1), 256]

    def by_kernel() -> np.ndarray:
        launch(a, x, ours)
        return ours

    def by_numpy() -> np.ndarray:
        np.add(y, a * x, y)
        return y

    return by_kernel, by_numpy


if __name__ == "__main__":
    from _beside import beside

    print(check(), "--", beside(*sides()))
