"""Names that get other kinds of things in turn, slices that change, and ways to walk arrays."""

import enum
import operator
from typing import Any

import numpy as np
import pytest

import weft
from weft import gpu
from weft.errors import KernelError, LaunchError

pytestmark = pytest.mark.usefixtures("compiled")


def check(kernel: Any, threads: int, *args: Any, expected: Any) -> None:
    """Run a kernel, compiled and under the sanitiser, on copies of its arguments."""
    for run in (kernel[1, threads], weft.sanitize(kernel, 1, threads)):
        copies = [np.array(a) if isinstance(a, np.ndarray) else a for a in args]
        report = run(*copies)
        assert report is None or not report.findings
        np.testing.assert_array_equal(copies[-1], expected)


class Color(enum.Enum):
    """Members that are no numbers."""

    RED = 3
    GREEN = 5


class Level(enum.IntEnum):
    """Members that are numbers."""

    LOW = 1
    HIGH = 7


# --- slices


@weft.kernel
def moving_slice(a, out):
    s = slice(3)
    for j in range(out.shape[0]):
        v = a[s]
        for k in range(len(v)):
            out[j] += v[k]
        s = slice(j, j + 2)


@pytest.mark.parametrize("count", [0, 1, 3, 7])
def test_a_loop_changes_the_ends_of_a_slice(count: int) -> None:
    """Each turn reads the slice that the one before it made."""
    a, s, expected = np.arange(6.0), slice(3), []
    for j in range(count):
        expected.append(a[s].sum())
        s = slice(j, j + 2)
    check(moving_slice, 1, a, np.zeros(count), expected=expected)


@weft.kernel
def turning_slice(a, out):
    s = slice(None, None, 1)
    for j in range(out.shape[0]):
        part = a[s]
        for k in range(len(part)):
            out[j, k] = part[k]
        step = -1 - j if s.step > 0 else j + 1
        s = slice(None, None, step)


@pytest.mark.parametrize("size", [0, 1, 5])
def test_a_loop_changes_the_step_of_a_slice(size: int) -> None:
    """What is left out is the end that the sign of the step asks for."""
    a, expected, s = np.arange(1.0, size + 1), np.zeros((5, max(size, 1))), slice(None, None, 1)
    for j in range(5):
        expected[j, :len(a[s])] = a[s]
        s = slice(None, None, -1 - j if s.step > 0 else j + 1)
    check(turning_slice, 1, a, np.zeros((5, max(size, 1))), expected=expected)


@weft.kernel
def either_slice(a, start, stop, step, out):
    if step > 0:  # noqa: SIM108
        s = slice(start, stop, step)
    else:
        s = slice(stop, start, step)
    rows = a[s] if start != 5 else a[::step]
    first, last, by = s.indices(len(a))
    out[0] = len(rows)
    out[1] = len(range(first, last, by))
    for row in rows:
        out[2] = 10 * out[2] + row[1]


@pytest.mark.parametrize("step", [-7, -2, -1, 1, 3])
@pytest.mark.parametrize(("start", "stop"), [(0, 7), (-3, 2), (-20, 20), (2, -2), (5, 0)])
def test_steps_that_are_known_when_the_kernel_runs(start: int, stop: int, step: int) -> None:
    """Ends count from the end, and end at the ends, as in Python."""
    a = np.arange(14.0).reshape(7, 2)
    s = slice(start, stop, step) if step > 0 else slice(stop, start, step)
    rows = a[s] if start != 5 else a[::step]
    total = 0.0
    for row in rows:
        total = 10 * total + row[1]
    expected = [len(rows), len(range(*s.indices(7))), total]
    check(either_slice, 1, a, start, stop, step, np.zeros(3), expected=expected)


def test_a_step_of_nothing_stops_the_kernel() -> None:
    """A step that is 0 only when the kernel runs is told by its line."""
    with pytest.raises(weft.errors.LaunchError, match="a slice with step 0"):
        either_slice[1, 1](np.zeros((3, 2)), 0, 2, 0, np.zeros(3))


@weft.kernel
def compared(out):
    out[0] = slice(1, 2) == slice(1, 3)


def test_slices_are_not_compared() -> None:
    """As in numba, whose slices have no comparison."""
    with pytest.raises(KernelError, match="compare their start, stop and step"):
        compared[1, 1](np.zeros(1))


