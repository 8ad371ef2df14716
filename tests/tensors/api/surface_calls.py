"""The public surface as expressions of a module `m` (Weft or PyTorch) and a tensor `x` of it.

`{d}` stands for an axis: 0, -1, 1 and -2 in turn.
"""

AXES = (0, -1, 1, -2)
_words = str.split

UNARY = _words("""
abs acos acosh asin asinh atan atanh ceil cos cosh deg2rad erf erfc exp exp2 expm1 floor frac
isfinite isinf isnan log log10 log1p log2 logical_not neg rad2deg reciprocal relu round rsqrt
sigmoid sign sin sinh sqrt square tan tanh trunc nan_to_num flatten ravel t sum prod mean std
var amax amin argmax argmin any all count_nonzero max min argsort clone tril triu diag median
diff squeeze diagonal trace nonzero positive bitwise_not
""")

BY_AXIS = _words("""
sum prod mean std var amax amin argmax argmin any all count_nonzero logsumexp cumsum cumprod
cummax cummin logcumsumexp softmax log_softmax sort argsort max min median unbind squeeze
unsqueeze flip size
""")

KEEPING = _words("""
sum prod mean std var amax amin argmax argmin any all logsumexp max min median
""")

WITH_AXIS = """
x.aminmax(dim={d}); x.roll(2, {d}); m.diff(x, dim={d}); m.diff(x, n=2, dim={d}); x.narrow({d}, 0, 1)
x.select({d}, 0); x.select({d}, -1); x.split(2, {d}); x.split([1, 1], {d}); x.chunk(2, {d})
x.chunk(3, {d}); x.tensor_split(2, {d}); x.tensor_split([1, 2], {d}); x.transpose(0, {d})
x.swapaxes(0, {d}); x.movedim(0, {d}); x.topk(1, {d})[0]; x.topk(0, {d}); x.kthvalue(1, {d})[0]
x.repeat_interleave(2, {d}); x.index_select({d}, m.tensor([0])); x.flatten({d})
x.index_select({d}, m.tensor([0, 0])); x.index_select({d}, m.tensor([], dtype=m.int64))
x.gather({d}, m.zeros(x.shape, dtype=m.int64)); x.gather({d}, m.tensor(0)); x.unfold({d}, 1, 1)
x.gather({d}, m.tensor([0])); m.take_along_dim(x, m.zeros(x.shape, dtype=m.int64), {d})
x.index_fill({d}, m.tensor([0]), 1); x.index_copy({d}, m.tensor([0]), x.narrow({d}, -1, 1))
x.index_add({d}, m.tensor([0, 0]), m.cat([x.narrow({d}, 0, 1)] * 2, {d}))
x.index_add({d}, m.tensor([0]), x.narrow({d}, 0, 1).to(m.float32))
x.index_copy({d}, m.tensor([0]), x.narrow({d}, 0, 1).to(m.float32))
x.scatter({d}, m.zeros(x.shape, dtype=m.int64), x); x.scatter({d}, m.tensor([0]), 1)
x.scatter({d}, m.zeros(x.shape, dtype=m.int64), 1)
x.scatter({d}, m.zeros(x.shape, dtype=m.int64), x.to(m.float32))
x.scatter_add({d}, m.zeros(x.shape, dtype=m.int64), x)
x.scatter_add({d}, m.zeros(x.shape, dtype=m.int64), x.to(m.float32))
x.scatter_reduce({d}, m.zeros(x.shape, dtype=m.int64), x, "sum")
x.scatter_reduce({d}, m.zeros(x.shape, dtype=m.int64), x, "prod")
x.scatter_reduce({d}, m.zeros(x.shape, dtype=m.int64), x, "amax")
x.scatter_reduce({d}, m.zeros(x.shape, dtype=m.int64), x, "amin")
x.scatter_reduce({d}, m.zeros(x.shape, dtype=m.int64), x, "mean")
x.scatter_reduce({d}, m.zeros(x.shape, dtype=m.int64), x, "sum", include_self=False)
x.scatter_reduce({d}, m.zeros(x.shape, dtype=m.int64), x, "prod", include_self=False)
x.scatter_reduce({d}, m.zeros(x.shape, dtype=m.int64), x, "amax", include_self=False)
x.scatter_reduce({d}, m.zeros(x.shape, dtype=m.int64), x, "amin", include_self=False)
x.scatter_reduce({d}, m.zeros(x.shape, dtype=m.int64), x, "mean", include_self=False)
x.scatter({d}, m.zeros(x.shape, dtype=m.int64), x, reduce="add")
x.scatter({d}, m.zeros(x.shape, dtype=m.int64), x, reduce="multiply")
m.cat([x, x], {d}); m.stack([x, x], {d}); m.concat([x, x], {d}); x.norm(2, {d}); x.norm(0, {d})
x.norm(1, {d}); x.norm(2.5, {d}); x.norm(float("inf"), {d}); x.norm(-float("inf"), {d})
x.var({d}, correction=0); x.std({d}, unbiased=False); m.var_mean(x, {d}); x.unflatten({d}, (1, -1))
x.cumsum({d}, dtype=m.float64); x.softmax({d}, dtype=m.float64); m.cosine_similarity(x, x, {d})
x.sum({d}, dtype=m.bool); x.sum({d}, dtype=m.int8); m.nn.functional.normalize(x, dim={d})
m.nn.functional.softmin(x, dim={d}); m.nn.functional.normalize(x, p=1, dim={d})
"""

