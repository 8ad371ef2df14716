"""What kernels written for numba.cuda use of Python and NumPy, one feature at a time."""

import enum

import numpy as np
import pytest

import weft
import weft.compat as numba
from weft.compat import cuda
from weft.errors import KernelError, LaunchError


@cuda.jit
def casts(x, out):
    i = cuda.grid(1)
    if i < x.size:
        out[i] = np.int8(x[i]) + np.float32(x[i]) / np.float32(3) + np.uint16(x[i] * 2)


def test_types_of_numpy_convert():
    x = np.arange(7.0)
    out = np.zeros(7)
    casts[1, 32](x, out)
    third = (x.astype(np.float32) / np.float32(3)).astype(np.float64)
    np.testing.assert_allclose(out, x + third + 2 * x, rtol=1e-6)


WORD = np.dtype("int64")


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


@cuda.jit
def of_arguments(kind, z, big, out):
    held = cuda.local.array(2, WORD)
    held[0] = big >> 60
    held[1] = 1 if kind is Colour.RED or kind == Colour.BLUE else 2
    out[0] = z.real * 2
    out[1] = z.imag
    out[2] = held[0]
    out[3] = held[1] if kind is not Colour.BLUE else 5


def test_arguments_that_are_members_complex_or_large():
    out = np.zeros(4)
    of_arguments[1, 1](Colour.RED, np.complex64(1 + 2j), (1 << 64) - 1, out)
    assert out.tolist() == [2, 2, 15, 1]
    of_arguments[1, 1](Colour.BLUE, 3 + 4j, 1 << 60, out)
    assert out.tolist() == [6, 4, 1, 5]


@pytest.mark.parametrize("kind", [numba.float64, numba.int64, numba.uint8])
def test_signatures_of_one_function_with_several_types(kind):
    def moved(a, b):
        i = cuda.grid(1)
        if i < a.size:
            b[i] = a[i] + 1

    kernel = cuda.jit((kind[::1], numba.float64[::1]))(moved)
    a, b = np.arange(5).astype(kind.kind), np.zeros(5)
    kernel[1, 32](a, b)
    np.testing.assert_array_equal(b, np.arange(1, 6))


@cuda.jit
def grey(pixels, weights, out):
    i, j = cuda.grid(2)
    if i < pixels.shape[0] and j < pixels.shape[1]:
        red, green, blue = pixels[i, j]
        a, b, c = weights
        out[i, j] = red * a + green * b + blue * c


def test_arrays_are_unpacked():
    rng = np.random.default_rng(9)
    pixels, weights = rng.integers(0, 256, (5, 7, 3)).astype(np.uint8), np.array([0.3, 0.6, 0.1])
    out = np.zeros((5, 7))
    grey[(1, 1), (8, 8)](pixels, weights, out)
    np.testing.assert_allclose(out, pixels @ weights)
    with pytest.raises(LaunchError, match="an array of another length than 3"):
        grey[(1, 1), (8, 8)](pixels, np.ones(4), out)


@cuda.jit
def tiled_sums(sizes, x, out):
    held = cuda.shared.array(8, np.float64)
    t = cuda.threadIdx.x
    total = 0.0
    for start in range(0, sizes[0], 8):  # an end that is read from memory
        k = start + t
        if k < sizes[0]:
            held[t] = x[k]
        cuda.syncthreads()
        for k in range(8):
            if start + k < sizes[0]:
                total += held[k] * (start + 1)
        cuda.syncthreads()
    out[t] = total


