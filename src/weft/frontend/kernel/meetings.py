"""What names hold where ways meet: behind branches, at jumps, and from turn to turn of loops."""

from __future__ import annotations

import ast
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, Any, Final

from weft.frontend.kernel import chosen, complexes, kinds, members, optional, scalars
from weft.frontend.kernel.calls import Calls
from weft.frontend.kernel.divergence import BRANCH, GONE, Fork
from weft.frontend.kernel.emitter import conjuncts, negation
from weft.frontend.kernel.guesses import Guesses
from weft.frontend.kernel.inner import inner_names
from weft.frontend.kernel.promotion import unify
from weft.frontend.kernel.source import Problems, Source
from weft.frontend.kernel.values import Fields, Group, Known, Value, View, Wrong, describe
from weft.imports import Late
from weft.ir import dtype as dt
from weft.ir import expr as ex
from weft.ir.expr import Expr
from weft.ir.stmt import If, Load, Memory, Stmt, Store

if TYPE_CHECKING:
    from weft.frontend.kernel import moving
else:
    moving = Late("weft.frontend.kernel.moving")

__all__ = ["FALLS", "JUMPS", "MAYBE", "Frame", "Loop", "Meetings"]

FALLS: Final = 0  # what follows is reached,
MAYBE: Final = 1  # on some ways,
JUMPS: Final = 2  # never

Side = tuple[dict[str, Value | Memory], list[Stmt], int]  # names, statements and end of one branch


class Loop:
    """An open loop: its cells, and the flags that its jumps set.

    Attributes
    ----------
    leave : Memory or None
        Set when the loop is left.
    flag : Memory or None
        Set when the rest of the turn is skipped.
    cells : dict of str to (Memory or Group)
        Where the names live that the loop changes.
    wider : dict of str to DType
        Names whose cells are too narrow, with the type that they need.
    names : set of str
        Names that the loop sets.
    early : set of str
        Those of them that are read before anything is known to have set them.
    """

    __slots__ = ("cells", "early", "flag", "leave", "names", "wider")

    def __init__(self, leave: Memory | None, flag: Memory | None, cells: dict[str, Any],
                 names: AbstractSet[str] = frozenset()) -> None:  # fmt: skip
        self.leave, self.flag, self.cells, self.names = leave, flag, cells, names
        self.wider: dict[str, Any] = {}
        self.early: set[str] = set()


class Frame:
    """An open function.

    Attributes
    ----------
    source : Source
        The function.
    flag : Memory or None
        Set by a return, where something that follows must know.
    loops : list of Loop
        Its open loops.
    env : dict
        Its names while a function that it calls is read.
    inner, lambdas : dict
        The functions that are defined in it, and its lambdas as such.
    result : Value, or what holds cells, or None
        What it returns.
    found : types or None
        Those of what it returned so far, if it was read with cells for it.
    depth : int
        Open bodies where it was called; what is visible in them is so behind the call.
    """

    __slots__ = ("cells", "depth", "env", "flag", "found", "inner", "lambdas", "loops", "result",
                 "source", "types")

    def __init__(self, source: Source, flag: Memory | None, depth: int = 1) -> None:
        self.source, self.flag, self.depth = source, flag, depth
        self.loops: list[Loop] = []
        self.env: dict[str, Any] = {}
        self.inner: dict[ast.AST, Any] = {}
        self.lambdas: dict[ast.AST, ast.FunctionDef] = {}
        self.result: Any = None
        self.cells: Any = None
        self.types: Any = None
        self.found: Any = None


