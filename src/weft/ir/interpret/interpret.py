"""The meaning of loop and kernel level: runs kernels one statement after another.

This is the oracle of the tests, so it is plain: parallel, vector and unrolled loops run their
iterations in order, each access is checked, and memory remembers what was never written. A vector
or unrolled axis of a REDUCE keeps its partial results as `weft.ir.reduction` says, so results are
equal to the last bit before and after vectorisation. The meaning of single operations is in
`weft.ir.interpret.interpret_scalar`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from weft.errors import ShapeError, VariableError, VerifyError
from weft.ir import expr as ex
from weft.ir import linear as li
from weft.ir.dtype import DType
from weft.ir.expr import Expr
from weft.ir.interpret.interpret_code import literal
from weft.ir.interpret.interpret_linear import LinearCode
from weft.ir.interpret.interpret_loop import LoopCode, evaluate_all
from weft.ir.linear import AtomicInst, Inst, LinearKernel, StoreInst
from weft.ir.stmt import Atomic, Kernel, Memory, Store
from weft.ir.traverse import walk

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]
    Arrays = Mapping[str, Array] | Sequence[Array]

Function = Callable[..., Any]
_ENDED = object()


def evaluate(e: Expr, env: Mapping[Expr, Any] | None = None) -> Any:
    """Return the value of an expression: a bool, int or float, or a tuple of them by lane.

    `env` gives the value of each VAR and VARIABLE below it: a Python or NumPy scalar, or a
    sequence of lanes. Any other expression in `env` is taken as given, too.
    """
    given = {k: _plain(v, k.dtype) for k, v in (env or {}).items()}
    return evaluate_all([e], given)[0]


def _plain(value: Any, d: DType) -> Any:
    if isinstance(value, tuple | list) or getattr(value, "ndim", False):
        return tuple(literal(v, d) for v in value)
    return literal(value, d)


def run(kernel: Kernel, buffers: Arrays, variables: Mapping[str, int] | None = None,
        functions: Mapping[str, Function] | None = None) -> None:  # fmt: skip
    """Run a kernel at loop level; arrays are changed in place.

    Parameters
    ----------
    kernel
        Any kernel of loop level, before or after any pass.
    buffers
        The arrays of the parameters, by name or in order; of any shape with the right number of
        elements.
    variables
        Values of the symbolic `Variable`s.
    functions
        What CALL statements call: Python functions that return a tuple.

    Raises
    ------
    BoundsError
        If an access leaves its memory.
    VerifyError
        If memory is read that was never written, or the kernel is malformed.
    """
    compiled = LoopCode(kernel, functions or {}).translate()
    written = {s.memory for s in walk(kernel.body) if isinstance(s, Store | Atomic)}
    _run(compiled, kernel.params, written, buffers, variables or {})


def run_linear(kernel: LinearKernel, buffers: Arrays,
               variables: Mapping[str, int] | None = None,
               functions: Mapping[str, Function] | None = None) -> None:  # fmt: skip
    """Run a kernel at kernel level; see `run`."""
    compiled = LinearCode(kernel, functions or {}).translate()
    insts: Sequence[Inst] = kernel.code
    written = {s.memory for s in insts if isinstance(s, StoreInst | AtomicInst)}
    _run(compiled, kernel.params, written, buffers, variables or {})


def run_launch(kernel: LinearKernel, groups: int, items: int, buffers: Arrays,
               variables: Mapping[str, int] | None = None) -> None:  # fmt: skip
    """Run a kernel as a launch of `groups` work-groups of `items` each.

    Work-items of a group take turns at its barriers, groups run one after another.

    Raises
    ------
    VerifyError
        If some work-items of a group wait at a barrier where others have ended.
    """
    one: Callable[..., Any] = LinearCode(kernel, {}, item=True).translate()

    def compiled(*operands: Any) -> None:
        for group in range(groups):
            memory: dict[str, list[Any]] = {}
            places = ({li.LOCAL_ID: k, li.LOCAL_SIZE: items, li.GROUP_ID: group,
                       li.NUM_GROUPS: groups} for k in range(items))  # fmt: skip
            pending = [one(*operands, place, memory) for place in places]
            while pending:
                waiting = [item for item in pending if next(item, _ENDED) is not _ENDED]
                if waiting and len(waiting) < len(pending):
                    raise VerifyError(kernel.name, found="a barrier that some work-items of a "
                                      "group do not reach", expected="uniform control")
                pending = waiting

    written = {s.memory for s in kernel.code if isinstance(s, StoreInst | AtomicInst)}
    _run(compiled, kernel.params, written, buffers, variables or {})


def _run(compiled: Callable[..., None], params: Sequence[Memory], written: set[Memory],
         buffers: Arrays, variables: Mapping[str, int]) -> None:  # fmt: skip
    by_name = isinstance(buffers, Mapping)
    given: Any = buffers  # by name or by position
    lists: dict[Any, list[Any]] = {}
    arrays: list[Array] = []
    operands: list[list[Any]] = []
    for position, memory in enumerate(params):
        array = given[memory.name if by_name else position]
        _check(memory, array, variables)
        arrays.append(array)
        # One array given twice is one memory, as on a device.
        place = (array.__array_interface__["data"][0], array.size, array.strides)
        if place not in lists or not array.size:
            lists[place] = _to_list(array)
        operands.append(lists[place])
    try:
        compiled(*operands, variables)
    finally:
        for memory, array, values in zip(params, arrays, operands, strict=True):
            if memory in written and array.size:
                _write_back(array, values)


def _check(memory: Memory, array: Array, variables: Mapping[str, int]) -> None:
    size = memory.size
    symbols = ex.variables([size])
    missing = [s.attr.name for s in symbols if s.attr.name not in variables]
    if missing:
        raise VariableError("interpret", found=f"no value for {', '.join(sorted(missing))}")
    expected = evaluate(size, {s: variables[s.attr.name] for s in symbols})
    if array.size != expected or array.dtype != memory.dtype.numpy:
        raise ShapeError(f"the array for {memory.name}",
                         found=f"{array.size} elements of {array.dtype}",
                         expected=f"{expected} of {memory.dtype.numpy}")


def _to_list(array: Array) -> list[Any]:
    if array.dtype.kind in "biuf" and array.dtype.isnative and array.dtype.itemsize > 1:
        return array.reshape(-1).tolist()
    kind = array.dtype.kind
    wide = array if kind in "biu" else array.astype("float64")
    return wide.reshape(-1).tolist()


def _write_back(array: Array, values: list[Any]) -> None:
    import numpy as np

    if array.dtype.kind in "biu":
        array[...] = np.array(values, array.dtype).reshape(array.shape)
    else:
        wide = np.array(values, np.float64).reshape(array.shape)
        array[...] = wide.astype(array.dtype)


__all__ = ["evaluate", "run", "run_launch", "run_linear"]
