"""Kernels with planted bugs, and correct ones: what registers them, and what they are held to."""

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

import weft
from weft import gpu

NATIVE = ("out-of-bounds", "uninitialised", "barrier-divergence", "misaligned", "assertion")


class Case:
    """A kernel and a launch of it; the kind of its bug, "" for none."""

    def __init__(self, kernel: Any, kind: str, grid: Any, block: Any, args: tuple[Any, ...],
                 shared: int) -> None:
        self.kernel, self.kind, self.shape = kernel, kind, (grid, block)
        self.args, self.shared = args, shared

    def given(self) -> list[Any]:
        """Return copies of the arguments that lie in memory as they do."""
        return [_copy(a) for a in self.args]


class Cases(dict[str, Case]):
    """Kernels by name."""

    def bug(self, kind: str, grid: Any, block: Any, *args: Any,
            shared: int = 0) -> Callable[[Any], Any]:
        """Register a kernel with a bug of some kind, and a launch that has it."""

        def register(kernel: Any) -> Any:
            assert kernel.__name__ not in self
            self[kernel.__name__] = Case(kernel, kind, grid, block, args, shared)
            return kernel

        return register

    def correct(self, grid: Any, block: Any, *args: Any, shared: int = 0) -> Callable[[Any], Any]:
        """Register a correct kernel and a launch of it."""
        return self.bug("", grid, block, *args, shared=shared)


def numbers(*shape: int, dtype: Any = np.float64) -> Any:
    """Return 0, 1, 2 ..."""
    return np.arange(int(np.prod(shape))).astype(dtype).reshape(shape)


def shuffled(n: int, dtype: Any = np.float64) -> Any:
    """Return whole numbers in some order, whose sums are exact."""
    return np.random.default_rng(n).permutation(n).astype(dtype)


def zeros(*shape: int, dtype: Any = np.float64) -> Any:
    """Return zeros."""
    return np.zeros(shape, dtype)


def marked(kernel: Any) -> list[int]:
    """Return the lines of a kernel that are marked with BUG."""
    lines, first = inspect.getsourcelines(kernel.__weft_function__)
    return [first + k for k, line in enumerate(lines) if "# BUG" in line]


def check_bug(case: Case, file: str, seed: int | None) -> None:
    """The bug is found at its line, with threads of this launch, and nothing else is."""
    report = weft.sanitize(case.kernel, *case.shape, shared=case.shared, seed=seed)(*case.given())
    assert report.findings, "nothing found"
    assert {f.kind for f in report.findings} == {case.kind}, str(report)
    for found in report.findings:
        assert found.file == file
        assert found.line in marked(case.kernel), str(report)
        assert found.line in found.lines
        assert found.threads
        for at in found.threads:
            for place, sizes in zip(at, case.shape, strict=True):
                full = (*(sizes if isinstance(sizes, tuple) else (sizes,)), 1, 1)[:3]
                assert all(0 <= k < n for k, n in zip(place, full, strict=True))


def check_bug_natively(case: Case, file: str) -> None:
    """Compiled checks find it at one of its lines, if it is of a kind that they look for."""
    report = weft.sanitize(case.kernel, *case.shape, shared=case.shared, native=True)(
        *case.given())
    assert {f.kind for f in report.findings} == {case.kind}, str(report)
    for found in report.findings:
        assert (found.file, found.line in marked(case.kernel)) == (file, True), str(report)


def check_correct(case: Case, seeds: tuple[int | None, ...] = (None, 1, 2)) -> None:
    """No findings in any order of the blocks, and the results of compiled code."""
    grid, block = case.shape
    wanted, natively = case.given(), case.given()
    case.kernel[grid, block, None, case.shared](*wanted)
    for seed in seeds:
        found = case.given()
        report = weft.sanitize(case.kernel, grid, block, shared=case.shared, seed=seed)(*found)
        assert report.findings == (), str(report)
        assert report.instructions > 0
        _same(found, wanted)
    found = case.given()
    weft.interpret(case.kernel, grid, block, shared=case.shared)(*found)
    _same(found, wanted)
    report = weft.sanitize(case.kernel, grid, block, shared=case.shared, native=True)(*natively)
    assert report.findings == (), str(report)
    _same(natively, wanted)


def _copy(value: Any) -> Any:
    if not isinstance(value, np.ndarray):
        return value
    if value.base is None or value.flags.c_contiguous:
        size = value.dtype.itemsize
        skip = value.__array_interface__["data"][0] % 16 // size if value.size else 0
        made = np.zeros(value.size + skip, value.dtype)[skip:].reshape(value.shape)
    else:
        made = np.zeros((*value.shape, 2), value.dtype)[..., 0]
    made[...] = value
    return made


def _same(found: list[Any], wanted: list[Any]) -> None:
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(a, b)


@weft.func
def warp_sum(v: Any) -> Any:
    """Return the sum of a warp, in every lane of it."""
    for d in (16, 8, 4, 2, 1):
        v += gpu.shfl_xor_sync(gpu.ALL, v, d)
    return v


@weft.func
def warp_scan(v: Any) -> Any:
    """Return the sum of the lanes of a warp up to the own one."""
    lane = gpu.laneid
    d = 1
    while d < 32:
        below = gpu.shfl_up_sync(gpu.ALL, v, d)
        if lane >= d:
            v += below
        d *= 2
    return v
