"""Launches of work-items compute what the kernel does, with any number of groups."""

from typing import Any

import numpy as np
import pytest

import graphs
import weft
from graphs import el, leaf
from launch_runs import launched
from weft import gpu
from weft.driver import pipeline
from weft.errors import BoundsError
from weft.ir import infer
from weft.ir import linear as li
from weft.ir.interpret.interpret import run_linear
from weft.ir.op import Op
from weft.kernelize.build import kernelize
from weft.lang.reader.translate import Launch, translate
from weft.renderers.cstyle.opencl.renderer import OpenCLRenderer
from weft.renderers.cstyle.split import split_vectors
from weft.renderers.launches.work_items import launches
from weft.target import SIMT, CostModel, Target, native_operations

TARGET = Target("threads", "none", vector_bytes=4, operations=native_operations(), style=SIMT,
                group_items=8, max_items=24, shared_bytes=1 << 10,
                costs=CostModel(parallel_work=256))  # fmt: skip


class Context:
    """What rendering asks of a device."""

    target, threads, is_native = TARGET, 4, False

    def renderer(self, target: Any = None) -> Any:
        return OpenCLRenderer(target or self.target)


@weft.kernel
def sums(x: Any, out: Any) -> None:
    """Each block sums its part."""
    held = gpu.shared.array(32, weft.int32)
    t = gpu.threadIdx.x
    i = gpu.grid(1)
    held[t] = x[i] if i < x.shape[0] else 0
    gpu.syncthreads()
    step = 16
    while step > 0:
        if t < step:
            held[t] += held[t + step]
        gpu.syncthreads()
        step //= 2
    if t == 0:
        out[gpu.blockIdx.x] = held[0]


@weft.kernel
def large(x: Any, out: Any) -> None:
    """What a block shares is more than a group's memory."""
    held = gpu.shared.array(1000, weft.int32)
    t = gpu.threadIdx.x
    for k in range(t, 1000, gpu.blockDim.x):
        held[k] = x[(k + gpu.blockIdx.x) % x.shape[0]] * k
    gpu.syncthreads()
    total = 0
    for k in range(1000):
        total += held[(k * 7 + t) % 1000]
    out[gpu.blockIdx.x * gpu.blockDim.x + t] = total


@weft.kernel
def checked(x: Any, out: Any) -> None:
    """An index of some thread may be wrong, before a barrier."""
    held = gpu.shared.array(16, weft.int32)
    t = gpu.threadIdx.x
    held[t] = x[x[t] % 100]
    gpu.syncthreads()
    out[t] = held[15 - t]


def linear_of(nest: Any) -> Any:
    return pipeline.render(nest, "tested", Context()).program.linear  # type: ignore[arg-type]


def linear(kernel: Any, grid: int, block: int, *arrays: Any) -> Any:
    types = kernel[grid, block].take(arrays).types
    return linear_of(translate(kernel.__weft_function__, types,
                               Launch((block, 1, 1), 1, 0, (grid, 1, 1))))  # fmt: skip


@weft.kernel
def warps(x: Any, out: Any) -> None:
    """Threads of a warp exchange values and vote."""
    i = gpu.grid(1)
    v = x[i]
    total = v
    for k in range(5):
        total += gpu.shfl_xor_sync(0xFFFFFFFF, total, 1 << k)
    votes = gpu.ballot_sync(0xFFFFFFFF, v % 3 == 0)
    before = gpu.shfl_up_sync(0xFFFFFFFF, v, 1)
    out[i] = total + 1000 * gpu.popc(votes) + before


KERNELS = [(sums, 5, 32, 160, 5), (large, 3, 40, 333, 120), (checked, 1, 16, 16, 16)]


