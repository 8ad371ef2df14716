"""Kernel types of `bench/shapes.py` that stream memory: rows, reductions, scans, elementwise.

Sizes are drawn so that an array has 2**12 to 2**24 elements: some rows fit a register, some arrays
no cache.
"""

import math

import numpy as np
import torch
import torch.nn.functional as F

import weft

LEAST, MOST = 1 << 12, 1 << 23  # elements of an array


def make_rows(draw):
    rows, columns = draw.sizes([(1, 1 << 16), (8, 1 << 16)], LEAST, MOST)
    return (draw.normal(rows, columns),), {}


def make_norm(draw):
    (x,), _ = make_rows(draw)
    n = x.shape[1]
    return (x, draw.normal(n), draw.normal(n)), {}


def make_norm_gradient(draw):
    (x, w, b), _ = make_norm(draw)
    return (x, w, b, draw.normal(*x.shape)), {}


def make_axis(draw):
    kind = draw.pick("row", "column", "middle", "all", "outer")
    if kind == "middle":
        a, b, c = draw.sizes([(2, 512), (2, 1024), (2, 1024)], LEAST, MOST)
        return (draw.normal(a, b, c),), {"dim": 1}
    if kind == "outer":
        a, b, c = draw.sizes([(2, 512), (2, 512), (2, 512)], LEAST, MOST)
        return (draw.normal(a, b, c),), {"dim": (0, 2)}
    (x,), _ = make_rows(draw)
    return (x,), {"dim": {"row": 1, "column": 0, "all": (0, 1)}[kind]}


def make_one_axis(draw):
    while True:
        arrays, options = make_axis(draw)
        if isinstance(options["dim"], int):
            return arrays, options


def make_broadcast(draw):
    rows, columns = draw.sizes([(1, 1 << 14), (1, 1 << 14)], LEAST, MOST)
    other = draw.pick((rows, 1), (columns,), (1, columns), ())
    return (draw.normal(rows, columns), draw.normal(*other)), {}


def make_strided(draw):
    rows, columns = draw.sizes([(2, 1 << 12), (4, 1 << 12)], LEAST, MOST >> 1)
    return (draw.normal(rows, 2 * columns), draw.normal(rows, columns)), {}


def make_classes(draw):
    rows, classes = draw.sizes([(1, 1 << 14), (2, 1 << 16)], LEAST, MOST)
    return (draw.normal(rows, classes), draw.rng.integers(0, classes, rows)), {}


def make_images(draw):
    sizes = draw.sizes([(1, 64), (2, 512), (2, 128), (2, 128)], LEAST, MOST)
    return (draw.normal(*sizes), draw.normal(sizes[1]), draw.normal(sizes[1])), {}


def make_adam(draw):
    (x,), _ = make_rows(draw)
    return (x, draw.normal(*x.shape), draw.normal(*x.shape) * 0.1,
            draw.normal(*x.shape) ** 2 * 0.01), {}


def np_softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def np_log_softmax(x):
    shifted = x - x.max(-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))


def weft_norm_gradient(x, w, b, g):
    x, w, b = (t.detach().requires_grad_() for t in (x, w, b))
    with weft.enable_grad():
        y = x.layer_norm((x.shape[-1],), w, b)
    return weft.grad(y, (x, w, b), g)


def torch_norm_gradient(x, w, b, g):
    _, mean, rstd = torch.ops.aten.native_layer_norm(x, [x.shape[-1]], w, b, 1e-5)
    return torch.ops.aten.native_layer_norm_backward(g, x, [x.shape[-1]], mean, rstd, w, b,
                                                     [True] * 3)


def weft_classes_gradient(x, t):
    return weft.grad(lambda x: x.cross_entropy(t))(x)


def torch_classes_gradient(x, t):
    with torch.enable_grad():
        x = x.detach().requires_grad_()
        return torch.autograd.grad(F.cross_entropy(x, t), x)[0]


def adam(x, g, m, v):
    m = m * 0.9 + g * 0.1
    v = v * 0.999 + g * g * 0.001
    # As PyTorch writes it: the corrections of the bias are scalars, two divisions are left.
    return x * (1 - 1e-5) - (1e-3 / 0.1) * m / (v.sqrt() / math.sqrt(0.001) + 1e-8), m, v


_states, _steps = {}, {}


def torch_adam(x, g, m, v):
    """Update copies, made in the first call, in place: only that call's result is checked."""
    key = (x.data_ptr(), x.dtype)
    if key not in _states:
        _states.clear()
        _states[key] = [t.clone() for t in (x, m, v)], torch.ones((), dtype=torch.float32)
    (x, m, v), step = _states[key]
    torch._fused_adamw_([x], [g], [m], [v], [], [step], amsgrad=False, beta1=0.9, beta2=0.999,
                        lr=1e-3, weight_decay=0.01, eps=1e-8, maximize=False)
    return [x, m, v]


def weft_adam(*arrays):
    """Update copies in place, as PyTorch's does here: a captured step that writes its tensors."""
    if _steps.get("for") is not arrays[0]:
        _steps.clear()
        x, m, v = (arrays[i].clone().realize() for i in (0, 2, 3))

        def step(g):
            for old, new in zip((x, m, v), adam(x, g, m, v), strict=True):
                old.copy_(new)

        _steps.update({"for": arrays[0], "step": weft.jit(step), "state": [x, m, v]})
    _steps["step"](arrays[1])
    return _steps["state"]


weft_adam.eager = True


def tanh_gelu(x):
    return F.gelu(x, approximate="tanh")


