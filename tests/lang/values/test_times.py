"""Times in kernels: ``datetime64`` and ``timedelta64`` as arrays, numbers, constants and fields."""

import itertools
from typing import Any

import numpy as np
import pytest

import weft
from weft import gpu
from weft.compat import cuda, guvectorize, types, vectorize
from weft.compat.numba_types import from_dtype
from weft.errors import KernelError, LaunchError

pytestmark = pytest.mark.usefixtures("compiled")

UNITS = ("Y", "M", "W", "D", "h", "m", "s", "ms", "us", "ns")
NAT = np.datetime64("NaT")


def check(kernel: Any, threads: int, *args: Any, expected: Any) -> None:
    """Run a kernel, compiled and under the sanitiser, on copies of its arguments."""
    for run in (kernel[1, threads], weft.sanitize(kernel, 1, threads)):
        copies = [np.array(a) if isinstance(a, np.ndarray) else a for a in args]
        report = run(*copies)
        assert report is None or not report.findings
        np.testing.assert_array_equal(copies[-1], expected)


def dates(unit: str) -> Any:
    """Return dates that all units from 1970 - 290 to 1970 + 290 years hold, and none."""
    held = ["1700-01-01", "1899-12-31", "1900-03-01", "1969-12-31", "1970-01-01", "1972-02-29",
            "2000-02-29", "2000-03-01", "2099-07-14", "2100-03-01", "2260-12-31", "NaT"]
    return np.array(held, f"datetime64[{unit}]")


@weft.kernel
def of_dates(a, b, after, out):
    i = gpu.grid(1)
    after[i] = a[i] - b[i]
    out[i, 0] = a[i] == b[i]
    out[i, 1] = a[i] != b[i]
    out[i, 2] = a[i] < b[i]
    out[i, 3] = a[i] <= b[i]
    out[i, 4] = a[i] > b[i]
    out[i, 5] = a[i] >= b[i]


@pytest.mark.grid
@pytest.mark.parametrize("second", UNITS)
@pytest.mark.parametrize("first", ["M", "D", "ns"])
def test_dates_of_all_units(first: str, second: str) -> None:
    """A difference has the finer unit; no date compares with any."""
    pairs = itertools.product(dates(first), dates(second))
    a, b = (np.array(side) for side in zip(*pairs, strict=True))
    after = np.zeros(len(a), (a - b).dtype)
    expected = np.stack([a == b, a != b, a < b, a <= b, a > b, a >= b], 1)
    for run in (of_dates[1, len(a)], weft.sanitize(of_dates, 1, len(a))):
        found, out = after.copy(), np.zeros(expected.shape, np.bool_)
        run(a, b, found, out)
        np.testing.assert_array_equal(found, a - b)
        np.testing.assert_array_equal(out, expected)


@weft.kernel
def met(a, b, n, out, later):
    i = gpu.grid(1)
    held = a[i]
    if n[i] > 0:
        held = b[i]
    out[i, 0] = held
    out[i, 1] = b[i] if n[i] < 0 else a[i]
    last = a[i]
    for k in range(n[i] + 2):
        if k == 2:
            last = b[i]
    later[i] = last


@pytest.mark.parametrize(("first", "second"), [("D", "s"), ("s", "D"), ("Y", "D"), ("ms", "M")])
def test_units_that_meet_in_a_name(first: str, second: str) -> None:
    """Behind branches and loops a name has the finer of two units."""
    a, b = dates(first), dates(second)[::-1].copy()
    n = np.arange(len(a)) % 3 - 1
    kind = (a - b).dtype.str.replace("m8", "M8")
    out, later = np.zeros((len(a), 2), kind), np.zeros(len(a), kind)
    expected = np.stack([np.where(n > 0, b, a), np.where(n < 0, b, a)], 1)
    for run in (met[1, len(a)], weft.sanitize(met, 1, len(a))):
        out[:], later[:] = NAT, NAT
        run(a, b, n, out, later)
        np.testing.assert_array_equal(out, expected)
        np.testing.assert_array_equal(later, expected[:, 0])


@weft.kernel
def moved(a, b, later, sooner, turned):
    i = gpu.grid(1)
    later[i] = a[i] + b[i]
    sooner[i] = a[i] - b[i]
    turned[i] = b[i] + a[i]


@pytest.mark.parametrize(("date", "length"), [("D", "D"), ("D", "s"), ("s", "D"), ("ms", "W"),
                                              ("Y", "D"), ("M", "h"), ("M", "Y"), ("Y", "M")])
