"""Captured functions with symbolic sizes: one capture and one compilation serve every size."""

import subprocess
import sys

import numpy as np
import pytest

import weft
from weft import nn
from weft.driver import counters
from weft.errors import (
    CaptureError,
    DTypeError,
    ShapeError,
    UnsupportedError,
    VariableError,
    WeftError,
)
from weft.nn import functional as F

pytestmark = pytest.mark.usefixtures("compiled")

MOST = 100
SIZES = (7, 1, 2, 64, MOST)
N = weft.Variable("n", 1, MOST)


def rows(n, *rest, seed=0):
    return np.random.default_rng([seed, n]).standard_normal((n, *rest)).astype(np.float32)


def leaves(value):
    if isinstance(value, tuple | list):
        return [x for v in value for x in leaves(v)]
    return [value]


def agree(function, make, sizes=SIZES, axes=None, tolerance=2e-5):
    """Check a function of symbolic rows against itself at each size; it is compiled once."""
    arguments = make(sizes[0])
    jitted = weft.jit(function, dynamic=axes or {i: {0: N} for i in range(len(arguments))})
    compiled = None
    for n in sizes:
        given = [weft.tensor(a) for a in make(n)]
        before = counters.counters().get("kernels compiled", 0)
        found = jitted(*given)
        assert compiled is None or counters.counters().get("kernels compiled", 0) == before
        compiled = True
        for a, b in zip(leaves(found), leaves(function(*given)), strict=True):
            if isinstance(b, weft.Tensor):
                assert a.shape == b.shape
                assert all(type(d) is int for d in a.shape)
                np.testing.assert_allclose(a.numpy(), b.numpy(), tolerance, tolerance,
                                           err_msg=f"n={n}")
            else:
                assert a == b
    assert jitted.captures == 1


W = rows(8, 4, seed=1)
TABLE = rows(50, 8, seed=2)

