"""The methods of `Tensor` as functions: ``weft.exp(x)``, ``weft.matmul(a, b)``.

The first argument may be anything that makes a tensor: a number, nested lists, an array (which is
copied, for its owner may change it before the values are computed).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Concatenate, Final, ParamSpec, TypeVar, cast

from weft.errors import DTypeError, UnsupportedError
from weft.tensors.api.creation import tensor
from weft.tensors.api.tensor import Tensor
from weft.tensors.core import promotion
from weft.tensors.core.arguments import describe
from weft.tensors.docs.documented import misnamed, of_function, wrapping

__all__ = ["abs", "absolute", "acos", "acosh", "adaptive_avg_pool1d", "adaptive_avg_pool2d",
           "adaptive_avg_pool3d", "adaptive_max_pool1d", "adaptive_max_pool2d",
           "adaptive_max_pool3d", "add", "addcdiv", "addcmul", "addmm", "addmv", "addr",
           "adjoint", "all", "amax", "amin", "aminmax", "any", "arccos", "arccosh", "arcsin",
           "arcsinh", "arctan", "arctan2", "arctanh", "argmax", "argmin", "argsort", "argwhere",
           "as_strided", "asin", "asinh", "atan", "atan2", "atanh", "avg_pool1d", "avg_pool2d",
           "avg_pool3d", "baddbmm", "batch_norm", "binary_cross_entropy",
           "binary_cross_entropy_with_logits", "bincount", "bitwise_and", "bitwise_invert",
           "bitwise_left_shift", "bitwise_not", "bitwise_or", "bitwise_right_shift",
           "bitwise_xor", "bmm", "broadcast_to", "bucketize", "ceil", "celu", "chunk", "clamp",
           "clamp_max", "clamp_min", "clip", "clone", "conv1d", "conv2d", "conv3d",
           "conv_transpose1d", "conv_transpose2d", "conv_transpose3d", "copysign", "corrcoef",
           "cos", "cosh", "cosine_similarity", "count_nonzero", "cov", "cross", "cross_entropy",
           "cummax", "cummin", "cumprod", "cumsum", "deg2rad", "diag", "diag_embed", "diagflat",
           "diagonal", "diagonal_scatter", "diff", "dist", "div", "divide", "dot", "elu", "eq",
           "erf", "erfc", "exp", "exp2", "expm1", "fix", "flatten", "flip", "fliplr", "flipud",
           "float_power", "floor", "floor_divide", "fmax", "fmin", "fmod", "frac", "gather", "ge",
           "gelu", "ger", "greater", "greater_equal", "group_norm", "gt", "hardsigmoid",
           "hardswish", "hardtanh", "heaviside", "histc", "hsplit", "huber_loss", "hypot",
           "index_add", "index_copy", "index_fill", "index_put", "index_select", "inner",
           "instance_norm", "is_floating_point", "is_nonzero", "isclose", "isfinite", "isin",
           "isinf", "isnan", "isneginf", "isposinf", "isreal", "kl_div", "kron", "kthvalue",
           "l1_loss", "layer_norm", "ldexp", "le", "leaky_relu", "lerp", "less", "less_equal",
           "linear_recurrence", "log", "log1p", "log2", "log10", "log_softmax", "logaddexp",
           "logaddexp2", "logcumsumexp", "logical_and", "logical_not", "logical_or",
           "logical_xor", "logit", "logsigmoid", "logsumexp", "lt", "masked_fill",
           "masked_scatter", "masked_select", "matmul", "matrix_power", "max", "max_pool1d",
           "max_pool2d", "max_pool3d", "maximum", "mean", "median", "min", "minimum", "mish",
           "mm", "mode", "moveaxis", "movedim", "mse_loss", "msort", "mul", "multiply", "mv",
           "nan_to_num", "nanmean", "nanquantile", "nansum", "narrow", "ne", "neg", "negative",
           "nll_loss", "nonzero", "norm", "normalize", "not_equal", "outer", "permute",
           "permute_dims", "positive", "pow", "prelu", "prod", "quantile", "rad2deg", "ravel",
           "reciprocal", "relu", "relu6", "remainder", "repeat_interleave", "reshape", "rms_norm",
           "roll", "rot90", "round", "rsqrt", "rsub", "scatter", "scatter_add", "scatter_reduce",
           "searchsorted", "select", "select_scatter", "selu", "sgn", "sigmoid", "sign",
           "signbit", "silu", "sin", "sinc", "sinh", "slice_scatter", "smooth_l1_loss", "softmax",
           "softmin", "softplus", "softsign", "sort", "split", "sqrt", "square", "squeeze", "std",
           "std_mean", "sub", "subtract", "sum", "swapaxes", "swapdims", "t", "take",
           "take_along_dim", "tan", "tanh", "tanhshrink", "tensor_split", "tensordot", "tile",
           "topk", "trace", "transpose", "tril", "triu", "true_divide", "trunc", "unbind",
           "unflatten", "unique", "unique_consecutive", "unsqueeze", "var", "var_mean", "vdot",
           "vsplit", "xlogy"]  # fmt: skip

P = ParamSpec("P")
R = TypeVar("R")
_ABSENT: Final = object()


def _operand(value: Any) -> Tensor:
    return value if isinstance(value, Tensor) else tensor(value)


def first_of(options: dict[str, Any], name: str) -> Any:
    """Take a function's first argument out of its keywords, where PyTorch calls it ``input``.

    Parameters
    ----------
    options : dict of str to object
        The keywords.
    name : str
        That of the function, for a message.

    Returns
    -------
    object
        The argument.

    Raises
    ------
    UnsupportedError
        If there is none.

    Examples
    --------
    >>> first_of({"input": 3}, "abs")
    3
    """
    for key in ("input", "self"):
        if key in options:
            return options.pop(key)
    raise UnsupportedError(name, found="no argument", expected="a tensor as the first one")


def _function(method: Callable[Concatenate[Tensor, P], R]) -> Callable[Concatenate[Any, P], R]:
    """Return a method as a function whose first argument is converted (arrays are copied).

    ``out=`` names a tensor that the result is written to. A number of Python's takes the type in
    which it meets the second argument, as behind it.
    """

    def call(x: Any = _ABSENT, /, *args: P.args, **kwargs: P.kwargs) -> R:
        if x is _ABSENT:
            x = first_of(kwargs, method.__name__)
        elif isinstance(x, (int, float)) and args and isinstance(args[0], Tensor):
            x = _beside(x, args[0])
        try:
            if "out" in kwargs:
                out = kwargs.pop("out")
                result = method(_operand(x), *args, **kwargs)
                return result if out is None else cast(R, _written(result, out, method.__name__))
            return method(_operand(x), *args, **kwargs)
        except TypeError as error:
            found = misnamed(error, method, kwargs)
            if found is error:
                raise
            raise found from None

    return wrapping(call, method, of_function(method.__doc__ or ""))


def _written(result: Any, out: Any, name: str) -> Any:
    """Write a result to the tensor (or the tuple of tensors) that a caller gave as ``out``.

    Raises
    ------
    DTypeError, ShapeError
        If the result has another shape, or is of a higher kind.
    """
    if isinstance(result, tuple) and isinstance(out, tuple | list) and len(out) == len(result):
        for part, target in zip(result, out, strict=True):
            _written(part, target, name)
        return out
    if not isinstance(result, Tensor) or not isinstance(out, Tensor):
        raise DTypeError(name, found=f"out={describe(out)}", expected="a tensor for each result")
    return out._update(result, name)


def _beside(value: Any, other: Tensor) -> Any:
    """Return a number as a tensor of the type in which it meets `other`, if that can hold it."""
    dtype = promotion.scalar_dtype(value, other.dtype)
    if dtype.is_integer and not dtype.min <= value <= dtype.max:
        return value
    return tensor(value, dtype)


abs = _function(Tensor.abs)
acos = _function(Tensor.acos)
acosh = _function(Tensor.acosh)
adaptive_avg_pool1d = _function(Tensor.adaptive_avg_pool1d)
adaptive_avg_pool2d = _function(Tensor.adaptive_avg_pool2d)
adaptive_avg_pool3d = _function(Tensor.adaptive_avg_pool3d)
adaptive_max_pool1d = _function(Tensor.adaptive_max_pool1d)
adaptive_max_pool2d = _function(Tensor.adaptive_max_pool2d)
adaptive_max_pool3d = _function(Tensor.adaptive_max_pool3d)
add = _function(Tensor.add)
addcdiv = _function(Tensor.addcdiv)
addcmul = _function(Tensor.addcmul)
addmm = _function(Tensor.addmm)
addmv = _function(Tensor.addmv)
addr = _function(Tensor.addr)
adjoint = _function(Tensor.adjoint)
all = _function(Tensor.all)
amax = _function(Tensor.amax)
amin = _function(Tensor.amin)
aminmax = _function(Tensor.aminmax)
any = _function(Tensor.any)
argmax = _function(Tensor.argmax)
argmin = _function(Tensor.argmin)
argsort = _function(Tensor.argsort)
argwhere = _function(Tensor.argwhere)
as_strided = _function(Tensor.as_strided)
asin = _function(Tensor.asin)
asinh = _function(Tensor.asinh)
atan = _function(Tensor.atan)
atan2 = _function(Tensor.atan2)
atanh = _function(Tensor.atanh)
avg_pool1d = _function(Tensor.avg_pool1d)
avg_pool2d = _function(Tensor.avg_pool2d)
avg_pool3d = _function(Tensor.avg_pool3d)
baddbmm = _function(Tensor.baddbmm)
batch_norm = _function(Tensor.batch_norm)
binary_cross_entropy = _function(Tensor.binary_cross_entropy)
binary_cross_entropy_with_logits = _function(Tensor.binary_cross_entropy_with_logits)
bincount = _function(Tensor.bincount)
bitwise_and = _function(Tensor.bitwise_and)
bitwise_left_shift = _function(Tensor.bitwise_left_shift)
bitwise_not = _function(Tensor.bitwise_not)
bitwise_or = _function(Tensor.bitwise_or)
bitwise_right_shift = _function(Tensor.bitwise_right_shift)
bitwise_xor = _function(Tensor.bitwise_xor)
bmm = _function(Tensor.bmm)
broadcast_to = _function(Tensor.broadcast_to)
bucketize = _function(Tensor.bucketize)
ceil = _function(Tensor.ceil)
celu = _function(Tensor.celu)
chunk = _function(Tensor.chunk)
clamp = _function(Tensor.clamp)
clamp_max = _function(Tensor.clamp_max)
clamp_min = _function(Tensor.clamp_min)
clip = _function(Tensor.clip)
clone = _function(Tensor.clone)
conv1d = _function(Tensor.conv1d)
conv2d = _function(Tensor.conv2d)
conv3d = _function(Tensor.conv3d)
conv_transpose1d = _function(Tensor.conv_transpose1d)
conv_transpose2d = _function(Tensor.conv_transpose2d)
conv_transpose3d = _function(Tensor.conv_transpose3d)
copysign = _function(Tensor.copysign)
corrcoef = _function(Tensor.corrcoef)
cos = _function(Tensor.cos)
cosh = _function(Tensor.cosh)
cosine_similarity = _function(Tensor.cosine_similarity)
count_nonzero = _function(Tensor.count_nonzero)
cov = _function(Tensor.cov)
cross = _function(Tensor.cross)
cross_entropy = _function(Tensor.cross_entropy)
cummax = _function(Tensor.cummax)
cummin = _function(Tensor.cummin)
cumprod = _function(Tensor.cumprod)
cumsum = _function(Tensor.cumsum)
deg2rad = _function(Tensor.deg2rad)
diag = _function(Tensor.diag)
diag_embed = _function(Tensor.diag_embed)
diagflat = _function(Tensor.diagflat)
diagonal = _function(Tensor.diagonal)
diagonal_scatter = _function(Tensor.diagonal_scatter)
diff = _function(Tensor.diff)
dist = _function(Tensor.dist)
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
fliplr = _function(Tensor.fliplr)
flipud = _function(Tensor.flipud)
float_power = _function(Tensor.float_power)
floor = _function(Tensor.floor)
floor_divide = _function(Tensor.floor_divide)
fmax = _function(Tensor.fmax)
fmin = _function(Tensor.fmin)
fmod = _function(Tensor.fmod)
frac = _function(Tensor.frac)
gather = _function(Tensor.gather)
ge = _function(Tensor.ge)
gelu = _function(Tensor.gelu)
ger = _function(Tensor.ger)
group_norm = _function(Tensor.group_norm)
gt = _function(Tensor.gt)
hardsigmoid = _function(Tensor.hardsigmoid)
hardswish = _function(Tensor.hardswish)
hardtanh = _function(Tensor.hardtanh)
heaviside = _function(Tensor.heaviside)
histc = _function(Tensor.histc)
hsplit = _function(Tensor.hsplit)
huber_loss = _function(Tensor.huber_loss)
hypot = _function(Tensor.hypot)
index_add = _function(Tensor.index_add)
index_copy = _function(Tensor.index_copy)
index_fill = _function(Tensor.index_fill)
index_put = _function(Tensor.index_put)
index_select = _function(Tensor.index_select)
inner = _function(Tensor.inner)
instance_norm = _function(Tensor.instance_norm)
is_floating_point = _function(Tensor.is_floating_point)
is_nonzero = _function(Tensor.is_nonzero)
isclose = _function(Tensor.isclose)
isfinite = _function(Tensor.isfinite)
isin = _function(Tensor.isin)
isinf = _function(Tensor.isinf)
isnan = _function(Tensor.isnan)
isneginf = _function(Tensor.isneginf)
isposinf = _function(Tensor.isposinf)
isreal = _function(Tensor.isreal)
kl_div = _function(Tensor.kl_div)
kron = _function(Tensor.kron)
kthvalue = _function(Tensor.kthvalue)
l1_loss = _function(Tensor.l1_loss)
layer_norm = _function(Tensor.layer_norm)
ldexp = _function(Tensor.ldexp)
le = _function(Tensor.le)
leaky_relu = _function(Tensor.leaky_relu)
lerp = _function(Tensor.lerp)
linear_recurrence = _function(Tensor.linear_recurrence)
log = _function(Tensor.log)
log10 = _function(Tensor.log10)
log1p = _function(Tensor.log1p)
log2 = _function(Tensor.log2)
log_softmax = _function(Tensor.log_softmax)
logaddexp = _function(Tensor.logaddexp)
logaddexp2 = _function(Tensor.logaddexp2)
logcumsumexp = _function(Tensor.logcumsumexp)
logical_and = _function(Tensor.logical_and)
logical_not = _function(Tensor.logical_not)
logical_or = _function(Tensor.logical_or)
logical_xor = _function(Tensor.logical_xor)
logit = _function(Tensor.logit)
logsigmoid = _function(Tensor.logsigmoid)
logsumexp = _function(Tensor.logsumexp)
lt = _function(Tensor.lt)
masked_fill = _function(Tensor.masked_fill)
masked_scatter = _function(Tensor.masked_scatter)
masked_select = _function(Tensor.masked_select)
matmul = _function(Tensor.matmul)
matrix_power = _function(Tensor.matrix_power)
max = _function(Tensor.max)
max_pool1d = _function(Tensor.max_pool1d)
max_pool2d = _function(Tensor.max_pool2d)
max_pool3d = _function(Tensor.max_pool3d)
maximum = _function(Tensor.maximum)
mean = _function(Tensor.mean)
median = _function(Tensor.median)
min = _function(Tensor.min)
minimum = _function(Tensor.minimum)
mish = _function(Tensor.mish)
mm = _function(Tensor.mm)
mode = _function(Tensor.mode)
moveaxis = _function(Tensor.moveaxis)
movedim = _function(Tensor.movedim)
mse_loss = _function(Tensor.mse_loss)
msort = _function(Tensor.msort)
mul = _function(Tensor.mul)
mv = _function(Tensor.mv)
nan_to_num = _function(Tensor.nan_to_num)
nanmean = _function(Tensor.nanmean)
nanquantile = _function(Tensor.nanquantile)
nansum = _function(Tensor.nansum)
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
quantile = _function(Tensor.quantile)
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
rot90 = _function(Tensor.rot90)
round = _function(Tensor.round)
rsqrt = _function(Tensor.rsqrt)
rsub = _function(Tensor.rsub)
scatter = _function(Tensor.scatter)
scatter_add = _function(Tensor.scatter_add)
scatter_reduce = _function(Tensor.scatter_reduce)
searchsorted = _function(Tensor.searchsorted)
select = _function(Tensor.select)
select_scatter = _function(Tensor.select_scatter)
selu = _function(Tensor.selu)
sgn = _function(Tensor.sgn)
sigmoid = _function(Tensor.sigmoid)
sign = _function(Tensor.sign)
signbit = _function(Tensor.signbit)
silu = _function(Tensor.silu)
sin = _function(Tensor.sin)
sinc = _function(Tensor.sinc)
sinh = _function(Tensor.sinh)
slice_scatter = _function(Tensor.slice_scatter)
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
std_mean = _function(Tensor.std_mean)
sub = _function(Tensor.sub)
sum = _function(Tensor.sum)
swapaxes = _function(Tensor.swapaxes)
swapdims = _function(Tensor.swapdims)
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
unique_consecutive = _function(Tensor.unique_consecutive)
unsqueeze = _function(Tensor.unsqueeze)
var = _function(Tensor.var)
var_mean = _function(Tensor.var_mean)
vdot = _function(Tensor.vdot)
vsplit = _function(Tensor.vsplit)
xlogy = _function(Tensor.xlogy)

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
fix = trunc
