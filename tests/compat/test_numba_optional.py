"""Names on their ways through kernels, against Python: numbers that may be None, loops' else."""

import enum
import math

import numpy as np
import pytest

import weft
from weft.compat import cuda
from weft.errors import KernelError


@cuda.jit(device=True)
def positive(x):
    if x > 0:
        return x
    return None


@cuda.jit(device=True)
def first_bin(x, n):
    if x == n:
        return n - 1
    k = int(x // 2)
    if k < 0 or k >= n:
        return None
    else:
        return k


@cuda.jit(device=True)
def inside(x, low):
    if x > low:
        return x
    elif x == 0:
        return low


@cuda.jit(device=True)
def or_else(x, other):
    return other if x is None else x


def by_function(a, out, i):
    found = positive(a[i])
    out[i] = -1 if found is None else found * 2


def by_branch(a, out, i):
    found = None
    if a[i] > 0:
        found = a[i]
    if found is not None:
        out[i] = found
    else:
        out[i] = -7


def smallest(a, out, i):
    best = None
    for j in range(i, a.size):
        if a[j] > 0 and (best is None or a[j] < best):
            best = a[j]
    out[i] = -5 if best is None else best


def emptied(a, out, i):
    last = a[i]
    k = 0
    while k < 3:
        if a[(i + k) % a.size] < 0:
            last = None
        elif last == None:  # noqa: E711
            last = 1
        k += 1
    if last:
        out[i] = last + 0.5


def passed_on(a, out, i):
    out[i] = or_else(positive(a[i]), i) + or_else(None, 1) + or_else(2.5, 1)


def integers(a, out, i):
    k = first_bin(a[i], 3)
    if k is not None and k >= 0:
        out[i] = k + 10
    chosen = None if a[i] < 0 else k
    if not chosen:
        out[i] -= 100


def open_ended(a, out, i):
    found = inside(a[i], 2)
    if found is None:
        out[i] = -3
    else:
        out[i] = found


ALL = (by_function, open_ended, by_branch, smallest, emptied, passed_on, integers)
VALUES = np.array([1.0, -2, 3, 0, -0.5, 6, 4, -1, 2, 5, -3])


@pytest.mark.grid
@pytest.mark.parametrize("body", ALL, ids=lambda f: f.__name__)
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int64, np.int16], ids=str)
def test_like_python(body, dtype):
    @cuda.jit
    def kernel(a, out):
        i = cuda.grid(1)
        if i < a.size:
            body(a, out, i)

    a = VALUES.astype(dtype)
    want, found, seen = (np.zeros(a.size) for _ in range(3))
    for i in range(a.size):
        body(a, want, i)
    kernel[2, 8](a, found)
    weft.interpret(kernel, 2, 8)(a, seen)
    np.testing.assert_array_equal(found, want)
    np.testing.assert_array_equal(seen, want)


def after_loops(out, stop, i):
    n = 0
    while n < stop[i]:
        n += 1
        if n == 3:
            break
    else:
        out[i, 0] = n
    total = 0
    for j in range(4):
        total += j
        if j == stop[i]:
            break
    else:
        out[i, 1] = total
    k = 0
    while k < 5:
        k += 2
    else:
        out[i, 2] = k


def test_an_else_of_a_loop_reads_what_the_loop_set():
    @cuda.jit
    def kernel(out, stop):
        after_loops(out, stop, cuda.grid(1))

    stop, found, want = np.arange(8), np.zeros((8, 3)), np.zeros((8, 3))
    kernel[1, 8](found, stop)
    for i in range(8):
        after_loops(want, stop, i)
    np.testing.assert_array_equal(found, want)


def test_a_number_is_one_wherever_it_is_used():
    @cuda.jit
    def kernel(a, counts, pairs, out):
        i = cuda.grid(1)
        k = first_bin(a[i], 3)
        near = cuda.local.array(5, np.int64)
        if k is not None:
            cuda.atomic.add(counts, k, 1)
            cuda.atomic.add(pairs, (k, 0), 1)
            near[k] = 3
            out[i, 0] = near[k] + counts[:k].size + pairs[k, 1]
            out[i, 1] = math.sqrt(k) + max(k, 1) + min(2, k) + abs(-k) + np.float32(k)
            for j in range(k):
                out[i, 2] += j + 1
            both = (k, i)
            out[i, 3] = both[0] + (k if i > 1 else 7) - (~int(k))
            out[i, 4] = round(k / 2) + k**2 + (k % 2) + (1 if k in (1, 2) else 0)

    a = np.array([1.0, 4.0, -8.0, 3.0, 2.0])
    counts, pairs, out = np.zeros(4, np.int32), np.zeros((4, 2)), np.zeros((5, 5))
    kernel[1, 5](a, counts, pairs, out)
    bins = [first_bin(x, 3) for x in a]
    assert bins == [0, 2, None, 2, 1]
    for k, row, i in zip(bins, out, range(5), strict=True):
        np.testing.assert_allclose(row, [0] * 5 if k is None else [
            3 + k, math.sqrt(k) + max(k, 1) + min(2, k) + 2 * k, k * (k + 1) / 2,
            k + (k if i > 1 else 7) + k + 1, round(k / 2) + k**2 + k % 2 + (k in (1, 2))])
    np.testing.assert_array_equal(counts, [1, 1, 2, 0])
    np.testing.assert_array_equal(pairs[:, 0], [1, 1, 2, 0])