ONE = {
    "elementwise": lambda x: (x + 1.0).exp() * 2 - x / 3,
    "gelu": lambda x: x.gelu(),
    "bias": lambda x: x + weft.arange(8),
    "where": lambda x: weft.where(x > 0, x, 0.0),
    "sum": lambda x: (x.sum(), x.sum(0), x.sum(1), x.sum(0, keepdim=True)),
    "mean": lambda x: (x.mean(), x.mean(0), x.mean(1), x.mean((0, 1))),
    "var": lambda x: (x.var(0, correction=0), x.std(1), x.var(1, 1), x.var(correction=0)),
    "max": lambda x: (x.max(), x.amax(0), x.max(1), x.argmax(0), x.argmax(1), x.min(0)),
    "any": lambda x: ((x > 0).any(0), (x > 3).all(), x.count_nonzero(0)),
    "logsumexp": lambda x: (x.logsumexp(0), x.logsumexp(1)),
    "norm": lambda x: (x.norm(), x.norm(2, 0), x.norm(1, 1), x.normalize()),
    "cumsum": lambda x: (x.cumsum(0), x.cumsum(1), x.cummax(0)),
    "softmax": lambda x: (x.softmax(-1), x.softmax(0), x.log_softmax(0)),
    "layer_norm": lambda x: (x.layer_norm((8,)), x.rms_norm((8,))),
    "group_norm": lambda x: x.group_norm(2),
    "reshape": lambda x: (x.reshape(-1), x.reshape(-1, 2, 4), x.reshape(x.shape[0], -1),
                          x.reshape(2, -1), x.view(x.shape[0] * 8), x.reshape(-1, 8)),
    "flatten": lambda x: (x.flatten(), x.unsqueeze(1).flatten(1), x.unflatten(1, (2, -1))),
    "unsqueeze": lambda x: (x.unsqueeze(0), x[None], x[:, None], x.unsqueeze(-1).squeeze(-1)),
    "permute": lambda x: (x.T, x.t(), x.reshape(x.shape[0], 2, 4).permute(1, 0, 2)),
    "slice": lambda x: (x[:, 2:5], x[:], x[:, ::2], x[..., 1], x[:, -1], x[::-1], x[:, 3:4]),
    "rows": lambda x: (x[0], x[-1], x[0, 3], x[-1, -2], x[:1], x[-1:], x[: x.shape[0]]),
    "select": lambda x: (x.select(0, 0), x.select(0, -1), x.narrow(1, 2, 3)),
    "cat": lambda x: (weft.cat([x, x], 1), weft.cat([x, x * 2]), weft.cat([x, weft.ones(3, 8)])),
    "stack": lambda x: (weft.stack([x, x]), weft.stack([x, -x], 1), weft.stack([x, x], -1)),
    "split": lambda x: (x.chunk(2, 1), x.split(3, 1), x.unbind(1)[3]),
    "pad": lambda x: (x.pad((1, 2)), x.pad((0, 0, 1, 2)), x.flip(0), x.flip(1)),
    "repeat": lambda x: (x.repeat(2, 1), x.repeat(1, 3), x.repeat_interleave(2, 0)),
    "expand": lambda x: x.unsqueeze(0).expand(3, -1, -1),
    "roll": lambda x: x.roll(1, 1),
    "tril": lambda x: ((x @ x.T).tril(), (x @ x.T).triu(1)),
    "matmul": lambda x: (x @ weft.tensor(W), x @ x.T, x.T @ x, x @ x[0], x[0] @ x.T),
    "einsum": lambda x: (weft.einsum("ij,jk->ik", x, weft.tensor(W)),
                         weft.einsum("ij,kj->ik", x, x), weft.einsum("ij,ij->", x, x)),
    "linear": lambda x: F.linear(x, weft.tensor(W.T.copy()), weft.ones(4)).relu(),
    "arange": lambda x: (weft.arange(x.shape[0]), weft.arange(x.shape[0]) + x[:, 0],
                         weft.arange(1, x.shape[0] + 1), weft.arange(x.shape[0] * 2).float()),
    "made": lambda x: (weft.zeros(x.shape[0], 2), weft.ones_like(x), weft.full(x.shape, 2.0),
                       weft.eye(x.shape[0]), x.new_zeros(x.shape[0])
                       if hasattr(x, "new_zeros") else x),
    "sizes": lambda x: (x.shape, x.shape[0], x.numel(), x.sum() / x.shape[0], x * x.shape[0],
                        x.shape[0] * 2 + 1),
    "positions": lambda x: x[:1] + weft.tensor(rows(MOST, 8))[: x.shape[0]],
    "take": lambda x: (x[weft.arange(x.shape[0])], x.index_select(1, weft.tensor([1, 3])),
                       x[weft.tensor([0, -1])], x.gather(1, weft.zeros_like(x).long())),
    "mask": lambda x: x.masked_fill(x > 0, -1.0),
    "sort": lambda x: (x.sort(1), x.topk(2, 1)),
    "chain": lambda x: ((x @ x.T).softmax(-1) @ x).cumsum(0).layer_norm((8,)).sum(0),
    "copy": lambda x: x.clone().add_(1),
}  # fmt: skip


@pytest.mark.grid
@pytest.mark.parametrize("name", ONE)
def test_operation(name):
    agree(ONE[name], lambda n: [rows(n, 8)])


def test_two_variables():
    m = weft.Variable("m", 1, 30)
    agree(lambda x, y: (x @ y.T, weft.cat([x, y]), x.sum(0) + y.mean(0)),
          lambda n: [rows(n, 5), rows(n % 9 + 1, 5)], axes={0: {0: N}, 1: {0: m}})


def test_middle_axis_and_negative_axis():
    agree(lambda x: (x.mean(1), x.reshape(3, -1), x[:, 0], x.transpose(1, 2), x.softmax(1)),
          lambda n: [np.moveaxis(rows(n, 3, 4), 0, 1).copy()], axes={"x": {-2: N}})


def test_batch_of_images():
    weight = weft.tensor(rows(4, 3, 3, 3))
    agree(lambda x: (x.conv2d(weight, padding=1).relu().max_pool2d(2).flatten(1).mean(1),
                     x.avg_pool2d(2), x.mean((2, 3))),
          lambda n: [rows(n, 3, 6, 6)], sizes=(3, 1, 8))


