"""Phases of a kernel compute what the kernel does, whatever the scratch memory held before."""

import numpy as np
import pytest

import graphs
from graphs import el, kept, leaf
from weft.driver import pipeline
from weft.ir import infer
from weft.ir import linear as li
from weft.ir.interpret.interpret import run_linear
from weft.ir.op import Op
from weft.kernelize.build import kernelize
from weft.renderers.cstyle.opencl.renderer import OpenCLRenderer
from weft.renderers.cstyle.opencl.target import opencl_target
from weft.renderers.launches.launch_split import phases
from weft.target import CostModel, Target, native_operations

TARGET = opencl_target(Target("cpu", "x86_64", vector_bytes=32, operations=native_operations(),
                              costs=CostModel(parallel_work=256)),
                       {"double": True, "is_cpu": True, "units": 4})  # fmt: skip


class Context:
    """What rendering asks of a device."""

    target, threads, is_native = TARGET, 4, False

    def renderer(self, target=None):
        return OpenCLRenderer(target or self.target)


def variance(x):
    mean = infer.reduce(x, "sum", (0, 1))
    centred = el(Op.SUB, x, kept(mean, (0, 1), x))
    return infer.reduce(el(Op.MUL, centred, centred), "sum", (0, 1))


GRAPHS = {
    "elementwise": lambda: el(Op.MUL, leaf(30, 41), leaf(30, 41)),
    "softmax": lambda: graphs.softmax(leaf(30, 70)),
    "sum": lambda: infer.reduce(leaf(70, 1001), "sum", (0, 1)),
    "sum of squares around a sum": lambda: variance(leaf(70, 1001)),
    "max": lambda: infer.reduce(leaf(70, 1001), "max", (0, 1)),
    "columns": lambda: infer.reduce(leaf(400, 65), "sum", (0,)),
}


def linear(graph):
    (step,) = kernelize([graph])
    return pipeline.render(step.kernel, "tested", Context()).program.linear


def extents(kernel):
    return [m.size.attr for m in kernel.params]


@pytest.mark.parametrize("name", GRAPHS)
def test_phases_compute_what_the_kernel_does(name, rng):
    kernel = linear(GRAPHS[name]())
    arrays = [rng.integers(-8, 8, n).astype(np.float32) for n in extents(kernel)]
    expected, found = [a.copy() for a in arrays], [a.copy() for a in arrays]
    run_linear(kernel, expected, {})
    cut = phases(kernel)
    memories = [memory for memory, _ in cut.shared.values()]
    scratch = [np.full(max(m.size.attr, 1), 1e30).astype(m.dtype.name) for m in memories]
    for phase in cut.phases:
        part = kernel.replace(code=phase.code, params=(*kernel.params, *memories))
        run_linear(part, [*found, *scratch], {})
    for e, f in zip(expected, found, strict=True):
        np.testing.assert_array_equal(e, f)


@pytest.mark.parametrize("name", GRAPHS)
def test_each_phase_shares_out_one_loop(name):
    kernel = linear(GRAPHS[name]())
    for phase in phases(kernel).phases:
        regions = li.regions(phase.code)
        position, shared = 0, 0
        while position < len(phase.code):
            inst = phase.code[position]
            shared += isinstance(inst, li.Loop) and inst.kind == li.PARALLEL
            position = regions[position].end + 1 if position in regions else position + 1
        assert shared == (phase.groups != 1)


def test_what_threads_share_lies_in_the_scratch_memory_apart():
    cut = phases(linear(GRAPHS["sum of squares around a sum"]()))
    assert len(cut.phases) > 1
    ends = 0
    for memory, place in sorted(cut.shared.values(), key=lambda found: found[1]):
        assert place >= ends
        assert place % 128 == 0
        ends = place + memory.size.attr * memory.dtype.itemsize
    assert ends <= cut.nbytes
