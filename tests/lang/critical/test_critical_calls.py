"""Calls of critical functions: results, conversions, errors, variants, native and by Python."""

import math
from array import array
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pytest

import weft
from weft.errors import (
    DeviceError,
    DTypeError,
    KernelError,
    LaunchError,
    RangeError,
    ShapeError,
)
from weft.runtimes.native.calls.callables import address_in


class Quote(NamedTuple):
    bid: weft.float64
    ask: weft.float64
    size: weft.int32


@dataclass
class Position:
    quantity: weft.int64
    cost: weft.float64


def is_native(function):
    from weft.lang.critical.function import CriticalFunction

    return address_in(function, CriticalFunction) != 0


def refuse(function):
    """Make calls fail that Python would have to take apart."""

    def miss(*args, **kwargs):
        raise AssertionError("a call that native code does not take")

    object.__setattr__(function, "_miss", miss)


@weft.critical(target_latency_ns=100)
def risk(position: weft.float64, price: weft.float64, limit: weft.float64) -> weft.bool:
    """Tell whether a position is small enough."""
    return abs(position * price) < limit


def test_a_scalar_function_returns_what_python_returns():
    function = risk.__wrapped__
    for args in ((1.0, 2.0, 3.0), (1.0, 3.0, 3.0), (-5.0, 2.0, 10.0), (math.inf, 0.0, 1.0),
                 (math.nan, 1.0, 1.0), (-0.0, 1.0, 5e-324), (1.0, 1.0, math.inf)):
        assert risk(*args) is function(*args)
    assert risk.__name__ == "risk"
    assert risk.__doc__ == "Tell whether a position is small enough."
    assert is_native(risk)


def test_annotated_floats_take_other_numbers():
    risk(1.0, 2.0, 3.0)
    assert risk(1, 2, 3) is True
    assert risk(np.float64(1), np.float32(2), np.int16(3)) is True
    assert risk(position=1.0, limit=1.0, price=2.0) is False
    assert risk(np.array(1.0), 2.0, 3.0) is True


@pytest.mark.parametrize(("args", "error"), [
    (("1", 1.0, 1.0), DTypeError), ((None, 1.0, 1.0), DTypeError), ((1j, 1.0, 1.0), DTypeError),
    ((1.0, 1.0), LaunchError), ((1.0,) * 4, LaunchError), ((10**400, 1.0, 1.0), RangeError),
])  # fmt: skip
def test_wrong_arguments(args, error):
    risk(1.0, 2.0, 3.0)
    with pytest.raises(error) as caught:
        risk(*args)
    assert caught.value.where.file == __file__
    assert risk(1.0, 2.0, 3.0) is True  # and no exception stays behind


INTEGERS = ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"]


@pytest.mark.parametrize("name", INTEGERS)
def test_integers_of_every_width(name):
    d = getattr(weft, name)

    def f(a: d, b: d) -> d:
        return a - b

    function = weft.critical(f)
    low, high = int(np.iinfo(name).min), int(np.iinfo(name).max)
    assert function(high, low if low == 0 else 1) == (high if low == 0 else high - 1)
    for a, b in ((low, 0), (high, 0), (5, 3), (low, 1), (3, 5), (0, high)):
        with np.errstate(over="ignore"):
            expected = np.array(a, name) - np.array(b, name)
        assert function(a, b) == int(expected)
        assert type(function(a, b)) is int
    for wrong in (low - 1, high + 1):
        with pytest.raises(RangeError):
            function(wrong, 0)
    with pytest.raises(DTypeError):
        function(1.0, 0)
    assert function(np.int8(7), 2) == 5
    assert function(True, 0) == 1