@pytest.mark.slow
def test_losses():
    def f(x, y):
        return (x.cross_entropy(y), x.log_softmax(1).nll_loss(y), x.mse_loss(x * 2),
                x.cross_entropy(y, label_smoothing=0.1), x.sigmoid().binary_cross_entropy(
                    y.unsqueeze(1).expand(-1, 8).clamp(0, 1).float()),
                x.log_softmax(1).kl_div(x.softmax(1), "batchmean"), x.l1_loss(x * 2, "sum"))

    agree(f, lambda n: [rows(n, 8), np.arange(n) * 5 % 8])


def test_embedding():
    table = weft.tensor(TABLE)
    agree(lambda i: (F.embedding(i, table), table[i], F.embedding(i, table).sum(0)),
          lambda n: [np.arange(n) * 7 % 50])


def test_causal_attention():
    def f(q, k, v):
        return (F.scaled_dot_product_attention(q, k, v, is_causal=True),
                F.scaled_dot_product_attention(q, k, v))

    agree(f, lambda n: [np.moveaxis(rows(n, 2, 4, seed=s), 0, 1).copy() for s in range(3)],
          axes={name: {1: N} for name in "qkv"})


@pytest.mark.slow
def test_transformer_block_with_dynamic_length():
    weft.manual_seed(0)
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True).eval()
    agree(lambda x: layer(x, is_causal=True), lambda n: [rows(n, 8)[None]], sizes=(5, 1, 2, 33),
          axes={"x": {1: N}})


@pytest.mark.slow
def test_batch_and_length():
    """Both sizes of a language model's input are symbolic."""
    b = weft.Variable("b", 1, 8)
    weft.manual_seed(0)
    table, places = nn.Embedding(50, 8), weft.randn(MOST, 8)
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True).eval()

    def f(tokens):
        x = table(tokens) + places[: tokens.shape[1]]
        logits = layer(x, is_causal=True) @ table.weight.T
        return logits[:, -1].argmax(-1), logits

    jitted = weft.jit(f, dynamic={"tokens": {0: b, 1: N}})
    compiled = None
    for batch, length in ((2, 5), (1, 1), (8, 31), (3, 2)):
        tokens = weft.tensor(np.arange(batch * length).reshape(batch, length) * 7 % 50)
        found = jitted(tokens)[1].numpy()
        now = counters.counters().get("kernels compiled", 0)
        assert compiled in (None, now)
        np.testing.assert_allclose(found, f(tokens)[1].numpy(), 1e-4, 1e-5)
        compiled = counters.counters().get("kernels compiled", 0)
    assert jitted.captures == 1


def training(dynamic):
    """Return losses and weights of steps with batches of many sizes."""
    weft.manual_seed(3)
    model = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.LayerNorm(16), nn.Linear(16, 3))
    optimizer = weft.optim.AdamW(model.parameters(), lr=1e-2)

    def step(x, y):
        optimizer.zero_grad()
        loss = model(x).cross_entropy(y)
        loss.backward()
        optimizer.step()
        return loss

    run = weft.jit(step, dynamic={"x": {0: N}, "y": {0: N}}) if dynamic else step
    losses = [
        run(weft.tensor(rows(n, 6)), weft.tensor(np.arange(n) % 3)).item()
        for n in (16, 5, 1, 100, 16, 2)
    ]
    return losses, [p.numpy() for p in model.parameters()], run


@pytest.mark.slow
def test_training_step_with_dynamic_batch():
    losses, weights, run = training(True)
    expected, wanted, _ = training(False)
    np.testing.assert_allclose(losses, expected, 1e-4)
    for a, b in zip(weights, wanted, strict=True):
        np.testing.assert_allclose(a, b, 1e-3, 1e-5)
    assert run.captures <= 2  # the first step makes the optimiser's state