PLAIN = """
x.sum(dtype=m.float32); x.sum((0, 1)); x.prod(dtype=m.int32); x.mean(dtype=m.float32)
x.mean((0, -1)); x.argmax(keepdim=True); x.sum(dtype=m.bool); x.prod(dtype=m.bool); x.norm()
x.reshape(-1); x.view(-1); x.reshape(1, -1); x.reshape(()); x.permute(*range(x.ndim)[::-1]); x.T
x.expand(2, *x.shape); x.expand(*[-1] * x.ndim); x.broadcast_to((2, *x.shape)); x.contiguous()
x.repeat(2, *[1] * x.ndim); x.repeat(0, *[1] * x.ndim); x.tile(2); x.tile(2, 2, 2, 2)
x.repeat_interleave(2); x.repeat_interleave(0); x.roll(1); x.flip(()); x.flip(0, 1)
x.roll((1, 2), (0, 1)); x.roll((1, 2), (0, 0)); x.tril(1); x.triu(-1); x.diag(1); x.diag(-1)
x.diag_embed(); x.diagonal(1); x.diagonal(-9); x.diagonal(9); x.unique(return_counts=True)
x.unique(return_inverse=True); x.unique(); x.take(m.tensor([0])); x.take(m.tensor([-1]))
x.take(m.tensor([], dtype=m.int64)); x.masked_select(x > 0); x.masked_fill(x > 0, 1)
x.masked_fill(x > 0, 1.5); x.masked_fill(x > 0, m.tensor(1)); x.masked_scatter(x > 0, x)
x.masked_scatter(x > 0, x.to(m.float32)); m.where(x > 0, x, 0); m.where(x > 0, x, 0.5)
m.where(x > 0, 1, 0); m.where(x > 0, 1, 0.5); m.where(x > 0, True, False); x.where(x > 0, 7)
x.clamp(-1, 1); x.clamp(-0.5, 0.5); x.clamp(min=1); x.clamp(x, x); x.clip(0, 1); x.clamp_min(1)
x.clamp_max(0.5); x.clamp(min=0.5); x.clamp(min=m.tensor(1)); x.clamp(max=1); x.clamp_max(0)
x + 1; x + 1.5; x + True; 1 - x; 1.5 - x; x - 1; x - x; x * 2; x * 0.5; x / 2; x / 0; 1 / x; x // 2
x // 0.5; 2.5 // (x + 9); x % 3; x % 1.5; 7 % (x + 9); x ** 2; x ** 3; x ** 0; x ** 1; x ** -1
x ** -2; x ** 2.0; x ** 0.5; x ** -1.0; 2 ** x; 2.0 ** x; x ** x; x ** m.tensor(-1); -x; +x; ~x
x ** m.tensor(0.5); x ** m.full(x.shape, -1); abs(x); x & 1; x & True; x | x; x ^ 3; 1 & x; x << 1
x >> 1; 1 << x; 8 >> x; x << x; x & 1.0; m.add(x, x, alpha=2); m.sub(x, x, alpha=2); 8 << (x + 0)
m.div(x, 2, rounding_mode="floor"); m.div(x, 2, rounding_mode="trunc"); m.true_divide(x, 3)
m.div(x, 0.3, rounding_mode="trunc"); m.div(x, x + 9, rounding_mode="trunc"); m.fmod(x, 3)
m.div(x, x + 9, rounding_mode="floor"); m.fmod(x, 1.5); m.floor_divide(x, 3); m.maximum(x, x - x)
m.minimum(x, m.tensor(1)); m.fmax(x, m.tensor(1)); m.fmin(x, m.tensor(0.5)); x.max(x)
m.atan2(x, x); m.copysign(x, -1); m.copysign(x, m.tensor(-1.0)); m.hypot(x, x); m.logaddexp(x, x)
m.lerp(x, x, 0.5); m.lerp(x, x, x); m.addcmul(x, x, x); m.addcmul(x, x, x, value=2)
m.addcdiv(x, x, x + 9); m.logical_and(x, x); m.logical_or(x, x > 0)
m.logical_xor(x, m.tensor(True)); x == 1; x == 0.5; x != 1; x < 0.5; x <= x; 1 > x; x >= True
x == 300; x == None; x != None; x == "a"; x != "a"; x < None; m.isclose(x, x); m.allclose(x, x)
m.isclose(x, x + 1); x.round(decimals=1); x.round(decimals=-1); x.float(); x.double(); x.half()
x.bfloat16(); x.int(); x.long(); x.bool(); x.to(m.short); x.abs().to(m.uint8); x.to(float)
x.to(int); x.to(bool); x.item(); x.tolist(); len(x); list(x); bool(x); int(x); float(x); 1 in x
[0, 1, 2, 3, 4][x]; tuple(x.shape); x.ndim; x.numel(); x.nbytes; x.to(m.float32).dtype
m.zeros_like(x); m.ones_like(x); m.full_like(x, 1); m.zeros_like(x, dtype=float)
m.ones_like(x, dtype=int); m.full_like(x, True); m.full_like(x, float("nan"))
m.zeros_like(x, dtype=bool); m.result_type(x, 1); m.result_type(x, 1.0); m.result_type(x, True)
m.result_type(x, m.tensor(1)); m.result_type(m.tensor(1.0), x); m.result_type(2, x)
x @ x; x @ x.mT; m.mm(x, x.mT); m.dot(x, x); m.outer(x, x); m.mv(x, x[0]); m.tensordot(x, x, 0)
m.einsum("ij,kj->ik", x, x); m.einsum(",->", x, x); m.tensordot(x, x, 1); m.kron(x, x)
m.addmm(x, x, x); m.bmm(x, x.mT); m.einsum("...i,...i->...", x, x); m.einsum("ab->c", x)
m.hstack([x, x]); m.vstack([x, x]); m.cat([x, m.zeros(0)]); m.broadcast_tensors(x, x)
m.cat([x, m.ones(x.shape, dtype=m.int32)]); m.stack([x, m.ones(x.shape, dtype=m.uint8)])
m.meshgrid(x, x, indexing="ij"); m.meshgrid(x, x, indexing="xy"); x.unsqueeze(-3); x.squeeze((0, 1))
m.meshgrid(x, x, x, indexing="xy"); x.split(1); x[None]; x[...]; x[1:]; x[::2]
x.clone().index_put_((m.tensor([0]),), x[:1]); m.nn.functional.dropout(x, 0.0)
x.clone().index_put_((m.tensor([0]),), x[:1].to(m.float32)); m.nn.functional.linear(x, x)
m.nn.functional.pad(x, (1, 1)); m.nn.functional.pad(x, (-1, 2)); m.nn.functional.pad(x, ())
m.nn.functional.pad(x, (1, 0), value=2); m.nn.functional.layer_norm(x, tuple(x.shape[-1:]))
m.nn.functional.rms_norm(x, tuple(x.shape[-1:])); m.nn.functional.max_pool1d(x, 2)
m.nn.functional.avg_pool1d(x, 2); m.nn.functional.embedding(x, m.ones(5, 2))
m.nn.functional.one_hot(x); m.nn.functional.one_hot(x, 6)
"""

