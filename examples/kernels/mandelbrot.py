"""The Mandelbrot set: threads of one warp go round their loops a different number of times."""

import numpy as np

import weft
from weft import gpu


@weft.func
def escape_time(cx, cy, limit):
    """Return after how many turns of z = z² + c the point is sure to leave, at most `limit`."""
    x = y = 0.0
    for turn in range(limit):
        xx, yy = x * x, y * y
        if xx + yy > 4.0:
            return turn
        y = 2.0 * x * y + cy
        x = xx - yy + cx
    return limit


@weft.kernel
def mandelbrot(counts, left, top, step, limit):
    j, i = gpu.grid(2)
    if i < counts.shape[0] and j < counts.shape[1]:
        counts[i, j] = escape_time(left + j * step, top + i * step, limit)


def escape_times(shape: tuple[int, int], left: float, top: float, step: float,
                 limit: int) -> np.ndarray:  # fmt: skip
    counts = np.zeros(shape, np.int32)
    grid = weft.cdiv(shape[1], 32), weft.cdiv(shape[0], 4)
    mandelbrot[grid, (32, 4)](counts, left, top, step, limit)
    return counts


def reference(shape: tuple[int, int], left: float, top: float, step: float,
              limit: int) -> np.ndarray:  # fmt: skip
    cx = left + np.arange(shape[1]) * step
    cy = (top + np.arange(shape[0]) * step)[:, None]
    x, y = np.zeros(shape), np.zeros(shape)
    counts = np.full(shape, limit)
    for turn in range(limit):
        xx, yy = x * x, y * y
        counts = np.where((counts == limit) & (xx + yy > 4.0), turn, counts)
        stays = counts == limit
        x, y = np.where(stays, xx - yy + cx, x), np.where(stays, 2 * x * y + cy, y)
    return counts


def check(n: int = 301) -> str:
    limit = 40
    view = (n, n + n // 2), -2.4, -1.2, 2.4 / n, limit
    counts = escape_times(*view)
    # A point at the very edge may go either way by the rounding of its last step.
    wrong = (counts != reference(*view)).mean()
    assert wrong < 1e-3, wrong
    return f"{(counts == limit).sum()} of {counts.size} points stay"


def sides(n: int = 301):
    """Return the work by the kernel, and the same by NumPy, to be timed."""
    view = (n, n + n // 2), -2.4, -1.2, 2.4 / n, 40
    return lambda: escape_times(*view), lambda: reference(*view)


if __name__ == "__main__":
    from _beside import beside

    print(check(), "--", beside(*sides()))
