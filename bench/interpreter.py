"""Thread-instructions a second of the interpreter device and of the sanitiser, by kernel.

    python bench/interpreter.py

The last row is the slowest of some operations that threads do together.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

import weft
from weft import gpu
from weft.lang.launch.interpreter import run

N = 1 << 17


@weft.kernel
def saxpy(x: Any, out: Any) -> None:
    i = gpu.grid(1)
    if i < x.size:
        out[i] += 2.0 * x[i]


@weft.kernel
def reduction(x: Any, out: Any) -> None:
    s = gpu.shared.array(256, weft.float64)
    t = gpu.threadIdx.x
    s[t] = x[gpu.grid(1)]
    d = 128
    while d > 0:
        gpu.syncthreads()
        if t < d:
            s[t] += s[t + d]
        d //= 2
    if t == 0:
        gpu.atomic.add(out, 0, s[0])


@weft.kernel
def tiled_product(x: Any, out: Any) -> None:
    a = gpu.shared.array((16, 16), weft.float64)
    t = gpu.threadIdx.x
    i, j = t // 16, t % 16
    total = 0.0
    for k in range(4):
        a[i, j] = x[gpu.blockIdx.x * 256 + t] + k
        gpu.syncthreads()
        for m in range(16):
            total += a[i, m] * a[m, j]
        gpu.syncthreads()
    out[gpu.blockIdx.x * 256 + t] = total


@weft.kernel
def histogram(x: Any, out: Any) -> None:
    i = gpu.grid(1)
    gpu.atomic.add(out, int(x[i]) % 64, 1)


@weft.kernel
def mandelbrot(x: Any, out: Any) -> None:
    i = gpu.grid(1)
    c = x[i] / N - 1.5
    re, im, count = 0.0, 0.0, 0
    while count < 50 and re * re + im * im < 4.0:
        re, im = re * re - im * im + c, 2 * re * im + 0.3
        count += 1
    out[i] = count


@weft.kernel
def warp_barriers(x: Any, out: Any) -> None:
    for _ in range(8):
        gpu.syncwarp()


@weft.kernel
def atomics_with_an_order(x: Any, out: Any) -> None:
    for _ in range(8):
        gpu.atomic.add(out, 0, 1.0, "device", "acq_rel")


@weft.kernel
def power(x: Any, out: Any) -> None:
    i = gpu.grid(1)
    out[i] = x[i] ** 1.5


def rate(kernel: Any, sanitise: bool) -> float:
    """Return million thread-instructions a second, the best of three."""
    launch = kernel[N // 256, 256]
    best = 0.0
    for _ in range(3):
        args = np.arange(N, dtype=np.float64), np.zeros(N)
        start = time.perf_counter()
        found = run(launch, args, sanitise=sanitise)
        best = max(best, found.instructions / (time.perf_counter() - start) / 1e6)
    return best


def main() -> None:
    """Print a line for each kernel."""
    for kernel in (saxpy, reduction, tiled_product, histogram, mandelbrot, warp_barriers,
                   atomics_with_an_order, power):  # fmt: skip
        rates = rate(kernel, False), rate(kernel, True)
        print(f"{kernel.__name__:24} {rates[0]:8.1f} {rates[1]:8.1f}")


if __name__ == "__main__":
    main()
