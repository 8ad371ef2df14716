"""Run-time sizes: symbolic axes of arguments, so that one capture serves all sizes.

The first call of a function captures it with its sizes as numbers. An axis that has another size at
a later call becomes a `Variable` in a capture of its own, where the function allows it: what needs
to know a size (a loop over it, a window, what is computed from it and kept) has one capture for
each, and a choice that not every size decides alike one for each range. Sizes 0 and 1 have captures
of their own always: broadcasting treats them in another way.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from types import FrameType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from weft.background import Task
from weft.capture import usage
from weft.capture.captured_graph import Entry, Packs
from weft.capture.captured_values import Argument, Overlap
from weft.capture.recapture import Family, may_be_ours
from weft.capture.symbolic import DynamicEntry
from weft.capture.symbols import Misled, Symbols
from weft.capture.usage import Usage
from weft.errors import WeftError, is_foreign, is_ours
from weft.imports import importing
from weft.ir import expr as ex
from weft.ir.expr import Expr
from weft.ir.runtime_size import Sizes
from weft.tensors.core.runtime_scalars import Scalars

if TYPE_CHECKING:
    from weft.ir.dtype import DType
    from weft.runtimes.native.calls.tally import Tally

__all__ = ["Resized", "SizeFamily", "captured", "kinds_of"]

Shapes = tuple[tuple[Any, ...], ...]
_LEAST: Final = 2
MOST_OWNED: Final = 32  # such plans of one family: loading and compiling them takes time, too
_MOST_NOTED: Final = 256
MOST_NARROWED: Final = 12  # times that a choice of a function halves the range of a size
_ROOM: Final = 256  # a variable reaches that far, or so many times its size at the capture
_ASKS: Final = ({"type"}, {"issubclass", "int"})


class Pattern(NamedTuple):
    """Shapes of arguments with variables in place of the sizes that change.

    Attributes
    ----------
    shapes : tuple of tuple of int or Expr
        The shape of each argument.
    bounds : dict of str to (int, int)
        The least and the largest value of each variable.
    """

    shapes: Shapes
    bounds: dict[str, tuple[int, int]]

    def values(self, shapes: Shapes) -> dict[str, int] | None:
        """Return the variables' values at which these are the shapes, None if there are none."""
        values: dict[str, int] = {}
        for given, wanted in zip(shapes, self.shapes, strict=True):
            for size, dim in zip(given, wanted, strict=True):
                if not isinstance(dim, Expr):
                    if size != dim:
                        return None
                elif values.setdefault(dim.attr.name, size) != size:
                    return None
        inside = all(low <= values[name] <= high for name, (low, high) in self.bounds.items())
        return values if inside else None


class Resized(NamedTuple):
    """The capture for many sizes that was called last, for calls with tensors alone.

    Attributes
    ----------
    family, pattern, base
        Where it belongs (None if its axes were declared), which sizes it takes, and itself.
    dtypes : tuple of DType
        Of the arguments.
    grad : bool
        Whether gradients are recorded.
    """

    family: SizeFamily | None
    pattern: Pattern
    base: DynamicEntry
    dtypes: tuple[DType, ...]
    grad: bool

    def at(self, shapes: Shapes, dtypes: tuple[DType, ...], grad: bool) -> DynamicEntry | None:
        """Return what serves sizes; None if that is to be found in the long way."""
        family, fits = self.family, grad is self.grad and dtypes == self.dtypes
        if not fits or (family is not None and family.has_own(shapes)) or any(
                len(a) != len(b) for a, b in zip(shapes, self.pattern.shapes, strict=True)):
            return None
        values = self.pattern.values(shapes)
        if values is None:
            return None
        ready = self.base.at(values)
        if family is not None:
            ready.usage = family.usage(shapes)
        return ready


