"""Gradients of attention without its scores: which kernels there are, and what they compute."""

import itertools

import numpy as np
import pytest
from test_attention import kinds, normal, reference, steps_of

import weft
from weft.graph import gradients_softmax
from weft.ir.op import Op

NAMES = ("output", "queries", "keys", "values")


@pytest.fixture(autouse=True)
def kernels_of_small_ones(monkeypatch):
    """Let small attentions have the kernels of large ones, which are cheap to test by them."""
    monkeypatch.setattr(gradients_softmax, "_FEW_SCORES", 0)


def wanted(q, k, v, g, mask=None, causal=False):
    """Return attention and its gradients in float64, as textbooks have them."""
    q, k, v, g = (np.asarray(a, np.float64) for a in (q, k, v, g))
    groups = q.shape[-3] // k.shape[-3] if q.ndim > 2 else 1
    wide_k, wide_v = (a.repeat(groups, -3) if groups > 1 else a for a in (k, v))
    eye = np.eye(wide_k.shape[-2])
    weights = reference(q, wide_k, np.broadcast_to(eye, (*wide_k.shape[:-2], *eye.shape)),
                        mask, causal)
    out = weights @ wide_v
    dw = g @ wide_v.swapaxes(-1, -2)
    ds = weights * (dw - (dw * weights).sum(-1, keepdims=True)) / np.sqrt(q.shape[-1])
    if mask is not None and mask.dtype == bool:
        ds = np.where(mask, ds, 0)
    grads = [ds @ wide_k, ds.swapaxes(-1, -2) @ q, weights.swapaxes(-1, -2) @ g]
    return [out, *(_fold(d, a) for d, a in zip(grads, (q, k, v), strict=True))]


def _fold(gradient, like):
    """Sum over what was repeated by broadcasting or by sharing heads."""
    if gradient.ndim > 2 and like.shape[-3] not in (1, gradient.shape[-3]):
        shape = (*gradient.shape[:-3], like.shape[-3], -1, *gradient.shape[-2:])
        gradient = gradient.reshape(shape).sum(-3)
    axes = tuple(a for a, n in enumerate(like.shape) if n == 1 and gradient.shape[a] != 1)
    return gradient.sum(axes, keepdims=True)


def step(q, k, v, g, mask=None, causal=False, gqa=False):
    """Return attention and its gradients, not computed yet."""
    q, k, v = (t.detach().requires_grad_() for t in (q, k, v))
    out = q.scaled_dot_product_attention(k, v, mask, is_causal=causal, enable_gqa=gqa)
    return [out, *weft.grad(out, (q, k, v), grad_outputs=g)]


def check(q, k, v, g, mask=None, causal=False, gqa=False, dtype=weft.float32, rtol=2e-4,
          atol=5e-5):
    """Check one attention with its gradients: no kernel but attention sees scores."""
    given = [weft.tensor(a).to(dtype).realize() for a in (q, k, v, g)]
    m = None if mask is None else weft.tensor(mask)
    outs = step(*given, m, causal, gqa)
    found = kinds(*outs)
    if k.shape[-2] > v.shape[-1] or dtype in (weft.float16, weft.bfloat16):
        assert "contraction" not in found  # else the weights are no more than the results
        assert 2 <= found.count("attention") <= 4
    exact = wanted(*(t.to(weft.float64).numpy() for t in given), mask, causal)
    got = [t.to(weft.float64).numpy() for t in outs]
    for name, a, b in zip(NAMES, got, exact, strict=True):
        np.testing.assert_allclose(a, b, rtol=rtol, atol=atol, err_msg=name)
    again = step(*given, m, causal, gqa)
    for a, b in zip(got, again, strict=True):
        assert a.tobytes() == b.to(weft.float64).numpy().tobytes()
    return got


SIZES = [(9, 2, 3, 2, False), (33, 65, 7, 5, True), (64, 64, 64, 64, False),
         (129, 70, 16, 16, True), (70, 129, 16, 16, True), (41, 97, 80, 31, False),
         (32, 33, 2, 128, True)]  # fmt: skip


@pytest.mark.grid
@pytest.mark.parametrize(("rows", "keys", "size", "channels", "causal"), SIZES)
def test_any_size(rows, keys, size, channels, causal, rng):
    check(normal(rng, 2, rows, size), normal(rng, 2, keys, size), normal(rng, 2, keys, channels),
          normal(rng, 2, rows, channels), causal=causal)


@pytest.mark.slow
def test_many_heads(rng):
    for rows, keys, size, channels in ((70, 70, 8, 8), (37, 131, 33, 5)):
        check(normal(rng, 3, 4, rows, size), normal(rng, 3, 4, keys, size),
              normal(rng, 3, 4, keys, channels), normal(rng, 3, 4, rows, channels), causal=True)


