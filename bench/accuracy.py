"""Weft's error against float64 beside PyTorch's, for every kind of kernel that rounds.

    python bench/accuracy.py [--only norm] [--seed 7] [--threads 2] [--dtypes float32,bfloat16]

Both systems get the same fresh random inputs, rounded to the type in question; what they should
give is computed from these in float64. Functions of single elements are judged by the distance of
neighbouring floats at the exact result (an ulp), everything else by the largest or the
root-mean-square element of the exact result. Printed are the root-mean-square and the largest
error of both over all elements of all draws, and Weft's divided by PyTorch's: 1 is as exact, below
1 more exact. Behind them stand the median and the largest ratio of the root-mean-square errors of
one draw: of two sums that are equally exact, now this one is nearer and now that.

A row of `TYPES` is a function that draws inputs, and the same work in Weft and PyTorch. Inputs are
chosen where it is hard: sums that cancel, means that are large beside what deviates from them,
logarithms of almost 1.
"""

import argparse
import functools
import math
import os

parser = argparse.ArgumentParser()
parser.add_argument("--threads", type=int, default=int(os.environ.get("WEFT_NUM_THREADS", "1")))
parser.add_argument("--only", default="", help="types whose names contain this; comma list")
parser.add_argument("--seed", type=int, default=None)
parser.add_argument("--draws", type=int, default=16, help="inputs drawn for each type")
parser.add_argument("--dtypes", default="float32,bfloat16")
args = parser.parse_args()
for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "WEFT_NUM_THREADS"):
    os.environ[name] = str(args.threads)

import numpy as np  # noqa: E402 - the threads are set before
import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402

import weft  # noqa: E402
import weft.nn.functional as WF  # noqa: E402

torch.set_num_threads(args.threads)
seed = int.from_bytes(os.urandom(3), "little") if args.seed is None else args.seed

# dtype: (bits behind the point, smallest exponent of a normal number)
FORMATS = {"float32": (23, -126), "bfloat16": (7, -126), "float16": (10, -14)}


def size(rng, low, high):
    """Return a size, all magnitudes alike likely."""
    return round(math.exp(rng.uniform(math.log(low), math.log(high))))


def normal(*bounds, scale=1.0, mean=0.0):
    """Return a function that draws normally distributed arrays, its sizes within bounds."""
    def draw(rng):
        shape = [size(rng, *b) if isinstance(b, tuple) else b for b in bounds]
        return (rng.standard_normal(shape) * scale + mean,)
    return draw


def uniform(low, high):
    """Return a function that draws elements between two values."""
    return lambda rng: (rng.uniform(low, high, 1 << 16),)


def spread(low, high, signs=True):
    """Return a function that draws elements of all magnitudes between powers of two."""
    def draw(rng):
        x = np.exp2(rng.uniform(low, high, 1 << 16))
        return (x * rng.choice([-1, 1], x.shape) if signs else x,)
    return draw


def with_gradient(draw):
    """Add a normally distributed array of the shape of the first."""
    def drawn(rng):
        arrays = draw(rng)
        return (*arrays, rng.standard_normal(arrays[0].shape))
    return drawn


def with_weights(draw):
    """Add a scale and a shift for each element of a row."""
    def drawn(rng):
        (x,) = draw(rng)
        return (x, *rng.standard_normal((2, x.shape[-1])))
    return drawn


def cancelling(rng):
    """Rows whose elements are large beside their sum."""
    x = rng.standard_normal((64, size(rng, 500, 50000)))
    return (np.concatenate([x, -x + rng.standard_normal(x.shape) * 1e-3], 1),)


def products(left, right, scale=1.0):
    """Return a function that draws two arrays, its letters being sizes."""
    def draw(rng):
        sizes = {c: size(rng, *(LONG if c == "k" else SHORT)) for c in left + right}
        return tuple(rng.standard_normal([sizes[c] for c in t]) for t in (left, right))
    return draw


LONG, SHORT = (64, 4096), (16, 200)


