"""NumPy's functions on tensors: ``np.sin(t)``, ``np.sum(t, axis=0)``, ``array += t``.

NumPy asks `array_ufunc` and `array_function` (NEP 13 and NEP 18) whenever a tensor is among the
arguments of one of its functions. Each function that is in the tables below runs as Weft's, with
NumPy's defaults (``ddof=0``, sums of flattened arrays), and returns a tensor. Any other raises a
TypeError that names ``.numpy()``: nothing is converted silently.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np

from weft.errors import DTypeError, ShapeError, UnsupportedError
from weft.tensors.core.lazy_tensor import TensorCore

__all__ = ["array_function", "array_ufunc"]

# NumPy's name -> Weft's, where they differ.
_UFUNCS: Final[Mapping[str, str]] = {
    **{name: name for name in (
        "absolute", "add", "arctan2", "float_power", "heaviside", "ldexp", "logaddexp2",
        "signbit", "bitwise_and", "bitwise_or", "bitwise_xor", "ceil",
        "copysign", "cos", "cosh", "deg2rad", "divide", "equal", "exp", "exp2", "expm1", "floor",
        "floor_divide", "fmax", "fmin", "fmod", "greater", "greater_equal", "hypot", "isfinite",
        "isinf", "isnan", "less", "less_equal", "log", "log10", "log1p", "log2", "logaddexp",
        "logical_and", "logical_not", "logical_or", "logical_xor", "matmul", "maximum", "minimum",
        "multiply", "negative", "not_equal", "positive", "rad2deg", "reciprocal", "remainder",
        "sign", "sin", "sinh", "sqrt", "square", "subtract", "tan", "tanh", "trunc")},
    "arccos": "acos", "arccosh": "acosh", "arcsin": "asin", "arcsinh": "asinh", "arctan": "atan",
    "arctanh": "atanh", "invert": "bitwise_not", "left_shift": "bitwise_left_shift",
    "right_shift": "bitwise_right_shift", "power": "pow", "rint": "round",
    "fabs": "abs", "degrees": "rad2deg", "radians": "deg2rad",
}  # fmt: skip
_REDUCTIONS: Final[Mapping[str, str]] = {
    "add": "sum", "multiply": "prod", "maximum": "amax", "minimum": "amin", "logical_and": "all",
    "logical_or": "any",
}  # fmt: skip
_SCANS: Final[Mapping[str, str]] = {"add": "cumsum", "multiply": "cumprod"}
_GIVEN: Final = object()  # a default that no caller passes


def array_ufunc(ufunc: Any, method: str, inputs: tuple[Any, ...],
                options: dict[str, Any]) -> Any:  # fmt: skip
    """Return what one of NumPy's elementwise functions gives for tensors.

    Parameters
    ----------
    ufunc
        The function, such as ``np.add``.
    method
        ``__call__``, ``reduce`` or ``accumulate``.
    inputs
        Tensors, arrays and numbers.
    options
        ``out`` (arrays or tensors that receive the result), ``axis``, ``keepdims``.

    Raises
    ------
    UnsupportedError
        If Weft has no such function.
    DTypeError
        If the result does not fit the type of `out`.
    """
    out = options.pop("out", None)
    name = ufunc.__name__
    tables = {"__call__": _UFUNCS, "reduce": _REDUCTIONS, "accumulate": _SCANS}
    found = tables.get(method, {}).get(name)
    told = f"np.{name}" if method == "__call__" else f"np.{name}.{method}"
    if found is None:
        raise _unsupported(told)
    if method != "__call__":
        options.setdefault("axis", 0)
    _refuse_rest(told, options, ("axis", "keepdims") if method != "__call__" else ())
    result = getattr(_weft(), found)(*map(_operand, inputs), **options)
    return result if out is None else _stored(told, result, out[0])


def _refuse_rest(told: str, options: Mapping[str, Any], known: tuple[str, ...]) -> None:
    for key in options:
        if key not in known:
            raise UnsupportedError(told, found=f"{key}=", expected=f"{' '.join(known) or 'none'}",
                                   hint="tensors have astype and where; .numpy() gives an array")


def _operand(value: Any) -> Any:
    """Return an array or a list of numbers as a tensor; what holds tensors stays a list of them."""
    if isinstance(value, np.ndarray):
        return _weft().asarray(value)
    if isinstance(value, list) and not any(isinstance(v, TensorCore | np.ndarray) for v in value):
        return _weft().asarray(value)
    return value


def _stored(told: str, result: Any, out: Any) -> Any:
    """Write a result to an array or a tensor, and return that."""
    if isinstance(out, TensorCore):
        out.copy_(result)  # type: ignore[attr-defined]
        return out
    values = result.numpy()
    if not np.can_cast(values.dtype, out.dtype, "same_kind"):
        raise DTypeError(told, found=f"a result of {values.dtype}",
                         expected=f"one that fits out= of {out.dtype}",
                         hint="convert the tensor first: t.astype(...)")
    np.copyto(out, values, casting="same_kind")
    return out


def array_function(function: Any, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """Return what a function of NumPy gives for arguments with tensors among them.

    Raises
    ------
    UnsupportedError
        If Weft has no such function, or not with these arguments.
    """
    module = str(getattr(function, "__module__", "")).removeprefix("numpy.").removeprefix("numpy")
    name = f"{module}.{getattr(function, '__name__', function)}".lstrip(".")
    told = f"np.{name}"
    found = _FUNCTIONS.get(name)
    if found is None:
        raise _unsupported(told)
    out = options.pop("out", None)
    options = {k: v for k, v in options.items() if v is not np._NoValue}
    try:
        result = found(*map(_operand, args), **options)
    except TypeError as error:
        if isinstance(error, DTypeError | UnsupportedError):
            raise
        raise UnsupportedError(told, found=str(error).partition("() ")[2] or str(error),
                               expected="arguments that Weft's function takes, too",
                               hint=".numpy() gives an array") from None  # fmt: skip
    return result if out is None else _stored(told, result, out)


def _unsupported(told: str) -> UnsupportedError:
    return UnsupportedError(told, found="a weft.Tensor", expected="an array",
                            hint="Weft has no such function: pass t.numpy() to convert")


def _weft() -> Any:
    return sys.modules["weft"]


def _same(name: str) -> Callable[..., Any]:
    """Return a function of Weft that takes what NumPy's takes."""
    return lambda *args, **options: getattr(_weft(), name)(*args, **options)


