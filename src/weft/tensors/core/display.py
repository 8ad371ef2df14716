"""The text of tensors for `print` and `repr`, with their values."""

from itertools import takewhile
from math import prod
from typing import Any

import numpy as np

from weft.ir import dtype as dt
from weft.ir.dtype import DType

__all__ = ["show", "show_html"]

_PREFIX = "tensor("
_THRESHOLD = 1000  # elements from which on text is a summary
_EDGE = 5  # elements at each end of a long axis of a table


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


def show_html(values: np.ndarray[Any, Any], shape: tuple[int, ...], dtype: DType,
              requires_grad: bool) -> str:  # fmt: skip
    """Return a tensor as HTML for notebooks: its facts, and a table of at most two axes.

    Large axes show their first and last elements; tensors of more axes show the text of `show`.
    """
    from html import escape  # only notebooks need it

    facts = [f"{dtype.name}{list(shape)}", f"{values.nbytes:,} bytes"]
    if requires_grad:
        facts.append("requires_grad")
    head = f"<div><b>weft.Tensor</b> {escape(' · '.join(facts))}</div>"
    if values.ndim not in (1, 2) or values.size == 0:
        return f"{head}<pre>{escape(show(values, shape, dtype, requires_grad))}</pre>"
    if dtype.is_float and dtype.bits < 32:
        values = values.astype(np.float32)
    grid = values.reshape(-1, values.shape[-1])
    rows, columns = (_edges(n) for n in grid.shape)
    cells = "".join(
        "<tr>" + "".join(f"<td>{_cell(grid, i, j)}</td>" for j in columns) + "</tr>" for i in rows)
    return f"{head}<table>{cells}</table>"


def _edges(n: int) -> list[int]:
    """Return the indices that are shown of an axis; -1 stands for those left out."""
    if n <= 2 * _EDGE + 1:
        return list(range(n))
    return [*range(_EDGE), -1, *range(n - _EDGE, n)]


def _cell(grid: np.ndarray[Any, Any], i: int, j: int) -> str:
    if i < 0 or j < 0:
        return "…"
    value = grid[i, j]
    return f"{value:.4g}" if grid.dtype.kind == "f" else str(value)


def _body(values: np.ndarray[Any, Any]) -> str:
    if values.size == 0:
        rows = prod(takewhile(bool, values.shape))  # lists that the text would have
        return str(values.tolist()) if values.ndim > 1 and rows <= _THRESHOLD else "[]"
    options: dict[str, Any] = {"separator": ", ", "threshold": _THRESHOLD, "edgeitems": 3,
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