@pytest.mark.parametrize("name", ["float16", "bfloat16", "float32", "float64"])
def test_floats_of_every_width(name):
    d = getattr(weft, name)

    def f(a: d, b: d) -> d:
        return a * b

    function = weft.critical(f)
    for a, b in ((1.5, 2.0), (0.1, 0.3), (-0.0, 1.0), (math.inf, -1.0), (1e-8, 1.0)):
        x, y = (np.array(v, d.numpy) for v in (a, b))
        expected = float(x * y)
        found = function(a, b)
        assert found == expected
        assert math.copysign(1, found) == math.copysign(1, expected)
    assert math.isnan(function(math.nan, 1.0))


def test_bools_take_nothing_else():
    @weft.critical
    def both(a: weft.bool, b: weft.bool) -> weft.bool:
        return a and not b

    assert [both(a, b) for a in (False, True) for b in (False, True)] == [False, False, True, False]
    assert both(np.bool_(True), False) is True
    with pytest.raises(DTypeError):
        both(1, 0)


def test_without_annotations_a_function_has_a_variant_for_each_type():
    @weft.critical
    def twice(x):
        return x + x

    assert twice(2) == 4
    assert type(twice(2)) is int
    assert twice(2.5) == 5.0
    assert twice(np.float32(0.1)) == float(np.float32(0.1) * 2)
    assert twice(True) == 2
    assert twice(2**62) == -(2**63)  # integers wrap
    assert len(twice._loaded) == 4
    object.__setattr__(twice, "_variant", None)
    refuse(twice)
    assert (twice(3), twice(1.5), twice(False)) == (6, 3.0, 0)  # all in native code
    with pytest.raises(AssertionError):
        twice("x")


def test_an_integer_of_more_than_64_bits():
    @weft.critical
    def same(x):
        return x

    assert same(-1) == -1  # which is also how the C API reports errors
    assert same(-(2**63)) == -(2**63)
    with pytest.raises(RangeError):
        same(2**63)


@weft.critical
def dot(x: weft.float64[:], y: weft.float64[:]) -> weft.float64:
    total = 0.0
    for i in range(len(x)):
        total += x[i] * y[i]
    return total


@pytest.mark.parametrize("n", [0, 1, 7, 64])
def test_arrays(n):
    rng = np.random.default_rng(n)
    x, y = rng.standard_normal(n), rng.standard_normal(n)
    expected = 0.0
    for a, b in zip(x, y, strict=True):
        expected += a * b
    assert dot(x, y) == expected
    wide = np.zeros((2 * n, 3))
    wide[::2, 1] = x
    assert dot(wide[::2, 1], y) == expected
    assert dot(x[::-1], y[::-1]) == pytest.approx(expected)
    x.flags.writeable = False
    assert dot(x, y) == expected


def test_arrays_are_taken_in_native_code():
    x, y = np.arange(3.0), np.ones(3)
    dot(x, y)
    miss = dot._miss
    refuse(dot)
    try:
        assert dot(x, y) == 3.0
        for other in (x[::2], x.astype(">f8"), x.reshape(1, 3), np.arange(3), [1.0, 2.0]):
            with pytest.raises(AssertionError):
                dot(other, other)
    finally:
        object.__delattr__(dot, "_miss")
    assert dot._miss == miss


def test_wrong_arrays():
    x = np.ones(3)
    for wrong, error in ((x.astype(np.float32), DTypeError), (x.reshape(3, 1), ShapeError),
                         (x.astype(">f8"), LaunchError), (1.0, DTypeError), ("x", DTypeError)):
        with pytest.raises(error):
            dot(x, wrong)
    with pytest.raises(IndexError) as caught:
        dot(x, x[:2])
    assert "index 2" in str(caught.value)
    assert "total += x[i] * y[i]" in str(caught.value)
    assert dot(array("d", [1.0, 2.0]), x[:2]) == 3.0  # anything with the buffer protocol


