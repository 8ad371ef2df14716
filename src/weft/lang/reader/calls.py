"""Calls in kernels: builtins, `math`, dtypes, structs, device functions and intrinsics."""

from __future__ import annotations

import ast
import enum
import inspect
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from weft.errors import WeftError
from weft.imports import Late, importing
from weft.ir import dtype as dt
from weft.ir import expr as ex
from weft.ir.expr import Expr
from weft.ir.op import Op
from weft.ir.stmt import Alloc, Barrier, Memory
from weft.lang.core import array_union, indexing, optional, scalars
from weft.lang.core.context import VISIT
from weft.lang.core.element_types import ComplexOf, Element, TimeOf, as_dtype, as_element, spelled
from weft.lang.core.hints import NO_THREADS, called
from weft.lang.core.intrinsics import Intrinsic
from weft.lang.core.kind import kind_of
from weft.lang.core.values import (
    Fields,
    Fragment,
    Group,
    Known,
    Value,
    View,
    describe,
    is_tuple,
)
from weft.lang.library import constructors
from weft.lang.library.builtins import BUILTINS, REDUCING_METHODS
from weft.lang.reader.expressions import Expressions
from weft.lang.reader.nested_functions import NestedFunction
from weft.lang.source.source import Problems, Source
from weft.lang.values import complex_numbers, overload_hooks, structs

if TYPE_CHECKING:
    from weft.lang.library import array_functions, mathlib, reductions, ufuncs
    from weft.lang.values import bitcast_view, records, times
else:
    records = Late("weft.lang.values.records")
    mathlib = Late("weft.lang.library.mathlib")
    reductions = Late("weft.lang.library.reductions")
    bitcast_view = Late("weft.lang.values.bitcast_view")
    times = Late("weft.lang.values.times")
    ufuncs = Late("weft.lang.library.ufuncs")
    array_functions = Late("weft.lang.library.array_functions")

__all__ = ["INTRINSICS", "Calls"]

# loops and tuples are what they are without these words of numba itself
_NUMBAS: Final = {"prange": range, "literal_unroll": tuple}

_MATH: Final = frozenset(name for name in dir(math)
                          if name[0] != "_" and callable(getattr(math, name)))