@cuda.jit(device=True)
def phase(z, i):
    if i >= z.shape[0]:
        return
    total = 0
    for k in range(3):
        total += z[i] * k
    return total


@cuda.jit(device=True)
def phase_or_seven(z, i):
    if i >= z.shape[0]:
        return None
    if i == 1:
        return 7
    return z[i]


@pytest.mark.parametrize("dtype", [np.complex64, np.complex128])
def test_complex_number_or_none(dtype):
    @cuda.jit
    def phases(z, out):
        i = cuda.grid(1)
        v = phase(z, i)
        out[0, i] = -1 if v is None else v
        if i < z.shape[0]:
            out[1, i] = phase(z, i)
            out[2, i] = phase(z, i) + 1 - v.real * abs(v)
        last = None
        for j in range(3):
            last = phase_or_seven(z, i + j)
        if i == 2:
            last = None
        if last is None:
            out[3, i] = -1
        elif last:
            out[3, i] = last

    @cuda.jit
    def beyond(z, out):
        i = cuda.grid(1)
        out[0, i] = phase(z, i)

    z = np.array([0, 2 - 1j, 0, 3j, 1 + 4j], dtype)
    out = np.zeros((4, 7), dtype)
    phases[1, 7](z, out)
    assert out[0].tolist() == [*(3 * z).tolist(), -1, -1]
    assert out[1, :5].tolist() == (3 * z).tolist()
    np.testing.assert_allclose(out[2, :5], 3 * z + 1 - 3 * z.real * abs(3 * z), rtol=1e-6)
    assert out[3].tolist() == [0, 3j, -1, -1, -1, -1, -1]
    with pytest.raises(TypeError, match=r"expected a number, got None in thread \(5, 0, 0\)"):
        beyond[1, 7](z, out)


def test_none_is_no_number():
    @cuda.jit
    def doubled(a, out):
        i = cuda.grid(1)
        out[i] = positive(a[i]) * 2

    out = np.zeros(2)
    doubled[1, 2](np.array([1.0, 2.0]), out)
    np.testing.assert_array_equal(out, [2, 4])
    with pytest.raises(TypeError, match=r"expected a number, got None in thread \(1, 0, 0\)"):
        doubled[1, 2](np.array([1.0, -2.0]), out)


def test_kernels_of_wefts_own_refuse_both():
    @weft.kernel
    def best(a, out):
        found = None
        for j in range(a.shape[0]):
            if found is None or a[j] < found:
                found = a[j]
        out[0] = 0 if found is None else found

    with pytest.raises(KernelError, match="found is"):
        best[1, 1](VALUES, np.zeros(1))


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


class Answer(enum.Enum):
    NO = 0
    YES = 1

    def __bool__(self):
        return self.value == 1


TURN = 2 - 1j


@cuda.jit(device=True)
def red_or_none(x):
    return Colour.RED if x > 0 else None


def member_by_function(a, out, i):
    found = red_or_none(a[i])
    out[i] = -1 if found is None else found.value


def member_by_branch(a, out, i):
    if a[i] > 2:
        found = Colour.BLUE
    elif a[i] > 0:
        found = Colour.RED
    else:
        found = None
    out[i] = -1 if found is None else found.value


def member_by_choice(a, out, i):
    found = (Colour.RED if a[i] > 0 else None) if a[i] < 3 else Colour.BLUE
    out[i] = 0 if found is None else 10 if found == Colour.BLUE else 5


def last_of_each(a, out, i):
    member, text, turn = None, None, None
    for j in range(i, a.size):
        if a[j] > 2:
            member = Colour.BLUE
            text = "two"
        elif a[j] > 0:
            member = Colour.RED if a[j] > 1 else None
            text = None if a[j] > 1 else "one"
            turn = TURN
        elif a[j] == -3:
            turn = None
    out[i] = (0 if member is None else member.value) + 10 * (0 if text is None else len(text))
    if turn:
        out[i] += turn.real - turn.imag


def known_complex(a, out, i):
    turn = TURN if a[i] > 2 else (a[i] if a[i] > 0 else None)
    if turn:
        out[i] = turn.real - turn.imag


def true_ones(a, out, i):
    """Ask None, and things of which Python says that they are false."""
    text = ("" if a[i] > 2 else "b") if a[i] > 0 else None
    if text:
        out[i] = 1
    empty = "" if a[i] > 0 else None
    if not empty:
        out[i] += 2
    no = Answer.NO if a[i] > 0 else None
    if no:
        out[i] += 4
    answer = (Answer.YES if a[i] > 2 else Answer.NO) if a[i] > 0 else None
    if answer:
        out[i] += 8
    zero = 0j if a[i] > 0 else None
    if zero:
        out[i] += 16
    nothing = () if a[i] > 0 else None
    if nothing:
        out[i] += 32
    pair = (0, 0) if a[i] > 0 else None
    if pair:
        out[i] += 64


KNOWN = (member_by_function, member_by_branch, member_by_choice, last_of_each, known_complex,
         true_ones)  # fmt: skip


@pytest.mark.parametrize("body", KNOWN, ids=lambda f: f.__name__)
def test_known_thing_or_none(body):
    of_device = cuda.jit(device=True)(body)

    @cuda.jit
    def kernel(a, out):
        i = cuda.grid(1)
        if i < a.shape[0]:
            of_device(a, out, i)

    out, expected = np.zeros((2, VALUES.size))
    for i in range(VALUES.size):
        body(VALUES, expected, i)
    kernel[1, 16](VALUES, out)
    np.testing.assert_array_equal(out, expected)