def pictures(rng):
    c, o, n = size(rng, 3, 128), size(rng, 8, 128), size(rng, 10, 40)
    return rng.standard_normal((2, c, n, n)), rng.standard_normal((o, c, 3, 3))


def heads(rng):
    n, d = size(rng, 64, 512), int(rng.choice([32, 64, 80, 128]))
    return tuple(rng.standard_normal((3, 1, 4, n, d)))


def classes(rng, scale=1.0):
    x = rng.standard_normal((size(rng, 16, 500), size(rng, 10, 20000))) * scale
    return x, rng.integers(0, x.shape[1], len(x))


def with_targets(rng):
    x = rng.standard_normal((2, 300, 500)) * 4
    return x[0], 1 / (1 + np.exp(-x[1]))


def logarithms(rng):
    x = rng.standard_normal((2, 200, 300))
    x -= np.log(np.exp(x).sum(-1, keepdims=True))
    return x[0], np.exp(x[1])


def images(rng, mean=0.0):
    x = rng.standard_normal((8, size(rng, 4, 64), *(size(rng, 8, 56),) * 2)) + mean
    return (x, *rng.standard_normal((2, x.shape[1])))


def adam(x, g, m, v):
    m = m * 0.9 + g * 0.1
    v = v * 0.999 + g * g * 0.001
    return x * (1 - 1e-5) - (1e-3 / 0.1) * m / ((v / 0.001).sqrt() + 1e-8)


def adam_state(rng):
    x, g, m, v = rng.standard_normal((4, 1 << 16))
    return x, g, m * 0.1, v * v * 0.01


def same(fn):
    """Return one function as Weft's and as PyTorch's."""
    return fn, fn


def method(name, *rest, **options):
    return same(lambda x, *more: getattr(x, name)(*more, *rest, **options))


def functional(name, *rest, **options):
    return (lambda *a: getattr(WF, name)(*a, *rest, **options),
            lambda *a: getattr(F, name)(*a, *rest, **options))


def gradient(pair, which=0):
    """Return the gradients of a pair of functions; the last argument is that of the result."""
    def ours(*arrays):
        *inputs, g = arrays
        with weft.enable_grad():
            found = [t.detach().requires_grad_() if i == which else t
                     for i, t in enumerate(inputs)]
            return weft.grad(pair[0](*found), (found[which],), g)[0]

    def theirs(*arrays):
        *inputs, g = arrays
        found = [t.detach().requires_grad_(i == which) for i, t in enumerate(inputs)]
        return torch.autograd.grad(pair[1](*found), found[which], g)[0]

    return ours, theirs


def of_result(draw, fn):
    """Draw the gradient of the result of a function, too."""
    def drawn(rng):
        arrays = draw(rng)
        with torch.no_grad():
            shape = fn(*(torch.from_numpy(np.asarray(a)) for a in arrays)).shape
        return (*arrays, rng.standard_normal(tuple(shape)))
    return drawn


def layer_norm(x, *rest):
    return (weft if isinstance(x, weft.Tensor) else F).layer_norm(x, (x.shape[-1],), *rest)


def rms_norm(x, w, _):
    return (weft if isinstance(x, weft.Tensor) else F).rms_norm(x, (x.shape[-1],), w, 1e-5)


def batch_norm(x, w, b):
    if isinstance(x, weft.Tensor):
        return x.batch_norm(weight=w, bias=b, training=True)
    return F.batch_norm(x, None, None, w, b, True)


def cross_entropy(x, target):
    return (x if isinstance(x, weft.Tensor) else F).cross_entropy(
        *((target,) if isinstance(x, weft.Tensor) else (x, target)), reduction="none")


def conv(x, w, **options):
    return x.conv2d(w, **options) if isinstance(x, weft.Tensor) else F.conv2d(x, w, **options)


def attention(q, k, v, causal=False):
    library = WF if isinstance(q, weft.Tensor) else F
    return library.scaled_dot_product_attention(q, k, v, is_causal=causal)


MATRIX = normal((30, 400), (100, 5000))
NORMS = with_weights(MATRIX)
FAR = with_weights(normal((30, 400), (100, 5000), scale=0.1, mean=1000))
PICTURE = functools.partial(conv, padding=1)

