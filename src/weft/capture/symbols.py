"""Symbols of a capture for sizes and numbers, and their resolution when it ends.

The function runs once. It computes with symbols where it can; where it needs a number it gets the
one of this capture, which is noted (`weft.tensors.core.runtime_scalars`, `weft.ir.runtime_size`).
Then it is decided for which values the capture is right, and nothing that outlives it holds a
symbol.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, cast

from weft.capture.capture import Recorder
from weft.capture.captured_graph import Entry
from weft.capture.captured_values import Argument, Out
from weft.capture.escapes import replace_everywhere
from weft.capture.pytree import with_items
from weft.capture.specialization import specialize
from weft.errors import made
from weft.ir import node as nd
from weft.ir.expr import Expr
from weft.ir.node import Dim
from weft.ir.op import Op
from weft.ir.runtime_size import RuntimeSize, Sizes
from weft.tensors.core.runtime_scalars import Scalars, is_given, is_stand_in, number_of, roots_of

__all__ = ["STORED", "Misled", "Symbols"]

STORED = "the function keeps what it computes from it"
CAUGHT = "the function catches an error"


class Misled(Exception):
    """The function may have done other things than it does with plain numbers."""


class Symbols:
    """What an `Entry` asks around the one call of its function.

    Parameters
    ----------
    scalars : Scalars or None
        Open numbers.
    sizes : Sizes or None
        Symbolic sizes.
    shapes : sequence of tuple, optional
        The shape of each argument, with variables.
    variables : callable, optional
        Gives the variables, by name, that the capture is compiled with: those of its symbols are
        of one capture, and nobody else's.
    """

    def __init__(self, scalars: Scalars | None, sizes: Sizes | None = None,
                 shapes: Sequence[tuple[Any, ...]] = (),
                 variables: Callable[[], Mapping[str, Dim]] = dict) -> None:  # fmt: skip
        self.scalars, self.sizes = scalars, sizes
        self._shapes, self._variables = shapes, variables
        self._errors = made.count

    @property
    def live(self) -> AbstractContextManager[object]:
        """A block in which sizes are symbolic."""
        return nullcontext() if self.sizes is None else self.sizes

    def given(self, arguments: Sequence[Argument]) -> Sequence[Argument]:
        """Return the arguments with symbolic sizes."""
        sizes = self.sizes
        if sizes is None:
            return arguments
        made: dict[Expr, Expr] = {}
        given: list[Argument] = []
        for argument, shape in zip(arguments, self._shapes, strict=True):
            dims: list[Any] = []
            for dim in shape:
                if isinstance(dim, Expr) and dim not in made:
                    made[dim] = sizes.variable(dim)
                dims.append(made[dim] if isinstance(dim, Expr) else dim)
            given.append(argument._replace(shape=tuple(dims), span=cast(int, nd.size(tuple(dims)))))
        return given

    def resolve(self, entry: Entry, recorder: Recorder) -> None:
        """Make constants of what the function needed; sizes are symbolic still.

        Raises
        ------
        Misled
            If the capture has to be made without symbols.
        """
        if made.count != self._errors:  # plain numbers might have led it another way
            if self.sizes is not None:
                self.sizes.is_misled = True
                self.sizes.reason = self.sizes.reason or CAUGHT
            if self.scalars is not None:
                self.scalars.note(CAUGHT)
            raise Misled
        if any(s is not None and s.is_misled for s in (self.scalars, self.sizes)):
            raise Misled
        if self.scalars is not None:
            for value in _stand_ins(entry.template):
                self.scalars.note("it is a result of the function", roots_of(value))
        if self.sizes is not None:
            recorder.fix_sizes(self.sizes.values)
        specialize(entry, self._values(), self.scalars)
        recorder.forget()

    def finish(self, entry: Entry) -> None:
        """Leave no symbol with anybody; keep no capture for other values of what was stored."""
        if not self._kept():
            return
        gc.collect()  # what a function leaves in cycles nobody has
        kept = self._kept()
        if not kept:
            return
        alters = _holds_objects(entry.template)
        for value in kept:
            if isinstance(value, RuntimeSize):
                if self.sizes is not None and (alters or value.op is not Op.VARIABLE):
                    self.sizes.reason = self.sizes.reason or STORED
            elif self.scalars is not None and (alters or not is_given(value)):
                self.scalars.note(STORED, roots_of(value))
        _replace(kept)
        specialize(entry, self._values(), self.scalars)

    def abandon(self) -> None:
        """Leave no symbol with anybody where there is no capture."""
        _replace(self._kept())

    def _values(self) -> Mapping[str, Dim]:
        if self.sizes is None or self.sizes.reason:
            return {} if self.sizes is None else self.sizes.values
        return self._variables()

    def _kept(self) -> list[Any]:
        found: list[Any] = [] if self.scalars is None else self.scalars.kept
        return found if self.sizes is None else [*found, *self.sizes.kept]


def _replace(kept: list[Any]) -> None:
    plain = {id(v): (v, v.value if type(v) is RuntimeSize else number_of(v)) for v in kept}
    kept.clear()
    replace_everywhere(plain)


def _stand_ins(template: Any) -> list[Any]:
    found: list[Any] = []

    def look(value: Any) -> Any:
        if is_stand_in(value):
            found.append(value)
        return value if isinstance(value, Out) else with_items(value, look)

    look(template)
    return found


def _holds_objects(template: Any) -> bool:
    """Whether a result is more than tensors, numbers and containers: it may hold anything."""
    found = False

    def look(value: Any) -> Any:
        nonlocal found
        found = found or not (isinstance(value, _PLAIN) or value is None)
        return value if isinstance(value, Out) else with_items(value, look)

    look(template)
    return found


_PLAIN = (bool, int, float, complex, str, bytes, tuple, list, dict)
