"""Attention of bfloat16 by products of matrices: by the interpreter, and on this machine."""

import numpy as np
import pytest
from test_attention_schedule import TARGETS
from test_contraction_matrix import TARGET, WITHOUT, assembly

import graphs
import weft
from graphs import leaf
from schedule_costs import Cost
from schedule_nests import assert_same
from weft.ir import dtype as dt
from weft.ir import infer
from weft.ir.op import Op
from weft.kernelize.build import kernelize
from weft.strategies import choose


def wide(*shape):
    return infer.cast(leaf(*shape, dtype=dt.bfloat16), dt.float32)


def nest(rows, keys, terms, channels, causal=False, target=TARGET, narrow=True):
    """Return the unscheduled kernel of an attention."""
    q, k, v = wide(rows, terms), wide(keys, terms), wide(keys, channels)
    scores = graphs.matmul(q, infer.permute(k, (1, 0)))
    scores = graphs.el(Op.MUL, scores, graphs.full(scores, 0.3))
    if causal:
        i = infer.expand(infer.reshape(infer.iota(rows), (rows, 1)), (rows, keys))
        seen = infer.elementwise(Op.LE, infer.expand(infer.iota(keys), (rows, keys)), i)
        scores = infer.elementwise(Op.WHERE, seen, scores, graphs.full(scores, float("-inf")))
    out = graphs.matmul(graphs.softmax(scores), v)
    (step,) = kernelize([infer.cast(out, dt.bfloat16) if narrow else out], target)
    assert step.kernel.meta.kind == "attention"
    return step.kernel


def is_matrix(kernel):
    return Cost(kernel).unit == "matrix"


@pytest.mark.parametrize(("shape", "causal", "narrow"), [
    ((8, 16, 32, 16), False, True), ((17, 33, 9, 9), True, False),
])  # fmt: skip
def test_the_schedule_computes_the_same(shape, causal, narrow):
    kernel = nest(*shape, causal, narrow=narrow)
    made = choose(kernel, TARGET, 2)
    assert is_matrix(made)
    assert_same(kernel, made, exact=False)


@pytest.mark.parametrize("target", [WITHOUT, TARGETS["16 registers of 32 bytes"]])
def test_other_targets_take_vectors_of_float32(target):
    assert not is_matrix(choose(nest(33, 45, 20, 17, target=target), target, 1))


def test_words_without_tile_registers_take_no_matrices():
    kernel = nest(8, 16, 32, 16)
    made = choose(kernel, WITHOUT, 1)
    assert not is_matrix(made)
    assert_same(kernel, made, exact=False)


def test_sums_stay_in_tile_registers():
    """Between the products of a step nothing is stored."""
    lines = assembly(nest(128, 256, 64, 64))
    products = [at for at, line in enumerate(lines) if line.strip().startswith("tdpbf16ps")]
    assert len(products) == 4 + 8  # of keys and queries; of values and both parts of weights
    for first, last in ((products[0], products[3]), (products[4], products[-1])):
        assert not any("tilestored" in line or "zmm" in line for line in lines[first:last])


def rounded(rng, *shape):
    """Return values of bfloat16, in float64."""
    bits = rng.standard_normal(shape, dtype=np.float32).view(np.uint32) & 0xFFFF0000
    return bits.view(np.float32).astype(np.float64)


def attention(q, k, v, mask=None, causal=False):
    tensors = [weft.tensor(a.astype(np.float32)).astype(weft.bfloat16) for a in (q, k, v)]
    mask = None if mask is None else weft.tensor(mask)
    return tensors[0].scaled_dot_product_attention(*tensors[1:], mask, is_causal=causal)


def computed(*args, **kwargs):
    return attention(*args, **kwargs).astype(weft.float32).numpy().astype(np.float64)


def reference(*args, **kwargs):
    with np.errstate(invalid="ignore"):
        return _formula(*args, **kwargs)


def _formula(q, k, v, mask=None, causal=False):
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    if causal:
        scores = np.where(np.tri(*scores.shape[-2:], dtype=bool), scores, -np.inf)
    if mask is not None:
        scores = np.where(mask, scores, -np.inf) if mask.dtype == bool else scores + mask
    top = scores.max(-1, keepdims=True)
    top = top if mask is None else np.where(np.isneginf(top), 0, top)
    e = np.exp(scores - top)
    total = e.sum(-1, keepdims=True)
    return (e / (total if mask is None else np.where(total == 0, 1, total))) @ v