# name: (draw inputs, (Weft, PyTorch), whether elements are judged one by one)
TYPES = {
    "exp": (uniform(-87, 88), method("exp"), True),
    "exp2": (uniform(-126, 127), method("exp2"), True),
    "expm1 near 0": (spread(-20, 3), method("expm1"), True),
    "log": (spread(-100, 100, False), method("log"), True),
    "log near 1": (lambda rng: (1 + spread(-20, -2)(rng)[0],), method("log"), True),
    "log2": (spread(-100, 100, False), method("log2"), True),
    "log2 near 1": (lambda rng: (1 + spread(-20, -2)(rng)[0],), method("log2"), True),
    "log10": (spread(-100, 100, False), method("log10"), True),
    "log1p": (spread(-20, 20, False), method("log1p"), True),
    "tanh": (spread(-15, 4), method("tanh"), True),
    "sigmoid": (uniform(-80, 80), method("sigmoid"), True),
    "erf": (spread(-15, 2), method("erf"), True),
    "sin": (uniform(-100, 100), method("sin"), True),
    "cos": (uniform(-100, 100), method("cos"), True),
    "tan": (uniform(-100, 100), method("tan"), True),
    "erfc": (uniform(-6, 9), method("erfc"), True),
    "sqrt": (spread(-100, 100, False), method("sqrt"), True),
    "rsqrt": (spread(-100, 100, False), method("rsqrt"), True),
    "gelu": (uniform(-3, 10), functional("gelu"), True),
    "gelu, tail": (uniform(-9, -3), functional("gelu"), True),
    "gelu tanh": (uniform(-3, 10), functional("gelu", approximate="tanh"), True),
    "silu": (uniform(-20, 20), functional("silu"), True),
    "softplus": (uniform(-20, 20), functional("softplus"), True),
    "mish": (uniform(-10, 20), functional("mish"), True),
    "elu": (spread(-15, 4), functional("elu"), True),
    "logsigmoid": (uniform(-20, 20), functional("logsigmoid"), True),
    "selu": (spread(-15, 4), functional("selu"), True),
    "celu": (spread(-15, 4), functional("celu"), True),
    "softsign": (spread(-15, 4), functional("softsign"), True),
    "tanhshrink": (uniform(-5, 5), functional("tanhshrink"), False),
    "hardswish": (uniform(-4, 4), functional("hardswish"), False),
    "hardsigmoid": (uniform(-4, 4), functional("hardsigmoid"), False),
    "logaddexp": (with_gradient(uniform(-9, 9)), method("logaddexp"), False),
    "hypot": (with_gradient(uniform(-9, 9)), method("hypot"), True),
    "gradient of logaddexp": (of_result(with_gradient(uniform(-9, 9)), torch.logaddexp),
                              gradient(method("logaddexp")), False),
    "gradient of gelu": (with_gradient(uniform(-4, 8)), gradient(functional("gelu")), False),
    "gradient of tanh": (with_gradient(uniform(-4, 4)), gradient(method("tanh")), False),
    "gradient of silu": (with_gradient(uniform(-9, 9)), gradient(functional("silu")), False),
    "adamw": (adam_state, same(adam), True),
    "sum of rows": (MATRIX, method("sum", -1), False),
    "sum of rows that cancel": (cancelling, method("sum", -1), False),
    "sum of rows of one sign": (normal(64, (1000, 50000), mean=5), method("sum", -1), False),
    "sum of columns": (normal((100, 50000), 40), method("sum", 0), False),
    "sum of all": (normal(8, 20000, 7), same(lambda x: x.sum((1, 2))), False),
    "mean of rows": (normal(64, (1000, 50000), mean=5), method("mean", -1), False),
    "product of rows": (normal(500, (20, 300), scale=0.1, mean=1), method("prod", -1), True),
    "norm of rows": (MATRIX, method("norm", dim=-1), False),
    "variance": (MATRIX, method("var", -1), False),
    "variance, far mean": (normal(100, (100, 5000), mean=1000), method("var", -1), False),
    "variance of columns, far mean": (normal((100, 5000), 60, mean=1000), method("var", 0), False),
    "deviation of all, far mean": (normal(9, 300, 300, mean=1000),
                                   same(lambda x: x.std((1, 2))), False),
    "logsumexp": (normal((30, 400), (100, 5000), scale=9), method("logsumexp", -1), False),
    "softmax": (normal((30, 400), (100, 5000), scale=4), method("softmax", -1), True),
    "softmax of columns": (normal((100, 5000), (30, 100), scale=4), method("softmax", 0), True),
    "log softmax": (normal((30, 400), (100, 5000), scale=4), method("log_softmax", -1), True),
    "gradient of softmax": (with_gradient(MATRIX), gradient(method("softmax", -1)), False),
    "gradient of log softmax": (with_gradient(MATRIX), gradient(method("log_softmax", -1)), False),
    "layer norm": (NORMS, same(layer_norm), False),
    "layer norm, far mean": (FAR, same(layer_norm), False),
    "gradient of layer norm": (of_result(NORMS, layer_norm), gradient(same(layer_norm)), False),
    "gradient of its weight": (of_result(NORMS, layer_norm), gradient(same(layer_norm), 1), False),
    "rms norm": (NORMS, same(rms_norm), False),
    "gradient of rms norm": (of_result(NORMS, rms_norm), gradient(same(rms_norm)), False),
    "batch norm": (images, same(batch_norm), False),
    "batch norm, far mean": (functools.partial(images, mean=300), same(batch_norm), False),
    "gradient of batch norm": (of_result(images, batch_norm), gradient(same(batch_norm)), False),
    "cross entropy": (classes, same(cross_entropy), True),
    "cross entropy, sure": (functools.partial(classes, scale=8), same(cross_entropy), True),
    "gradient of cross entropy": (of_result(classes, cross_entropy),
                                  gradient(same(cross_entropy)), False),
    "mse loss": (with_gradient(MATRIX), functional("mse_loss"), True),
    "huber loss": (with_gradient(MATRIX), functional("huber_loss"), True),
    "smooth l1 loss": (with_gradient(MATRIX), functional("smooth_l1_loss"), True),
    "l1 loss": (with_gradient(MATRIX), functional("l1_loss"), True),
    "binary cross entropy": (with_targets, functional(
        "binary_cross_entropy_with_logits", reduction="none"), False),
    "kl divergence": (logarithms, functional("kl_div", reduction="batchmean"), True),
    "normalize": (MATRIX, functional("normalize"), False),
    "cosine similarity": (with_gradient(MATRIX), functional("cosine_similarity"), False),
    "group norm": (normal(4, 32, 20, 20, mean=3), functional("group_norm", 8), False),
    "cumsum": (normal(20, (1000, 50000)), method("cumsum", -1), False),
    "cumsum of columns": (normal((1000, 9000), 40), method("cumsum", 0), False),
    "cumprod": (normal(50, (100, 2000), scale=0.01, mean=1), method("cumprod", -1), True),
    "logcumsumexp": (normal(50, (100, 2000)), method("logcumsumexp", -1), True),
    "gradient of logcumsumexp": (with_gradient(normal(50, (100, 2000))),
                                 gradient(method("logcumsumexp", -1)), False),
    "average pool": (normal(2, 8, 40, 40), functional("avg_pool2d", 5), False),
    "matmul nn": (products("mk", "kn"), same(lambda a, b: a @ b), False),
    "matmul nt": (products("mk", "nk"), same(lambda a, b: a @ b.T), False),
    "matmul tn": (products("km", "kn"), same(lambda a, b: a.T @ b), False),
    "matmul of one row": (products("k", "kn"), same(lambda a, b: a @ b), False),
    "matrix by vector": (products("mk", "k"), same(lambda a, b: a @ b), False),
    "matmul batched": (products("bmk", "bkn"), same(lambda a, b: a @ b), False),
    "linear": (products("mk", "nk"), functional("linear"), False),
    "conv2d": (pictures, same(PICTURE), False),
    "conv2d, stride 2": (pictures, same(functools.partial(PICTURE, stride=2)), False),
    "conv2d by input": (of_result(pictures, PICTURE), gradient(same(PICTURE)), False),
    "conv2d by weight": (of_result(pictures, PICTURE), gradient(same(PICTURE), 1), False),
    "attention": (heads, same(attention), False),
    "attention, causal": (heads, same(functools.partial(attention, causal=True)), False),
    "attention by query": (of_result(heads, attention), gradient(same(attention)), False),
    "attention by key": (of_result(heads, attention), gradient(same(attention), 1), False),
    "attention by value": (of_result(heads, attention), gradient(same(attention), 2), False),
}  # fmt: skip


