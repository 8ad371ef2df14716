"""Gradients of every differentiable method in float64: finite differences, and PyTorch."""

import numpy as np
import pytest

import weft
from weft.nn import functional as F

# name -> (function of module, functional module, x, w; lowest and highest of the input)
BOTH = (0.2, 0.9)
SIGNED = (-1.5, 1.5)
ABOVE = (1.1, 3.0)


def plain(name, *args):
    return lambda m, f, x, w: getattr(x, name)(*args)


def paired(name):
    return lambda m, f, x, w: getattr(m, name)(x, w)


METHODS = {name: (plain(name), BOTH) for name in (
    "abs", "acos", "asin", "atan", "atanh", "cos", "cosh", "deg2rad", "erf", "erfc", "exp",
    "exp2", "expm1", "log", "log10", "log1p", "log2", "rad2deg", "reciprocal", "rsqrt",
    "sigmoid", "sin", "sinh", "sqrt", "square", "tan", "tanh", "asinh", "neg", "frac", "sum",
    "mean", "prod", "var", "std", "flatten", "amax", "amin", "tril", "triu", "clone"
)}
METHODS |= {name: (plain(name), SIGNED) for name in ("relu", "sign", "floor", "trunc", "round")}
METHODS["acosh"] = (plain("acosh"), ABOVE)
METHODS |= {name: (paired(name), BOTH) for name in (
    "add", "sub", "mul", "div", "pow", "maximum", "minimum", "fmax", "fmin", "atan2", "hypot",
    "copysign", "logaddexp", "fmod", "remainder"
)}
METHODS |= {f"{name} {args}": (plain(name, *args), BOTH) for name, args in (
    ("sum", (0,)), ("mean", ((0, 1),)), ("prod", (1,)), ("var", (0,)), ("std", (1,)),
    ("amax", (1,)), ("logsumexp", (1,)), ("cumsum", (1,)), ("cumprod", (0,)),
    ("logcumsumexp", (1,)), ("softmax", (0,)), ("log_softmax", (1,)), ("norm", ()),
    ("norm", (1, 1)), ("norm", (3.0, 0)), ("permute", (1, 0)), ("transpose", (0, 1)),
    ("reshape", (6,)), ("unsqueeze", (1,)), ("expand", (4, 2, 3)), ("repeat", (2, 3)),
    ("repeat_interleave", (2, 1)), ("flip", ((0, 1),)), ("roll", (1, 1)), ("narrow", (1, 1, 2)),
    ("select", (1, 2)), ("unfold", (1, 2, 1)), ("diagonal", ()), ("diag_embed", ()),
    ("clamp", (0.4, 0.7)), ("tile", ((2, 2),)), ("movedim", (0, 1)), ("pow", (3,)), ("pow", (0.5,)),
    ("unflatten", (1, (3, 1))),
)}  # fmt: skip
METHODS |= {
    "matmul": (lambda m, f, x, w: x @ w.T, SIGNED),
    "vector": (lambda m, f, x, w: x @ w[0], SIGNED),
    "outer": (lambda m, f, x, w: m.outer(x[0], w[0]), SIGNED),
    "dot": (lambda m, f, x, w: m.dot(x[0], w[1]), SIGNED),
    "kron": (lambda m, f, x, w: m.kron(x, w), SIGNED),
    "tensordot": (lambda m, f, x, w: m.tensordot(x, w, 2), SIGNED),
    "einsum": (lambda m, f, x, w: m.einsum("ij,kj->ik", x, w), SIGNED),
    "einsum_batched": (lambda m, f, x, w: m.einsum("bi,bj->bij", x, w), SIGNED),
    "where": (lambda m, f, x, w: m.where(x > w, x * 2, w), SIGNED),
    "masked_fill": (lambda m, f, x, w: x.masked_fill(w > 0, 2.0), SIGNED),
    "lerp": (lambda m, f, x, w: m.lerp(x, w, 0.3), SIGNED),
    "addcmul": (lambda m, f, x, w: x.addcmul(w, w, value=2), SIGNED),
    "addcdiv": (lambda m, f, x, w: x.addcdiv(x, w, value=2), ABOVE),
    "cat": (lambda m, f, x, w: m.cat([x, w, x[:1]]), SIGNED),
    "stack": (lambda m, f, x, w: m.stack([x, w], 1), SIGNED),
    "split": (lambda m, f, x, w: x.split(2, 1)[0] * x.chunk(3, 1)[2], SIGNED),
    "slices": (lambda m, f, x, w: x[:, ::2] + w[1:, 1:], SIGNED),
    "index": (lambda m, f, x, w: x[m.tensor([1, 0, 1])] * w[:, m.tensor([2])][:1], SIGNED),
    "gather": (lambda m, f, x, w: x.gather(1, m.tensor([[0, 0], [2, 1]])), SIGNED),
    "index_select": (lambda m, f, x, w: x.index_select(1, m.tensor([2, 2, 0])), SIGNED),
    "scatter": (lambda m, f, x, w: x.scatter(1, m.tensor([[1], [2]]), w[:, :1]), SIGNED),
    "scatter_add": (lambda m, f, x, w: x.scatter_add(0, m.tensor([[0, 0, 1]]), w[:1]), SIGNED),
    "index_add": (lambda m, f, x, w: x.index_add(1, m.tensor([0, 0]), w[:, :2]), SIGNED),
    "sort": (lambda m, f, x, w: x.sort(1)[0] * w, SIGNED),
    "topk": (lambda m, f, x, w: x.topk(2, 1)[0], SIGNED),
    "max": (lambda m, f, x, w: x.max(1)[0] * x.min(1)[0], SIGNED),
    "cummax": (lambda m, f, x, w: x.cummax(1)[0] + x.cummin(0)[0], SIGNED),
    "cast": (lambda m, f, x, w: (x.double() * w).to(x.dtype), SIGNED),
    "pad": (lambda m, f, x, w: f.pad(x, (1, 2)) * 2, SIGNED),
    "pad_modes": (lambda m, f, x, w: f.pad(x[None], (2, 1), mode="reflect")
                  + f.pad(x[None], (2, 1), mode="replicate"), SIGNED),
    "gelu": (lambda m, f, x, w: f.gelu(x) + f.gelu(w, approximate="tanh"), SIGNED),
    "silu": (lambda m, f, x, w: f.silu(x) + f.mish(w), SIGNED),
    "elu": (lambda m, f, x, w: f.elu(x) + f.selu(w) + f.celu(x, 2.0), SIGNED),
    "softplus": (lambda m, f, x, w: f.softplus(x) + f.logsigmoid(w), SIGNED),
    "leaky_relu": (lambda m, f, x, w: f.leaky_relu(x) + f.hardtanh(w), SIGNED),
    "softsign": (lambda m, f, x, w: f.softsign(x) + f.tanhshrink(w), SIGNED),
    "hard": (lambda m, f, x, w: f.hardsigmoid(x) + f.hardswish(w), SIGNED),
    "layer_norm": (lambda m, f, x, w: f.layer_norm(x, (3,), w[0], w[1]), SIGNED),
    "rms_norm": (lambda m, f, x, w: f.rms_norm(x, (3,), w[0]), SIGNED),
    "group_norm": (lambda m, f, x, w: f.group_norm(x[None], 1), SIGNED),
    "batch_norm": (lambda m, f, x, w: f.batch_norm(x.T, None, None, w[:, 0], w[:, 1], True),
                   SIGNED),
    "normalize": (lambda m, f, x, w: f.normalize(x, dim=1), SIGNED),
    "cosine": (lambda m, f, x, w: m.cosine_similarity(x, w, dim=1), SIGNED),
    "mse": (lambda m, f, x, w: f.mse_loss(x, w) + f.l1_loss(x, w), SIGNED),
    "smooth": (lambda m, f, x, w: f.smooth_l1_loss(x, w) + f.huber_loss(x, w, delta=0.5), SIGNED),
    "cross_entropy": (lambda m, f, x, w: f.cross_entropy(x, m.tensor([2, 0])), SIGNED),
    "nll": (lambda m, f, x, w: f.nll_loss(x.log_softmax(1), m.tensor([2, 0])), SIGNED),
    "kl": (lambda m, f, x, w: f.kl_div(x.log_softmax(1), w.softmax(1)), SIGNED),
    "bce": (lambda m, f, x, w: f.binary_cross_entropy(x, w), BOTH),
    "bce_logits": (lambda m, f, x, w: f.binary_cross_entropy_with_logits(x, w), BOTH),
    "attention": (lambda m, f, x, w: f.scaled_dot_product_attention(
        x[None], w[None], x[None], is_causal=True), SIGNED),
    "conv1d": (lambda m, f, x, w: f.conv1d(x[None], w[None, :, :2], padding=1), SIGNED),
    "conv2d": (lambda m, f, x, w: f.conv2d(x[None, None], w[None, None, :, :2], stride=(1, 2),
                                           padding=1), SIGNED),
    "conv_transpose": (lambda m, f, x, w: f.conv_transpose2d(
        x[None, None], w[None, None, :, :2], stride=2), SIGNED),
    "max_pool": (lambda m, f, x, w: f.max_pool2d(x[None, None], 2, 1), SIGNED),
    "avg_pool": (lambda m, f, x, w: f.avg_pool2d(x[None, None], 2, 1, 1), SIGNED),
    "adaptive": (lambda m, f, x, w: f.adaptive_avg_pool2d(x[None, None], (1, 2)), SIGNED),
}  # fmt: skip
ROUGH = {"hard": 1e-7}  # PyTorch takes a sixth in float32