def check(got, wanted):
    """Compare: half a unit of bfloat16, and what sums of weights of 16 bits add."""
    np.testing.assert_array_equal(np.isfinite(got), np.isfinite(wanted))
    np.testing.assert_array_equal(np.isnan(got), np.isnan(wanted))
    finite = np.isfinite(wanted)
    np.testing.assert_array_equal(got[~finite], wanted[~finite])
    np.testing.assert_allclose(got[finite], wanted[finite], rtol=2.0**-7.9, atol=1e-4)


@pytest.mark.grid
@pytest.mark.parametrize("kind", ["plain", "causal", "bool", "float"])
@pytest.mark.parametrize("number", range(2))
def test_results_of_random_shapes(number, kind, rng):
    heads, rows, keys, terms, channels = (
        int(rng.integers(low, high)) for low, high in
        ((1, 4), (8, 300), (16, 400), (8, 140), (8, 90)))
    q, k, v = (rounded(rng, heads, *s) for s in
               ((rows, terms), (keys, terms), (keys, channels)))
    mask = None
    if kind == "bool":
        mask = rng.random((rows, keys)) < 0.6
        mask[rng.integers(rows)] = False  # a query that sees nothing
    elif kind == "float":
        mask = np.where(rng.random((rows, keys)) < 0.1, -np.inf,
                        rng.standard_normal((rows, keys))).astype(np.float32)
    causal = kind == "causal"
    got = computed(q, k, v, mask, causal)
    check(got, reference(q, k, v, mask, causal))
    assert got.tobytes() == computed(q, k, v, mask, causal).tobytes()


@pytest.mark.grid
@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
@pytest.mark.parametrize("where", ["q", "k", "v"])
def test_values_that_are_no_finite_numbers(value, where, rng):
    """An infinite value times a weight whose second part is 0 is infinite."""
    q, k, v = (rounded(rng, 2, n, 32) for n in (40, 150, 150))
    q[0, 3] = 0  # equal scores: weights of one bit
    {"q": q, "k": k, "v": v}[where][:, 7, 5] = value
    check(computed(q, k, v), reference(q, k, v))
    check(computed(q, k, v, causal=True), reference(q, k, v, causal=True))


def test_large_scores_do_not_overflow(rng):
    q, k, v = (rounded(rng, 1, n, 16) for n in (20, 70, 70))
    q, k = q * 2.0**20, k * 2.0**20
    check(computed(q, k, v), reference(q, k, v))


def test_heads_that_share_keys(rng):
    q, k, v = (rounded(rng, 1, n, 50, 24) for n in (6, 2, 2))
    tensors = [weft.tensor(a.astype(np.float32)).astype(weft.bfloat16) for a in (q, k, v)]
    got = tensors[0].scaled_dot_product_attention(*tensors[1:], enable_gqa=True)
    wanted = reference(q, k.repeat(3, 1), v.repeat(3, 1))
    check(got.astype(weft.float32).numpy().astype(np.float64), wanted)


@pytest.mark.parametrize("causal", [False, True])
def test_lengths_that_are_known_at_run_time(causal, rng):
    n = weft.Variable("n", 1, 300)
    run = weft.jit(lambda q, k, v: q.scaled_dot_product_attention(k, v, is_causal=causal),
                   dynamic={name: {1: n} for name in "qkv"})
    for length in (1, 31, 129, int(rng.integers(2, 300)), 300):
        arrays = [rounded(rng, 2, length, 20) for _ in range(3)]
        tensors = [weft.tensor(a.astype(np.float32)).astype(weft.bfloat16) for a in arrays]
        got = run(*tensors).astype(weft.float32).numpy().astype(np.float64)
        check(got, reference(*arrays, causal=causal))
    assert run.captures == 1


@pytest.mark.parametrize(("rows", "channels"), [(33, 64), (33, 96), (256, 112), (256, 80)])
def test_an_odd_number_of_tiles_is_compiled(rows, channels, rng):
    """LLVM ended with a fault for products of two tiles by one."""
    arrays = [rounded(rng, 2, rows, channels) for _ in range(3)]
    check(computed(*arrays, causal=True), reference(*arrays, causal=True))
