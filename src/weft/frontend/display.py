"""Tensors as text, with their values."""

from typing import Any

import numpy as np

from weft.ir import dtype as dt
from weft.ir.dtype import DType

__all__ = ["show"]

_PREFIX = "tensor("


def show(values: np.ndarray[Any, Any] | None, shape: tuple[int, ...], dtype: DType,
         requires_grad: bool) -> str:  # fmt: skip
    """Return the text of a tensor: PyTorch's layout, with four decimals and a summary when large.

    `values` is None where they cannot be known (during a capture).
    """
    if values is None:
        body = f"<{dtype.name}{list(shape)}, captured>"
        return f"{_PREFIX}{body})"
    if dtype.is_float and dtype.bits < 32:
        values = values.astype(np.float32)
    body = _body(values)
    notes = []
    if 0 in shape and len(shape) > 1:
        notes.append(f"shape={shape}")
    if dtype not in (dt.float32, dt.int64, dt.bool_):
        notes.append(f"dtype={dtype!r}")
    if requires_grad:
        notes.append("requires_grad=True")
    return _PREFIX + ", ".join([body, *notes]) + ")"


def _body(values: np.ndarray[Any, Any]) -> str:
    if values.size == 0:
        return "[]" if values.ndim < 2 else str(values.tolist())
    options: dict[str, Any] = {"separator": ", ", "threshold": 1000, "edgeitems": 3,
                               "max_line_width": 100, "prefix": _PREFIX}  # fmt: skip
    if values.dtype.kind == "f":
        finite = values[np.isfinite(values)]
        if finite.size == 0 or ((finite == np.trunc(finite)).all() and abs(finite).max() < 1e8):
            options["formatter"] = {
                "float_kind": lambda v: f"{v:.0f}." if np.isfinite(v) else str(v)
            }
        else:
            magnitude = abs(finite[finite != 0])
            if magnitude.max() > 1e8 or magnitude.max() / magnitude.min() > 1e7 or (
                magnitude.max() < 1e-4
            ):
                options["formatter"] = {"float_kind": lambda v: f"{v:.4e}"}
            else:
                options |= {"precision": 4, "floatmode": "fixed", "suppress_small": True}
    return np.array2string(values, **options)