def test_dates_and_lengths(date: str, length: str) -> None:
    """A date and a length of time are a date in the finer unit."""
    a = dates(date)
    b = np.array([*range(-5, 6), "NaT"], f"timedelta64[{length}]")
    outs = [np.zeros(len(a), (a + b).dtype) for _ in range(3)]
    moved[1, len(a)](a, b, *outs)
    for found, expected in zip(outs, (a + b, a - b, b + a), strict=True):
        np.testing.assert_array_equal(found, expected)


@weft.kernel
def of_lengths(a, b, both, ratio, whole, tests):
    i = gpu.grid(1)
    x, y = a[i], b[i]
    both[i, 0] = x + y
    both[i, 1] = x - y
    both[i, 2] = x % y
    both[i, 3] = -x
    both[i, 4] = abs(+x)
    both[i, 5] = np.maximum(x, y)
    both[i, 6] = np.minimum(x, y)
    both[i, 7] = np.fmax(x, y)
    both[i, 8] = np.fmin(x, y)
    both[i, 9] = divmod(x, y)[1]
    both[i, 10] = np.add(x, y)
    ratio[i] = x / y
    whole[i] = x // y
    tests[i, 0] = x < y
    tests[i, 1] = x == y
    tests[i, 2] = x != y
    tests[i, 3] = x >= y
    tests[i, 4] = np.isnat(x)
    tests[i, 5] = np.isfinite(y)
    tests[i, 6] = np.int64(np.sign(x)) == 1


@pytest.mark.parametrize(("first", "second"), [("s", "s"), ("D", "h"), ("ms", "m"), ("Y", "M"),
                                               ("generic", "s")])
def test_lengths_of_time(first: str, second: str) -> None:
    """Arithmetic, comparisons and functions of lengths of time, in the finer unit."""
    counts = [-70, -61, -60, -1, 0, 1, 2, 59, 60, 7, "NaT"]
    pairs = list(itertools.product(counts, counts))
    a = np.array([p for p, _ in pairs], np.dtype("m8" if first == "generic" else f"m8[{first}]"))
    b = np.array([q for _, q in pairs], f"timedelta64[{second}]")
    n, unit = len(a), (a + b).dtype
    with np.errstate(all="ignore"):
        both = np.stack([v.astype(unit) for v in (
            a + b, a - b, a % b, -a, abs(a), np.maximum(a, b), np.minimum(a, b), np.fmax(a, b),
            np.fmin(a, b), a % b, a + b)], 1)
        ratio, whole = a / b, a // b
    tests = np.stack([a < b, a == b, a != b, a >= b, np.isnat(a), np.isfinite(b),
                      np.sign(a).astype(np.int64) == 1], 1)
    found = (np.zeros(both.shape, unit), np.zeros(n), np.zeros(n, np.int64),
             np.zeros(tests.shape, np.bool_))
    of_lengths[1, n](a, b, *found)
    for one, expected in zip(found, (both, ratio, whole, tests), strict=True):
        np.testing.assert_array_equal(one, expected)


def test_what_is_not_infinite() -> None:
    """NumPy's sign of no time is none, and a length by no length is no number."""
    zero, none = np.zeros(2, "m8[s]"), np.array([5, "NaT"], "m8[s]")
    ratio, whole = np.zeros(2), np.zeros(2, np.int64)
    of_lengths[1, 2](none, zero, np.zeros((2, 11), "m8[s]"), ratio, whole,
                     np.zeros((2, 7), np.bool_))
    assert ratio[0] == np.inf
    assert np.isnan(ratio[1])
    assert whole.tolist() == [0, 0]


@weft.kernel
def by_floats(a, real, out):
    i = gpu.grid(1)
    out[i, 0] = a[i] * real[i]
    out[i, 1] = a[i] / real[i]


@pytest.mark.parametrize("d", [np.float32, np.float64])
def test_floats_scale_all_counts(d: Any) -> None:
    """Counts that float32 has not are kept; what no count is becomes no time."""
    counts = (1, -7, (1 << 24) + 1, 1 << 62, -(1 << 62), 0)
    real = (1.0, -0.5, 1e30, np.inf, -np.inf, np.nan, 0.25, 2.0)
    a, r = np.repeat(np.array(counts, "m8[s]"), len(real)), np.array(real * len(counts), d)
    with np.errstate(all="ignore"):
        exact = [a.view(np.int64) * np.float64(r), a.view(np.int64) / np.float64(r)]
    held = [np.where(np.abs(e) < 2.0**63, e, np.nan) for e in exact]
    none = np.isnan(np.stack(held, 1))
    expected = np.trunc(np.where(none, 0, np.stack(held, 1))).astype(np.int64).view("m8[s]")
    expected[none] = NAT - NAT
    check(by_floats, len(a), a, r, np.zeros((len(a), 2), "m8[s]"), expected=expected)


