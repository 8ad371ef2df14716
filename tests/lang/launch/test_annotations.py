"""Annotations of kernels: contracts for arrays, numbers that are converted, constants."""

import dataclasses
from typing import Any, NamedTuple

import numpy as np
import pytest

import weft
from weft import gpu
from weft.errors import (
    DeviceError,
    DTypeError,
    KernelError,
    LaunchError,
    RangeError,
    ShapeError,
    VariableError,
)
from weft.ir.text.text import print_kernel
from weft.ir.text.text_parse import parse_kernel

pytestmark = pytest.mark.usefixtures("compiled")


@weft.kernel
def scaled(a: weft.float32, x: weft.float32[:, ::1], y: weft.float32[:], n: weft.int32) -> None:
    i = gpu.grid(1)
    if i < n:
        y[i] = a * x[0, i]


def test_what_fits_is_converted_and_compiled_once() -> None:
    """Numbers of any type become the annotated ones; arrays come with gaps or without."""
    x, y = np.arange(12, dtype=np.float32).reshape(2, 6), np.zeros(6, np.float32)
    scaled.compile(8)
    assert len(scaled._loaded) == 1
    for a in (2, 2.0, np.float64(2), np.int8(2), np.float32(2), weft.tensor(2.0), np.array(2)):
        for n in (6, np.uint8(6), True):
            for _ in range(3):
                y[:] = 0
                scaled[1, 8](a, x, y, n)
                expected = 2 * x[0] * (np.arange(6) < int(n))
                np.testing.assert_array_equal(y, expected)
    assert len(scaled._loaded) == 1
    wide = np.zeros((6, 3), np.float32)
    for _ in range(3):
        scaled[1, 8](0.1, x, wide[:, 1], 6)
        np.testing.assert_array_equal(wide[:, 1], np.float32(0.1) * x[0])
    assert len(scaled._loaded) == 2
    frozen = x.copy()
    frozen.flags.writeable = False
    scaled[1, 8](2, frozen, y, 6)


X, Y = np.ones((2, 6), np.float32), np.ones(6, np.float32)


@pytest.mark.parametrize(("args", "error", "words"), [
    ((1.0, X.astype(np.float64), Y, 6), DTypeError, ("float64", "parameter x", "float32")),
    ((1.0, X, Y.astype(np.int32), 6), DTypeError, ("int32", "parameter y", "float32")),
    ((1.0, X[0], Y, 6), ShapeError, ("parameter x", "[:, :]")),
    ((1.0, X.T, Y, 6), ShapeError, ("strides", "parameter x", "ascontiguousarray")),
    ((1.0, X, X, 6), ShapeError, ("parameter y", "[:]")),
    ((1.0, X, Y, 1 << 31), RangeError, ("n = 2147483648", "int32")),
    ((1.0, X, Y, 2.5), DTypeError, ("float for parameter n", "int32")),
    (("one", X, Y, 6), DTypeError, ("str for parameter a", "float32")),
    ((None, X, Y, 6), DTypeError, ("NoneType for parameter a", "float32")),
    ((Y, X, Y, 6), DTypeError, ("parameter a", "float32")),
    ((10 ** 400, X, Y, 6), RangeError, ("a, an int of", "float32")),
    ((1.0, 5, Y, 6), LaunchError, ("x",)),
    ((1.0, weft.ones(2, 6, dtype=weft.float64), Y, 6), DTypeError, ("parameter x", "float32")),
    ((1.0, weft.ones(6), Y, 6), ShapeError, ("parameter x",)),
])  # fmt: skip
def test_what_does_not_fit_names_parameter_and_line(args: Any, error: type, words: Any) -> None:
    """Also after native launches."""
    for _ in range(3):
        scaled[1, 8](1.0, X, Y.copy(), 6)
    with pytest.raises(error) as caught:
        scaled[1, 8](*args)
    for word in words:
        assert word in str(caught.value)
    if error is not LaunchError:
        assert f"test_annotations.py:{scaled.__weft_function__.__code__.co_firstlineno}" in str(
            caught.value)


