"""Compute functions as loop level: what `weft.lang` reads, and `ndrange`.

Two things are read otherwise than in kernels. Numbers that are known when the function is compiled
have no type of their own: ``s = 0.0`` before a sum of float32 is a float32, as in tensor code. And
there are no threads: the function runs once, and its loops are what may be shared out.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any, Final

from weft.ir import dtype as dt
from weft.ir import expr as ex
from weft.ir.dtype import DType
from weft.ir.expr import Expr
from weft.ir.record import Record
from weft.ir.stmt import Location, Memory
from weft.lang.compute.ranges import ndrange
from weft.lang.core.promotion import unify
from weft.lang.core.values import Group, Known, Range, Value, View, describe
from weft.lang.reader.frames import Loop
from weft.lang.reader.functions import Functions
from weft.lang.source import liveness
from weft.lang.source.source import Problems, Source
from weft.lang.values.ranges import range_of

__all__ = ["LoopPlace", "Nests"]

_MOST_AXES: Final = 8
_HIDDEN: Final = " axis"  # of a name that no source can have


class LoopPlace(Record):
    """A loop of the source: its name, where it stands, and whether its turns are independent.

    ``independent`` is what the source says (`ndrange`), not what is known.
    """

    name: str
    place: Location
    independent: bool


class Nests(Functions):
    """Reads compute functions.

    Attributes
    ----------
    places : dict of Expr to LoopPlace
        Where the loops stand, by loop variable.
    exposed : dict of Expr to frozenset of str
        The names that a turn of each loop may read before it sets them.
    """

    def __init__(self, source: Source, problems: Problems) -> None:
        super().__init__(source, problems)
        self.places: dict[Expr, LoopPlace] = {}
        self.exposed: dict[Expr, frozenset[str]] = {}
        self._independent: set[ast.For] = set()
        self._trials: dict[Memory, DType] = {}

    def name(self, base: str) -> str:
        """Return a name that is unique in the kernel; a dot in it belongs to the schedule."""
        base = base.replace(" ", "_").replace(".", "_")
        made, count = base, 0
        while made in self._names:
            count += 1
            made = f"{base}_{count}"
        self._names[made] = 1
        return made

    # --- numbers without a type

    def alike(self, values: list[Any], kept: bool = False) -> list[Any]:
        """Give known numbers the type of the floats that they meet, and of uint64 where it is kept.

        A sum or difference with a number stays signed: it may be meant to be negative.
        """
        d: DType | None = None
        types = [v.dtype for v in values if isinstance(v, Expr | Memory)]
        for found in types:
            if found.is_float:
                d = found if d is None else unify(d, found)
        if d is not None:
            return [ex.const(float(v.value), d) if _is_number(v) else v for v in values]
        if kept and dt.uint64 in types:
            return [ex.const(v.value, dt.uint64) if _is_number(v) and type(v.value) is int
                    and 0 <= v.value < 1 << 64 else v for v in values]
        return values

    def read(self, view: View, node: ast.AST) -> Value:
        """Return an element; a narrow float is a float32 once it is read.

        So a sum of products of 16-bit floats is what matrix instructions compute: products that
        are not rounded, added in float32.
        """
        found = super().read(view, node)
        if isinstance(found, Expr) and found.dtype.is_float and found.dtype.bits < 32:
            return ex.cast(found, dt.float32)
        return found

    def _cells(self, name: str, value: Any, width: Any, node: ast.AST) -> Any:
        """Hold a known number in the narrowest cell there is at first, to see what joins it."""
        if not _is_number(value) or type(value.value) is bool or isinstance(width, tuple):
            return super()._cells(name, value, width, node)
        if width is not None:
            cell = self.cell(name, width, node)
            self.put(cell, ex.const(value.value, width), node)
            return cell
        is_float = type(value.value) is float
        cell = self.cell(name, dt.float16 if is_float else dt.int8, node)
        self.put(cell, ex.const(0, cell.dtype), node)
        self._trials[cell] = dt.float64 if is_float else dt.int64
        return cell

    def _loop(self, node: ast.For | ast.While, read: Callable[[Loop], None],
              test: ast.expr | None) -> int:  # fmt: skip
        def widened(loop: Loop) -> None:
            read(loop)
            for name, cell in loop.cells.items():
                default = self._trials.get(cell) if isinstance(cell, Memory) else None
                if default is None:
                    continue
                wider = loop.wider.get(name)
                if wider is None:
                    loop.wider[name] = default
                elif isinstance(wider, DType) and not wider.is_float:
                    loop.wider[name] = unify(wider, dt.int64)

        return super()._loop(node, widened, test)

    def index(self, value: Value, extent: Expr, node: ast.AST) -> Expr:
        """Return an index, checked against its axis when the function runs.

        Sizes are those of one call: an index that is out of bounds may never be used.
        """
        if _is_number(value) and isinstance(value, Known) and value.value < 0:
            return super().index(value, extent, node)
        held, self.sanitised = self.sanitised, True
        try:
            return super().index(value, extent, node)
        finally:
            self.sanitised = held

    # --- loops

    def _statement(self, node: ast.stmt) -> int:
        return self._for(node) if isinstance(node, ast.For) else super()._statement(node)

    def _for(self, node: ast.For) -> int:
        axes = self._axes(node.iter)
        return super()._for(node) if axes is None else self._points(node, axes)

    def _axes(self, node: ast.expr) -> list[Range] | None:
        """Return the axes of a call of `ndrange`, None for what is none."""
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name | ast.Attribute):
            return None
        callee = self.visit(node.func)
        if not isinstance(callee, Known) or callee.value is not ndrange:
            return None
        args, named = self.arguments(node)
        if named or not args:
            raise self.wrong(node, "ndrange takes a size for each axis",
                             "for i, j in weft.ndrange(m, n)")
        if len(args) > _MOST_AXES:
            raise self.wrong(node, f"an ndrange of {len(args)} axes", f"at most {_MOST_AXES}")
        return [self._axis(node, value) for value in args]

    def _axis(self, node: ast.Call, value: Value) -> Range:
        if isinstance(value, Known) and isinstance(value.value, Range):
            return value.value
        parts = value.items if isinstance(value, Group) else (value,)
        if not 1 <= len(parts) <= 3:
            raise self.wrong(node, f"an axis of ndrange of {describe(value)}",
                             "a size, (start, stop) or (start, stop, step)")
        made = range_of(self, node, *parts)
        assert isinstance(made, Known)
        found: Range = made.value
        start, stop, step = (self.bind(e, "end", node)
                             for e in (found.start, found.stop, found.step))
        return Range(start, stop, step)

    def _points(self, node: ast.For, axes: list[Range]) -> int:
        """Read a loop over points as one loop for each axis."""
        if node.orelse:
            raise self.wrong(node.orelse[0], "else behind a loop over ndrange")
        if liveness.breaks(node.body):
            raise self.wrong(node, "a loop over ndrange that is left early",
                             "its points are independent: use range, or a condition")
        targets = self._targets(node, len(axes))
        body = node.body
        if len(axes) > 1 and not isinstance(node.target, ast.Tuple | ast.List):
            names: list[ast.expr] = [ast.Name(t.id, ast.Load()) for t in targets
                                     if isinstance(t, ast.Name)]
            whole = ast.Assign([node.target], ast.Tuple(names, ast.Load()))
            body = [_placed(whole, node), *body]
        for position in reversed(range(len(axes))):
            hidden = f"{_HIDDEN}{len(self._independent)}"
            self.env[hidden] = Known(axes[position])
            loop = ast.For(targets[position], ast.Name(hidden, ast.Load()), body, [])
            _placed(loop, node)
            loop.end_lineno = node.lineno
            self._independent.add(loop)
            body = [loop]
        assert isinstance(body[0], ast.For)
        return super()._for(body[0])

    def _targets(self, node: ast.For, count: int) -> list[ast.expr]:
        target = node.target
        if isinstance(target, ast.Tuple | ast.List):
            if len(target.elts) != count:
                raise self.wrong(target, f"cannot unpack {count} axes into "
                                 f"{len(target.elts)} names", "one name for each axis")
            return list(target.elts)
        if count == 1:
            return [target]
        base = target.id if isinstance(target, ast.Name) else "point"
        return [ast.copy_location(ast.Name(f"{base} {k}", ast.Store()), target)
                for k in range(count)]

    def _plain(self, node: ast.For, extent: Expr, enter: Callable[[Expr], None],
               loop: Loop) -> None:  # fmt: skip
        def entered(var: Expr) -> None:
            name = node.target.id if isinstance(node.target, ast.Name) else "k"
            self.places[var] = LoopPlace(name.replace(" ", "_"), self.source.place(node),
                                         node in self._independent)
            self.exposed[var] = liveness.exposed(node.body)
            enter(var)

        super()._plain(node, extent, entered, loop)



def _is_number(value: Any) -> bool:
    return isinstance(value, Known) and type(value.value) in (int, float, bool)


def _placed(made: Any, node: ast.AST) -> Any:
    """Give a made statement the place of the one it stands for."""
    ast.copy_location(made, node)
    ast.fix_missing_locations(made)
    return made
