"""Open functions and loops of a kernel that is being read."""

from __future__ import annotations

import ast
from collections.abc import Set as AbstractSet
from typing import Any

from weft.ir.stmt import Memory
from weft.lang.source.source import Source

__all__ = ["Frame", "Loop"]


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