@weft.kernel
def stored_alone(x, out):
    out[0] = x


@pytest.mark.parametrize("x", ["M8[s]", "m8[s]", "c16"])
def test_arrays_without_axes_are_numbers(x: str) -> None:
    check(stored_alone, 1, np.array(3, x), np.zeros(1, x), expected=np.array([3], x))


@weft.kernel
def scaled(a, whole, real, out):
    i = gpu.grid(1)
    out[i, 0] = a[i] * whole[i]
    out[i, 1] = whole[i] * a[i]
    out[i, 2] = a[i] * real[i]
    out[i, 3] = a[i] / whole[i]
    out[i, 4] = a[i] // whole[i]
    out[i, 5] = a[i] / real[i]
    a[i] *= 2
    out[i, 6] = a[i]


def test_lengths_and_numbers() -> None:
    """A length by a number is cut off at the point, as in numba; by nothing it is none."""
    a = np.array([-7, 7, 9, -9, 0, 5, "NaT", 3], "m8[m]")
    whole = np.array([2, -2, 3, 0, 5, 1, 4, -1], np.int32)
    real = np.array([2.5, -0.5, np.nan, 0.0, 1.0, 3.0, 2.0, -1.5])
    counts = a.astype(np.int64)
    by = [np.trunc(c / w) if w else 0 for c, w in zip(counts, whole, strict=True)]
    quotient = np.where((whole == 0) | np.isnat(a), np.timedelta64("NaT", "m"),
                        np.array(by).astype("m8[m]"))
    with np.errstate(all="ignore"):
        expected = np.stack([a * whole, whole * a, a * real, quotient, quotient, a / real,
                             a * 2], 1)
    check(scaled, 8, a, whole, real, np.zeros((8, 7), "m8[m]"), expected=expected)


START = np.datetime64("2001-02-03T04:05", "m")
STEP = np.timedelta64(90, "m")
NONE = np.timedelta64("NaT", "m")
STEPS = np.array([1, -2, 3], "m8[h]")


@weft.kernel
def of_constants(days, count, date, length, out):
    i = gpu.grid(1)
    shared = gpu.shared.array(4, np.dtype("datetime64[m]"))
    local = gpu.local.array(2, days.dtype)
    shared[i] = START + STEP * i
    gpu.syncthreads()
    best = NONE
    for k in range(4):
        gap = shared[k] - START
        if np.isnat(best) or gap > best:
            best = gap
    local[0] = days[i]
    chosen = local[0] if i % 2 else np.datetime64("1999-12-31")
    out[i, 0] = START + best
    out[i, 1] = chosen
    out[i, 2] = date + length + STEPS[i % 3]
    out[i, 3] = np.datetime64(count, "D") - np.timedelta64(i, "W")
    out[i, 4] = max(START, date + length) if length else days[i]
    out[i, 5] = np.datetime64(days.view(np.int64)[i], "D")
    out[i, 6] = days.dtype.type(count)


def test_constants_casts_and_memories() -> None:
    """Times from outside, made in a kernel, in shared and local memory, and in loops."""
    days, date = dates("D")[4:8], np.datetime64("2010-05-06", "h")
    length = np.timedelta64(7, "D")
    expected = np.zeros((4, 7), "M8[s]")
    for i in range(4):
        expected[i] = [START + 3 * STEP, days[i] if i % 2 else np.datetime64("1999-12-31"),
                       date + length + STEPS[i % 3],
                       np.datetime64(1000, "D") - np.timedelta64(i, "W"), date + length, days[i],
                       np.datetime64(1000, "D")]
    check(of_constants, 4, days, 1000, date, length, np.zeros((4, 7), "M8[s]"), expected=expected)


@weft.kernel
def of_records(events, ticks, out):
    i = gpu.grid(1)
    event = events[i]
    event.length = event.end - event["begin"]
    out[i] = events[i].length * 2
    out[i + 3] = ticks.T[0, i]
    out[i + 6] = ticks[::-1].flat[i]