class Calls(Expressions):
    """Reads calls."""

    def __init__(self, source: Source, problems: Problems) -> None:
        super().__init__(source, problems)
        self.dynamic = {}

    def _call(self, node: ast.Call) -> Value:
        if isinstance(node.func, ast.Attribute):
            method = self._method(node, node.func)
            if method is not None:
                return method
        callee = self.visit(node.func)
        return kind_of(callee).call(self, callee, node)

    def _method(self, node: ast.Call, func: ast.Attribute) -> Value | None:
        """Return what a method of a scalar or a group gives, None for other calls."""
        of_result = isinstance(func.value, ast.Call | ast.BinOp)
        if overload_hooks.METHODS and not of_result:
            told = overload_hooks.method(self, None, node, func)
            if told is not None:
                return told
        if func.attr == "bit_count" and not node.args:
            bits = self.scalar(self.visit(func.value), node)
            return scalars.convert(ex.unary(Op.POPCOUNT, bits), dt.int64)
        if func.attr in ("reshape", "ravel", "flatten"):
            array = self.visit(func.value)
            if array_union.is_array_union(array) or (
                isinstance(array, View | Fields) and array.shape
            ):
                args, named = self.arguments(node)
                if any(v.value != "C" if isinstance(v, Known) else True for v in named.values()):
                    raise self.wrong(node, f"{func.attr} with {', '.join(named)}",
                                     "kernels walk arrays with the last axis innermost")
                shape = args[0].items if len(args) == 1 and isinstance(args[0], Group) else args
                sizes = list(shape) if func.attr == "reshape" else [Known(-1)]
                if array_union.is_array_union(array) and isinstance(array, Group):
                    return array_union.part(self, array, lambda option: records.reshaped(
                        self, option, sizes, node), node)
                if isinstance(array, View | Fields):
                    return records.reshaped(self, array, sizes, node)
        if func.attr in ("item", "transpose") or func.attr in REDUCING_METHODS:
            owner = self.visit(func.value)
            found = reductions.method(self, owner, node, func)
            if found is None and isinstance(owner, Group):  # which is not evaluated again
                found = self._of_struct(owner, func.attr, node)
            if found is not None:
                return found
        if func.attr == "copy":
            array = self.visit(func.value)
            if isinstance(array, View | Fields) and not isinstance(array, Fragment) and array.shape:
                return self._copied(array, node)
        if func.attr == "view":
            array = self.visit(func.value)
            if isinstance(array, View | Fields) and not isinstance(array, Fragment):
                return self._seen(array, node)
        if func.attr == "conjugate" and not node.args:
            z = self.visit(func.value)
            if complex_numbers.is_complex(z):
                z = complex_numbers.as_complex(self, z, node)
                return Group((z.items[0], ex.unary(Op.NEG, z.items[1])), z.names, z.kind)
            return self.scalar(z, node)
        if of_result:  # of what a function returns
            made = self.visit(func.value)
            told = overload_hooks.method(self, made, node, func)
            if told is not None:
                return told
            if not isinstance(made, Group):
                callee = self.attribute(made, func)
                if isinstance(callee, Known):
                    return self.call_object(callee.value, node)
                raise self.wrong(node, f"{describe(callee)} cannot be called")
            found = self._of_struct(made, func.attr, node)
            if found is None:
                raise self.wrong(node, f"{describe(made)} has no {func.attr!r}")
            return found
        root = func.value
        while isinstance(root, ast.Attribute):
            root = root.value
        if not isinstance(root, ast.Name) or not isinstance(self.env.get(root.id), Group):
            return None
        return self._of_struct(self.visit(func.value), func.attr, node)

    def _of_struct(self, owner: Value, name: str, node: ast.Call) -> Value | None:
        """Return what a method of a struct gives, None if it has none."""
        if name == "_replace" and is_tuple(owner) and owner.names:
            return structs.replaced(self, owner, *self.arguments(node), node)
        if name == "indices" and isinstance(owner, Group) and owner.kind is slice:
            return self._clipped(owner, node)
        function = structs.method(owner, name)
        if function is None:
            return None
        args, named = self.arguments(node)
        if inspect.ismethod(function):  # of the class
            return structs.of_class(self, function, args, named, node)
        return self.inline(function, [owner, *args], named, node)

    def _clipped(self, owner: Group, node: ast.Call) -> Value:
        """Return ``slice.indices(size)``."""
        args, named = self.arguments(node)
        if len(args) != 1 or named:
            raise self.wrong(node, "indices takes the number of elements")
        size = scalars.convert(self.scalar(args[0], node, "an integer"), dt.int64)
        self.require(ex.index(0).le(size), "indices of a negative number of elements", node)
        return indexing.clipped(self, owner, size, node)

    def arguments(self, node: ast.Call) -> tuple[list[Value], dict[str, Value]]:
        """Return the values of the arguments of a call."""
        args = self.unpacked(node.args)
        named: dict[str, Value] = {}
        for keyword in node.keywords:
            if keyword.arg is None:
                raise self.wrong(node, "** in a call is not supported in kernels")
            named[keyword.arg] = self.visit(keyword.value)
        return args, named

    def call_object(self, callee: Any, node: ast.Call) -> Value:
        """Return what a call of a Python object means in a kernel."""
        callee = _of_python(callee)
        args, named = self.arguments(node)
        if isinstance(callee, NestedFunction):
            return self.inline(callee, args, named, node)
        if overload_hooks.FUNCTIONS:
            chosen_for = overload_hooks.function(self, callee, args, named, node)
            if chosen_for is not None:
                return chosen_for
        if not inspect.isfunction(getattr(callee, "__weft_function__", callee)):
            args = [optional.present(self, a, node) for a in args]
        if isinstance(callee, Intrinsic):
            return self._intrinsic(callee, args, named, node)
        builtin = None
        if _is_hashable(callee):
            said = structs.called(self, callee, args, node) if not named else None
            if said is not None:
                return said
            builtin = BUILTINS.get(callee)
        if builtin is not None:
            return self._checked(builtin, callee, args, named, node)
        own = getattr(callee, "__weft_call__", None)  # of what a compatible interface has
        if own is not None and named and hasattr(callee, "__weft_function__"):
            args, named = constructors.in_order(self, callee.__weft_function__, args, named,
                                                node), {}
        if own is not None and not named:
            result: Value = own(self, args, node)
            return result
        d = as_dtype(callee)
        if d is not None:
            return constructors.cast(self, d, args, named, node, callee is int or callee is float)
        element = as_element(callee)
        if isinstance(element, ComplexOf):
            return constructors.complex_number(self, element.dtype, args, node)
        if isinstance(element, TimeOf):
            return times.called(self, element, args, node)
        name = getattr(callee, "__name__", "")
        if getattr(callee, "__module__", "") == "cmath":
            value = complex_numbers.called(self, name, tuple(args), named, node)
            if value is not None:
                return value
        if name in _MATH and getattr(math, name) is callee:
            return mathlib.math_named(self, name, args, named, node)
        if mathlib.is_ufunc(callee, name):
            return self._numpy(callee, name, args, named, node)
        if isinstance(callee, enum.EnumMeta):
            return constructors.member(self, callee, args, named, node)
        if isinstance(callee, type):
            return constructors.construct(self, callee, args, named, node)
        if inspect.ismethod(callee) and isinstance(callee.__self__, type):  # of a class
            return structs.of_class(self, callee, args, named, node)
        function = getattr(callee, "__weft_function__", None) or python_of(callee)
        if inspect.isfunction(function) and not _is_of_tensors(function):
            return self.inline(function, args, named, node)
        what, hint = called(callee)
        raise self.wrong(node, f"{what} is not supported in kernels", hint)

    def _checked(self, builtin: Callable[..., Value], callee: Any, args: list[Value],
                 named: dict[str, Value], node: ast.Call) -> Value:  # fmt: skip
        constructors.bound(self, builtin, callee.__name__, [self, node, *args], named, node)
        try:
            return builtin(self, node, *args, **named)
        except WeftError:
            raise
        except (TypeError, ValueError, ArithmeticError) as error:  # of values that are known
            raise self.wrong(node, f"{callee.__name__}: {error}") from None

    def _copied(self, array: View | Fields, node: ast.Call) -> Value:
        """Return ``array.copy()``: an array of the thread's own with the same elements."""
        args, named = self.arguments(node)
        if args or named:
            raise self.wrong(node, "copy with arguments", "copy(), in rows as always")
        if any(n.op is not Op.CONST for n in array.shape):
            raise self.wrong(node, "a copy of an array of a size that is not known when the kernel "
                             "is compiled", "a loop that copies to an array that is passed")
        _rare_intrinsics()
        size = Group(tuple(Known(int(n.attr)) for n in array.shape))
        kind: Any = None
        if isinstance(array, View):
            kind = array.dtype
        elif array.kind is complex:
            kind = ComplexOf(array.parts[0].dtype)
        else:
            raise self.wrong(node, f"a copy of {describe(array)}", "copies of its fields")
        made = INTRINSICS["local"](self, node, "", size, Known(kind))
        self.write(made, array, node)
        return made

    def _seen(self, array: View | Fields, node: ast.Call) -> Value:
        """Return ``array.view(dtype)``: the bits of its elements as numbers of another type."""
        args, named = self.arguments(node)
        given = [*args, *(v for name, v in named.items() if name == "dtype")]
        if len(given) != 1 or len(named) + len(args) != 1:
            raise self.wrong(node, "view takes one dtype")
        return bitcast_view.as_elements(self, array, self.element_of(given[0], node), node)

    def _numpy(self, callee: Any, name: str, args: list[Value], named: dict[str, Value],
               node: ast.Call) -> Value:  # fmt: skip
        if "out" in named or any(map(array_functions.is_array, args)):
            return array_functions.applied(self, callee, args, named, node)
        if named:
            bound = constructors.bound(self, callee, f"numpy.{name}", args, named, node)
            args, named = list(bound.args), bound.kwargs
        found = None
        if not named and self.wraps:
            found = ufuncs.called(self, callee, name, self.alike(args), node)
        elif not named:
            found = mathlib.ufunc_call(self, name, self.alike(args), node)
        if found is None:
            what = f"with {', '.join(named)}" if named else f"of {len(args)} arguments"
            raise self.wrong(node, f"numpy.{name} {what} is not supported in kernels")
        return found

    # --- intrinsics

    def _intrinsic(self, callee: Intrinsic, args: list[Value], named: dict[str, Value],
                   node: ast.Call) -> Value:  # fmt: skip
        bound = constructors.bound(self, callee.signature, f"gpu.{callee.name}", args, named, node,
                                   callee.usage)
        bound.apply_defaults()
        family, _, kind = callee.name.rpartition(".")
        method = INTRINSICS.get(callee.name) or INTRINSICS.get(family)
        if method is None:
            _rare_intrinsics()
            method = INTRINSICS.get(callee.name) or INTRINSICS[family]
        given = [v if isinstance(v, Value) else Known(v) for v in bound.arguments.values()]
        return method(self, node, kind, *given)

    def _grid(self, node: ast.Call, kind: str, ndim: Value) -> Value:
        count = self.known_int(ndim, node, "the number of axes")
        if count not in (1, 2, 3):
            raise self.wrong(node, f"gpu.{kind}({count})", "a grid has 1 to 3 axes")
        found = []
        for axis in "xyz"[:count]:
            block, threads = (self.index_of(f"{name}.{axis}", node) for name in
                              (("block", "blockDim") if kind == "grid" else
                               ("gridDim", "blockDim")))
            whole_ = block * threads
            if kind == "grid":
                whole_ = whole_ + self.index_of(f"thread.{axis}", node)
            found.append(whole_)
        return found[0] if count == 1 else Group(tuple(found))

    def index_of(self, name: str, node: ast.AST) -> Expr:
        """Return an index or a size of the launch as an int64."""
        found = self.specials.get(name)
        if found is None:
            raise self.wrong(node, f"{name} has no value in this kind of kernel", NO_THREADS)
        return found

    def _barrier(self, node: ast.Call, kind: str) -> Value:
        self.check_uniform(node)
        self.emit(Barrier("block"), node)
        return Known(None)

    def dynamic_allocs(self) -> list[Alloc]:
        """Return what declares the dynamic shared memory, with a view for each type of elements."""
        found = list(self.dynamic.values())
        root = None
        if len(found) > 1:
            size = ex.index(self.dynamic_bytes)
            root = Memory(self.name("dynamic.bytes"), dt.uint8, (size,), "shared")
        allocs = [Alloc(memory, 16, root) for memory, _ in found]
        self.locations.update(zip(allocs, (place for _, place in found), strict=True))
        return allocs if root is None else [Alloc(root), *allocs]

    def element_of(self, value: Value, node: ast.AST) -> Element:
        """Return the type of elements, which may be more than a number, that it names."""
        d = as_element(spelled(value.value)) if isinstance(value, Known) else None
        if d is None:
            raise self.wrong(node, f"{describe(value)} is not a dtype",
                             "weft.float32, weft.int64, ..., and NumPy's types")
        return d


