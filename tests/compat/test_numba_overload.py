"""``@overload``: functions, methods and attributes of kernels that are chosen by types."""

import math

import numpy as np
import pytest
from weft.compat.core.errors import TypingError

from weft import errors
from weft.compat import cuda, njit, types
from weft.compat.extending import (
    overload,
    overload_attribute,
    overload_method,
    register_jitable,
)


def halved(x):
    """Stand for what kernels have in its place."""


@overload(halved, target="cuda")
def choose_halved(x):
    if isinstance(x, types.Integer):
        return lambda x: x // 2
    if isinstance(x, types.Float):
        def impl(x):
            return x / 2

        return impl
    if isinstance(x, types.UniTuple) and x.count == 2:
        return lambda x: halved(x[0]) + halved(x[1])
    if isinstance(x, types.Array) and x.ndim == 1 and isinstance(x.dtype, types.Float):
        def impl(x):
            for i in range(x.size):
                x[i] = halved(x[i])
            return x.size

        return impl
    return None


def test_the_types_of_the_arguments_choose():
    @cuda.jit
    def kernel(n, a, out):
        out[0] = halved(n)
        out[1] = halved(np.float32(5))
        out[2] = halved((n, 9.0))
        out[3] = halved((n, n))
        out[4] = halved(a)

    a, out = np.arange(7, dtype=np.float32), np.zeros(5)
    with pytest.raises(TypingError, match=r"no @overload of halved is for \(Tuple\(int64, float64"):
        kernel[1, 1](7, a, out)

    @cuda.jit
    def fitting(n, a, out):
        out[0] = halved(n)
        out[1] = halved(np.float32(5))
        out[2] = halved(a.size)
        out[3] = halved((n, n))
        out[4] = halved(a)

    fitting[1, 1](7, a, out)
    assert out.tolist() == [3, 2.5, 3, 6, 7]
    np.testing.assert_array_equal(a, np.arange(7) / 2)


def scaled(x, factor=3, *, shift=0):
    """Stand for what kernels have in its place."""


@overload(scaled, target="generic")
def choose_scaled(x, factor=3, *, shift=0):
    if isinstance(factor, types.Omitted):
        return lambda x, factor=3, *, shift=0: x * factor + 1000 + shift
    return lambda x, factor=3, *, shift=0: x * factor + shift


def test_defaults_and_names_of_arguments():
    @cuda.jit
    def kernel(out):
        out[0] = scaled(2)
        out[1] = scaled(2, 5)
        out[2] = scaled(2, factor=7, shift=1)
        out[3] = scaled(factor=2, x=4)

    out = np.zeros(4, np.int64)
    kernel[1, 1](out)
    assert out.tolist() == [1006, 10, 15, 8]


def placed():
    """Stand for what kernels have in its place."""


@overload(placed)
def placed_anywhere():
    return lambda: 1


@overload(placed, target="cuda")
def placed_on_a_device():
    return lambda: 2


@overload(placed, target="cpu")
def placed_on_the_host():
    return lambda: 3


@overload(placed, jit_options={"target": "generic"})
def placed_anywhere_again():
    return lambda: 4


def test_the_nearest_target_is_taken():
    @cuda.jit
    def kernel(out):
        out[0] = placed()

    out = np.zeros(1)
    kernel[1, 1](out)
    assert out[0] == 2


def chosen_by_value(x):
    """Stand for what kernels have in its place."""


@overload(chosen_by_value, prefer_literal=True)
def choose_by_value(x):
    if isinstance(x, types.IntegerLiteral):
        if x.literal_value == 1:
            return lambda x: 100
        raise TypingError("only one")
    if isinstance(x, types.StringLiteral):
        length = len(x.literal_value)
        return lambda x: length
    if isinstance(x, types.Literal):
        return None
    return lambda x: x * 10


def test_literals_are_tried_before_their_types():
    @cuda.jit
    def kernel(n, out):
        out[0], out[1], out[2] = chosen_by_value(1), chosen_by_value(2), chosen_by_value(n)
        out[3], out[4] = chosen_by_value("four"), chosen_by_value(2.5)

    out = np.zeros(5)
    kernel[1, 1](3, out)
    assert out.tolist() == [100, 20, 30, 4, 25]


