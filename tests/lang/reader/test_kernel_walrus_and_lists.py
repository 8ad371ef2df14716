"""Names that expressions set, lists from outside, and builtins that go over arrays."""

import numpy as np
import pytest

from capabilities import module
from weft.compat import cuda, int64

MOVES = [[0, 1], [1, 0], [-1, 0], [0, -1]]
RAGGED = [[1], [2, 3]]
WEIGHTS = [1.5, 2, 3]
EMPTY = []
TEXTS = ["add", "mul"]


def _run(function, *arrays, threads=5):
    out = np.zeros(threads)
    cuda.jit(function)[1, threads](*arrays, out)
    return out


def _with_python(function, *arrays, threads=5):
    """Return what the kernel's text gives where Python carries it out, thread for thread."""
    out = np.zeros(threads)
    for t in range(threads):
        function(t, *arrays, out)
    return out


def while_with_names(t, a, out):
    n = 0
    total = 0.0
    while (t > 0 and (n := n + 1) < 6) or (m := n) > 100:
        if n == 4:
            continue
        total += n * t
    else:
        total += 1000
    out[t] = total + m


def while_left_early(t, a, out):
    j = 0
    while (v := a[(t + j) % 5]) != 3.0:
        j += 1
        if j > 2:
            break
    else:
        j += 100
    out[t] = j * 10 + v


def names_of_operands(t, a, out):
    n = 0.0
    if a[t] > 1 and (n := a[t] * 2) > 5:
        out[t] = n
    else:
        out[t] = -n - 1
    y = (m := a[t] + 1) if a[t] > 2 else (m := -1.0)
    out[t] += 100 * y + 10000 * m
    b = a[t] > 3 or (k := t + 7) > 9
    if not a[t] > 3:
        out[t] += k * 1e6 + b


def over_lists(t, a, out):
    total = len(MOVES) + 2 * len(EMPTY) + len(WEIGHTS[t:])
    for dx, dy in MOVES:
        total += dx * 3 + dy * 7 * t
    for move in MOVES[1:3]:
        total += move[0] * 11
    for nothing in EMPTY:
        total += 1000 * nothing
    for row in RAGGED:
        for v in row:
            total += v / 8
    for j, (w, (dx, dy)) in enumerate(zip(WEIGHTS, MOVES, strict=False), 1):
        total += j * w * dx * 16 + dy
    out[t] = total + MOVES[t][0] * 32 + WEIGHTS[t - 1] * 64 + WEIGHTS[-1] + len(TEXTS)


def over_items(t, a, out):
    first = a[t:]
    out[t] = sum(first) + 10 * max(first) + 100 * min(a) + 1000 * any(a[:t]) + 2000 * all(first)
    out[t] += sum(first, 5) + sum(range(t)) + max(WEIGHTS) + all((True, a[t] > 1)) + any(EMPTY)
    for i, x in enumerate(first, t - 1):
        out[t] += i * x * 0.5


PROGRAMS = [while_with_names, while_left_early, names_of_operands, over_items]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_kernel_does_what_python_does(program):
    names = {**globals(), "cuda": cuda}
    source = _as_kernel(program)
    a = np.arange(5.0)
    assert np.array_equal(_run(source(names), a), _with_python(program, a))


def test_lists_from_outside_are_arrays_of_their_numbers():
    a = np.arange(5.0)
    found = _run(_as_kernel(over_lists)({**globals(), "cuda": cuda}), a, threads=3)
    assert np.array_equal(found, _with_python(over_lists, a, threads=3))


def _as_kernel(program):
    """Return a maker of the kernel whose thread is the first parameter of a program."""

    def make(names):
        device = cuda.jit(device=True)(program)

        def kernel(a, out):
            device(cuda.threadIdx.x, a, out)

        return kernel

    return make


def test_a_list_keeps_what_it_held_when_the_kernel_was_compiled():
    held = [3, 4, 5]

    @cuda.jit
    def read(out):
        t = cuda.threadIdx.x
        out[t] = held[t]

    out = np.zeros(3)
    read[1, 3](out)
    assert out.tolist() == [3, 4, 5]


def test_an_index_of_a_list_is_evaluated_once():
    @cuda.jit
    def count(out):
        out[1] = WEIGHTS[cuda.atomic.add(out, 0, 1)]

    out = np.zeros(2, np.int64)
    count[1, 1](out)
    assert out.tolist() == [1, 1]


def test_function_that_raises_on_one_of_three_ways():
    @cuda.jit(device=True)
    def pick(a, i):
        if i == 1:
            found = a[0]
        elif i == 2:
            found = a[1]
        else:
            raise ValueError("neither")
        a[2] += 1
        return found * 2

    @cuda.jit
    def kernel(a, which, out):
        t = cuda.threadIdx.x
        for _ in range(3):
            out[t] += pick(a, which[t])

    out = np.zeros(1)
    a = np.arange(3.0) + 1
    kernel[1, 1](a, np.array([2]), out)
    assert out.tolist() == [12.0]
    assert a.tolist() == [1.0, 2.0, 6.0]
    with pytest.raises(ValueError, match="neither"):
        kernel[1, 1](a, np.array([3]), out)


def test_signatures_of_functions_that_give_arrays():
    @cuda.jit("int64[:](int64[:], int64)", device=True)
    def filled(a, value):
        for i in range(a.size):
            a[i] = value
        return a

    @cuda.jit(int64[:](int64[:]), device=True)
    def doubled(a):
        a[0] *= 2
        return a

    @cuda.jit("UniTuple(int64, 2)(int64)", device=True)
    def twice(n):
        return n + 3, n + 4

    @cuda.jit("void(int64[:])")
    def kernel(out):
        held = filled(cuda.local.array(3, int64), sum(twice(0)))
        out[:] = doubled(held)

    out = np.zeros(3, np.int64)
    kernel[1, 1](out)
    assert out.tolist() == [14, 7, 7]


@pytest.mark.parametrize("dtype", ["float32", "float64", "int16", "complex64"])
def test_a_tuple_is_assigned_to_elements_after_all_of_it_is_read(dtype):
    @cuda.jit
    def turn(a, n):
        a[:3] = a[1], a[2], a[0] + ord("a")
        a[n:][::2] = 5, 6

    a = np.arange(6).astype(dtype)
    turn[1, 1](a, 3)
    assert a.tolist() == [1, 2, 97, 5, 4, 6]
    with pytest.raises(ValueError, match="2 items for a part"):
        turn[1, 1](a, 5)


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_complex_tensors_of_torch(dtype):
    torch = module("torch")
    x = torch.arange(10.0).to(getattr(torch, dtype))[::2]
    y = cuda.as_cuda_array(x)
    assert (y.dtype, y.shape) == (np.dtype(dtype), (5,))

    @cuda.jit
    def turn(a):
        i = cuda.grid(1)
        if i < a.size:
            a[i] *= 2j

    turn[1, 8](y)
    assert x.tolist() == [4j * k for k in range(5)]