ACTIVATIONS = _words("""
gelu silu mish softplus elu selu celu hardtanh hardsigmoid hardswish relu relu6 leaky_relu
logsigmoid softsign tanhshrink sigmoid tanh
""")

LOSSES = _words("""
mse_loss l1_loss smooth_l1_loss huber_loss binary_cross_entropy_with_logits kl_div
binary_cross_entropy
""")

PADS = ((1, 1), (2, -1), (-1, 2), (-2, 0), (0, 0), (1, 0), (-1, -1), (3, -3), (-2, 4), (5, 5),
        (2, -4), (0, 1))  # fmt: skip

# an option that there is not, and numbers that cannot be right: an error each, of Weft's own
REFUSED = """
x.div(2, rounding_mode="typo"); x.div(2, rounding_mode=0); m.meshgrid(x, x, indexing="bad")
m.nn.functional.gelu(x, approximate="bad"); m.nn.functional.pad(x, (1, 1), mode="bad")
m.nn.functional.pad(x, (), mode="bad"); m.nn.functional.mse_loss(x, x, reduction="bad")
m.nn.functional.l1_loss(x, x, reduction="bad"); m.nn.functional.huber_loss(x, x, reduction=None)
m.nn.functional.smooth_l1_loss(x, x, reduction="max"); m.linspace(0, 1, 3, dtype=bool)
m.nn.functional.kl_div(x, x, reduction="bad"); x.scatter_reduce(0, m.tensor([0]), x, "bad")
m.nn.functional.binary_cross_entropy(x, x, reduction="bad"); m.logspace(0, 1, 3, dtype=bool)
m.nn.functional.binary_cross_entropy_with_logits(x, x, reduction="bad"); m.arange(3, dtype=bool)
m.nn.functional.cross_entropy(x, x, reduction="bad"); x.norm("typo")
x.scatter(0, m.tensor([0]), x, reduce="bad"); x.to("bad"); x.to(complex)
m.zeros(2, dtype=complex); m.zeros(2, dtype=str)
m.einsum("ab->c", x); m.einsum(3, x); x.chunk(0); x.tensor_split(0); x.view(complex)
m.nn.functional.interpolate(x, mode="bad"); m.nn.functional.nll_loss(x, x, reduction="bad")
m.nn.functional.conv1d(x, x, padding="bad"); m.nn.functional.conv2d(x, x, padding="bad")
m.nn.functional.pad(x, (1, 1), mode=None); x.scatter(0, m.tensor([0]), x, reduce=1)
"""