def operands(name, limits):
    rng = np.random.default_rng(sum(map(ord, name)))
    while True:
        arrays = rng.uniform(*limits, (2, 2, 3))
        apart = np.abs(np.subtract.outer(arrays.ravel(), arrays.ravel())) + np.eye(12)
        # away from ties and kinks, where a gradient is anyone's choice
        kinks = np.abs(arrays[..., None] - np.array([-1.5, -1, -0.5, 0, 0.4, 0.5, 0.7, 1, 1.5]))
        if apart.min() > 1e-3 and kinks.min() > 1e-3:
            return arrays


def weights(shape):
    return np.asarray(np.cos(np.arange(int(np.prod(shape)))).reshape(shape) + 0.3)


@pytest.mark.grid
@pytest.mark.parametrize("name", METHODS)
def test_finite_differences(name, device):
    function, limits = METHODS[name]
    arrays = operands(name, limits)

    def loss(x, w):
        out = function(weft, F, x, w)
        return (out * weft.tensor(weights(tuple(out.shape)))).sum()

    x, w = (weft.tensor(a, requires_grad=True) for a in arrays)
    loss(x, w).backward()
    step = 1e-6
    with weft.no_grad():
        for k, found in enumerate((x.grad, w.grad)):
            values = []
            for at in np.ndindex(2, 3):
                ends = []
                for sign in (1, -1):
                    moved = arrays.copy()
                    moved[(k, *at)] += sign * step
                    ends.append(loss(*map(weft.tensor, moved)))
                values.append(ends)
            flat = [v for ends in values for v in ends]
            weft.realize(*flat)
            numbers = np.array([v.item() for v in flat]).reshape(2, 3, 2)
            numeric = (numbers[..., 0] - numbers[..., 1]) / (2 * step)
            given = np.zeros((2, 3)) if found is None else found.numpy()
            np.testing.assert_allclose(given, numeric, rtol=2e-6, atol=2e-8)


@pytest.mark.grid
@pytest.mark.requires("torch")
@pytest.mark.parametrize("name", METHODS)
def test_gradients_are_pytorchs(name, device):
    import torch

    function, limits = METHODS[name]
    results = []
    for m, f in ((weft, F), (torch, torch.nn.functional)):
        x, w = (m.tensor(a, requires_grad=True) for a in operands(name, limits))
        out = function(m, f, x, w)
        (out * m.tensor(weights(tuple(out.shape)))).sum().backward()
        grads = [np.zeros((2, 3)) if t.grad is None else t.grad.numpy() for t in (x, w)]
        results.append((out.detach().numpy(), *grads))
    for mine, theirs in zip(*results, strict=True):
        assert mine.dtype == theirs.dtype
        np.testing.assert_allclose(mine, theirs, rtol=ROUGH.get(name, 1e-9), atol=1e-11)
