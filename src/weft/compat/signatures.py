"""Signatures of numba in every form that programs give them: texts, calls of types, tuples."""

from __future__ import annotations

from typing import Any

from weft.compat.numba_types import (
    ALIASES,
    ArrayOf,
    CharSeq,
    NPDatetime,
    NPTimedelta,
    Signature,
    UnicodeCharSeq,
    UniTuple,
    adopted,
    boolean,
    float64,
    int64,
    is_of_numba,
    tuple_type,
    void,
)
from weft.compat.types import CPointer, voidptr
from weft.errors import DTypeError

__all__ = ["parse_of_kernel", "parse_signature"]


def parse_signature(given: Any) -> Signature:
    """Return the signature that a string or a call of types is.

    Raises
    ------
    DTypeError
        If it is none.
    """
    if isinstance(given, Signature):
        return given
    if isinstance(given, tuple | list):
        return Signature(void, tuple(map(adopted, given)))
    if is_of_numba(given) and hasattr(given, "return_type"):  # a signature of numba itself
        return Signature(adopted(given.return_type), tuple(map(adopted, given.args)))
    if not isinstance(given, str):
        raise DTypeError("signature", found=repr(given), expected="'void(float32[:], int64)'")
    names: dict[str, Any] = {
        **ALIASES, "int": int64, "float": float64, "bool": boolean, "long": int64,
        "Tuple": tuple_type, "UniTuple": UniTuple, "Array": ArrayOf,
        "NPDatetime": NPDatetime, "NPTimedelta": NPTimedelta,
        "CharSeq": CharSeq, "UnicodeCharSeq": UnicodeCharSeq,
        "CPointer": CPointer, "voidptr": voidptr}  # fmt: skip
    try:
        made = _evaluate(given, names)
    except KeyError as error:
        raise DTypeError("signature", found=f"{error} in {given}",
                         expected="the name of a type, as in 'void(float32[:], int64)'") from error
    except (SyntaxError, ValueError, TypeError) as error:
        raise DTypeError("signature", found=given, expected="'void(float32[:], int64)'") from error
    return made if isinstance(made, Signature) else Signature(void, (
        made if isinstance(made, tuple) else (made,)))


def parse_of_kernel(given: Any) -> Signature:
    """Return the signature of a kernel, to which no bare addresses are passed.

    Raises
    ------
    DTypeError
        If it is none, or an argument is an address.
    """
    made = parse_signature(given)
    todo = list(made.args)
    for kind in todo:
        todo.extend(getattr(kind, "types", ()))
        if kind in (CPointer, voidptr):
            raise DTypeError("signature of a kernel", found=f"an argument of type {kind.name}",
                             expected="an array: float64[:] in place of CPointer(float64)",
                             hint="an address does not tell how many elements are there, which "
                             "checks of bounds need: pass the array itself")
    return made


def _evaluate(text: str, names: dict[str, Any]) -> Any:
    """Return what a text of names, calls, slices and tuples means; nothing else is allowed."""
    import ast

    def value(node: ast.expr) -> Any:
        if isinstance(node, ast.Name):
            return names[node.id]
        if isinstance(node, ast.Attribute):  # types.int32
            return names[node.attr]
        if isinstance(node, ast.Constant):
            return node.value
        if isinstance(node, ast.Tuple | ast.List):
            return tuple(value(n) for n in node.elts)
        if isinstance(node, ast.Call) and not node.keywords:
            return value(node.func)(*(value(a) for a in node.args))
        if isinstance(node, ast.Subscript):
            parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
            return value(node.value)[tuple(_slice(p) for p in parts)]
        raise ValueError(text)

    return value(ast.parse(text.strip(), mode="eval").body)


def _slice(node: Any) -> slice:
    import ast

    if not isinstance(node, ast.Slice) or node.lower is not None or node.upper is not None:
        raise ValueError("a slice without ends")
    step = node.step
    return slice(None, None, step.value if isinstance(step, ast.Constant) else None)
