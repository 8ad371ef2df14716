"""What a builder hands out: typed scalars, arrays and variables, which know their builder."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from weft.errors import KernelError, outermost, outermost_methods
from weft.ir.dtype import DType
from weft.ir.expr import Expr
from weft.ir.stmt import Memory
from weft.lang.core.values import View

if TYPE_CHECKING:
    from weft.lang.builder.places import At

__all__ = ["Array", "Reduction", "Scalar", "Variable"]


def _operator(kind: type[ast.AST], *, reflected: bool = False) -> Callable[[Any, Any], Any]:
    def apply(self: Any, other: Any) -> Any:
        a, b = (other, self) if reflected else (self, other)
        return self.builder._operate(kind, a, b, None)

    return apply


def _unary(kind: type[ast.AST]) -> Callable[[Any], Any]:
    def apply(self: Any) -> Any:
        return self.builder._operate_unary(kind, self, None)

    return apply


@outermost_methods
class _Operand:
    """What Python's operators work on: they write the operation at the builder's own place."""

    __slots__ = ()

    builder: Any

    __hash__ = object.__hash__
    __add__, __radd__ = _operator(ast.Add), _operator(ast.Add, reflected=True)
    __sub__, __rsub__ = _operator(ast.Sub), _operator(ast.Sub, reflected=True)
    __mul__, __rmul__ = _operator(ast.Mult), _operator(ast.Mult, reflected=True)
    __truediv__, __rtruediv__ = _operator(ast.Div), _operator(ast.Div, reflected=True)
    __floordiv__ = _operator(ast.FloorDiv)
    __rfloordiv__ = _operator(ast.FloorDiv, reflected=True)
    __mod__, __rmod__ = _operator(ast.Mod), _operator(ast.Mod, reflected=True)
    __pow__, __rpow__ = _operator(ast.Pow), _operator(ast.Pow, reflected=True)
    __and__, __rand__ = _operator(ast.BitAnd), _operator(ast.BitAnd, reflected=True)
    __or__, __ror__ = _operator(ast.BitOr), _operator(ast.BitOr, reflected=True)
    __xor__, __rxor__ = _operator(ast.BitXor), _operator(ast.BitXor, reflected=True)
    __lshift__, __rlshift__ = _operator(ast.LShift), _operator(ast.LShift, reflected=True)
    __rshift__, __rrshift__ = _operator(ast.RShift), _operator(ast.RShift, reflected=True)
    __lt__, __le__ = _operator(ast.Lt), _operator(ast.LtE)
    __gt__, __ge__ = _operator(ast.Gt), _operator(ast.GtE)
    __eq__, __ne__ = _operator(ast.Eq), _operator(ast.NotEq)
    __neg__, __pos__, __invert__ = _unary(ast.USub), _unary(ast.UAdd), _unary(ast.Invert)

    def __bool__(self) -> bool:
        """Refuse: it has no value while the program is built."""
        raise KernelError("build", found="a value of the program as a condition of Python",
                          expected="if_(condition), select(condition, a, b), & or |")


@outermost_methods
class Scalar(_Operand):
    """A number of the program: an expression with a type.

    Attributes
    ----------
    dtype : DType
        Its type.
    """

    __slots__ = ("builder", "expr")

    def __init__(self, builder: Any, expr: Expr) -> None:
        self.builder, self.expr = builder, expr

    @property
    def dtype(self) -> DType:
        """Its type."""
        return self.expr.dtype

    def __repr__(self) -> str:
        return f"<{self.expr.dtype.name} scalar>"


@outermost_methods
class Variable(_Operand):
    """A number that can change; used as an operand it is read there and then.

    Attributes
    ----------
    name : str
        What it was declared as.
    dtype : DType
        Its type, which values that it is given are converted to.
    """

    __slots__ = ("builder", "memory", "name")

    def __init__(self, builder: Any, name: str, memory: Memory) -> None:
        self.builder, self.name, self.memory = builder, name, memory

    @property
    def dtype(self) -> DType:
        """Its type."""
        return self.memory.dtype

    def get(self, *, at: Any = None) -> Scalar:
        """Return what it holds now."""
        found: Scalar = self.builder._get(self, at)
        return found

    def set(self, value: Any, *, at: Any = None) -> None:
        """Give it a value."""
        self.builder._set(self, value, at)

    def __repr__(self) -> str:
        return f"<{self.dtype.name} variable {self.name}>"


@outermost_methods
class Array:
    """An array of the program: a parameter, or local or shared memory.

    ``a[i, j]`` reads an element and ``a[i, j] = x`` writes one, at the builder's own place; `load`
    and `store` of the builder take a place of their own.

    Attributes
    ----------
    name : str
        What it was declared as.
    dtype : DType
        Type of its elements.
    shape : tuple of Scalar
        Sizes of its axes.
    """

    __slots__ = ("builder", "name", "shape", "view")

    def __init__(self, builder: Any, name: str, view: View) -> None:
        self.builder, self.name, self.view = builder, name, view
        self.shape = tuple(Scalar(builder, n) for n in view.shape)

    @property
    def dtype(self) -> DType:
        """Type of its elements."""
        return self.view.memory.dtype

    @property
    def ndim(self) -> int:
        """Number of its axes."""
        return len(self.shape)

    def __getitem__(self, index: Any) -> Scalar:
        parts = index if isinstance(index, tuple) else (index,)
        found: Scalar = self.builder.load(self, *parts)
        return found

    def __setitem__(self, index: Any, value: Any) -> None:
        self.builder.store(self, index, value)

    def __iter__(self) -> Any:
        raise KernelError("build", found=f"a walk of Python through {self.name}",
                          expected="loop(array.shape[0])")

    def __repr__(self) -> str:
        return f"<{self.dtype.name} array {self.name} of {self.ndim} axes>"


@outermost_methods
class Reduction:
    """An open reduction: `update` takes a value for each point; then `result` is there.

    Attributes
    ----------
    indices : tuple of Scalar
        The point.
    """

    def __init__(self, builder: Any, kind: str, dtype: DType) -> None:
        self._builder, self.kind, self.dtype = builder, kind, dtype
        self.indices: tuple[Scalar, ...] = ()
        self.value: Expr | None = None
        self._result: Expr | None = None

    def update(self, value: Any, *, at: At | None = None) -> None:
        """Take the value of this point; once for each, and not under a condition."""
        self._builder._update(self, value, at)

    @property
    @outermost
    def result(self) -> Scalar:
        """The reduced value, behind the reduction."""
        if self._result is None:
            raise KernelError("build", found="the result of a reduction inside of it",
                              expected="its result behind the with statement")
        return Scalar(self._builder, self._result)