class SizeFamily:
    """The calls that differ in nothing but sizes and numbers of their arguments.

    Attributes
    ----------
    numbers : Family
        Which numbers are open in captures with variables.
    static : collection of int
        Arrays, as positions among all of them, whose sizes the user wants to be numbers.
    refused : str
        Why sizes are numbers of captures; empty if they need not be.
    """

    def __init__(self, numbers: Family, static: Collection[int] = ()) -> None:
        self.numbers = numbers
        self._pinned = static
        self.refused = ""
        self._narrowed = 0
        self._usage: dict[Shapes, Usage] = {}
        self._owned: set[Shapes] = set()  # sizes that got plans of their own, or may have none
        self._served: set[Shapes] = set()  # those whose plans are there
        self._patterns: list[Pattern] = []
        self._first: list[Shapes] = []  # captured with their sizes as numbers
        self._static: set[Shapes] = set()

    def note(self, shapes: Shapes) -> None:
        """Note that there is a capture for these very sizes."""
        if shapes not in self._static and len(self._static) < _MOST_NOTED:
            self._static.add(shapes)
            self._first.append(shapes)

    def pattern(self, shapes: Shapes) -> tuple[Pattern, dict[str, int]] | None:
        """Return the pattern for a call and its variables' values; None: take sizes as numbers."""
        if shapes in self._static:
            return None
        for pattern in self._patterns:
            values = pattern.values(shapes)
            if values is not None:
                return pattern, values
        for known in [] if self.refused else self._first:
            made = _between(known, shapes, self._pinned)
            if made is not None:
                self._patterns.append(made)
                values = made.values(shapes)
                return None if values is None else (made, values)
        return None

    def tally(self, entry: DynamicEntry, pattern: Pattern) -> Tally:
        """Return a table in which the native dispatch of a capture counts calls by sizes."""
        with importing:
            from weft.runtimes.native.calls.tally import Tally

        made = Tally(usage.OFTEN, usage.LONG)
        for shapes in (*self._static, *self._served):
            values = pattern.values(shapes)
            if values is not None:
                made.serve(entry.place(values))
        return made

    def has_own(self, shapes: Shapes) -> bool:
        """Whether there is a plan for these very sizes."""
        return shapes in self._static or shapes in self._served

    def usage(self, shapes: Shapes) -> Usage | None:
        """Return the calls of sizes so far; None if they get no plan of their own any more."""
        if shapes in self._owned or len(self._owned) >= MOST_OWNED:
            return None
        found = self._usage.get(shapes)
        if found is None:
            if len(self._usage) >= _MOST_NOTED:
                self._usage.clear()
            found = self._usage[shapes] = Usage()
        return found

    def counts(self, base: DynamicEntry, shapes: Shapes, values: dict[str, int]) -> bool:
        """Whether it is still open if these sizes get a plan of their own."""
        is_open = shapes not in self._owned and len(self._owned) < MOST_OWNED
        if base.tally is not None and (not is_open or shapes in self._static):
            base.tally.ask(base.place(values))  # what plans of their own they have does not fit
        return is_open

    def count(self, shapes: Shapes, entry: DynamicEntry, base: DynamicEntry,
              own: Callable[[Callable[[], None], Callable[[], None]], None],
              seconds: float) -> None:  # fmt: skip
        """Note a call; if there were many, or long ones, begin a plan of these sizes' own.

        Parameters
        ----------
        entry, base
            The capture at these sizes, and for all.
        own
            Begins it, given what to call when it is ready, and if there can be none.
        seconds
            The time of the call.
        """
        entry.usage = usage = self.usage(shapes)
        if usage is None:  # another thread began one
            return
        usage.add(seconds)
        tally, place = base.tally, base.place(entry.values)
        asked = tally is not None and tally.is_counted(place)
        if not asked and not usage.is_due:
            if tally is not None:
                tally.note(place, usage.calls, usage.seconds)
            return
        self._usage.pop(shapes, None)
        self._owned.add(shapes)
        entry.usage = None
        if tally is not None:
            tally.ask(place)

        def serve() -> None:
            self._served.add(shapes)
            if base.tally is not None:
                base.tally.serve(place)

        def give_up() -> None:  # the capture with variables may have a native dispatch, after all
            entry.tries = 0

        own(serve, give_up)

    def narrowed(self, pattern: Pattern, splits: Sequence[tuple[str, int]],
                 values: Mapping[str, int]) -> Pattern | None:  # fmt: skip
        """Return the pattern for sizes that decide all comparisons alike; None: too many of them.

        Parameters
        ----------
        splits
            Variables, each with the last value before the answer to a comparison changes.
        values
            The variables' values.
        """
        bounds = dict(pattern.bounds)
        for name, last in splits:
            low, high = bounds[name]
            bounds[name] = (low, min(high, last)) if values[name] <= last else (
                max(low, last + 1), high)
        if bounds == pattern.bounds:
            return pattern
        if self._narrowed >= MOST_NARROWED:
            return None
        variables = {n: ex.Variable(n, *ends) for n, ends in bounds.items()}
        shapes = tuple([tuple([variables[d.attr.name] if isinstance(d, Expr) else d for d in shape])
                        for shape in pattern.shapes])
        return Pattern(shapes, bounds)

    def narrow(self, pattern: Pattern, made: Pattern) -> None:
        """Let a capture serve the sizes of another pattern than it was begun for."""
        if made is not pattern:
            self._narrowed += 1
            self._patterns[self._patterns.index(pattern)] = made

    def refuse(self, pattern: Pattern, reason: str) -> None:
        """Make no capture of a pattern, and no new patterns; those that are captured stay."""
        self.refused = reason
        self._patterns.remove(pattern)