@pytest.mark.grid
@pytest.mark.parametrize(("name", "tolerance"), [("float64", 1e-12), ("float16", 4e-3),
                                                 ("bfloat16", 3e-2)])  # fmt: skip
@pytest.mark.parametrize("heads", [2, 9])
def test_types(name, tolerance, heads, rng):
    arrays = (normal(rng, heads, 65, 33) for _ in range(4))
    check(*arrays, causal=True, dtype=getattr(weft, name), rtol=tolerance, atol=tolerance)


@pytest.mark.grid
@pytest.mark.parametrize("shape", [(2, 3, 40, 70), (3, 40, 70), (40, 70), (2, 1, 1, 70), (1, 70)])
@pytest.mark.parametrize("kind", ["bool", "float"])
def test_masks(shape, kind, rng):
    mask = rng.random(shape) < 0.7
    if kind == "float":
        mask = np.where(mask, normal(rng, *shape), np.float32(-np.inf))
    check(normal(rng, 2, 3, 40, 9), normal(rng, 2, 3, 70, 9), normal(rng, 2, 3, 70, 11),
          normal(rng, 2, 3, 40, 11), mask)


@pytest.mark.grid
@pytest.mark.parametrize("shape", [(3, 4, 64, 96), (64, 96), (3, 1, 1, 96), (64, 1)])
def test_masks_of_many_heads(shape, rng):
    mask = rng.random(shape) < 0.8
    mask[..., :1] = True
    check(normal(rng, 3, 4, 64, 9), normal(rng, 3, 4, 96, 9), normal(rng, 3, 4, 96, 11),
          normal(rng, 3, 4, 64, 11), np.where(mask, normal(rng, *shape), np.float32(-np.inf)))


@pytest.mark.grid
@pytest.mark.parametrize("causal", [False, True])
def test_grouped_queries(causal, rng):
    check(normal(rng, 2, 6, 65, 9), normal(rng, 2, 2, 65, 9), normal(rng, 2, 2, 65, 9),
          normal(rng, 2, 6, 65, 9), causal=causal, gqa=True)


@pytest.mark.slow
def test_heads_by_broadcast(rng):
    check(normal(rng, 2, 5, 20, 9), normal(rng, 1, 1, 33, 9), normal(rng, 1, 1, 33, 9),
          normal(rng, 2, 5, 20, 9))


@pytest.mark.slow
def test_rows_that_see_nothing(rng):
    """Their output is 0, and nothing flows back through them."""
    mask = np.ones((70, 70), bool)
    mask[[0, 5, 69]] = False
    q, k, v, g = (normal(rng, 2, 70, 9) for _ in range(4))
    for m in (mask, np.where(mask, normal(rng, 70, 70), np.float32(-np.inf))):
        out, dq, _, _ = check(q, k, v, g, m)
        assert (out[:, [0, 5, 69]] == 0).all()
        assert (dq[:, [0, 5, 69]] == 0).all()


def test_one_gradient_at_a_time(rng):
    arrays = [normal(rng, 2, 40, 9) for _ in range(4)]
    exact = wanted(*arrays, causal=True)
    for n in range(3):
        q, k, v, g = map(weft.tensor, arrays)
        ours = [q, k, v]
        ours[n].requires_grad_()
        out = q.scaled_dot_product_attention(k, v, is_causal=True)
        (grad,) = weft.grad(out, ours[n], grad_outputs=g)
        np.testing.assert_allclose(grad.numpy(), exact[n + 1], rtol=2e-4, atol=5e-5)


@pytest.mark.grid
@pytest.mark.parametrize("heads", [2, 9])
def test_one_array_for_all_three(heads, rng):
    """Its gradient adds the results of a kernel, which can only follow that kernel."""
    x, g = normal(rng, heads, 40, 8), normal(rng, heads, 40, 8)
    t = weft.tensor(x, requires_grad=True)
    out = t.scaled_dot_product_attention(t, t, is_causal=True)
    (grad,) = weft.grad(out, t, grad_outputs=weft.tensor(g))
    assert "contraction" not in kinds(out, grad)
    np.testing.assert_allclose(grad.numpy(), sum(wanted(x, x, x, g, causal=True)[1:]), rtol=2e-4,
                               atol=5e-5)


