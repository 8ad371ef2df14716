"""Conway's game of life on a torus: one launch is one generation."""

import numpy as np

import weft
from weft import gpu


@weft.kernel
def generation(cells, after):
    j, i = gpu.grid(2)
    rows, columns = cells.shape
    if i >= rows or j >= columns:
        return
    around = 0
    for di in (-1, 0, 1):
        for dj in (-1, 0, 1):
            if di != 0 or dj != 0:
                around += cells[(i + di) % rows, (j + dj) % columns]
    after[i, j] = 1 if around == 3 or (around == 2 and cells[i, j] == 1) else 0


def play(cells: np.ndarray, generations: int) -> np.ndarray:
    now, after = cells.copy(), np.zeros_like(cells)
    grid = weft.cdiv(cells.shape[1], 32), weft.cdiv(cells.shape[0], 8)
    for _ in range(generations):
        generation[grid, (32, 8)](now, after)
        now, after = after, now
    return now


def reference(cells: np.ndarray, generations: int) -> np.ndarray:
    for _ in range(generations):
        around = sum(np.roll(cells, (di, dj), (0, 1))
                     for di in (-1, 0, 1) for dj in (-1, 0, 1) if di or dj)  # fmt: skip
        cells = ((around == 3) | ((around == 2) & (cells == 1))).astype(cells.dtype)
    return cells


def check(n: int = 203) -> str:
    cells = (np.random.default_rng(n).random((n, n + 4)) < 0.3).astype(np.uint8)
    after = play(cells, 5)
    np.testing.assert_array_equal(after, reference(cells, 5))
    return f"{cells.sum()} cells live, after 5 generations {after.sum()}"


def sides(n: int = 203):
    """Return the work by the kernel, and the same by NumPy, to be timed."""
    cells = (np.random.default_rng(n).random((n, n + 4)) < 0.3).astype(np.uint8)
    return lambda: play(cells, 5), lambda: reference(cells, 5)


if __name__ == "__main__":
    from _beside import beside

    print(check(), "--", beside(*sides()))