def test_fields_of_records_and_strides() -> None:
    """Times in records, and in arrays that are turned."""
    kind = np.dtype([("begin", "M8[s]"), ("n", np.int8), ("end", "M8[ms]"), ("length", "m8[us]")])
    for layout in (kind, np.dtype(kind.descr, align=True)):
        events = np.zeros(3, layout)
        events["begin"] = ["2020-01-01", "NaT", "2021-02-03T04:05:06"]
        events["end"] = ["2020-01-02", "2020-01-02", "2021-02-03T04:05:07.089"]
        ticks = np.array([[3, 4, 5], ["NaT", 7, 8], [1, 2, 0]], "m8[us]")[:, ::2]
        length = (events["end"] - events["begin"]).astype("m8[us]")
        expected = [*(length * 2), *ticks[:, 0], *ticks[::-1].flat[:3]]
        held = events.copy()
        of_records[1, 3](held, ticks, out := np.zeros(9, "m8[us]"))
        np.testing.assert_array_equal(out, np.array(expected))
        np.testing.assert_array_equal(held["length"], length)


def test_functions_of_elements() -> None:
    """``vectorize``, ``guvectorize`` and ``cuda.reduce`` of times, with and without types."""
    day, length = types.NPDatetime("D"), from_dtype(np.dtype("m8[D]"))
    a = np.arange("2005-02", "2006-02", dtype="M8[D]")
    b = a + np.arange(len(a)) * 3

    @vectorize([(day, day)], target="cuda")
    def apart(start: Any, end: Any) -> Any:
        return end - start

    @vectorize
    def far(start: Any, end: Any) -> Any:
        return end - start > np.timedelta64(9, "D")

    @guvectorize([(day, day, length[:])], "(),()->()", target="cuda")
    def apart_into(start: Any, end: Any, out: Any) -> None:
        out[0] = end - start

    np.testing.assert_array_equal(apart(a, b), b - a)
    np.testing.assert_array_equal(far(a, b), b - a > np.timedelta64(9, "D"))
    np.testing.assert_array_equal(apart_into(a, b), b - a)

    @cuda.reduce
    def total(x: Any, y: Any) -> Any:
        return x + y

    assert total(b - a, init=np.timedelta64(0, "D")) == (b - a).sum()
    held = cuda.to_device(a)
    counts = held.view(np.int64)
    assert counts.copy_to_host().tolist() == a.view(np.int64).tolist()
    assert counts.gpu_data == held.gpu_data
    assert hash(counts.gpu_data) == hash(held.gpu_data)
    assert counts[1:].gpu_data != held.gpu_data


@weft.kernel
def wrong(dates, lengths, out):
    i = gpu.grid(1)
    out[0] = dates[i] + dates[i]
    out[0] = lengths[i] - dates[i]
    out[0] = dates[i] * 2
    out[0] = -dates[i]
    out[0] = dates[i] < lengths[i]
    lengths[i] = 5
    lengths[i] = lengths[i] + np.timedelta64(3, "ms")
    out[0] = abs(dates[i])
    out[0] = np.int32(lengths[i])
    out[0] = np.sqrt(lengths[i])
    out[0] = lengths[i] < np.timedelta64(3, "M")
    out[0] = gpu.atomic.add(lengths, 0, 1)


def test_what_times_lack() -> None:
    """Each line is told with what is wrong in it."""
    with pytest.raises(KernelError) as caught:
        wrong[1, 1](dates("D"), np.zeros(12, "m8[s]"), np.zeros(1))
    text = str(caught.value)
    assert "12 errors" in text
    for message in ("for +: datetime64[D] and datetime64[D]", "for -: timedelta64[s] and datetime",
                    "for *: datetime64[D] and int 2", "operand for -: datetime64[D]",
                    "for <: datetime64[D] and timedelta64[s]",
                    "cannot store int 5 in an array of timedelta64[s]",
                    "cannot store timedelta64[ms] in an array of timedelta64[s]",
                    "units become finer", "abs of datetime64[D]", "to int32",
                    "numpy.sqrt of timedelta64[s]", "for <: timedelta64[s] and timedelta64[M]"):
        assert message in text


def test_units_that_kernels_lack() -> None:
    """A unit of several seconds has no kind of its own; bytes in another order have none here."""
    out = np.zeros((2, 6), np.bool_)
    late = np.zeros(2, "M8[25s]")
    with pytest.raises(LaunchError, match=r"datetime64\[25s\] for a"):
        of_dates[1, 2](late, late, np.zeros(2, "m8[s]"), out)
    foreign = np.zeros(2, ">M8[s]")
    with pytest.raises(LaunchError, match="foreign byte order"):
        of_dates[1, 2](foreign, foreign, np.zeros(2, "m8[s]"), out)