@pytest.mark.parametrize("n", [0, 1, 8, 13, 40])
def test_loops_of_tiles_whose_number_is_read_from_memory(n):
    x, out = np.random.default_rng(n).normal(size=n), np.zeros(8)
    tiled_sums[1, 8](np.array([n]), x, out)
    np.testing.assert_allclose(out, (x * (np.arange(n) // 8 * 8 + 1)).sum(), atol=1e-12)


@cuda.jit
def counters(sizes, out):
    held = cuda.shared.array(8, np.float64)
    t = cuda.threadIdx.x
    turns, v = 3, -1.0
    held[t] = t
    cuda.syncthreads()
    for _ in range(turns):
        if sizes[0] == 1000:
            turns = sizes[1]
    for _ in range(sizes[1] * turns & 3):
        for _ in range(turns & 3):
            v = held[(t + 1) % 8]
            cuda.syncthreads()
    out[t] = v


def test_counters_of_the_block_in_loops_that_threads_agree_on():
    out = np.zeros(8)
    counters[1, 8](np.array([5, 1]), out)
    np.testing.assert_array_equal(out, (np.arange(8) + 1) % 8)


@cuda.jit
def running_sums(x, out):
    held = cuda.shared.array(64, x.dtype)
    t = cuda.threadIdx.x
    held[2 * t], held[2 * t + 1] = x[2 * t], x[2 * t + 1]
    apart = 1
    left = 32
    while left > 0:
        cuda.syncthreads()
        if t < left:
            a = apart * (2 * t + 1) - 1
            b = apart * (2 * t + 2) - 1
            held[b] += held[a]
        apart *= 2
        left >>= 1
    if t == 0:
        held[63] = 0
    left = 1
    while left < 64:
        apart >>= 1
        cuda.syncthreads()
        if t < left:
            a = apart * (2 * t + 1) - 1
            b = apart * (2 * t + 2) - 1
            old = held[a]
            held[a] = held[b]
            held[b] += old
        left *= 2
    cuda.syncthreads()
    out[2 * t], out[2 * t + 1] = held[2 * t], held[2 * t + 1]


def test_names_beside_counters_of_the_whole_block():
    x = np.random.default_rng(1).integers(-9, 9, 64)
    out = np.zeros_like(x)
    running_sums[1, 32](x, out)
    np.testing.assert_array_equal(out, np.cumsum(x) - x)


@cuda.jit
def choices(a, b, out):
    i = cuda.grid(1)
    if i < out.size:
        x = a if i % 2 else b
        if i % 3 == 0:
            y, z = a, b
        elif i % 3 == 1:
            y, z = b, a
        else:
            y, z = out, a
        out[i] = x[i] + y[i] * 10 + len(y) + z.shape[0] * 1000 + z.ndim
        if i >= 5:
            x[i] += 1
        x[2:][i % 3] = 7


def test_names_for_one_of_several_arrays():
    rng = np.random.default_rng(2)
    start = [rng.normal(size=20), rng.normal(size=20), np.arange(20.0)]
    arrays, again = ([s.copy() for s in start] for _ in range(2))
    choices[1, 32](*arrays)
    weft.interpret(choices, 1, 32)(*again)
    for one, two in zip(arrays, again, strict=True):
        np.testing.assert_array_equal(one, two)
    for i in range(5, 20):
        x, y = start[0 if i % 2 else 1], start[i % 3]
        assert arrays[2][i] == pytest.approx(x[i] + y[i] * 10 + 20 + 20001)
        assert arrays[0 if i % 2 else 1][i] == x[i] + 1
    assert arrays[0][2] == arrays[1][2] == 7


@cuda.jit
def smoothed(x, out, turns):
    front = cuda.shared.array(66, np.float64)
    back = cuda.shared.array(66, np.float64)
    t = cuda.threadIdx.x
    front[t + 1] = x[t]
    if t < 1:
        front[0] = front[65] = back[0] = back[65] = 0
    cuda.syncthreads()
    source, target = front, back
    for _ in range(turns):
        target[t + 1] = 0.25 * source[t] + 0.5 * source[t + 1] + 0.25 * source[t + 2]
        cuda.syncthreads()
        source, target = target, source
    cuda.atomic.add(source, 1, 1.0)
    cuda.syncthreads()
    out[t] = source[t + 1]


@pytest.mark.parametrize("turns", [0, 1, 6, 7])
def test_buffers_that_take_turns(turns):
    x, out = np.random.default_rng(3).normal(size=64), np.zeros(64)
    smoothed[1, 64](x, out, turns)
    row = np.pad(x, 1)
    for _ in range(turns):
        row[1:65] = 0.25 * row[:-2] + 0.5 * row[1:-1] + 0.25 * row[2:]
    row[1] += 64
    np.testing.assert_allclose(out, row[1:65], rtol=1e-14)
    assert not weft.sanitize(smoothed, 1, 64)(x, out, turns).findings


def test_arrays_of_unlike_types_do_not_meet():
    @cuda.jit
    def unlike(a, b, out):
        x = a
        if out[0] > 0:
            x = b
        out[0] = x[0]

    with pytest.raises(KernelError, match="x is float32 array of 1 axis or float64 array"):
        unlike[1, 1](np.zeros(3), np.zeros(3, np.float32), np.zeros(3))

    @cuda.jit
    def moving(a, b, out):
        row = a[0]
        for i in range(3):
            out[i] = row[0]
            row = b[i]

    with pytest.raises(KernelError, match="row changes from one array to another"):
        moving[1, 1](np.zeros((3, 3)), np.zeros((3, 3)), np.zeros(3))


def test_ranges_of_floats_round_to_zero():
    """Numba converts them, as it finds no range of floats."""

    @cuda.jit
    def floats(n, x, bytes_, out):
        for _ in range(n / 2):
            out[0] += 1
        for i in range(x, 5.9, 1.2):
            out[1] += i
        for _ in range(-0.9):
            out[2] += 1
        for _ in range(min((bytes_[0] << 8) | bytes_[1], 4)):  # uint64 and int64 meet as float64
            out[3] += 1

    out = np.zeros(4, np.int64)
    floats[1, 1](7, np.float32(1.5), np.array([0, 3], np.uint8), out)
    np.testing.assert_array_equal(out, [3, 1 + 2 + 3 + 4, 0, 3])


@pytest.mark.parametrize("dtype", [np.uint8, np.uint32, np.uint64], ids=str)
def test_ranges_of_unsigned_ends_have_unsigned_items(dtype):
    """As numba's do: a name that is uint64 beside one of their items stays an integer."""

    @cuda.jit
    def last(ends, out):
        found = np.uint64(0)
        for i in range(ends[0], ends[1]):
            found = i
            if i == ends[2]:
                break
        out[found] += 1
        for i in range(ends[1]):
            out[i] += 2
        for i in range(ends[0], ends[1], ends[0]):
            out[i] += 10
        for i in range(ends[1], -1, -2):  # with an int64 among them they are int64
            out[i] += 100

    out = np.zeros(8, np.int64)
    last[1, 1](np.array([2, 7, 5], dtype), out)
    np.testing.assert_array_equal(out, [2, 102, 12, 102, 12, 103, 12, 100])


def without_a_value(flag):
    """Return a kernel whose closure has a cell that nothing was put in."""
    if flag:
        extra = 3.0

    @cuda.jit(device=True)
    def more(x):
        if flag:
            return x + extra
        return x

    @cuda.jit
    def kernel(x):
        x[0] += 1
        if flag:
            x[0] += extra
        x[0] = more(x[0])

    return kernel


def test_closures_may_hold_names_without_a_value():
    x = np.zeros(1)
    without_a_value(False)[1, 1](x)
    assert x[0] == 1
    without_a_value(True)[1, 1](x)
    assert x[0] == 8

    @cuda.jit
    def early(x):
        x[0] = late

    with pytest.raises(KernelError, match="name 'late' is not defined"):
        early[1, 1](x)
    late = 4.0
    early[1, 1](x)
    assert x[0] == late


def test_fields_of_a_record_are_counted_from_its_end_too():
    @cuda.jit
    def kernel(table, out):
        row = table[0, 1]
        out[0] = row[-1] * 100 + row[-3] * 10 + row[1]
        row[-2] = 7

    table = np.zeros((1, 2), "f4,f8,i2")
    table[0, 1] = 2, 3, 4
    out = np.zeros(1)
    kernel[1, 1](table, out)
    assert out[0] == 423
    assert table[0, 1]["f1"] == 7


@pytest.mark.parametrize("place", ["record", "device", "array"])
@pytest.mark.parametrize("signed", [False, True])
def test_fields_of_one_record_keep_all_their_axes(place, signed):
    kind = np.dtype([("steps", "f4", (4, 3)), ("codes", "i4", (4,)), ("scale", "f4")])

    def kernel(table, out):
        k = out.shape[0] - 4
        out[0] = table["steps"][k, 1] + table["steps"][k][2] * 100
        out[1] = table["codes"][k] * table.scale
        table["codes"][0] = 7

    host = np.zeros(1, kind)
    host["steps"] = np.arange(12).reshape(4, 3)
    host["codes"] = np.arange(4) * 10
    host["scale"] = 0.5
    given = {"record": host[0], "device": cuda.to_device(host[0]),
             "array": host.reshape(())}[place]  # fmt: skip
    made = cuda.jit((numba.from_dtype(kind), numba.float64[::1]))(kernel) if signed else (
        cuda.jit(kernel))
    out = np.zeros(6)
    made[1, 1](given, out)
    assert tuple(out[:2]) == (7 + 800, 10)
    after = given.copy_to_host() if place == "device" else given
    assert after["codes"][0] == 7
