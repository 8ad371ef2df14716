"""Calls in kernels: Python's builtins, `math`, dtypes, device functions and intrinsics."""

from __future__ import annotations

import ast
import inspect
import math
import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from weft.errors import WeftError
from weft.frontend.kernel import (
    chosen,
    complexes,
    operators,
    scalars,
    structs,
)
from weft.frontend.kernel.elements import (
    ComplexOf,
    Element,
    array_of,
    as_dtype,
    as_element,
    in_pairs,
    itemsize_of,
    made,
    pair,
    spelled,
)
from weft.frontend.kernel.expressions import VISIT, Expressions
from weft.frontend.kernel.hints import NO_THREADS, called
from weft.frontend.kernel.inner import Inner
from weft.frontend.kernel.intrinsics import Intrinsic, Triple
from weft.frontend.kernel.promotion import unify
from weft.frontend.kernel.source import Problems, Source
from weft.frontend.kernel.values import (
    Fields,
    Fragment,
    Group,
    Known,
    Value,
    View,
    axes_of,
    describe,
    whole,
)
from weft.imports import Late, importing
from weft.ir import dtype as dt
from weft.ir import expr as ex
from weft.ir.dtype import DType
from weft.ir.expr import Expr
from weft.ir.op import Op
from weft.ir.record import Record
from weft.ir.stmt import (
    ATOMIC_SCOPES,
    ORDERS,
    Alloc,
    Atomic,
    Barrier,
    Location,
    Memory,
    Print,
)

if TYPE_CHECKING:
    from weft.frontend.kernel import addresses, fields, mathlib, seen
else:
    addresses = Late("weft.frontend.kernel.addresses")
    fields = Late("weft.frontend.kernel.fields")
    mathlib = Late("weft.frontend.kernel.mathlib")
    seen = Late("weft.frontend.kernel.seen")

__all__ = ["INTRINSICS", "MOST_LOCAL", "MOST_SHARED", "Calls", "Range", "Walk"]

MOST_SHARED: Final = 227 << 10  # bytes, as much as the largest devices give one block
MOST_LOCAL: Final = 512 << 10  # bytes, as much as a thread of CUDA may have
_MOST_ALIGNED: Final = 1024  # bytes
_MATH: Final = frozenset(name for name in dir(math) if callable(getattr(math, name)))


class Range(Record):
    """What ``range(start, stop, step)`` is."""

    start: Expr
    stop: Expr
    step: Expr


class Walk(Record):
    """What ``enumerate(x)`` and ``zip(x, y)`` are: things to walk through side by side."""

    parts: tuple[Any, ...]