GRADIENTS = {
    "mean": lambda x: (x * x).mean(),
    "var": lambda x: x.var(0, correction=0).sum(),
    "matmul": lambda x: (x @ x.T).softmax(-1).mul(weft.arange(x.shape[0])).sum(),
    "slice": lambda x: (x[:, 1:5:2] * x[:1, :2]).sum() + x[-1].exp().sum() + x[::-1][0].sum(),
    "cat": lambda x: (weft.cat([x, x * 2], 0).T @ weft.cat([x, x], 0)).tanh().sum(),
    "reshape": lambda x: x.reshape(-1, 2).amax(0).sum() + x.flatten().cumsum(0).mean(),
    "pad": lambda x: x.pad((1, 1, 2, 0)).exp().sum(),
    "index": lambda x: x[weft.arange(x.shape[0])].exp().sum() + x.max(0).values.sum(),
    "prod": lambda x: x[:, :2].prod(1).sum(),
}


@pytest.mark.grid
@pytest.mark.parametrize("name", GRADIENTS)
def test_gradient(name):
    agree(weft.grad(GRADIENTS[name]), lambda n: [rows(n, 8)], axes={0: {0: N}}, tolerance=2e-4)


def test_gradients_of_arguments_and_through_the_result():
    def inside(x):
        x.exp().mean().backward()
        return x.sum()

    def outside(x):
        return (x[:, :2] * x.shape[0]).exp().pad((1, 0)).mean()

    run = weft.jit(inside, dynamic={"x": {0: N}})
    late = weft.jit(outside, dynamic={"x": {0: N}})
    for n in (4, 1, 9):
        a = rows(n, 3) / n
        x, y, z = (weft.tensor(a, requires_grad=True) for _ in range(3))
        run(x)
        np.testing.assert_allclose(x.grad.numpy(), np.exp(a) / a.size, 1e-5)
        late(y).backward()
        outside(z).backward()
        np.testing.assert_allclose(y.grad.numpy(), z.grad.numpy(), 1e-5)
    assert run.captures == late.captures == 1


@pytest.mark.slow
def test_random_numbers_are_those_of_the_size():
    def f(x):
        return F.dropout(x, 0.4), weft.rand(x.shape[0]), weft.randn(*x.shape)

    run = weft.jit(f, dynamic={"x": {0: N}})
    x = [weft.tensor(rows(n, 5)) for n in (3, 1, 20, 3)]
    weft.manual_seed(5)
    found = [[t.numpy() for t in run(v)] for v in x]
    weft.manual_seed(5)
    wanted = [[t.numpy() for t in f(v)] for v in x]
    for a, b in zip(leaves(found), leaves(wanted), strict=True):
        np.testing.assert_allclose(a, b, 1e-5, 1e-6)


def test_arguments_of_many_kinds():
    @weft.jit(dynamic={"x": {0: N}, "mask": {0: N}})
    def f(x, scale=1.0, *, mask=None, other=()):
        out = x * scale
        out = out if mask is None else out + mask
        return out.sum(0) + sum(t.sum() for t in other)

    a = rows(12, 3)
    for x in (a, a[::2], a[:, ::-1], np.asfortranarray(a), weft.tensor(a)[2:5], a.astype(">f4")):
        np.testing.assert_allclose(f(x).numpy(), np.asarray(x).sum(0), 1e-5, 1e-6)
    assert f.captures == 1
    np.testing.assert_allclose(f(x=a, scale=2.0).numpy(), a.sum(0) * 2, 1e-5)
    for n in (3, 12):
        found = f(a[:n], mask=a[:n, :1], other=[weft.ones(2)])
        np.testing.assert_allclose(found.numpy(), (a[:n] + a[:n, :1]).sum(0) + 2, 1e-5)
    assert f.captures == 3
    f(rows(4, 5))
    f(rows(6, 5).astype(np.float64))
    assert f.captures == 5
    assert f.__name__ == "f"


def test_methods_and_captures_within():
    class Model:
        @weft.jit(dynamic={"x": {0: N}})
        def forward(self, x):
            return x.mean(0)

    inner = weft.jit(lambda x: x.sum(1), dynamic={0: {0: weft.Variable("k", 1, 5)}})
    outer = weft.jit(lambda x: inner(x) * 2, dynamic={0: {0: N}})
    for n in (9, 4):
        a = rows(n, 3)
        np.testing.assert_allclose(Model().forward(weft.tensor(a)).numpy(), a.mean(0), 1e-5, 1e-6)
        np.testing.assert_allclose(outer(a).numpy(), a.sum(1) * 2, 1e-5, 1e-6)
    assert outer.captures == 1
    assert inner.captures == 0


