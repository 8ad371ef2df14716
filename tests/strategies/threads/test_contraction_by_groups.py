"""Contractions on devices of threads: what blocks compute, where they apply, and what they cost."""

import numpy as np
import pytest

import weft
from graphs import leaf, matmul
from launch_costs import A100, launch_costs
from launch_runs import launched
from weft.ir import expr as ex
from weft.ir import infer
from weft.ir import linear as li
from weft.ir import node as nd
from weft.ir.interpret import interpret
from weft.ir.op import Op
from weft.ir.traverse import walk
from weft.ir.verify.verify import verify
from weft.kernelize.build import kernelize
from weft.passes.legalize import legalize
from weft.passes.linearize import linearize
from weft.passes.vector.vectorize import vectorize
from weft.renderers.launches.work_items import launches
from weft.strategies.threads.choose import choose_for_threads

SMALL = A100.replace(max_items=64, group_items=64, shared_bytes=16 << 10)


def transposed(x):
    return infer.permute(x, (*range(x.ndim - 2), x.ndim - 1, x.ndim - 2))


def biased(a, b):
    return infer.elementwise(Op.MAX, matmul(a, b), infer.expand(infer.slice_(
        infer.reshape(b, (b.shape[0] * b.shape[1],)), (0,), (b.shape[1],)), (
            a.shape[0], b.shape[1])))  # fmt: skip


def batched(a, b):
    count, rows, terms = a.shape
    columns = b.shape[-1]
    left = infer.expand(infer.reshape(a, (count, rows, terms, 1)), (count, rows, terms, columns))
    right = infer.expand(infer.reshape(b, (count, 1, terms, columns)), left.shape)
    return infer.reduce(infer.elementwise(Op.MUL, left, right), "sum", (2,))


PROGRAMS = {
    "even": (matmul, (32, 16), (16, 32)),
    "odd": (matmul, (19, 17), (17, 35)),
    "left turned": (lambda a, b: matmul(transposed(a), b), (17, 18), (17, 20)),
    "right turned": (lambda a, b: matmul(a, transposed(b)), (17, 18), (19, 18)),
    "one operand twice": (lambda a, b: matmul(a, transposed(a)), (21, 17), (1, 1)),
    "epilogue": (biased, (17, 20), (20, 33)),
    "batches": (batched, (2, 17, 16), (2, 16, 18)),
}
ROWS = [*((name, weft.float32) for name in PROGRAMS),
        *(("odd", d) for d in (weft.int32, weft.float64, weft.bfloat16, weft.int8))]  # fmt: skip


def scheduled(program, *operands, target=SMALL):
    (step,) = kernelize([program(*operands)])
    made = choose_for_threads(step.kernel, target, 4)
    return step, made


def arrays(step, rng, dtype):
    found = []
    for node in (*step.inputs, *step.outputs):
        shape = [int(getattr(d, "attr", d)) for d in node.shape]
        found.append(rng.integers(-8, 8, shape).astype(dtype))
    return found


@pytest.mark.parametrize(("name", "dtype"), ROWS, ids=str)
def test_blocks_compute_what_the_nest_does(name, dtype, rng):
    program, *shapes = PROGRAMS[name]
    step, made = scheduled(program, *(leaf(*s, dtype=dtype) for s in shapes))
    assert "by groups" in dict(made.meta.hints)["why"]
    verify(made)
    operands = arrays(step, rng, dtype.numpy)
    wanted = [x.copy() for x in operands]
    interpret.run(step.kernel, wanted)
    found = [x.copy() for x in operands]
    interpret.run(made, found)
    np.testing.assert_array_equal(found[-1], wanted[-1])
    found = [x.copy() for x in operands]
    linear = linearize(vectorize(legalize(made, SMALL)))
    launched(linear, found, {}, 2, SMALL)
    np.testing.assert_array_equal(found[-1], wanted[-1])
    (launch,) = launches(linear, SMALL).launches
    assert launch.items <= SMALL.max_items