def test_fixed_sizes_and_layouts_are_contracts():
    @weft.critical
    def trace(a: weft.float32[3, 3]) -> weft.float32:
        return a[0, 0] + a[1, 1] + a[2, 2]

    a = np.arange(9, dtype=np.float32).reshape(3, 3)
    assert trace(a) == 12.0
    for wrong in (a[:2], a.T, np.zeros((3, 3, 1), np.float32)):
        with pytest.raises(ShapeError):
            trace(wrong)
    assert trace.compile() is trace

    @weft.critical
    def last(a: weft.int32[:, ::1]) -> weft.int32:
        return a[a.shape[0] - 1, a.shape[1] - 1]

    assert last(np.arange(6, dtype=np.int32).reshape(2, 3)) == 5
    with pytest.raises(ShapeError):
        last(np.arange(6, dtype=np.int32).reshape(2, 3).T)
    with pytest.raises(IndexError):
        last(np.zeros((0, 3), np.int32))


def test_a_function_writes_to_arrays():
    @weft.critical
    def scale(x: weft.float64[:], by: weft.float64):
        for i in range(x.size):
            x[i] *= by

    x = np.arange(5.0)
    assert scale(x, 2) is None
    np.testing.assert_array_equal(x, np.arange(5.0) * 2)
    scale(x[1::2], -1)
    np.testing.assert_array_equal(x, [0, -2, 4, -6, 8])
    x.flags.writeable = False
    with pytest.raises(KernelError, match="read-only"):
        scale(x, 2.0)


def test_structs_are_values():
    @weft.critical
    def fill(position: Position, quote: Quote, buy: weft.bool) -> Position:
        price = quote.ask if buy else quote.bid
        amount = quote.size if buy else -quote.size
        position.quantity += amount
        position.cost += amount * price
        return position

    before = Position(10, 5.0)
    after = fill(before, Quote(1.5, 2.0, 3), True)
    assert (before, after) == (Position(10, 5.0), Position(13, 11.0))
    assert fill(after, Quote(1.0, 2.0, 3), False) == Position(10, 8.0)
    refuse(fill)
    assert fill(before, Quote(1, 2, 4), True) == Position(14, 13.0)
    for wrong in ((1.0, 2.0, 3), Position(1, 2.0), None):
        with pytest.raises(AssertionError):
            fill(before, wrong, True)
    object.__delattr__(fill, "_miss")
    for wrong in ((1.0, 2.0, 3), Position(1, 2.0), None):
        with pytest.raises(DTypeError):
            fill(before, wrong, True)
    with pytest.raises(RangeError):
        fill(before, Quote(1.0, 2.0, 1 << 40), True)
    missing = object.__new__(Position)
    with pytest.raises(AttributeError):
        fill(missing, Quote(1.0, 2.0, 3), True)


def test_tuples_and_structs_without_annotations():
    @weft.critical
    def both(pair, quote):
        a, b = pair
        return Quote(a, quote.ask, b), (quote.bid, (b,))

    found = both((1.5, 2), Quote(3.0, 4.0, 5))
    assert found == (Quote(1.5, 4.0, 2), (3.0, (2,)))
    assert type(found[0]) is Quote
    refuse(both)
    assert both((1.5, 2), Quote(3.0, 4.0, 5)) == found
    with pytest.raises(AssertionError):
        both((1.5, 2, 3), Quote(3.0, 4.0, 5))


def test_arrays_in_structs():
    class Book(NamedTuple):
        prices: weft.float64[4]
        count: weft.int64

    def best(book: Book) -> weft.float64:
        found = book.prices[0]
        for i in range(1, book.count):
            found = max(found, book.prices[i])
        return found

    best.__annotations__["book"] = Book
    function = weft.critical(best)
    prices = np.array([1.0, 5.0, 3.0, 9.0])
    assert function(Book(prices, 3)) == 5.0
    refuse(function)
    assert function(Book(prices, 4)) == 9.0


def test_checks_of_the_function_itself():
    @weft.critical
    def root(x: weft.float64) -> weft.float64:
        assert x >= 0, "a negative number"
        return math.sqrt(x)

    assert root(2.0) == math.sqrt(2.0)
    with pytest.raises(LaunchError, match="a negative number") as caught:
        root(-1.0)
    assert "assert x >= 0" in str(caught.value)
    with pytest.raises(LaunchError):
        root(np.float32(-1.0))  # by Python


