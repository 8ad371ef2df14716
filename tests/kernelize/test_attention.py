"""Attention in one kernel: what is recognised, and what it computes in awkward cases."""

import math

import numpy as np
import pytest
from test_fuse import execute

import graphs
import weft
from graphs import el, leaf
from weft.graph.simplify import simplify
from weft.ir import dtype as dt
from weft.ir import infer
from weft.ir.op import Op
from weft.kernelize.build import kernelize


def steps_of(*tensors):
    return kernelize(simplify([t._read() for t in tensors]))


def kinds(*tensors):
    return [s.kernel.meta.kind for s in steps_of(*tensors)]


def reference(q, k, v, mask=None, causal=False, scale=None):
    """Return attention in float64; 0 for a query whose mask hides every key."""
    q, k, v = (np.asarray(a, np.float64) for a in (q, k, v))
    scores = q @ k.swapaxes(-1, -2) * (1 / math.sqrt(q.shape[-1]) if scale is None else scale)
    if causal:
        scores = np.where(np.tri(*scores.shape[-2:], dtype=bool), scores, -np.inf)
    if mask is not None and mask.dtype == bool:
        scores = np.where(mask, scores, -np.inf)
    elif mask is not None:
        scores = scores + mask
    with np.errstate(invalid="ignore"):
        top = scores.max(-1, keepdims=True)
        if mask is not None:
            top = np.where(np.isneginf(top), 0, top)
        e = np.exp(scores - top)
        total = e.sum(-1, keepdims=True)
        return (e / (total if mask is None else np.where(total == 0, 1, total))) @ v


def tensors(*arrays):
    return [weft.tensor(a) for a in arrays]


def check(q, k, v, mask=None, causal=False, fused=True, rtol=1e-4, atol=2e-5):
    a, b, c = tensors(q, k, v)
    m = None if mask is None else weft.tensor(mask)
    out = a.scaled_dot_product_attention(b, c, m, is_causal=causal)
    if fused:
        assert kinds(out) == ["attention"]
    first = out.numpy()
    np.testing.assert_allclose(first, reference(q, k, v, mask, causal), rtol=rtol, atol=atol)
    again = a.scaled_dot_product_attention(b, c, m, is_causal=causal).numpy()
    assert first.tobytes() == again.tobytes()
    return first


def normal(rng, *shape, dtype=np.float32):
    return rng.standard_normal(shape).astype(dtype)


# ---- what is recognised --------------------------------------------------------------------------


def plain(q, k, v, scores=lambda s: s):
    weights = graphs.softmax(scores(graphs.matmul(q, infer.permute(k, (1, 0)))))
    return graphs.matmul(weights, v)


GRAPHS = {
    "plain": lambda: plain(leaf(9, 4), leaf(6, 4), leaf(6, 5)),
    "scaled scores": lambda: plain(leaf(9, 4), leaf(6, 4), leaf(6, 5),
                                   lambda s: el(Op.MUL, s, graphs.full(s, 0.5))),
    "bias": lambda: plain(leaf(9, 4), leaf(6, 4), leaf(6, 5),
                          lambda s: el(Op.ADD, s, leaf(9, 6))),
    "capped": lambda: plain(leaf(9, 4), leaf(6, 4), leaf(6, 5), lambda s: el(Op.TANH, s)),
    "float64": lambda: plain(*(leaf(*n, dtype=dt.float64) for n in ((9, 4), (6, 4), (6, 5)))),
    "keys of many blocks": lambda: plain(leaf(8, 3), leaf(130, 3), leaf(130, 2)),
    "queries of two blocks": lambda: plain(leaf(35, 3), leaf(7, 3), leaf(7, 9)),
    "values first": lambda: _transposed(leaf(9, 4), leaf(6, 4), leaf(6, 5)),
    "epilogue": lambda: el(Op.TANH, plain(leaf(9, 4), leaf(6, 4), leaf(6, 5))),
}  # fmt: skip