def test_what_lies_past_the_end_of_a_sum_adds_nothing():
    """Sums of odd length keep infinities, NaN and the signs of zeros, without a choice a term."""
    a = np.zeros((16, 19), np.float32)
    a[:, :3] = np.inf, 1, -0.0
    b = np.ones((19, 16), np.float32)
    b[0, 1], b[0, 2], b[:, 3] = np.nan, -1, -0.0
    step, made = scheduled(matmul, leaf(16, 19), leaf(19, 16))
    assert not any(e.op is Op.WHERE for s in walk(made.body) for e in ex.toposort(list(s.exprs())))
    shapes = {(16, 19): a, (19, 16): b, (16, 16): np.full((16, 16), 7, np.float32)}
    wanted = [shapes[tuple(d.attr for d in p.shape)].copy() for p in made.params]
    found = [x.copy() for x in wanted]
    interpret.run(step.kernel, wanted)
    interpret.run(made, found)
    np.testing.assert_array_equal(found[-1], wanted[-1])
    assert np.isnan(found[-1]).any()
    assert np.isinf(found[-1]).any()


def test_sizes_that_change_from_call_to_call(rng):
    rows, terms = ex.Variable("rows", 1, 500), ex.Variable("terms", 1, 300)
    left = infer.reshape(nd.buffer(nd.Storage(weft.float32, rows * terms)), (rows, terms))
    right = infer.reshape(nd.buffer(nd.Storage(weft.float32, terms * 20)), (terms, 20))
    _, made = scheduled(matmul, left, right)
    assert "by groups" in dict(made.meta.hints)["why"]
    linear = linearize(vectorize(legalize(made, SMALL)))
    for m, k in ((19, 18), (1, 1), (16, 16)):
        x, y = rng.integers(-8, 8, (m, k)), rng.integers(-8, 8, (k, 20))
        out = np.zeros((m, 20), np.float32)
        given = {True: x, False: y}
        launched(linear, [out if p is linear.params[-1] else given[rows in ex.toposort([p.size])]
                          .astype(np.float32) for p in linear.params],
                 {"rows": m, "terms": k}, 3, SMALL)  # fmt: skip
        np.testing.assert_array_equal(out, x @ y)


def test_each_item_keeps_its_tile_and_reads_an_operand_once():
    _, made = scheduled(matmul, leaf(256, 64), leaf(64, 256))
    (launch,) = launches(linearize(vectorize(legalize(made, SMALL))), SMALL).launches
    (tile,) = [i for i in launch.code
               if isinstance(i, li.StorageInst) and i.memory.name.endswith(".r")]  # fmt: skip
    assert tile.memory.scope != "shared"
    loads = [i.memory.name for i in launch.code if isinstance(i, li.LoadInst)
             and i.memory.name in ("in0.w", "in1.w")]  # fmt: skip
    assert len(loads) ** 2 == 4 * tile.size  # a tile of 8 rows and 8 columns


@pytest.mark.parametrize(("rows", "columns", "terms"), [(8, 64, 64), (64, 8, 64), (64, 64, 8)])
def test_small_ones_are_not_cut_into_blocks(rows, columns, terms):
    _, made = scheduled(matmul, leaf(rows, terms), leaf(terms, columns))
    assert "blocks" not in dict(made.meta.hints)["why"]


def test_what_a_large_product_moves():
    """Each element is read once for each block that it belongs to, by whole sectors."""
    (step,) = kernelize([matmul(leaf(4096, 4096), leaf(4096, 4096))])
    made = choose_for_threads(step.kernel, A100, A100.cores)
    assert "128x128" in dict(made.meta.hints)["why"]
    (cost,) = launch_costs(made)
    assert sum(cost.read.values()) <= 1.1 * 2 * 4096**3 * 4 / 128
    assert sum(cost.written.values()) == 4096 * 4096 * 4
    assert cost.used >= 0.95
    assert cost.conflicts == 0


def test_trace(golden):
    (step,) = kernelize([matmul(leaf(512, 300), leaf(300, 777))])
    made = choose_for_threads(step.kernel, A100, A100.cores)
    golden("threads/contraction.txt", "\n".join(made.meta.schedule) + "\n")