def _is_of_tensors(function: Callable[..., Any]) -> bool:
    """Whether a function is one of Weft's own that works on tensors."""
    module = function.__module__ or ""
    return module.startswith("weft.") and not module.startswith(
        ("weft.lang.", "weft.compat."))


def _of_python(callee: Any) -> Any:
    """Return what a name of numba itself is in Python's words, other callees as they are."""
    if (getattr(callee, "__module__", None) or "").startswith("numba."):
        return _NUMBAS.get(getattr(callee, "__name__", ""), callee)
    return callee


def python_of(callee: Any) -> Any:
    """Return the Python function of one that numba compiles, anything else as it is."""
    return callee.py_func if type(callee).__module__.startswith("numba.") and hasattr(
        callee, "py_func") else callee


def _is_hashable(value: Any) -> bool:
    try:
        hash(value)
    except TypeError:
        return False
    return True


INTRINSICS: Final[dict[str, Callable[..., Value]]] = {
    "grid": Calls._grid, "gridsize": Calls._grid, "syncthreads": Calls._barrier,
}


def _rare_intrinsics() -> None:
    """Add those that few kernels call."""
    with importing:
        from weft.lang.device import fragments, shared_memory, vector_accesses, warp

    for family in (shared_memory, warp, fragments, vector_accesses):
        INTRINSICS.update(family.LOWERED)


VISIT[ast.Call] = Calls._call
