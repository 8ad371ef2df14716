"""Statements of kernels: assignment, conditions, device functions, and the ways out of them.

A name holds the value that it was last given. Where two ways meet behind an ``if``, a name that
they give different values lives in a register cell. ``break``, ``continue`` and ``return`` become
conditions: what follows them runs where they did not happen.
"""

from __future__ import annotations

import ast
import contextlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from weft.errors import ASSERTED
from weft.imports import Late
from weft.ir import dtype as dt
from weft.ir import expr as ex
from weft.ir.expr import Expr
from weft.ir.op import Op
from weft.ir.stmt import LEFT, Assert, Block
from weft.lang.core import operators, optional, scalars
from weft.lang.core.element_types import as_dtype
from weft.lang.core.emitter import conjuncts, negation
from weft.lang.core.hints import instead, title
from weft.lang.core.kind import kind_of
from weft.lang.core.values import (
    Fields,
    Group,
    Known,
    Value,
    View,
    Wrong,
    describe,
)
from weft.lang.reader.frames import Frame, Loop
from weft.lang.reader.phi import FALLS, JUMPS, MAYBE, ControlFlowJoins
from weft.lang.source import liveness
from weft.lang.source.source import Stop

if TYPE_CHECKING:
    from weft.lang.values import records
else:
    records = Late("weft.lang.values.records")

__all__ = ["STATEMENTS", "Statements"]

class Statements(ControlFlowJoins):
    """Reads statements."""

    # --- bodies

    def run(self, body: Sequence[ast.stmt]) -> int:
        """Read statements; return whether what follows them is reached."""
        behind = liveness.exposed_behind(body)
        for position, node in enumerate(body):
            rest = body[position + 1:]
            self.after.append(behind[position])
            try:
                if isinstance(node, ast.If):
                    state = self._if(node, rest)
                    if state is None:
                        continue
                    return state
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
        names = liveness.named([node])
        for name in liveness.assigned([node]):
            if name in names or name not in self.env:
                self.env[name] = Wrong()

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
            element = self._element(target)
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
            self.write(self._element(target), value, node)
        elif isinstance(target, ast.Attribute):
            self._set_field(target, value, node)
        else:
            raise self.wrong(target, f"assignment to {title(target)} is not supported")

    def _element(self, target: ast.Subscript) -> Any:
        """Return the part of an array that is assigned."""
        owner = optional.present(self, self.visit(target.value), target)
        return kind_of(owner).element(self, owner, target)

    def _set_field(self, target: ast.Attribute, value: Value, node: ast.AST) -> None:
        owner = optional.present(self, self.visit(target.value), target)
        if isinstance(owner, Fields) and target.attr in owner.names:
            self.write(records.named(self, owner, target.attr, target), value, node)
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
        value = optional.present(self, value, node)
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
        return Group(tuple(self.read(kind_of(array).part(self, array, i, node), node)
                           for i in indices))

    # --- conditions

    def _if(self, node: ast.If, rest: Sequence[ast.stmt]) -> int | None:
        """Read a condition and all that follows it; return None if that is still to be read."""
        try:
            test = self.condition(node.test)
        except Stop:
            self._forget(node)
            return None
        if isinstance(test, bool):
            taken = node.body if test else node.orelse
            return self._run_rest((*taken, *rest)) if taken else None
        ends = liveness.always_jumps(node.body), liveness.always_jumps(node.orelse)
        if rest and any(ends):
            self.after.append(frozenset())
            self.after[-2] = frozenset()  # what follows is read inside of the branches
            then = node.body if ends[0] else (*node.body, *rest)
            orelse = node.orelse if ends[1] else (*node.orelse, *rest)
            leaves = (False, False)
            if len(self.frames) == 1:
                leaves = liveness.always_returns(node.body), liveness.always_returns(node.orelse)
            try:
                return self.branches(test, lambda: self.run(then), lambda: self.run(orelse), node,
                                     leaves)
            finally:
                self.after.pop()
        state = self.branches(test, lambda: self.run(node.body), lambda: self.run(node.orelse),
                              node)
        if state == FALLS:
            return None
        self.after[-1] = frozenset()
        return state if state == JUMPS else self._guarded(rest, node)

    def _run_rest(self, rest: Sequence[ast.stmt]) -> int:
        """Read what follows a statement that is still open: nothing is behind that.

        Were its names read later, those who leave early would come back to hand them over.
        """
        self.after[-1] = frozenset()
        return self.run(rest)

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
            said = [self.visit(a) for a in raised.args if isinstance(a, ast.Constant | ast.Name)]
            words = [str(v.value) for v in said if isinstance(v, Known)]
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