def test_unchecked_leaves_the_checks_of_indices_out():
    def second(x: weft.float64[:]) -> weft.float64:
        return x[1]

    checked, unchecked = weft.critical(second), weft.critical(unchecked=True)(second)
    x = np.arange(4.0)
    assert checked(x) == unchecked(x) == 1.0
    assert unchecked(x[:1]) == 1.0  # what lies behind it
    with pytest.raises(IndexError):
        checked(x[:1])


def test_local_arrays_and_device_functions():
    def cube(x):
        return x * x * x

    @weft.critical
    def polynomial(x: weft.float64) -> weft.float64:
        powers = weft.gpu.local.array(4, weft.float64)
        for i in range(4):
            powers[i] = cube(x + i)
        return powers[0] - powers[3]

    assert polynomial(2.0) == 8.0 - 125.0


def test_control_flow_with_several_returns():
    @weft.critical
    def collatz(n: weft.int64) -> weft.int64:
        steps = 0
        while n != 1:
            if steps > 1000:
                return -1
            n = n // 2 if n % 2 == 0 else 3 * n + 1
            steps += 1
        return steps

    assert [collatz(n) for n in (1, 2, 27, 97)] == [0, 1, 111, 118]
    assert collatz(0) == -1


def test_results_are_unified_and_converted():
    @weft.critical
    def mixed(x: weft.float64):
        if x > 0:
            return 1
        return x

    assert (mixed(2.0), mixed(-0.5)) == (1.0, -0.5)
    assert type(mixed(2.0)) is float

    @weft.critical
    def whole(x: weft.float64) -> weft.int32:
        return x

    assert whole(3.9) == 3


@pytest.mark.grid
@pytest.mark.parametrize("level", ["O0", "O1", "O2", "O3", "Os", "Olatency"])
@pytest.mark.parametrize("flags", [
    {}, {"unchecked": True}, {"inline_always": False}, {"no_null_check": True},
    {"no_allocation": False, "no_syscalls": False},
], ids=lambda f: "+".join(f) or "plain")  # fmt: skip
def test_levels_and_flags(level, flags):
    @weft.critical(level=level, **flags)
    def norm(x: weft.float32[:]) -> weft.float64:
        total = 0.0
        for i in range(x.size):
            total += weft.float64(x[i]) * x[i]
        return math.sqrt(total)

    x = np.arange(13, dtype=np.float32)
    assert norm(x) == math.sqrt(sum(float(v) ** 2 for v in x))
    refuse(norm)
    assert norm(x[:0]) == 0.0


def test_levels_make_different_code():
    sizes = {}
    for level in ("O0", "O3", "Os", "Olatency"):
        @weft.critical(level=level)
        def total(x: weft.float64[:], y: weft.float64[:]) -> weft.float64:
            found = 0.0
            for i in range(x.size):
                y[i] = 2 * x[i]
                found += y[i]
            return found

        sizes[level] = total._annotated().code.core
    assert len(set(sizes.values())) == 4


def test_unknown_options():
    with pytest.raises(weft.WeftError, match="O4"):
        weft.critical(level="O4")
    with pytest.raises(weft.WeftError, match="target_latency_ns"):
        weft.critical(target_latency_ns=0)
    with pytest.raises(KernelError):
        weft.critical(3)


def test_unknown_annotations():
    def f(x: "list[float]"):
        return x

    with pytest.raises(KernelError, match="annotation"):
        weft.critical(f)(1.0)

    def g(*args):
        return args

    with pytest.raises(KernelError, match="args"):
        weft.critical(g)(1.0)


@pytest.mark.parametrize(("body", "message"), [
    (lambda: returns_sometimes, "returns a value on some ways only"),
    (lambda: returns_text, "returns str"),
    (lambda: uses_threads, "has no value in this kind of kernel|critical function"),
    (lambda: synchronises, "in a critical function"),
    (lambda: wrong_result, "annotated with another result"),
])  # fmt: skip
def test_what_is_no_critical_function(body, message):
    function = body()
    with pytest.raises(KernelError, match=message) as caught:
        weft.critical(function)(1.0)
    assert caught.value.problems


