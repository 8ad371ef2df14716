"""Loops of kernels.

A loop is read with the names that it changes in register cells, which it reads at the start of each
turn and writes at the end. If a cell turns out to be too narrow (an int that becomes a float), what
was written is dropped and the loop is read again with a wider one.
"""

from __future__ import annotations

import ast
import enum
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from weft.imports import Late
from weft.ir import dtype as dt
from weft.ir import expr as ex
from weft.ir.dtype import DType
from weft.ir.expr import Expr
from weft.ir.op import Op
from weft.ir.stmt import SERIAL, For, If, Memory, While
from weft.lang.core import array_union, optional, sliding_view
from weft.lang.core.barrier_check import TURNS, Fork
from weft.lang.core.emitter import conjuncts, negation
from weft.lang.core.kind import kind_of
from weft.lang.core.promotion import unify
from weft.lang.core.values import (
    Group,
    Iterator,
    Known,
    Value,
    Walk,
    Wrong,
    is_flat,
)
from weft.lang.reader.frames import Loop
from weft.lang.reader.nested_functions import nested_names
from weft.lang.reader.phi import FALLS, MAYBE
from weft.lang.reader.statements import STATEMENTS, Statements
from weft.lang.reader.type_cache import standing
from weft.lang.source import liveness
from weft.lang.source.termination import ends
from weft.lang.values import complex_numbers
from weft.lang.values import unify as kinds
from weft.lang.values.ranges import ENDLESS

if TYPE_CHECKING:
    from weft.lang.values import arrays, constants, iterators
else:
    arrays = Late("weft.lang.values.arrays")
    constants = Late("weft.lang.values.constants")
    iterators = Late("weft.lang.values.iterators")

__all__ = ["Loops", "join"]


Turn = Callable[[], int]  # reads one turn of a loop