def narrow(x):
    return x.to(weft.bfloat16).to(weft.float32)


def narrow_torch(x):
    return x.to(torch.bfloat16).to(torch.float32)


# name: (draw shapes, Weft, PyTorch, NumPy or None)
TYPES = {
    "softmax": (make_rows, lambda x: x.softmax(-1), lambda x: x.softmax(-1), np_softmax),
    "log softmax": (make_rows, lambda x: x.log_softmax(-1), lambda x: x.log_softmax(-1),
                    np_log_softmax),
    "softmax of columns": (make_rows, lambda x: x.softmax(0), lambda x: x.softmax(0),
                           lambda x: np_softmax(x.T).T),
    "layer norm": (make_norm, lambda x, w, b: x.layer_norm((x.shape[-1],), w, b),
                   lambda x, w, b: F.layer_norm(x, (x.shape[-1],), w, b), None),
    "layer norm gradient": (make_norm_gradient, weft_norm_gradient, torch_norm_gradient, None),
    "rms norm": (make_norm, lambda x, w, b: x.rms_norm((x.shape[-1],), w, 1e-5),
                 lambda x, w, b: F.rms_norm(x, (x.shape[-1],), w, 1e-5), None),
    "batch norm": (make_images, lambda x, w, b: x.batch_norm(weight=w, bias=b, training=True),
                   lambda x, w, b: F.batch_norm(x, None, None, w, b, True), None),
    "sum": (make_axis, lambda x, dim: x.sum(dim), lambda x, dim: x.sum(dim),
            lambda x, dim: x.sum(dim)),
    "max": (make_axis, lambda x, dim: x.amax(dim), lambda x, dim: x.amax(dim),
            lambda x, dim: x.max(dim)),
    "variance": (make_axis, lambda x, dim: x.var(dim), lambda x, dim: x.var(dim),
                 lambda x, dim: x.var(dim, ddof=1)),
    "argmax": (make_one_axis, lambda x, dim: x.argmax(dim), lambda x, dim: x.argmax(dim),
               lambda x, dim: x.argmax(dim)),
    "any": (make_axis, lambda x, dim: (x > 3).any(dim), lambda x, dim: (x > 3).any(dim),
            lambda x, dim: (x > 3).any(dim)),
    "cumsum": (make_one_axis, lambda x, dim: x.cumsum(dim), lambda x, dim: x.cumsum(dim),
               lambda x, dim: x.cumsum(dim)),
    "cumprod": (make_one_axis, lambda x, dim: (x * 0.01 + 1).cumprod(dim),
                lambda x, dim: (x * 0.01 + 1).cumprod(dim),
                lambda x, dim: (x * 0.01 + 1).cumprod(dim)),
    "cummax": (make_one_axis, lambda x, dim: x.cummax(dim)[0], lambda x, dim: x.cummax(dim)[0],
               lambda x, dim: np.maximum.accumulate(x, dim)),
    "logcumsumexp": (make_one_axis, lambda x, dim: x.logcumsumexp(dim),
                     lambda x, dim: x.logcumsumexp(dim),
                     lambda x, dim: np.logaddexp.accumulate(x, dim)),
    "logaddexp": (make_broadcast, lambda a, b: a.logaddexp(b), torch.logaddexp, np.logaddexp),
    "chain": (make_rows, lambda x: ((x * 2 + 1).relu() * -0.5).exp() + x,
              lambda x: torch.exp(torch.relu(x * 2 + 1) * -0.5) + x, None),
    "broadcast": (make_broadcast, lambda a, b: a + b, lambda a, b: a + b, lambda a, b: a + b),
    "strided": (make_strided, lambda a, b: a[:, ::2] * b, lambda a, b: a[:, ::2] * b,
                None),
    "bfloat16 and back": (make_rows, narrow, narrow_torch, None),
    "to int8": (make_rows, lambda x: (x * 20).clamp(-128, 127).round().to(weft.int8),
                lambda x: (x * 20).clamp(-128, 127).round().to(torch.int8), None),
    "where": (make_adam, lambda a, b, c, d: (a > b).where(c, d),
              lambda a, b, c, d: torch.where(a > b, c, d),
              lambda a, b, c, d: np.where(a > b, c, d)),
    "gelu": (make_rows, lambda x: x.gelu(), F.gelu, None),
    "gelu tanh": (make_rows, lambda x: x.gelu(approximate="tanh"), tanh_gelu, None),
    "silu": (make_rows, lambda x: x.silu(), F.silu, None),
    "tanh": (make_rows, lambda x: x.tanh(), torch.tanh, np.tanh),
    "exp": (make_rows, lambda x: x.exp(), torch.exp, np.exp),
    "sin": (make_rows, lambda x: x.sin(), torch.sin, np.sin),
    "cos": (make_rows, lambda x: x.cos(), torch.cos, np.cos),
    "tan": (make_rows, lambda x: x.tan(), torch.tan, np.tan),
    "erfc": (make_rows, lambda x: x.erfc(), torch.erfc, None),
    "log2": (make_rows, lambda x: x.abs().log2(), lambda x: x.abs().log2(), None),
    "log": (make_rows, lambda x: x.abs().log1p(), lambda x: x.abs().log1p(), None),
    "cross entropy": (make_classes, lambda x, t: x.cross_entropy(t),
                      lambda x, t: F.cross_entropy(x, t), None),
    "cross entropy gradient": (make_classes, weft_classes_gradient, torch_classes_gradient, None),
    "adamw": (make_adam, weft_adam, torch_adam, None),
}  # fmt: skip