def summary(*values):
    """Stand for what kernels have in its place."""


@overload(summary)
def choose_summary(*values):
    count = len(values)
    if all(isinstance(v, types.Integer) for v in values):
        def impl(*values):
            total = count * 100
            for v in values:
                total += v
            return total

        return impl
    return None


def test_any_number_of_arguments():
    @cuda.jit
    def kernel(n, out):
        out[0], out[1], out[2] = summary(), summary(n), summary(n, 2, n)

    out = np.zeros(3, np.int64)
    kernel[1, 1](5, out)
    assert out.tolist() == [0, 105, 312]


@overload_method(types.Array, "norm2", target="cuda")
def array_norm2(array, scale=1.0):
    if isinstance(array.dtype, types.Float):
        def impl(array, scale=1.0):
            total = 0.0
            for i in range(array.size):
                total += array[i] * array[i]
            return math.sqrt(total) * scale

        return impl
    return None


@overload_attribute(types.Array, "middle", target="cuda")
def array_middle(array):
    if array.ndim == 2:
        return lambda array: array[array.shape[0] // 2, array.shape[1] // 2]
    return lambda array: array[array.size // 2]


@overload_method(types.UniTuple, "total", target="cuda")
def tuple_total(items):
    return lambda items: items[0] + items[-1]


def test_methods_and_attributes_of_values():
    @cuda.jit
    def kernel(a, b, out):
        out[0] = a.norm2()
        out[1] = a.norm2(scale=2)
        out[2] = a[1:].norm2(3)
        out[3] = a.middle + b.middle
        out[4] = (a.size, 8).total()

    a, b, out = np.arange(4.0), np.arange(9.0).reshape(3, 3), np.zeros(5)
    kernel[1, 1](a, b, out)
    norm = math.sqrt(14)
    np.testing.assert_allclose(out, [norm, 2 * norm, 3 * norm, 6, 12])


def test_a_method_that_no_chooser_has():
    @cuda.jit
    def kernel(a, out):
        out[0] = a.norm2()

    with pytest.raises(TypingError, match=r"no @overload of .norm2 is for \(array\(int32, 1d, C\)"):
        kernel[1, 1](np.zeros(3, np.int32), np.zeros(1))


def test_functions_of_modules_get_more_types():
    @overload(math.degrees)
    def degrees_of_pairs(x):
        if isinstance(x, types.BaseTuple):
            return lambda x: x[0] + x[1] / 60
        return lambda x: x * (180 / math.pi)

    @cuda.jit
    def kernel(out):
        out[0], out[1] = math.degrees((10, 30)), math.degrees(math.pi)

    out = np.zeros(2)
    kernel[1, 1](out)
    np.testing.assert_allclose(out, [10.5, 180])


def test_functions_that_are_chosen_call_others():
    @register_jitable
    def plain(x):
        return x + 1

    @njit
    def compiled(x):
        return plain(x) * 2

    def outer(x):
        """Stand for what kernels have in its place."""

    @overload(outer)
    def choose_outer(x):
        return lambda x: compiled(x) + scaled(x, 2)

    @cuda.jit
    def kernel(out):
        i = cuda.grid(1)
        out[i] = outer(out[i])

    out = np.arange(5)
    kernel[1, 5](out)
    assert out.tolist() == [(x + 1) * 2 + x * 2 for x in range(5)]
    assert plain(1) == 2


def test_choosers_that_are_wrong():
    def first(x, y):
        """Stand for what kernels have in its place."""

    @overload(first)
    def choose_first(x, y):
        return lambda a, b: a

    def second(x):
        """Stand for what kernels have in its place."""

    @overload(second)
    def choose_second(x):
        return "x"

    @cuda.jit
    def names(out):
        out[0] = first(1, 2)

    @cuda.jit
    def text(out):
        out[0] = second(1)

    with pytest.raises(errors.KernelError, match=r"expected the parameters of the chooser: \(x, y"):
        names[1, 1](np.zeros(1))
    with pytest.raises(errors.KernelError, match="expected a function, or None"):
        text[1, 1](np.zeros(1))


def test_defaults_that_differ_and_choosers_that_are_not_strict():
    def given(x, y=1):
        """Stand for what kernels have in its place."""

    def choose(x, y=1):
        return lambda x, y=2: x + y

    @cuda.jit
    def kernel(out):
        out[0] = given(3)

    overload(given)(choose)
    with pytest.raises(errors.KernelError, match=r"found <lambda>\(x, y=2\)"):
        kernel[1, 1](np.zeros(1))

    def loose(x, y=1):
        """Stand for what kernels have in its place."""

    @overload(loose, strict=False)
    def choose_loose(x, **named):
        return lambda x, y=2: x + y

    @cuda.jit
    def another(out):
        out[0] = loose(3, y=4)

    out = np.zeros(1)
    another[1, 1](out)
    assert out[0] == 7


def test_arrays_come_back_as_they_are():
    def column(a):
        """Stand for what kernels have in its place."""

    @overload(column, inline="always")
    def choose_column(a):
        return lambda a: a[:, 0]

    @cuda.jit
    def kernel(a):
        column(a)[cuda.grid(1)] += 1

    a = np.zeros((3, 2), np.float32)
    kernel[1, 3](a)
    assert a.tolist() == [[1, 0]] * 3


def seen(x):
    """Stand for what kernels have in its place."""


SEEN = []


@overload(seen)
def note_seen(x):
    SEEN.append(x)
    return lambda x: 0


def test_types_of_values_as_numba_has_them():
    from collections import namedtuple

    Pair = namedtuple("Pair", ["a", "b"])
    pairs = Pair(1, 2.5)

    @cuda.jit
    def kernel(flag, z, zs, record, out):
        seen(flag)
        seen(z)
        seen(zs)
        seen(record)
        seen(pairs)
        seen((1, 1))
        seen(None)
        seen(np.int8)
        seen(math)
        seen(seen)
        seen(out.dtype)
        seen(True)
        seen("text")
        seen(out[::2])

    SEEN.clear()
    record = np.zeros(2, np.dtype([("p", np.int32), ("q", np.float32)]))
    kernel[1, 1](np.bool_(True), 1j, np.zeros(2, np.complex64), record, np.zeros((2, 3), np.uint8))
    (flag, z, zs, rec, pair, same, none, number, module, function, dtype, true, text,
     part) = SEEN
    assert flag == types.boolean
    assert z == types.complex128
    assert isinstance(z, types.Complex)
    assert zs.dtype == types.complex64
    assert rec.ndim == 1
    assert isinstance(pair, types.NamedTuple)
    assert pair.fields == ("a", "b")
    assert pair.types == (types.int64, types.float64)
    assert same == types.UniTuple(types.int64, 2)
    assert isinstance(none, types.NoneType)
    assert number.dtype == types.int8
    assert isinstance(module, types.Module)
    assert isinstance(function, types.Function)
    assert dtype.dtype == types.uint8
    assert true == types.boolean
    assert text == types.unicode_type
    assert part == types.Array(types.uint8, 2, "A")


def test_classes_of_types():
    assert isinstance(types.float32, types.Float)
    assert isinstance(types.float32, types.Number)
    assert not isinstance(types.float32, types.Integer)
    assert types.int32.signed
    assert not types.uint8.signed
    assert types.complex64.underlying_float == types.float32
    assert types.Array(types.int32, 2, "C") == types.int32[:, ::1]
    assert types.Array(types.int32, 2, "F") == types.int32[::1, :]
    assert types.Array(types.int32, 2, "A").copy(ndim=1).ndim == 1
    assert isinstance(types.Tuple((types.int32, types.int32)), types.UniTuple)
    assert isinstance(types.Tuple((types.int32, types.int64)), types.Tuple)
    assert types.Optional(types.int32).type == types.int32
    assert types.literal(5).literal_value == 5
    assert types.unliteral(types.literal(5)) == types.int64
    assert types.unliteral(types.float32) == types.float32

    class Own(types.Type):
        def __init__(self):
            super().__init__(name="Own")

    assert Own() == Own()
    assert repr(Own()) == "Own"