def expressions(text):
    """Return the expressions of a table: they are set apart by semicolons and ends of lines."""
    return [e.strip() for line in text.splitlines() for e in line.split(";") if e.strip()]


def calls():
    """Return all expressions that are compared."""
    names = [f"x.{n}()" for n in UNARY] + [f"m.{n}(x)" for n in UNARY]
    names += [f"x.{n}({d})" for n in BY_AXIS for d in AXES]
    names += [f"x.{n}(dim={d}, keepdim=True)" for n in KEEPING for d in AXES]
    names += [e.format(d=d) for e in expressions(WITH_AXIS) for d in AXES]
    names += expressions(PLAIN)
    names += [f"m.nn.functional.{n}(x)" for n in ACTIVATIONS]
    names += [f"m.nn.functional.{n}(x, x.abs(), reduction={r!r})"
              for n in LOSSES for r in ("mean", "sum", "none")]  # fmt: skip
    classes = "m.zeros(x.shape[:x.ndim > 1], dtype=m.int64)"
    names += [f"m.nn.functional.{n}(x, {classes}, reduction={r!r})"
              for n in ("nll_loss", "cross_entropy") for r in ("mean", "sum", "none")]  # fmt: skip
    names += [f"m.nn.functional.pad(x, {p}, mode={mode!r})"
              for mode in ("reflect", "replicate", "circular") for p in PADS]  # fmt: skip
    return names
