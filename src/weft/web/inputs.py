"""What an exported function is captured with: descriptions of inputs, and example inputs."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from weft.errors import DTypeError, UnsupportedError, VariableError
from weft.exchange import host
from weft.ir import dtype as dt
from weft.ir import expr as ex
from weft.ir.dtype import DType
from weft.ir.expr import Expr
from weft.tensors.core.lazy_tensor import TensorCore

__all__ = ["MOST", "Constant", "Given", "Spec", "arguments_of", "parse_input", "parse_inputs"]

MOST: Final = 4096  # the largest value of a symbolic size that has no bounds
_EXPECTED: Final = ("NAME=DTYPE[SIZES] or NAME=NUMBER, such as x=f32[1,28,28], x=f32[n,64], "
                    "x=f32[n:1..512,64], rate=0.5 or rate=f32(0.5)")
_ARRAY: Final = re.compile(r"(\w+)=([\w.]+)\[([^\]]*)\]")
_SIZE: Final = re.compile(r"(\d+)|([A-Za-z_]\w*)(?::(\d+)\.\.(\d+))?")
_TYPED: Final = re.compile(r"(\w+)=([\w.]+)\(([^)]*)\)")
_NUMBER: Final = re.compile(r"(\w+)=([^\[(]+)")


class Spec(NamedTuple):
    """A described array: sizes may be variables."""

    dtype: DType
    shape: tuple[int | Expr, ...]


class Constant:
    """A number of NumPy's among the arguments of a kernel, which captures would take for an array.

    Attributes
    ----------
    value : numpy.generic
    """

    __slots__ = ("value",)

    def __init__(self, value: np.generic) -> None:
        self.value = value


class Given(NamedTuple):
    """The arguments of an exported function.

    Attributes
    ----------
    args : tuple
        Tensors, arrays, containers of them, and constants.
    names : tuple of str
        Of the arguments.
    shapes : list of tuple
        The shape of each array among them, in the order of captures, with variables in it.
    arrays : list of str
        The name of each array.
    """

    args: tuple[Any, ...]
    names: tuple[str, ...]
    shapes: list[tuple[int | Expr, ...]]
    arrays: list[str]


def parse_input(text: str, variables: dict[str, Expr] | None = None) -> tuple[str, Spec | Any]:
    """Return the name of an input, and what ``--input`` says of it: a `Spec` or a number.

    Parameters
    ----------
    text
        ``NAME=DTYPE[SIZES]``, ``NAME=NUMBER`` or ``NAME=DTYPE(NUMBER)``.
    variables
        Symbolic sizes that other inputs have named, which one of the same name is.

    Raises
    ------
    DTypeError
        If it says anything else.
    VariableError
        If bounds are empty, or differ from those that the name has elsewhere.
    """
    known = {} if variables is None else variables
    array = _ARRAY.fullmatch(text.replace(" ", ""))
    if array is not None:
        if not dt.is_name(array[2]):
            raise DTypeError("--input", found=text, expected="a dtype such as f32 or int32")
        sizes = [s for s in array[3].split(",") if s]
        return array[1], Spec(dt.as_dtype(array[2]), tuple([_size(s, known, text) for s in sizes]))
    typed = _TYPED.fullmatch(text.replace(" ", ""))
    if typed is not None and dt.is_name(typed[2]):
        return typed[1], dt.as_dtype(typed[2]).numpy.type(_number(typed[3], text))
    number = _NUMBER.fullmatch(text.replace(" ", ""))
    if number is not None:
        return number[1], _number(number[2], text)
    raise DTypeError("--input", found=text, expected=_EXPECTED)


def _size(text: str, variables: dict[str, Expr], whole: str) -> int | Expr:
    """Return a number, or the variable of a symbolic size."""
    found = _SIZE.fullmatch(text)
    if found is None:
        raise DTypeError("--input", found=f"the size {text!r} in {whole}", expected=_EXPECTED)
    if found[1]:
        return int(found[1])
    name = found[2]
    if found[3] is None:
        return variables.setdefault(name, ex.Variable(name, 1, MOST))
    low, high = int(found[3]), int(found[4])
    if not 1 <= low <= high:
        raise VariableError("--input", found=f"{name} from {low} to {high}",
                            expected="sizes of at least 1, in order")
    made = variables.setdefault(name, ex.Variable(name, low, high))
    if (made.attr.min, made.attr.max) != (low, high):
        raise VariableError("--input", found=f"{name} from {low} to {high}",
                            expected=f"{made.attr.min} to {made.attr.max}, as before",
                            hint="give the bounds where the size is named first")
    return made


def _number(text: str, whole: str) -> bool | int | float:
    if text in ("True", "False"):
        return text == "True"
    try:
        return int(text, 0)
    except ValueError:
        pass
    try:
        return float(text)
    except ValueError:
        raise DTypeError("--input", found=whole, expected=_EXPECTED) from None


def parse_inputs(texts: Iterable[str]) -> dict[str, Spec | Any]:
    """Return what several ``--input`` say, by names; equal names of sizes are one variable."""
    variables: dict[str, Expr] = {}
    return dict(parse_input(text, variables) for text in texts)


def arguments_of(function: Callable[..., Any], given: Mapping[str, Any] | Sequence[Any],
                 is_kernel: bool = False) -> Given:  # fmt: skip
    """Return the arguments that a function is captured with.

    Parameters
    ----------
    function
        What is exported.
    given
        Example inputs in order, or by name; each is a tensor, an array, a container of them, a
        constant, or a `Spec`.
    is_kernel
        Whether numbers of NumPy's are constants: their types are those of the kernel's numbers.

    Raises
    ------
    UnsupportedError
        If they are not the function's arguments, or none is an array.
    """
    names, args = _in_order(function, given)
    shapes: list[tuple[int | Expr, ...]] = []
    arrays: list[str] = []

    def opened(value: Any, name: str) -> Any:
        if isinstance(value, Spec):
            shape = tuple([_example(n) for n in value.shape])
            shapes.append(value.shape)
            arrays.append(name)
            return np.zeros(shape, value.dtype.numpy)
        if is_kernel and isinstance(value, np.generic):
            return Constant(value)
        if isinstance(value, TensorCore) or hasattr(value, "__array__"):
            made = value if isinstance(value, TensorCore) else host.as_array(value, "compile")
            shapes.append(tuple(made.shape))
            arrays.append(name)
            return made if isinstance(made, TensorCore) else np.ascontiguousarray(
                made).reshape(made.shape)
        if isinstance(value, dict):
            return {k: opened(v, f"{name}_{k}") for k, v in value.items()}
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return type(value)(*map(opened, value, [f"{name}_{k}" for k in value._fields]))
        if isinstance(value, list | tuple):
            return type(value)(opened(v, f"{name}_{i}") for i, v in enumerate(value))
        return value

    made = tuple([opened(value, name) for name, value in zip(names, args, strict=True)])
    if not arrays:
        raise UnsupportedError("compile", found="a function without arrays among its inputs",
                               expected="at least one", hint=_HOW)
    return Given(made, names, shapes, arrays)


_HOW: Final = ("describe inputs by --input x=f32[1,28,28], or set example_inputs of the function "
               "to a tuple of arrays")


def _example(size: int | Expr) -> int:
    """Return a number for a size: for a variable the least, if that is no special case."""
    return size if isinstance(size, int) else min(max(size.attr.min, 2), size.attr.max)


def _in_order(function: Callable[..., Any], given: Mapping[str, Any] | Sequence[Any]
              ) -> tuple[tuple[str, ...], tuple[Any, ...]]:  # fmt: skip
    """Return names and values of arguments, by position."""
    try:  # networks take what their forward takes
        described = getattr(function, "forward", function)
        signature: inspect.Signature | None = inspect.signature(described)
    except (TypeError, ValueError):
        signature = None
    label = getattr(function, "__name__", type(function).__name__)
    if signature is None:
        if isinstance(given, Mapping):
            raise UnsupportedError("compile", found=f"{label}, whose parameters have no names",
                                   expected="example inputs in order")
        return tuple([f"x{i}" for i in range(len(given))]), tuple(given)
    try:
        bound = (signature.bind(**given) if isinstance(given, Mapping)
                 else signature.bind(*given))
    except TypeError as error:
        raise UnsupportedError("compile", found=f"inputs that {label} does not take: {error}",
                               expected=f"{label}{signature}", hint=_HOW) from None
    if bound.kwargs:
        raise UnsupportedError("compile", found=f"{label}, with arguments by name alone",
                               expected="arguments that may be given by position")
    kinds = signature.parameters
    names: list[str] = []
    for name in bound.arguments:
        if kinds[name].kind is inspect.Parameter.VAR_POSITIONAL:
            names += [f"{name}_{i}" for i in range(len(bound.arguments[name]))]
        else:
            names.append(name)
    return tuple(names), tuple(bound.args)