class Loops(Statements):
    """Reads loops."""

    def _for(self, node: ast.For) -> int:
        items = self.walkable(self.visit(node.iter), node.iter)
        kept = isinstance(items, Known) and isinstance(items.value, Iterator | Walk)
        if kept and (it := iterators.first_of(items)):  # of which the body may take items, too
            return self._taking(node, items, it)
        if isinstance(items, Known) and isinstance(items.value, Walk):
            found = iterators.side_by_side(self, items.value, node.iter)
            if isinstance(found, list):
                return self._unrolled(node, found)
            items = found
        row = kind_of(items).items(items)
        if row is not None:
            return self._unrolled(node, [partial(row.__getitem__, k) for k in range(len(row))])
        extent, item = kind_of(items).iterate(self, items, node.iter)
        if ex.is_const(extent) and extent.attr >= ENDLESS:
            raise self.wrong(node.iter, "a loop without an end")

        def enter(k: Expr) -> None:
            self.limits[k] = (0, extent - 1)
            self.facts[-1].add(k.lt(extent))
            self.set(node.target, item(k), node)

        self.way.append(Fork(TURNS, extent))
        try:
            if liveness.breaks(node.body):
                end = self.bind(extent, "extent", node)
                return self._counted(node, lambda k, _: k.lt(end), enter)
            return self._loop(node, lambda loop: self._plain(node, extent, enter, loop), None)
        finally:
            self.way.pop()

    def _taking(self, node: ast.For, items: Value, it: Iterator) -> int:
        """Read a loop that takes its items of iterators: before each turn, if there is one."""
        item: Callable[[], Value]

        def more(k: Expr, stays: Expr) -> Expr:
            nonlocal item
            going, item = iterators.taken(self, items, stays, k, node.iter)
            return going

        self.way.append(Fork(TURNS, self.get(it.cell, "place", node)))
        try:
            return self._counted(node, more, lambda _: self.set(node.target, item(), node))
        finally:
            self.way.pop()

    def walkable(self, items: Value, node: ast.expr) -> Value:
        """Return what a loop goes over where a value is not that itself."""
        items = optional.present(self, items, node)
        if is_flat(items):
            return Known(arrays.elements(self, items))
        if isinstance(items, Known) and isinstance(items.value, enum.EnumMeta):
            return Group(tuple(map(Known, items.value)))
        return constants.listed(self, items, node)

    def _plain(self, node: ast.For, extent: Expr, enter: Callable[[Expr], None],
               loop: Loop) -> None:  # fmt: skip
        """Read a loop that is never left early."""
        var = self.fresh(_name_of(node.target), dt.int64)
        with self.into() as body:
            self.visible_in(var)
            self._reload(loop)
            enter(var)
            self._turn(node.body, loop, node)
        self.emit(For(var, extent, SERIAL, tuple(body)), node)

    def _counted(self, node: ast.For, more: Callable[[Expr, Expr], Expr],
                 enter: Callable[[Expr], None]) -> int:  # fmt: skip
        """Read a loop that may end early: it counts by itself, and asks before each turn.

        What asks is given the turn and whether the loop was not left before.
        """
        def read(loop: Loop) -> None:
            count = self.cell("count", dt.int64, node)
            self.put(count, ex.index(0), node)
            with self.into() as head:
                k = self.get(count, _name_of(node.target), node)
                stays = ex.const(True, dt.bool_) if loop.leave is None else negation(
                    self.get(loop.leave, "left", node))
                going = more(k, stays)
                test = going if loop.leave is None else ex.binary(Op.AND, stays, going)
                with self.into((*conjuncts(going), ex.index(0).le(k))) as body:
                    self._reload(loop)
                    self.put(count, k + 1, node)
                    enter(k)
                    self._turn(node.body, loop, node)
            self.emit(While(tuple(head), test, tuple(body)), node)

        return self._loop(node, read, None)

    def _while(self, node: ast.While) -> int:
        if liveness.walrus([node.test]):
            return self.run([_with_test_inside(self, node)])

        def read(loop: Loop) -> None:
            with self.into() as head:
                self._reload(loop)
                test = self._test(node, loop)
                with self.into(conjuncts(test)) as body:
                    self._turn(node.body, loop, node)
            self.emit(While(tuple(head), test, tuple(body), endless), node)

        endless = self.stoppable and not ends(node)
        return self._loop(node, read, node.test)

    def _test(self, node: ast.While, loop: Loop) -> Expr:
        """Return whether a while loop goes on, evaluated only where it is not left."""
        if loop.leave is None:
            found = self.condition(node.test)
            return ex.const(found, dt.bool_) if isinstance(found, bool) else found
        going = negation(self.get(loop.leave, "left", node))
        with self.into((going,)) as body:
            found = self.condition(node.test)
        test = ex.const(found, dt.bool_) if isinstance(found, bool) else found
        if not body:
            return ex.binary(Op.AND, going, test) if not ex.is_const(test, True) else going
        return self.scalar(self.select(going, test, body, ex.const(False, dt.bool_), [], node),
                           node)

    # --- what all loops share

    def _loop(self, node: ast.For | ast.While, read: Callable[[Loop], None],
              test: ast.expr | None) -> int:  # fmt: skip
        """Read a loop, with wider cells as often as that is needed."""
        names = set(liveness.assigned(node.body))
        inside = liveness.exposed(node.body)
        if isinstance(node, ast.For):
            names |= _targets(node.target)
            inside -= _targets(node.target)  # which each turn sets
        if test is not None:
            inside |= liveness.loaded((test,))
        self.after += [liveness.exposed(node.orelse), inside]
        carried = sorted(n for n in names if self._is_carried(n, inside, node))
        held_ = self._held(node, names), carried
        guess = self.guesses.of_loop(self.calls, node, held_)
        widths, early = (dict(guess[0]), set(guess[1])) if guess else ({}, set())
        wanted = sorted({*carried, *early})
        leaves = liveness.breaks(node.body)
        while True:
            mark = self.mark()
            loop = Loop(self.flag("leave", leaves, node), self.flag(
                "skip", liveness.needs_flag((*node.body, ast.Continue())), node), {}, names)
            for name in wanted:
                held = self.env.get(name)
                if isinstance(held, Memory) and widths.get(name) is None:
                    loop.cells[name] = held  # of the loop or branch around: it goes on with it
                elif name in self.env:
                    loop.cells[name] = self._cells(
                        name, self.opened(self.env[name], name, node), widths.get(name), node)
                elif name in widths:
                    loop.cells[name] = self._empty_cells(name, widths[name], node)
                    if name in early:
                        self._fill(loop.cells[name], self.out, node)
                else:
                    loop.cells[name] = _Unborn()
            read(loop)
            if not loop.wider and not loop.early:
                break
            if guess is not None:  # what it holds for does not tell all: from the beginning
                guess, widths, early = None, {}, set()
                wanted = carried
                self.back_to(mark)
                continue
            early |= loop.early
            wanted = sorted({*wanted, *early})
            for name, wider in loop.wider.items():
                widths[name] = join(widths.get(name), wider)
            self.back_to(mark)
        self.guesses.note_loop(self.calls, node, held_, widths, early)
        self.after.pop()
        for name, cell in loop.cells.items():
            if isinstance(cell, _Unborn) or not self.is_read_later(name):
                self.env.pop(name, None)
            else:
                self.env[name] = cell
        self.after.pop()
        return self._behind(node, loop)

    def _held(self, node: ast.AST, names: set[str]) -> Any:
        """Return what the types of a loop can depend on: what the names that it reads hold."""
        asked = names | liveness.loaded((node,))
        held = []
        for frame in self.frames:  # functions inside of them may read any of their names
            env = self.env if frame is self.frames[-1] else frame.env
            seen = env.keys() if frame.inner else asked & env.keys() if env is self.env else ()
            held += [(name, standing(env[name])) for name in sorted(seen)]
        return held

    def set_before(self, name: str) -> Value | None:
        """Return a zero of the narrowest type for a name of numba's; its loop is read again.

        Numba takes a name for set that no way to a line sets, and a program knows that a turn
        before this one has set it. The outermost loop that sets it gets a cell for it.
        """
        for loop in self.frames[-1].loops if self.wraps else ():
            if name in loop.names:
                if name not in loop.cells:
                    loop.early.add(name)
                return ex.const(False, dt.bool_)
        return None

    def _is_carried(self, name: str, inside: frozenset[str], node: ast.For | ast.While) -> bool:
        later = any(name in names for names in (*self.after[:-1], *nested_names(self.frames)))
        if isinstance(node, ast.For) and name in _targets(node.target) and (
            name not in liveness.assigned(node.body)
        ):
            return later
        return later or (name in inside and name in self.env)

    def _behind(self, node: ast.For | ast.While, loop: Loop) -> int:
        """Read the else branch of a loop; return whether what follows it is reached."""
        state = MAYBE if liveness.returns(node.body) else FALLS
        if not node.orelse:
            return state
        if loop.leave is None:
            return self.run(node.orelse) or state
        stayed = negation(self.get(loop.leave, "left", node))
        other = self.branches(stayed, lambda: self.run(node.orelse), lambda: FALLS, node)
        return max(state, other)

    def _turn(self, body: Sequence[ast.stmt], loop: Loop, node: ast.AST) -> None:
        """Read the body of a loop once; it ends as if by continue, which keeps what it changed."""
        end = ast.copy_location(ast.Continue(), body[-1])
        if loop.flag is not None:
            self.put(loop.flag, ex.const(False, dt.bool_), node)
        self.frames[-1].loops.append(loop)
        try:
            self.run((*body, end))
        finally:
            self.frames[-1].loops.pop()

    def flag(self, name: str, needed: bool, node: ast.AST) -> Memory | None:
        """Declare a flag that is not set, if it is needed."""
        if not needed:
            return None
        cell = self.cell(name, dt.bool_, node)
        self.put(cell, ex.const(False, dt.bool_), node)
        return cell

    def _reload(self, loop: Loop) -> None:
        for name, cell in loop.cells.items():
            if isinstance(cell, _Unborn):
                self.env.pop(name, None)
            else:
                self.env[name] = cell

    def _cells(self, name: str, value: Any, width: Any, node: ast.AST) -> Any:
        """Return cells that hold a value, and the value itself where it is no number."""
        if complex_numbers.is_complex(value):
            value = complex_numbers.as_complex(self, value, node)
        value = kind_of(width).take(self, value, width, node)
        if isinstance(value, Group):
            widths = width.items if width is not None else (None,) * len(value.items)
            kept = value.kind is slice  # whose step, while no turn changes it, stays known
            items = tuple(v if kept and k == 2 and w is None and isinstance(v, Known) else
                          self._cells(f"{name}.{k}", v, w, node)
                          for k, (v, w) in enumerate(zip(value.items, widths, strict=True)))
            return Group(items, value.names, value.kind)
        x = self.number_of(value)
        if x is None:
            return value
        d = x.dtype if width is None else unify(x.dtype, width)
        cell = self.cell(name, d, node)
        self._keep(cell, x, name, node)
        return cell

    def _empty_cells(self, name: str, width: Any, node: ast.AST) -> Any:
        if isinstance(width, Group):
            return Group(tuple(self._empty_cells(f"{name}.{k}", w, node)
                               for k, w in enumerate(width.items)), width.names, width.kind)
        return self.cell(name, width, node)

    def _keep(self, cell: Any, value: Any, name: str, node: ast.AST) -> Any:
        if isinstance(cell, _Unborn):
            return None if value is None or isinstance(value, Wrong) else self._widths(value)
        return super()._keep(cell, value, name, node)

    # --- loops over tuples

    def _unrolled(self, node: ast.For, items: Sequence[Callable[[], Value]]) -> int:
        if not liveness.jumps(node.body):
            for item in items:
                self.after.append(liveness.exposed(node.body))
                try:
                    self.set(node.target, item(), node)
                    self.run(node.body)
                finally:
                    self.after.pop()
            return self.run(node.orelse) if node.orelse else FALLS

        def read(loop: Loop) -> None:
            def turn(position: int) -> int:
                if position == len(items):
                    return FALLS
                self._reload(loop)
                self.set(node.target, items[position](), node)
                self._turn(node.body, loop, node)
                if loop.leave is None:
                    return turn(position + 1)
                going = negation(self.get(loop.leave, "left", node))
                with self.into((going,)) as body:
                    turn(position + 1)
                self._close(going, body, node)
                return FALLS

            turn(0)

        return self._loop(node, read, None)

    def _close(self, test: Expr, body: list[Any], node: ast.AST) -> None:
        if body:
            self.emit(If(test, tuple(body)), node)