def _transposed(q, k, v):
    """Return V^T W^T: the same sum with its factors and axes the other way round."""
    weights = graphs.softmax(graphs.matmul(q, infer.permute(k, (1, 0))))
    return graphs.matmul(infer.permute(v, (1, 0)), infer.permute(weights, (1, 0)))


@pytest.mark.parametrize("name", GRAPHS)
def test_one_kernel_equals_the_graph(name, rng):
    got, wanted, steps = execute([GRAPHS[name]()], rng)
    assert [s.kernel.meta.kind for s in steps] == ["attention"]
    assert "none is stored" in steps[0].why[0]
    np.testing.assert_allclose(got[0], wanted[0], rtol=2e-5, atol=2e-6)


def _weights_too():
    weights = graphs.softmax(graphs.matmul(leaf(9, 4), infer.permute(leaf(6, 4), (1, 0))))
    return [graphs.matmul(weights, leaf(6, 5)), weights]


def _scores_too():
    scores = graphs.matmul(leaf(9, 4), infer.permute(leaf(6, 4), (1, 0)))
    return [graphs.matmul(graphs.softmax(scores), leaf(6, 5)), scores]


def _centred():
    """Return attention on scores less their mean, which needs the whole row first."""
    def less_mean(s):
        mean = el(Op.DIV, infer.reduce(s, "sum", (1,)), graphs.full(leaf(9), 6.0))
        return el(Op.SUB, s, graphs.kept(mean, (1,), s))

    return [plain(leaf(9, 4), leaf(6, 4), leaf(6, 5), less_mean)]


def _padded():
    """Return attention with a first key that is no key."""
    return [plain(leaf(9, 4), leaf(6, 4), leaf(7, 5),
                  lambda s: infer.pad(s, (0, 1), (0, 0), 0.5))]


def _unshifted():
    e = el(Op.EXP, graphs.matmul(leaf(9, 4), infer.permute(leaf(6, 4), (1, 0))))
    total = graphs.kept(infer.reduce(e, "sum", (1,)), (1,), e)
    return [graphs.matmul(el(Op.DIV, e, total), leaf(6, 5))]


MISFITS = {
    "centred scores": (_centred, "read by reduce"),
    "padded scores": (_padded, "not made of one contraction"),
    "no maximum": (_unshifted, "not a softmax"),
    "weights wanted": (_weights_too, "read elsewhere"),
    "scores wanted": (_scores_too, "read elsewhere"),
    "few queries": (lambda: [plain(leaf(5, 4), leaf(6, 4), leaf(6, 5))], "only 5 queries"),
    "softmax over queries": (lambda: [graphs.matmul(graphs.softmax(
        graphs.matmul(leaf(9, 4), infer.permute(leaf(6, 4), (1, 0))), 0), leaf(6, 5))],
        "another axis"),
    "huge heads": (lambda: [plain(leaf(9, 2048), leaf(6, 2048), leaf(6, 5))], "too large"),
}  # fmt: skip


@pytest.mark.parametrize("name", MISFITS)
def test_what_does_not_fit_says_why(name, rng):
    make, reason = MISFITS[name]
    if name == "huge heads":
        steps = kernelize(make())
    else:
        got, wanted, steps = execute(make(), rng)
        for g, w in zip(got, wanted, strict=True):
            np.testing.assert_allclose(g, w, rtol=2e-5, atol=2e-6)
    assert "attention" not in [s.kernel.meta.kind for s in steps]
    assert any(reason in why for s in steps for why in s.why)


def test_the_score_matrix_is_never_held():
    q, k, v = (weft.ones(2, 700, 16) for _ in range(3))
    (step,) = steps_of(q.realize().scaled_dot_product_attention(
        k.realize(), v.realize(), is_causal=True))
    assert not step.scratch
    assert step.kernel.meta.traffic == 4 * 2 * 700 * 16 * 4