# --- names


@weft.kernel
def reused(a, out):
    for i in np.ndindex(2, 3):
        out[i[0]] += i[1]
    for i in np.ndindex(3):
        out[i[0]] += 10
    for j in range(2):
        for i in np.ndindex(1, 1, 2):
            out[2] += i[2] + j
        for i in range(2):
            out[i] += j
        for i in a:
            out[0] += i[j]
    i = (1, 2, 3)
    out[1] += i[2]
    i = a[1]
    out[2] += i[0]
    if out[0] > 1e9:
        i = 3
        out[0] = i
    else:
        i = (1, 2)
        out[0] += i[1]
    for i in range(0):
        out[0] += i


def test_names_that_are_used_again_for_other_things() -> None:
    """What is set before it is read is another name, as it were."""
    a = np.arange(4.0).reshape(2, 2)
    out = [3 + 10 + 1 + a.sum() + 2, 3 + 10 + 1 + 3, 10 + 1 + 3 + a[1, 0]]
    check(reused, 1, a, np.zeros(3), expected=out)


@weft.kernel
def read_behind(n, out):
    x = 5
    while n > 0:
        x = n
        n -= 2
        if x == 3:
            break
        y = x
        out[0] += y
        y = (x, x)
        out[1] += y[1]
    else:
        out[2] = 7
    out[3] = x


@pytest.mark.parametrize("n", [0, 1, 4, 7])
def test_what_is_read_behind_a_loop_is_kept(n: int) -> None:
    """A name that is read behind its loop has the value of the last turn, or that of before."""
    out = np.zeros(4)
    read_behind.__weft_function__(n, out)
    check(read_behind, 1, n, np.zeros(4), expected=out)


# --- all elements of an array


@weft.kernel
def flat_of(a, b, which, out):
    flat = a[::2, 1:].flat if which else b[::-1, ::2].flat
    k = 0
    for x in flat:
        out[k] = x
        k += 1
    flat[1] = 50
    out[k] = flat[1]
    out[k + 1] = len(flat) + flat.size
    for n, (x, y) in enumerate(zip(flat, b, strict=False)):
        out[k + 2] += n * x + y[0]


@pytest.mark.parametrize("which", [0, 1])
def test_flat_of_one_of_several_parts(which: int) -> None:
    """All elements of a part, chosen when the kernel runs."""
    a, b = np.arange(12.0).reshape(4, 3), np.arange(10.0, 18).reshape(2, 4)
    part = (a[::2, 1:] if which else b[::-1, ::2]).copy().ravel()
    walked = [*part]
    part[1] = 50
    after = b.copy()
    if not which:
        after[1, 2] = 50
    told = sum(n * x + y[0] for n, (x, y) in enumerate(zip(part, after, strict=False)))
    check(flat_of, 1, a, b, which, np.zeros(8), expected=[*walked, 50, 2 * len(part), told, 0])


@weft.kernel
def both_walked(a, b, out):
    for x in np.nditer(a):
        out[0] += x.item()
    for x, y in np.nditer((a, b)):
        out[1] = 3 * out[1] + x[()] * y.item()
        out[2] += x.ndim
    for y in np.nditer(b):
        y[()] += 1
    for row in a if out[0] > 0 else a[::-1]:
        out[3] = 2 * out[3] + row[0]


@pytest.mark.parametrize("shape", [(3,), (1,), (2, 3), (2, 1), (1, 1)])
def test_nditer(shape: tuple[int, ...]) -> None:
    """One array or several, whose shapes are broadcast."""
    a, b = np.arange(1.0, 7).reshape(2, 3), np.arange(2.0, 2 + np.prod(shape)).reshape(shape)
    total = 0.0
    for x, y in np.nditer((a, b)):  # type: ignore[call-overload]
        total = 3 * total + x * y
    for run in (both_walked[1, 1], weft.sanitize(both_walked, 1, 1)):
        held, out = b.copy(), np.zeros(4)
        run(a, held, out)
        np.testing.assert_array_equal(out, [21, total, 0, 2 * a[0, 0] + a[1, 0]])
        np.testing.assert_array_equal(held, b + 1)