def test_results_do_not_share_memory():
    f = weft.jit(lambda x: (x, x + 0, x * 1), dynamic={0: {0: N}})
    x = weft.tensor(rows(5, 2))
    first = f(x)
    kept = [t.numpy().copy() for t in first]
    for t in first:
        t.mul_(0)
    for a, b in zip(f(x), kept, strict=True):
        np.testing.assert_array_equal(a.numpy(), b)


def test_memory_has_the_actual_size():
    big = weft.Variable("n", 1, 1 << 20)

    def f(x):
        return (x.cumsum(0).cumsum(0) * 2).cumsum(0).sort(1).values

    run = weft.jit(f, dynamic={"x": {0: big}})
    run(weft.ones(10, 4))
    (entry,) = (e for found in run._entries.values() for e in found)
    compiled = entry.compiled
    small, large = compiled.plan.at((10,)), compiled.plan.at((1000,))
    assert small[1] == (160,)
    assert large[1] == (16000,)
    assert 0 < small[2] <= 16 * 160 + 1024 < large[2] <= 16 * 16384 + 4096 < compiled.plan.arena
    assert compiled.plan.at((11,))[0] is small[0]  # the next power of two serves both
    a = rows(700, 4)
    np.testing.assert_allclose(run(a).numpy(), f(weft.tensor(a)).numpy(), 1e-3, 1e-3)


@pytest.mark.parametrize("n", [MOST + 1, 0])
def test_out_of_bounds_names_the_argument(n):
    f = weft.jit(lambda values: values + 1, dynamic={"values": {0: N}})
    f(weft.ones(3, 2))
    with pytest.raises(VariableError, match="values") as caught:
        f(weft.ones(n, 2))
    assert str(n) in caught.value.found
    assert caught.value.expected == f"n from 1 to {MOST}"
    assert caught.value.where.file == __file__
    assert f(weft.ones(3, 2)).sum().item() == 12


def test_shared_variable_with_two_sizes():
    f = weft.jit(lambda x, y: x + y, dynamic={"x": {0: N}, 1: {0: N}})
    assert f(weft.ones(3), weft.ones(3)).tolist() == [2, 2, 2]
    for sizes in ((3, 4), (4, 1)):
        with pytest.raises(VariableError, match=r"axis 0 of the argument 'y'.*argument 'x'"):
            f(*map(weft.ones, sizes))


@pytest.mark.parametrize(
    ("dynamic", "error"),
    [
        (5, DTypeError), ({"y": {0: N}}, CaptureError), ({"x": 3}, DTypeError),
        ({"x": {0: 4}}, DTypeError), ({"x": {"a": N}}, DTypeError), ({-1: {0: N}}, CaptureError),
        ({"x": {0: weft.Variable("n", 0, 4)}}, VariableError),
        ({"x": {0: N, 1: weft.Variable("n", 1, 4)}}, VariableError),
        ({"x": {0: N + 1}}, DTypeError),
    ],
)  # fmt: skip
def test_wrong_tables(dynamic, error):
    with pytest.raises(error):
        weft.jit(lambda x: x, dynamic=dynamic)


def test_wrong_arguments():
    f = weft.jit(lambda x: x + 1, dynamic={"x": {1: N}})
    with pytest.raises(WeftError, match="axis"):
        f(weft.ones(3))
    with pytest.raises(DTypeError, match="'x'"):
        f([weft.ones(3)])
    with pytest.raises(DTypeError, match="'x'"):
        f(3.0)


