"""What every builder has: the program it writes, places, values and parameters."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, NoReturn

from weft.errors import KernelError, Opened, outermost_methods
from weft.ir import dtype as dt
from weft.ir import expr as ex
from weft.ir.dtype import DType
from weft.ir.expr import Expr
from weft.ir.stmt import Alloc, Kernel, Memory, Meta, Store
from weft.ir.stmt import Body as Stmts
from weft.lang.builder.blocks import Blocks, Body, Return
from weft.lang.builder.lowering import Lowering
from weft.lang.builder.parameters import Signature
from weft.lang.builder.places import At, BuiltSource, Place, place_of, positioned
from weft.lang.builder.values import Array, Reduction, Scalar, Variable
from weft.lang.core import scalars
from weft.lang.core.element_types import as_dtype
from weft.lang.core.values import Group, Known, Value, View, whole
from weft.lang.source.source import Problems, Stop

__all__ = ["Base", "Device"]

_NAMES: Final = {d.name: d for d in dt.ALL}


class Device:
    """A device function: what it does is written anew at each call of it.

    Made by `weft.build.device`. Its `emit` is called with a value for each parameter and gives the
    result back, or says it by ``return_``.
    """

    def __init__(self, name: str, params: dict[str, DType | None], returns: DType | None,
                 emit: Callable[..., Any]) -> None:  # fmt: skip
        self.name, self.params, self.returns, self.emit = name, params, returns, emit

    def __repr__(self) -> str:
        return f"<weft.build device function {self.name}>"


@outermost_methods
class Base:
    """One program that is being written.

    Every method takes ``at=``, the place in the source of the other language: ``(file, line)``,
    ``(file, line, column)`` or ``(file, line, column, end column)``, counted from 1. Without it
    the place of the nearest ``with f.at(...)`` counts, else the line of Python that calls.
    """

    threads = False  # whether it is written for one thread of many

    def __init__(self, name: str, at: At | None = None, *, fastmath: bool = False,
                 unchecked: bool = False) -> None:  # fmt: skip
        if not isinstance(name, str) or not name.isidentifier():
            raise KernelError("build", found=f"the name {name!r}", expected="an identifier",
                              where=_where(place_of(at)))
        self.name, self.fastmath = name, fastmath
        self.position: Place | None = None
        self._place = place_of(at)
        self._source = BuiltSource(name, self._place)
        self._problems = Problems(name)
        self._low = Lowering(self._source, self._problems)
        self._low.checked = not unchecked
        self._blocks = Blocks(self._low)
        self._signature = Signature(self._low)
        self._calls: list[Device] = []
        self._homes: dict[Memory, int] = {}  # depth at which variables and arrays are declared
        self._parallel: list[tuple[Expr, ...]] = []
        self._ended = False
        self._waiting: list[tuple[Opened[Any], str, Place]] = []  # for their with statements
        self._program: Any = None
        self._frame = Return(name)
        self._body = self._blocks.open(Body(self._place, frame=self._frame))
        self._specials()

    def _specials(self) -> None:
        """Enter what is known of the launch: nothing in a function."""

    # --- the program

    def __enter__(self) -> Any:
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if error is None and self._program is None:
            self.build()
        self._ended = True

    @property
    def program(self) -> Any:
        """The finished program."""
        if self._program is None:
            raise self._misuse(f"{self.name} is not finished", None, "leave its with statement")
        return self._program

    def _finish(self) -> tuple[Stmts, Signature]:
        """Close the function; return its body."""
        with self._reading(None) as place:
            for body, name, where in self._waiting:
                if not body.entered:
                    raise self._low.wrong(where, f"{name}() without a with statement: nothing is "
                                          "in it", f"with {name}(...): and its statements")
            if self._blocks.top is not self._body:
                raise self._low.wrong(self._blocks.top.place, "a body that is still open here",
                                      "leave its with statement first")
            self._signature.check(place)
        out = self._blocks.close(self._body)
        self._ended = True
        flag = self._frame.flag
        first: list[Any] = []
        if flag is not None:
            first = [Alloc(flag), Store(flag, (), ex.const(False, dt.bool_))]
            for stmt in first:
                self._low.placed(stmt, self._place)
        return (*first, *out), self._signature

    def _kernel(self, body: Stmts, hints: tuple[tuple[str, Any], ...]) -> Kernel:
        meta = Meta("custom", fastmath=self.fastmath, hints=hints)
        return Kernel(self.name, tuple(self._signature.memories), body, meta, self._low.locations)

    def build(self) -> Any:
        """Finish the program and return it.

        Raises
        ------
        KernelError
            If a body is still open, or a declared size belongs to no array.
        """
        self._program = self._made(*self._finish())
        return self._program

    def _made(self, body: Stmts, signature: Signature) -> Any:
        raise AssertionError("functions and kernels say what they are")

    # --- places and problems

    def at(self, file: str, line: int, column: int = 1, end: int | None = None) -> Any:
        """Set the place of what has none of its own: ``with f.at("photo.img", 3): ...``."""
        place = (file, line, column) if end is None else (file, line, column, end)
        return positioned(self, place)

    @contextmanager
    def _reading(self, at: Any, *, flush: bool = True) -> Iterator[Place]:
        """Carry out one call of the builder at a place; what is wrong becomes an error."""
        place = place_of(at, self.position)
        self._source.file = place.file
        try:
            if self._ended:
                raise self._low.wrong(place, f"{self.name} has ended",
                                      "nothing can be added to a finished function")
            if flush:
                self._blocks.flush()
            yield place
        except Stop:
            self._fail()

    def _fail(self) -> NoReturn:
        try:
            self._problems.check()
        finally:
            self._problems.found = []
        raise AssertionError("a stop without a problem")

    def _misuse(self, message: str, at: Any, hint: str = "") -> KernelError:
        place = place_of(at, self.position)
        self._source.file = place.file
        self._problems.note(self._source, place, message, hint)
        try:
            self._problems.check()
        except KernelError as error:
            self._problems.found = []
            return error
        raise AssertionError("a problem that is none")

    def _value(self, value: Any, place: Place) -> Value:
        """Return what somebody gave as a value of kernels."""
        low = self._low
        if isinstance(value, Reduction):
            value = value.result
        if isinstance(value, Scalar | Variable | Array) and value.builder is not self:
            raise low.wrong(place, f"a value of {value.builder.name}",
                            f"it is used in {self.name}: pass it as a parameter")
        if isinstance(value, Variable):
            return self._read(value, place)
        if isinstance(value, Scalar):
            if not low.is_visible(value.expr):
                raise low.wrong(place, "a value that was made in a body which is closed",
                                "keep it in a variable that is declared outside")
            return value.expr
        if isinstance(value, Array):
            if not low.is_visible(value.view.memory):
                raise low.wrong(place, f"{value.name} belongs to a body which is closed")
            return value.view
        if isinstance(value, bool | int | float) or low.known_scalar(value) is not None:
            found = low.known_scalar(value)
            if found is None:
                raise low.wrong(place, f"{scalars.shown(value)} does not fit 64 bits")
            return Known(value)
        if isinstance(value, str) or value is None or isinstance(value, DType):
            return Known(value)
        if isinstance(value, tuple | list):
            return Group(tuple(self._value(v, place) for v in value))
        if as_dtype(value) is not None:
            return Known(as_dtype(value))
        raise low.wrong(place, f"expected a value of the program, found {type(value).__name__}",
                        "numbers, and what a builder has given back")

    def _scalar(self, value: Any, place: Place, what: str = "a number") -> Expr:
        return self._low.scalar(self._value(value, place), place, what)

    def _dtype(self, dtype: Any, place: Place) -> DType:
        found = _NAMES.get(dtype) if isinstance(dtype, str) else as_dtype(dtype)
        if found is None:
            raise self._low.wrong(place, f"{dtype!r} is not a dtype", "such as weft.float32")
        return found

    def _typed(self, value: Any, d: DType, place: Place, what: str) -> Expr:
        """Return a number in a type; a float is no integer and no number a bool by itself."""
        x = self._scalar(value, place, what)
        if (x.dtype.is_float and not d.is_float) or (d.is_bool and not x.dtype.is_bool):
            raise self._low.wrong(place, f"{what} of {x.dtype.name} where {d.name} is expected",
                                  f"convert it: cast(x, {d.name})")
        return scalars.convert(x, d)

    def _name(self, name: Any, place: Place) -> str:
        if not isinstance(name, str) or not name:
            raise self._low.wrong(place, f"the name {name!r}", "a name is a text")
        return name.replace(".", "_")  # names with dots are those of sizes and of launches

    def _give(self, value: Value, place: Place) -> Any:
        """Return a value of kernels as one that the builder hands out."""
        if isinstance(value, Known) and value.value is None:
            return None
        if isinstance(value, Group):
            return tuple(self._give(v, place) for v in value.items)
        if isinstance(value, View):
            return Array(self, value.memory.name, value)
        return Scalar(self, self._low.scalar(value, place))

    # --- parameters

    def size(self, name: str, *, at: At | None = None) -> Scalar:
        """Declare a size that axes of arrays have in common; a call takes it from the arrays."""
        with self._reading(at) as place:
            return Scalar(self, self._signature.size(self._name(name, place), place))

    def array(self, name: str, dtype: Any, shape: int | Sequence[Any], *, writable: bool = False,
              at: At | None = None) -> Array:  # fmt: skip
        """Declare a parameter that is an array without gaps, rows first.

        Parameters
        ----------
        name, dtype
            What it is called, and the type of its elements.
        shape
            The number of its axes, or a size for each: an int, a `size`, an expression of sizes, or
            None for any.
        writable
            Whether the program writes to it. It must not overlap another parameter then.
        at
            Its place.
        """
        with self._reading(at) as place:
            name = self._name(name, place)
            d = self._dtype(dtype, place)
            parts = (None,) * shape if type(shape) is int else shape
            if not isinstance(parts, tuple | list) or not 1 <= len(parts) <= 8:
                raise self._low.wrong(place, f"a shape of {shape!r}",
                                      "1 to 8 sizes, or the number of axes")
            sizes = [None if n is None else self._extent(n, place) for n in parts]
            memory = self._signature.array(name, d, sizes, writable, place)
            return Array(self, name, whole(memory, readonly=not writable))

    def scalar(self, name: str, dtype: Any, *, at: At | None = None) -> Scalar:
        """Declare a parameter that is a number."""
        with self._reading(at) as place:
            d = self._dtype(dtype, place)
            return Scalar(self, self._signature.scalar(self._name(name, place), d, place))

    def _extent(self, value: Any, place: Place) -> Expr:
        x = self._scalar(value, place, "a size")
        if x.dtype.is_float or x.dtype.is_bool:
            raise self._low.wrong(place, f"a size of {x.dtype.name}", "sizes are integers")
        return scalars.convert(x, dt.int64)

    def _usable(self, variable: Variable, place: Place) -> Memory:
        if variable.builder is not self:
            raise self._low.wrong(place, f"{variable.name} is a variable of "
                                  f"{variable.builder.name}")
        if not self._low.is_visible(variable.memory):
            raise self._low.wrong(place, f"{variable.name} was declared in a body that is closed")
        return variable.memory

    def _own(self, memory: Memory, name: str, place: Place) -> None:
        """Refuse to change what turns without an order would share."""
        loop = self._blocks.around(self._homes.get(memory, len(self._blocks.stack)))
        if loop is not None:
            raise self._low.wrong(place, f"{name} belongs to all turns of {loop.title}",
                                  "declare it in the loop, or use reduce()")

    def _read(self, variable: Variable, place: Place) -> Expr:
        return self._low.get(self._usable(variable, place), variable.name, place)


def _where(place: Place) -> tuple[str, int]:
    return place.file, place.lineno
