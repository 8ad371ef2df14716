"""Native dispatch of captures with symbolic sizes: rows that read sizes from shapes.

A call reads the values of the variables from the shapes of its arguments, and computes from them
how much memory the results take and which shapes they have. Calls are counted by their sizes: those
that come often go to Python once, which makes a plan of their own (`weft.capture.runtime_sizes`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from weft.capture import native_dispatch
from weft.capture.native_dispatch import Builder, NotNative, as_object
from weft.imports import importing
from weft.ir import expr as ex
from weft.ir.expr import Expr
from weft.ir.op import Op, Operation
from weft.tensors.core.lazy_tensor import TensorCore

if TYPE_CHECKING:
    from weft.capture.captured_graph import Entry
    from weft.capture.captured_values import Out
    from weft.driver.plans.compiled_graph import Binding
    from weft.runtimes.native.calls.dispatch import Owned, Slot
    from weft.runtimes.native.calls.tally import Tally

__all__ = ["attach"]

_ROWS: Final[Mapping[Operation, str]] = {
    Op.ADD: "add_words", Op.SUB: "subtract_words", Op.MUL: "multiply_words",
    Op.FLOORDIV: "divide_words", Op.MOD: "remainder_words", Op.MIN: "least_word",
    Op.MAX: "largest_word",
}  # fmt: skip


def attach(base: type, result: type[Out], function: Callable[..., Any], entry: Entry,
           args: tuple[Any, ...], kwargs: dict[str, Any],
           tally: Tally | None) -> bool:  # fmt: skip
    """Give a function a native dispatch for calls of any sizes of a capture; whether it got one.

    Parameters
    ----------
    tally
        Where calls are counted by their sizes; see `weft.capture.native_dispatch.attach` for the
        others.
    """
    return native_dispatch.attach(base, result, function, entry, args, kwargs,
                         functools.partial(_SizedBuilder, tally=tally))


class _SizedBuilder(Builder):
    """The rows of a dispatch for all sizes of a capture."""

    def __init__(self, entry: Entry, binding: Binding, out: type[Out], *,
                 tally: Tally | None) -> None:  # fmt: skip
        super().__init__(entry, binding, out)
        with importing:
            from weft.runtimes.native.calls import objects

        self._modes = objects
        self._tally = tally
        self._variables: dict[str, Expr] = {}
        self._dims: dict[Expr, Any] = {}  # the words with sizes
        self._shapes: dict[tuple[Any, ...], Owned] = {}
        self._timed: tuple[int, int] | None = None

    def build(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Owned:
        """Add all rows, and return the word with the result."""
        made = super().build(args, kwargs)
        if self._timed is not None:
            self.program.finish("spent", *self._timed)
        return made

    def _axes(self, number: int) -> list[Any]:
        """Return what the sizes of an argument have to be; those that are new are read."""
        found: list[Any] = []
        for dim in self.entry.leaf_nodes[number].shape:
            if not isinstance(dim, Expr):
                found += [dim, 0]
                continue
            if dim.op is not Op.VARIABLE:
                raise NotNative
            name = dim.attr.name
            known = name in self._variables
            if not known:
                self._variables[name] = dim
                place = self.binding.variables.get(name)
                self._dims[dim] = self.program.words() if place is None else place
            found += [self._modes.KNOWN if known else self._modes.READ, self._dims[dim]]
        return found

    def _spec(self, word: int, value: TensorCore) -> None:
        table = self.program.table(self._axes(len(self.arguments) - 1))
        self.program.check("sized_spec", word, type(value), len(value.shape), table, value.dtype,
                           value._requires_grad)

    def _source(self, word: int, value: Any, changes: bool) -> bool:
        new = super()._source(word, value, changes)
        if new and not isinstance(value, TensorCore):
            self._read_array(self.program.check, len(self.arguments) - 1, 0, 0, 0)
        return new

    def _meet_sizes(self) -> None:
        """Check the values of all variables, count the call, and choose the arena's layout."""
        binding, program = self.binding, self.program
        for name, variable in self._variables.items():
            program.check("between", self._dims[variable], variable.attr.min, variable.attr.max)
            if self._tally is not None and name not in binding.variables:
                raise NotNative  # sizes are counted by the plan's variables
        if not binding.variables.keys() <= self._variables.keys():
            raise NotNative
        first = next(iter(binding.variables.values()), None)
        if self._tally is not None and first is not None:
            self._timed = program.words(), program.words()
            program.keep(self._tally)
            program.check("tally", self._tally.address, first, len(binding.variables),
                          *self._timed)
        if binding.layouts is not None and first is not None:
            program.chosen, nbytes = program.words(), program.words()
            program.check("layout", binding.layouts.address, first, program.chosen, nbytes)
            if binding.place is not None:
                program.allocate_sized(nbytes, binding.place)

    def _guard(self, word: Owned, guard: Any) -> None:
        if type(guard) is tuple and any(isinstance(dim, Expr) for dim in guard[0]):
            raise NotNative
        super()._guard(word, guard)

    def _dim(self, size: Expr) -> Any:
        """Return the word with a size, which is computed before the run."""
        program = self.program
        for e in ex.toposort([size]):
            if e in self._dims:
                continue
            if e.op is Op.CONST:
                word = program.words()
                program.check("set", word, e.attr)
            elif e.op in _ROWS:
                word = program.words()
                program.check(_ROWS[e.op], word, *[self._dims[a] for a in e.args])
            else:
                raise NotNative
            self._dims[e] = word
        return self._dims[size]

    def _allocate(self, nbytes: Any, slot: Slot) -> Owned:
        if isinstance(nbytes, Expr):
            return self.program.allocate_sized(self._dim(nbytes), slot)
        return super()._allocate(nbytes, slot)

    def _blocks(self, add: Any, generator: Any, blocks: Any, word: int) -> None:
        if isinstance(blocks, Expr):
            number = self.program.owned()
            add("make_number", number, self._dim(blocks))
            add("draw", generator, number, word)
        else:
            super()._blocks(add, generator, blocks, word)

    def _made(self, out: Out, outputs: Sequence[Owned]) -> Owned:
        shape: tuple[Any, ...] = out.shape
        if not any(isinstance(dim, Expr) for dim in shape):
            return super()._made(out, outputs)
        program = self.program
        made = self._shapes.get(shape)
        if made is None:
            items = [word for dim in shape for word in (
                (1, self._dim(dim)) if isinstance(dim, Expr) else (0, as_object(dim)))]
            made = self._shapes[shape] = program.owned()
            program.finish("make_shape", made, len(shape), program.table(items))
        word = program.owned()
        program.finish("sized_result", word, outputs[out.slot], made, out.dtype)
        return word

    def _constant(self, value: object) -> Owned:
        if not isinstance(value, Expr):
            return super()._constant(value)
        word = self.program.owned()
        self.program.finish("make_number", word, self._dim(value))
        return word