FIXED = {
    "range": lambda x: [x[i] for i in range(x.shape[0])],
    "len": len,
    "unbind": lambda x: x.unbind(0),
    "split": lambda x: x.split(2, 0),
    "index": lambda x: x[5],
    "step": lambda x: x[::2],
    "stop": lambda x: x[:5],
    "topk": lambda x: x.topk(5, 0),
    "unfold": lambda x: x.unfold(0, 3, 1),
    "diagonal": lambda x: x.diagonal(),
    "chunk": lambda x: x.chunk(3, 0),
    "median": lambda x: x.median(),
    "compare": lambda x: x if x.shape[0] > 4 else -x,
    "reshape": lambda x: x.reshape(4, -1, 5),
    "wrong": lambda x: x.reshape(x.shape[0], 7),
    "add": lambda x: x + weft.ones(4, 8),
    "float": lambda x: x * float(x.shape[0]),
    "divide": lambda x: x * (1.0 / x.shape[0]),
    "power": lambda x: x * x.shape[0] ** -0.5,
    "half": lambda x: x * (0.5 * x.shape[0]),
    "tensor_split": lambda x: x.tensor_split(3, 0),
    "pool": lambda x: x.unsqueeze(0).max_pool2d(2),
    "linspace": lambda x: weft.linspace(0, 1, x.shape[0]),
    "unpack": lambda x: list(x),
    "stack": lambda x: weft.stack(list(x)),
}


@pytest.mark.parametrize("name", FIXED)
def test_what_must_know_the_size(name):
    """An error that says so, and nothing else: never a TypeError from within."""
    f = weft.jit(FIXED[name], dynamic={0: {0: N}})
    with pytest.raises(WeftError) as caught:
        f(weft.ones(8, 8))
    assert isinstance(caught.value, UnsupportedError | ShapeError | DTypeError)
    assert "n" in str(caught.value)
    assert caught.value.where.file == __file__


def test_operation_and_hint_of_the_error():
    f = weft.jit(lambda x: x.topk(5, 0), dynamic={0: {0: N}})
    with pytest.raises(UnsupportedError, match=r"topk: found n < 5, .* a size that is fixed"):
        f(weft.ones(8, 8))


def test_a_symbolic_tensor_has_a_text():
    seen = []

    def f(x):
        seen.extend([repr(x), repr(x.shape), f"{x.shape[0]} rows", repr(x.mean(0)),
                     repr(x.numel())])
        return x

    weft.jit(f, dynamic={0: {0: N}})(weft.ones(3, 2))
    assert seen == ["tensor(<float32[n, 2], captured>)", "(n, 2)", "n rows",
                    "tensor(<float32[2], captured>)", "(n * 2)"]


def test_narrow_bounds_decide_more():
    wide = weft.Variable("n", 8, 64)
    f = weft.jit(lambda x: (x[5], x[:3], x[-4:], x[3:], x.topk(3, 0)[0],
                            x if x.shape[0] > 4 else -x), dynamic={0: {0: wide}})
    for n in (8, 9, 64):
        a = rows(n, 3)
        wanted = (a[5], a[:3], a[-4:], a[3:], -np.sort(-a, 0)[:3], a)
        for found, w in zip(f(a), wanted, strict=True):
            np.testing.assert_array_equal(found.numpy(), w)


def test_batch_norm_updates_running_statistics():
    batch = weft.Variable("n", 2, 64)
    one, two = nn.BatchNorm1d(4), nn.BatchNorm1d(4)
    f = weft.jit(lambda x: one(x), dynamic={0: {0: batch}})
    for n in (8, 2, 30):
        a = weft.tensor(rows(n, 4))
        np.testing.assert_allclose(f(a).numpy(), two(a).numpy(), 1e-4, 1e-5)
    np.testing.assert_allclose(one.running_var.numpy(), two.running_var.numpy(), 1e-5)
    assert f.captures == 1