def test_a_projection_keeps_its_bias_beside_the_attention(rng):
    x, w = tensors(normal(rng, 2, 40, 24), normal(rng, 72, 24) / 5)
    b = weft.tensor(normal(rng, 72))

    def run(x, w, b):
        qkv = x.linear(w, b).reshape(2, 40, 3, 3, 8).permute(2, 0, 3, 1, 4)
        out = qkv[0].scaled_dot_product_attention(qkv[1], qkv[2], is_causal=True)
        return out.permute(0, 2, 1, 3).reshape(2, 40, 24)

    assert kinds(run(x, w, b)) == ["contraction", "attention"]
    qkv = (x.numpy().astype(np.float64) @ w.numpy().T + b.numpy()).reshape(2, 40, 3, 3, 8)
    q, k, v = qkv.transpose(2, 0, 3, 1, 4)
    wanted = reference(q, k, v, causal=True).transpose(0, 2, 1, 3).reshape(2, 40, 24)
    np.testing.assert_allclose(run(x, w, b).numpy(), wanted, rtol=1e-4, atol=2e-5)


def test_queries_that_a_later_product_has_stored(rng):
    """A product of rows with themselves stores what the attention before it has inlined."""
    x, k, v = tensors(normal(rng, 2, 9, 16), normal(rng, 6, 4), normal(rng, 6, 5))

    def run():
        q = x[:, :, weft.tensor([1, 5, 14, 15])]
        return (q @ k.transpose(0, 1)).softmax(-1) @ v, q @ q.transpose(-1, -2)

    assert "attention" in kinds(*run())
    q = x.numpy()[:, :, [1, 5, 14, 15]].astype(np.float64)
    out, squares = run()
    weft.realize(out, squares)
    wanted = reference(q, k.numpy(), v.numpy(), scale=1.0)
    np.testing.assert_allclose(out.numpy(), wanted, rtol=1e-4, atol=2e-5)
    np.testing.assert_allclose(squares.numpy(), q @ q.swapaxes(1, 2), rtol=1e-4, atol=2e-5)


def test_gradients_stay_correct_beside_the_forward(rng):
    arrays = [normal(rng, 2, 12, 5) for _ in range(3)]
    ours = [weft.tensor(a, requires_grad=True) for a in arrays]
    out = ours[0].scaled_dot_product_attention(ours[1], ours[2], is_causal=True)
    out.mul(out).sum().backward()
    epsilon = 1e-5
    for n, t in enumerate(ours):
        moved = [a.astype(np.float64) for a in arrays]
        moved[n][1, 7, 2] += epsilon
        up = (reference(*moved, causal=True) ** 2).sum()
        moved[n][1, 7, 2] -= 2 * epsilon
        down = (reference(*moved, causal=True) ** 2).sum()
        np.testing.assert_allclose(t.grad.numpy()[1, 7, 2], (up - down) / (2 * epsilon),
                                   rtol=2e-3, atol=1e-4)


# ---- values --------------------------------------------------------------------------------------


@pytest.mark.grid
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("rows", "keys", "size", "channels"), [
    (1, 7, 8, 8), (7, 1, 8, 8), (7, 65, 33, 33), (8, 1, 4, 4), (64, 64, 64, 64), (65, 65, 1, 1),
    (65, 129, 33, 8), (129, 65, 8, 33), (129, 129, 128, 128), (33, 1, 5, 3), (64, 129, 1, 64),
])  # fmt: skip
def test_any_size(rows, keys, size, channels, causal, rng):
    q, k, v = normal(rng, 2, rows, size), normal(rng, 2, keys, size), normal(rng, 2, keys, channels)
    fused = rows >= 8 and keys > 1 and size > 1 and channels > 1
    check(q, k, v, causal=causal, fused=fused)


@pytest.mark.slow
def test_sizes_by_chance(rng):
    for _ in range(12):
        rows, keys, size, channels = (int(rng.integers(lo, 150)) for lo in (8, 2, 2, 2))
        shapes = ((3, rows, size), (3, keys, size), (3, keys, channels))
        check(*(normal(rng, *s) for s in shapes), causal=bool(rng.integers(2)))


