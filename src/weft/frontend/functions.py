"""The methods of `Tensor` as functions: ``weft.exp(x)``, ``weft.matmul(a, b)``.

The first argument may be anything that makes a tensor: a number, nested lists, an array (which is
copied, for its owner may change it before the values are computed).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, Concatenate, ParamSpec, TypeVar

from weft.frontend import join, linear, promotion
from weft.frontend.arguments import check_tensor
from weft.frontend.core import TensorCore, realize_all
from weft.frontend.creation import tensor
from weft.frontend.tensor import Tensor
from weft.ir import dtype as dt

__all__ = [
    "abs",
    "absolute",
    "acos",
    "acosh",
    "adaptive_avg_pool1d",
    "adaptive_avg_pool2d",
    "adaptive_max_pool2d",
    "add",
    "addcdiv",
    "addcmul",
    "addmm",
    "all",
    "allclose",
    "amax",
    "amin",
    "aminmax",
    "any",
    "arccos",
    "arccosh",
    "arcsin",
    "arcsinh",
    "arctan",
    "arctan2",
    "arctanh",
    "argmax",
    "argmin",
    "argsort",
    "asin",
    "asinh",
    "astype",
    "atan",
    "atan2",
    "atanh",
    "avg_pool1d",
    "avg_pool2d",
    "batch_norm",
    "binary_cross_entropy",
    "binary_cross_entropy_with_logits",
    "bitwise_and",
    "bitwise_invert",
    "bitwise_left_shift",
    "bitwise_not",
    "bitwise_or",
    "bitwise_right_shift",
    "bitwise_xor",
    "bmm",
    "broadcast_arrays",
    "broadcast_shapes",
    "broadcast_tensors",
    "broadcast_to",
    "cat",
    "ceil",
    "celu",
    "chunk",
    "clamp",
    "clip",
    "clone",
    "concat",
    "concatenate",
    "conv1d",
    "conv2d",
    "conv3d",
    "conv_transpose1d",
    "conv_transpose2d",
    "copysign",
    "cos",
    "cosh",
    "cosine_similarity",
    "count_nonzero",
    "cross_entropy",
    "cummax",
    "cummin",
    "cumprod",
    "cumsum",
    "deg2rad",
    "diag",
    "diag_embed",
    "diagonal",
    "diff",
    "div",
    "divide",
    "dot",
    "einsum",
    "elu",
    "eq",
    "equal",
    "erf",
    "erfc",
    "exp",
    "exp2",
    "expand_dims",
    "expm1",
    "flatten",
    "flip",
    "floor",
    "floor_divide",
    "fmax",
    "fmin",
    "fmod",
    "frac",
    "gather",
    "ge",
    "gelu",
    "greater",
    "greater_equal",
    "group_norm",
    "gt",
    "hardsigmoid",
    "hardswish",
    "hardtanh",
    "hstack",
    "huber_loss",
    "hypot",
    "index_add",
    "index_copy",
    "index_fill",
    "index_select",
    "instance_norm",
    "is_tensor",
    "isclose",
    "isfinite",
    "isinf",
    "isnan",
    "kl_div",
    "kron",
    "kthvalue",
    "l1_loss",
    "layer_norm",
    "le",
    "leaky_relu",
    "lerp",
    "less",
    "less_equal",
    "linear_recurrence",
    "log",
    "log1p",
    "log2",
    "log10",
    "log_softmax",
    "logaddexp",
    "logcumsumexp",
    "logical_and",
    "logical_not",
    "logical_or",
    "logical_xor",
    "logsigmoid",
    "logsumexp",
    "lt",
    "masked_fill",
    "masked_scatter",
    "masked_select",
    "matmul",
    "matrix_transpose",
    "max",
    "max_pool1d",
    "max_pool2d",
    "maximum",
    "mean",
    "median",
    "meshgrid",
    "min",
    "minimum",
    "mish",
    "mm",
    "moveaxis",
    "movedim",
    "mse_loss",
    "mul",
    "multiply",
    "mv",
    "nan_to_num",
    "narrow",
    "ne",
    "neg",
    "negative",
    "nll_loss",
    "nonzero",
    "norm",
    "normalize",
    "not_equal",
    "numel",
    "outer",
    "permute",
    "permute_dims",
    "positive",
    "pow",
    "prelu",
    "prod",
    "rad2deg",
    "ravel",
    "realize",
    "reciprocal",
    "relu",
    "relu6",
    "remainder",
    "repeat_interleave",
    "reshape",
    "result_type",
    "rms_norm",
    "roll",
    "round",
    "rsqrt",
    "scatter",
    "scatter_add",
    "scatter_reduce",
    "select",
    "selu",
    "sigmoid",
    "sign",
    "silu",
    "sin",
    "sinh",
    "smooth_l1_loss",
    "softmax",
    "softmin",
    "softplus",
    "softsign",
    "sort",
    "split",
    "sqrt",
    "square",
    "squeeze",
    "stack",
    "std",
    "sub",
    "subtract",
    "sum",
    "swapaxes",
    "t",
    "take",
    "take_along_dim",
    "tan",
    "tanh",
    "tanhshrink",
    "tensor_split",
    "tensordot",
    "tile",
    "topk",
    "trace",
    "transpose",
    "tril",
    "triu",
    "true_divide",
    "trunc",
    "unbind",
    "unflatten",
    "unique",
    "unsqueeze",
    "var",
    "var_mean",
    "vdot",
    "vstack",
    "where",
]  # fmt: skip

P = ParamSpec("P")
R = TypeVar("R")


def _operand(value: Any) -> Tensor:
    return value if isinstance(value, Tensor) else tensor(value)


def _function(method: Callable[Concatenate[Tensor, P], R]) -> Callable[Concatenate[Any, P], R]:
    """Return a method as a function whose first argument is converted (arrays are copied)."""

    @functools.wraps(method)
    def call(x: Any, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return method(_operand(x), *args, **kwargs)

    return call


abs = _function(Tensor.abs)
acos = _function(Tensor.acos)
acosh = _function(Tensor.acosh)
adaptive_avg_pool1d = _function(Tensor.adaptive_avg_pool1d)
adaptive_avg_pool2d = _function(Tensor.adaptive_avg_pool2d)
adaptive_max_pool2d = _function(Tensor.adaptive_max_pool2d)
add = _function(Tensor.add)
addcdiv = _function(Tensor.addcdiv)
addcmul = _function(Tensor.addcmul)
addmm = _function(Tensor.addmm)
all = _function(Tensor.all)
amax = _function(Tensor.amax)
amin = _function(Tensor.amin)
aminmax = _function(Tensor.aminmax)
any = _function(Tensor.any)
argmax = _function(Tensor.argmax)
argmin = _function(Tensor.argmin)
argsort = _function(Tensor.argsort)
asin = _function(Tensor.asin)
asinh = _function(Tensor.asinh)
atan = _function(Tensor.atan)
atan2 = _function(Tensor.atan2)
atanh = _function(Tensor.atanh)
avg_pool1d = _function(Tensor.avg_pool1d)
avg_pool2d = _function(Tensor.avg_pool2d)
batch_norm = _function(Tensor.batch_norm)
binary_cross_entropy = _function(Tensor.binary_cross_entropy)
binary_cross_entropy_with_logits = _function(Tensor.binary_cross_entropy_with_logits)
bitwise_and = _function(Tensor.bitwise_and)
bitwise_left_shift = _function(Tensor.bitwise_left_shift)
bitwise_not = _function(Tensor.bitwise_not)
bitwise_or = _function(Tensor.bitwise_or)
bitwise_right_shift = _function(Tensor.bitwise_right_shift)
bitwise_xor = _function(Tensor.bitwise_xor)
bmm = _function(Tensor.bmm)
broadcast_to = _function(Tensor.broadcast_to)
ceil = _function(Tensor.ceil)
celu = _function(Tensor.celu)
chunk = _function(Tensor.chunk)
clamp = _function(Tensor.clamp)
clip = _function(Tensor.clip)
clone = _function(Tensor.clone)
conv1d = _function(Tensor.conv1d)
conv2d = _function(Tensor.conv2d)
conv3d = _function(Tensor.conv3d)
conv_transpose1d = _function(Tensor.conv_transpose1d)
conv_transpose2d = _function(Tensor.conv_transpose2d)
copysign = _function(Tensor.copysign)
cos = _function(Tensor.cos)
cosh = _function(Tensor.cosh)
cosine_similarity = _function(Tensor.cosine_similarity)
count_nonzero = _function(Tensor.count_nonzero)
cross_entropy = _function(Tensor.cross_entropy)
cummax = _function(Tensor.cummax)
cummin = _function(Tensor.cummin)
cumprod = _function(Tensor.cumprod)
cumsum = _function(Tensor.cumsum)
deg2rad = _function(Tensor.deg2rad)
diag = _function(Tensor.diag)
diag_embed = _function(Tensor.diag_embed)
diagonal = _function(Tensor.diagonal)
diff = _function(Tensor.diff)
div = _function(Tensor.div)
dot = _function(Tensor.dot)
elu = _function(Tensor.elu)
eq = _function(Tensor.eq)
erf = _function(Tensor.erf)
erfc = _function(Tensor.erfc)
exp = _function(Tensor.exp)
exp2 = _function(Tensor.exp2)
expm1 = _function(Tensor.expm1)
flatten = _function(Tensor.flatten)
flip = _function(Tensor.flip)
floor = _function(Tensor.floor)
floor_divide = _function(Tensor.floor_divide)
fmax = _function(Tensor.fmax)
fmin = _function(Tensor.fmin)
fmod = _function(Tensor.fmod)
frac = _function(Tensor.frac)
gather = _function(Tensor.gather)
ge = _function(Tensor.ge)
gelu = _function(Tensor.gelu)
group_norm = _function(Tensor.group_norm)
gt = _function(Tensor.gt)
hardsigmoid = _function(Tensor.hardsigmoid)
hardswish = _function(Tensor.hardswish)
hardtanh = _function(Tensor.hardtanh)
huber_loss = _function(Tensor.huber_loss)
hypot = _function(Tensor.hypot)
index_add = _function(Tensor.index_add)
index_copy = _function(Tensor.index_copy)
index_fill = _function(Tensor.index_fill)
index_select = _function(Tensor.index_select)
instance_norm = _function(Tensor.instance_norm)
isclose = _function(Tensor.isclose)
isfinite = _function(Tensor.isfinite)
isinf = _function(Tensor.isinf)
isnan = _function(Tensor.isnan)
kl_div = _function(Tensor.kl_div)
kron = _function(Tensor.kron)
kthvalue = _function(Tensor.kthvalue)
l1_loss = _function(Tensor.l1_loss)
layer_norm = _function(Tensor.layer_norm)
le = _function(Tensor.le)
leaky_relu = _function(Tensor.leaky_relu)
lerp = _function(Tensor.lerp)
log = _function(Tensor.log)
log10 = _function(Tensor.log10)
log1p = _function(Tensor.log1p)
log2 = _function(Tensor.log2)
log_softmax = _function(Tensor.log_softmax)
logaddexp = _function(Tensor.logaddexp)
linear_recurrence = _function(Tensor.linear_recurrence)
logcumsumexp = _function(Tensor.logcumsumexp)
logical_and = _function(Tensor.logical_and)
logical_not = _function(Tensor.logical_not)
logical_or = _function(Tensor.logical_or)
logical_xor = _function(Tensor.logical_xor)
logsigmoid = _function(Tensor.logsigmoid)
logsumexp = _function(Tensor.logsumexp)
lt = _function(Tensor.lt)
masked_fill = _function(Tensor.masked_fill)
masked_scatter = _function(Tensor.masked_scatter)
masked_select = _function(Tensor.masked_select)
matmul = _function(Tensor.matmul)
max = _function(Tensor.max)
max_pool1d = _function(Tensor.max_pool1d)
max_pool2d = _function(Tensor.max_pool2d)
maximum = _function(Tensor.maximum)
mean = _function(Tensor.mean)
median = _function(Tensor.median)
min = _function(Tensor.min)
minimum = _function(Tensor.minimum)
mish = _function(Tensor.mish)
mm = _function(Tensor.mm)
moveaxis = _function(Tensor.moveaxis)
movedim = _function(Tensor.movedim)
mse_loss = _function(Tensor.mse_loss)
mul = _function(Tensor.mul)
mv = _function(Tensor.mv)
nan_to_num = _function(Tensor.nan_to_num)
narrow = _function(Tensor.narrow)
ne = _function(Tensor.ne)
neg = _function(Tensor.neg)
nll_loss = _function(Tensor.nll_loss)
nonzero = _function(Tensor.nonzero)
norm = _function(Tensor.norm)
normalize = _function(Tensor.normalize)
outer = _function(Tensor.outer)
permute = _function(Tensor.permute)
positive = _function(Tensor.positive)
pow = _function(Tensor.pow)
prelu = _function(Tensor.prelu)
prod = _function(Tensor.prod)
rad2deg = _function(Tensor.rad2deg)
ravel = _function(Tensor.ravel)
reciprocal = _function(Tensor.reciprocal)
relu = _function(Tensor.relu)
relu6 = _function(Tensor.relu6)
remainder = _function(Tensor.remainder)
repeat_interleave = _function(Tensor.repeat_interleave)
reshape = _function(Tensor.reshape)
rms_norm = _function(Tensor.rms_norm)
roll = _function(Tensor.roll)
round = _function(Tensor.round)
rsqrt = _function(Tensor.rsqrt)
scatter = _function(Tensor.scatter)
scatter_add = _function(Tensor.scatter_add)
scatter_reduce = _function(Tensor.scatter_reduce)
select = _function(Tensor.select)
selu = _function(Tensor.selu)
sigmoid = _function(Tensor.sigmoid)
sign = _function(Tensor.sign)
silu = _function(Tensor.silu)
sin = _function(Tensor.sin)
sinh = _function(Tensor.sinh)
smooth_l1_loss = _function(Tensor.smooth_l1_loss)
softmax = _function(Tensor.softmax)
softmin = _function(Tensor.softmin)
softplus = _function(Tensor.softplus)
softsign = _function(Tensor.softsign)
sort = _function(Tensor.sort)
split = _function(Tensor.split)
sqrt = _function(Tensor.sqrt)
square = _function(Tensor.square)
squeeze = _function(Tensor.squeeze)
std = _function(Tensor.std)
sub = _function(Tensor.sub)
sum = _function(Tensor.sum)
swapaxes = _function(Tensor.swapaxes)
t = _function(Tensor.t)
take = _function(Tensor.take)
take_along_dim = _function(Tensor.take_along_dim)
tan = _function(Tensor.tan)
tanh = _function(Tensor.tanh)
tanhshrink = _function(Tensor.tanhshrink)
tensor_split = _function(Tensor.tensor_split)
tensordot = _function(Tensor.tensordot)
tile = _function(Tensor.tile)
topk = _function(Tensor.topk)
trace = _function(Tensor.trace)
transpose = _function(Tensor.transpose)
tril = _function(Tensor.tril)
triu = _function(Tensor.triu)
trunc = _function(Tensor.trunc)
unbind = _function(Tensor.unbind)
unflatten = _function(Tensor.unflatten)
unique = _function(Tensor.unique)
unsqueeze = _function(Tensor.unsqueeze)
var = _function(Tensor.var)
var_mean = _function(Tensor.var_mean)
vdot = _function(Tensor.vdot)

# the array API's names
absolute = abs
arccos = acos
arccosh = acosh
arcsin = asin
arcsinh = asinh
arctan = atan
arctan2 = atan2
arctanh = atanh
bitwise_invert = bitwise_not
divide = div
greater = gt
greater_equal = ge
less = lt
less_equal = le
multiply = mul
negative = neg
not_equal = ne
permute_dims = permute
subtract = sub
true_divide = div


def where(condition: Any, x: Any = None, y: Any = None) -> Any:
    """Return `x` where `condition` holds, else `y`; with the condition alone, where it holds."""
    chooser = _operand(condition)
    if x is None and y is None:
        return chooser.nonzero(as_tuple=True)
    return chooser.where(x, y)


def cat(tensors: Sequence[Any], dim: int = 0) -> Tensor:
    """Return tensors joined along an axis."""
    return join.cat([_operand(t) for t in tensors], dim)


def concat(tensors: Sequence[Any], axis: int | None = 0) -> Tensor:
    """Return tensors joined along an axis; None joins them flattened."""
    if axis is None:
        return join.cat([_operand(t).ravel() for t in tensors], 0)
    return cat(tensors, axis)


concatenate = concat


def stack(tensors: Sequence[Any], dim: int = 0) -> Tensor:
    """Return tensors of one shape joined along a new axis."""
    return join.stack([_operand(t) for t in tensors], dim)


def hstack(tensors: Sequence[Any]) -> Tensor:
    """Return tensors joined along axis 1 (vectors along axis 0)."""
    parts = [_operand(t) for t in tensors]
    return join.cat(parts, 1 if parts and len(parts[0].shape) > 1 else 0)


def vstack(tensors: Sequence[Any]) -> Tensor:
    """Return tensors joined along axis 0, vectors as rows."""
    parts = [_operand(t) for t in tensors]
    return join.cat([p.reshape(1, -1) if len(p.shape) < 2 else p for p in parts], 0)


def einsum(equation: str, *operands: Any) -> Tensor:
    """Return the sum of products that an equation names: ``"bij,bjk->bik"``."""
    if len(operands) == 1 and isinstance(operands[0], list | tuple):
        operands = tuple(operands[0])
    return linear.einsum(equation, *[_operand(t) for t in operands])


def meshgrid(*tensors: Any, indexing: str = "xy") -> tuple[Tensor, ...]:
    """Return coordinate arrays of a grid."""
    return join.meshgrid(*[_operand(t) for t in tensors], indexing=indexing)


def broadcast_tensors(*tensors: Any) -> tuple[Tensor, ...]:
    """Return views of tensors broadcast to their common shape."""
    return join.broadcast_tensors(*[_operand(t) for t in tensors])


def broadcast_arrays(*arrays: Any) -> list[Tensor]:
    """Return views of arrays broadcast to their common shape."""
    return list(broadcast_tensors(*arrays))


def astype(x: Any, dtype: object, *, copy: bool = True) -> Tensor:
    """Return the elements converted to `dtype`."""
    return _operand(x).astype(dtype, copy=copy)


def expand_dims(x: Any, axis: int = 0) -> Tensor:
    """Return `x` with an axis of size 1 before axis `axis`."""
    return _operand(x).unsqueeze(axis)


def matrix_transpose(x: Any) -> Tensor:
    """Return the last two axes exchanged."""
    return _operand(x).mT


def equal(a: Any, b: Any) -> Any:
    """Return whether elements are equal."""
    return _operand(a).eq(b)


def allclose(a: Any, b: Any, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
             ) -> bool:  # fmt: skip
    """Return whether all elements are close (realizes)."""
    return bool(_operand(a).isclose(b, rtol, atol, equal_nan).all())


def result_type(*operands: Any) -> dt.DType:
    """Return the type in which operands meet."""
    found: dt.DType | None = None
    for x in operands:
        kind = x if isinstance(x, dt.DType) else (
            x.dtype if isinstance(x, TensorCore) else dt.of_value(x))
        found = kind if found is None else dt.promote(found, kind)
    return found or dt.float32


def broadcast_shapes(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape that shapes broadcast to."""
    return tuple(int(n) for n in promotion.broadcast_shapes("broadcast_shapes", *shapes))


def realize(*tensors: TensorCore) -> None:
    """Compute several tensors in one plan."""
    realize_all([check_tensor(t, "realize") for t in tensors])


def is_tensor(value: object) -> bool:
    """Return whether a value is a tensor."""
    return isinstance(value, Tensor)


def numel(x: Tensor) -> int:
    """Return the number of elements."""
    return check_tensor(x, "numel").numel()