class Calls(Expressions):
    """Reads calls.

    Attributes
    ----------
    warp : int
        Threads of a warp of the device.
    dynamic_bytes : int
        Bytes of shared memory that the launch gives beside the kernel's own.
    dynamic : dict of DType to (Memory, Location)
        The arrays over them, which all begin at the first byte, and where they were asked for.
    """

    warp = 32
    dynamic_bytes = 0

    def __init__(self, source: Source, problems: Problems) -> None:
        super().__init__(source, problems)
        self.dynamic: dict[DType, tuple[Memory, Location]] = {}

    def _call(self, node: ast.Call) -> Value:
        if isinstance(node.func, ast.Attribute):
            method = self._method(node, node.func)
            if method is not None:
                return method
        callee = self.visit(node.func)
        if isinstance(callee, Known):
            return self.call_object(callee.value, node)
        raise self.wrong(node, f"{describe(callee)} cannot be called",
                         "arrays and tuples are indexed by []" if isinstance(callee, View | Group)
                         else "")

    def _method(self, node: ast.Call, func: ast.Attribute) -> Value | None:
        """Return what a method of a scalar or a group gives, None for other calls."""
        if func.attr == "bit_count" and not node.args:
            bits = self.scalar(self.visit(func.value), node)
            return scalars.convert(ex.unary(Op.POPCOUNT, bits), dt.int64)
        if func.attr in ("reshape", "ravel", "flatten"):
            array = self.visit(func.value)
            if chosen.is_chosen(array) or (isinstance(array, View | Fields) and array.shape):
                args, named = self.arguments(node)
                if any(v.value != "C" if isinstance(v, Known) else True for v in named.values()):
                    raise self.wrong(node, f"{func.attr} with {', '.join(named)}",
                                     "kernels walk arrays with the last axis innermost")
                shape = args[0].items if len(args) == 1 and isinstance(args[0], Group) else args
                sizes = list(shape) if func.attr == "reshape" else [Known(-1)]
                if chosen.is_chosen(array) and isinstance(array, Group):
                    return chosen.part(self, array, lambda option: fields.reshaped(
                        self, option, sizes, node), node)
                if isinstance(array, View | Fields):
                    return fields.reshaped(self, array, sizes, node)
        if func.attr == "view":
            array = self.visit(func.value)
            if isinstance(array, View) and not isinstance(array, Fragment):
                return self._seen(array, node)
        if func.attr == "conjugate" and not node.args:
            z = self.visit(func.value)
            if complexes.is_complex(z):
                z = complexes.as_complex(self, z, node)
                return Group((z.items[0], ex.unary(Op.NEG, z.items[1])), z.names, z.kind)
            return self.scalar(z, node)
        if isinstance(func.value, ast.Call | ast.BinOp):  # of what a function returns
            made = self.visit(func.value)
            if not isinstance(made, Group):
                callee = self.attribute(made, func)
                if isinstance(callee, Known):
                    return self.call_object(callee.value, node)
                raise self.wrong(node, f"{describe(callee)} cannot be called")
            function = structs.method(made, func.attr)
            if function is None:
                raise self.wrong(node, f"{describe(made)} has no {func.attr!r}")
            args, named = self.arguments(node)
            return self.inline(function, [made, *args], named, node)
        root = func.value
        while isinstance(root, ast.Attribute):
            root = root.value
        if not isinstance(root, ast.Name) or not isinstance(self.env.get(root.id), Group):
            return None
        owner = self.visit(func.value)
        function = structs.method(owner, func.attr)
        if function is None:
            return None
        args, named = self.arguments(node)
        return self.inline(function, [owner, *args], named, node)

    def arguments(self, node: ast.Call) -> tuple[list[Value], dict[str, Value]]:
        """Return the values of the arguments of a call."""
        args: list[Value] = []
        for arg in node.args:
            if isinstance(arg, ast.Starred):
                inner = self.visit(arg.value)
                if not isinstance(inner, Group):
                    raise self.wrong(arg, f"cannot unpack {describe(inner)}")
                args.extend(inner.items)
            else:
                args.append(self.visit(arg))
        named: dict[str, Value] = {}
        for keyword in node.keywords:
            if keyword.arg is None:
                raise self.wrong(node, "** in a call is not supported in kernels")
            named[keyword.arg] = self.visit(keyword.value)
        return args, named

    def call_object(self, callee: Any, node: ast.Call) -> Value:
        """Return what a call of a Python object means in a kernel."""
        args, named = self.arguments(node)
        if isinstance(callee, Inner):
            return self.inline(callee, args, named, node)
        if isinstance(callee, Intrinsic):
            return self._intrinsic(callee, args, named, node)
        builtin = None
        if _is_hashable(callee):
            said = structs.called(self, callee, args, node) if not named else None
            if said is not None:
                return said
            builtin = _BUILTINS.get(callee)
        if builtin is not None:
            return self._checked(builtin, callee, args, named, node)
        own = getattr(callee, "__weft_call__", None)  # of what a compatible interface has
        if own is not None and not named:
            result: Value = own(self, args, node)
            return result
        d = as_dtype(callee)
        if d is not None:
            return self._cast(d, args, named, node)
        element = as_element(callee)
        if isinstance(element, ComplexOf):
            return self._complex(element.dtype, args, node)
        name = getattr(callee, "__name__", "")
        if getattr(callee, "__module__", "") == "cmath":
            value = complexes.called(self, name, tuple(args), named, node)
            if value is not None:
                return value
        if name in _MATH and getattr(math, name) is callee:
            return mathlib.math_named(self, name, args, named, node)
        if mathlib.is_ufunc(callee, name):
            return self._numpy(callee, name, args, named, node)
        if isinstance(callee, type):
            return self._construct(callee, args, named, node)
        function = getattr(callee, "__weft_function__", None) or python_of(callee)
        if inspect.isfunction(function) and not _is_of_tensors(function):
            return self.inline(function, args, named, node)
        what, hint = called(callee)
        raise self.wrong(node, f"{what} is not supported in kernels", hint)

    def _checked(self, builtin: Callable[..., Value], callee: Any, args: list[Value],
                 named: dict[str, Value], node: ast.Call) -> Value:  # fmt: skip
        try:
            inspect.signature(builtin).bind(self, node, *args, **named)
        except TypeError as error:
            raise self.wrong(node, f"{callee.__name__}: {error}") from None
        try:
            return builtin(self, node, *args, **named)
        except WeftError:
            raise
        except (TypeError, ValueError, ArithmeticError) as error:  # of values that are known
            raise self.wrong(node, f"{callee.__name__}: {error}") from None

    def vector(self, kind: Any, names: tuple[str, ...], d: DType, args: list[Value],
               node: ast.AST) -> Value:  # fmt: skip
        """Return a vector of CUDA, made of numbers and of shorter vectors."""
        parts: list[Value] = []
        for arg in args:
            parts.extend(arg.items if isinstance(arg, Group) else (arg,))
        if len(parts) != len(names):
            raise self.wrong(node, f"{kind.__name__} of {len(parts)} numbers",
                             f"it has {len(names)}: {', '.join(names)}")
        items = tuple(scalars.convert(self.scalar(p, node), d) for p in parts)
        return Group(items, names, kind)

    # --- conversions

    def _complex(self, d: DType, args: list[Value], node: ast.Call) -> Value:
        """Return ``complex(real, imag)``, or a number as a complex one."""
        if not 1 <= len(args) <= 2:
            raise self.wrong(node, f"complex takes one or two arguments, found {len(args)}")
        if len(args) == 2:
            real, imag = (scalars.convert(self.scalar(a, node), d) for a in args)
            return complexes.group(real, imag)
        return complexes.convert(complexes.as_complex(self, args[0], node), d)

    def _cast(self, d: DType, args: list[Value], named: dict[str, Value],
              node: ast.Call) -> Value:  # fmt: skip
        if len(args) != 1 or named:
            raise self.wrong(node, f"{d.name} takes one argument, found {len(args) + len(named)}")
        if isinstance(args[0], Known) and isinstance(args[0].value, str):
            try:  # such as float("inf")
                args = [Known((float if d.is_float else int)(args[0].value))]
            except ValueError as error:
                raise self.wrong(node, str(error)) from None
        return scalars.convert(self.scalar(args[0], node), d)

    def _construct(self, kind: type, args: list[Value], named: dict[str, Value],
                   node: ast.Call) -> Value:  # fmt: skip
        """Return a named tuple or a dataclass."""
        names = tuple(getattr(kind, "_fields", ()) or getattr(kind, "__dataclass_fields__", ()))
        if not names and not hasattr(kind, "__dataclass_fields__"):
            what, hint = called(kind)
            raise self.wrong(node, f"{what} is not supported in kernels", hint)
        try:
            bound = inspect.signature(kind).bind(*args, **named)
        except TypeError as error:
            raise self.wrong(node, f"{kind.__name__}: {error}") from None
        bound.apply_defaults()
        items = [v if isinstance(v, Value) else self.outside(v, node)
                 for v in (bound.arguments[name] for name in names)]
        return Group(tuple(items), names, kind)

    def _seen(self, array: View, node: ast.Call) -> Value:
        """Return ``array.view(dtype)``: the bits of its elements as numbers of another type."""
        args, named = self.arguments(node)
        given = [*args, *(v for name, v in named.items() if name == "dtype")]
        if len(given) != 1 or len(named) + len(args) != 1:
            raise self.wrong(node, "view takes one dtype")
        return seen.as_type(self, array, self._dtype(given[0], node), node)

    # --- builtins

    def _range(self, node: ast.Call, first: Value, second: Value | None = None,
               third: Value | None = None) -> Value:  # fmt: skip
        """Return ``range(stop)``, ``range(start, stop)`` or ``range(start, stop, step)``."""
        ends = [self.scalar(v, node, "an integer") for v in (first, second, third)
                if v is not None]
        for e in ends:
            if e.dtype.is_float and not self.wraps:  # numba's ranges round to zero
                raise self.wrong(node, f"range of {e.dtype.name}", "convert it with int()")
        ends = [scalars.convert(e, dt.int64) for e in ends]
        if len(ends) == 1:
            ends.insert(0, ex.index(0))
        step = ends[2] if len(ends) == 3 else ex.index(1)
        if ex.is_const(step, 0):
            raise self.wrong(node, "a range with step 0", "it would never end: 1, or -1")
        return Known(Range(ends[0], ends[1], step))

    def _len(self, node: ast.Call, value: Value) -> Value:
        """Return the number of items, or of rows."""
        if isinstance(value, Group) and not chosen.is_chosen(value):
            return Known(len(value.items))
        if chosen.is_chosen(value) and isinstance(value, Group):
            return chosen.shape(self, value)[0]
        if isinstance(value, View | Fields) and value.shape:
            return value.shape[0]
        raise self.wrong(node, f"len of {describe(value)}")

    def _extreme(self, node: ast.Call, *values: Value, largest: bool) -> Value:
        items = list(values)
        if len(items) == 1 and isinstance(items[0], Group):
            items = list(items[0].items)
        if not items:
            raise self.wrong(node, f"{'max' if largest else 'min'} of nothing")
        if all(isinstance(v, Known) for v in items):
            known = [v.value for v in items if isinstance(v, Known)]
            return Known(max(known) if largest else min(known))
        items = self.alike(items, True)
        found = self.scalar(items[0], node)
        for item in items[1:]:
            other = self.scalar(item, node)
            d = unify(found.dtype, other.dtype)
            found = (scalars.maximum if largest else scalars.minimum)(found, other, d)
        return found

    def _max(self, node: ast.Call, *values: Value) -> Value:
        return self._extreme(node, *values, largest=True)

    def _min(self, node: ast.Call, *values: Value) -> Value:
        return self._extreme(node, *values, largest=False)

    def _abs(self, node: ast.Call, value: Value) -> Value:
        if isinstance(value, Known):
            return Known(abs(value.value))
        if complexes.is_complex(value):
            size = complexes.function(self, "abs", value, node)
            assert size is not None
            return size
        x = self.scalar(value, node)
        return x if x.dtype.kind in "bu" else ex.unary(Op.ABS, x)

    def _round(self, node: ast.Call, value: Value, digits: Value | None = None) -> Value:
        x = self.scalar(value, node)
        if digits is None or (isinstance(digits, Known) and digits.value is None):
            return scalars.round_(x)
        if not x.dtype.is_float:
            raise self.wrong(node, "round of an integer to digits")
        if isinstance(digits, Known):
            return scalars.rounded(x, self.known_int(digits, node, "the number of digits"))
        places = scalars.convert(self.scalar(digits, node, "an integer"), dt.int64)
        found = x
        for count in range(-16, 17):  # more than a float64 has
            found = ex.where(places.eq(count), scalars.rounded(x, count), found)
        return found

    def _pow(self, node: ast.Call, base: Value, exponent: Value) -> Value:
        return operators.operate(self, ast.Pow, base, exponent, node)

    def _divmod(self, node: ast.Call, a: Value, b: Value) -> Value:
        kinds = {v.dtype.name for v in (a, b) if isinstance(v, Expr)}
        if "uint64" in kinds and any(name.startswith("int") for name in kinds):  # as in numba
            a, b = (scalars.convert(self.scalar(v, node), dt.float64) for v in (a, b))
        return Group((operators.operate(self, ast.FloorDiv, a, b, node),
                      operators.operate(self, ast.Mod, a, b, node)))

    def _sum(self, node: ast.Call, values: Value) -> Value:
        if not isinstance(values, Group):
            raise self.wrong(node, f"sum of {describe(values)}", "add in a loop")
        total: Value = Known(0)
        for item in values.items:
            total = operators.operate(self, ast.Add, total, item, node)
        return total

    def _tuple_of(self, node: ast.Call, value: Value) -> Value:
        if isinstance(value, Group):
            return Group(value.items)
        raise self.wrong(node, f"a tuple of {describe(value)}")

    def _enumerate(self, node: ast.Call, value: Value) -> Value:
        return Known(Walk((Known(Range(ex.index(0), ex.index((1 << 62)), ex.index(1))), value)))

    def _zip(self, node: ast.Call, *values: Value, strict: Value | None = None) -> Value:
        del strict  # lengths that are unlike end the loop with the shortest
        return Known(Walk(values))

    def _print(self, node: ast.Call, *values: Value) -> Value:
        parts: list[str] = []
        args: list[Expr] = []
        for value in values:
            parts.append(self._shown(value, args, node, str))
        self.emit(Print(" ".join(parts) + "\n", tuple(args)), node)
        return Known(None)

    def _shown(self, value: Value, args: list[Expr], node: ast.AST,
               known: Callable[[Any], str]) -> str:  # fmt: skip
        """Return how a value is printed, with {} for each number, which goes to `args`."""
        if isinstance(value, Known) and isinstance(value.value, Triple):
            triple = value.value
            value = Group(tuple(self.outside(s, node) for s in (triple.x, triple.y, triple.z)))
        if isinstance(value, Group) and value.kind is None:
            inner = [self._shown(v, args, node, repr) for v in value.items]
            return f"({', '.join(inner)}{',' if len(inner) == 1 else ''})"
        if isinstance(value, Known) and self.known_scalar(value.value) is None:
            return known(value.value).replace("{", "{{").replace("}", "}}")
        args.append(self.scalar(value, node))
        return "{}"

    def _numpy(self, callee: Any, name: str, args: list[Value], named: dict[str, Value],
               node: ast.Call) -> Value:  # fmt: skip
        if named:
            try:
                bound = inspect.signature(callee).bind(*args, **named)
            except (TypeError, ValueError) as error:
                raise self.wrong(node, f"numpy.{name}: {error}") from None
            args, named = list(bound.args), bound.kwargs
        found = None if named else mathlib.ufunc_call(self, name, self.alike(args), node)
        if found is None:
            what = f"with {', '.join(named)}" if named else f"of {len(args)} arguments"
            raise self.wrong(node, f"numpy.{name} {what} is not supported in kernels")
        return found

    # --- intrinsics

    def _intrinsic(self, callee: Intrinsic, args: list[Value], named: dict[str, Value],
                   node: ast.Call) -> Value:  # fmt: skip
        try:
            bound = callee.signature.bind(*args, **named)
        except TypeError as error:
            raise self.wrong(node, f"gpu.{callee.name}: {error}",
                             callee.usage) from None
        bound.apply_defaults()
        family, _, kind = callee.name.rpartition(".")
        method = INTRINSICS.get(callee.name) or INTRINSICS.get(family)
        if method is None:
            _rare_intrinsics()
            method = INTRINSICS[callee.name]
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

    def _array(self, scope: str, node: ast.Call, shape: Value, dtype: Value,
               alignment: Value | None = None) -> Value:  # fmt: skip
        align = 16
        if alignment is not None and alignment != Known(None):
            align = self.known_int(alignment, node, "the alignment")
            if not 1 <= align <= _MOST_ALIGNED or align & (align - 1):
                raise self.wrong(node, f"an alignment of {align} bytes",
                                 f"a power of two up to {_MOST_ALIGNED}")
        sizes = shape.items if isinstance(shape, Group) else (shape,)
        extents = tuple(self.known_int(s, node, "a size") for s in sizes)
        if scope == "shared" and extents == (0,):
            return self._dynamic(node, dtype)
        if any(n < 1 for n in extents):
            raise self.wrong(node, f"an array of shape {extents}", "each size must be at least 1")
        element = self._element(dtype, node)
        self._fits(scope, math.prod(extents) * itemsize_of(element), node)

        def array(name: str, d: DType, shape: tuple[Expr, ...]) -> View:
            view = array_of(self.name(name), d, shape, scope, self.flat)
            alloc = Alloc(view.memory, max(align, 16))
            if scope == "shared":
                self.shared.append(alloc)
                self.locations[alloc] = self.source.place(node)
            else:
                self.emit(alloc, node)
            return view

        return made(self.titles.get(node, scope), element, tuple(map(ex.index, extents)), array)

    def _fits(self, scope: str, size: int, node: ast.AST) -> None:
        """Refuse an array that no device has room for."""
        if scope != "shared":
            if size > MOST_LOCAL:
                raise self.wrong(node, f"{size} bytes of local memory for each thread",
                                 f"at most {MOST_LOCAL}; an argument can be of any size")
            return
        for alloc in self.shared:
            if all(alloc.memory is not m for m, _ in self.dynamic.values()):
                count = math.prod(int(n.attr) for n in alloc.memory.shape)
                size += count * alloc.memory.dtype.itemsize
        size += self.dynamic_bytes
        if size > MOST_SHARED:
            raise self.wrong(node, f"{size} bytes of shared memory in all",
                             f"a block has at most {MOST_SHARED}")

    def _dtype(self, value: Value, node: ast.AST) -> DType:
        d = as_dtype(spelled(value.value)) if isinstance(value, Known) else None
        if d is None:
            raise self.wrong(node, f"{describe(value)} is not a dtype",
                             "weft.float32, weft.int64, ..., and NumPy's types")
        return d

    def _element(self, value: Value, node: ast.AST) -> Element:
        d = as_element(spelled(value.value)) if isinstance(value, Known) else None
        if d is None:
            raise self.wrong(node, f"{describe(value)} is not a dtype",
                             "weft.float32, weft.int64, ..., and NumPy's types")
        return d

    def _dynamic(self, node: ast.Call, dtype: Value) -> Value:
        """Return the shared memory whose size the launch gives; all such arrays share it."""
        element = self._element(dtype, node)
        d = element.dtype if isinstance(element, ComplexOf) else self._dtype(dtype, node)
        if self.dynamic_bytes < itemsize_of(element):
            raise self.wrong(node, f"{self.dynamic_bytes} bytes of shared memory in this launch",
                             "give them: kernel[grid, block, stream, bytes]")
        if d not in self.dynamic:
            count = ex.index(self.dynamic_bytes // d.itemsize)
            self.dynamic[d] = (Memory(self.name("dynamic"), d, (count,), "shared"),
                               self.source.place(node))
        memory = self.dynamic[d][0]
        return whole(memory) if element is d else pair(in_pairs(memory))

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

    def _constant_like(self, node: ast.Call, kind: str, array: Value) -> Value:
        known = any(c.view is array for c in self.constants.values())
        if not isinstance(array, View | Fields) or not (known or self.wraps):
            raise self.wrong(node, f"gpu.const.array_like of {describe(array)}",
                             "give it a NumPy array from outside of the kernel")
        return array

    def _shared(self, node: ast.Call, kind: str, *given: Value) -> Value:
        return self._array("shared", node, *given)

    def _local(self, node: ast.Call, kind: str, *given: Value) -> Value:
        return self._array("local", node, *given)

    def _atomic(self, node: ast.Call, kind: str, array: Value, index: Value,
                *values: Value) -> Value:  # fmt: skip
        if chosen.is_chosen(array) and isinstance(array, Group):
            return chosen.apply(self, array, lambda option: self._atomic(
                node, kind, option, index, *values), node)
        scope, order = (self._one_of(v, words, node, what) for v, words, what in (
            (values[-2], ATOMIC_SCOPES, "the scope"), (values[-1], ORDERS, "the order")))
        values = values[:-2]
        if not isinstance(array, View):
            raise self.wrong(node, f"gpu.atomic.{kind} of {describe(array)}", "give it an array")
        addresses.as_stored(self, array, node)
        kind = kind.strip("_")
        if kind == "compare_and_swap":
            kind, index, values = "cas", Group((Known(0),) * len(array.axes)), (index, *values)
        if kind in ("nanmin", "nanmax") and not array.memory.dtype.is_float:
            kind = kind[3:]
        d = array.memory.dtype
        if kind in (("and", "or", "xor", "inc", "dec") if d.is_float else
                    ("add", "sub", "min", "max", "inc", "dec") if d.is_bool else ()):
            raise self.wrong(node, f"gpu.atomic.{kind} of {d.name} elements",
                             "floats have add, sub, min, max, exch and cas; bools and_, or_, xor, "
                             "exch and cas; integers all")
        if array.readonly:
            raise self.wrong(node, f"{array.memory.name} is read-only")
        keys = index.items if isinstance(index, Group) else (index,)
        element = self.part(array, [(node.args[1] if len(node.args) > 1 else node, k)
                                    for k in keys], node)
        if element.axes:
            raise self.wrong(node, f"{len(keys)} indices into an array of "
                             f"{axes_of(len(array.axes))}")
        given = [scalars.convert(self.scalar(v, node), d) for v in values]
        var = self.fresh("old", d)
        compare = given[0] if kind == "cas" else None
        self.emit(Atomic(var, kind, element.memory, element.starts, given[-1], compare, scope,
                         order), node)
        return var

    def _one_of(self, value: Value, words: tuple[str, ...], node: ast.AST, what: str) -> str:
        """Return a word that must be known when the kernel is compiled."""
        found = value.value if isinstance(value, Known) else None
        if not isinstance(found, str) or found not in words:
            raise self.wrong(node, f"{describe(value)} as {what}", "one of " + ", ".join(words))
        return found


def _is_of_tensors(function: Callable[..., Any]) -> bool:
    """Whether a function is one of Weft's own that works on tensors."""
    module = function.__module__ or ""
    return module.startswith("weft.") and not module.startswith(
        ("weft.frontend.kernel.", "weft.compat."))


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


_BUILTINS: Final[dict[Any, Callable[..., Value]]] = {
    range: Calls._range, len: Calls._len, max: Calls._max, min: Calls._min, abs: Calls._abs,
    round: Calls._round, pow: Calls._pow, divmod: Calls._divmod, sum: Calls._sum,
    tuple: Calls._tuple_of, enumerate: Calls._enumerate, zip: Calls._zip, print: Calls._print,
    isinstance: structs.is_instance, breakpoint: lambda _, __: Known(None),
    operator.index: lambda self, node, value: self.scalar(value, node),
}  # fmt: skip


def _operators() -> None:
    """Let the functions of `operator` mean their operators."""
    binary = {"add": ast.Add, "sub": ast.Sub, "mul": ast.Mult, "truediv": ast.Div,
              "floordiv": ast.FloorDiv, "mod": ast.Mod, "pow": ast.Pow, "and_": ast.BitAnd,
              "or_": ast.BitOr, "xor": ast.BitXor, "lshift": ast.LShift,
              "rshift": ast.RShift}  # fmt: skip
    compare = {"lt": ast.Lt, "le": ast.LtE, "gt": ast.Gt, "ge": ast.GtE, "eq": ast.Eq,
               "ne": ast.NotEq}  # fmt: skip
    for name, kind in binary.items():
        _BUILTINS[getattr(operator, name)] = (
            lambda self, node, a, b, kind=kind: operators.operate(self, kind, a, b, node))
        in_place = getattr(operator, "i" + name.rstrip("_"), None)
        if in_place is not None:
            _BUILTINS[in_place] = _BUILTINS[getattr(operator, name)]
    for name, test in compare.items():
        _BUILTINS[getattr(operator, name)] = (
            lambda self, node, a, b, test=test: operators.compare(self, test, a, b, node))


_operators()
INTRINSICS: Final[dict[str, Callable[..., Value]]] = {
    "grid": Calls._grid, "gridsize": Calls._grid, "syncthreads": Calls._barrier,
    "const": Calls._constant_like, "shared": Calls._shared, "local": Calls._local,
    "atomic": Calls._atomic,
}  # fmt: skip


def _rare_intrinsics() -> None:
    """Add those that few kernels call."""
    with importing:
        from weft.frontend.kernel import matrix, vectors, warp

    INTRINSICS.update({**warp.LOWERED, **matrix.LOWERED, **vectors.LOWERED})


VISIT[ast.Call] = Calls._call  # type: ignore[assignment]