def returns_sometimes(x):
    if x > 0:
        return x


def returns_text(x):
    return "text"


def uses_threads(x):
    return weft.gpu.threadIdx.x + x


def synchronises(x):
    weft.gpu.syncthreads()
    return x


def wrong_result(x) -> Quote:
    return x


@pytest.mark.slow
def test_a_function_dies_with_its_last_name():
    import gc
    import weakref

    def make():
        @weft.critical
        def plus(x: weft.int64) -> weft.int64:
            return x + 1

        assert plus(1) == 2
        return plus

    function = make()
    seen = weakref.ref(function)
    assert function(41) == 42
    del function
    gc.collect()
    assert seen() is None


def test_threads_call_at_the_same_time():
    from concurrent.futures import ThreadPoolExecutor

    @weft.critical
    def square(x):
        return x * x

    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(square, [*range(200), *(k / 2 for k in range(200))]))
    assert found == [k * k for k in range(200)] + [k * k / 4 for k in range(200)]


def test_references_are_given_back():
    import sys

    @weft.critical
    def take(quote: Quote, position: Position) -> weft.float64:
        return quote.bid + position.cost

    quote, position = Quote(1.0, 2.0, 3), Position(4, 1234.5)
    take(quote, position)
    things = quote, position, position.cost, None, True
    before = [sys.getrefcount(t) for t in things]
    for _ in range(1000):
        take(quote, position)
        with pytest.raises(DTypeError):
            take(position, position)
        if _ > 20:
            break
    for _ in range(1000):
        take(quote, position)
    after = [sys.getrefcount(t) for t in things]
    assert all(abs(a - b) < 20 for a, b in zip(after, before, strict=True))


def test_no_arguments_and_many():
    @weft.critical
    def seven():
        return 7

    assert seven() == seven() == 7
    names = [f"a{k}" for k in range(20)]

    @weft.critical
    def many(a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12, a13, a14, a15, a16, a17,
             a18: weft.float32, a19: weft.int8):  # fmt: skip
        return a0 + 2 * a9 + 3 * a17 + 4 * a18 + a19, a1 - a16

    values = [float(k) if k % 2 else k for k in range(20)]
    assert len(names) == len(values)
    values[19] = 19
    expected = (0 + 18.0 + 51.0 + 72 + 19, 1.0 - 16)
    assert many(*values) == many(*values) == expected


def test_arrays_of_every_type_and_several_axes():
    @weft.critical
    def corner(a, i, j, k):
        return a[i, j, k]

    for name in (*INTEGERS, "bool", "float16", "float32", "float64"):
        a = (np.arange(2 * 3 * 5).reshape(2, 3, 5) % 100).astype(name)
        for view in (a, a[:, ::-1], a.transpose(2, 0, 1), a[:, :, 1:4]):
            i, j, k = (n - 1 for n in view.shape)
            assert corner(view, i, j, k) == view[i, j, k]
            for wrong in ((i + 1, j, k), (i, j, -1)):
                with pytest.raises(IndexError):
                    corner(view, *wrong)
    largest = np.full((1, 1, 1), 2**64 - 1, np.uint64)
    assert corner(largest, 0, 0, 0) == 2**64 - 1


def test_constants_defaults_and_critical_functions_inside_each_other():
    @weft.critical
    def clip(x, low=0.0, high=1.0):
        return min(max(x, low), high)

    @weft.critical
    def both(x: weft.float64, mode="sum"):
        if mode == "sum":
            return clip(x) + clip(x, -1.0, high=0.5)
        return x

    assert clip(3.0) == 1.0
    assert clip(3.0, high=2.0) == 2.0
    assert both(3.0) == 1.5
    assert both(3.0, "same") == 3.0
    assert both(-3.0) == -1.0


