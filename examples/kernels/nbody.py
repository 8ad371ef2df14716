"""Bodies that attract each other: a block reads the others in tiles, all against all."""

from typing import NamedTuple

import numpy as np

import weft
from weft import gpu

TILE = 64
SOFTENING = 1e-3


class Vector(NamedTuple):
    """Three numbers, which live in registers."""

    x: float
    y: float
    z: float


@weft.func
def attraction(px, py, pz, qx, qy, qz, mass):
    """Return the acceleration of a body at p by a mass at q."""
    dx, dy, dz = qx - px, qy - py, qz - pz
    inverse = gpu.rsqrt(dx * dx + dy * dy + dz * dz + SOFTENING)
    pull = mass * inverse * inverse * inverse
    return Vector(dx * pull, dy * pull, dz * pull)


@weft.kernel
def accelerate(bodies, out):
    """Bodies are rows of x, y, z and mass."""
    tile = gpu.shared.array((TILE, 4), weft.float64)
    t, i = gpu.threadIdx.x, gpu.grid(1)
    n = bodies.shape[0]
    me = min(i, n - 1)  # threads beyond the end come along, for the barriers
    px, py, pz = bodies[me, 0], bodies[me, 1], bodies[me, 2]
    ax = ay = az = 0.0
    for start in range(0, n, TILE):
        for c in range(4):
            tile[t, c] = bodies[start + t, c] if start + t < n else 0.0  # no mass, no pull
        gpu.syncthreads()
        for k in range(TILE):
            a = attraction(px, py, pz, tile[k, 0], tile[k, 1], tile[k, 2], tile[k, 3])
            ax += a.x
            ay += a.y
            az += a.z
        gpu.syncthreads()
    if i < n:
        out[i, 0] = ax
        out[i, 1] = ay
        out[i, 2] = az


def accelerations(bodies: np.ndarray) -> np.ndarray:
    out = np.zeros((len(bodies), 3))
    accelerate[weft.cdiv(len(bodies), TILE), TILE](bodies, out)
    return out


def reference(bodies: np.ndarray) -> np.ndarray:
    gaps = bodies[None, :, :3] - bodies[:, None, :3]
    pull = bodies[None, :, 3] * ((gaps**2).sum(-1) + SOFTENING) ** -1.5
    return (gaps * pull[..., None]).sum(1)


def check(n: int = 1003) -> str:
    bodies = np.random.default_rng(n).random((n, 4))
    found = accelerations(bodies)
    np.testing.assert_allclose(found, reference(bodies), rtol=1e-9, atol=1e-9)
    return f"{n} bodies, {n * n} attractions"


def sides(n: int = 1003):
    """Return the work by the kernel, and the same by NumPy, to be timed."""
    bodies = np.random.default_rng(n).random((n, 4))
    return lambda: accelerations(bodies), lambda: reference(bodies)


if __name__ == "__main__":
    from _beside import beside

    print(check(), "--", beside(*sides()))
