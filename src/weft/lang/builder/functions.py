"""Functions of loops by calls: what `Builder` has for code that is not written for threads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import Any

from weft.errors import outermost_methods
from weft.ir import dtype as dt
from weft.ir import expr as ex
from weft.ir.stmt import SERIAL
from weft.ir.stmt import Body as Stmts
from weft.lang.builder.blocks import Body, Loop
from weft.lang.builder.builder import Builder
from weft.lang.builder.parameters import Signature
from weft.lang.builder.places import At, opens
from weft.lang.builder.programs import BuiltFunction, NativeFunction
from weft.lang.builder.values import Scalar

__all__ = ["FunctionBuilder"]


@outermost_methods
class FunctionBuilder(Builder):
    """Writes a function of loops; see `weft.build.function`."""

    @opens
    def parallel(self, *extents: Any, names: Sequence[str] = (),
                 at: At | None = None) -> Iterator[tuple[Scalar, ...]]:  # fmt: skip
        """Open loops whose turns do not depend on each other; give their indices.

        The last axis should be the one along which memory is contiguous. ``continue_`` ends a turn;
        nothing leaves the loops early.

        Parameters
        ----------
        extents
            How many turns each loop has, outermost first.
        names
            What errors and printed programs call the indices.
        at
            Its place.
        """
        with self._reading(at) as place:
            low = self._low
            if not extents:
                raise low.wrong(place, "a parallel loop over no axes")
            if self._blocks.loops():
                raise low.wrong(place, f"a parallel loop in {self._blocks.loops()[-1].title}",
                                "one nest: parallel(n, m); in other loops use loop()")
            sizes = [low.bind(self._extent(n, place), "extent", place) for n in extents]
            sizes = [n if low.ranges.of(n).lo >= 0 else ex.maximum(n, 0) for n in sizes]
            called = [self._name(names[k], place) if k < len(names) else "ijklmnop"[k % 8]
                      for k in range(len(sizes))]
            axes = [ex.var(low.name(name), dt.int64) for name in called]
        loop = Loop("a parallel loop", False)
        facts = [f for a, n in zip(axes, sizes, strict=True)
                 for f in (a.lt(n), ex.index(0).le(a))]
        with ExitStack() as bodies:
            outer = [bodies.enter_context(self._within(Body(place))) for _ in axes[1:]]
            body = bodies.enter_context(self._within(Body(place, loop), facts))
            for axis, size in zip(axes, sizes, strict=True):
                low.visible_in(axis)
                low.limits[axis] = (0, size - 1)
            yield tuple(Scalar(self, a) for a in axes)
            with self._reading(place):
                pass
            out = self._blocks.close(body)
            self._blocks.count(loop, axes[-1], sizes[-1], SERIAL, out, place)
            for axis, size, around in reversed(list(zip(axes[:-1], sizes[:-1], outer,
                                                        strict=True))):
                out = self._blocks.close(around)
                self._blocks.count(Loop("a parallel loop", False), axis, size, SERIAL, out, place)
        self._parallel.append(tuple(axes))

    def _made(self, body: Stmts, signature: Signature) -> BuiltFunction:
        made: BuiltFunction = NativeFunction(
            self._kernel(body, (("noalias", True),)), signature, tuple(self._parallel))
        return made
