"""Every operation beside PyTorch's of the same name, values and gradients."""

import math

import numpy as np
import pytest

import weft

pytestmark = pytest.mark.requires("torch")


def pair(array, requires_grad=False):
    import torch

    return (
        weft.tensor(array, requires_grad=requires_grad),
        torch.tensor(array, requires_grad=requires_grad),
    )


def flat(result):
    if isinstance(result, (tuple, list)):
        return [x for r in result for x in flat(r)]
    return [result]


def check(found, expected, rtol=2e-5, atol=2e-6):
    found, expected = flat(found), flat(expected)
    assert len(found) == len(expected)
    for f, e in zip(found, expected, strict=True):
        assert tuple(f.shape) == tuple(e.shape)
        assert f.dtype.name == str(e.dtype).removeprefix("torch.")
        if e.dtype.is_floating_point:
            e, f = e.detach().double(), f.detach().double()
            np.testing.assert_allclose(f.numpy(), e.numpy(), rtol, atol)
        else:
            np.testing.assert_array_equal(f.numpy(), e.detach().numpy())


def sample(shape=(3, 4, 5), seed=0, low=-3.0, high=3.0, dtype=np.float32):
    return np.random.default_rng(seed).uniform(low, high, shape).astype(dtype)


UNARY = [
    "abs",
    "acos",
    "acosh",
    "asin",
    "asinh",
    "atan",
    "atanh",
    "ceil",
    "cos",
    "cosh",
    "deg2rad",
    "erf",
    "erfc",
    "exp",
    "exp2",
    "expm1",
    "floor",
    "frac",
    "isfinite",
    "isinf",
    "isnan",
    "log",
    "log10",
    "log1p",
    "log2",
    "logical_not",
    "neg",
    "rad2deg",
    "reciprocal",
    "relu",
    "round",
    "rsqrt",
    "sigmoid",
    "sign",
    "sin",
    "sinh",
    "sqrt",
    "square",
    "tan",
    "tanh",
    "trunc",
    "nan_to_num",
    "flatten",
    "ravel",
    "t",
    "sum",
    "prod",
    "mean",
    "std",
    "var",
    "amax",
    "amin",
    "argmax",
    "argmin",
    "any",
    "all",
    "logcumsumexp",
    "count_nonzero",
    "max",
    "min",
    "aminmax",
    "cumsum",
    "cumprod",
    "sort",
    "argsort",
    "clone",
    "tril",
    "triu",
    "diag",
]


@pytest.mark.parametrize("name", UNARY)
def test_unary(name):
    a = sample((4, 5))
    x, y = pair(a)
    args = (0,) if name in ("cumsum", "cumprod", "logcumsumexp") else ()
    import torch

    other = getattr(y, name, None) or (lambda *a: getattr(torch, name)(y, *a))
    check(getattr(x, name)(*args), other(*args), 1e-4, 1e-5)
    if hasattr(weft, name):
        check(getattr(weft, name)(x, *args), other(*args), 1e-4, 1e-5)


BINARY = [
    "add",
    "sub",
    "mul",
    "div",
    "floor_divide",
    "remainder",
    "fmod",
    "pow",
    "maximum",
    "minimum",
    "fmax",
    "fmin",
    "atan2",
    "copysign",
    "hypot",
    "eq",
    "ne",
    "lt",
    "le",
    "gt",
    "ge",
    "logical_and",
    "logical_or",
    "logical_xor",
    "logaddexp",
]


@pytest.mark.parametrize("name", BINARY)
def test_binary(name):
    a, b = sample((4, 1, 5)), sample((3, 1), 1)
    b[0] = abs(b[0]) + 0.5
    import torch

    with_torch = getattr(torch, name)
    check(
        getattr(weft, name)(weft.tensor(a), weft.tensor(b)),
        with_torch(torch.tensor(a), torch.tensor(b)),
        1e-4,
        1e-5,
    )


@pytest.mark.parametrize(
    "name",
    [
        "add",
        "sub",
        "mul",
        "floor_divide",
        "remainder",
        "fmod",
        "bitwise_and",
        "bitwise_or",
        "bitwise_xor",
        "maximum",
    ],
)
@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "int64"])
def test_integer_binary(name, dtype):
    import torch

    rng = np.random.default_rng(3)
    a = rng.integers(0, 100, (4, 5)).astype(dtype)
    b = rng.integers(1, 20, 5).astype(dtype)
    check(
        getattr(weft, name)(weft.tensor(a), weft.tensor(b)),
        getattr(torch, name)(torch.tensor(a), torch.tensor(b)),
    )


