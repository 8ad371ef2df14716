"""Gradients beside PyTorch's, and the rules of the autograd interface."""

import numpy as np
import pytest

import weft
from weft.nn import functional as F


def leaf(shape=(3, 4), seed=0, dtype=np.float32):
    return np.random.default_rng(seed).uniform(0.2, 2.0, shape).astype(dtype)


FUNCTIONS = {
    "arithmetic": lambda m, f, x, w: (x * w + 2) / (x - 5) - w**2 + x**w + 2**x,
    "functions": lambda m, f, x, w: x.exp() + w.log() * x.sin() + x.tanh() - w.sqrt() + x.erf(),
    "activations": lambda m, f, x, w: (
        f.gelu(x - 1)
        + f.silu(w - 1)
        + f.relu(x - 1)
        + f.softplus(w)
        + f.elu(x - 1)
        + f.leaky_relu(w - 1)
        + f.logsigmoid(x)
    ),
    "reductions": lambda m, f, x, w: (
        x.sum(0) * w.mean(0) + x.var(0) + w.prod(0) + x.amax(0) + w.std(0) + x.logsumexp(0)
    ),
    "movement": lambda m, f, x, w: (
        m.cat([x, w.flip(0)], 1).reshape(2, 3, 4).permute(2, 0, 1)[1:, :, ::2]
    ),
    "joins": lambda m, f, x, w: m.stack([x, w * x], 0).roll(1, 1).tril() + f.pad(x[:, :2], (1, 1)),
    "indexing": lambda m, f, x, w: x[m.tensor([0, 2, 0])] * w[:, 1:2] + x[1] + w[0, 3],
    "gather": lambda m, f, x, w: x.gather(1, m.tensor([[0, 1], [3, 3], [2, 0]])) * w[:, :2],
    "scatter": lambda m, f, x, w: x.scatter_add(0, m.tensor([[0, 1, 2, 2]]), w[:1]),
    "where": lambda m, f, x, w: m.where(x > w, x * 2, w * 3).clamp(0.5, 4) + m.maximum(x, w),
    "matmul": lambda m, f, x, w: x @ w.T + m.einsum("ij,kj->ik", x, w),
    "softmax": lambda m, f, x, w: x.softmax(-1) * w + w.log_softmax(0),
    "norms": lambda m, f, x, w: (
        f.layer_norm(x, (4,), w[0], w[1]) + f.group_norm(x, 2) + f.rms_norm(w, (4,))
    ),
    "cumulative": lambda m, f, x, w: x.cumsum(1) * w + w.cumsum(0),
    "sort": lambda m, f, x, w: x.sort(1)[0] * w + w.topk(4, 1)[0],
    "losses": lambda m, f, x, w: (
        f.mse_loss(x, w)
        + f.cross_entropy(x, m.tensor([0, 3, 1]))
        + f.smooth_l1_loss(x, w)
        + f.binary_cross_entropy_with_logits(x, w * 0.3)
    ),
    "attention": lambda m, f, x, w: f.scaled_dot_product_attention(
        x[None], w[None], x[None], is_causal=True
    ),
    "norm": lambda m, f, x, w: x.norm() + w.norm(1, 0) + f.normalize(x, dim=1),
    "expand": lambda m, f, x, w: (
        x[:1].expand(3, 4) * w + w.repeat(1, 2)[:, 2:6] + x.unfold(1, 2, 1).sum(-1)[:, :1]
    ),
}


@pytest.mark.requires("torch")
@pytest.mark.parametrize("name", FUNCTIONS)
def test_gradients(name):
    import torch

    function = FUNCTIONS[name]
    a, b = leaf(), leaf(seed=1)
    x, w = (weft.tensor(v, requires_grad=True) for v in (a, b))
    y, u = (torch.tensor(v, requires_grad=True) for v in (a, b))
    found, expected = function(weft, F, x, w), function(torch, torch.nn.functional, y, u)
    np.testing.assert_allclose(found.numpy(), expected.detach().numpy(), 1e-4, 1e-5)
    (found * found).sum().backward()
    (expected * expected).sum().backward()
    for mine, theirs in ((x, y), (w, u)):
        np.testing.assert_allclose(mine.grad.numpy(), theirs.grad.numpy(), 2e-3, 1e-4)


