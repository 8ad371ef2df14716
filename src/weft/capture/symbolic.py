"""A captured signature with symbolic sizes, and its plans specialised to sizes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from typing import Any, Final

from weft.capture.capture import Recorder, fix_sizes
from weft.capture.captured_graph import Entry, Packs, Symbolic
from weft.capture.captured_values import Argument, Out, Past
from weft.capture.pytree import with_items
from weft.capture.specialization import detached, specialize
from weft.ir.expr import Expr, deciding_equality
from weft.ir.node import Node
from weft.ir.size import evaluate, evaluate_all

__all__ = ["DynamicEntry", "fixed"]

_MOST: Final = 256  # sizes that are kept ready


class DynamicEntry(Entry):
    """A captured signature with symbolic sizes; `at` gives what is replayed for their values."""

    def __init__(self, function: Callable[..., Any], args: Any, kwargs: Any,
                 arguments: Sequence[Argument], packs: Packs = False,
                 symbols: Symbolic | None = None) -> None:  # fmt: skip
        def decided(*given: Any, **named: Any) -> Any:
            with deciding_equality():
                return function(*given, **named)

        self.keeps_graph = symbols is not None and symbols.sizes is not None  # for `plain`
        super().__init__(function if self.keeps_graph else decided, args, kwargs, arguments,
                         None, packs, symbols)
        self.values: Mapping[str, int] = {}
        self._at: dict[tuple[int, ...], DynamicEntry] = {}

    def _compile(self, recorder: Recorder, packs: Packs) -> None:
        if self.keeps_graph:
            self._graph, self._noted = detached(self, recorder)
        super()._compile(recorder, packs)

    def plain(self) -> Entry:
        """Return the capture at these values compiled anew, with numbers for its sizes."""
        made = Entry.__new__(Entry)
        made.__dict__.update(self._graph.__dict__)
        made.tries, made.attached = 0, set()
        specialize(made, self.values)
        made._compile(self._noted, False)
        return made

    def alone(self) -> Entry:
        """Return the capture as one of the sizes that it was made with: it has no variables."""
        made = Entry.__new__(Entry)
        made.__dict__.update(self.__dict__)
        return made

    def at(self, values: Mapping[str, int]) -> DynamicEntry:
        """Return the entry for values of the variables: all its shapes are fixed."""
        key = tuple(values.values())
        found = self._at.get(key)
        if found is None:
            found = copy(self)
            found.values, found._at, found.base = values, {}, self
            found.tries, found.attached = 0, set()
            if self.compiled is not None:
                found.compiled = self.compiled.at(values)
            found.template = fixed(self.template, values)
            found.single = found.template[:3] if isinstance(found.template, Out) else None
            found.grads = [(t, fixed(out, values)) for t, out in self.grads]
            found.draws = [(g, evaluate(blocks, values)) for g, blocks in self.draws]
            if len(self._at) >= _MOST:
                self._at.clear()
            self._at[key] = found
        return found

    def place(self, values: Mapping[str, int]) -> list[int]:
        """Return the sizes by which the tally counts a call."""
        compiled = self.compiled
        return [] if compiled is None else [values[name] for name in compiled.plan.variables]

    def _rebuild_history(self, node: Node, past: Past) -> Node:
        return fix_sizes(super()._rebuild_history(node, past), self.values)


def fixed(template: Any, values: Mapping[str, int]) -> Any:
    """Return a result's template with the symbolic sizes in it replaced."""
    if isinstance(template, Out):
        return template._replace(shape=evaluate_all(template.shape, values))
    if isinstance(template, Expr):
        return evaluate(template, values)
    return with_items(template, lambda v: fixed(v, values))
