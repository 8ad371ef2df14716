"""Statements of kernels: assignment, conditions, device functions, and the ways out of them.

A name holds the value that it was last given. Where two ways meet behind an ``if``, a name that
they give different values lives in a register cell. ``break``, ``continue`` and ``return`` become
conditions: what follows them runs where they did not happen.
"""

from __future__ import annotations

import ast
import contextlib
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, Any, Final

from weft.errors import ASSERTED
from weft.frontend.kernel import chosen, complexes, flow, operators, scalars
from weft.frontend.kernel.calls import Calls
from weft.frontend.kernel.divergence import BRANCH, GONE, Fork
from weft.frontend.kernel.elements import as_dtype
from weft.frontend.kernel.emitter import conjuncts, negation
from weft.frontend.kernel.hints import instead, title
from weft.frontend.kernel.inner import inner_names
from weft.frontend.kernel.promotion import unify
from weft.frontend.kernel.source import Problems, Source, Stop
from weft.frontend.kernel.values import FIXED, Fields, Group, Known, Value, View, Wrong, describe
from weft.imports import Late
from weft.ir import dtype as dt
from weft.ir import expr as ex
from weft.ir.expr import Expr
from weft.ir.op import Op
from weft.ir.stmt import LEFT, Assert, Block, If, Load, Memory, Stmt, Store

if TYPE_CHECKING:
    from weft.frontend.kernel import fields, moving
else:
    fields = Late("weft.frontend.kernel.fields")
    moving = Late("weft.frontend.kernel.moving")

__all__ = ["FALLS", "JUMPS", "MAYBE", "STATEMENTS", "Frame", "Loop", "Statements"]

FALLS: Final = 0  # what follows is reached,
MAYBE: Final = 1  # on some ways,
JUMPS: Final = 2  # never