def test_sizes_that_are_annotated() -> None:
    """They are compiled in, and checked."""

    @weft.kernel
    def rows(x: weft.float64[4, 3], y: weft.float64[3]) -> None:
        j = gpu.grid(1)
        local = gpu.local.array(x.shape[0], weft.float64)
        for i in range(x.shape[0]):
            local[i] = x[i, j]
        total = 0.0
        for i in range(x.shape[0]):
            total += local[i]
        y[j] = total

    x, y = np.arange(12.0).reshape(4, 3), np.zeros(3)
    rows.compile(3)
    for _ in range(3):
        rows[1, 3](x, y)
        np.testing.assert_array_equal(y, x.sum(0))
    for wrong in (np.ones((3, 4)), np.ones((4, 4)), np.ones((4, 3))[:, ::-1]):
        with pytest.raises(ShapeError, match="parameter x"):
            rows[1, 3](wrong, y)


def test_constants() -> None:
    """A value that is compiled in: a bound, a shape, a choice, a dtype, a function."""

    @weft.kernel
    def fill(out: Any, n: weft.constexpr, kind: weft.constexpr, f: weft.constexpr) -> None:
        held = gpu.shared.array(n, weft.float64)
        t = gpu.threadIdx.x
        for i in range(n):
            held[i] = f(i)
        gpu.syncthreads()
        if t < n:
            out[t] = kind(held[t])

    def twice(v: Any) -> Any:
        return v * 2.5

    def once(v: Any) -> Any:
        return v + 0.5

    out = np.zeros(8)
    for _ in range(3):
        for n in (3, 5):
            for kind in (weft.int32, weft.float32, np.int16):
                for f in (twice, once):
                    out[:] = -1
                    fill[1, 8](out, n, kind, f)
                    expected = [f(float(i)) for i in range(n)]
                    if kind is not weft.float32:
                        expected = [int(v) for v in expected]
                    np.testing.assert_array_equal(out, expected + [-1] * (8 - n))
    assert len(fill._loaded) == 12
    for wrong in ([3], np.ones(3), {"a": 1}):
        with pytest.raises(DTypeError, match="parameter n"):
            fill[1, 8](out, wrong, weft.int32, twice)


