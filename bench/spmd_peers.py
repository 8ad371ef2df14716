"""The rows of `spmd.py` in numba, Warp and C."""

import ctypes
import os
import subprocess
import tempfile

NB = 1 << 24


# --- numba


def numba_runs():
    import math

    import numba
    import numpy as np
    from numba import njit, prange

    numba.set_num_threads(int(os.environ["NUMBA_NUM_THREADS"]))
    f32 = np.float32

    @njit(parallel=True)
    def saxpy(a, x, y):
        for i in prange(x.size):
            y[i] += a * x[i]

    @njit(parallel=True)
    def matmul(a, b, c):
        for i in prange(a.shape[0]):
            for j in range(b.shape[1]):
                c[i, j] = f32(0)
            for k in range(a.shape[1]):
                v = a[i, k]
                for j in range(b.shape[1]):
                    c[i, j] += v * b[k, j]

    @njit(parallel=True)
    def mandelbrot(out, left, top, step, limit):
        for y in prange(out.shape[0]):
            for x in range(out.shape[1]):
                cr, ci = left + f32(x) * step, top + f32(y) * step
                zr = zi = f32(0)
                count = 0
                for _ in range(limit):
                    if zr * zr + zi * zi > f32(4):
                        break
                    zr, zi = zr * zr - zi * zi + cr, f32(2) * zr * zi + ci
                    count += 1
                out[y, x] = count

    @njit(parallel=True)
    def transpose(a, out):
        for i in prange(a.shape[0] // 32):
            for jj in range(a.shape[1] // 32):
                for k in range(32):
                    for j in range(32):
                        out[i * 32 + k, jj * 32 + j] = a[jj * 32 + j, i * 32 + k]

    @njit(parallel=True)
    def block_sum(a, out):
        for b in prange(out.size):
            total = f32(0)
            for i in range(4096):
                total += a[b * 4096 + i]
            out[b] = total

    @njit(parallel=True)
    def histogram(a, out):
        parts = np.zeros((64, 256), np.int32)
        size = a.size // 64
        for p in prange(64):
            for i in range(p * size, (p + 1) * size):
                parts[p, a[i]] += 1
        out[:] = 0
        for p in range(64):
            out += parts[p]

    @njit(parallel=True)
    def convolution(a, w, out):
        h, n = out.shape
        for y in prange(h):
            for x in range(n):
                total = f32(0)
                for j in range(5):
                    for i in range(5):
                        yy, xx = y + j - 2, x + i - 2
                        if 0 <= yy < h and 0 <= xx < n:
                            total += w[j, i] * a[yy, xx]
                out[y, x] = total

    @njit(parallel=True)
    def bodies(a, out):
        for i in prange(a.shape[0]):
            fx = fy = fz = f32(0)
            for j in range(a.shape[0]):
                dx, dy, dz = a[j, 0] - a[i, 0], a[j, 1] - a[i, 1], a[j, 2] - a[i, 2]
                inverse = f32(1) / math.sqrt(dx * dx + dy * dy + dz * dz + f32(1e-2))
                s = a[j, 3] * inverse * inverse * inverse
                fx += dx * s
                fy += dy * s
                fz += dz * s
            out[i, 0], out[i, 1], out[i, 2] = fx, fy, fz

    @njit(parallel=True)
    def softmax(a, out):
        for i in prange(a.shape[0]):
            high = f32(-np.inf)
            for j in range(a.shape[1]):
                high = max(high, a[i, j])
            total = f32(0)
            for j in range(a.shape[1]):
                out[i, j] = math.exp(a[i, j] - high)
                total += out[i, j]
            for j in range(a.shape[1]):
                out[i, j] /= total

    return {
        "saxpy 16M": lambda x, y: saxpy(f32(2), x, y),
        "matmul 1024, 16 x 16": matmul,
        "matmul 1024, 32 x 32": matmul,
        "mandelbrot 1024": lambda o: mandelbrot(o, f32(-2), f32(-1.25), f32(2.5 / 1024), 200),
        "transpose 4096": transpose,
        "block sum 16M": block_sum,
        "histogram 16M": histogram,
        "convolution 2048, 5 x 5": convolution,
        "n-body 4096": bodies,
        "softmax 4096 x 1024": softmax,
    }


# --- C


C = r"""
#include <math.h>
#include <string.h>
void saxpy(const float *x, float *y) {
  #pragma omp parallel for
  for (long i = 0; i < 1 << 24; i++) y[i] += 2.0f * x[i];
}
void matmul(const float *a, const float *b, float *c) {
  #pragma omp parallel for
  for (int i = 0; i < 1024; i++) {
    for (int j = 0; j < 1024; j++) c[i * 1024 + j] = 0;
    for (int k = 0; k < 1024; k++)
      for (int j = 0; j < 1024; j++) c[i * 1024 + j] += a[i * 1024 + k] * b[k * 1024 + j];
  }
}
void mandelbrot(int *out) {
  #pragma omp parallel for schedule(dynamic, 16)
  for (int y = 0; y < 1024; y++)
    for (int x = 0; x < 1024; x++) {
      float step = 2.5f / 1024, cr = -2.0f + x * step, ci = -1.25f + y * step;
      float zr = 0, zi = 0;
      int k = 0;
      for (; k < 200; k++) {
        if (zr * zr + zi * zi > 4.0f) break;
        float t = zr * zr - zi * zi + cr;
        zi = 2.0f * zr * zi + ci;
        zr = t;
      }
      out[y * 1024 + x] = k;
    }
}
void transpose(const float *a, float *out) {
  #pragma omp parallel for
  for (int i = 0; i < 4096; i += 32)
    for (int j = 0; j < 4096; j += 32)
      for (int k = i; k < i + 32; k++)
        for (int l = j; l < j + 32; l++) out[k * 4096 + l] = a[l * 4096 + k];
}
void block_sum(const float *a, float *out) {
  #pragma omp parallel for
  for (int b = 0; b < 4096; b++) {
    float total = 0;
    for (int i = 0; i < 4096; i++) total += a[b * 4096 + i];
    out[b] = total;
  }
}
void histogram(const int *a, int *out) {
  memset(out, 0, 1024);
  #pragma omp parallel
  {
    int own[256] = {0};
    #pragma omp for
    for (long i = 0; i < 1 << 24; i++) own[a[i]]++;
    #pragma omp critical
    for (int k = 0; k < 256; k++) out[k] += own[k];
  }
}
void convolution(const float *a, const float *w, float *out) {
  #pragma omp parallel for
  for (int y = 0; y < 2048; y++)
    for (int x = 0; x < 2048; x++) {
      float total = 0;
      for (int j = 0; j < 5; j++)
        for (int i = 0; i < 5; i++) {
          int yy = y + j - 2, xx = x + i - 2;
          if (yy >= 0 && yy < 2048 && xx >= 0 && xx < 2048)
            total += w[j * 5 + i] * a[yy * 2048 + xx];
        }
      out[y * 2048 + x] = total;
    }
}
void bodies(const float *a, float *out) {
  #pragma omp parallel for
  for (int i = 0; i < 4096; i++) {
    float fx = 0, fy = 0, fz = 0;
    for (int j = 0; j < 4096; j++) {
      float dx = a[4 * j] - a[4 * i], dy = a[4 * j + 1] - a[4 * i + 1];
      float dz = a[4 * j + 2] - a[4 * i + 2];
      float inverse = 1.0f / sqrtf(dx * dx + dy * dy + dz * dz + 1e-2f);
      float s = a[4 * j + 3] * inverse * inverse * inverse;
      fx += dx * s; fy += dy * s; fz += dz * s;
    }
    out[3 * i] = fx; out[3 * i + 1] = fy; out[3 * i + 2] = fz;
  }
}
void softmax(const float *a, float *out) {
  #pragma omp parallel for
  for (int i = 0; i < 4096; i++) {
    const float *x = a + i * 1024;
    float *y = out + i * 1024, high = -INFINITY, total = 0;
    for (int j = 0; j < 1024; j++) high = x[j] > high ? x[j] : high;
    for (int j = 0; j < 1024; j++) { y[j] = expf(x[j] - high); total += y[j]; }
    for (int j = 0; j < 1024; j++) y[j] /= total;
  }
}
"""


def c_runs(rows):
    compiler = os.environ.get("CC") or next(
        c for c in ("clang", "gcc", "cc")
        if subprocess.run(["which", c], capture_output=True).returncode == 0)
    folder = tempfile.mkdtemp()
    source, library = os.path.join(folder, "k.c"), os.path.join(folder, "k.so")
    with open(source, "w") as file:
        file.write(C)
    subprocess.run([compiler, "-O3", "-march=native", "-fopenmp", "-shared", "-fPIC", "-o",
                    library, source, "-lm"], check=True)
    loaded = ctypes.CDLL(library)

    def run_of(name):
        function = getattr(loaded, name)

        def run(*arrays):
            function(*(ctypes.c_void_p(a.ctypes.data) for a in arrays))

        return run

    names = ("saxpy", "matmul", "matmul", "mandelbrot", "transpose", "block_sum", "histogram",
             "convolution", "bodies", "softmax")
    return {row: run_of(name) for row, name in zip(rows, names, strict=True)}


# --- Warp

# There a literal is a constant and float(0.0) a variable.
# ruff: noqa: RUF046, UP018


def warp_runs():
    import numpy as np
    import warp as wp

    wp.config.quiet = True
    wp.init()

    @wp.kernel
    def saxpy(a: float, x: wp.array(dtype=float), y: wp.array(dtype=float)):
        i = wp.tid()
        y[i] = y[i] + a * x[i]

    @wp.kernel
    def matmul(a: wp.array2d(dtype=float), b: wp.array2d(dtype=float), c: wp.array2d(dtype=float)):
        i, j = wp.tid()
        total = float(0.0)
        for k in range(a.shape[1]):
            total += a[i, k] * b[k, j]
        c[i, j] = total

    @wp.kernel
    def mandelbrot(out: wp.array2d(dtype=int), left: float, top: float, step: float, limit: int):
        y, x = wp.tid()
        cr = left + float(x) * step
        ci = top + float(y) * step
        zr = float(0.0)
        zi = float(0.0)
        count = int(0)
        while count < limit and zr * zr + zi * zi <= 4.0:
            t = zr * zr - zi * zi + cr
            zi = 2.0 * zr * zi + ci
            zr = t
            count += 1
        out[y, x] = count

    @wp.kernel
    def transpose(a: wp.array2d(dtype=float), out: wp.array2d(dtype=float)):
        i, j = wp.tid()
        out[i, j] = a[j, i]

    @wp.kernel
    def block_sum(a: wp.array(dtype=float), out: wp.array(dtype=float)):
        b = wp.tid()
        total = float(0.0)
        for i in range(4096):
            total += a[b * 4096 + i]
        out[b] = total

    @wp.kernel
    def histogram(a: wp.array(dtype=int), out: wp.array(dtype=int)):
        wp.atomic_add(out, a[wp.tid()], 1)

    @wp.kernel
    def convolution(a: wp.array2d(dtype=float), w: wp.array2d(dtype=float),
                    out: wp.array2d(dtype=float)):
        y, x = wp.tid()
        total = float(0.0)
        for j in range(5):
            for i in range(5):
                yy = y + j - 2
                xx = x + i - 2
                if yy >= 0 and yy < out.shape[0] and xx >= 0 and xx < out.shape[1]:
                    total += w[j, i] * a[yy, xx]
        out[y, x] = total

    @wp.kernel
    def bodies(a: wp.array2d(dtype=float), out: wp.array2d(dtype=float)):
        i = wp.tid()
        fx = float(0.0)
        fy = float(0.0)
        fz = float(0.0)
        for j in range(a.shape[0]):
            dx = a[j, 0] - a[i, 0]
            dy = a[j, 1] - a[i, 1]
            dz = a[j, 2] - a[i, 2]
            inverse = 1.0 / wp.sqrt(dx * dx + dy * dy + dz * dz + 1.0e-2)
            s = a[j, 3] * inverse * inverse * inverse
            fx += dx * s
            fy += dy * s
            fz += dz * s
        out[i, 0] = fx
        out[i, 1] = fy
        out[i, 2] = fz

    @wp.kernel
    def softmax(a: wp.array2d(dtype=float), out: wp.array2d(dtype=float)):
        i = wp.tid()
        high = a[i, 0]
        for j in range(a.shape[1]):
            high = wp.max(high, a[i, j])
        total = float(0.0)
        for j in range(a.shape[1]):
            e = wp.exp(a[i, j] - high)
            out[i, j] = e
            total += e
        for j in range(a.shape[1]):
            out[i, j] = out[i, j] / total

    kept = {}

    def view(array):
        found = kept.get(id(array))
        if found is None:
            found = kept[id(array)] = wp.array(array, copy=False, device="cpu"), array
        return found[0]

    def launch(kernel, dim, extra=()):
        def run(*arrays):
            wp.launch(kernel, dim, inputs=[*extra, *map(view, arrays)], device="cpu")

        return run

    def run_mandelbrot(out):
        wp.launch(mandelbrot, (1024, 1024), device="cpu",
                  inputs=[view(out), -2.0, -1.25, 2.5 / 1024, 200])

    def run_histogram(a, out):
        out[:] = np.int32(0)
        wp.launch(histogram, NB, inputs=[view(a), view(out)], device="cpu")

    return {
        "saxpy 16M": launch(saxpy, NB, (2.0,)),
        "matmul 1024, 16 x 16": launch(matmul, (1024, 1024)),
        "matmul 1024, 32 x 32": launch(matmul, (1024, 1024)),
        "mandelbrot 1024": run_mandelbrot,
        "transpose 4096": launch(transpose, (4096, 4096)),
        "block sum 16M": launch(block_sum, NB // 4096),
        "histogram 16M": run_histogram,
        "convolution 2048, 5 x 5": launch(convolution, (2048, 2048)),
        "n-body 4096": launch(bodies, 4096),
        "softmax 4096 x 1024": launch(softmax, 4096),
    }