def test_nditer_of_shapes_that_differ() -> None:
    """Shapes that cannot be broadcast stop the kernel."""
    with pytest.raises(weft.errors.LaunchError, match="could not be broadcast"):
        both_walked[1, 1](np.ones((2, 3)), np.ones(2), np.zeros(4))


@weft.kernel
def of_ranges(first, last, step, out):
    r = range(first, last, step)
    out[0] = len(r)
    out[1] = r.start + r.stop + r.step
    for k in range(-9, 10):
        out[2] += k in r
        out[3] += k not in range(first, last)


@pytest.mark.parametrize(("first", "last", "step"), [(-3, 8, 2), (7, -8, -3), (1, 1, 5), (2, 0, 1)])
def test_ranges_tell_of_themselves(first: int, last: int, step: int) -> None:
    """Their lengths, ends and what is in them."""
    out = np.zeros(4)
    of_ranges.__weft_function__(first, last, step, out)
    check(of_ranges, 1, first, last, step, np.zeros(4), expected=out)


# --- members of enumerations


@weft.kernel
def of_members(out):
    for k, level in enumerate(Level):
        out[k] = level
    out[2] = Color(5) is Color.GREEN
    out[3] = Level(7)


def test_members_by_their_values() -> None:
    """An enumeration is walked, and called with a value that is known."""
    check(of_members, 1, np.zeros(4), expected=[1, 7, 1, 7])


@weft.kernel
def member_of(n, out):
    out[0] = Color(n) is Color.RED


@weft.kernel
def no_member(out):
    out[0] = Level(2)


def test_members_by_values_that_are_not_known() -> None:
    """Kernels know a member by a value that is there when they are compiled."""
    with pytest.raises(KernelError, match=r"compare with the values: Color\.name\.value"):
        member_of[1, 1](3, np.zeros(1))
    with pytest.raises(KernelError, match="2 is not a valid Level"):
        no_member[1, 1](np.zeros(1))


# --- views of complex numbers


@weft.kernel
def as_complex(a, z, wide, out):
    i = gpu.grid(1)
    pairs = a.view(np.complex128)
    out[i] = pairs[i] * 2
    floats = z[::1].view(np.float64)
    floats[2 * i + 1] += 1
    z.real[i] -= 3
    z.imag[i] *= 2
    out[i] += z.view(np.complex64)[2 * i] * 0
    out[i] += wide.view(np.complex128)[i, 0]


def test_views_between_complex_numbers_and_floats() -> None:
    """Two floats side by side are a complex number, and the other way round."""
    a, z = np.arange(1.0, 7), np.array([1 + 2j, 3 - 1j, 0.5j])
    wide = np.arange(12.0).reshape(3, 2, 2)[:, 0]
    for run in (as_complex[1, 3], weft.sanitize(as_complex, 1, 3)):
        held, out = z.copy(), np.zeros(3, complex)
        report = run(a, held, wide.copy(), out)
        assert report is None or not report.findings
        np.testing.assert_array_equal(held, z.real - 3 + 1j * (2 * (z.imag + 1)))
        expected = 2 * a.view(complex) + np.ascontiguousarray(wide).view(complex)[:, 0]
        np.testing.assert_array_equal(out, expected)


@weft.kernel
def odd_view(a, out):
    out[0] = a.view(np.complex64)[0].real


def test_views_that_do_not_fit() -> None:
    """An odd number of floats, and floats that are apart."""
    with pytest.raises(weft.errors.LaunchError, match="not filled"):
        odd_view[1, 1](np.ones(3, np.float32), np.zeros(1))
    with pytest.raises(weft.errors.LaunchError, match="side by side"):
        odd_view[1, 1](np.ones(8, np.float32)[::2], np.zeros(1))


@weft.kernel
def far_steps(x, steps, places, out):
    i = gpu.grid(1)
    r = range(0, 9, steps[i])
    out[i, 0] = x[::steps[i]].size
    out[i, 1] = x[:2:-steps[i]].size
    out[i, 2] = len(r)
    out[i, 3] = places[i] in r
    for k in r:
        out[i, 4] += k
    out[i, 5] = x[::(1 << 63) - 1].size


