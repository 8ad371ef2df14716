"""Kernels with ``*rest``: they take the further arguments of a launch as a tuple, as in Python."""

from typing import Any, NamedTuple

import numpy as np
import pytest

import weft
from weft import gpu
from weft.compat import cuda, literal_unroll
from weft.compat.numba_types import float32, float64, int32
from weft.errors import BoundsError, DTypeError, KernelError, LaunchError, ShapeError, VariableError

N = 37


def total(out, scale, *arrays):
    i = gpu.grid(1)
    if i < out.shape[0]:
        s = 0.0
        for k, a in enumerate(arrays):
            s += (k + 1) * a[i]
        out[i] = s * scale + len(arrays)


def sums(out, *arrays):
    i = cuda.grid(1)
    if i < out.size:
        s = float(len(arrays))
        for a in literal_unroll(arrays):
            s += a[i]
        out[i] = s


KERNELS = {"plain": weft.kernel(total), "checked": weft.kernel(check=True)(total)}
summed = cuda.jit(sums)


def drawn(count: int, seed: int) -> list[Any]:
    """Return arrays of different types and steps."""
    rng = np.random.default_rng(seed)
    made = []
    for k in range(count):
        x = rng.integers(-50, 50, 2 * N)
        kind = rng.choice(["f4", "f8", "i4", "i8", "u2"])
        x = abs(x).astype(kind) if kind == "u2" else x.astype(kind)
        made.append(x[::2] if k % 3 == 2 else x[:N])
    return made


def expected_of(scale: float, arrays: list[Any]) -> Any:
    parts = ((k + 1) * a.astype(np.float64) for k, a in enumerate(arrays))
    return sum(parts, np.zeros(N)) * scale + len(arrays)


@pytest.mark.grid
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("count", [0, 1, 2, 5])
@pytest.mark.parametrize("way", ["plain", "checked", "interpreted", "sanitised", "natively"])
def test_every_way_to_launch(way, count, seed):
    arrays = drawn(count, seed)
    out = np.full(N, -1.0)
    kernel = KERNELS.get(way, KERNELS["plain"])
    report = None
    if way == "interpreted":
        weft.interpret(kernel, 3, 16)(out, 0.5, *arrays)
    elif way in ("sanitised", "natively"):
        report = weft.sanitize(kernel, 3, 16, native=way == "natively")(out, 0.5, *arrays)
    else:
        kernel[3, 16](out, 0.5, *arrays)
    np.testing.assert_array_equal(out, expected_of(0.5, arrays))
    assert report is None or not report.findings


def test_launches_of_some_counts_in_turn_run_no_python(misses, compiled):
    """Each count and each list of types has code of its own, which the other ones do not take."""
    kernel = cuda.jit(sums)
    x = np.random.default_rng(5).normal(size=N)
    lists = [(), (x,), (x, x.astype("f4")), (x.astype("f4"), x), (x, x, x), (x, 2 * x)]
    out = np.zeros(N)
    for turn in range(5):
        if turn == 3:
            assert misses
            misses.clear()
        for arrays in lists:
            kernel[3, 16](out, *arrays)
            expected = np.full(N, float(len(arrays)))
            for a in arrays:
                expected += a
            np.testing.assert_array_equal(out, expected)
    assert misses == []
    assert len(kernel._loaded) == len(lists)


@pytest.mark.parametrize("seed", range(2))
def test_like_arrays_by_an_index_that_is_computed(seed):
    @cuda.jit
    def kernel(out, which, *arrays):
        i = cuda.grid(1)
        for k in range(len(arrays)):
            out[i] += (k + 1) * arrays[k][i]
        out[i] += 100 * arrays[which[i]][i]

    rng = np.random.default_rng(seed)
    arrays = [rng.integers(-9, 9, 16).astype("f4") for _ in range(4)]
    which, out = rng.integers(0, 4, 16), np.zeros(16)
    for _ in range(3):
        out[:] = 0
        kernel[1, 16](out, which, *arrays)
        expected = sum((k + 1) * a for k, a in enumerate(arrays))
        expected += 100 * np.array(arrays)[which, np.arange(16)]
        np.testing.assert_array_equal(out, expected)


class Pair(NamedTuple):
    x: Any
    scale: float


def test_scalars_tuples_structs_records_and_constants():
    @cuda.jit
    def mixed(out, *args):
        i = cuda.grid(1)
        first, (a, b), pair, records = args[0], args[1], args[2], args[-1]
        out[i] = first + a[i] * b + pair.x[i] * pair.scale + records[i].mass
        if args[3] is None:
            out[i] += 1000

    rng = np.random.default_rng(11)
    a, x = rng.normal(size=8), rng.normal(size=8).astype("f4")
    records = np.zeros(8, [("mass", "f8"), ("id", "i4")])
    records["mass"] = rng.normal(size=8)
    for first, given, more in ((3, None, 1000), (2.5, 7, 0)):
        out = np.zeros(8)
        for _ in range(3):
            mixed[1, 8](out, first, (a, 2.0), Pair(x, 0.5), given, records)
        expected = first + a * 2.0 + x.astype("f8") * 0.5 + records["mass"] + more
        np.testing.assert_allclose(out, expected, rtol=1e-14)


def test_further_arguments_are_written_and_passed_on():
    @cuda.jit(device=True)
    def scaled(i, by, *arrays):
        for a in literal_unroll(arrays):
            a[i] *= by

    @cuda.jit
    def kernel(by, *arrays):
        i = cuda.grid(1)
        if i < arrays[0].size:
            scaled(i, by, *arrays)
            scaled(i, by, *arrays[1:])

    x, y = np.arange(10.0), np.arange(10, dtype="f4")
    kernel[1, 16](3.0, x, y)
    np.testing.assert_array_equal(x, 3 * np.arange(10.0))
    np.testing.assert_array_equal(y, 9 * np.arange(10, dtype="f4"))


