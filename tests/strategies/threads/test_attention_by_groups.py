"""Attention on devices of threads: what blocks of queries compute, where they apply, their cost."""

import numpy as np
import pytest

import graphs
from graphs import el, leaf, matmul, softmax
from launch_costs import A100, flat, launch_costs
from launch_runs import launched
from weft.ir import dtype as dt
from weft.ir import expr as ex
from weft.ir import infer
from weft.ir import node as nd
from weft.ir.interpret import interpret
from weft.ir.op import Op
from weft.ir.verify.verify import verify
from weft.kernelize.build import kernelize
from weft.renderers.launches.work_items import launches
from weft.strategies.threads.choose import choose_for_threads

SMALL = A100.replace(max_items=64, group_items=64, shared_bytes=16 << 10, cores=1)
MANY = A100.replace(cores=1)  # one unit has large blocks


def turned(x):
    return infer.permute(x, (*range(x.ndim - 2), x.ndim - 1, x.ndim - 2))


def product(a, b):
    """Return a matrix product, of batches if there are any."""
    if a.ndim == 2:
        return matmul(a, b)
    (count, rows, terms), columns = a.shape, b.shape[-1]
    full = (count, rows, terms, columns)
    left = infer.expand(infer.reshape(a, (count, rows, terms, 1)), full)
    right = infer.expand(infer.reshape(b, (count, 1, terms, columns)), full)
    return infer.reduce(el(Op.MUL, left, right), "sum", (2,))


def attention(q, k, v, scores=lambda s: s):
    return product(softmax(scores(product(q, turned(k)))), v)


def causal(s):
    rows, keys = s.shape[-2:]
    i = infer.expand(infer.reshape(infer.iota(rows), (rows, 1)), s.shape)
    seen = el(Op.LE, infer.expand(infer.iota(keys), s.shape), i)
    return el(Op.WHERE, seen, s, graphs.full(s, float("-inf")))


def masked(s):
    return el(Op.WHERE, leaf(*s.shape, dtype=dt.bool_), s, graphs.full(s, float("-inf")))


def narrow(*shapes):
    """Return arrays of bfloat16 as float32, the first one such that where nothing is, it is not 0.
    """
    q, k, v = (infer.cast(leaf(*s, dtype=dt.bfloat16), dt.float32) for s in shapes)
    return el(Op.ADD, q, graphs.full(q, 1.5)), k, v


def leaves(*shapes, dtype=dt.float32):
    return [leaf(*s, dtype=dtype) for s in shapes]


FORMS = {
    "even": lambda: attention(*leaves((32, 16), (32, 16), (32, 16))),
    "odd": lambda: attention(*leaves((35, 13), (41, 13), (41, 19))),
    "few terms": lambda: attention(*leaves((9, 3), (6, 3), (6, 2))),
    "batches": lambda: attention(*leaves((3, 17, 5), (3, 21, 5), (3, 21, 4))),
    "causal": lambda: attention(*leaves((53, 5), (53, 5), (53, 4)), causal),
    "far keys": lambda: attention(*leaves((20, 4), (90, 4), (90, 11)), causal),
    "mask": lambda: attention(*leaves((35, 6), (41, 6), (41, 6)), masked),
    "bias": lambda: attention(*leaves((35, 6), (41, 6), (41, 6)),
                              lambda s: el(Op.ADD, s, leaf(*s.shape))),
    "float64": lambda: attention(*leaves((19, 9), (18, 9), (18, 5), dtype=dt.float64)),
    "made of bfloat16": lambda: attention(*narrow((19, 9), (18, 9), (18, 5))),
    "one array": lambda: (lambda x: attention(x, x, x))(leaf(37, 17)),
    "epilogue": lambda: el(Op.TANH, attention(*leaves((35, 6), (41, 6), (41, 6)))),
}  # fmt: skip


def scheduled(node, target):
    (step,) = kernelize([node], target, strict=True)
    assert step.kernel.meta.kind == "attention"
    made = choose_for_threads(step.kernel, target, target.cores)
    verify(made)
    return step, made


def arrays(step, rng):
    found = []
    for node in (*step.inputs, *step.outputs):
        shape = [int(getattr(d, "attr", d)) for d in node.shape]
        x = rng.random(shape) < 0.5 if node.dtype is dt.bool_ else rng.standard_normal(shape)
        found.append(x.astype(node.dtype.numpy))
    return found


def results(node, target, operands):
    """Return what the nest for processors computes, and launches for a device of threads."""
    (plain,) = kernelize([node])
    wanted, found = ([x.copy() for x in operands] for _ in range(2))
    interpret.run(plain.kernel, wanted)
    _, made = scheduled(node, target)
    launched(flat(made, target), found, {}, 2, target)
    return wanted[-1], found[-1], made


@pytest.mark.parametrize(("name", "target"), [
    *((name, SMALL) for name in FORMS), ("odd", MANY), ("causal", MANY)],
    ids=[*FORMS, "odd, 256 threads", "causal, 256 threads"])  # fmt: skip