def _deviation(name: str) -> Callable[..., Any]:
    def apply(a: Any, axis: Any = None, dtype: Any = None, *, ddof: int = 0,
              keepdims: bool = False) -> Any:  # fmt: skip
        a = a if dtype is None else a.astype(dtype)
        return getattr(_weft(), name)(_floating(a), axis, correction=ddof, keepdim=keepdims)
    return apply


def _floating(a: Any) -> Any:
    """Return integers as float64, in which NumPy takes means of them."""
    return a if a.dtype.is_float else a.astype(_weft().float64)


def _mean(a: Any, axis: Any = None, dtype: Any = None, *, keepdims: bool = False) -> Any:
    return _floating(a if dtype is None else a.astype(dtype)).mean(axis, keepdims)


def _extreme(name: str) -> Callable[..., Any]:
    def apply(a: Any, axis: Any = None, *, keepdims: bool = False) -> Any:
        return getattr(_weft(), name)(a, axis, keepdims)
    return apply


def _reduction(name: str) -> Callable[..., Any]:
    def apply(a: Any, axis: Any = None, dtype: Any = None, *, keepdims: bool = False) -> Any:
        options = {} if dtype is None else {"dtype": dtype}
        return getattr(_weft(), name)(a, axis, keepdims, **options)
    return apply


def _flattened(name: str) -> Callable[..., Any]:
    """Return a function along an axis, or of the flattened array where none is given."""
    def apply(a: Any, axis: int | None = None, **options: Any) -> Any:
        return getattr(a if axis is not None else a.flatten(), name)(
            0 if axis is None else axis, **options)
    return apply


def _argument(name: str) -> Callable[..., Any]:
    return lambda a, axis=None, *, keepdims=False: getattr(_weft(), name)(a, axis, keepdims)


def _clip(a: Any, a_min: Any = None, a_max: Any = None, *, min: Any = None,
          max: Any = None) -> Any:  # fmt: skip
    return a.clamp(a_min if min is None else min, a_max if max is None else max)


def _transpose(a: Any, axes: Any = None) -> Any:
    return a.permute(tuple(reversed(range(a.ndim))) if axes is None else tuple(axes))