@pytest.mark.slow
def test_second_process_compiles_nothing(cache_dir):
    script = (
        "import numpy as np, weft\n"
        "from weft.driver import counters as report\n"
        "n = weft.Variable('n', 1, 500)\n"
        "@weft.jit(dynamic={'x': {0: n}})\n"
        "def f(x): return (x @ x.T).softmax(-1) @ x, x.cumsum(0).mean()\n"
        "for k in (3, 1, 200): print([t.shape for t in f(np.ones((k, 4), np.float32))])\n"
        "c = report.counters()\n"
        "print(int(c.get('kernels compiled', 0)), int(c.get('plan disk hits', 0)))\n"
    )
    printed = [
        subprocess.run([sys.executable, "-c", script], check=True, capture_output=True,
                       text=True, env=_environment()).stdout.splitlines()
        for _ in range(2)
    ]  # fmt: skip
    assert printed[0][:3] == printed[1][:3] == [f"[({k}, 4), ()]" for k in (3, 1, 200)]
    assert printed[0][3].split()[0] != "0"
    assert printed[1][3] == "0 1"


def _environment():
    import os

    return {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}


LONG = weft.Variable("long", 1, 150)
PRODUCTS = {
    "rows": (lambda x, w: x @ w, (0,), None, (320, 70)),
    "rows, turned": (lambda x, w: x @ w.T, (0,), None, (70, 320)),
    "columns": (lambda x, w: w @ x.T, (0,), None, (70, 320)),
    "both": (lambda x, y: x @ y.T, (0,), (0,), None),
    "depth": (lambda x, y: x.T @ y, (0,), (0,), None),
    "epilogue": (lambda x, w: (x @ w + 1.0).relu(), (0,), None, (320, 50)),
}


@pytest.mark.grid
@pytest.mark.parametrize("name", PRODUCTS)
def test_products_of_every_residue(name):
    function, first, second, fixed = PRODUCTS[name]
    axes = {0: dict.fromkeys(first, LONG)} | ({1: dict.fromkeys(second, LONG)} if second else {})
    run = weft.jit(function, dynamic=axes)
    for n in (50, 1, 7, 8, 9, 31, 32, 33, 64, 101, 150):
        x = rows(n, 320)
        y = rows(n, 320, seed=1) if fixed is None else rows(*fixed, seed=1)
        found = run(weft.tensor(x), weft.tensor(y)).numpy()
        want = function(*[weft.tensor(a.astype(np.float64)) for a in (x, y)]).numpy()
        np.testing.assert_allclose(found, want, 2e-5, 2e-4, err_msg=f"{name} of {n}")
    assert run.captures == 1


def test_infinities_stay_in_their_rows():
    x = rows(13, 320)
    x[4, 7], x[12, 0] = np.inf, np.nan
    run = weft.jit(lambda a, b: a @ b.T, dynamic={0: {0: LONG}, 1: {0: LONG}})
    with np.errstate(invalid="ignore"):
        np.testing.assert_allclose(run(weft.tensor(x), weft.tensor(x)).numpy(), x @ x.T, 2e-5, 2e-4)


TURNS = {
    "one": (lambda x: x.T.contiguous(), lambda n: (n, 45), {0: LONG}),
    "other": (lambda x: x.T.contiguous(), lambda n: (45, n), {1: LONG}),
    "both": (lambda x: x.T.contiguous(), lambda n: (n, n), {0: LONG, 1: LONG}),
    "batched": (lambda x: x.permute(0, 2, 1).contiguous(), lambda n: (3, n, 20), {1: LONG}),
    "computed": (lambda x: x.T.contiguous() * 2 + x.T, lambda n: (n, 33), {0: LONG}),
    "bytes": (lambda x: x.T.contiguous(), lambda n: (n, 70), {0: LONG}),
}


@pytest.mark.grid
@pytest.mark.parametrize("name", TURNS)
def test_transposes_of_every_residue(name):
    function, shape, axes = TURNS[name]
    run = weft.jit(function, dynamic={0: axes})
    for n in (50, 1, 3, 15, 16, 17, 32, 61, 150):
        x = np.arange(np.prod(shape(n))).reshape(shape(n)).astype(
            np.uint8 if name == "bytes" else np.float32)
        np.testing.assert_array_equal(run(weft.tensor(x)).numpy(), function(weft.tensor(x)).numpy())
        turned = np.swapaxes(x, -1, -2)
        want = turned * 2 + turned if name == "computed" else turned
        np.testing.assert_array_equal(run(weft.tensor(x)).numpy(), want)
    assert run.captures == 1