def test_globals_are_frozen_when_a_function_is_compiled():
    scale = 3

    @weft.critical
    def times(x: weft.int64) -> weft.int64:
        return x * scale

    assert times(2) == 6
    scale = 5
    assert times(2) == 6


def test_writing_to_overlapping_arrays():
    @weft.critical
    def shift(x: weft.float64[:], y: weft.float64[:]):
        for i in range(x.size):
            y[i] = x[i] + 1

    a, b = np.zeros(50), np.zeros(50)
    shift(a[:-1], a[1:])
    for i in range(49):
        b[i + 1] = b[i] + 1
    np.testing.assert_array_equal(a, b)


def test_ieee_meaning_is_kept():
    @weft.critical
    def kahan(x: weft.float64[:]):
        total = lost = 0.0
        for i in range(x.size):
            y = x[i] - lost
            t = total + y
            lost = (t - total) - y
            total = t
        return total, lost

    x = np.random.default_rng(3).standard_normal(1001) * 10.0 ** np.arange(-8, 9).repeat(59)[:1001]
    assert kahan(x) == kahan.__wrapped__(x)

    @weft.critical
    def fused(a: weft.float64, b: weft.float64, c: weft.float64) -> weft.float64:
        return a * b + c

    a = 1 + 2.0**-30
    assert fused(a, a, -1 - 2.0**-29) == a * a - 1 - 2.0**-29
    assert fused(2, 3, 4) == 10.0


def test_everything_works_where_native_code_knows_no_objects(monkeypatch):
    from weft.driver import critical as driver
    from weft.lang.critical.function import CriticalFunction

    monkeypatch.setattr(driver, "_layouts", [None])

    @weft.critical
    def add(x: weft.float64, y: weft.int32) -> weft.float64:
        return x + y

    assert add(1.5, 2) == add(1.5, y=2) == 3.5
    assert not is_native(add)
    plain = CriticalFunction(add.__wrapped__, no_allocation=True, no_syscalls=True,
                             inline_always=True, unchecked=False, no_null_check=False,
                             target_latency_ns=None, cpu_affinity=None, level="O2")
    assert plain(1.5, 2) == 3.5
    with pytest.raises(DTypeError):
        plain(1.5, 2.5)


def test_jumps_in_the_else_of_a_loop_leave_the_loop_around_it():
    def search(n, stop):
        found = 0
        for i in range(n):
            for j in range(i):
                if i * j == stop:
                    break
            else:
                if i > 4:
                    break
                found += 1
                if i == 2:
                    continue
                found += 10
            found += 100
        return found

    function = weft.critical(search)
    for n in range(8):
        for stop in (0, 2, 6, 12, 100):
            assert function(n, stop) == search(n, stop)


@pytest.mark.parametrize("name", ["no_allocation", "no_syscalls", "inline_always", "unchecked",
                                  "no_null_check"])
def test_a_promise_is_made_or_not(name):
    with pytest.raises(KernelError, match=f"{name}='no'"):
        weft.critical(**{name: "no"})


def test_a_processor_that_is_no_number():
    @weft.critical(cpu_affinity="first")
    def double(x: weft.float64) -> weft.float64:
        return x * 2

    with pytest.raises(DeviceError, match="CPU first"), double.pinned():
        pass


@pytest.mark.parametrize("nested", [False, True])
def test_memory_of_another_device_is_refused_and_never_a_copy(nested):
    @weft.critical
    def twice(x):
        held = x[0] if nested else x
        for i in range(len(held)):
            held[i] *= 2

    here = np.arange(4.0)
    twice((here,) if nested else here)
    for device in ("interpreter", "null"):
        there = weft.arange(4.0, device=device)
        with pytest.raises(DeviceError) as caught:
            twice((there,) if nested else there)
        message = str(caught.value)
        for said in ("call of twice", f"memory of {device}", "to('cpu')", "twice((there"):
            assert said in message, said
    assert here.tolist() == [0.0, 2.0, 4.0, 6.0]