@pytest.mark.requires("torch")
@pytest.mark.parametrize(
    "options", [{}, {"stride": 2, "padding": 1}, {"groups": 2}, {"dilation": 2}]
)
def test_convolution_gradients(options):
    import torch

    a, b = leaf((2, 4, 6, 5)), leaf((4, 4 // options.get("groups", 1), 3, 2), 1)
    x, w = (weft.tensor(v, requires_grad=True) for v in (a, b))
    y, u = (torch.tensor(v, requires_grad=True) for v in (a, b))
    x.conv2d(w, **options).max_pool2d(2, 1).square().sum().backward()
    f = torch.nn.functional
    f.max_pool2d(f.conv2d(y, u, **options), 2, 1).square().sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), y.grad.numpy(), 1e-3, 1e-3)
    np.testing.assert_allclose(w.grad.numpy(), u.grad.numpy(), 1e-3, 1e-3)


def test_accumulation_and_repeats():
    x = weft.tensor([1.0, 2.0], requires_grad=True)
    loss = (x * x).sum()
    loss.backward()
    loss.backward()
    assert x.grad.tolist() == [4.0, 8.0]
    x.grad = None
    loss.backward(weft.tensor(2.0))
    assert x.grad.tolist() == [4.0, 8.0]


def test_history_goes_on_through_realized_values():
    x = weft.tensor([1.0, 2.0], requires_grad=True)
    y = (x * 3).realize()
    z = (y * y).realize()
    z.sum().backward()
    assert x.grad.tolist() == [18.0, 36.0]
    assert not x.grad.requires_grad


def test_equal_leaves_have_gradients_of_their_own():
    a = weft.zeros(2, requires_grad=True)
    b = weft.zeros(2, requires_grad=True)
    (a * 2 + b * 3).sum().backward()
    assert a.grad.tolist() == [2.0, 2.0]
    assert b.grad.tolist() == [3.0, 3.0]


def test_reshaped_leaf():
    x = weft.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
    (x.reshape(4) * weft.tensor([1.0, 2.0, 3.0, 4.0])).sum().backward()
    assert x.grad.tolist() == [[1.0, 2.0], [3.0, 4.0]]


def test_no_grad():
    x = weft.tensor([1.0, 2.0], requires_grad=True)
    with weft.no_grad():
        y = x * 2
        view = x[0]
    assert not y.requires_grad
    assert not view.requires_grad
    (y * x + view).sum().backward()
    assert x.grad.tolist() == [2.0, 4.0]

    @weft.no_grad()
    def decorated():
        return x + 1

    assert not decorated().requires_grad
    assert weft.is_grad_enabled()


def test_detach_shares_memory():
    x = weft.tensor([1.0, 2.0], requires_grad=True)
    y = x.detach()
    y[0] = 5.0
    assert x.tolist() == [5.0, 2.0]
    (x * y).sum().backward()
    assert x.grad.tolist() == [5.0, 2.0]


def test_in_place_history():
    x = weft.tensor([1.0, 2.0, 3.0], requires_grad=True)
    y = x * 2
    y[1:] *= x[:2]
    y[0] = 7.0
    y.sum().backward()
    # y = [7, 4 x0 ... ]: y1 = 2 x1 x0, y2 = 2 x2 x1
    assert x.grad.tolist() == [4.0, 2.0 + 6.0, 4.0]


def test_writes_to_leaves():
    x = weft.tensor([1.0, 2.0], requires_grad=True)
    with pytest.raises(weft.GradientError, match="no_grad"):
        x.add_(1)
    with pytest.raises(weft.GradientError, match="no_grad"):
        x[0] = 1.0
    with weft.no_grad():
        x -= 1
    assert x.tolist() == [0.0, 1.0]
    assert x.is_leaf
    (x * 3).sum().backward()
    assert x.grad.tolist() == [3.0, 3.0]