def _between(known: Shapes, shapes: Shapes, pinned: Collection[int]) -> Pattern | None:
    """Return the pattern of two calls; None if a size that changes is 0 or 1 in one of them.

    None as well if an array changes that is `pinned`: its sizes are numbers.

    Axes that have equal sizes in both calls share a variable.
    """
    variables: dict[tuple[int, int], Expr] = {}
    bounds: dict[str, tuple[int, int]] = {}
    made: list[tuple[Any, ...]] = []
    for i, (old, new) in enumerate(zip(known, shapes, strict=True)):
        if i in pinned and old != new:
            return None
        dims: list[Any] = []
        for a, b in zip(old, new, strict=True):
            if a == b:
                dims.append(a)
                continue
            if min(a, b) < _LEAST:
                return None
            if (a, b) not in variables:
                name = f"n{len(variables)}"
                bounds[name] = _LEAST, max(_ROOM, 16 * (1 << (max(a, b) - 1).bit_length()))
                variables[a, b] = ex.Variable(name, *bounds[name])
            dims.append(variables[a, b])
        made.append(tuple(dims))
    return Pattern(tuple(made), bounds) if variables else None


def kinds_of(arguments: Sequence[Argument]) -> Hashable | None:
    """Return what captures depend on besides sizes; None where sizes cannot be variables."""
    if any(a.strides is not None or a.offset for a in arguments):
        return None
    return tuple([(len(a.shape), a.dtype.name, a.requires_grad, a.buffer.device)
                  for a in arguments])


class _Watch:
    """Notes a function that asks what kind of number a size is: a `with` block."""

    def __init__(self, sizes: Sizes) -> None:
        self._sizes = sizes

    def __enter__(self) -> _Watch:
        self._profiler = sys.getprofile()
        sys.setprofile(self._called)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(self._profiler)

    def _called(self, frame: FrameType, event: Any, about: object) -> None:
        if self._profiler is not None and callable(self._profiler):
            self._profiler(frame, event, about)
        code = frame.f_code
        if event != "call" or self._sizes.reason or is_ours(code.co_filename) or is_foreign(
                code.co_filename):
            return
        if any(names <= {*code.co_names} for names in _ASKS):
            self._sizes.is_misled, self._sizes.reason = True, (
                f"{code.co_filename}:{code.co_firstlineno} ({code.co_name} asks for types)")


def own(entry: DynamicEntry, publish: Callable[[Entry], object], serve: Callable[[], None],
        give_up: Callable[[], None]) -> None:  # fmt: skip
    """Compile a capture with the sizes of a call as numbers, in the background.

    Parameters
    ----------
    entry
        The capture at these sizes.
    publish, serve
        Called, in another thread, when it is ready: with the entry, and then without.
    give_up
        Called instead if there can be none: the capture with variables goes on to serve these
        sizes.
    """
    def finish() -> None:
        try:
            made = entry.plain()
        except Exception:
            give_up()
            return
        publish(made)
        serve()

    if not Task(finish).start():
        give_up()


class Found(NamedTuple):
    """What a call with sizes that change led to: `pattern` is None if it serves these alone."""

    entry: Entry
    pattern: Pattern | None


def captured(family: SizeFamily, pattern: Pattern, values: dict[str, int],
             function: Callable[..., Any], args: Any, kwargs: Any, arguments: Sequence[Argument],
             packs: Packs, scalars: Scalars | None) -> Found | None:  # fmt: skip
    """Return a capture for the sizes of a pattern, or of part of it, or for these sizes alone.

    None if the function failed, perhaps because sizes were symbols: it comes again without.
    """
    sizes = Sizes(values)

    def watched(*given: Any, **named: Any) -> Any:
        with _Watch(sizes):
            return function(*given, **named)

    def variables() -> dict[str, Any]:
        made = family.narrowed(pattern, sizes.splits, values)
        if made is None:
            sizes.reason = "it chooses by the size too often"
            return values
        return {name: ex.Variable(name, *ends) for name, ends in made.bounds.items()}

    try:
        entry = DynamicEntry(watched, args, kwargs, arguments, packs,
                             Symbols(scalars, sizes, pattern.shapes, variables))
    except Overlap:
        raise
    except Misled:
        if sizes.is_misled:
            family.refuse(pattern, sizes.reason)
        elif scalars is not None:
            family.numbers.pinned.update(scalars.reasons)
        return None
    except Exception as error:
        if not may_be_ours(error):
            raise
        family.refuse(pattern, _reason(error))
        return None
    if scalars is not None:
        family.numbers.pinned.update(scalars.reasons)
    made = None if sizes.reason else family.narrowed(pattern, sizes.splits, values)
    if made is None:
        family.refuse(pattern, sizes.reason)
    else:
        family.narrow(pattern, made)
    return Found(entry.alone() if made is None else entry, made)


def _reason(error: Exception) -> str:
    if isinstance(error, WeftError) and error.where is not None:
        return f"{error.where} ({error.message})"
    return f"{type(error).__name__}: {error}".split("\n")[0]
