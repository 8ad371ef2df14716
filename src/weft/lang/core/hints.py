"""What messages about kernels say: names of syntax, what to write instead, names that are near."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterable
from typing import Any, Final

from weft.imports import importing
from weft.lang.core.values import Group, Known, Value, View

__all__ = ["NO_THREADS", "called", "closest", "instead", "operands", "title", "unindexed"]

_OUTSIDE: Final = "define it outside of the kernel"
_LOOP: Final = "write a loop; gpu.local.array holds several numbers"
NO_THREADS: Final = "threads and blocks are those of a weft.kernel"
_KINDS: Final = "kernels have numbers, tuples, named tuples, dataclasses and arrays"
_NO_WAIT: Final = "a kernel runs to its end: write results to an array"
_NO_TRY: Final = "check with if; assert and raise stop the kernel"
_NO_SET: Final = "names from outside are read, not set: pass an array"

# kind of node: (how a message calls it, what to do instead)
_SYNTAX: Final[dict[str, tuple[str, str]]] = {
    "AsyncFor": ("async for", _NO_WAIT), "AsyncWith": ("async with", _NO_WAIT),
    "AsyncFunctionDef": ("an async function", _OUTSIDE + ", without async"),
    "Await": ("await", _NO_WAIT), "Yield": ("yield", _NO_WAIT),
    "YieldFrom": ("yield from", _NO_WAIT),
    "ClassDef": ("a nested class", _OUTSIDE + ": named tuples and dataclasses work"),
    "Delete": ("del", "leave it out: names end with the kernel"),
    "Dict": ("a dict", _KINDS), "Set": ("a set", _KINDS),
    "DictComp": ("a dict comprehension", _KINDS), "SetComp": ("a set comprehension", _KINDS),
    "ListComp": ("a list comprehension", _LOOP), "GeneratorExp": ("a generator", _LOOP),
    "Global": ("global", _NO_SET), "Nonlocal": ("nonlocal", _NO_SET),
    "Import": ("import", "import it outside: kernels know the names of their module"),
    "ImportFrom": ("import", "import it outside: kernels know the names of their module"),
    "JoinedStr": ("an f-string", "print takes several arguments: print('x =', x)"),
    "Match": ("match with such patterns", "match values, or use if and elif"),
    "Slice": ("a slice here", "slices stand in [] of an array or a tuple"),
    "Starred": ("a starred value here", "write the items one by one"),
    "TemplateStr": ("a template string", "print takes several arguments: print('x =', x)"),
    "Try": ("try", _NO_TRY), "TryStar": ("try", _NO_TRY),
    "TypeAlias": ("type", _OUTSIDE),
    "With": ("with", "open and close it outside of the kernel"),
}  # fmt: skip
_CONTAINERS: Final = (list, dict, set, frozenset, str, bytes, bytearray, map, filter, complex)


def title(node: ast.AST) -> str:
    """Return how a message calls a kind of node."""
    name = type(node).__name__
    return _SYNTAX.get(name, (name, ""))[0]


def instead(node: ast.AST) -> str:
    """Return what to write instead of a kind of node."""
    return _SYNTAX.get(type(node).__name__, ("", ""))[1]


def closest(name: str, names: Iterable[str]) -> str:
    """Return a hint that names what was probably meant; nothing if no name is near."""
    with importing:
        import difflib  # only a message needs it

    near = difflib.get_close_matches(name, [n for n in names if not n.startswith("_")], 1, 0.7)
    return f"did you mean {near[0]!r}?" if near else ""


def called(callee: Any) -> tuple[str, str]:
    """Return how a message calls something that kernels cannot call, and what to do instead."""
    name = getattr(callee, "__qualname__", None) or getattr(callee, "__name__", None)
    if name is None:
        return f"a call of a {type(callee).__name__}", _KINDS
    module = str(getattr(callee, "__module__", None) or "")
    if callee is reversed:
        return name, "count down: range(n - 1, -1, -1)"
    if module == "weft.lang.compute.ranges":
        return name, "it stands in a for of a weft.compute function: for i, j in weft.ndrange(m, n)"
    if isinstance(callee, type):
        return name, _KINDS if callee in _CONTAINERS else "named tuples and dataclasses are"
    if getattr(builtins, name, None) is callee:
        return name, "kernels call math, weft.gpu, dtypes and plain Python functions"
    if module.partition(".")[0] == "numpy":
        if "Random" in name or "random" in module:
            module = "numpy"
        return f"{module}.{name}", "NumPy works on whole arrays: in kernels use math, and loops"
    if name.startswith("Random."):
        return f"random.{name.partition('.')[2]}", (
            "kernels count: examples/kernels/monte_carlo.py computes random numbers")
    if module.partition(".")[0] == "weft":
        return f"weft.{name}", "tensors are computed outside: pass their results to the kernel"
    owned = module not in ("", "builtins", "__main__") and "." not in name
    return f"{module}.{name}" if owned else name, (
        "kernels call math, weft.gpu, dtypes and plain Python functions")


def operands(kind: type[ast.AST], left: Value, right: Value) -> str:
    """Return a hint about two values that an operator does not take."""
    if isinstance(left, View) or isinstance(right, View):
        return "index it to get a number: kernels compute on scalars"
    if any(isinstance(v, Group) and v.kind is slice for v in (left, right)):
        return "compare their start, stop and step"
    if any(isinstance(v, Known) and isinstance(v.value, str) for v in (left, right)):
        return "kernels have no text, but for what print and assert say"
    if kind in (ast.BitAnd, ast.BitOr, ast.BitXor, ast.LShift, ast.RShift):
        return "bits are those of integers: convert with int()"
    return ""


def unindexed(owner: Value) -> str:
    """Return a hint for what cannot be indexed."""
    if isinstance(owner, Known) and hasattr(owner.value, "__weft_function__"):
        return "kernels do not launch kernels: launch it after this one"
    return ""
