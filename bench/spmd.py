"""Kernels for blocks of threads in Weft beside numba, Warp and C, each in a process of its own.

    python bench/spmd.py [--threads 1 2] [--only softmax] [--seconds 0.5]
                         [--numba PYTHON] [--warp PYTHON]

`--numba` and `--warp` name interpreters that have these packages (by default this one). Every
system computes the same rows on the same data, and each result is checked against NumPy in float64
before it is timed. Weft runs the kernels as they are written for a GPU; numba runs loops under
``njit(parallel=True, fastmath=False)`` over prange; Warp runs a kernel with a thread for each
element; C runs plain loops (``-O3 -march=native``, OpenMP over the outer one) through ctypes.
Printed are milliseconds (the best of several bursts) and what is fastest of the others over Weft.
"""

import argparse
import json
import os
import subprocess
import sys
import time

import spmd_peers

ROWS = {
    # name: (operations or bytes of one run, unit)
    "saxpy 16M": (16 * (1 << 20) * 12, "GB/s"),
    "matmul 1024, 16 x 16": (2 * 1024**3, "GF/s"),
    "matmul 1024, 32 x 32": (2 * 1024**3, "GF/s"),
    "mandelbrot 1024": (0, ""),
    "transpose 4096": (2 * 4 * 4096**2, "GB/s"),
    "block sum 16M": (4 * 16 * (1 << 20), "GB/s"),
    "histogram 16M": (4 * 16 * (1 << 20), "GB/s"),
    "convolution 2048, 5 x 5": (2 * 25 * 2048**2, "GF/s"),
    "n-body 4096": (20 * 4096**2, "GF/s"),
    "softmax 4096 x 1024": (8 * 4096 * 1024, "GB/s"),
}
NB = 1 << 24


