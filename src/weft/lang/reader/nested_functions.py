"""Functions that are defined inside of kernels, and lambdas: they read the names around them."""

from __future__ import annotations

import ast
import inspect
from typing import Any

from weft.lang.core.context import Context
from weft.lang.core.values import Value
from weft.lang.reader.frames import Frame
from weft.lang.source import liveness
from weft.lang.source.source import Source

__all__ = ["NestedFunction", "captured", "nested_function", "nested_names", "of_lambda"]


class NestedFunction(Source):
    """A function inside of another one.

    Attributes
    ----------
    signature : inspect.Signature
        Its parameters; defaults are values, as they were where it is defined.
    frame, env : Frame, and dict
        The open function that it stands in, and that one's names when it was defined.
    """

    def __init__(self, outer: Source, tree: ast.FunctionDef, signature: inspect.Signature,
                 frame: Frame) -> None:  # fmt: skip
        self.outer, self.tree, self.file, self.name = outer, tree, outer.file, tree.name
        self.caller = outer.caller
        self.function = self  # type: ignore[assignment]  # tells it from others
        self.__name__ = tree.name
        self.signature, self.frame = signature, frame
        self.env: dict[str, Any] = {}
        self.assigned = liveness.named(tree.body)
        self.outside = outer.outside

    def lookup(self, name: str) -> tuple[bool, Any]:
        """Return whether a name from outside of the kernel is known, and what it holds now."""
        return self.outer.lookup(name)

    def names(self) -> tuple[str, ...]:
        """Return all names from outside that the function may use."""
        return self.outer.names()


def nested_function(c: Context, frame: Frame, node: ast.FunctionDef) -> NestedFunction:
    """Return a function that is defined here; the same one if this is read again."""
    if node.decorator_list:
        raise c.wrong(node.decorator_list[0], "a decorator of a nested function",
                      "leave it out, or define the function outside of the kernel")
    known = frame.inner.get(node)
    if known is None:
        known = frame.inner[node] = NestedFunction(c.source, node, _signature(c, node.args), frame)
    known.env = dict(c.env)
    return known


def of_lambda(c: Context, frame: Frame, node: ast.Lambda) -> NestedFunction:
    """Return a lambda as a function."""
    lambdas = frame.lambdas
    if node not in lambdas:
        body = ast.copy_location(ast.Return(node.body), node)
        lambdas[node] = ast.copy_location(ast.FunctionDef("lambda", node.args, [body], []), node)
    return nested_function(c, frame, lambdas[node])


def captured(c: Context, frames: list[Frame], inner: NestedFunction) -> dict[str, Any]:
    """Return the names around a function that it reads, as they are where it is called."""
    env = inner.env
    for frame in frames:
        if frame is inner.frame:
            env = c.env if frame is frames[-1] else frame.env
    return {name: env[name] for name in liveness.loaded(inner.tree.body)
            if name in env and name not in inner.assigned}


def nested_names(frames: list[Frame]) -> list[frozenset[str]]:
    """Return the names that the functions inside of the open function read."""
    return (
        [liveness.loaded(inner.tree.body) for inner in frames[-1].inner.values()] if frames else []
    )


def _signature(c: Context, args: ast.arguments) -> inspect.Signature:
    """Return the parameters of a function, with the values of their defaults."""
    kinds = inspect.Parameter
    found: list[inspect.Parameter] = []
    plain: list[tuple[ast.arg, Any]] = [(a, kinds.POSITIONAL_ONLY) for a in args.posonlyargs]
    plain += [(a, kinds.POSITIONAL_OR_KEYWORD) for a in args.args]
    missing = len(plain) - len(args.defaults)
    for k, (a, kind) in enumerate(plain):
        default: Value | Any = kinds.empty if k < missing else c.visit(args.defaults[k - missing])
        found.append(kinds(a.arg, kind, default=default))
    if args.vararg is not None:
        found.append(kinds(args.vararg.arg, kinds.VAR_POSITIONAL))
    for a, value in zip(args.kwonlyargs, args.kw_defaults, strict=True):
        default = kinds.empty if value is None else c.visit(value)
        found.append(kinds(a.arg, kinds.KEYWORD_ONLY, default=default))
    if args.kwarg is not None:
        found.append(kinds(args.kwarg.arg, kinds.VAR_KEYWORD))
    return inspect.Signature(found)
