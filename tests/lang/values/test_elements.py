"""Arrays of complex numbers and records, slices, assignments of slices, and other shapes."""

import cmath

import numpy as np
import pytest

import weft
from weft import gpu
from weft.errors import DTypeError, KernelError, LaunchError


def numbers(n, scale=1.0, seed=0):
    rng = np.random.default_rng(seed)
    return (rng.normal(size=n) + 1j * rng.normal(size=n)) * scale


@weft.kernel
def escape(out, x, c, most):
    i = gpu.grid(1)
    if i < x.size:
        z, turns = x[i], 0
        while turns < most and abs(z) < 2:
            z = z * z + c
            turns += 1
        out[i] = turns


@pytest.mark.parametrize("n", [1, 7, 100])
def test_iterated_squares(n):
    x, c = numbers(n), -0.4 + 0.6j
    out = np.zeros(n, np.int32)
    escape[4, 32](out, x, c, 50)
    for z, found in zip(x, out, strict=True):
        turns = 0
        while turns < 50 and abs(z) < 2:
            z, turns = z * z + c, turns + 1
        assert found == turns
    again = np.zeros_like(out)
    weft.interpret(escape, 4, 32)(again, x, c, 50)
    np.testing.assert_array_equal(out, again)


@weft.kernel
def mixed(x, y, out):
    i = gpu.grid(1)
    if i < x.shape[0]:
        total = 0
        for _ in range(3):
            total = total + x[i] / y[i] * (1 + 2j)
        w = 1.0
        if total.real > 0:
            w = total * 2
        z = w + complex(total.imag, 2) - total.conjugate() if x[i] != y[i] else 0j
        out[i] = -z**2


@pytest.mark.parametrize("kind", [np.complex64, np.complex128])
def test_arithmetic_of_complex_and_real_numbers(kind):
    x, y = numbers(33).astype(kind), numbers(66, 3.0, 1).astype(kind)[::-2]
    y[5] = x[5]
    out = np.zeros(33, kind)
    mixed[2, 32](x, y, out)
    t = 3 * (x / y * (1 + 2j))
    z = np.where(t.real > 0, t * 2, 1) + t.imag + 2j - t.conj()
    expected = np.where(x == y, 0, -(z * z))
    np.testing.assert_allclose(out, expected, rtol=1e-5 if kind is np.complex64 else 1e-13)


@weft.kernel
def powers(x, y, out):
    i = gpu.grid(1)
    if i < x.size:
        out[i] = x[i] ** y[i]


UNITS = np.complex64(1j), np.complex128(2 - 1j)


@weft.kernel
def units(x, out, wide):
    i = gpu.grid(1)
    if i < x.size:
        out[i] = x[i] - UNITS[0] * x[i].real + (UNITS[0] == 1j)
        wide[i] = UNITS[0] * (UNITS[1] + 3) - i * UNITS[0]


def test_complex_numbers_of_numpy_from_outside():
    x, out, wide = numbers(7).astype(np.complex64), np.zeros(7, np.complex64), np.zeros(7, complex)
    units[1, 8](x, out, wide)
    np.testing.assert_allclose(out, x - 1j * x.real + 1, rtol=1e-6)
    np.testing.assert_allclose(wide, 1j * (5 - 1j) - np.arange(7) * 1j, rtol=1e-15)


def test_powers_of_complex_numbers():
    x, y = numbers(20), numbers(20, seed=3)
    x[0], y[1] = 0, 0
    y[0] = 2
    out = np.zeros(20, complex)
    powers[1, 32](x, y, out)
    np.testing.assert_allclose(out, [a**b for a, b in zip(x, y, strict=True)], rtol=1e-13)


@pytest.mark.grid
@pytest.mark.parametrize("name", [
    "exp", "log", "log10", "sqrt", "sin", "cos", "tan", "sinh", "cosh", "tanh", "asin", "acos",
    "atan", "asinh", "acosh", "atanh",
])
def test_functions_of_complex_numbers(name):
    function = getattr(cmath, name)

    @weft.kernel
    def apply(x, out):
        i = gpu.grid(1)
        if i < x.size:
            out[i] = function(x[i])

    x = np.concatenate([numbers(50, s, seed=4) for s in (0.01, 1.0, 9.0)])
    out = np.zeros_like(x)
    apply[5, 32](x, out)
    np.testing.assert_allclose(out, [function(z) for z in x], rtol=1e-14)


