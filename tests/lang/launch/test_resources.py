"""What kernels say of their device: kept, printed, read back, and checked at launches."""

from typing import Any

import numpy as np
import pytest

import weft
from weft import gpu
from weft.compat import cuda
from weft.driver.pipeline import build
from weft.errors import KernelError, LaunchError
from weft.ir import dtype as dt
from weft.ir.text.text import canonical_text, print_kernel
from weft.ir.text.text_parse import parse_kernel
from weft.lang.launch.variants import translated
from weft.lang.values.types import ArrayType

X = {"x": ArrayType(dt.float32, 1, "C", False)}


def nest(**options: Any) -> Any:
    """Return the loop level of a kernel with some options."""

    @weft.kernel(**options)
    def double(x: Any) -> None:
        i = gpu.grid(1)
        for _ in range(3):
            x[i] = x[i] * 2

    return translated(double, X, double[4, 32])[0], double


def test_all_of_it_is_kept_and_reads_back() -> None:
    given: dict[str, Any] = {
        "max_threads": 256, "max_registers": 40, "min_blocks": 4, "cluster": (2, 1),
        "arch": ("sm_90a", "ptx80", "gfx90a"), "hints": {"tensor_cores": True, "unroll": 4},
    }
    kernel, _ = nest(**given)
    found = dict(kernel.meta.hints)
    assert found == {"max_threads": 256, "max_registers": 40, "min_blocks": 4,
                     "cluster": (2, 1, 1), "arch": ("sm_90a", "ptx80", "gfx90a"),
                     "tensor_cores": True, "unroll": 4}
    text = print_kernel(kernel)
    again = parse_kernel(text)
    assert dict(again.meta.hints) == found
    assert print_kernel(again) == text
    assert canonical_text(kernel) != canonical_text(nest()[0])


def test_hints_change_the_code() -> None:
    plain = build(nest()[0], "plain")
    assert build(nest(hints={"vector_width": 1})[0], "plain").image != plain.image
    assert build(nest(hints={"vector_width": 4})[0], "plain").image != plain.image
    one = print_kernel(build(nest(hints={"unroll": 3})[0], "plain").scheduled)
    assert "unrolled" in one
    assert "unrolled" not in print_kernel(plain.scheduled)
    for hints in ({"vector_width": 1}, {"vector_width": 4, "unroll": 8}, {"unroll": 2}):
        x = np.arange(128, dtype=np.float32)
        nest(hints=hints)[1][4, 32](x)
        np.testing.assert_array_equal(x, 8 * np.arange(128))


def rows(hints: Any) -> Any:
    """Return a kernel that is clearly better with its rows as lanes, but calls them y."""

    @weft.kernel(hints=hints)
    def doubled(x: Any, y: Any) -> None:
        i, j = gpu.grid(2)
        if i < x.shape[0] and j < x.shape[1]:
            y[i, j] = x[i, j] * weft.float32(2)

    return doubled


def both_ways(hints: Any) -> Any:
    """Return a kernel with accesses along x and more of them along y."""

    @weft.kernel(hints=hints)
    def folded(x: Any, y: Any) -> None:
        i, j = gpu.grid(2)
        if i < x.shape[0] and j < x.shape[1]:
            y[i, j] = x[i, j] + x[j, i]

    return folded


def over_a_grid(hints: Any) -> Any:
    """Return a kernel with a loop over the grid."""

    @weft.kernel(hints=hints)
    def copied(x: Any, y: Any) -> None:
        for i in range(gpu.grid(1), x.shape[1], gpu.gridsize(1)):
            y[0, i] = x[0, i]

    return copied


@pytest.mark.parametrize(("make", "grid", "block", "name", "value"), [
    (rows, (2, 2), (16, 16), "coalesced", False),
    (both_ways, (2, 2), (16, 16), "coalesced", True),
    (over_a_grid, 2, 256, "async_copy", False),
])  # fmt: skip
def test_each_of_these_hints_changes_the_code(make: Any, grid: Any, block: Any, name: str,
                                              value: bool) -> None:
    types = {n: ArrayType(dt.float32, 2, "C", False) for n in "xy"}
    codes, results = [], []
    x = np.random.default_rng(3).standard_normal((31, 31)).astype(np.float32)
    for given in (None, {name: value}, {name: not value}):
        kernel = make(given)
        codes.append(build(translated(kernel, types, kernel[grid, block])[0], "one").image)
        results.append(np.zeros_like(x))
        kernel[grid, block](x, results[-1])
    assert codes[1] != codes[0]
    assert codes[2] == codes[0]
    np.testing.assert_array_equal(results[1], results[0])
    np.testing.assert_array_equal(results[2], results[0])
    assert results[0].any()


@pytest.mark.parametrize("given", [
    {"max_registers": 0}, {"max_registers": 256}, {"max_registers": 1.5}, {"min_blocks": 0},
    {"min_blocks": "2"}, {"cluster": 17}, {"cluster": (2, 0)}, {"cluster": (1, 1, 1, 1)},
    {"cluster": (4, 8)}, {"arch": "h100"}, {"arch": ("sm_90", 3)}, {"hints": 3},
    {"hints": {"speed": True}}, {"hints": {"unroll": 0}}, {"hints": {"unroll": True}},
    {"hints": {"vector_width": 3}}, {"hints": {"coalesced": 1}},
])  # fmt: skip
def test_what_means_nothing_is_an_error(given: Any) -> None:
    with pytest.raises(KernelError, match="kernel: found"):
        nest(**given)


def test_a_launch_keeps_to_the_bounds() -> None:
    x = np.ones(128, np.float32)
    _, kernel = nest(cluster=2, max_threads=32)
    kernel[4, 32](x)
    with pytest.raises(LaunchError, match="cluster"):
        kernel[3, 32](x)
    with pytest.raises(LaunchError, match="at most 32"):
        kernel[2, 64](x)


def test_launch_bounds_of_numba() -> None:
    @cuda.jit(launch_bounds=(64, 3), max_registers=32)
    def one(x: Any) -> None:
        x[0] = 1

    assert dict(one.options.hints) == {"max_threads": 64, "max_registers": 32, "min_blocks": 3}
    with pytest.raises(LaunchError):
        one[1, 65](np.zeros(1))