@pytest.mark.parametrize(
    "a", ["bool", "uint8", "int16", "int64", "float16", "bfloat16", "float32", "float64"]
)
@pytest.mark.parametrize(
    "b", ["bool", "uint8", "int16", "int64", "float16", "bfloat16", "float32", "float64"]
)
def test_promotion(a, b):
    import torch

    def both(shape, name):
        return (
            weft.ones(*shape, dtype=getattr(weft, name)),
            torch.ones(shape, dtype=getattr(torch, name)),
        )

    for sa, sb in (((2,), (2,)), ((), (2,)), ((2,), ()), ((), ())):
        (x, u), (y, v) = both(sa, a), both(sb, b)
        assert (x * y).dtype.name == str((u * v).dtype)[6:], (sa, sb)
    for scalar in (True, 2, 2.0):
        (x, u) = both((2,), a)
        assert (x * scalar).dtype.name == str((u * scalar).dtype)[6:]
        assert (x / 2).dtype.name == str((u / 2).dtype)[6:]


# name: a function of x and of torch's x, with the module as first argument
EXPRESSIONS = {
    "operators": lambda m, x: (2 - x) / (x * x + 1) + 3 * x - x**2 + (-x) ** 3 - abs(x),
    "reversed": lambda m, x: (1 / (x + 10), 2**x, 7 // (x + 10), 7 % (x + 10)),
    "compare": lambda m, x: ((x > 0) & (x < 1)) | ~(x >= -1) ^ (x == x),
    "sum": lambda m, x: (x.sum(), x.sum(0), x.sum((0, -1)), x.sum(1, keepdim=True)),
    "mean": lambda m, x: (x.mean(), x.mean(-1, keepdim=True), x.mean((0, 1))),
    "var": lambda m, x: (x.var(0), x.var(1, unbiased=False), x.std((0, 2)), x.var(correction=0)),
    "max": lambda m, x: (tuple(x.max(1)), tuple(x.min(-1, keepdim=True)), x.argmax(0)),
    "argmax": lambda m, x: (x.argmax(1, keepdim=True), x.argmin(-1), x.argmax()),
    "logsumexp": lambda m, x: (x.logsumexp(1), x.logsumexp((0, 2), True)),
    "norm": lambda m, x: (x.norm(), x.norm(1, 1), x.norm(math.inf, 0), x.norm(3.0, -1)),
    "any": lambda m, x: ((x > 2).any(), (x > 0).all(1), (x > 2).any(-1, keepdim=True)),
    "cum": lambda m, x: (x.cumsum(1), x.cumprod(-1), tuple(x.cummax(0)), tuple(x.cummin(2))),
    "diff": lambda m, x: (m.diff(x), m.diff(x, dim=0)),
    "reshape": lambda m, x: (x.reshape(-1, 5), x.view(12, 5), x.flatten(1), x.unflatten(2, (5, 1))),
    "permute": lambda m, x: (x.permute(2, 0, 1), x.transpose(0, 2), x.movedim(0, -1), x[0].T, x.mT),
    "squeeze": lambda m, x: (
        x.unsqueeze(1).squeeze(1),
        x.unsqueeze(0).squeeze(),
        x[:, :1].squeeze(1),
    ),
    "expand": lambda m, x: (x[:1].expand(6, 4, 5), x[:, :1].expand(-1, 7, -1), x.repeat(2, 1, 3)),
    "tile": lambda m, x: (x.tile(2), x.repeat_interleave(3, 1), x.repeat_interleave(2)),
    "flip": lambda m, x: (
        x.flip(0),
        x.flip((1, 2)),
        x.roll(2, 1),
        x.roll((1, -2), (0, 2)),
        x.roll(7),
    ),
    "join": lambda m, x: (m.cat([x, x * 2, x[:1]]), m.stack([x, -x, x + 1], 1), m.cat([x, x], -1)),
    "stacks": lambda m, x: (m.hstack([x, x]), m.vstack([x, x])),
    "split": lambda m, x: (x.split(2, 1), x.chunk(2, -1), x.split([1, 3], 1), x.unbind(0)),
    "narrow": lambda m, x: (x.narrow(1, 1, 2), x.select(2, -1), x.unfold(2, 3, 1)),
    "diagonal": lambda m, x: (x.diagonal(), x.diagonal(1, 1, 2), x.diagonal(-2, 0, 1), x[0].diag()),
    "diag_embed": lambda m, x: (x.diag_embed(), x.diag_embed(1), x[0, 0].diag(-2)),
    "triangle": lambda m, x: (x.tril(), x.triu(1), x.tril(-2)),
    "slices": lambda m, x: (
        x[1:],
        x[:, ::2],
        x[..., -2:],
        x[1, :, 1:4:2],
        x[None, 1],
        x[..., None],
    ),
    "ints": lambda m, x: (x[0], x[-1, -1], x[2, 3, 4], x[:, -2]),
    "index": lambda m, x: (
        x[m.tensor([2, 0, 2])],
        x[:, m.tensor([0, -1])],
        x[m.tensor([0, 2]), m.tensor([1, 3])],
    ),
    "index_apart": lambda m, x: (
        x[m.tensor([[0], [2]]), :, m.tensor([1, 3])],
        x[0, m.tensor([3, 1]), None],
    ),
    "masks": lambda m, x: (x[x > 0], x[x[:, 0, 0] > -9], x[:, x[0, :, 0] > 0]),
    "where": lambda m, x: (
        m.where(x > 0, x, -x),
        m.where(x > 0, 1.0, x),
        x.masked_fill(x > 1, 7.0),
    ),
    "clamp": lambda m, x: (x.clamp(-1, 1), x.clamp(min=0.5), x.clamp(max=x.mean())),
    "gather": lambda m, x: (
        x.gather(1, m.tensor([[[0, 1, 2, 3, 0]], [[3, 2, 1, 0, 3]]])),
        x.take_along_dim(x.argsort(2), 2),
        x.index_select(1, m.tensor([3, 0])),
    ),
    "scatter": lambda m, x: (
        x.scatter(0, m.tensor([[[2] * 5] * 4]), x[:1] * 2),
        x.scatter_add(1, m.tensor([[[1] * 5] * 4] * 3), x),
        x.index_add(1, m.tensor([1, 1]), x[:, :2]),
    ),
    "sort": lambda m, x: (tuple(x.sort()), tuple(x.sort(0, descending=True)), tuple(x.topk(2, 1))),
    "matmul": lambda m, x: (
        x @ x.mT,
        x[0] @ x[0].T,
        x @ x[0, 0],
        x[0, 0] @ x[0].T,
        x[0, 0] @ x[0, 0],
    ),
    "einsum": lambda m, x: (
        m.einsum("bij,bkj->bik", x, x),
        m.einsum("bij->jb", x),
        m.einsum("...ij,...ij->...", x, x),
        m.einsum("bij,bij,bj->i", x, x, x[:, 0]),
        m.einsum("ii", x[0, :, :4]),
        m.einsum("ij,kj", x[0], x[1]),
    ),
    "products": lambda m, x: (
        m.outer(x[0, 0], x[0, 1]),
        m.dot(x[0, 0], x[1, 1]),
        m.kron(x[0], x[1]),
        m.tensordot(x, x, ([0, 2], [0, 2])),
        x[0, :, :4].trace(),
    ),
    "softmax": lambda m, x: (x.softmax(-1), x.softmax(0), x.log_softmax(1)),
    "nan_to_num": lambda m, x: m.nan_to_num(m.where(x > 1, math.inf, m.where(x < -1, math.nan, x))),
    "lerp": lambda m, x: (
        m.lerp(x, x * 2, 0.3),
        x.addcmul(x, x, value=2),
        x.addcdiv(x, x + 9, value=3),
    ),
    "casts": lambda m, x: (
        x.long(),
        x.half(),
        x.double(),
        x.bool(),
        (x * 40).to(m.int8),
        x.bfloat16(),
    ),
    "div_modes": lambda m, x: (
        m.div(x, 0.7, rounding_mode="floor"),
        m.div(x.long(), 2, rounding_mode="trunc"),
    ),
    "unique": lambda m, x: m.unique(x.long()),
    "nonzero": lambda m, x: ((x > 0).nonzero(), m.where(x[0, 0] > 0)),
    "masked_select": lambda m, x: (x.masked_select(x > 0), x.masked_scatter(x > 0, -x)),
    "cosine": lambda m, x: m.cosine_similarity(x, x.flip(0), dim=1),
    "meshgrid": lambda m, x: m.meshgrid(x[0, 0], x[0, :, 0], indexing="ij"),
    "half": lambda m, x: (
        x.half() * 3 + 1,
        x.half().softmax(-1),
        x.bfloat16() @ x.bfloat16().mT,
        x.half().sum(),
    ),
}


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_expression(name):
    import torch

    x, y = pair(sample())
    tolerance = (4e-3, 4e-3) if name in ("half", "casts") else (1e-4, 1e-5)
    check(EXPRESSIONS[name](weft, x), EXPRESSIONS[name](torch, y), *tolerance)


def functional(m):
    import torch

    return torch.nn.functional if m is torch else weft.nn.functional


ACTIVATIONS = {
    "gelu": lambda f, x: (f.gelu(x), f.gelu(x, approximate="tanh")),
    "elu": lambda f, x: (f.elu(x), f.elu(x, 0.5), f.selu(x), f.celu(x, 2.0)),
    "silu": lambda f, x: (f.silu(x), f.mish(x), f.softplus(x), f.softplus(x, 2.0, 1.0)),
    "relu": lambda f, x: (f.relu(x), f.relu6(x * 4), f.leaky_relu(x), f.hardtanh(x)),
    "hard": lambda f, x: (f.hardsigmoid(x), f.hardswish(x), f.softsign(x), f.tanhshrink(x)),
    "logsigmoid": lambda f, x: (f.logsigmoid(x * 30), f.softmin(x, 1), f.normalize(x, dim=-1)),
    "pad": lambda f, x: (
        f.pad(x, (1, 2)),
        f.pad(x, (1, -2, 0, 3), value=9.0),
        f.pad(x, (2, 1), mode="reflect"),
        f.pad(x, (2, 1), mode="replicate"),
        f.pad(x, (2, 1), mode="circular"),
    ),
    "layer_norm": lambda f, x: (
        f.layer_norm(x, (5,)),
        f.layer_norm(x, (4, 5), x[0], x[1]),
        f.rms_norm(x, (5,), x[0, 0]),
    ),
    "group_norm": lambda f, x: (
        f.group_norm(x, 2),
        f.group_norm(x, 2, x[0, :, 0], x[1, :, 0]),
        f.instance_norm(x),
    ),
    "batch_norm": lambda f, x: (
        f.batch_norm(x, x[0, :, 0], x[0, :, 1].abs()),
        f.batch_norm(x, None, None, training=True),
    ),
    "attention": lambda f, x: (
        f.scaled_dot_product_attention(x, x, x),
        f.scaled_dot_product_attention(x, x, x, is_causal=True),
        f.scaled_dot_product_attention(x, x, x, attn_mask=x[:, :, :4] > -1.5),
    ),
    "pool1d": lambda f, x: (
        f.max_pool1d(x, 2),
        f.avg_pool1d(x, 3, 1, 1),
        f.adaptive_avg_pool1d(x, 2),
    ),
    "losses": lambda f, x: (
        f.mse_loss(x, x * 2),
        f.l1_loss(x, x + 1),
        f.smooth_l1_loss(x, x * 2),
        f.huber_loss(x, x * 3, delta=0.5),
        f.mse_loss(x, x * 2, reduction="sum"),
    ),
    "bce": lambda f, x: (
        f.binary_cross_entropy(x.sigmoid(), (x > 0).to(x.dtype)),
        f.binary_cross_entropy_with_logits(x, (x > 1).to(x.dtype)),
    ),
    "kl": lambda f, x: (
        f.kl_div(x.log_softmax(-1), x.softmax(-1), reduction="batchmean"),
        f.kl_div(x.log_softmax(-1), x.log_softmax(0), log_target=True),
    ),
}


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_functional(name):
    import torch

    x, y = pair(sample())
    check(
        ACTIVATIONS[name](functional(weft), x), ACTIVATIONS[name](functional(torch), y), 1e-4, 1e-5
    )


def test_cross_entropy():
    import torch

    x, y = pair(sample((6, 5)))
    t, u = pair(np.array([0, 4, 2, -100, 1, 1]))
    w, v = pair(sample((5,), 2, 0.1, 1))
    for options in ({}, {"reduction": "sum"}, {"reduction": "none"}, {"label_smoothing": 0.1}):
        check(
            functional(weft).cross_entropy(x, t, **options),
            functional(torch).cross_entropy(y, u, **options),
        )
    check(
        functional(weft).cross_entropy(x, t, weight=w),
        functional(torch).cross_entropy(y, u, weight=v),
    )
    check(
        functional(weft).cross_entropy(x, x.softmax(1)),
        functional(torch).cross_entropy(y, y.softmax(1)),
    )
    x, y = pair(sample((2, 5, 3)))
    t, u = pair(np.array([[0, 1, 2], [3, 4, 0]]))
    check(x.cross_entropy(t), functional(torch).cross_entropy(y, u))


CONVOLUTIONS = [
    {},
    {"stride": 2},
    {"padding": 1},
    {"padding": (2, 1), "stride": (1, 2)},
    {"dilation": 2},
    {"padding": "same"},
]


@pytest.mark.parametrize("options", CONVOLUTIONS, ids=str)
@pytest.mark.parametrize("groups", [1, 2])
def test_conv2d(options, groups):
    import torch

    x, y = pair(sample((2, 4, 7, 8)))
    w, v = pair(sample((6, 4 // groups, 3, 2), 1))
    b, c = pair(sample((6,), 2))
    check(
        x.conv2d(w, b, groups=groups, **options),
        torch.nn.functional.conv2d(y, v, c, groups=groups, **options),
        1e-4,
        1e-4,
    )


def test_conv1d_and_transposed():
    import torch

    f = torch.nn.functional
    x, y = pair(sample((2, 4, 9)))
    w, v = pair(sample((6, 4, 3), 1))
    check(x.conv1d(w, padding=1, stride=2), f.conv1d(y, v, padding=1, stride=2), 1e-4, 1e-4)
    x, y = pair(sample((2, 4, 5, 4)))
    w, v = pair(sample((4, 3, 3, 2), 1))
    for options in (
        {},
        {"stride": 2},
        {"stride": 2, "padding": 1, "output_padding": 1},
        {"dilation": 2},
    ):
        check(x.conv_transpose2d(w, **options), f.conv_transpose2d(y, v, **options), 1e-4, 1e-4)
    w, v = pair(sample((4, 2, 3, 2), 1))
    check(x.conv_transpose2d(w, groups=2), f.conv_transpose2d(y, v, groups=2), 1e-4, 1e-4)


def test_pooling():
    import torch

    f = torch.nn.functional
    x, y = pair(sample((2, 3, 7, 8)))
    check(x.max_pool2d(2), f.max_pool2d(y, 2))
    check(x.max_pool2d(3, 2, 1), f.max_pool2d(y, 3, 2, 1))
    check(tuple(x.max_pool2d(2, return_indices=True)), f.max_pool2d(y, 2, return_indices=True))
    check(x.max_pool2d(3, 2, ceil_mode=True), f.max_pool2d(y, 3, 2, ceil_mode=True))
    for kernel, stride, padding in ((2, 2, 1), (2, 3, 1), (3, 2, 1), (4, 3, 2)):
        given = (kernel, stride, padding, True)
        check(x.avg_pool2d(*given), f.avg_pool2d(y, *given))
    check(x.avg_pool2d(2), f.avg_pool2d(y, 2))
    check(x.avg_pool2d(3, 2, 1), f.avg_pool2d(y, 3, 2, 1))
    check(
        x.avg_pool2d(3, 2, 1, count_include_pad=False),
        f.avg_pool2d(y, 3, 2, 1, count_include_pad=False),
    )
    check(x.adaptive_avg_pool2d((3, 4)), f.adaptive_avg_pool2d(y, (3, 4)))
    check(x.adaptive_avg_pool2d(1), f.adaptive_avg_pool2d(y, 1))
    check(x.adaptive_max_pool2d((3, 5)), f.adaptive_max_pool2d(y, (3, 5)))


def test_grouped_query_attention():
    import torch

    q, r = pair(sample((1, 4, 3, 5)))
    k, m = pair(sample((1, 2, 3, 5), 1))
    check(
        q.scaled_dot_product_attention(k, k, enable_gqa=True, is_causal=True),
        torch.nn.functional.scaled_dot_product_attention(r, m, m, enable_gqa=True, is_causal=True),
        1e-4,
        1e-5,
    )


@pytest.mark.parametrize("shape", [(1,), (2,), (7,), (8,), (3, 5), (4, 6), (2, 3, 4)])
@pytest.mark.parametrize("kind", ["normal", "nan", "int"])
def test_median(shape, kind):
    import torch

    rng = np.random.default_rng(len(shape) + shape[0])
    a = rng.permutation(int(np.prod(shape))).reshape(shape)
    a = a.astype(np.int32 if kind == "int" else np.float32)
    if kind == "nan":
        a[rng.random(shape) < 0.3] = np.nan
    x, y = weft.from_numpy(a), torch.from_numpy(a)
    check(x.median(), y.median())
    for dim in range(-len(shape), len(shape)):
        for keepdim in (False, True):
            mine, theirs = x.median(dim, keepdim), y.median(dim, keepdim)
            check(mine.values, theirs.values)
            check(mine.indices, theirs.indices)
    if kind == "normal":
        u, v = x.clone().requires_grad_(), y.clone().requires_grad_()
        (u.median(0).values.sum() * 2 + u.median()).backward()
        (v.median(0).values.sum() * 2 + v.median()).backward()
        check(u.grad, v.grad)


def test_sign_of_nan():
    found = weft.tensor([float("nan"), -0.0, 0.0, -3.0, float("inf")]).sign().numpy()
    np.testing.assert_array_equal(found, [np.nan, 0, 0, -1, 1])


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("name", ["selu", "elu", "celu", "softsign", "hardswish",
                                  "hardsigmoid", "logsigmoid", "logaddexp", "hypot", "std"])
def test_composites_of_short_floats_round_once(name, dtype, rng):
    """They compute in float32: at most half an ulp is lost, and a little where that is in doubt."""
    import torch

    inputs = [torch.from_numpy(rng.standard_normal((40, 50), dtype=np.float32) * 4).to(
        getattr(torch, dtype)) for _ in range(2 if name in ("logaddexp", "hypot") else 1)]
    ours = [weft.from_numpy(x.float().numpy()).to(getattr(weft, dtype)) for x in inputs]
    rest = (1,) if name == "std" else ()
    got = getattr(ours[0], name)(*ours[1:], *rest)
    assert got.dtype is getattr(weft, dtype)
    library = torch if name in ("logaddexp", "hypot", "std") else torch.nn.functional
    want = getattr(library, name)(*(x.double() for x in inputs), *rest).numpy()
    step = torch.finfo(getattr(torch, dtype)).eps * np.exp2(np.frexp(want)[1] - 1.0)
    step = np.maximum(step, torch.finfo(getattr(torch, dtype)).smallest_normal * 2.0 ** -7)
    assert (np.abs(got.to(weft.float64).numpy() - want) / step).max() < 0.53


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_hypot_where_squares_are_out_of_range(dtype, rng):
    """Squares of float32 overflow from 2e19 on, and lose bits below 1e-19."""
    import torch

    info = torch.finfo(getattr(torch, dtype))
    ends = np.log10(info.tiny) - 2, np.log10(info.max) - 0.5
    ours, theirs = [], []
    for _ in range(2):
        values = rng.standard_normal(500) * 10.0 ** rng.uniform(*ends, 500)
        values[:4] = 0.0, -0.0, info.max / 2, info.smallest_normal / 4
        theirs.append(torch.from_numpy(values).to(getattr(torch, dtype)))
        ours.append(weft.from_numpy(theirs[-1].double().numpy()).to(getattr(weft, dtype)))
    got = ours[0].hypot(ours[1])
    assert got.dtype is getattr(weft, dtype)
    want = torch.hypot(*theirs).double().numpy()
    np.testing.assert_allclose(got.to(weft.float64).numpy(), want, 2 * info.eps,
                               info.smallest_normal * info.eps)