def run_torch(fn, arrays, dtype):
    """Return a result of PyTorch in float64, computed in some type."""
    tensors = [torch.from_numpy(np.asarray(a)) for a in arrays]
    result = fn(*(t.to(dtype) if t.is_floating_point() else t for t in tensors))
    return result.detach().to(torch.float64).numpy()


def run_weft(fn, arrays, dtype):
    """Return a result of Weft in float64, computed in some type."""
    tensors = [weft.from_numpy(np.ascontiguousarray(a)) for a in arrays]
    tensors = [t.to(getattr(weft, dtype)).realize() if t.is_floating_point() else t
               for t in tensors]
    return weft.jit(fn)(*tensors).to(weft.float64).numpy()


def errors(got, want, dtype, single):
    """Return the errors of the elements of a result."""
    bits, least = FORMATS[dtype]
    if single:
        _, exponents = np.frexp(want)
        scale = np.exp2(np.maximum(exponents - 1, least) - bits)
    else:
        scale = np.sqrt(np.mean(want * want)) or 1.0
    different = got != want  # infinities are right where they are equal
    return np.divide(got - want, scale, out=np.zeros_like(want), where=different).ravel()


def measure(row, dtype):
    """Return root-mean-square and largest errors of Weft and of PyTorch, and ratios by draw."""
    draw, (ours, theirs), single = TYPES[row]
    found = [], []
    for number in range(args.draws):
        drawn = draw(np.random.default_rng([seed, number, *row.encode()]))
        arrays = [a if a.dtype.kind == "i" else run_torch(lambda x: x, [a], getattr(torch, dtype))
                  for a in map(np.asarray, drawn)]
        want = run_torch(theirs, arrays, torch.float64)
        for errs, got in zip(found, (run_weft(ours, arrays, dtype), run_torch(
                theirs, arrays, getattr(torch, dtype))), strict=True):
            errs.append(errors(got, want, dtype, single))
    by_draw = [ratio(root_mean_square(a), root_mean_square(b)) for a, b in zip(*found, strict=True)]
    return *((root_mean_square(e), np.abs(e).max()) for e in map(np.concatenate, found)), by_draw


def root_mean_square(e):
    """Return the root of the mean of squares."""
    return np.sqrt(np.mean(e * e))


def ratio(ours, theirs):
    """Return how many times as large one error is; both may be 0."""
    return ours / theirs if theirs else math.inf if ours else 1.0


def main():
    print(f"seed {seed}, {args.threads} threads; ulp: errors in ulps, else relative to the result")
    print(f"{'type':30s} {'dtype':9s}     {'root mean square':>26s}   {'largest':>26s}"
          "   by draw")
    for row in TYPES:
        if not any(part in row for part in args.only.split(",")):
            continue
        for dtype in args.dtypes.split(","):
            ours, theirs, by_draw = measure(row, dtype)
            text = "   ".join(f"{a:9.2e} {b:9.2e} {ratio(a, b):6.2f}"
                              for a, b in zip(ours, theirs, strict=True))
            print(f"{row:30s} {dtype:9s} {'ulp' if TYPES[row][2] else '   '} {text}  "
                  f"{np.median(by_draw):6.2f} {max(by_draw):6.2f}", flush=True)


if __name__ == "__main__":
    main()
