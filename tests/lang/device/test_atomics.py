"""Atomic operations: every kind, type and scope, in both memories, alone and under contention."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import weft
from weft import gpu
from weft.errors import KernelError
from weft.ir.stmt import THREAD_SCOPES

INTEGERS = ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"]
FLOATS = ["float16", "bfloat16", "float32", "float64"]
KINDS = 13  # rows that the kernels below use
NAN, INF = float("nan"), float("inf")


def numpy_type(name: str) -> Any:
    return np.dtype(ml_dtypes.bfloat16 if name == "bfloat16" else name)


def same(a: Any, b: Any) -> None:
    """Compare arrays bit by bit, with all NaN alike."""
    if a.dtype.kind not in "iub":
        a, b = a.astype(np.float64), b.astype(np.float64)
        np.testing.assert_array_equal(np.signbit(a[a == a]), np.signbit(b[b == b]))
    np.testing.assert_array_equal(a, b)


def samples(d: Any, rng: np.random.Generator, shape: Any) -> Any:
    if d.kind == "b":
        return rng.integers(0, 2, shape).astype(d)
    if d.kind in "iu":
        return rng.integers(-5 if d.kind == "i" else 0, 12, shape).astype(d)
    special = [0.0, -0.0, NAN, INF, -INF, 1.0, -1.0, 0.1, 3.0, 2.0**-13]
    return rng.choice(special, shape).astype(d)


def every_kind(name: str, scope: str) -> Any:
    """Return a function for kernels that does all that a type has to elements of one column."""
    atomic = gpu.atomic

    def for_all(x: Any, j: Any, v: Any, w: Any, olds: Any, t: Any) -> None:
        olds[0, t] = atomic.exch(x, (0, j), v, scope)
        olds[1, t] = atomic.cas(x, (1, j), w, v, scope)

    def for_numbers(x: Any, j: Any, v: Any, w: Any, olds: Any, t: Any) -> None:
        for_all(x, j, v, w, olds, t)
        olds[2, t] = atomic.add(x, (2, j), v, scope)
        olds[3, t] = atomic.sub(x, (3, j), v, scope)
        olds[4, t] = atomic.min(x, (4, j), v, scope)
        olds[5, t] = atomic.max(x, (5, j), v, scope)
        olds[6, t] = atomic.nanmin(x, (6, j), v, scope)
        olds[7, t] = atomic.nanmax(x, (7, j), v, scope)

    def for_bits(x: Any, j: Any, v: Any, w: Any, olds: Any, t: Any) -> None:
        olds[8, t] = atomic.and_(x, (8, j), v, scope)
        olds[9, t] = atomic.or_(x, (9, j), v, scope)
        olds[10, t] = atomic.xor(x, (10, j), v, scope)

    def for_bools(x: Any, j: Any, v: Any, w: Any, olds: Any, t: Any) -> None:
        for_all(x, j, v, w, olds, t)
        for_bits(x, j, v, w, olds, t)

    def for_integers(x: Any, j: Any, v: Any, w: Any, olds: Any, t: Any) -> None:
        for_numbers(x, j, v, w, olds, t)
        for_bits(x, j, v, w, olds, t)
        olds[11, t] = atomic.inc(x, (11, j), v, scope)
        olds[12, t] = atomic.dec(x, (12, j), v, scope)

    return for_bools if name == "bool" else for_numbers if name in FLOATS else for_integers


@pytest.mark.grid
@pytest.mark.parametrize("scope", THREAD_SCOPES)
@pytest.mark.parametrize("name", [*INTEGERS, *FLOATS, "bool"])
def test_all_operations_in_order(name: str, scope: str) -> None:
    """The threads of one block act in their order, so all is as the interpreter has it."""
    d, rng = numpy_type(name), np.random.default_rng(3)
    update = every_kind(name, scope)
    kind = weft.bfloat16 if name == "bfloat16" else d

    in_shared = scope == "block"

    @weft.kernel
    def in_order(x: Any, y: Any, olds: Any, others: Any, out: Any) -> None:
        t = gpu.threadIdx.x
        if t < y.shape[0]:
            update(x, t % 3, y[t], y[t - t % 2], olds, t)
        if in_shared:
            held = gpu.shared.array((KINDS, 3), kind)
            for k in range(t, KINDS * 3, gpu.blockDim.x):
                held[k // 3, k % 3] = out[k // 3, k % 3]
            gpu.syncthreads()
            if t < y.shape[0]:
                update(held, t % 3, y[t], y[t - t % 2], others, t)
            gpu.syncthreads()
            for k in range(t, KINDS * 3, gpu.blockDim.x):
                out[k // 3, k % 3] = held[k // 3, k % 3]

    threads = 33 if name in ("int32", "float16") else 8
    for count in (1, threads - 1):
        x, y = samples(d, rng, (KINDS, 3)), samples(d, rng, count)
        arrays = [x, y, np.zeros((KINDS, count), d), np.zeros((KINDS, count), d), x.copy()]
        plain = [a.copy() for a in arrays]
        in_order[1, threads](*arrays)
        weft.interpret(in_order, 1, threads)(*plain)
        for a, b in zip(arrays, plain, strict=True):
            same(a, b)
        if in_shared:  # shared memory as global memory
            same(arrays[2], arrays[3])
            same(arrays[0], arrays[4])


REPEATS = 64  # so that the launch is worth several threads


@pytest.mark.grid
@pytest.mark.parametrize("name", [*INTEGERS, *FLOATS])
def test_contention(name: str) -> None:
    """Many blocks change few elements at once: nothing is lost, whoever comes first."""
    d, rng = numpy_type(name), np.random.default_rng(5)
    is_integer = name in INTEGERS

    @weft.kernel
    def together(x: Any, y: Any, turns: Any) -> None:
        i = gpu.grid(1)
        v = y[i]
        for k in range(turns):
            j = (i + k) % 2
            gpu.atomic.add(x, (0, j), v)
            gpu.atomic.sub(x, (1, j), v)
            gpu.atomic.min(x, (2, j), v)
            gpu.atomic.max(x, (3, j), v)
            gpu.atomic.nanmin(x, (4, j), v)
            gpu.atomic.nanmax(x, (5, j), v)
            if is_integer:
                gpu.atomic.and_(x, (6, j), v)
                gpu.atomic.or_(x, (7, j), v)
                gpu.atomic.xor(x, (8, j), v)
                gpu.atomic.inc(x, (9, j), 10)
                gpu.atomic.dec(x, (10, j), 10)

    n = 8 * 32
    # Sums stay within what the narrowest float holds exactly, in any order.
    y = np.zeros(n, d)
    y[:96:2] = 1
    if is_integer:
        y = rng.integers(0, 100, n).astype(d)
    else:
        y[97] = np.array(NAN, np.float64).astype(d)
    found = np.full((11, 2), 3).astype(d)
    if not is_integer:
        y[97:98] = 0
        found[4:6] = np.array(NAN, np.float64).astype(d)
    expected = found.copy()
    turns = REPEATS if is_integer else 2
    together[8, 32](found, y, turns)
    weft.interpret(together, 8, 32)(expected, y, turns)
    same(found, expected)


@pytest.mark.parametrize("name", [*INTEGERS, *FLOATS])
def test_values_that_are_exchanged_are_not_lost(name: str) -> None:
    """Each value that goes in comes out of one other operation, or is there at the end."""
    d = numpy_type(name)

    @weft.kernel
    def passing(x: Any, y: Any, olds: Any) -> None:
        i = gpu.grid(1)
        olds[i] = gpu.atomic.exch(x, 0, y[i])

    @weft.kernel
    def counting(x: Any, one: Any) -> None:
        """Add by comparing and exchanging."""
        for _ in range(4):
            old = gpu.atomic.add(x, 0, one[0] - one[0])
            seen = gpu.atomic.cas(x, 0, old, old + one[0])
            while seen != old:
                old = seen
                seen = gpu.atomic.cas(x, 0, old, old + one[0])

    y = (np.arange(32 * 32) % 97).astype(d)
    x, olds = np.full(1, 1).astype(d), np.zeros(len(y), d)
    before = sorted([*y.astype(np.float64), 1.0])
    passing[32, 32](x, y, olds)
    assert sorted([*olds.astype(np.float64), float(x[0])]) == before
    x = np.zeros(1, d)
    counting[3, 8](x, np.ones(1).astype(d))
    assert float(x[0]) == 96


def test_nan_and_zeros_as_in_numba() -> None:
    """Where the element or the value is NaN the element stays; equal zeros change nothing."""

    @weft.kernel
    def extremes(x: Any, v: Any) -> None:
        i = gpu.grid(1)
        gpu.atomic.min(x, (0, i), v[i])
        gpu.atomic.max(x, (1, i), v[i])
        gpu.atomic.nanmin(x, (2, i), v[i])
        gpu.atomic.nanmax(x, (3, i), v[i])

    start = np.array([NAN, 2.0, NAN, 0.0, -0.0, 1.0, 1.0])
    v = np.array([1.0, NAN, NAN, -0.0, 0.0, 3.0, -INF])
    expected = np.array([start, start, start, start])
    expected[0, 6], expected[1, 5] = -INF, 3.0
    expected[2, 0], expected[2, 6], expected[3, 0], expected[3, 5] = 1.0, -INF, 1.0, 3.0
    for d in (np.float16, np.float32, np.float64, ml_dtypes.bfloat16):
        for run in (extremes.__getitem__((1, 7)), weft.interpret(extremes, 1, 7)):
            x = np.array([start] * 4).astype(d)
            run(x, v.astype(d))
            same(x, expected.astype(d))


def test_what_a_type_has_not_is_told() -> None:
    @weft.kernel
    def turned(x: Any) -> None:
        gpu.atomic.inc(x, 0, 3)

    @weft.kernel
    def added(x: Any) -> None:
        gpu.atomic.add(x, 0, True)

    with pytest.raises(KernelError, match="floats have add, sub, min, max, exch and cas"):
        turned[1, 1](np.zeros(1, np.float16))
    with pytest.raises(KernelError, match="bools and_, or_, xor, exch and cas"):
        added[1, 1](np.zeros(1, np.bool_))


def test_values_of_narrow_floats_in_branches():
    """What a float16 becomes for an atomic operation is in operations that processors have."""

    @weft.kernel
    def k(x, counts):
        t = gpu.threadIdx.x
        part = gpu.shared.array(8, weft.int32)
        if t < 8:
            part[t] = 0
        gpu.syncthreads()
        for turn in range(counts[0] & 3):
            gpu.atomic.max(part, int(x[t] * 0.5) & 7, t + turn)
        gpu.syncthreads()
        if t < 8:
            counts[t] = part[t]

    x = np.arange(33, dtype=np.float16)
    found, expected = np.full(8, 2), np.full(8, 2)
    k[1, 33](x, found)
    weft.interpret(k, 1, 33)(x, expected)
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(found, [33, 20, 22, 24, 26, 28, 30, 32])
