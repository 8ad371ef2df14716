"""``WEFT_CHECK=1`` for kernels: each launch is compared with the interpreter of its loop nest.

The launch runs in the interpreter first, on the arrays themselves; what it leaves there is kept,
the arrays get their old values back, and the compiled kernel runs. Both must leave the same bits;
floats may differ by a few units in the last place of an array's largest element, since functions
such as ``exp`` and the order of atomic additions are not fixed.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from weft.driver.check.compare import differing
from weft.errors import CheckError, LaunchError, WeftError
from weft.exchange import host as exchange
from weft.ir import dtype as dt
from weft.tensors.core.lazy_tensor import TensorCore

if TYPE_CHECKING:
    from weft.lang.launch.protocol import Launched

__all__ = ["compared_launch"]

_MOST_THREADS: Final = 1 << 16  # of a launch that is interpreted: seconds
_ROUNDINGS: Final = 64  # units in the last place of the largest element that floats may differ by


def compared_launch(launch: Launched, args: tuple[Any, ...]) -> None:
    """Run a launch, and raise `CheckError` if the interpreter leaves other values.

    Raises
    ------
    CheckError
        If the two differ, or only one of them fails.
    BoundsError, LaunchError
        If the kernel fails.
    """
    name = launch.kernel.__name__
    (gx, gy, gz), (bx, by, bz) = launch.grid, launch.block
    threads = gx * gy * gz * bx * by * bz
    if threads > _MOST_THREADS:
        print(f"weft: not checked: {name} with {threads} threads, {_MOST_THREADS} at most are "
              "interpreted", file=sys.stderr)
        launch.run_compiled(args)
        return
    arrays = _arrays(args)
    before = [_values(a) for a in arrays]
    failure = _interpreted(launch, args)
    wanted = [_values(a) for a in arrays]
    for array, old, new in zip(arrays, before, wanted, strict=True):
        if old.tobytes() != new.tobytes():
            _restore(array, old)
    launch.run_compiled(args)
    if failure is not None:
        raise CheckError(f"WEFT_CHECK: kernel {name}", found="a compiled launch without a failure",
                         expected=str(failure)) from failure  # fmt: skip
    for number, (array, new) in enumerate(zip(arrays, wanted, strict=True)):
        _compare(name, number, _values(array), new)


def _interpreted(launch: Launched, args: tuple[Any, ...]) -> WeftError | None:
    """Run a launch in the interpreter; return what it raised, if it failed."""
    try:
        launch.carry_out(args)
    except LaunchError as error:
        return error
    except IndexError as error:
        return error if isinstance(error, WeftError) else None
    return None


def _arrays(value: Any) -> list[Any]:
    """Return the arrays and tensors among arguments, each once."""
    if isinstance(value, TensorCore):
        return [value] if value.ndim else []
    if isinstance(value, np.ndarray):
        return [value]
    if isinstance(value, tuple | list):
        found = [a for v in value for a in _arrays(v)]
        return list({id(a): a for a in found}.values())
    fields = getattr(value, "__dataclass_fields__", None)
    if fields is not None and not isinstance(value, type):
        return _arrays(tuple(getattr(value, f) for f in fields))
    takes_part = hasattr(value, "__dlpack__") or hasattr(value, "__array_interface__")
    return [exchange.as_array(value, "argument")] if takes_part else []


def _values(array: Any) -> Any:
    """Return the values of an array or tensor, as an array of their own."""
    if isinstance(array, TensorCore):
        array = array.numpy()  # type: ignore[attr-defined]
    return np.array(array, order="C")


def _restore(array: Any, values: Any) -> None:
    if not isinstance(array, TensorCore):
        array[...] = values
        return
    from weft.tensors.api.autograd import no_grad
    from weft.tensors.api.creation import tensor

    with no_grad():
        array.copy_(tensor(values))  # type: ignore[attr-defined]


def _compare(name: str, number: int, got: Any, wanted: Any) -> None:
    off = _differing(got, wanted)
    if not off.any():
        return
    index = tuple(int(i) for i in np.unravel_index(int(np.argmax(off)), off.shape))
    raise CheckError(
        f"WEFT_CHECK: kernel {name}", found=f"{got[index]} at {list(index)} of array {number} "
        f"({int(np.count_nonzero(off))} wrong)", expected=f"{wanted[index]}",
        hint="compiled code and the interpreter differ: a race in the kernel, which "
        "weft.sanitize tells, or a fault in code generation; please report it")  # fmt: skip


def _differing(got: Any, wanted: Any) -> Any:
    """Return which elements differ; of complex numbers their parts are compared."""
    if got.dtype.fields is not None:
        return np.any([_differing(got[f], wanted[f]) for f in got.dtype.names], axis=0)
    if got.dtype.kind == "c":
        return _differing(got.real, wanted.real) | _differing(got.imag, wanted.imag)
    if got.dtype.kind in "mMSU":
        return np.asarray(got != wanted)
    error = np.zeros(got.shape)
    dtype = dt.as_dtype(got.dtype)
    if dtype.is_float:
        wide = np.abs(wanted.astype(np.float64))
        error += _ROUNDINGS * dtype.eps * np.max(wide, initial=0, where=np.isfinite(wide))
    return differing(got, wanted, error)
