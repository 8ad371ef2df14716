"""What values are in kernels: numbers, conditions, and what names hold."""

from __future__ import annotations

import ast
import enum
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final

from weft.frontend.kernel import optional, scalars
from weft.frontend.kernel.elements import as_dtype
from weft.frontend.kernel.emitter import Emitter
from weft.frontend.kernel.hints import instead, title
from weft.frontend.kernel.intrinsics import Everyone
from weft.frontend.kernel.source import Problems, Source, Stop
from weft.frontend.kernel.values import (
    Group,
    Known,
    Value,
    View,
    Wrong,
    describe,
)
from weft.imports import Late
from weft.ir import expr as ex
from weft.ir.dtype import DType
from weft.ir.expr import Expr
from weft.ir.op import Op
from weft.ir.stmt import Memory

if TYPE_CHECKING:
    from weft.frontend.kernel import constants, members, moving
else:
    moving = Late("weft.frontend.kernel.moving")

__all__ = ["VISIT", "Reading"]
_NUMBERS: Final = (bool, int, float)
VISIT: Final[dict[type[ast.AST], Callable[[Any, Any], Value]]] = {}  # how each node is read



class Reading(Emitter):
    """Reads values in an environment of names.

    Attributes
    ----------
    env : dict of str to (Value or Memory)
        What the names of the function hold here; a register cell is read when its name is used.
    wraps : bool
        Whether a negative index counts from the end, as in NumPy.
    flat : bool
        Whether every memory has one axis, so that arrays can be given another shape.
    checked : bool
        Whether accesses are checked against the bounds.
    fma : bool or None
        Whether a product and the sum it goes into are rounded once; None: where a name or an
        element is added to, as ``total += a * b`` does.
    strict : bool
        Whether a division by zero stops the kernel.
    sanitised : bool
        Whether the kernel is written for the sanitiser, which finds wrong indices when it runs.
    """

    def __init__(self, source: Source, problems: Problems) -> None:
        super().__init__(source, problems)
        self.env: dict[str, Value | Memory] = {}
        self.wraps = False
        self.flat = False
        self.checked = True
        self.fma: bool | None = False
        self.strict = False
        self.kept: list[Any] = []
        self.unlike: dict[str, str] = {}  # names that hold one kind of thing here, another there
        self.members: dict[Any, members.Members] = {}  # by class, of what names may mean
        self.constants: dict[int, constants.Constant] = {}  # by the identity of the array
        self.lists: dict[int, tuple[list[Any], Any]] = {}  # by identity, with arrays of them

    # --- values

    def visit(self, node: ast.expr) -> Value:
        """Return the value of an expression.

        Raises
        ------
        Stop
            After noting a problem.
        """
        method = VISIT.get(type(node))
        if method is None:
            raise self.wrong(node, f"{title(node)} is not supported in kernels", instead(node))
        return method(self, node)

    def visit_or_wrong(self, node: ast.expr) -> Value:
        """Return the value of an expression, after a problem in it what stands for one."""
        try:
            return self.visit(node)
        except Stop:
            return Wrong()

    def visit_all(self, nodes: Iterable[ast.expr]) -> list[Value]:
        """Return the values of expressions; what is wrong in any of them is noted."""
        values = [self.visit_or_wrong(node) for node in nodes]
        if any(isinstance(v, Wrong) for v in values):
            raise Stop
        return values

    def scalar(self, value: Value, node: ast.AST, what: str = "a number") -> Expr:
        """Return a value as a scalar."""
        if isinstance(value, Expr):
            return value
        if isinstance(value, Wrong):
            raise Stop
        if isinstance(value, Known):
            found = self.known_scalar(value.value)
            if found is not None:
                return found
        if optional.is_optional(value):
            return self.scalar(optional.number(self, value, node), node, what)
        hint = ""
        if isinstance(value, View):
            hint = "index it to get a number: kernels compute on scalars"
        elif isinstance(value, Known) and type(value.value) is int:
            hint = "the largest integers have 64 bits"
        raise self.wrong(node, f"expected {what}, found {describe(value)}", hint)

    def known_scalar(self, value: Any) -> Expr | None:
        """Return a Python or NumPy number as a constant."""
        if isinstance(value, _NUMBERS) and type(value) in _NUMBERS:
            return scalars.literal(value)
        if isinstance(value, enum.IntEnum | Everyone):
            return scalars.literal(int(value))
        d = as_dtype(getattr(value, "dtype", None)) if hasattr(value, "item") else None
        if d is not None and getattr(value, "ndim", 1) == 0:
            return ex.const(value.item(), d)
        return None

    def number_of(self, value: Any) -> Expr | None:
        """Return a value as a scalar, None if it is not one."""
        if isinstance(value, Known):
            return self.known_scalar(value.value)
        return value if isinstance(value, Expr) else None

    def alike(self, values: list[Any], kept: bool = False) -> list[Any]:
        """Give a type to values that meet; if ``kept``, the result has the sign of one of them."""
        return values

    def set_before(self, name: str) -> Value | None:
        """Return what a name holds that only an earlier turn of a loop can have set, if it may."""
        del name
        return None

    def number(self, node: ast.expr, d: DType | None = None) -> Expr:
        """Return an expression as a scalar, converted to a type if one is given."""
        found = self.scalar(self.visit(node), node)
        return found if d is None else scalars.convert(found, d)

    def opened(self, held: Any, name: str, node: ast.AST) -> Any:
        """Return what a name holds, after reading it if it lives in cells."""
        if isinstance(held, Memory):
            return self.get(held, name, node)
        if isinstance(held, Group):
            items = tuple(self.opened(v, name, node) for v in held.items)
            found = Group(items, held.names, held.kind)
            return moving.placed(found) if moving.is_moving(found) else found
        return held

    def known_int(self, value: Value, node: ast.AST, what: str) -> int:
        """Return an integer that must be known when the kernel is compiled."""
        if isinstance(value, Known) and isinstance(value.value, int) and type(
            value.value
        ) is not bool:
            return int(value.value)
        if isinstance(value, Known) and getattr(value.value, "dtype", None) is not None:
            value = self.scalar(value, node)  # of NumPy
        if isinstance(value, Expr) and value.op is Op.CONST and value.dtype.is_integer:
            return int(value.attr)
        raise self.wrong(node, f"{what} must be an integer that is known when the kernel is "
                         f"compiled, found {describe(value)}",
                         "a number, or a name from outside of the kernel")