def data(row):
    """Return the arrays of a row: inputs, then one output of zeros."""
    import numpy as np

    rng = np.random.default_rng(7)
    f32 = np.float32
    if row.startswith("saxpy"):
        return [rng.random(NB, f32), rng.random(NB, f32)]
    if row.startswith("matmul"):
        return [rng.standard_normal((1024, 1024), f32), rng.standard_normal((1024, 1024), f32),
                np.zeros((1024, 1024), f32)]
    if row.startswith("mandelbrot"):
        return [np.zeros((1024, 1024), np.int32)]
    if row.startswith("transpose"):
        return [rng.random((4096, 4096), f32), np.zeros((4096, 4096), f32)]
    if row.startswith("block sum"):
        return [rng.random(NB, f32), np.zeros(NB // 4096, f32)]
    if row.startswith("histogram"):
        return [rng.integers(0, 256, NB, np.int32), np.zeros(256, np.int32)]
    if row.startswith("convolution"):
        return [rng.random((2048, 2048), f32), rng.random((5, 5), f32),
                np.zeros((2048, 2048), f32)]
    if row.startswith("n-body"):
        return [rng.random((4096, 4), f32), np.zeros((4096, 3), f32)]
    return [rng.standard_normal((4096, 1024), f32), np.zeros((4096, 1024), f32)]


def check(row, arrays):
    """Compare the last array with NumPy in float64, after one run on `data(row)`."""
    import numpy as np

    given, found = data(row), arrays[-1]
    if row.startswith("saxpy"):
        wanted, tolerance = 2.0 * given[0].astype(float) + given[1], 1e-6
    elif row.startswith("matmul"):
        wanted, tolerance = given[0].astype(float) @ given[1], 1e-4
    elif row.startswith("mandelbrot"):
        wanted, tolerance = mandelbrot_counts(), 5e-3
        error = (found != wanted).mean()  # the last bits of a step decide at the border
        return error if error > tolerance else 0.0
    elif row.startswith("transpose"):
        wanted, tolerance = given[0].T, 0.0
    elif row.startswith("block sum"):
        wanted, tolerance = given[0].astype(float).reshape(-1, 4096).sum(1), 1e-5
    elif row.startswith("histogram"):
        wanted, tolerance = np.bincount(given[0], minlength=256), 0.0
    elif row.startswith("convolution"):
        a = np.pad(given[0].astype(float), 2)
        wanted = sum(given[1][i, j] * a[i:i + 2048, j:j + 2048] for i in range(5)
                     for j in range(5))
        tolerance = 1e-5
    elif row.startswith("n-body"):
        wanted, tolerance = forces(given[0].astype(float)), 1e-4
    else:
        e = np.exp(given[0].astype(float) - given[0].max(1, keepdims=True))
        wanted, tolerance = e / e.sum(1, keepdims=True), 1e-5
    error = float(np.abs(found - wanted).max() / np.abs(wanted).max())
    return error if error > tolerance else 0.0


def mandelbrot_counts():
    """Return the counts in float32, step by step."""
    import numpy as np

    f32 = np.float32
    x, y = np.meshgrid(np.arange(1024, dtype=f32), np.arange(1024, dtype=f32))
    cr, ci = f32(-2) + x * f32(2.5 / 1024), f32(-1.25) + y * f32(2.5 / 1024)
    zr, zi = np.zeros_like(cr), np.zeros_like(cr)
    counts, inside = np.zeros(cr.shape, np.int32), np.ones(cr.shape, bool)
    for _ in range(200):
        inside &= ~(zr * zr + zi * zi > 4)
        counts += inside
        zr, zi = (np.where(inside, zr * zr - zi * zi + cr, zr),
                  np.where(inside, f32(2) * zr * zi + ci, zi))
    return counts


def forces(bodies):
    import numpy as np

    out = np.zeros((len(bodies), 3))
    for k in range(0, len(bodies), 256):
        d = bodies[None, :, :3] - bodies[k:k + 256, None, :3]
        r = (d * d).sum(2) + 1e-2
        out[k:k + 256] = (d * (bodies[None, :, 3] / (r * np.sqrt(r)))[:, :, None]).sum(1)
    return out


# --- Weft


def weft_runs():
    """Return a function for each row that runs it on its arrays."""
    import weft
    from weft import float32, gpu, int32

    @weft.kernel
    def saxpy(a, x, y):
        i = gpu.grid(1)
        if i < x.size:
            y[i] += a * x[i]

    def matmul_of(tile):
        @weft.kernel
        def matmul(a, b, c):
            left = gpu.shared.array((tile, tile), float32)
            right = gpu.shared.array((tile, tile), float32)
            x, y = gpu.grid(2)
            tx, ty = gpu.threadIdx.x, gpu.threadIdx.y
            total = float32(0)
            for i in range((a.shape[1] + tile - 1) // tile):
                left[ty, tx] = 0
                right[ty, tx] = 0
                if y < a.shape[0] and tx + i * tile < a.shape[1]:
                    left[ty, tx] = a[y, tx + i * tile]
                if x < b.shape[1] and ty + i * tile < b.shape[0]:
                    right[ty, tx] = b[ty + i * tile, x]
                gpu.syncthreads()
                for k in range(tile):
                    total += left[ty, k] * right[k, tx]
                gpu.syncthreads()
            if y < c.shape[0] and x < c.shape[1]:
                c[y, x] = total

        return lambda a, b, c: matmul[(1024 // tile, 1024 // tile), (tile, tile)](a, b, c)

    @weft.kernel
    def mandelbrot(out, left, top, step, limit):
        x, y = gpu.grid(2)
        if x < out.shape[1] and y < out.shape[0]:
            cr = left + float32(x) * step
            ci = top + float32(y) * step
            zr = float32(0)
            zi = float32(0)
            count = 0
            for _ in range(limit):
                if zr * zr + zi * zi > float32(4):
                    break
                t = zr * zr - zi * zi + cr
                zi = float32(2) * zr * zi + ci
                zr = t
                count += 1
            out[y, x] = count

    @weft.kernel
    def transpose(a, out):
        tile = gpu.shared.array((32, 33), float32)
        x = gpu.blockIdx.x * 32 + gpu.threadIdx.x
        y = gpu.blockIdx.y * 32 + gpu.threadIdx.y
        for j in range(0, 32, 8):
            if x < a.shape[1] and y + j < a.shape[0]:
                tile[gpu.threadIdx.y + j, gpu.threadIdx.x] = a[y + j, x]
        gpu.syncthreads()
        x = gpu.blockIdx.y * 32 + gpu.threadIdx.x
        y = gpu.blockIdx.x * 32 + gpu.threadIdx.y
        for j in range(0, 32, 8):
            if x < a.shape[0] and y + j < a.shape[1]:
                out[y + j, x] = tile[gpu.threadIdx.x, gpu.threadIdx.y + j]

    @weft.kernel
    def block_sum(a, out):
        parts = gpu.shared.array(8, float32)
        t = gpu.threadIdx.x
        total = float32(0)
        for k in range(16):
            i = gpu.blockIdx.x * 4096 + k * 256 + t
            if i < a.size:
                total += a[i]
        for step in (16, 8, 4, 2, 1):
            total += gpu.shfl_down_sync(0xFFFFFFFF, total, step)
        if t % 32 == 0:
            parts[t // 32] = total
        gpu.syncthreads()
        if t < 32:
            total = parts[t] if t < 8 else float32(0)
            for step in (4, 2, 1):
                total += gpu.shfl_down_sync(0xFFFFFFFF, total, step)
            if t == 0:
                out[gpu.blockIdx.x] = total

    @weft.kernel
    def histogram(a, out):
        counts = gpu.shared.array(256, int32)
        t = gpu.threadIdx.x
        counts[t] = 0
        gpu.syncthreads()
        i = gpu.grid(1)
        while i < a.size:
            gpu.atomic.add(counts, a[i], 1)
            i += gpu.gridsize(1)
        gpu.syncthreads()
        gpu.atomic.add(out, t, counts[t])

    def run_histogram(a, out):
        out[:] = 0
        histogram[64, 256](a, out)

    @weft.kernel
    def convolution(a, w, out):
        tile = gpu.shared.array((20, 36), float32)
        tx, ty = gpu.threadIdx.x, gpu.threadIdx.y
        x0, y0 = gpu.blockIdx.x * 32 - 2, gpu.blockIdx.y * 16 - 2
        for j in range(ty, 20, 16):
            for i in range(tx, 36, 32):
                value = float32(0)
                if 0 <= y0 + j < a.shape[0] and 0 <= x0 + i < a.shape[1]:
                    value = a[y0 + j, x0 + i]
                tile[j, i] = value
        gpu.syncthreads()
        x, y = gpu.grid(2)
        if x < out.shape[1] and y < out.shape[0]:
            total = float32(0)
            for j in range(5):
                for i in range(5):
                    total += w[j, i] * tile[ty + j, tx + i]
            out[y, x] = total

    @weft.kernel
    def bodies(a, out):
        tile = gpu.shared.array((256, 4), float32)
        i = gpu.grid(1)
        t = gpu.threadIdx.x
        px, py, pz = a[i, 0], a[i, 1], a[i, 2]
        fx = fy = fz = float32(0)
        for k in range(a.shape[0] // 256):
            for c in range(4):
                tile[t, c] = a[k * 256 + t, c]
            gpu.syncthreads()
            for j in range(256):
                dx = tile[j, 0] - px
                dy = tile[j, 1] - py
                dz = tile[j, 2] - pz
                r = dx * dx + dy * dy + dz * dz + float32(1e-2)
                inverse = gpu.rsqrt(r)
                s = tile[j, 3] * inverse * inverse * inverse
                fx += dx * s
                fy += dy * s
                fz += dz * s
            gpu.syncthreads()
        out[i, 0] = fx
        out[i, 1] = fy
        out[i, 2] = fz

    import math

    @weft.kernel
    def softmax(a, out):
        shared = gpu.shared.array(256, float32)
        t, row = gpu.threadIdx.x, gpu.blockIdx.x
        high = float32(-math.inf)
        for i in range(t, a.shape[1], 256):
            high = max(high, a[row, i])
        shared[t] = high
        gpu.syncthreads()
        step = 128
        while step > 0:
            if t < step:
                shared[t] = max(shared[t], shared[t + step])
            gpu.syncthreads()
            step //= 2
        high = shared[0]
        gpu.syncthreads()
        total = float32(0)
        for i in range(t, a.shape[1], 256):
            e = math.exp(a[row, i] - high)
            out[row, i] = e
            total += e
        shared[t] = total
        gpu.syncthreads()
        step = 128
        while step > 0:
            if t < step:
                shared[t] += shared[t + step]
            gpu.syncthreads()
            step //= 2
        total = shared[0]
        for i in range(t, a.shape[1], 256):
            out[row, i] /= total

    import numpy as np

    f32 = np.float32
    return {
        "saxpy 16M": lambda x, y: saxpy[NB // 256, 256](f32(2), x, y),
        "matmul 1024, 16 x 16": matmul_of(16),
        "matmul 1024, 32 x 32": matmul_of(32),
        "mandelbrot 1024": lambda o: mandelbrot[(64, 64), (16, 16)](
            o, f32(-2), f32(-1.25), f32(2.5 / 1024), 200),
        "transpose 4096": lambda a, o: transpose[(128, 128), (32, 8)](a, o),
        "block sum 16M": lambda a, o: block_sum[NB // 4096, 256](a, o),
        "histogram 16M": run_histogram,
        "convolution 2048, 5 x 5": lambda a, w, o: convolution[(64, 128), (32, 16)](a, w, o),
        "n-body 4096": lambda a, o: bodies[16, 256](a, o),
        "softmax 4096 x 1024": lambda a, o: softmax[4096, 256](a, o),
    }


# --- one system in this process


SYSTEMS = {
    "weft": weft_runs, "numba": spmd_peers.numba_runs, "warp": spmd_peers.warp_runs,
    "C": lambda: spmd_peers.c_runs(ROWS),
}  # fmt: skip


def measure(system, only, seconds):
    """Print a line of JSON with the milliseconds of each row."""
    try:
        runs = SYSTEMS[system]()
    except ModuleNotFoundError as error:
        print(json.dumps({"missing": str(error)}))
        return
    found = {}
    for row in ROWS:
        if only not in row:
            continue
        arrays = data(row)
        start = time.perf_counter()
        runs[row](*arrays)
        first = time.perf_counter() - start
        error = check(row, arrays)
        if error:
            raise SystemExit(f"{system} is wrong on {row}: error {error:.1e}")
        times, end = [], time.perf_counter() + seconds
        while len(times) < 3 or time.perf_counter() < end:
            start = time.perf_counter()
            runs[row](*arrays)
            times.append(time.perf_counter() - start)
        found[row] = min(times) * 1e3, first * 1e3
    print(json.dumps(found))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--only", default="")
    parser.add_argument("--seconds", type=float, default=0.5)
    parser.add_argument("--systems", nargs="+", default=list(SYSTEMS))
    parser.add_argument("--numba", default=sys.executable)
    parser.add_argument("--warp", default=sys.executable)
    parser.add_argument("--child", default="")
    args = parser.parse_args()
    if args.child:
        measure(args.child, args.only, args.seconds)
        return
    for threads in args.threads:
        found = {}
        for system in args.systems:
            if system == "warp" and threads > 1:
                continue  # it uses one thread on a CPU
            python = {"numba": args.numba, "warp": args.warp}.get(system, sys.executable)
            count = str(threads)
            env = {**os.environ, "WEFT_NUM_THREADS": count, "NUMBA_NUM_THREADS": count,
                   "OMP_NUM_THREADS": count}
            command = [python, __file__, "--child", system, "--only", args.only,
                       "--seconds", str(args.seconds)]
            done = subprocess.run(command, env=env, capture_output=True, text=True)
            if done.returncode:
                raise SystemExit(done.stderr)
            found[system] = json.loads(done.stdout.splitlines()[-1])
            if "missing" in found[system]:
                print(f"{system}: not installed ({found.pop(system)['missing']})")
        print(f"{threads} threads; milliseconds, first call of Weft in brackets")
        for row, (work, unit) in ROWS.items():
            if args.only not in row:
                continue
            cells = [f"{system} {times[row][0]:9.2f}" for system, times in found.items()]
            line = f"{row:26s} {'  '.join(cells)}"
            if "weft" in found:
                mine, first = found["weft"][row]
                others = [times[row][0] for system, times in found.items() if system != "weft"]
                if others:
                    line += f"   x{min(others) / mine:.2f}"
                if work:
                    line += f"   {work / mine / 1e6:.1f} {unit}"
                line += f"   [{first:.0f}]"
            print(line, flush=True)


if __name__ == "__main__":
    main()
