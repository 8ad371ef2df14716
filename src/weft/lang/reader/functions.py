"""Device functions, whose bodies are read in place of their calls, and functions in functions."""

from __future__ import annotations

import ast
import inspect
from typing import Any, Final

from weft.errors import KernelError, shown_file
from weft.ir.dtype import DType
from weft.ir.expr import Expr
from weft.lang.core import array_union, optional, sliding_view
from weft.lang.core.context import VISIT
from weft.lang.core.values import Group, Known, Value, describe
from weft.lang.reader.frames import Frame
from weft.lang.reader.loops import Loops, join
from weft.lang.reader.nested_functions import NestedFunction, captured, nested_function, of_lambda
from weft.lang.reader.statements import STATEMENTS
from weft.lang.reader.type_cache import is_plain
from weft.lang.source import liveness
from weft.lang.source.source import Source, Stop, read_source
from weft.lang.values import structs, unify

__all__ = ["Functions"]

_DEPTH: Final = 64  # device functions that call each other


class Functions(Loops):
    """Reads calls of device functions: their bodies, in place of the calls."""

    def inline(self, function: Any, args: list[Value], named: dict[str, Value],
               node: ast.AST) -> Value:  # fmt: skip
        """Return what a device function gives; its body is read in place of the call."""
        name = function.__name__
        inner = function if isinstance(function, NestedFunction) else None
        around = {} if inner is None else captured(self, self.frames, inner)
        signature = inspect.signature(function) if inner is None else inner.signature
        open_ = [f.source.function for f in self.frames]
        if function in open_:
            between = [f.__name__ for f in open_[open_.index(function) + 1:]]
            through = f" through {', '.join(between)}" if between else ""
            raise self.wrong(node, f"{name} calls itself{through}",
                             "kernels have no recursion: use a loop")
        if len(self.frames) >= _DEPTH:
            raise self.wrong(node, f"more than {_DEPTH} calls inside each other")
        try:
            bound = signature.bind(*args, **named)
            source = self._source_of(function) if inner is None else inner
        except TypeError as error:
            found = error.found if isinstance(error, KernelError) else str(error)
            hint = getattr(error, "hint", "") or _usage(name, signature)
            raise self.wrong(node, f"{name}: {found}", hint) from None
        bound.apply_defaults()
        if inner is None and (function.__module__ or "").startswith("weft."):
            source = source.in_place_of(self.source, node)
        elif inner is None:
            self.functions[name] = None
        values = {}
        for key, value in bound.arguments.items():
            if signature.parameters[key].kind is inspect.Parameter.VAR_POSITIONAL:
                value = Group(tuple(value))
            values[key] = value if isinstance(value, Value) else self.outside(value, node)
        for key, value in values.items():
            if isinstance(value, Expr):
                values[key] = self.bind(value, key, node)
        return self._read_function(source, {**around, **values}, node)

    def _source_of(self, function: Any) -> Source:
        """Return what a device function was written as, which is looked up once for a kernel."""
        found = self.sources.get(function)
        if found is None:
            found = self.sources[function] = read_source(function)
        return found

    def _define(self, node: ast.FunctionDef) -> None:
        self.env[node.name] = Known(nested_function(self, self.frames[-1], node))

    def _lambda(self, node: ast.Lambda) -> Value:
        return Known(of_lambda(self, self.frames[-1], node))

    def _read_function(self, source: Source, values: dict[str, Any], node: ast.AST) -> Value:
        body: list[ast.stmt] = source.tree.body
        ends = [n for s in body for n in liveness.walk(s) if isinstance(n, ast.Return)]
        # Behind a raise its return is read in a guard, and what it gives is known only there.
        simple = not ends or (len(ends) == 1 and body[-1] is ends[0] and not liveness.returns(
            body[:-1]))
        if self.wraps and any(n.value is not None for n in ends) and liveness.falls(body):
            # As in numba: None is a mistake where it is used, and only if a thread gets there.
            body = [*body, *([] if self.unused is node else [_no_value(source, body[-1])])]
        open_end = body is not source.tree.body and _asks_for_none(self.source)
        outer = self.source, self.env, self.after
        case = source.tree, len(body), *(
            v.dtype if isinstance(v, Expr) else type(v) for v in values.values())
        guess = None if simple or open_end else self.guesses.returned.get(case)
        types: Any = None if guess is None else guess[1]
        first: Any = None
        while True:
            mark = self.mark()
            frame = Frame(source, self.flag("returned", liveness.needs_flag(body), node),
                          len(self._scopes))
            if not simple and types is not None:
                frame.cells = self._empty_cells(source.name, types, node) if not isinstance(
                    types, _Nothing) else types
            frame.types = types
            self.frames[-1].env = self.env
            self.frames.append(frame)
            calls = self.calls
            # What is compiled nobody calls, and what is Weft's own stands where it is called.
            if source is not self.source and source.caller is None:
                place = self.source.place(node)
                self.calls = [*calls, f"{shown_file(place.file)}:{place.line}"]
            self.source, self.env, self.after = source, dict(values), []
            known = len(self.problems.found)
            try:
                self.run(body)
            finally:
                self.frames.pop()
                self.calls = calls
                self.source, self.env, self.after = outer
            if guess is not None and not (
                len(self.problems.found) == known and frame.found == guess[0]
                and frame.types == types
            ):
                guess = types = None  # other types than in the call before: from the beginning
                self.back_to(mark)
                continue
            if len(self.problems.found) > known:
                raise Stop
            if simple or frame.types == types:
                break
            first = frame.types if types is None else first
            types = frame.types
            self.back_to(mark)
            if open_end and isinstance(types, DType | Group):
                last = source.tree.body[-1]
                body = [*source.tree.body, ast.copy_location(ast.Return(None), last)]
                types, open_end = None, False
        if not simple and guess is None and first is not None and is_plain(types):
            self.guesses.returned[case] = first, types
        if simple:
            return Known(None) if frame.result is None else frame.result
        gives = frame.types is not None and not isinstance(frame.types, _Nothing)
        if gives and not self.wraps and liveness.falls(body):
            raise self.wrong(node, f"{source.name} returns a value on some ways only",
                             "return one at its end, too")
        if frame.types is None and structs.is_refusal(frame.result):
            return Known(NotImplemented)
        if frame.cells is None or isinstance(frame.cells, _Nothing):
            return Known(None)
        found: Value = array_union.unwrapped(self.opened(frame.cells, source.name, node))
        return found

    def give_back(self, frame: Frame, value: Value, node: ast.AST) -> None:
        """Set what a function returns: a value, or cells where there are several ways out."""
        super().give_back(frame, value, node)
        if len(self.frames) == 1:
            return
        width = _Nothing() if isinstance(value, Known) and value.value is None else (
            self._widths(value, True))
        if frame.cells is not None and not isinstance(frame.cells, _Nothing):
            frame.found = width if frame.found is None else join(frame.found, width)
        if frame.cells is None:
            frame.types = width if frame.types is None else self._both(frame.types, width, node)
        elif (not optional.is_optional(frame.cells) and (
            isinstance(frame.cells, _Nothing) != isinstance(width, _Nothing)
        )) or not _is_alike(frame.cells, width):
            raise self.wrong(node, f"{frame.source.name} returns {describe(value)} here and "
                             "something else elsewhere")
        elif not isinstance(frame.cells, _Nothing):
            outer, self.steady = self.steady, frame.depth
            try:
                wider = self._keep(frame.cells, value, frame.source.name, node)
            finally:
                self.steady = outer
            if wider is not None:
                frame.types = join(frame.types, wider)

    def _both(self, a: Any, b: Any, node: ast.AST) -> Any:
        if isinstance(a, _Nothing) or isinstance(b, _Nothing):
            if isinstance(a, _Nothing) and isinstance(b, _Nothing):
                return a
            found = b if isinstance(a, _Nothing) else a
            if self.wraps and optional.is_optional(found):
                return found
            if self.wraps and isinstance(found, DType | Group):
                return optional.width(found)
            raise self.wrong(node, "a function that returns a value on some ways only")
        return join(a, b)


