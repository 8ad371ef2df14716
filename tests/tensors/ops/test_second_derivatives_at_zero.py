"""Second derivatives of smooth functions where their formulas have kinks or quotients: at 0."""

import pytest

import weft

F = weft.nn.functional

SMOOTH = {
    "logsigmoid": F.logsigmoid,
    "softplus": F.softplus,
    "softplus of beta 2": lambda x: F.softplus(x, beta=2),
    "sigmoid": lambda x: x.sigmoid(),
    "tanh": lambda x: x.tanh(),
    "gelu": F.gelu,
    "gelu by tanh": lambda x: F.gelu(x, approximate="tanh"),
    "silu": F.silu,
    "mish": F.mish,
    "tanhshrink": F.tanhshrink,
    "erf": lambda x: x.erf(),
    "expm1": lambda x: x.expm1(),
    "log1p": lambda x: x.log1p(),
    "sinc": lambda x: x.sinc(),
    "sinh": lambda x: x.sinh(),
    "cosh": lambda x: x.cosh(),
    "asinh": lambda x: x.asinh(),
    "atan": lambda x: x.atan(),
    "asin": lambda x: x.asin(),
    "logaddexp": lambda x: x.logaddexp(x * 0),
    "logaddexp2": lambda x: x.logaddexp2(x * -2),
    "logit": lambda x: (x + 0.25).logit(),
    "square by pow": lambda x: (x ** 2) + (x ** 3),
    "hypot": lambda x: x.hypot(x * 0 + 1),
    "atan2": lambda x: x.atan2(x * 0 + 1),
    "softmax": lambda x: weft.stack([x, x * 0, x * 2]).softmax(0)[0],
    "log_softmax": lambda x: weft.stack([x, x * 0, x * 2]).log_softmax(0)[0],
    "logsumexp": lambda x: weft.stack([x, x * 0, x * 2]).logsumexp(0),
    "logcumsumexp": lambda x: weft.stack([x, x * 0, x * 2]).logcumsumexp(0)[2],
    "binary_cross_entropy_with_logits": lambda x: F.binary_cross_entropy_with_logits(
        x, weft.full_like(x, 0.3), reduction="none", pos_weight=weft.full_like(x, 3.0)),
    "soft_margin_loss": lambda x: F.soft_margin_loss(x, weft.ones_like(x), reduction="none"),
    "multilabel_soft_margin_loss": lambda x: F.multilabel_soft_margin_loss(
        x.reshape(-1, 1), weft.ones(x.numel(), 1, dtype=x.dtype), reduction="none"),
    "softsign above": lambda x: F.softsign(x + 1),
    "poisson_nll_loss": lambda x: F.poisson_nll_loss(x, x * 0 + 2, reduction="none"),
}
STEP = 1e-3


def slopes(function, values):
    """Return first and second derivatives."""
    x = weft.tensor(values, dtype=weft.float64, requires_grad=True)
    (first,) = weft.grad(function(x).sum(), x, create_graph=True)
    (second,) = weft.grad(first.sum(), x, allow_unused=True, materialize_grads=True)
    return first.tolist(), second.tolist()


@pytest.mark.parametrize("name", SMOOTH)
def test_slopes_at_zero_are_those_around_it(name):
    _check(SMOOTH[name])


@pytest.mark.parametrize("name", ["logsigmoid", "gelu by tanh", "sinc"])
def test_in_a_captured_function(name):
    captured = weft.jit(lambda x: slopes_as_tensors(SMOOTH[name], x))
    expected = slopes(SMOOTH[name], [0.0, 0.5])
    for _ in range(2):
        found = captured(weft.tensor([0.0, 0.5], dtype=weft.float64, requires_grad=True))
        for e, f in zip(expected, found, strict=True):
            assert f.tolist() == pytest.approx(e, abs=1e-12)


def slopes_as_tensors(function, x):
    (first,) = weft.grad(function(x).sum(), x, create_graph=True)
    (second,) = weft.grad(first.sum(), x)
    return first.detach(), second


def _check(function):
    for order, found in enumerate(slopes(function, [-STEP, 0.0, -0.0, STEP])):
        around = (found[0] + found[3]) / 2
        for value in found[1:3]:
            near = pytest.approx(around, rel=1e-3, abs=1e-4)
            assert value == near, f"derivative {order + 1}: {found}"