class _Unborn:
    """Stands for the cell of a name that gets its first value inside a loop."""


def join(a: Any, b: Any) -> Any:
    """Return types that hold what both types hold."""
    if a is None or b is None:
        return a if b is None else b
    for one, other in ((a, b), (b, a)):
        if isinstance(one, Group) and one.kind is complex and isinstance(other, DType):
            return one.replace(items=tuple(unify(x, other) for x in one.items))
    for one, other in ((a, b), (b, a)):
        if optional.is_optional(one) and isinstance(other, DType | Group) and (
            not optional.is_optional(other)
        ):
            return optional.width(join(one.items[1], other))
    kind = kinds.joined([a, b])
    if kind is not None:
        return kinds.width(kind)
    if sliding_view.is_sliding_view(a) or sliding_view.is_sliding_view(b):
        return _join_parts(a, b)
    if array_union.is_array_union(a) and array_union.is_array_union(b):
        kind = array_union.joined([*a.kind.options, *b.kind.options])
        return a if kind is None else array_union.width(kind)
    if isinstance(a, Group) and isinstance(b, Group) and len(a.items) == len(b.items):
        return a.replace(items=tuple(join(x, y) for x, y in zip(a.items, b.items, strict=True)))
    return unify(a, b) if isinstance(a, DType) and isinstance(b, DType) else a