_NO_ELEMENTS: Final = "arrays have elements: arguments, gpu.shared.array and gpu.local.array"

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
    depth : int
        Open bodies where it was called; what is visible in them is so behind the call.
    """

    __slots__ = ("cells", "depth", "env", "flag", "inner", "lambdas", "loops", "result", "source",
                 "types")

    def __init__(self, source: Source, flag: Memory | None, depth: int = 1) -> None:
        self.source, self.flag, self.depth = source, flag, depth
        self.loops: list[Loop] = []
        self.env: dict[str, Any] = {}
        self.inner: dict[ast.AST, Any] = {}
        self.lambdas: dict[ast.AST, ast.FunctionDef] = {}
        self.result: Any = None
        self.cells: Any = None
        self.types: Any = None


class Statements(Calls):
    """Reads statements."""

    def __init__(self, source: Source, problems: Problems) -> None:
        super().__init__(source, problems)
        self.frames: list[Frame] = []
        self.after: list[frozenset[str]] = []  # names that are read behind open statements
        self.unused: ast.AST | None = None  # the call whose result nobody takes
        self.steady = 1  # bodies, from the outermost on, whose variables stay visible

    # --- bodies

    def run(self, body: Sequence[ast.stmt]) -> int:
        """Read statements; return whether what follows them is reached."""
        reads = [flow.loaded(body)]  # in the statements from here on
        for position, node in enumerate(body):
            rest = body[position + 1:]
            reads = [flow.loaded(rest)]
            self.after.append(reads[0])
            try:
                if isinstance(node, ast.If):
                    return self._if(node, rest)
                state = self._statement(node)
            except Stop:
                self._forget(node)
                state = FALLS
            finally:
                self.after.pop()
            if state == JUMPS:
                return JUMPS
            if state == MAYBE:
                return self._guarded(rest, node)
        return FALLS

    def _forget(self, node: ast.stmt) -> None:
        """Let what a wrong statement sets be wrong, so that it is told once.

        What gets a new value of a field stays what it is.
        """
        names = flow.named([node])
        for name in flow.assigned([node]):
            if name in names or name not in self.env:
                self.env[name] = Wrong()

    def is_read_later(self, name: str) -> bool:
        """Whether a name may be read behind the statement that is being read."""
        return any(name in names for names in (*self.after, *inner_names(self.frames)))

    def _statement(self, node: ast.stmt) -> int:
        method = STATEMENTS.get(type(node))
        if method is None:
            raise self.wrong(node, f"{title(node)} is not supported in kernels", instead(node))
        return method(self, node) or FALLS

    def _guarded(self, rest: Sequence[ast.stmt], node: ast.AST) -> int:
        """Read what runs only where no jump was made before it."""
        if not rest:
            return MAYBE
        frame = self.frames[-1]
        flag = frame.loops[-1].flag if frame.loops else frame.flag
        assert flag is not None
        reached = negation(self.get(flag, "skipped", node))
        state = self.branches(reached, lambda: self.run(rest), lambda: FALLS, node)
        return MAYBE if state == FALLS else state

    # --- assignment

    def _expression(self, node: ast.Expr) -> None:
        if not isinstance(node.value, ast.Constant):  # such as a docstring
            self.unused = node.value
            self.visit(node.value)

    def _assign(self, node: ast.Assign) -> None:
        self._note_titles(node.targets[0], node.value)
        try:
            value = self._sum_of(node.targets[0], node.value)
        except Stop:
            for target in node.targets:
                if isinstance(target, ast.Subscript):  # its index may be wrong, too
                    with contextlib.suppress(Stop):
                        self.visit(target)
            raise
        for target in node.targets:
            self.set(target, value, node)

    def _note_titles(self, target: ast.expr, value: ast.expr) -> None:
        """Note which names the values of calls get: arrays are called by them in messages."""
        pairs = [(target, value)]
        if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
            pairs = list(zip(target.elts, value.elts, strict=False))
        self.titles.update((v, t.id) for t, v in pairs
                           if isinstance(t, ast.Name) and isinstance(v, ast.Call))

    def _sum_of(self, target: ast.expr, node: ast.expr) -> Value:
        """Return what is assigned: ``x = x + y`` is ``x += y`` in other words."""
        if not isinstance(node, ast.BinOp) or not isinstance(node.op, ast.Add | ast.Sub):
            return self.visit(node)
        sides = (node.left, node.right)[:2 if isinstance(node.op, ast.Add) else 1]
        if not any(_same_place(target, side) for side in sides):
            return self.visit(node)
        return operators.operate(self, type(node.op), self.visit(node.left),
                                 self.visit(node.right), node, True)

    def _annotated(self, node: ast.AnnAssign) -> None:
        if node.value is None:
            return
        value = self.visit(node.value)
        if self.wraps:  # as in numba, where annotations say nothing
            self.set(node.target, value, node)
            return
        kind = self.visit(node.annotation)
        d = as_dtype(kind.value) if isinstance(kind, Known) else None
        if d is None:
            raise self.wrong(node.annotation, "expected a dtype as the annotation of a variable")
        self.set(node.target, scalars.convert(self.scalar(value, node), d), node)

    def _augmented(self, node: ast.AugAssign) -> None:
        target = node.target
        if isinstance(target, ast.Subscript):
            owner = self.visit(target.value)
            if not chosen.is_array(owner):
                raise self.wrong(target, f"{describe(owner)} cannot be assigned to",
                                 FIXED if isinstance(owner, Group) else _NO_ELEMENTS)
            element = self.element(owner, target)
            value = operators.operate(self, type(node.op), self.read(element, target),
                                      self.visit(node.value), node, True)
            self.write(element, value, node)
            return
        old: ast.expr = (ast.Name(target.id, ast.Load()) if isinstance(target, ast.Name)
                         else ast.Attribute(target.value, target.attr, ast.Load()))
        ast.copy_location(old, target)
        value = operators.operate(self, type(node.op), self.visit(old), self.visit(node.value),
                                  node, True)
        self.set(target, value, node)

    def set(self, target: ast.expr, value: Value, node: ast.AST) -> None:
        """Assign a value to a name, an element, a field, or several of them."""
        if isinstance(target, ast.Name):
            if isinstance(value, Expr):
                value = self.bind(value, target.id, node)
            self.env[target.id] = value
        elif isinstance(target, ast.Tuple | ast.List):
            self._unpack(target, value, node)
        elif isinstance(target, ast.Subscript):
            owner = self.visit(target.value)
            if not chosen.is_array(owner):
                raise self.wrong(target, f"{describe(owner)} cannot be assigned to",
                                 FIXED if isinstance(owner, Group) else _NO_ELEMENTS)
            self.write(self.element(owner, target), value, node)
        elif isinstance(target, ast.Attribute):
            self._set_field(target, value, node)
        else:
            raise self.wrong(target, f"assignment to {title(target)} is not supported")

    def _set_field(self, target: ast.Attribute, value: Value, node: ast.AST) -> None:
        owner = self.visit(target.value)
        if isinstance(owner, Fields) and target.attr in owner.names:
            self.write(fields.named(self, owner, target.attr, target), value, node)
            return
        if not isinstance(owner, Group) or target.attr not in owner.names:
            raise self.wrong(target, f"{describe(owner)} has no field {target.attr!r} to assign to")
        options = getattr(owner.kind, "__dataclass_params__", None)
        if options is None or options.frozen:
            raise self.wrong(target, f"{describe(owner)} is immutable")
        if isinstance(value, Expr):
            value = self.bind(value, target.attr, node)
        items = list(owner.items)
        items[owner.names.index(target.attr)] = value
        self.set(target.value, Group(tuple(items), owner.names, owner.kind), node)

    def _unpack(self, target: ast.Tuple | ast.List, value: Value, node: ast.AST) -> None:
        if isinstance(value, View | Fields) and value.shape:
            value = self._rows(target, value, node)
        if not isinstance(value, Group):
            raise self.wrong(target, f"cannot unpack {describe(value)}")
        stars = [k for k, e in enumerate(target.elts) if isinstance(e, ast.Starred)]
        if stars and len(value.items) >= len(target.elts) - 1:
            first = stars[0]
            last = len(value.items) - (len(target.elts) - 1 - first)
            rest = Group(value.items[first:last])
            value = Group((*value.items[:first], rest, *value.items[last:]))
        if len(target.elts) != len(value.items):
            raise self.wrong(target, f"cannot unpack {len(value.items)} values into "
                             f"{len(target.elts)} names")
        bound = [self.bind(v, "item", node) if isinstance(v, Expr) else v for v in value.items]
        for part, item in zip(target.elts, bound, strict=True):
            self.set(part.value if isinstance(part, ast.Starred) else part, item, node)

    def _rows(self, target: ast.Tuple | ast.List, array: View | Fields,
              node: ast.AST) -> Value:  # fmt: skip
        """Return the rows of an array, as many as there are names for them."""
        extent = array.shape[0]
        count = len(target.elts)
        if extent.op is Op.CONST:
            count = int(extent.attr)
        elif any(isinstance(e, ast.Starred) for e in target.elts):
            return array
        else:
            self.require(extent.eq(count), f"an array of another length than {count}", node,
                         extent, ex.index(count))
        place = ast.copy_location(ast.Constant(0), target)
        indices: list[list[tuple[ast.expr, Value | None]]] = [[(place, Known(k))]
                                                              for k in range(count)]
        return Group(tuple(self.read(
            fields.part(self, array, i, node) if isinstance(array, Fields) else
            self.part(array, i, node), node) for i in indices))

    # --- conditions

    def _if(self, node: ast.If, rest: Sequence[ast.stmt]) -> int:
        try:
            test = self.condition(node.test)
        except Stop:
            self._forget(node)
            return self.run(rest)
        if isinstance(test, bool):
            return self.run((*(node.body if test else node.orelse), *rest))
        ends = flow.always_jumps(node.body), flow.always_jumps(node.orelse)
        if rest and any(ends):
            self.after.append(frozenset())
            self.after[-2] = frozenset()  # what follows is read inside of the branches
            then = node.body if ends[0] else (*node.body, *rest)
            orelse = node.orelse if ends[1] else (*node.orelse, *rest)
            leaves = (False, False)
            if len(self.frames) == 1:
                leaves = flow.always_returns(node.body), flow.always_returns(node.orelse)
            try:
                return self.branches(test, lambda: self.run(then), lambda: self.run(orelse), node,
                                     leaves)
            finally:
                self.after.pop()
        state = self.branches(test, lambda: self.run(node.body), lambda: self.run(node.orelse),
                              node)
        if state == FALLS:
            return self.run(rest)
        return state if state == JUMPS else self._guarded(rest, node)

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
        if any(complexes.is_complex(v) for v in values):
            sides = [(self._complex_in(body, v, name, node), body) for v, body in sides]
            if any(v is None for v, _ in sides) and len(values) == len(sides):
                return None
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
            if isinstance(value, Group):  # of cells
                items = tuple(self._read_in(body, v, name, node) for v in value.items)
                value = value.replace(items=items)
                value = moving.placed(value) if moving.is_moving(value) else value
            held.append((None if value is None else moving.as_moving(value, kind), body))
        return self._meet_groups(name, held, node)

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

    def number_of(self, value: Any) -> Expr | None:
        """Return a value as a scalar, None if it is not one."""
        if isinstance(value, Known):
            return self.known_scalar(value.value)
        return value if isinstance(value, Expr) else None

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

    # --- jumps

    def _jump(self, node: ast.AST, *, leaves: bool) -> int:
        loops = self.frames[-1].loops
        if not loops:
            raise self.wrong(node, "break or continue outside of a loop")
        self.keep(loops[-1], node)
        self._raise_flags(loops[-1:], leaves, node)
        return JUMPS

    def _raise_flags(self, loops: list[Loop], leaves: bool, node: ast.AST) -> None:
        true = ex.const(True, dt.bool_)
        for loop in loops:
            if loop.leave is not None and leaves:
                self.put(loop.leave, true, node)
            if loop.flag is not None:
                self.put(loop.flag, true, node)

    def _break(self, node: ast.Break) -> int:
        return self._jump(node, leaves=True)

    def _continue(self, node: ast.Continue) -> int:
        return self._jump(node, leaves=False)

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
        if value is None or isinstance(value, Wrong) or isinstance(cell, Wrong):
            return None
        if (chosen.is_array(cell) or moving.is_moving(cell)) and chosen.is_array(value):
            return self._keep_array(cell, value, name, node)
        if isinstance(cell, Group):
            if (cell.kind is complex and self.number_of(value) is not None) or (
                complexes.is_complex(value)
            ):
                value = complexes.as_complex(self, value, node)
            if not isinstance(value, Group) or len(value.items) != len(cell.items):
                raise self.wrong(node, f"{name} changes from {describe(cell)} to "
                                 f"{describe(value)} in a loop")
            found = [self._keep(c, v, name, node)
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

    def _return(self, node: ast.Return) -> int:
        frame = self.frames[-1]
        value: Value = Known(None) if node.value is None else self.visit(node.value)
        self.give_back(frame, value, node)
        self._raise_flags(frame.loops, True, node)
        if frame.flag is not None:
            self.put(frame.flag, ex.const(True, dt.bool_), node)
        if len(self.frames) == 1 and (self.sanitised or frame.loops or frame.flag is not None):
            self.emit(Block(LEFT, ()), node)
        return JUMPS

    def give_back(self, frame: Frame, value: Value, node: ast.AST) -> None:
        """Set what a function returns."""
        if len(self.frames) == 1 and not (isinstance(value, Known) and value.value is None):
            raise self.wrong(node, f"a kernel returns {describe(value)}",
                             "a kernel returns nothing: write results to an array")
        frame.result = value

    # --- the rest

    def _assert(self, node: ast.Assert) -> None:
        test = self.condition(node.test)
        message = "assertion failed"
        if node.msg is not None:
            text = self.visit(node.msg)
            if not isinstance(text, Known):
                raise self.wrong(node.msg, "the message of an assert must be known when the "
                                 "kernel is compiled")
            message = str(text.value)
        if isinstance(test, bool):
            test = ex.const(test, dt.bool_)
        self.emit(Assert(test, f"{ASSERTED}: {message}", self.this_thread()), node)
        self.facts[-1].update(conjuncts(test))

    def _raise(self, node: ast.Raise) -> int:
        """Stop the kernel with what the exception says."""
        raised = node.exc
        words = []
        if isinstance(raised, ast.Call):
            words = [str(a.value) for a in raised.args if isinstance(a, ast.Constant)]
            raised = raised.func
        kind = raised.id if isinstance(raised, ast.Name) else "exception"
        message = f"{kind}: {' '.join(words)}" if words else kind
        self.emit(Assert(ex.const(False, dt.bool_), message, self.this_thread()), node)
        self._raise_flags(self.frames[-1].loops, True, node)
        if self.frames[-1].flag is not None:
            self.put(self.frames[-1].flag, ex.const(True, dt.bool_), node)
        return JUMPS

    def _pass(self, node: ast.Pass) -> None:
        del node


def _same_place(target: ast.expr, source: ast.expr) -> bool:
    """Whether an expression reads what an assignment sets."""
    if isinstance(target, ast.Name):
        return isinstance(source, ast.Name) and source.id == target.id
    if type(target) is not type(source):
        return False
    places = [ast.unparse(side) for side in (target, source)]
    return places[0] == places[1]


STATEMENTS: Final[dict[type[ast.AST], Callable[[Any, Any], int | None]]] = {
    ast.Expr: Statements._expression, ast.Assign: Statements._assign,
    ast.AnnAssign: Statements._annotated, ast.AugAssign: Statements._augmented,
    ast.Break: Statements._break, ast.Continue: Statements._continue,
    ast.Return: Statements._return, ast.Raise: Statements._raise,
    ast.Assert: Statements._assert, ast.Pass: Statements._pass,
}  # fmt: skip