@weft.kernel
def sizes(x, out):
    i = gpu.grid(1)
    if i < x.size:
        out[i, 0] = abs(x[i])
        out[i, 1] = cmath.phase(x[i])
        out[i, 2] = cmath.isnan(x[i])
        out[i, 3] = x.real[i]


def test_absolute_value_phase_and_parts():
    x = np.array([3 + 4j, -1, 1e200 + 1e200j, complex("nan"), 0])
    out = np.zeros((5, 4))
    sizes[1, 32](x, out)
    np.testing.assert_allclose(out[:, 0], np.abs(x))
    np.testing.assert_allclose(out[:, 1], np.angle(x))
    np.testing.assert_array_equal(out[:, 2], np.isnan(x))
    np.testing.assert_array_equal(out[:, 3], x.real)


FIELDS = [("x", "f4"), ("id", "i4"), ("v", "f8", 3), ("c", "c8"),
          ("in", [("a", "i2"), ("b", "u1")])]  # fmt: skip
ALIGNED = np.dtype(FIELDS, align=True)
PACKED = np.dtype([("odd", "u1"), *FIELDS])


@weft.kernel
def change(records, one):
    i = gpu.grid(1)
    held = gpu.shared.array(32, ALIGNED)
    held[gpu.threadIdx.x].x = 3
    held[gpu.threadIdx.x]["id"] = i
    gpu.syncthreads()
    if i < records.size:
        p = records[i]
        p.x += 2 * i + held[31 - gpu.threadIdx.x].x
        records[i]["id"] = held[31 - gpu.threadIdx.x].id
        p.v[1] = i + one.x
        records[i].v[2] += 1
        records["v"][i, 0] = records.size
        p.c += 1j
        p["in"].b = 200 + i
        if i == 0:
            one.id = 77


@pytest.mark.parametrize("kind", [ALIGNED, PACKED])
def test_records_as_they_lie_and_through_copies(kind):
    records, one = np.ones(20, kind), np.zeros(3, kind)
    change[1, 32](records[::2], one[1])
    i = np.arange(10)
    np.testing.assert_array_equal(records["x"][::2], 4 + 2 * i)
    np.testing.assert_array_equal(records["id"][::2], 31 - i)
    np.testing.assert_array_equal(records["v"][::2], np.stack([i * 0 + 10, i, i * 0 + 2], 1))
    np.testing.assert_array_equal(records["c"], 1 + 1j * (np.arange(20) % 2 == 0) + 0 * 1j)
    np.testing.assert_array_equal(records["in"]["b"][::2], 200 + i)
    np.testing.assert_array_equal(records["id"][1::2], 1)
    assert one["id"].tolist() == [0, 77, 0]
    again, two = np.ones(20, kind), np.zeros(3, kind)
    assert not weft.sanitize(change, 1, 32)(again[::2], two[1]).findings
    assert (again == records).all()


@weft.kernel
def copied(records, source):
    i = gpu.grid(1)
    if i < records.size:
        records[i] = source[i]
        records[i].x = (i, 2.5)[1]


def test_records_are_copied_whole():
    source = np.ones(9, ALIGNED)
    source["c"] = 5j
    records = np.zeros(9, ALIGNED)
    copied[1, 32](records, source)
    source["x"] = 2.5
    assert (records == source).all()


def test_unknown_fields_and_wrong_values_are_errors():
    @weft.kernel
    def unknown(records):
        records[0].y = 1
        records[1] = 3
        records[0, 0].x = 2

    with pytest.raises(KernelError, match="3 errors") as caught:
        unknown[1, 1](np.zeros(3, ALIGNED))
    assert "has no field 'y'" in str(caught.value)


def test_records_that_kernels_cannot_take_are_errors():
    for kind in (np.dtype([]), np.dtype([("x", "O")]), np.dtype([("x", ">f4")])):
        with pytest.raises((LaunchError, DTypeError)):
            copied[1, 32](np.zeros(3, kind), np.zeros(3, kind))
    still = np.zeros(3, ALIGNED)
    still.flags.writeable = False
    with pytest.raises(KernelError, match="read-only"):
        copied[1, 32](still, np.zeros(3, ALIGNED))
    copied[1, 32](np.zeros(0, ALIGNED), np.zeros(0, ALIGNED))


