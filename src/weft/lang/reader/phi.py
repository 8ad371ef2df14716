"""What names hold where ways meet: behind branches, at jumps, and from turn to turn of loops."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any, Final

from weft.ir import dtype as dt
from weft.ir import expr as ex
from weft.ir.expr import Expr
from weft.ir.stmt import If, Load, Memory, Stmt, Store
from weft.lang.core import array_union, optional, scalars, sliding_view
from weft.lang.core.barrier_check import BRANCH, GONE, Fork
from weft.lang.core.element_types import COMPLEX
from weft.lang.core.emitter import conjuncts, negation
from weft.lang.core.kind import kind_of
from weft.lang.core.promotion import unify
from weft.lang.core.values import Fields, Group, Known, Value, View, Wrong, describe
from weft.lang.reader.calls import Calls
from weft.lang.reader.frames import Frame, Loop
from weft.lang.reader.nested_functions import nested_names
from weft.lang.reader.type_cache import TypeCache
from weft.lang.source.source import Problems, Source
from weft.lang.values import complex_numbers, enums
from weft.lang.values import unify as kinds

__all__ = ["FALLS", "JUMPS", "MAYBE", "ControlFlowJoins"]

FALLS: Final = 0  # what follows is reached,
MAYBE: Final = 1  # on some ways,
JUMPS: Final = 2  # never

Side = tuple[dict[str, Value | Memory], list[Stmt], int]  # names, statements and end of one branch


class ControlFlowJoins(Calls):
    """Lets what names hold meet: behind branches, and in the cells of loops."""

    def __init__(self, source: Source, problems: Problems) -> None:
        super().__init__(source, problems)
        self.frames: list[Frame] = []
        self.after = []
        self.guesses = TypeCache()
        self.unused: ast.AST | None = None  # the call whose result nobody takes
        self.steady = 1  # bodies, from the outermost on, whose variables stay visible

    def is_read_later(self, name: str) -> bool:
        """Whether a name may be read behind the statement that is being read."""
        return any(name in names for names in (*self.after, *nested_names(self.frames)))

    # --- branches

    def branches(self, test: Expr, then: Callable[[], int], orelse: Callable[[], int],
                 node: ast.AST, leaves: tuple[bool, bool] = (False, False)) -> int:  # fmt: skip
        """Read two branches and let their names meet behind them.

        `leaves` says of each branch whether its threads return from the kernel in it.
        """
        before = dict(self.env)
        sides: list[Side] = []
        for fact, read, left in ((test, then, leaves[1]), (negation(test), orelse, leaves[0])):
            self.env = dict(before)
            self.way.append(Fork(GONE if left else BRANCH, fact))
            try:
                with self.into(conjuncts(fact)) as body:
                    state = read()
            finally:
                self.way.pop()
            sides.append((self.env, body, state))
        self.env = before
        met: dict[str, Any] = {}
        if any(state != JUMPS for *_, state in sides):
            met = self._meetings(sides, node)
        (_, body_a, state_a), (_, body_b, state_b) = sides
        if body_a or body_b:
            self.emit(If(test, tuple(body_a), tuple(body_b)), node)
        for name, held in met.items():
            if held is None:
                self.env.pop(name, None)
            else:
                self.env[name] = held
        if state_a == state_b == JUMPS:
            return JUMPS
        return FALLS if state_a == state_b == FALLS else MAYBE

    def _meetings(self, sides: list[Side], node: ast.AST) -> dict[str, Any]:
        """Return what each name holds behind two branches that changed it: None for nothing."""
        going = [(env, body) for env, body, state in sides if state != JUMPS]
        names: dict[str, None] = {}
        for env, _ in going:
            names.update({n: None for n, v in env.items() if v is not self.env.get(n)})
        met: dict[str, Any] = {}
        for name in names:
            if self.is_read_later(name):
                met[name] = self._meet(name, [(env.get(name), body) for env, body in going], node)
                for _, body, state in sides:
                    if state == JUMPS:
                        self._fill(met[name], body, node)
            else:
                met[name] = None
        return met

    def _meet(self, name: str, sides: list[tuple[Any, list[Stmt]]], node: ast.AST) -> Any:
        """Return what holds one of two values: themselves, a cell, or a group of such."""
        values = [v for v, _ in sides if v is not None]
        first = values[0]
        if any(isinstance(v, Wrong) for v in values):
            return Wrong()
        if len(values) == len(sides) and all(v is first or v == first for v in values) and (
            self.is_visible(first)
        ):
            return first
        like = kinds.common(self, values)
        if like is not None:
            sides = [(None if v is None else self._taken_in(body, v, like, name, node), body)
                     for v, body in sides]
            values = [v for v, _ in sides if v is not None]
        if all(isinstance(v, Group) for v in values):
            return self._meet_groups(name, sides, node)
        given = [(v, body) for v, body in sides if v is not None]
        agreed = self.alike([v for v, _ in given], True)
        found = [self._read_in(body, v, name, node)
                 for v, (_, body) in zip(agreed, given, strict=True)]
        if any(v is None for v in found):
            self._are_unlike(name, values)
            return None  # an error where the name is read
        scalars_ = [v for v in found if v is not None]
        d = scalars_[0].dtype
        for v in scalars_[1:]:
            d = unify(d, v.dtype)
        cell = self.cell(name, d, node)
        rest = iter(scalars_)
        for value, body in sides:
            if value is not None:
                stored = Store(cell, (), scalars.convert(next(rest), d))
                self.locations[stored] = self.source.place(node)
                body.append(stored)
        return cell

    def _taken_in(self, body: list[Stmt], value: Any, like: Group, name: str,
                  node: ast.AST) -> Any:  # fmt: skip
        """Return a value as one of the kind of others at the end of a closed branch."""
        if isinstance(value, Group) and value.kind is like.kind:
            return value
        with self.extending(body):
            return kind_of(like).take(self, self.opened(value, name, node), like, node)

    def _are_unlike(self, name: str, values: list[Any]) -> None:
        """Remember what a name holds on different ways, for the message where it is read."""
        self.unlike[name.partition(".")[0]] = " or ".join(dict.fromkeys(map(describe, values)))

    def _fill(self, held: Any, body: list[Stmt], node: ast.AST) -> None:
        """Set cells on a way that does not reach what reads them, but may pass its reads."""
        for cell in held.items if isinstance(held, Group) else (held,):
            if isinstance(cell, Group):
                self._fill(cell, body, node)
            elif isinstance(cell, Memory):
                stored = Store(cell, (), ex.const(0, cell.dtype))
                self.locations[stored] = self.source.place(node)
                body.append(stored)

    def _read_in(self, body: list[Stmt], value: Any, name: str, node: ast.AST) -> Expr | None:
        """Return a value as a scalar, None if it is not one; a cell is read in a closed branch."""
        if not isinstance(value, Memory):
            return self.number_of(value)
        var = self.fresh(name, value.dtype)
        read = Load(var, value, ())
        self.locations[read] = self.source.place(node)
        body.append(read)
        return var

    def _meet_groups(self, name: str, sides: list[tuple[Any, list[Stmt]]],
                     node: ast.AST) -> Any:  # fmt: skip
        groups = [(v, body) for v, body in sides if v is not None]
        first = groups[0][0]
        if any(len(g.items) != len(first.items) or g.kind is not first.kind for g, _ in groups):
            self._are_unlike(name, [g for g, _ in groups])
            return None
        items = []
        for k in range(len(first.items)):
            items.append(self._meet(f"{name}.{k}", [(g.items[k], body) for g, body in groups],
                                    node))
        if any(item is None for item in items):
            return None
        return Group(tuple(items), first.names, first.kind)

    # --- loops

    def keep(self, loop: Loop, node: ast.AST) -> None:
        """Write the names that a loop changes to their cells."""
        values = {name: self.opened(self.env.get(name), name, node) for name in loop.cells
                  if self.env.get(name) is not loop.cells[name]}
        for name, value in values.items():
            wider = self._keep(loop.cells[name], value, name, node)
            if wider is not None:
                loop.wider[name] = wider

    def _keep(self, cell: Any, value: Any, name: str, node: ast.AST) -> Any:
        """Store a value in cells; return the cells' types instead if they are too narrow."""
        if value is None and isinstance(cell, Known | Group | Memory) and name in self.unlike:
            raise self.wrong(node, f"{name} is {self.unlike[name]}, on different paths",
                             "in a loop only numbers and tuples of them can change")
        if value is None or isinstance(value, Wrong) or isinstance(cell, Wrong):
            return None
        if self.wraps and not optional.is_optional(cell):
            wider = self._optional_width(cell, value)
            if wider is not None:
                return wider
        if (
            array_union.is_array(cell) or sliding_view.is_sliding_view(cell)
        ) and array_union.is_array(value):
            return self._keep_array(cell, value, name, node)
        if isinstance(cell, Known) and isinstance(value, Known | Group) and cell != value:
            both = [enums.as_member(self, v) for v in (cell, value)]
            if all(map(enums.is_member, both)) and both[0].kind is both[1].kind:
                return both[0].replace(items=(dt.int64,))
        kind = kinds.joined([cell, value])
        if kind is not None and getattr(cell, "kind", None) is not kind:
            return kinds.width(kind)
        value = kind_of(cell).take(self, value, cell, node)
        if isinstance(cell, Group):
            if not isinstance(value, Group) or value.kind is not cell.kind or (
                len(value.items) != len(cell.items)
            ):
                raise self.wrong(node, f"{name} changes from {describe(cell)} to "
                                 f"{describe(value)} in a loop")
            found = [self._step_width(c, v) if cell.kind is slice and isinstance(c, Known) else
                     self._keep(c, v, name, node)
                     for c, v in zip(cell.items, value.items, strict=True)]
            if all(f is None for f in found):
                return None
            return Group(tuple(found), cell.names, cell.kind)
        if not isinstance(cell, Memory):
            if cell == value or cell is value:
                return None
            raise self.wrong(node, f"{name} changes from {describe(cell)} to {describe(value)} "
                             "in a loop", "in a loop only numbers and tuples of them can change")
        if complex_numbers.is_complex(value):
            z = complex_numbers.as_complex(self, value, node)
            return z.replace(items=tuple(x.dtype for x in z.items))
        x = self.number_of(value)
        if x is None:
            raise self.wrong(node, f"{name} changes from {cell.dtype.name} to {describe(value)} "
                             "in a loop")
        d = unify(cell.dtype, x.dtype)
        if d is not cell.dtype:
            return d
        self.put(cell, scalars.convert(x, d), node)
        return None

    def _step_width(self, step: Known, value: Any) -> Any:
        """Return the type of the cell that the step of a slice needs, None while it is the same."""
        return None if step == value else dt.int64

    def _optional_width(self, cell: Any, value: Any) -> Any:
        """Return the types of what holds a number and also None, None if that is not needed."""
        if isinstance(cell, Memory):
            if optional.is_none(value):
                return optional.width(cell.dtype)
            return optional.width(unify(cell.dtype, value.items[1].dtype)) if (
                optional.is_optional(value) and isinstance(value.items[1], Expr)) else None
        if isinstance(cell, Group) and (optional.is_none(value) or optional.is_optional(value)):
            types = optional.types_of(cell)
        elif optional.is_none(cell):
            x = value.items[1] if optional.is_optional(value) else self.number_of(value)
            x = value if x is None else x
            types = optional.types_of(x) if array_union.is_array(x) else self._widths(x)
        else:
            return None
        return None if types is None else optional.width(types)

    def _widths(self, value: Any, returned: bool = False) -> Any:
        """Return the types of the cells that a value needs, None if no cells can hold it.

        What is returned may be any array.
        """
        if complex_numbers.is_complex(value) and isinstance(value, Known):
            return Group((dt.float64, dt.float64), COMPLEX, complex)
        value = enums.as_member(self, value)
        if array_union.is_array(value) and not isinstance(value, Group):
            return array_union.width(array_union.Chosen((value,))) if returned else (
                self.private_width(value))
        if isinstance(value, Group):
            found = tuple(self._widths(v, returned) for v in value.items)
            return None if any(f is None for f in found) else Group(found, value.names, value.kind)
        x = self.number_of(value)
        return None if x is None else x.dtype

    def private_width(self, array: Any) -> Any:
        """Return the types of the cells of an array that a body makes and that is read behind it.

        None for other arrays.
        """
        private = {view.memory for view, _ in self.private.values()}
        parts = array.parts if isinstance(array, Fields) else (array,)
        if all(isinstance(p, View) and p.memory in private for p in parts):
            return array_union.width(array_union.Chosen((array,)))
        return None

    def _keep_array(self, cell: Any, value: Any, name: str, node: ast.AST) -> Any:
        """Store which array a name means; return what must be told apart if that is more."""
        if cell is value or cell == value:
            return None
        if array_union.is_array_union(cell):
            held = array_union.as_array_union(value, cell.kind)
            if held is not None:
                return self._keep(cell.items[0], held.items[0], name, node)
        if sliding_view.is_sliding_view(cell):
            held = sliding_view.as_sliding_view(value, cell.kind)
            if held is not None:
                for place, number in zip(cell.items, held.items, strict=True):
                    self.put(place, number, node)
                return None
        inner, self._scopes = self._scopes, self._scopes[:self.steady]
        try:
            like = kinds.common(self, [cell, value])
        finally:
            self._scopes = inner
        if like is None:
            raise self.wrong(node, f"{name} changes from one array to another in a loop",
                             "keep an index instead, or choose between whole arrays")
        return like