def test_constants_that_are_equal_are_not_the_same() -> None:
    """1, 1.0 and True, and zeros of both signs, are compiled apart."""

    @weft.kernel
    def halve(out: Any, v: weft.constexpr) -> None:
        out[0] = v / 2
        out[1] = 1.0 / v
        out[2] = 7 // v if v else 0

    for _ in range(3):
        for v in (1, 1.0, True, 0.0, -0.0, 3, np.float64(3.0)):
            out = np.zeros(3)
            halve[1, 1](out, v)
            inverse = np.divide(1.0, v) if v else np.copysign(np.inf, v)
            np.testing.assert_array_equal(out, [v / 2, inverse, 7 // v if v else 0])


class Band(NamedTuple):
    """Limits."""

    low: weft.float64
    high: weft.float32


@dataclasses.dataclass
class Held:
    """An array and how much of it counts."""

    data: weft.float32[:]
    count: weft.int16


def test_structs() -> None:
    """Named tuples and dataclasses whose fields are annotated."""

    @weft.kernel
    def clip(band: Band, held: Held) -> None:
        i = gpu.grid(1)
        if i < held.count:
            held.data[i] = min(max(held.data[i], band.low), band.high)

    data = np.arange(8, dtype=np.float32)
    clip.compile(8)
    for _ in range(3):
        clip[1, 8](Band(2, 5), Held(data, 7))
    np.testing.assert_array_equal(data, [2, 2, 2, 3, 4, 5, 5, 7])
    assert len(clip._loaded) == 1
    with pytest.raises(DTypeError, match="Band"):
        clip[1, 8]((2, 5), Held(data, 7))
    with pytest.raises(RangeError, match=r"held.count"):
        clip[1, 8](Band(2, 5), Held(data, 1 << 20))


def test_annotations_that_say_nothing() -> None:
    """Names that are there for type checkers only, or types of other libraries."""

    @weft.kernel
    def free(x: "np.ndarray", y: "Missing", z: object, w: "list[int]") -> None:  # noqa: F821
        x[0] = y + z + w[0]

    x = np.zeros(1)
    free[1, 1](x, 1, 2.5, np.ones(1))
    assert x[0] == 4.5
    with pytest.raises(VariableError, match="no annotation of x, y, z, w"):
        free.compile(1)
    free.compile(1, x, 1, 2.5, np.ones(1))
    assert len(free._loaded) == 1

    @weft.kernel
    def wrong(x: "weft.flota32") -> None:  # type: ignore[name-defined]
        x[0] = 1

    with pytest.raises(KernelError, match="flota32"):
        wrong[1, 1](np.zeros(1))

    @weft.kernel
    def many(**x: Any) -> None:
        x["x"] = 1

    with pytest.raises(KernelError, match="parameters that each have a name"):
        many[1, 1](np.zeros(1))


# --- metadata


def test_workgroup_and_shared() -> None:
    """A block that goes without saying, and memory for it."""

    @weft.kernel(workgroup=(4, 2), shared=64)
    def where(out: Any) -> None:
        held = gpu.shared.array(0, weft.int64)
        x, y = gpu.threadIdx.x, gpu.threadIdx.y
        held[y * 4 + x] = x * 10 + y
        gpu.syncthreads()
        out[gpu.blockIdx.x, y, x] = held[y * 4 + x]

    out = np.zeros((3, 2, 4), np.int64)
    for _ in range(3):
        out[:] = 0
        where[3](out)
        expected = np.add.outer(np.arange(2), np.arange(4) * 10)
        np.testing.assert_array_equal(out, np.broadcast_to(expected, (3, 2, 4)))
    where[3, (4, 2)](out)
    where.launch(out, grid=3)
    where.compile(None, out)
    for wrong in (8, (2, 4), (4, 2, 2)):
        with pytest.raises(LaunchError, match="workgroup"):
            where[3, wrong]

    @weft.kernel
    def plain(out: Any) -> None:
        out[0] = 1

    with pytest.raises(LaunchError, match="1 value in"):
        plain[3]
    with pytest.raises(LaunchError, match="no block"):
        plain.launch(out, grid=3)


def test_devices() -> None:
    """A kernel may be for one device."""

    @weft.kernel(device="interpreter")
    def slow(x: Any) -> None:
        x[0] = 7

    @weft.kernel(device="cpu")
    def fast(x: Any) -> None:
        x[0] = 8

    x = np.zeros(1)
    slow[1, 1](x)
    assert x[0] == 7
    assert slow[1, 1].interpreted
    try:
        weft.set_default_device("interpreter")
        assert not fast[1, 1].interpreted
        fast[1, 1](x)
        assert x[0] == 8
    finally:
        weft.set_default_device(None)
    for wrong in ("cuda:7", "abacus", 5):
        with pytest.raises(DeviceError):
            weft.kernel(device=wrong)  # type: ignore[call-overload]


@pytest.mark.parametrize("level", ["O0", "O1", "O2", "O3", "Os", "Olatency"])
def test_levels_and_lanes(level: str) -> None:
    """Every level gives the same; each is compiled by itself."""

    def body(x: Any, out: Any) -> None:
        part = gpu.shared.array(32, weft.float64)
        t = gpu.threadIdx.x
        part[t] = x[gpu.grid(1)] * 0.1
        gpu.syncthreads()
        if t == 0:
            total = 0.0
            for k in range(32):
                total = total + part[k]
            out[gpu.blockIdx.x] = total

    x, outs = np.random.default_rng(1).random(64), []
    for options in ({}, {"opt": level}, {"opt": level, "vectorizable": False}):
        out = np.zeros(2)
        weft.kernel(**options)(body)[2, 32](x, out)  # type: ignore[call-overload]
        outs.append(out)
    np.testing.assert_array_equal(outs[0], outs[1])
    np.testing.assert_array_equal(outs[0], outs[2])


def test_levels_and_lanes_change_the_code() -> None:
    """What is asked for has an effect."""
    from weft.driver import launch, pipeline
    from weft.driver.context import host_context
    from weft.lang.launch.variants import translated

    images, sources = set(), set()
    x = np.ones(64)

    def body(x: Any) -> None:
        i = gpu.grid(1)
        x[i] = x[i] * 3 + 1

    for options in ({}, {"opt": "O0"}, {"opt": "O3"}, {"opt": "Os"}, {"opt": "Olatency"},
                    {"vectorizable": False}):
        kernel = weft.kernel(**options)(body)  # type: ignore[call-overload]
        configured = kernel[2, 32]
        nest, _ = translated(kernel, configured.take((x,)).types, configured)
        built = pipeline.build(nest, "same", host_context())
        images.add(built.image)
        sources.add(built.source)
        launch.load_kernel(nest, host_context())
    assert len(images) >= 4
    assert len(sources) >= 3  # one for size, one without vectors
    assert host_context().target.vector_bytes


def test_metadata_goes_through_text() -> None:
    """What a kernel says about itself is part of its text."""
    from weft.lang.launch.variants import translated

    @weft.kernel(kind="elementwise", workgroup=32, opt="O2", device="cpu", max_threads=64,
                 max_registers=40, vectorizable=False, fastmath=True)
    def tagged(x: Any) -> None:
        x[gpu.grid(1)] = 1

    configured = tagged[2, 32]
    nest, _ = translated(tagged, configured.take((np.ones(64),)).types, configured)
    hints = {"kind": "elementwise", "workgroup": (32, 1, 1), "opt": "O2", "device": "cpu",
             "max_threads": 64, "max_registers": 40, "vectorizable": False}
    again = parse_kernel(print_kernel(nest))
    assert {k: v for k, v in again.meta.hints if k in hints} == hints
    assert again.meta == nest.meta
    assert print_kernel(again) == print_kernel(nest)


def test_promises() -> None:
    """What a kernel promises is checked, with the line."""

    @weft.kernel(no_allocation=True, inline_always=True)
    def loud(x: Any) -> None:
        x[0] = 1
        if x[0] > 5:
            print("value", x[0])

    @weft.kernel(critical_path=True)
    def quiet(x: Any) -> None:
        x[0] = 2

    x = np.zeros(1)
    line = loud.__weft_function__.__code__.co_firstlineno + 4
    for _ in range(2):
        with pytest.raises(KernelError, match="may allocate") as caught:
            loud[1, 1](x)
        assert f"test_annotations.py:{line}" in str(caught.value)
    quiet[1, 1](x)
    assert x[0] == 2
    hints = dict(quiet.options.hints)
    assert (hints["opt"], hints["critical_path"], hints["no_allocation"]) == (
        "Olatency", True, True)
    with pytest.raises(DeviceError, match="GPU"):
        weft.kernel(gpu_compute=True)


@pytest.mark.parametrize("options", [
    {"inline_always": False}, {"critical_path": 1}, {"no_allocation": None},
    {"opt": "O9"}, {"opt": 2}, {"kind": "magic"}, {"workgroup": 0}, {"workgroup": (32, 64)},
    {"workgroup": "big"}, {"shared": -1}, {"shared": 1 << 20}, {"shared": "all"},
    {"max_threads": 0}, {"max_threads": 2048}, {"max_threads": "x"}, {"max_registers": 0},
    {"max_registers": 2.5}, {"workgroup": 64, "max_threads": 32}, {"fastmath": 1},
    {"unchecked": "no"}, {"check": None}, {"vectorizable": 0},
], ids=str)  # fmt: skip
def test_metadata_that_cannot_be(options: Any) -> None:
    """Everything is checked when the kernel is made."""
    with pytest.raises((KernelError, LaunchError)):
        weft.kernel(**options)