def test_blocks_compute_what_the_nest_for_processors_does(name, target, rng):
    node = FORMS[name]()
    step, _ = scheduled(node, target)
    wanted, found, made = results(node, target, arrays(step, rng))
    assert "by groups" in dict(made.meta.hints)["why"]
    assert "not" not in dict(made.meta.hints)["why"]
    np.testing.assert_allclose(found, wanted, rtol=2e-4, atol=1e-5)
    (launch,) = launches(flat(made, target), target).launches
    assert launch.items == target.group_items


@pytest.mark.parametrize(("name", "terms", "channels"), [
    ("odd", 13, 19), ("causal", 5, 4), ("mask", 6, 6)])  # fmt: skip
def test_no_number_and_no_visible_key(name, terms, channels, rng):
    node = FORMS[name]()
    step, _ = scheduled(node, SMALL)
    operands = arrays(step, rng)
    q, k, v = [x for x in operands if x.dtype == np.float32][:3]
    for mask in (x.reshape(35, 41) for x in operands if x.dtype == np.bool_):
        mask[4], mask[5, 1:] = False, False
    q, k, v = q.reshape(-1, terms), k.reshape(-1, terms), v.reshape(-1, channels)
    q[3, 1], q[7] = np.nan, 1e20
    k[5, 0], v[40, 2], v[2, 3] = np.inf, np.inf, np.nan
    wanted, found, _ = results(node, SMALL, operands)
    assert np.isnan(wanted).any()
    assert not np.isnan(wanted).all()
    np.testing.assert_allclose(found, wanted, rtol=2e-4, atol=1e-5)


def test_sizes_that_change_from_call_to_call(rng):
    rows, keys = ex.Variable("rows", 1, 500), ex.Variable("keys", 1, 300)
    q, k, v = (infer.reshape(nd.buffer(nd.Storage(dt.float32, n * 16)), (n, 16))
               for n in (rows, keys, keys))
    (step,) = kernelize([attention(q, k, v)], SMALL, strict=True)
    made = flat(choose_for_threads(step.kernel, SMALL, 1), SMALL)
    for m, n in ((19, 18), (1, 1), (70, 33)):
        x, y, z = (rng.standard_normal((c, 16)).astype(np.float32) for c in (m, n, n))
        out = np.zeros((m, 16), np.float32)
        launched(made, [x, y, z, out], {"rows": m, "keys": n}, 3, SMALL)
        weights = np.exp(x.astype(np.float64) @ y.T)
        np.testing.assert_allclose(out, weights / weights.sum(1, keepdims=True) @ z, rtol=1e-3,
                                   atol=1e-4)  # fmt: skip


def moved(costs):
    return sum(sum(c.read.values()) + sum(c.written.values()) for c in costs)


@pytest.mark.parametrize(("rows", "keys", "size"), [(4096, 1024, 64), (2048, 512, 128)])
def test_what_a_large_attention_moves(rows, keys, size):
    """Queries and results once, keys and values once for each block of queries."""
    node = attention(*leaves((rows, size), (keys, size), (keys, size)))
    _, made = scheduled(node, A100)
    (cost,) = launch_costs(made)
    once = rows * size * 4
    assert cost.items == 256
    assert sorted(cost.read.values()) == [once] + 2 * [cost.groups * keys * size * 4]
    assert rows // cost.groups >= 32
    assert cost.written == {"out0": once}
    assert cost.used >= 0.95
    assert all(t.coalescing == 1 for t in (*cost.loads.values(), *cost.stores.values()))
    assert cost.conflicts == 0


def test_masks_are_read_once_by_whole_sectors():
    node = attention(*leaves((256, 64), (256, 64), (256, 64)), masked)
    _, made = scheduled(node, MANY)
    (cost,) = launch_costs(made)
    (mask,) = (m.name for m in made.params if m.dtype is dt.bool_)
    assert cost.read[mask] == 256 * 256
    assert cost.used >= 0.95
    assert cost.conflicts == 0


def test_one_kernel_moves_less_than_a_product_a_softmax_and_a_product():
    node = attention(*leaves((2048, 64), (512, 64), (512, 64)))
    _, made = scheduled(node, A100)
    apart = kernelize([node], A100.replace(shared_bytes=2 << 10))
    assert len(apart) == 3
    assert any("fits the memory of a group" in why for step in apart for why in step.why)
    separate = [c for step in apart
                for c in launch_costs(choose_for_threads(step.kernel, A100, A100.cores))]
    assert moved(launch_costs(made)) < 0.7 * moved(separate)


@pytest.mark.parametrize("size", [16, 64, 128])
def test_memory_of_groups_decides_the_block(size):
    """What a group keeps fits, on a device with little memory for it, too."""
    node = attention(*leaves((200, size), (200, size), (200, size)), causal)
    for target in (SMALL, A100):
        _, made = scheduled(node, target)
        cut = launches(flat(made, target), target)
        assert cut.scratch == {}


def test_trace(golden):
    _, made = scheduled(attention(*leaves((512, 64), (300, 64), (300, 80)), causal), A100)
    golden("threads/attention.txt", "\n".join(made.meta.schedule) + "\n")
