"""Calls of the public surface, each for Weft and for PyTorch: what is compared, and how."""

import math
import warnings

import numpy as np

import weft
from weft.errors import WeftError

SHAPES = [(), (0,), (1,), (5,), (0, 3), (3, 0), (1, 1), (2, 3), (2, 1, 3)]
DTYPES = ("bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32",
          "float64")  # fmt: skip


def values(shape, dtype, seed=0):
    """Return small numbers of a dtype: exact in every type, with repetitions and zeros."""
    rng = np.random.default_rng([seed, len(shape), *shape])
    whole = rng.integers(0 if dtype.startswith(("u", "b")) else -4, 5, shape)
    if "float" in dtype:
        return (whole / 4).astype(np.float32 if dtype != "float64" else np.float64)
    return np.asarray(whole).astype(np.bool_ if dtype == "bool" else dtype)


def tensors(shape, dtype, seed=0):
    """Return the same values as a tensor of Weft and one of PyTorch."""
    import torch

    array = values(shape, dtype, seed)
    return (weft.tensor(array).to(getattr(weft, dtype)),
            torch.tensor(array).to(getattr(torch, dtype)))


def outcome(function, *args):
    """Return the parts of what a call gives, or what it raises."""

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = flat(function(*args))
        return [f.numpy() if isinstance(f, weft.Tensor) and f.realize() is f else f for f in found]
    except (WeftError, RuntimeError, IndexError, ValueError, TypeError, AttributeError,
            ZeroDivisionError, OverflowError, KeyError, RecursionError,
            AssertionError) as error:  # fmt: skip
        return error


def flat(result):
    """Return the tensors and numbers of a result, in order."""
    if isinstance(result, (tuple, list)):
        return [x for r in result for x in flat(r)]
    return [result]


def difference(mine, theirs, exact=False):
    """Return in a few words how two outcomes differ, None where they do not."""
    if isinstance(mine, Exception):
        if not isinstance(mine, WeftError):
            return f"raw {type(mine).__name__}: {mine}"
        return None if isinstance(theirs, Exception) else f"raises {str(mine).splitlines()[0]}"
    if isinstance(theirs, Exception):
        return f"gives {_short(mine)} where PyTorch says {str(theirs).splitlines()[0][:90]!r}"
    if len(mine) != len(theirs):
        return f"{len(mine)} results, not {len(theirs)}"
    for a, b in zip(mine, theirs, strict=True):
        found = _one_difference(a, b, exact)
        if found is not None:
            return found
    return None


def _short(parts):
    return ", ".join(f"{p.dtype}{p.shape} {p.ravel()[:4]}" if isinstance(p, np.ndarray) else repr(p)
                     for p in parts)  # fmt: skip


def _one_difference(a, b, exact):
    import torch

    if not isinstance(b, torch.Tensor):
        if isinstance(a, np.ndarray):
            return f"a tensor, not {b!r}"
        same = a == b or (isinstance(a, float) and math.isnan(a) and math.isnan(b))
        same = same or str(a).rpartition(".")[2] == str(b).rpartition(".")[2]
        return None if same else f"{a!r}, not {b!r}"
    if not isinstance(a, np.ndarray):
        return f"{a!r}, not {b!r}"
    name = str(b.dtype).removeprefix("torch.")
    if a.dtype.name != name:
        return f"dtype {a.dtype.name}, not {name}"
    if a.shape != tuple(b.shape):
        return f"shape {a.shape}, not {tuple(b.shape)}"
    wide = b.double().numpy() if b.dtype.is_floating_point else b.numpy()
    own = a.astype(wide.dtype)
    tolerance = {"float16": 2e-3, "bfloat16": 1.6e-2, "float32": 2e-5}.get(name, 1e-10)
    if not b.dtype.is_floating_point or exact:
        near = own == wide
    else:
        near = np.isclose(own, wide, tolerance, tolerance, equal_nan=True)
    if not np.all(near):
        return f"values {own.ravel()[:6]}, not {wide.ravel()[:6]}"
    return None
