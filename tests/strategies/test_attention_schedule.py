"""The schedule of attention keeps its meaning on every width of vector and number of registers."""

import pytest

import graphs
from graphs import leaf
from schedule_costs import Cost
from schedule_nests import assert_replays, assert_same
from weft.ir import dtype as dt
from weft.ir import infer
from weft.ir.op import Op
from weft.ir.stmt import For
from weft.ir.traverse import walk
from weft.kernelize.build import kernelize
from weft.strategies import choose
from weft.target import Target

TARGETS = {
    "16 registers of 16 bytes": Target("cpu", "x86_64", vector_bytes=16, vector_registers=16),
    "16 registers of 32 bytes": Target("cpu", "x86_64", vector_bytes=32, vector_registers=16),
    "32 registers of 16 bytes": Target("cpu", "aarch64", vector_bytes=16, vector_registers=32),
    "32 registers of 64 bytes": Target("cpu", "x86_64", vector_bytes=64, vector_registers=32),
}


def nest(rows, keys, size, channels, causal=False, dtype=dt.float32, target=None):
    """Return the unscheduled kernel of an attention."""
    q, k, v = (leaf(*shape, dtype=dtype) for shape in
               ((rows, size), (keys, size), (keys, channels)))
    scores = graphs.matmul(q, infer.permute(k, (1, 0)))
    if causal:
        i = infer.expand(infer.reshape(infer.iota(rows), (rows, 1)), (rows, keys))
        seen = infer.elementwise(Op.LE, infer.expand(infer.iota(keys), (rows, keys)), i)
        scores = infer.elementwise(Op.WHERE, seen, scores,
                                   graphs.full(scores, float("-inf")))
    (step,) = kernelize([graphs.matmul(graphs.softmax(scores), v)], target)
    assert step.kernel.meta.kind == "attention"
    return step.kernel


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("shape", "causal", "dtype"), [
    ((9, 6, 4, 3), False, dt.float32), ((33, 5, 2, 9), True, dt.float32),
    ((17, 19, 3, 17), True, dt.float64),
])  # fmt: skip
def test_every_target_computes_the_same(target, shape, causal, dtype):
    kernel = nest(*shape, causal, dtype)
    made = choose(kernel, TARGETS[target], 2)
    assert "queries in the lanes" in dict(made.meta.hints)["why"]
    assert_same(kernel, made, exact=False)
    assert_replays(kernel, made)


@pytest.mark.parametrize(("target", "lanes", "rows"), [
    ("16 registers of 32 bytes", 16, 4), ("32 registers of 64 bytes", 32, 8),
])  # fmt: skip
def test_a_tile_fits_the_registers(target, lanes, rows):
    made = choose(nest(64, 64, 16, 16), TARGETS[target], 1)
    loops = {s.var.attr: s for s in walk(made.body) if isinstance(s, For)}
    for accumulator in ("score", "result"):
        (shape,) = {s.memory.shape for s in walk(made.body) if hasattr(s, "memory")
                    and s.memory.name == f"{accumulator}_0.r"}
        assert [n.attr for n in shape] == [rows, lanes]
    assert {loops[name].kind for name in loops if name.startswith(("q4.i", "q2.i"))} <= {"vector"}


def test_blocks_of_queries_are_shared_out():
    made = choose(nest(512, 512, 64, 64), TARGETS["32 registers of 64 bytes"], 2)
    assert Cost(made).shares


@pytest.mark.parametrize(("rows", "whole", "lanes"), [
    (197, True, 32), (197, False, 16), (70, True, 16), (224, False, 32),
])  # fmt: skip
def test_some_lanes_wait_rather_than_tiles_of_single_vectors(rows, whole, lanes):
    target = TARGETS["32 registers of 64 bytes"].replace(whole_vectors=whole)
    kernel = nest(rows, 40, 8, 8, target=target)
    (block,) = (s for s in walk(kernel.body) if isinstance(s, For) and s.var.attr == "q4")
    assert block.extent.attr == lanes