def test_steps_beyond_all_ends_and_places_between_them() -> None:
    """A step that would wrap around leaves the first element; no range has a fraction."""
    steps = [(1 << 63) - 1, -(1 << 62), 1 << 62, -1, 2, 3]
    places = [0.0, 0.0, 0.5, 4.0, 4.5, 3.0]
    x = np.arange(7)
    expected = [[len(x[::s]), len(x[:2:-s]), len(range(0, 9, s)), p in range(0, 9, s),
                 sum(range(0, 9, s)), 1] for s, p in zip(steps, places, strict=True)]
    check(far_steps, 6, x, np.array(steps), np.array(places), np.zeros((6, 6), np.int64),
          expected=np.array(expected))


@weft.kernel
def ends_of_ranges(n, step, out):
    out[0] = max(range(n))
    out[1] = min(range(n))
    out[2] = max(range(n, -20, -step))
    out[3] = min(range(n, -20, -step))


@pytest.mark.parametrize(("n", "step"), [(1, 1), (5, 3), (9, 40)])
def test_extremes_of_ranges(n: int, step: int) -> None:
    """They are at the ends, and an empty one has none."""
    expected = np.zeros(4, np.int64)
    ends_of_ranges.__weft_function__(n, step, expected)
    check(ends_of_ranges, 1, n, step, np.zeros(4, np.int64), expected=expected)
    with pytest.raises(LaunchError, match="max of an empty range"):
        ends_of_ranges[1, 1](0, 1, np.zeros(4, np.int64))


def test_extremes_of_pairs_are_refused_where_they_stand() -> None:
    @weft.kernel
    def largest(a: Any, out: Any) -> None:
        out[0] = max(enumerate(a))[0]

    with pytest.raises(KernelError, match=r"max of enumerate or zip\n(?s:.*)compare") as error:
        largest[1, 1](np.ones(3), np.ones(1))
    assert "folds" not in str(error.value)


@weft.kernel
def moved(a, b, n, m):
    a[n:] = a[:a.size - n]
    b[1, m:8] = b[1, :8 - m]
    b[0, :8 - m] = b[0, m:8]
    b[2:0:-1, 0] = b[1:3, 2]
    a[:2] = a[4:2:-1]


@pytest.mark.parametrize("n", [0, 1, 3, 8])
def test_parts_of_an_array_move_along_it(n: int) -> None:
    """As if all of them were read first."""
    a, b = np.arange(9.0), np.arange(24.0).reshape(3, 8)
    for run in (moved[1, 1], weft.sanitize(moved, 1, 1)):
        found, wanted = (a.copy(), b.copy()), (a.copy(), b.copy())
        run(*found, n, min(n, 7))
        moved.__weft_function__(*wanted, n, min(n, 7))
        np.testing.assert_array_equal(found[0], wanted[0])
        np.testing.assert_array_equal(found[1], wanted[1])


def test_parts_are_not_reversed_in_place() -> None:
    @weft.kernel
    def reversed_(a: Any) -> None:
        a[:] = a[::-1]

    reversed_[1, 1](np.ones(1))
    with pytest.raises(LaunchError, match="own elements in reverse order"):
        reversed_[1, 1](np.ones(4))


# --- what programs ask of values


@weft.kernel
def asked(a, z, n, out):
    for k, x in enumerate(a, 2):
        out[0] += k * x
    for k, (x, y) in enumerate(zip(a, (1, 2), strict=False), start=n):
        out[1] += k * x * y
    out[2] = operator.neg(n) + operator.pos(n) * 10 + operator.invert(n) * 100
    out[3] = operator.not_(n) + 2 * operator.truth(n) + 4 * bool(z[0]) + 8 * bool(z[1])
    out[4] = (a is a) + 2 * (a is not z) + 4 * operator.contains((1, n), 3) + 8 * bool(0.0)
    out[5] = (a.dtype == np.float64) + 2 * (np.complex64 == z.dtype) + 4 * (a.dtype != "float32")
    out[6] = operator.abs(-n) + operator.is_(None, None)


@pytest.mark.parametrize("n", [0, 3])
def test_what_values_are_asked(n: int) -> None:
    """Numbers, truth, identity and dtypes, by names and by operators."""
    a, z, out = np.arange(1.0, 4), np.array([1j, 0], np.complex64), np.zeros(7)
    asked.__weft_function__(a, z, n, out)
    assert out[5] == 7
    check(asked, 1, a, z, n, np.zeros(7), expected=out)