@weft.kernel
def slices(a, b, z):
    i = gpu.grid(1)
    if i < a.shape[0]:
        a[i] = b[i]
        a[i, :2] = i
        z[i, :] = 2j
        z[i][0] = b[i][1]
        held = gpu.local.array(5, "float64") if False else gpu.local.array(5, weft.float64)
        held[:] = b[i]
        a[i, 3] = held[-2 + 5] * 2
        a[i, 4:1:-2] = held[1::2]


def test_assignments_of_slices():
    a, b, z = np.zeros((7, 5)), numbers(35).real.reshape(7, 5), np.zeros((7, 4), np.complex64)
    slices[1, 32](a, b[::-1], z)
    expected = b[::-1].copy()
    expected[:, :2] = np.arange(7)[:, None]
    expected[:, 3] *= 2
    expected[:, 4:1:-2] = b[::-1][:, 1::2]
    np.testing.assert_array_equal(a, expected)
    np.testing.assert_array_equal(z[:, 1:], 2j)
    with pytest.raises(LaunchError, match="shapes of an assignment differ"):
        slices[1, 32](a, b[:, :4], z)


@weft.kernel
def repeated(x, y, a, b, z):
    i = gpu.grid(1)
    if i < x.shape[0]:
        x[i, a[i]:b[i]] = y[i, i:i + 1]
        x[i, 8:] = y[i, a[i]:b[i]][:2]
        z[i, a[i]:b[i]] = z[i, i:i + 1]


@pytest.mark.parametrize("seed", range(2))
def test_a_slice_of_one_element_fills_a_longer_one(seed):
    """Also where only the kernel knows, when it runs, that it has one."""
    rng = np.random.default_rng(seed)
    x, y = rng.normal(size=(2, 9, 10))
    z = rng.normal(size=(9, 10)) + 1j
    a = rng.integers(0, 4, 9)
    b = a + rng.integers(1, 5, 9)
    expected, numbers_ = x.copy(), z.copy()
    for i in range(9):
        expected[i, a[i]:b[i]] = y[i, i:i + 1]
        expected[i, 8:] = y[i, a[i]:b[i]][:2]
        numbers_[i, a[i]:b[i]] = z[i, i:i + 1]
    for run in (repeated[1, 16], weft.sanitize(repeated, 1, 16)):
        held, more = x.copy(), z.copy()
        run(held, y, a, b, more)
        np.testing.assert_array_equal(held, expected)
        np.testing.assert_array_equal(more, numbers_)
    with pytest.raises(LaunchError, match="shapes of an assignment differ"):
        repeated[1, 16](x, y, a, a, z)


@weft.kernel
def shapes(a, b, out):
    i = gpu.grid(1)
    held = gpu.shared.array((4, 6), weft.float64)
    flat = held.reshape(24)
    if i < 24:
        flat[i] = i
    gpu.syncthreads()
    rows = a.ravel().reshape(2, -1)
    down = b[5:1:-2]
    if i < a.size:
        out[i] = a.reshape((a.size,))[i] + b[::-1][i % b.size] + down[1] + down.size
        out[i] += held[i // 6, i % 6] - rows[1, 0]


def test_other_shapes():
    a, b, out = numbers(24).real.reshape(4, 6), np.arange(7.0), np.zeros(24)
    shapes[1, 32](a, b, out)
    expected = a.ravel() + b[::-1][np.arange(24) % 7] + 3 + 2
    expected += np.arange(24) - a.ravel()[12]
    np.testing.assert_array_equal(out, expected)

    @weft.kernel
    def wrong(a):
        a.reshape(2.5)[0] = 1
        a.reshape(-1, -1)[0, 0] = 1
        a.reshape()[0] = 1

    with pytest.raises(KernelError, match="3 errors"):
        wrong[1, 1](a)
    with pytest.raises(LaunchError, match="not contiguous"):
        shapes[1, 32](a.reshape(6, 4).T, b, out)