def test_symbolic_lengths(rng):
    """One capture serves all lengths of queries and keys, without an array of scores."""
    n, m = weft.Variable("n", 1, 150), weft.Variable("m", 1, 150)

    def graph(q, k, v, g):
        out = step(q, k, v, g, causal=True)
        assert kinds(*out).count("attention") == 2
        return out

    run = weft.jit(graph, dynamic={0: {1: n}, 1: {1: m}, 2: {1: m}, 3: {1: n}})
    for rows, keys in ((40, 40), (1, 1), (33, 150), (150, 7), (8, 65)):
        arrays = [normal(rng, 9, rows, 8), normal(rng, 9, keys, 8), normal(rng, 9, keys, 6),
                  normal(rng, 9, rows, 6)]
        got = run(*map(weft.tensor, arrays))
        for a, b in zip(got, wanted(*arrays, causal=True), strict=True):
            np.testing.assert_allclose(a.numpy(), b, rtol=2e-4, atol=5e-5)
    assert run.captures == 1


def test_finite_differences(rng):
    arrays = [rng.standard_normal((1, 11, 5)) for _ in range(4)]
    got = check(*arrays, causal=True, dtype=weft.float64, rtol=1e-11, atol=1e-11)
    for n, place in itertools.product(range(3), [(0, 0, 0), (0, 7, 3), (0, 10, 4)]):
        values = []
        for sign in (1, -1):
            moved = [a.copy() for a in arrays]
            moved[n][place] += sign * 1e-6
            values.append((reference(*moved[:3], causal=True) * arrays[3]).sum())
        np.testing.assert_allclose(got[n + 1][place], (values[0] - values[1]) / 2e-6, rtol=1e-6,
                                   atol=1e-8)


@pytest.mark.slow
def test_written_by_hand(rng):
    """Softmax as an expression, with a maximum that is not detached, and a cap on the scores."""
    arrays = [normal(rng, 2, 3, 40, 8) for _ in range(4)]

    def run(q, k, v):
        scores = (q.matmul(k.transpose(-2, -1)) * 0.3).tanh() * 5.0
        e = (scores - scores.amax(-1, True)).exp()
        return (e / e.sum(-1, True)).matmul(v)

    ours = [weft.tensor(a, requires_grad=True) for a in arrays[:3]]
    out = run(*ours)
    grads = weft.grad(out, tuple(ours), grad_outputs=weft.tensor(arrays[3]))
    assert "contraction" not in kinds(out, *grads)
    exact = [weft.tensor(a.astype(np.float64), requires_grad=True) for a in arrays[:3]]
    slow = weft.grad(run(*exact), tuple(exact),
                     grad_outputs=weft.tensor(arrays[3].astype(np.float64)))
    for a, b, x in zip(grads, slow, exact, strict=True):
        assert a.shape == x.shape
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=2e-4, atol=5e-5)


def test_the_score_matrix_is_never_held():
    q, k, v, g = (weft.ones(1, 4096, 8).realize() for _ in range(4))
    arrays = [o for s in steps_of(*step(q, k, v, g, causal=True)) for o in s.outputs]
    scratch = [m for s in steps_of(*step(q, k, v, g, causal=True)) for m in s.scratch]
    assert max(np.prod(o.shape) for o in arrays) == 4096 * 8
    assert sum(int(m.size.attr) for m in scratch) <= 4096 * 16


def test_a_gradient_of_the_mask_needs_the_scores(rng):
    """The gradient of a bias that all heads share sums over heads: several kernels, same values."""
    arrays = [normal(rng, 2, 3, 20, 8) for _ in range(4)]
    bias = normal(rng, 20, 20)
    q, k, v, b = (weft.tensor(a, requires_grad=True) for a in (*arrays[:3], bias))
    out = q.scaled_dot_product_attention(k, v, b)
    grads = weft.grad(out, (q, k, v, b), grad_outputs=weft.tensor(arrays[3]))
    exact = wanted(*arrays, bias)
    for a, x in zip((out, *grads), exact, strict=False):
        np.testing.assert_allclose(a.numpy(), x, rtol=2e-4, atol=5e-5)
    up, down = (
        (reference(*arrays[:3], bias + sign * 1e-5 * (np.arange(400).reshape(20, 20) == 47))
         * arrays[3]).sum() for sign in (1, -1))
    np.testing.assert_allclose(grads[3].numpy().ravel()[47], (up - down) / 2e-5, rtol=1e-3,
                               atol=1e-4)


def test_the_forward_keeps_what_the_gradients_need(rng):
    q, k, v, g = (weft.tensor(normal(rng, 2, 40, 8)) for _ in range(4))
    steps = [s for s in steps_of(*step(q, k, v, g)) if s.kernel.meta.kind == "attention"]
    assert [o.attr.kind for o in steps[0].outputs if o.op is Op.REDUCE] == ["max", "sum", "sum"]
    assert all(any("of an attention" in w for w in s.why) for s in steps[1:])