@pytest.mark.parametrize(("name", "rtol"), [("float64", 1e-12), ("float16", 2e-3),
                                            ("bfloat16", 2e-2)])  # fmt: skip
def test_types(name, rtol, rng):
    q, k, v = (weft.tensor(normal(rng, 2, 65, 33)).to(getattr(weft, name)).realize()
               for _ in range(3))
    out = q.scaled_dot_product_attention(k, v, is_causal=True)
    assert kinds(out) == ["attention"]
    assert out.dtype.name.endswith(name)
    wanted = reference(*(t.to(weft.float64).numpy() for t in (q, k, v)), causal=True)
    np.testing.assert_allclose(out.to(weft.float64).numpy(), wanted, rtol=rtol, atol=rtol)


MASKS = {
    "full": (2, 3, 40, 70), "of heads": (3, 40, 70), "shared": (40, 70), "of keys": (2, 1, 1, 70),
    "of queries": (40, 1),
}  # fmt: skip


@pytest.mark.grid
@pytest.mark.parametrize("name", MASKS)
@pytest.mark.parametrize("kind", ["bool", "float"])
def test_masks(name, kind, rng):
    q, k, v = normal(rng, 2, 3, 40, 9), normal(rng, 2, 3, 70, 9), normal(rng, 2, 3, 70, 11)
    mask = rng.random(MASKS[name]) < 0.7
    if kind == "float":
        mask = np.where(mask, normal(rng, *MASKS[name]), np.float32(-np.inf))
    check(q, k, v, mask)


def test_causal_and_a_mask(rng):
    q, k, v = (normal(rng, 2, 70, 9) for _ in range(3))
    check(q, k, v, rng.random((70, 70)) < 0.9, causal=True)
    check(q, k, v, normal(rng, 70, 70), causal=True)


def test_rows_that_see_nothing_are_0(rng):
    q, k, v = (normal(rng, 2, 70, 9) for _ in range(3))
    mask = np.ones((70, 70), bool)
    mask[[0, 5, 69]] = False
    got = check(q, k, v, mask)
    assert (got[:, [0, 5, 69]] == 0).all()
    check(q, k, v, np.where(mask, normal(rng, 70, 70), np.float32(-np.inf)))
    mask[:, :66] = False  # most rows meet their first key in the second block
    mask[[0, 5, 69]] = False
    check(q, k, v, mask)


def test_rows_without_scores_are_nan_in_a_plain_softmax(rng):
    a, b, c = tensors(*(normal(rng, 2, 70, 9) for _ in range(3)))
    mask = weft.tensor(np.arange(70).reshape(70, 1) != 5)
    scores = a.matmul(b.transpose(-2, -1))
    out = weft.where(mask, scores, weft.tensor(-math.inf)).softmax(-1).matmul(c)
    assert kinds(out)[-1] == "attention"
    assert np.isnan(out.numpy()[:, 5]).all()
    assert not np.isnan(out.numpy()[:, 6:]).any()


def test_huge_scores(rng):
    q, k, v = (normal(rng, 2, 70, 9) for _ in range(3))
    check(q * 1e4, k, v, rtol=2e-3, atol=1e-3)
    check(q * 1e4, k, v, causal=True, rtol=2e-3, atol=1e-3)
    same = np.full((1, 70, 4), 1e4, np.float32)
    check(same, same, normal(rng, 1, 70, 4))
    check(same, -same, normal(rng, 1, 70, 4), causal=True)


@pytest.mark.grid
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("operand", [0, 1, 2])
@pytest.mark.parametrize("place", [0, 40, 99])
@pytest.mark.parametrize("causal", [False, True])
def test_values_that_are_no_numbers_spread_as_in_the_graph(value, operand, place, causal, rng):
    arrays = [normal(rng, 2, 100, 9) for _ in range(3)]
    arrays[operand][1, place, 4] = value
    got = weft.tensor(arrays[0]).scaled_dot_product_attention(
        weft.tensor(arrays[1]), weft.tensor(arrays[2]), is_causal=causal)
    assert kinds(got) == ["attention"]
    with np.errstate(invalid="ignore"):
        wanted = reference(*arrays, causal=causal)
    np.testing.assert_allclose(got.numpy(), wanted, rtol=1e-4, atol=2e-5)


