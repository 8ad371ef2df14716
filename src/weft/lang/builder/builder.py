"""Builders: conditions, loops, reductions, jumps and calls of device functions."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from weft.errors import outermost_methods
from weft.ir import dtype as dt
from weft.ir import expr as ex
from weft.ir.dtype import DType
from weft.ir.expr import Expr
from weft.ir.op import Op
from weft.ir.stmt import (
    LEFT,
    SERIAL,
    UNROLLED,
    VECTOR,
    Accumulator,
    Axis,
    Block,
    Let,
    Print,
    Reduce,
    lhs,
    rhs,
)
from weft.lang.builder.base import Device
from weft.lang.builder.blocks import FALLS, Body, Loop, Return
from weft.lang.builder.operations import Operations
from weft.lang.builder.places import At, Place, opens
from weft.lang.builder.values import Array, Reduction, Scalar
from weft.lang.core.emitter import conjuncts, negation
from weft.lang.core.kind import kind_of
from weft.lang.core.values import Known, Range, Value
from weft.lang.values.ranges import range_of

__all__ = ["Builder"]

_KINDS: Final = (SERIAL, VECTOR, UNROLLED)
_MOST_UNROLLED: Final = 1024
_DEPTH: Final = 64


@outermost_methods
class Builder(Operations):
    """Writes one function, statement after statement; see `weft.build.function`.

    Every method takes ``at=``, the place in the source of the other language: ``(file, line)``,
    ``(file, line, column)`` or ``(file, line, column, end column)``, counted from 1. Without it
    the place of the nearest ``with f.at(...)`` counts, else the line of Python that calls.
    """

    # --- conditions and loops

    @contextmanager
    def _within(self, body: Body, facts: Any = ()) -> Iterator[Body]:
        """Hold a body open; an error in it closes it without a statement."""
        self._blocks.open(body, facts)
        try:
            yield body
        except BaseException:
            self._blocks.drop(body)
            raise

    @opens
    def if_(self, condition: Any, *, at: At | None = None) -> Iterator[None]:
        """Open what runs where a condition holds; ``else_`` may follow."""
        with self._reading(at) as place:
            test = self._condition(condition, place)
        with self._within(Body(place), conjuncts(test)) as body:
            yield
            with self._reading(place):
                pass
        self._blocks.branch(test, body)

    @opens
    def else_(self, *, at: At | None = None) -> Iterator[None]:
        """Open what runs where the condition of the ``if_`` just before does not hold."""
        with self._reading(at, flush=False) as place:
            pending = self._blocks.take_pending(complete=False)
            if pending is None:
                raise self._low.wrong(place, "else without an if before it")
        with self._within(Body(place), conjuncts(negation(pending.test))) as body:
            yield
            with self._reading(place):
                pass
        self._blocks.other(pending, body)

    @opens
    def loop(self, start: Any, stop: Any = None, step: Any = 1, *, kind: str = SERIAL,
             name: str = "i", at: At | None = None) -> Iterator[Scalar]:  # fmt: skip
        """Open a loop over ``range(start, stop, step)``, or ``range(start)``; give its index.

        Kinds: ``serial``; ``vector`` (turns do not depend on each other and may be lanes; a
        power of two from 2 to 64); ``unrolled`` (written out; up to 1024 turns). The last two need
        a number of turns that is known, and cannot be left early.
        """
        with self._reading(at) as place:
            if kind not in _KINDS:
                raise self._low.wrong(place, f"a loop of kind {kind!r}", "one of "
                                      + ", ".join(_KINDS))
            first, last = (0, start) if stop is None else (start, stop)
            low = self._low
            ends = [self._extent(v, place) for v in (first, last, step)]
            items = range_of(low, place, *ends)  # type: ignore[arg-type]
            assert isinstance(items, Known)
            extent, item = kind_of(items).iterate(low, items, place)  # type: ignore[arg-type]
            self._known_iterations(kind, extent, place)
            if extent.op is not Op.CONST:
                extent = low.bind(extent, "extent", place)
            var = ex.var(low.name(self._name(name, place)), dt.int64)
        loop = Loop(f"a loop that is {kind}", kind == SERIAL, kind == UNROLLED)
        with self._within(Body(place, loop), (var.lt(extent), ex.index(0).le(var))) as body:
            low.visible_in(var)
            low.limits[var] = (0, extent - 1)
            yield Scalar(self, self._turn(items.value, item(var), name, place))
            with self._reading(place):
                pass
        out = self._blocks.close(body)
        self._blocks.count(loop, var, extent, kind, out, place)

    def _turn(self, r: Range, value: Value, name: str, place: Place) -> Expr:
        """Return the index of a turn, under a name whose limits later checks know."""
        low = self._low
        x = low.scalar(value, place)
        if x.op is Op.VAR or r.step.op is not Op.CONST:
            return x
        index = low.fresh(name, dt.int64)
        first, last = (r.start, r.stop - 1) if r.step.attr > 0 else (r.stop + 1, r.start)
        low.limits[index] = (first, last)
        low.facts[-1].update((first.le(index), index.le(last), index.lt(last + 1)))
        low.emit(Let(index, x), place)
        return index

    def _known_iterations(self, kind: str, extent: Expr, place: Place) -> None:
        if kind == SERIAL:
            return
        if extent.op is not Op.CONST:
            raise self._low.wrong(place, f"a loop of kind {kind} over a number of turns that is "
                                  "not known", "use constants, or a serial loop")
        count = int(extent.attr)
        if kind == UNROLLED and count > _MOST_UNROLLED:
            raise self._low.wrong(place, f"{count} unrolled turns",
                                  f"at most {_MOST_UNROLLED}")
        if kind == VECTOR and (not 2 <= count <= 64 or count & (count - 1)):
            raise self._low.wrong(place, f"a vector of {count} lanes",
                                  "a power of two from 2 to 64")

    @opens
    def while_(self, condition: Callable[[], Any], *, at: At | None = None) -> Iterator[None]:
        """Open a loop that turns while a condition holds: a function that writes it."""
        with self._reading(at) as place:
            if not callable(condition):
                raise self._low.wrong(place, "a condition that is computed once",
                                      "while_(lambda: x < n), which is evaluated in each turn")
        loop = Loop("a while loop", True)
        with self._within(Body(place)) as head:
            with self._reading(place):
                test = self._condition(condition(), place)
                if head.state != FALLS:
                    raise self._low.wrong(place, "a jump in the condition of a loop")
            with self._within(Body(place, loop), conjuncts(test)) as body:
                yield
                with self._reading(place):
                    pass
            inner = self._blocks.close(body)
        out = self._blocks.close(head)
        self._blocks.repeat(loop, out, test, inner, place)

    def break_(self, *, at: At | None = None) -> None:
        """Leave the innermost loop."""
        self._jump(True, at)

    def continue_(self, *, at: At | None = None) -> None:
        """Skip the rest of this turn of the innermost loop."""
        self._jump(False, at)

    def _jump(self, leaves: bool, at: Any) -> None:
        what = "break" if leaves else "continue"
        with self._reading(at) as place:
            loops = self._blocks.loops()
            if not loops:
                raise self._low.wrong(place, f"{what} outside of a loop")
            if not leaves and loops[-1].title == "a reduction":
                raise self._low.wrong(place, "continue in a reduction",
                                      "select(condition, value, neutral)")
            if leaves and not loops[-1].leaves:
                raise self._low.wrong(place, f"break in {loops[-1].title}",
                                      "only serial loops can be left early")
            self._blocks.jump(loops[-1:], leaves, place)
            self._blocks.kill(self._blocks.top)

    def return_(self, value: Any = None, *, at: At | None = None) -> None:
        """Leave the function; a device function gives a value back."""
        with self._reading(at) as place:
            frame = self._blocks.frame
            if any(not loop.leaves for loop in self._blocks.loops()):
                raise self._low.wrong(place, "return in a loop that cannot be left early",
                                      "use continue")
            if frame.dtype is None and value is not None:
                raise self._low.wrong(place, f"{frame.name} returns a value",
                                      "write results to an array" if not frame.device else
                                      "declare it: returns=")
            if frame.dtype is not None:
                if value is None:
                    raise self._low.wrong(place, f"{frame.name} returns nothing here",
                                          f"it gives back {frame.dtype.name}")
                assert frame.cell is not None
                self._low.put(frame.cell, self._typed(value, frame.dtype, place, "a result"), place)
            self._blocks.leave_function(place)
            if self.threads and not frame.device:
                self._low.emit(Block(LEFT, ()), place)
            self._blocks.kill(self._blocks.top)

    # --- reductions

    @opens
    def reduce(self, kind: str, dtype: Any, *extents: Any, names: Sequence[str] = (),
               at: At | None = None) -> Iterator[Reduction]:  # fmt: skip
        """Open a reduction over one or more axes, in no order that the program can rely on.

        ::

            with f.reduce("sum", weft.float32, n) as dot:
                (k,) = dot.indices
                dot.update(a[i, k] * b[k, j])
            c[i, j] = dot.result

        Kinds: ``sum``, ``product``, ``min``, ``max``, ``all``, ``any`` (of bools).
        """
        with self._reading(at) as place:
            low = self._low
            d = self._dtype(dtype, place)
            if kind not in _REDUCTIONS:
                raise low.wrong(place, f"no reduction {kind!r}", "one of "
                                + ", ".join(_REDUCTIONS))
            if d.is_bool != (kind in ("all", "any")):
                raise low.wrong(place, f"{kind} of {d.name}")
            if not extents:
                raise low.wrong(place, "a reduction over no axes")
            sizes = [low.bind(self._extent(n, place), "extent", place) for n in extents]
            sizes = [n if low.ranges.of(n).lo >= 0 else ex.maximum(n, 0) for n in sizes]
            axes = [Axis(ex.var(low.name(self._name(names[k], place) if k < len(names) else "k"),
                                dt.int64), n) for k, n in enumerate(sizes)]
            reduction = Reduction(self, kind, d)
        facts = [f for a in axes for f in (a.var.lt(a.extent), ex.index(0).le(a.var))]
        with self._within(Body(place, Loop("a reduction", False)), facts) as body:
            body.reduces = reduction
            for axis in axes:
                low.visible_in(axis.var)
                low.limits[axis.var] = (0, axis.extent - 1)
            reduction.indices = tuple(Scalar(self, a.var) for a in axes)
            yield reduction
            with self._reading(place):
                if reduction.value is None:
                    raise low.wrong(place, "a reduction without update()")
        out = self._blocks.close(body)
        var = low.fresh("reduced", d)
        neutral, combine = _REDUCTIONS[kind]
        assert reduction.value is not None
        made = Accumulator(var, ex.const(neutral(d), d), combine(var, reduction.value),
                           combine(lhs(var), rhs(var)))
        low.emit(Reduce(tuple(axes), (made,), tuple(out)), place)
        reduction._result = var

    def _update(self, reduction: Reduction, value: Any, at: Any) -> None:
        with self._reading(at) as place:
            if self._blocks.top.reduces is not reduction or len(self._blocks.top.parts) > 1:
                raise self._low.wrong(place, "update under a condition, in a loop, or outside of "
                                      "its reduction", "select(condition, value, neutral)")
            if reduction.value is not None:
                raise self._low.wrong(place, "a second update of a reduction")
            reduction.value = self._typed(value, reduction.dtype, place, "a value")

    # --- the rest

    def check(self, condition: Any, message: str = "assertion failed", *,
                at: At | None = None) -> None:  # fmt: skip
        """Stop the program with an error at this place where a condition does not hold."""
        with self._reading(at) as place:
            test = self._condition(condition, place)
            self._low.require(test, str(message), place)

    def print_(self, *values: Any, at: At | None = None) -> None:
        """Print texts and numbers on a line."""
        with self._reading(at) as place:
            parts: list[str] = []
            args: list[Expr] = []
            for value in values:
                if isinstance(value, str):
                    parts.append(value.replace("{", "{{").replace("}", "}}"))
                else:
                    parts.append("{}")
                    args.append(self._scalar(value, place))
            self._low.emit(Print(" ".join(parts) + "\n", tuple(args)), place)

    # --- device functions

    def _call_device(self, callee: Device, args: tuple[Any, ...], place: Place) -> Any:
        low = self._low
        if any(c is callee for c in self._calls):
            raise low.wrong(place, f"{callee.name} calls itself",
                            "programs have no recursion: use a loop")
        if len(self._calls) >= _DEPTH:
            raise low.wrong(place, f"more than {_DEPTH} calls inside each other")
        if len(args) != len(callee.params):
            raise low.wrong(place, f"{callee.name} takes {len(callee.params)} arguments, found "
                            f"{len(args)}", f"{callee.name}({', '.join(callee.params)})")
        given: list[Any] = []
        for (name, d), arg in zip(callee.params.items(), args, strict=True):
            if d is None:
                if not isinstance(arg, Array):
                    raise low.wrong(place, f"{callee.name} takes an array as {name}")
                self._value(arg, place)
                given.append(arg)
            else:
                x = self._typed(arg, d, place, f"the argument {name}")
                given.append(Scalar(self, low.bind(x, name, place)))
        frame = Return(callee.name, callee.returns, True)
        if callee.returns is not None:
            frame.cell = low.cell(callee.name, callee.returns, place)
        with self._within(Body(place, frame=frame)) as body:
            self._calls.append(callee)
            try:
                found = callee.emit(*given)
            finally:
                self._calls.pop()
            if found is not None:
                self.return_(found, at=place)
            with self._reading(place):
                if callee.returns is not None and not body.dead:
                    raise low.wrong(place, f"{callee.name} may end without a result",
                                    f"it gives back {callee.returns.name}")
        out = self._blocks.close(body)
        self._blocks.declare(frame.flag, place)
        low.out.extend(out)
        if frame.cell is None:
            return None
        return Scalar(self, low.get(frame.cell, callee.name, place))


def _least(d: DType) -> Any:
    return -math.inf if d.is_float else d.min


def _most(d: DType) -> Any:
    return math.inf if d.is_float else d.max


_REDUCTIONS: Final[dict[str, tuple[Callable[[DType], Any], Callable[[Expr, Expr], Expr]]]] = {
    "sum": (lambda d: 0.0 if d.is_float else 0, lambda a, b: a + b),
    "product": (lambda d: 1.0 if d.is_float else 1, lambda a, b: a * b),
    "min": (_most, ex.minimum),
    "max": (_least, ex.maximum),
    "all": (lambda d: True, lambda a, b: ex.binary(Op.AND, a, b)),
    "any": (lambda d: False, lambda a, b: ex.binary(Op.OR, a, b)),
}
# Intrinsics that mean something without threads beside this one.