class _Nothing:
    """Stands for the type of None."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Nothing)

    __hash__ = object.__hash__


def _is_alike(cells: Any, width: Any) -> bool:
    """Whether two tuples have as many items and are of one class, as far as both are tuples."""
    if not (isinstance(cells, Group) and isinstance(width, Group)) or any(
        array_union.is_array_union(g) or sliding_view.is_sliding_view(g) or optional.is_optional(g)
        for g in (cells, width)
    ):
        return True  # what meets them says what is wrong
    if unify.joined([cells, width]) is not None:
        return True
    return cells.kind is width.kind and len(cells.items) == len(width.items) and all(
        map(_is_alike, cells.items, width.items))


def _no_value(source: Source, last: ast.stmt) -> ast.stmt:
    """Return what stops a thread at the end of a function that should have returned a value."""
    message = ast.Constant(f"{source.name} returned None here, and a value elsewhere")
    made = ast.Raise(ast.Call(ast.Name("TypeError", ast.Load()), [message], []), None)
    for inner in ast.walk(made):
        ast.copy_location(inner, last)
    return made


def _asks_for_none(source: Source) -> bool:
    """Whether a function compares anything with None, as a caller does that is given it."""
    return any(isinstance(c, ast.Constant) and c.value is None
               for n in ast.walk(source.tree) if isinstance(n, ast.Compare)
               for c in (n.left, *n.comparators))


def _usage(name: str, signature: inspect.Signature) -> str:
    names = ", ".join(str(p.replace(annotation=p.empty)) for p in signature.parameters.values())
    return f"{name}({names})"


STATEMENTS[ast.FunctionDef] = Functions._define
VISIT[ast.Lambda] = lambda c, node: c._lambda(node)