def test_infinite_scores_that_are_masked(rng):
    q, k, v = (normal(rng, 1, 70, 9) for _ in range(3))
    mask = normal(rng, 70, 70)
    mask[3, 5], mask[4, 6] = np.inf, np.nan
    got = check(q, k, v, mask)
    assert np.isnan(got[0, [3, 4]]).all()


def test_a_bias_that_is_looked_up(rng):
    q, k, v = (normal(rng, 2, 40, 9) for _ in range(3))
    table = normal(rng, 50)
    index = rng.integers(0, 50, (40, 40))

    def run(index):
        a, b, c, t = tensors(q, k, v, table)
        scores = a.matmul(b.transpose(-2, -1)).mul(1 / 3).add(t[weft.tensor(index)])
        seen = weft.arange(40).reshape(1, 40).le(weft.arange(40).reshape(40, 1))
        return weft.where(seen, scores, weft.tensor(-math.inf)).softmax(-1).matmul(c)

    assert kinds(run(index))[-1] == "attention"
    mask = np.where(np.tri(40, dtype=bool), table[index], np.float32(-np.inf))
    np.testing.assert_allclose(run(index).numpy(), reference(q, k, v, mask), rtol=1e-4, atol=2e-5)
    index[0, 39] = 50  # hidden, and still no place in the table
    with pytest.raises(IndexError):
        run(index).numpy()


def test_grouped_queries(rng):
    q = normal(rng, 2, 6, 37, 9)
    k, v = normal(rng, 2, 2, 45, 9), normal(rng, 2, 2, 45, 9)
    out = weft.tensor(q).scaled_dot_product_attention(weft.tensor(k), weft.tensor(v),
                                                      enable_gqa=True)
    assert kinds(out) == ["attention"]
    wanted = reference(q, k.repeat(3, 1), v.repeat(3, 1))
    np.testing.assert_allclose(out.numpy(), wanted, rtol=1e-4, atol=2e-5)


def test_heads_by_broadcast(rng):
    check(normal(rng, 2, 3, 20, 9), normal(rng, 1, 1, 33, 9), normal(rng, 1, 1, 33, 9))
    check(normal(rng, 1, 20, 9), normal(rng, 4, 33, 9), normal(rng, 4, 33, 9))


def test_keys_before_the_first_query(rng):
    """Query i sees keys up to i + 30, as with keys of earlier calls."""
    q, k, v = normal(rng, 2, 40, 9), normal(rng, 2, 70, 9), normal(rng, 2, 70, 9)
    a, b, c = tensors(q, k, v)
    scores = a.matmul(b.transpose(-2, -1)).mul(1 / 3)
    hidden = weft.arange(70).reshape(1, 70).gt(weft.arange(40).reshape(40, 1).add(30))
    out = weft.where(hidden, weft.tensor(-math.inf), scores).softmax(-1).matmul(c)
    assert kinds(out)[-1] == "attention"
    mask = np.arange(70)[None] <= np.arange(40)[:, None] + 30
    np.testing.assert_allclose(out.numpy(), reference(q, k, v, mask), rtol=1e-4, atol=2e-5)


@pytest.mark.requires("torch")
def test_as_near_to_float64_as_pytorch(rng):
    import torch

    q, k, v = (normal(rng, 4, 257, 64) for _ in range(3))
    wanted = reference(q, k, v, causal=True)
    theirs = torch.nn.functional.scaled_dot_product_attention(
        *map(torch.from_numpy, (q, k, v)), is_causal=True).numpy()
    ours = check(q, k, v, causal=True)
    assert np.abs(ours - wanted).max() <= 2 * np.abs(theirs - wanted).max() + 1e-7