class Meetings(Calls):
    """Lets what names hold meet: behind branches, and in the cells of loops."""

    def __init__(self, source: Source, problems: Problems) -> None:
        super().__init__(source, problems)
        self.frames: list[Frame] = []
        self.after: list[frozenset[str]] = []  # names that are read behind open statements
        self.guesses = Guesses()
        self.unused: ast.AST | None = None  # the call whose result nobody takes
        self.steady = 1  # bodies, from the outermost on, whose variables stay visible

    def is_read_later(self, name: str) -> bool:
        """Whether a name may be read behind the statement that is being read."""
        return any(name in names for names in (*self.after, *inner_names(self.frames)))

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
        if all(chosen.is_array(v) or moving.is_moving(v) for v in values):
            known = not any(map(moving.is_moving, values))
            kind = chosen.joined(values) if known else None
            if kind is None or not all(map(self.is_visible, kind.options)):
                return self._meet_parts(name, sides, node)
            sides = [(None if v is None else self._chosen_in(body, v, kind, name, node), body)
                     for v, body in sides]
            return self._meet_groups(name, sides, node)
        if self.wraps and any(optional.is_optional(v) or optional.is_none(v) for v in values):
            like = optional.kind_of(values)
            held = [(None if v is None else self._optional_in(body, v, like, name, node), body)
                    for v, body in sides]
            if all((v is None) == (h is None)
                   for (v, _), (h, _) in zip(sides, held, strict=True)):
                return self._meet_groups(name, held, node)
        kind_ = kinds.joined(values)
        if kind_ is not None:
            sides = [(None if v is None else kinds.as_kind(self, self._items_in(
                body, v, name, node), kind_), body) for v, body in sides]
            return self._meet_groups(name, sides, node)
        if any(complexes.is_complex(v) for v in values):
            sides = [(self._complex_in(body, v, name, node), body) for v, body in sides]
            if any(v is None for v, _ in sides) and len(values) == len(sides):
                return None
            values = [v for v, _ in sides if v is not None]
        given_ = members.agreed(self, values)
        if given_ is not values:
            rest_ = iter(given_)
            sides = [(None if v is None else next(rest_), body) for v, body in sides]
            values = given_
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

    def _meet_parts(self, name: str, sides: list[tuple[Any, list[Stmt]]],
                    node: ast.AST) -> Any:  # fmt: skip
        """Return what holds one of several parts of an array."""
        given = [v for v, _ in sides if v is not None]
        kind = moving.joined(given, self.is_visible)
        if kind is None:
            self._are_unlike(name, given)
            return None
        held: list[tuple[Any, list[Stmt]]] = []
        for value, body in sides:
            value = self._items_in(body, value, name, node)
            value = moving.placed(value) if moving.is_moving(value) else value
            held.append((None if value is None else moving.as_moving(value, kind), body))
        return self._meet_groups(name, held, node)

    def _items_in(self, body: list[Stmt], value: Any, name: str, node: ast.AST) -> Any:
        """Return a group of cells as one of what is in them at the end of a closed branch."""
        if not isinstance(value, Group):
            return value
        return value.replace(items=tuple(self._read_in(body, v, name, node) for v in value.items))

    def _chosen_in(self, body: list[Stmt], value: Any, kind: chosen.Chosen, name: str,
                   node: ast.AST) -> Any:  # fmt: skip
        """Return an array as one of several at the end of a closed branch."""
        if chosen.is_chosen(value):
            value = value.replace(items=(self._read_in(body, value.items[0], name, node),))
        return chosen.as_chosen(value, kind)

    def _complex_in(self, body: list[Stmt], value: Any, name: str, node: ast.AST) -> Any:
        """Return a number as a complex one at the end of a closed branch, None if it is none."""
        if isinstance(value, Group) or value is None:
            return value
        if not complexes.is_complex(value):
            value = self._read_in(body, value, name, node)
        with self.extending(body):
            return None if value is None else complexes.as_complex(self, value, node)

    def _optional_in(self, body: list[Stmt], value: Any, like: Any, name: str,
                     node: ast.AST) -> Any:  # fmt: skip
        """Return None or a value as what may be either, None if it is something else."""
        if optional.is_optional(value):
            return value
        if isinstance(value, Known) and not optional.is_none(value):
            value = self.alike([value], True)[0]
        return optional.as_optional(value, self._read_in(body, value, name, node), like)

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
            raise self.wrong(node, f"{name} is {self.unlike[name]}, by the way to this line",
                             "in a loop only numbers and tuples of them can change")
        if value is None or isinstance(value, Wrong) or isinstance(cell, Wrong):
            return None
        if self.wraps and not optional.is_optional(cell):
            wider = self._optional_width(cell, value)
            if wider is not None:
                return wider
        if optional.is_optional(cell):
            value = optional.as_optional(value, self.number_of(value), cell.items[1]) or value
        if (chosen.is_array(cell) or moving.is_moving(cell)) and chosen.is_array(value):
            return self._keep_array(cell, value, name, node)
        if isinstance(cell, Known) and isinstance(value, Known | Group) and cell != value:
            both = members.agreed(self, [cell, value])
            if all(map(members.is_member, both)) and both[0].kind is both[1].kind:
                return both[0].replace(items=(dt.int64,))
        kind = kinds.joined([cell, value])
        if kind is not None and getattr(cell, "kind", None) is not kind:
            return kinds.width(kind)
        if kind is not None:
            value = kinds.as_kind(self, value, kind)
        if members.is_member(cell):
            value = members.as_member(self, value)
        if isinstance(cell, Group):
            if (cell.kind is complex and self.number_of(value) is not None) or (
                complexes.is_complex(value)
            ):
                value = complexes.as_complex(self, value, node)
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
        if complexes.is_complex(value):
            z = complexes.as_complex(self, value, node)
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
            types = optional.types_of(value if x is None else x)
        else:
            return None
        return None if types is None else optional.width(types)

    def private_width(self, array: Any) -> Any:
        """Return the types of the cells of an array that a body makes and that is read behind it.

        None for other arrays.
        """
        private = {view.memory for view, _ in self.private.values()}
        parts = array.parts if isinstance(array, Fields) else (array,)
        if all(isinstance(p, View) and p.memory in private for p in parts):
            return chosen.width(chosen.Chosen((array,)))
        return None

    def _keep_array(self, cell: Any, value: Any, name: str, node: ast.AST) -> Any:
        """Store which array a name means; return what must be told apart if that is more."""
        if cell is value or cell == value:
            return None
        if chosen.is_chosen(cell):
            held = chosen.as_chosen(value, cell.kind)
            if held is not None:
                return self._keep(cell.items[0], held.items[0], name, node)
        if moving.is_moving(cell):
            held = moving.as_moving(value, cell.kind)
            if held is not None:
                for place, number in zip(cell.items, held.items, strict=True):
                    self.put(place, number, node)
                return None
        inner, self._scopes = self._scopes, self._scopes[:self.steady]
        try:
            kind = None if moving.is_moving(cell) else chosen.joined([cell, value])
            if kind is not None and all(map(self.is_visible, kind.options)):
                return chosen.width(kind)
            parts = moving.joined([cell, value], self.is_visible)
        finally:
            self._scopes = inner
        if parts is None:
            raise self.wrong(node, f"{name} changes from one array to another in a loop",
                             "keep an index instead, or choose between whole arrays")
        return moving.width(parts)