def test_grad_function():
    x = weft.tensor(3.0, requires_grad=True)
    y = x * x * x
    (first,) = weft.grad(y, x, create_graph=True)
    (second,) = weft.grad(first, x)
    assert (first.item(), second.item()) == (27.0, 18.0)
    assert x.grad is None
    z = weft.tensor(1.0, requires_grad=True)
    with pytest.raises(weft.GradientError, match="input 1"):
        weft.grad(y, (x, z))
    assert weft.grad(y, (x, z), allow_unused=True)[1] is None
    assert weft.grad(lambda v: v.exp().sum())(weft.tensor([0.0])).tolist() == [1.0]
    mid = x * 2
    (found,) = weft.grad(mid * mid, mid)
    assert found.item() == 12.0


def test_errors():
    x = weft.tensor([1.0, 2.0], requires_grad=True)
    with pytest.raises(weft.GradientError, match=r"shape \(2,\)"):
        (x * 2).backward()
    with pytest.raises(weft.GradientError, match="requires no gradient"):
        weft.tensor(1.0).backward()
    with pytest.raises(weft.ShapeError):
        (x * 2).backward(weft.ones(3))
    with pytest.raises(weft.DTypeError):
        weft.tensor([1]).requires_grad_()
    with pytest.raises(weft.GradientError, match="detach"):
        (x * 2).requires_grad_(False)


def test_leaf_again():
    x = weft.tensor([1.0, 2.0])
    y = x * 3
    x.requires_grad_()
    (y * x).sum().backward()
    assert x.grad.tolist() == [3.0, 6.0]  # y was made before, and is a constant


def test_second_order_of_a_network():
    x = weft.tensor([[0.5, -0.3]], requires_grad=True)
    w = weft.tensor([[0.2, 0.4], [0.1, -0.7]], requires_grad=True)
    out = (x @ w).tanh().sum()
    (g,) = weft.grad(out, x, create_graph=True)
    (g * g).sum().backward()
    step = 1e-3

    def penalty(values):
        t = np.tanh(x.numpy().astype(np.float64) @ values)
        return ((1 - t**2) @ values.T).ravel() @ ((1 - t**2) @ values.T).ravel()

    base = w.numpy().astype(np.float64)
    for i in range(2):
        for j in range(2):
            up, down = base.copy(), base.copy()
            up[i, j] += step
            down[i, j] -= step
            numeric = (penalty(up) - penalty(down)) / (2 * step)
            assert abs(w.grad[i, j].item() - numeric) < 1e-3


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize(("shapes", "fn"), [
    (((30, 40), (40, 50)), lambda a, b: a @ b),
    (((3, 20, 33), (33, 17)), lambda a, b: a @ b),
    (((2, 8, 9, 9), (6, 8, 3, 3)), lambda a, b: a.conv2d(b, padding=1)),
    (((40, 30), (30,)), lambda a, b: a.float() * b.float()),
])  # fmt: skip
@pytest.mark.parametrize("which", [0, 1])
def test_gradients_of_short_floats_round_once(shapes, fn, which, dtype, rng):
    """Terms of sums that a gradient consists of stay as exact as those of the products."""
    inputs = [weft.from_numpy(rng.standard_normal(s, dtype=np.float32)).to(getattr(weft, dtype))
              for s in shapes]
    seed = rng.standard_normal(fn(*inputs).shape, dtype=np.float32)

    def gradient(dtypes):
        found = [x.to(d).detach().requires_grad_() for x, d in zip(inputs, dtypes, strict=True)]
        out = fn(*found)
        g = weft.from_numpy(seed).to(getattr(weft, dtype)).to(out.dtype)
        return weft.grad(out, (found[which],), g)[0].to(weft.float64).numpy()

    short = gradient([getattr(weft, dtype)] * 2)
    want = gradient([weft.float64] * 2)
    step = np.exp2(np.frexp(want)[1] - {"bfloat16": 8.0, "float16": 11.0}[dtype])
    assert (np.abs(short - want) / np.maximum(step, 1e-3 * step.max())).max() < 0.6


def test_the_gradient_of_a_square_overflows_only_where_it_is_large():
    """Twice the gradient, which came first, is no float16."""
    x = weft.tensor([0.001, 0.5], dtype=weft.float16, requires_grad=True)
    (x * x).backward(weft.tensor([40000.0, 20000.0], dtype=weft.float16))
    np.testing.assert_allclose(x.grad.numpy(), [80, 20000], rtol=2e-3)