def _join_parts(a: Any, b: Any) -> Any:
    """Return types that hold the parts of an array that both types hold, or the later ones."""
    if not (sliding_view.is_sliding_view(a) and sliding_view.is_sliding_view(b)):
        return (
            a if sliding_view.is_sliding_view(a) else b
        )  # which was made of what the other can be
    both = sliding_view.merged(a.kind, b.kind)
    return b if both is None else sliding_view.width(both)


def _with_test_inside(c: Loops, node: ast.While) -> ast.While:
    """Return a loop whose test, which sets names, stands in its body."""
    if node.orelse and liveness.jumps(node.orelse):
        raise c.wrong(node, "a jump in the else of a loop whose test sets names by :=",
                      "set them in the body")
    test = ast.copy_location(ast.If(node.test, node.body, [*node.orelse, ast.copy_location(
        ast.Break(), node)]), node)
    always = ast.copy_location(ast.Constant(True), node)
    return ast.copy_location(ast.While(always, [test], []), node)


def _name_of(target: ast.expr) -> str:
    return target.id if isinstance(target, ast.Name) else "k"


def _targets(target: ast.expr) -> frozenset[str]:
    return liveness.assigned([ast.Expr(target)])


STATEMENTS[ast.For] = Loops._for
STATEMENTS[ast.While] = Loops._while