def test_defaults_and_keywords_before_them():
    @weft.kernel
    def kernel(out, n=3, *rest):
        out[gpu.grid(1)] = n + 10 * len(rest)

    out = np.zeros(4)
    for args, kwargs, expected in (((), {}, 3), ((5,), {}, 5), ((), {"n": 7}, 7),
                                   ((1, 2, 3), {}, 21)):
        for _ in range(3):
            kernel[1, 4](out, *args, **kwargs)
            assert out.tolist() == [expected] * 4


def test_an_annotation_is_for_each_of_them():
    @weft.kernel
    def kernel(out: weft.float64[:], *rest: weft.float32[:]) -> None:
        i = gpu.grid(1)
        for a in rest:
            out[i] += a[i]

    out, x = np.zeros(4), np.arange(4, dtype="f4")
    kernel[1, 4](out, x, x, x)
    np.testing.assert_array_equal(out, 3.0 * x)
    with pytest.raises(DTypeError, match=r"an array of float64 for parameter rest\[1\], expected "
                                         r"an array of float32 \(annotated at"):
        kernel[1, 4](out, x, x.astype("f8"), x)
    with pytest.raises(ShapeError, match=r"shape \(1, 4\) for parameter rest\[0\]"):
        kernel[1, 4](out, x[None])
    with pytest.raises(VariableError, match="no annotation of rest"):  # of how many there are
        kernel.compile(4)
    kernel.compile(4, out, x, x)


def test_what_is_wrong_names_the_argument():
    out = np.zeros(4)
    launch = summed[1, 4]
    with pytest.raises(LaunchError, match=r"object for arrays\[2\], expected an array"):
        launch(out, out, 3.0, object())
    with pytest.raises(LaunchError, match=r"(?s)2 errors.*arrays\[0\].*arrays\[2\]\[1\] = 118059"):
        launch(out, object(), out, (1, 1 << 70))
    with pytest.raises(LaunchError, match="missing a required argument: 'out'"):
        launch()
    with pytest.raises(LaunchError, match="unexpected keyword argument 'arrays'"):
        launch(out, arrays=(out,))
    with pytest.raises(BoundsError, match="index 3, expected an index from 0 to 2"):
        launch(out, out, np.zeros(3))
    report = weft.sanitize(summed, 1, 4)(out, out, np.zeros(3))
    assert [f.kind for f in report.findings] == ["out-of-bounds"]


def test_parameters_behind_them_are_refused():
    @weft.kernel
    def behind(out, *rest, n=1):
        out[0] = n

    @weft.kernel
    def named(out, **rest):
        out[0] = 1

    with pytest.raises(KernelError, match=r"n=1 behind \*rest, expected \*rest as the last"):
        behind[1, 1](np.zeros(1))
    with pytest.raises(KernelError, match=r"\*\*rest, expected parameters that each have a name"):
        named[1, 1](np.zeros(1))


def test_signatures():
    @cuda.jit("void(float64[:], float32[:], int32)")
    def one(out, *rest):
        out[cuda.grid(1)] = rest[0][0] + rest[1]

    out, x = np.zeros(4), np.full(4, 2, "f4")
    one[1, 4](out, x, 7.9)  # numba's conversion to int32
    assert out.tolist() == [9.0] * 4
    with pytest.raises(LaunchError, match="2 arguments, expected 3, as in its signature"):
        one[1, 4](out, x)
    with pytest.raises(DTypeError, match=r"an array of float64 for parameter rest\[0\]"):
        one[1, 4](out, out, 1)
    assert one.signatures == [(float64[::1], float32[::1], int32)]

    @cuda.jit(["void(float64[:])", "void(float64[:], float32[:])",
               "void(float64[:], float32[:], float32[:])"])
    def several(out, *rest):
        out[cuda.grid(1)] = len(rest)

    for count in range(3):
        several[1, 4](out, *[x] * count)
        assert out.tolist() == [count] * 4
    with pytest.raises(DTypeError, match="No matching definition"):
        several[1, 4](out, x, x, x)
    with pytest.raises(KernelError, match="a signature of 0 types, expected 1 or more"):
        cuda.jit("void()")(sums)


def test_the_types_of_forms_are_those_of_arguments():
    kernel = cuda.jit(sums)
    out = np.zeros(4)
    kernel[1, 4](out)
    kernel[1, 4](out, np.zeros(4, "f4"), out)
    assert kernel.signatures == [(float64[::1],), (float64[::1], float32[::1], float64[::1])]
    assert "define i32" in kernel.inspect_llvm((float64[::1], float32[::1], float64[::1]))
    made = cuda.jit(sums).compile("void(float64[:], float32[:])")
    assert made.signatures == [(float64[::1], float32[::1])]


@pytest.mark.parametrize("seed", range(2))
def test_tensors_captures_and_fusion(seed):
    rng = np.random.default_rng(seed)
    a, b = rng.normal(size=N), rng.normal(size=N)

    @weft.jit
    def captured(out: Any, *given: Any) -> Any:
        summed[3, 16](out, *given)
        return out * 2

    for _ in range(3):
        found = captured(weft.zeros(N, dtype=weft.float64), weft.tensor(a), weft.tensor(b))
        np.testing.assert_array_equal(found.numpy(), (2.0 + a + b) * 2)

    first, second = np.zeros(N), np.zeros(N)
    with weft.fuse():
        summed[3, 16](first, a, b)
        summed[3, 16](second, first)
    np.testing.assert_array_equal(first, 2.0 + a + b)
    np.testing.assert_array_equal(second, 1.0 + first)
