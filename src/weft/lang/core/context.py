"""What reads a kernel, as modules of values, functions and devices see it: the abstract base class.

Modules of one kind of value or of one family of functions take a `Context`, emit statements through
it, and ask it for values of operands. `weft.lang.reader` implements it, so they need not import the
reader.
"""

from __future__ import annotations

import ast
import enum
from abc import abstractmethod
from collections.abc import Callable
from typing import Any, Final

from weft.ir import expr as ex
from weft.ir.dtype import DType
from weft.ir.expr import Expr
from weft.ir.op import Op
from weft.ir.stmt import Location, Memory
from weft.lang.core import scalars
from weft.lang.core.element_types import Element, as_dtype
from weft.lang.core.emitter import Emitter
from weft.lang.core.hints import instead, title
from weft.lang.core.intrinsics import Everyone
from weft.lang.core.values import Constant, Known, Members, Value, View, Wrong, describe
from weft.lang.source.source import Problems, Source, Stop

__all__ = ["VISIT", "Context"]
_NUMBERS: Final = (bool, int, float)
VISIT: Final[dict[type[ast.AST], Callable[[Any, Any], Value]]] = {}  # how each node is read


class Context(Emitter):
    """The reader of a kernel: emits statements, and returns the values of expressions.

    Attributes
    ----------
    after : list of frozenset of str
        Names that are read behind each open statement.
    assigned : frozenset of str
        All names that the function assigns.
    dynamic : dict of DType to (Memory, Location)
        Arrays over the shared memory that a launch gives, and where they were asked for.
    dynamic_bytes : int
        Its size.
    warp : int
        Threads of a warp of the device.
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
    stoppable : bool
        Whether an interrupt may stop loops that are not known to end.
    sanitised : bool
        Whether the kernel is written for the sanitiser, which finds wrong indices when it runs.
    """

    after: list[frozenset[str]]
    assigned: frozenset[str] = frozenset()
    dynamic: dict[DType, tuple[Memory, Location]]
    dynamic_bytes: int = 0
    warp: int = 32

    def __init__(self, source: Source, problems: Problems) -> None:
        super().__init__(source, problems)
        self.env: dict[str, Value | Memory] = {}
        self.wraps = False
        self.flat = False
        self.checked = True
        self.fma: bool | None = False
        self.strict = False
        self.stoppable = False
        self.kept: list[Any] = []
        self.unlike: dict[str, str] = {}  # names that hold one kind of thing here, another there
        self.members: dict[Any, Members] = {}  # by class, of what names may mean
        self.constants: dict[int, Constant] = {}  # by the identity of the array
        self.lists: dict[int, tuple[list[Any], Any]] = {}  # by identity, with arrays of them

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

    def known_scalar(self, value: Any) -> Expr | None:
        """Return a Python or NumPy number as a constant."""
        if isinstance(value, _NUMBERS) and type(value) in _NUMBERS:
            return scalars.literal(value)
        if isinstance(value, enum.IntEnum | Everyone):
            return scalars.literal(int(value))
        if isinstance(value, enum.Enum) and isinstance(value, float):
            return scalars.literal(float(value))
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

    # --- what the reader implements

    @abstractmethod
    def among(self, values: list[Any], key: Expr, node: ast.AST) -> Value:
        """Return the value at an index among several: numbers, arrays, or tuples of them."""

    @abstractmethod
    def arguments(self, node: ast.Call) -> tuple[list[Value], dict[str, Value]]:
        """Return the values of the arguments of a call."""

    @abstractmethod
    def attribute(self, owner: Value, node: ast.Attribute) -> Value:
        """Return the attribute of a value."""

    @abstractmethod
    def branches(self, test: Expr, then: Callable[[], int], orelse: Callable[[], int],
                 node: ast.AST, leaves: tuple[bool, bool] = (False, False)) -> int:  # fmt: skip
        """Read two branches, and merge what names hold behind them."""

    @abstractmethod
    def call_object(self, callee: Any, node: ast.Call) -> Value:
        """Return what a call of a Python object means in a kernel."""

    @abstractmethod
    def condition(self, node: ast.expr) -> Expr | bool:
        """Return whether an expression is true: a bool scalar, or a bool that is known."""

    @abstractmethod
    def element_of(self, value: Value, node: ast.AST) -> Element:
        """Return the type of elements, which may be more than a number, that a value names."""

    @abstractmethod
    def field(self, owner: Value, name: str, node: ast.AST) -> Value:
        """Return the field of a struct."""

    @abstractmethod
    def index_of(self, name: str, node: ast.AST) -> Expr:
        """Return an index or a size of the launch as an int64."""

    @abstractmethod
    def inline(self, function: Any, args: list[Value], named: dict[str, Value],
               node: ast.AST) -> Value:  # fmt: skip
        """Return the result of a device function, whose body is read in place of the call."""

    @abstractmethod
    def is_read_later(self, name: str) -> bool:
        """Return whether a name may be read behind the statement that is being read."""

    @abstractmethod
    def outside(self, value: Any, node: ast.AST) -> Value:
        """Return an object from outside of the kernel, frozen as it is now."""

    @abstractmethod
    def read(self, view: Any, node: ast.AST) -> Value:
        """Return a part of an array: a scalar once no axis is left."""

    @abstractmethod
    def select(self, test: Expr, a: Value, then: list[Any], b: Value, orelse: list[Any],
               node: ast.AST) -> Value:  # fmt: skip
        """Return one of two values, each of which may need statements of its own."""

    @abstractmethod
    def truth(self, value: Value, node: ast.AST) -> Expr | bool:
        """Return whether a value is true."""

    @abstractmethod
    def walkable(self, items: Value, node: ast.expr) -> Value:
        """Return what a loop goes over where a value is not that itself."""

    @abstractmethod
    def write(self, view: Any, value: Value, node: ast.AST) -> None:
        """Store a scalar in an element, or in every element of a part of an array."""

    @abstractmethod
    def scalar(self, value: Value, node: ast.AST, what: str = "a number") -> Expr:
        """Return a value as a scalar."""

    @abstractmethod
    def opened(self, held: Any, name: str, node: ast.AST) -> Any:
        """Return what a name holds, after reading it if it lives in cells."""

    @abstractmethod
    def part(self, view: View, parts: list[tuple[ast.expr, Value | None]],
             node: ast.AST) -> View:  # fmt: skip
        """Return the part of a view at some indices and slices (None)."""

    @abstractmethod
    def index(self, value: Value, extent: Expr, node: ast.AST) -> Expr:
        """Return an index, checked against its axis."""

    @abstractmethod
    def window(self, view: View, position: int, count: int, node: ast.AST) -> View:
        """Return a view of which the first `count` elements along an axis are there."""