@pytest.mark.parametrize("groups", [1, 2, 7])
@pytest.mark.parametrize("row", KERNELS, ids=lambda row: row[0].__name__)
def test_kernels_with_barriers(row: Any, groups: int, rng: Any) -> None:
    kernel, grid, block, n, m = row
    x, out = rng.integers(0, n, n).astype(np.int32), np.zeros(m, np.int32)
    expected = out.copy()
    if kernel is checked:
        x %= 16
    weft.interpret(kernel, grid, block)(x, expected)
    made = linear(kernel, grid, block, x, out)
    sizes = {v.attr.name: {"x": n, "out": m, "grid": grid}[v.attr.name.split(".")[0]]
             for v in made.variables}  # fmt: skip
    found = {"x": x, "out": out}
    cut = launched(made, [found[p.name] for p in made.params], sizes, groups, TARGET)
    np.testing.assert_array_equal(out, expected)
    assert any(isinstance(i, li.BarrierInst) for i in cut.launches[0].code)
    assert bool(cut.per_item) == (kernel is large)


def test_lanes_of_warps_as_scalars(rng: Any) -> None:
    x, out, expected = rng.integers(0, 99, 96).astype(np.int32), *np.zeros((2, 96), np.int32)
    weft.interpret(warps, 3, 32)(x, expected)
    made = split_vectors(linear(warps, 3, 32, x, out), 1)
    assert all(v.lanes == 1 for i in made.code for v in i.results())
    found = {"x": x, "out": out}
    sizes = {v.attr.name: 3 if v.attr.name.startswith("grid") else 96 for v in made.variables}
    launched(made, [found[p.name] for p in made.params], sizes, 2, TARGET)
    np.testing.assert_array_equal(out, expected)


def test_a_failure_before_a_barrier_ends_the_group_without_an_access(rng: Any) -> None:
    x, out = np.full(16, 3, np.int32), np.zeros(16, np.int32)
    x[5] = 50
    made = linear(checked, 1, 16, x, out)
    with pytest.raises(BoundsError, match="50"):
        launched(made, [x, out], {v.attr.name: 16 for v in made.variables}, 1, TARGET)
    code = launches(made, TARGET).launches[0].code
    assert any(isinstance(i, li.AssertInst) and not i.stops for i in code)


GRAPHS = {
    "elementwise": lambda: el(Op.MUL, leaf(30, 41), leaf(30, 41)),
    "softmax": lambda: graphs.softmax(leaf(30, 70)),
    "sum": lambda: infer.reduce(leaf(7, 101), "sum", (0, 1)),
    "columns": lambda: infer.reduce(leaf(40, 65), "sum", (0,)),
    "long rows": lambda: graphs.softmax(leaf(3, 1500)),
}


@pytest.mark.parametrize("groups", [1, 3, 50])
@pytest.mark.parametrize("name", GRAPHS)
def test_graphs(name: str, groups: int, rng: Any) -> None:
    (step,) = kernelize([GRAPHS[name]()])
    made = linear_of(step.kernel)
    arrays = [rng.integers(-8, 8, m.size.attr).astype(np.float32) for m in made.params]
    expected, found = [a.copy() for a in arrays], [a.copy() for a in arrays]
    run_linear(made, expected, {})
    launched(made, found, {}, groups, TARGET)
    for e, f in zip(expected, found, strict=True):
        np.testing.assert_allclose(e, f, rtol=1e-6)


@pytest.mark.parametrize("kind", ["sum", "max"])
def test_values_are_numbered_once_in_a_launch(kind: str, rng: Any) -> None:
    """What phases keep for one another has numbers of its own."""
    x = leaf(9, 40)
    whole = infer.reduce(x, kind, (0, 1))
    spread = el(Op.SUB, x, graphs.kept(whole, (0, 1), x))
    (step,) = kernelize([infer.reduce(el(Op.MUL, spread, spread), "sum", (0, 1))])
    made = linear_of(step.kernel)
    for launch in launches(made, TARGET).launches:
        ids = [v.id for i in launch.code for v in i.results()]
        assert len(ids) == len(set(ids))
    arrays = [rng.integers(-8, 8, m.size.attr).astype(np.float32) for m in made.params]
    expected, found = [a.copy() for a in arrays], [a.copy() for a in arrays]
    run_linear(made, expected, {})
    launched(made, found, {}, 2, TARGET)
    for e, f in zip(expected, found, strict=True):
        np.testing.assert_allclose(e, f, rtol=1e-5)