def _sort(a: Any, axis: int | None = -1, kind: Any = None, *, stable: Any = None) -> Any:
    return a.flatten().sort(0)[0] if axis is None else a.sort(axis)[0]


def _argsort(a: Any, axis: int | None = -1, kind: Any = None, *, stable: Any = None) -> Any:
    return a.flatten().argsort(0) if axis is None else a.argsort(axis)


def _repeat(a: Any, repeats: Any, axis: int | None = None) -> Any:
    return a.repeat_interleave(repeats, axis)


def _flip(a: Any, axis: Any = None) -> Any:
    axes = range(a.ndim) if axis is None else axis
    return a.flip(*(axes if not isinstance(axes, int) else (axes,)))


def _pieces(a: Any, sections: Any, axis: int = 0) -> list[Any]:
    """Return equal parts, or those between positions."""
    size = a.shape[axis]
    if isinstance(sections, int):
        if size % sections:
            raise UnsupportedError("np.split", found=f"{size} elements in {sections} parts",
                                   expected="parts of equal size")
        return list(a.split(size // sections, axis))
    places = [0, *sections, size]
    return [a.narrow(axis, low, high - low) for low, high in itertools.pairwise(places)]


def _norm(x: Any, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Any:
    if ord is not None and axis is None and x.ndim != 1:
        raise UnsupportedError("np.linalg.norm", found=f"ord={ord!r} of a matrix",
                               expected="ord=None, or an axis")
    return x.norm(2 if ord is None else ord, axis, keepdims)


def _take(a: Any, indices: Any, axis: int | None = None) -> Any:
    index = _weft().asarray(indices)
    if axis is None:
        return a.flatten()[index]
    return a[(slice(None),) * (axis % a.ndim) + (index,)]


def _where(condition: Any, x: Any = _GIVEN, y: Any = _GIVEN) -> Any:
    if x is _GIVEN or y is _GIVEN:
        return tuple(condition.nonzero().unbind(1))
    return _weft().where(condition, x, y)


def _pad(array: Any, pad_width: Any, mode: str = "constant", *, constant_values: Any = 0) -> Any:
    widths = np.broadcast_to(np.asarray(pad_width), (array.ndim, 2)).tolist()
    modes = {"constant": "constant", "edge": "replicate", "reflect": "reflect", "wrap": "circular"}
    if mode not in modes:
        raise UnsupportedError("np.pad", found=f"mode={mode!r}", expected=", ".join(modes))
    flat = [n for pair in reversed(widths) for n in pair]
    return array.pad(flat, mode=modes[mode], **(
        {"value": constant_values} if mode == "constant" else {}))


def _like(name: str) -> Callable[..., Any]:
    def apply(a: Any, *args: Any, dtype: Any = None, shape: Any = None) -> Any:
        if shape is not None:
            return getattr(_weft(), name)(tuple(shape), *args, dtype=dtype or a.dtype)
        return getattr(_weft(), f"{name}_like")(a, *args, dtype=dtype)
    return apply


def _median(a: Any, axis: Any = None, *, keepdims: bool = False) -> Any:
    """Return the mean of the two middle elements, as NumPy has it."""
    return _quantile("quantile", 1)(a, 0.5, axis, keepdims=keepdims)


def _quantile(name: str, whole: int) -> Callable[..., Any]:
    def apply(a: Any, q: Any, axis: Any = None, *, method: str = "linear",
              keepdims: bool = False) -> Any:  # fmt: skip
        share = _weft().tensor(q, dtype="float64") if isinstance(q, list) else q
        return getattr(_floating(a), name)(share / whole, axis, keepdims, interpolation=method)
    return apply


def _nanmean(a: Any, axis: Any = None, dtype: Any = None, *, keepdims: bool = False) -> Any:
    return _floating(a if dtype is None else a.astype(dtype)).nanmean(axis, keepdims)


def _average(a: Any, axis: Any = None, weights: Any = None) -> Any:
    if weights is None:
        return _mean(a, axis)
    weights = _floating(_weft().asarray(weights))
    return (a * weights).sum(axis) / (weights + a * 0).sum(axis)


def _unique(ar: Any, return_index: bool = False, return_inverse: bool = False,
            return_counts: bool = False) -> Any:  # fmt: skip
    if return_index:
        raise UnsupportedError("np.unique", found="return_index", expected="inverse and counts")
    return ar.unique(return_counts, return_inverse=return_inverse)


def _squeeze(a: Any, axis: Any = None) -> Any:
    for at in () if axis is None else axis if isinstance(axis, tuple) else (axis,):
        if a.shape[at] != 1:
            raise ShapeError("np.squeeze", found=f"axis {at} of {a.shape}", expected="size 1")
    return a.squeeze(axis)


def _array_equal(a: Any, b: Any) -> bool:
    return tuple(a.shape) == tuple(b.shape) and bool((a == b).all())


_FUNCTIONS: Final[Mapping[str, Callable[..., Any]]] = {
    **{name: _same(name) for name in (
        "allclose", "broadcast_arrays", "broadcast_to", "concatenate", "count_nonzero",
        "diagonal", "diff", "einsum", "expand_dims", "hstack", "isclose", "kron", "matmul",
        "meshgrid", "moveaxis", "nan_to_num", "outer", "ravel", "reshape", "roll",
        "stack", "swapaxes", "tensordot", "tile", "trace", "tril", "triu", "vstack")},
    "all": _extreme("all"), "any": _extreme("any"),
    "amax": _extreme("amax"), "max": _extreme("amax"),
    "amin": _extreme("amin"), "min": _extreme("amin"),
    "argmax": _argument("argmax"), "argmin": _argument("argmin"),
    "argsort": _argsort, "sort": _sort,
    **{name: _same(name) for name in (
        "argwhere", "atleast_1d", "atleast_2d", "atleast_3d", "column_stack", "cov", "cross",
        "diag", "dstack", "fix", "hsplit", "inner", "isneginf", "isposinf", "nansum", "rot90",
        "sinc", "vsplit")},
    "array_equal": _array_equal,
    "array_split": lambda a, sections, axis=0: list(a.tensor_split(sections, axis)),
    "astype": lambda x, dtype, copy=True: x.astype(dtype, copy=copy),
    "bincount": lambda x, weights=None, minlength=0: x.bincount(weights, minlength),
    "isin": lambda element, test_elements, *, invert=False: _weft().asarray(element).isin(
        test_elements, invert=invert),
    "median": _median, "nanmean": _nanmean, "quantile": _quantile("quantile", 1),
    "nanquantile": _quantile("nanquantile", 1), "percentile": _quantile("quantile", 100),
    "ptp": lambda a, axis=None: a.amax(axis) - a.amin(axis),
    "searchsorted": lambda a, v, side="left", sorter=None: _weft().asarray(a).searchsorted(
        _operand(v), side=side, sorter=sorter),
    "average": _average,
    "unique": _unique, "unstack": lambda x, axis=0: x.unbind(axis),
    "around": _same("round"), "round": _same("round"),
    "clip": _clip,
    "copy": lambda a, order="K", subok=False: a.clone(),
    "cumsum": _flattened("cumsum"), "cumprod": _flattened("cumprod"),
    "dot": lambda a, b: a * b if a.ndim == 0 or b.ndim == 0 else a @ b,
    "empty_like": _like("empty"), "full_like": _like("full"), "ones_like": _like("ones"),
    "zeros_like": _like("zeros"),
    "flip": _flip, "fliplr": lambda m: m.flip(1), "flipud": lambda m: m.flip(0),
    "linalg.norm": _norm,
    "mean": _mean, "std": _deviation("std"), "var": _deviation("var"),
    "nonzero": lambda a: tuple(a.nonzero().unbind(1)),
    "ndim": lambda a: a.ndim, "shape": lambda a: tuple(a.shape),
    "size": lambda a, axis=None: a.numel() if axis is None else a.shape[axis],
    "pad": _pad,
    "prod": _reduction("prod"), "sum": _reduction("sum"),
    "repeat": _repeat,
    "split": _pieces, "squeeze": _squeeze,
    "take": _take, "take_along_axis": lambda arr, indices, axis: arr.take_along_dim(indices, axis),
    "transpose": _transpose, "matrix_transpose": lambda x: x.transpose(-1, -2),
    "vdot": lambda a, b: a.flatten().dot(b.flatten()),
    "where": _where,
}  # fmt: skip
