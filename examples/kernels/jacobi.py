"""Heat in a plate (Jacobi): each point becomes the mean of its neighbours, and the block votes."""

import numpy as np

import weft
from weft import gpu


@weft.kernel
def relax(now, after, tolerance, moved):
    """Do one step; `moved` counts the blocks in which a point moved by more than a tolerance."""
    j, i = gpu.grid(2)
    change = 0.0
    if 0 < i < now.shape[0] - 1 and 0 < j < now.shape[1] - 1:
        mean = (now[i - 1, j] + now[i + 1, j] + now[i, j - 1] + now[i, j + 1]) / 4
        change = abs(mean - now[i, j])
        after[i, j] = mean
    restless = gpu.syncthreads_or(change > tolerance)
    if restless and gpu.threadIdx.x == 0 and gpu.threadIdx.y == 0:
        gpu.atomic.add(moved, 0, 1)


def settle(plate: np.ndarray, tolerance: float, limit: int) -> tuple[np.ndarray, int]:
    """Return the plate once nothing moves any more, and after how many steps."""
    now, after = plate.copy(), plate.copy()
    grid = weft.cdiv(plate.shape[1], 16), weft.cdiv(plate.shape[0], 8)
    for step in range(limit):
        moved = np.zeros(1, np.int32)
        relax[grid, (16, 8)](now, after, tolerance, moved)
        now, after = after, now
        if moved[0] == 0:
            return now, step + 1
    return now, limit


def reference(plate: np.ndarray, tolerance: float, limit: int) -> tuple[np.ndarray, int]:
    now = plate.copy()
    for step in range(limit):
        after = now.copy()
        after[1:-1, 1:-1] = (now[:-2, 1:-1] + now[2:, 1:-1] + now[1:-1, :-2] + now[1:-1, 2:]) / 4
        moved = (np.abs(after - now) > tolerance).any()
        now = after
        if not moved:
            return now, step + 1
    return now, limit


def check(n: int = 41) -> str:
    plate = np.zeros((n, n + 6))
    plate[0] = 100.0  # one edge is hot
    found, steps = settle(plate, 0.1, 1000)
    expected, expected_steps = reference(plate, 0.1, 1000)
    assert steps == expected_steps, (steps, expected_steps)
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    return f"a plate of {n} × {n + 6} at rest after {steps} steps, {found.mean():.2f} on average"


def sides(n: int = 41):
    """Return the work by the kernel, and the same by NumPy, to be timed."""
    plate = np.zeros((n, n + 6))
    plate[0] = 100.0
    return lambda: settle(plate, 0.1, 1000)[0], lambda: reference(plate, 0.1, 1000)[0]


if __name__ == "__main__":
    from _beside import beside

    print(check(), "--", beside(*sides()))
