"""A blur: a block loads its pixels and a rim around them; the weights are constant memory."""

import numpy as np

import weft
from weft import gpu

TILE = 16
RADIUS = 2
SIDE = TILE + 2 * RADIUS
_LINE = np.array([1, 4, 6, 4, 1], np.float32) / 16
WEIGHTS = np.outer(_LINE, _LINE)  # copied when the kernel is compiled


@weft.kernel
def blur(image, out):
    weights = gpu.const.array_like(WEIGHTS)
    tile = gpu.shared.array((SIDE, SIDE), weft.float32)
    rows, columns = image.shape
    tx, ty = gpu.threadIdx.x, gpu.threadIdx.y
    top = gpu.blockIdx.y * TILE - RADIUS
    left = gpu.blockIdx.x * TILE - RADIUS
    for y in range(ty, SIDE, TILE):
        for x in range(tx, SIDE, TILE):
            i = min(max(top + y, 0), rows - 1)  # beyond the edge, the edge
            j = min(max(left + x, 0), columns - 1)
            tile[y, x] = image[i, j]
    gpu.syncthreads()

    j, i = gpu.grid(2)
    if i < rows and j < columns:
        total = weft.float32(0)
        for y in range(2 * RADIUS + 1):
            for x in range(2 * RADIUS + 1):
                total += weights[y, x] * tile[ty + y, tx + x]
        out[i, j] = total


def blurred(image: np.ndarray) -> np.ndarray:
    out = np.zeros_like(image)
    grid = weft.cdiv(image.shape[1], TILE), weft.cdiv(image.shape[0], TILE)
    blur[grid, (TILE, TILE)](image, out)
    return out


def reference(image: np.ndarray) -> np.ndarray:
    rows, columns = image.shape
    wide = np.pad(image, RADIUS, "edge")
    return sum(WEIGHTS[y, x] * wide[y : y + rows, x : x + columns]
               for y in range(5) for x in range(5))  # fmt: skip


def check(n: int = 211) -> str:
    image = np.random.default_rng(n).random((n, n + 9), np.float32)
    out = blurred(image)
    np.testing.assert_allclose(out, reference(image.astype(np.float64)), rtol=1e-5)
    return f"an image of {n} × {n + 9}: contrast {image.std():.3f}, blurred {out.std():.3f}"


def sides(n: int = 211):
    """Return the work by the kernel, and the same by NumPy, to be timed."""
    image = np.random.default_rng(n).random((n, n + 9), np.float32)
    return lambda: blurred(image), lambda: reference(image)


if __name__ == "__main__":
    from _beside import beside

    print(check(), "--", beside(*sides()))
