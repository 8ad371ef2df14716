"""Compute functions inside of `weft.jit`: operations of the graph, as launches of kernels are.

The loops stand in the plan for the sizes and numbers of the capture, in the form that strategies
know; where that form would fall back to the function as it was written, they stand there like that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from weft.ir.op import Op
from weft.ir.stmt import SERIAL, Assert, Body, For, Kernel, Memory, Store
from weft.ir.traverse import walk
from weft.lang.compute.arguments import LARGEST, Arguments, Declared, Sharing
from weft.lang.compute.translate import Written, translate
from weft.lang.launch.captured import Taken, marked, note, operands
from weft.lang.values.records import FlatNeeded
from weft.passes.nests import FALLBACK, normalise

if TYPE_CHECKING:
    from weft.lang.compute.annotations import Annotations
    from weft.lang.launch.signature import Signature

__all__ = ["call_captured"]


class _Function(Protocol):
    """A compute function: see `weft.lang.compute.function`."""

    __name__: str
    __weft_function__: Callable[..., Any]
    annotations: Annotations
    _signature: Signature

    def _check_requests(self, kernel: Kernel, written: Written) -> object: ...


def call_captured(function: _Function, args: tuple[Any, ...]) -> None:
    """Note a call on tensors in the capture that is on."""
    name = function.__name__
    host = Arguments(name, function._signature)
    host.bind(function._signature, args)
    taken = Taken(f"call of {name}", host)
    groups: dict[int, list[str]] = {}
    for parameter, number in taken.numbers.items():
        groups.setdefault(number, []).append(parameter)
    same = tuple(tuple(names) for names in groups.values() if len(names) > 1)
    sharing = Sharing(same) if same else None
    plain = all(-LARGEST <= host.variables[n] <= LARGEST for n in host.integers)
    written = _translated(function, host, sharing, exact=not plain)
    checked = not function.annotations.unchecked
    nest = normalise(written.kernel, checked) if plain else written.kernel
    hints: tuple[tuple[str, Any], ...] = (("compute", True), ("noalias", True),
                                          *function.annotations.hints())
    if not plain or any(isinstance(s, Assert) and s.message == FALLBACK for s in walk(nest.body)):
        written = _translated(function, host, sharing, exact=True)
        nest = written.kernel
        hints = (("compute", True), ("wish vectors", False), ("wish threads", False))
    else:
        function._check_requests(nest.replace(meta=nest.meta.replace(hints=hints)), written)
    kernel, nodes, writes = operands(nest, written.constants, taken)
    kernel, checks = marked(kernel, None, None, function)
    kernel = kernel.replace(meta=kernel.meta.replace(hints=hints))
    fresh = [k for k in writes if _sets_all(kernel, kernel.params[k])]
    note(name, kernel, checks, taken, nodes, writes, fresh)


def _translated(function: _Function, host: Arguments, sharing: Sharing | None,
                exact: bool) -> Written:  # fmt: skip
    """Return the loops for the sizes and numbers of a call."""
    negative = frozenset(n for n in host.integers if host.variables[n] < 0)
    known: Mapping[str, int] = dict(host.variables)
    source, checked = function.__weft_function__, not function.annotations.unchecked
    try:
        return translate(source, host.types, Declared(sharing, known, negative, exact), checked)
    except FlatNeeded:
        declared = Declared(sharing, known, negative, exact, flat=True)
        return translate(source, host.types, declared, checked)


def _sets_all(kernel: Kernel, memory: Memory) -> bool:
    """Whether loops around one store set every element of a memory that nothing reads."""
    if any(memory in s.reads() for s in walk(kernel.body)):
        return False
    return any(_covers(store, around) for store, around in _stores(kernel.body, memory, {}))


def _stores(body: Body, memory: Memory,
            around: dict[Any, int]) -> Iterator[tuple[Store, dict[Any, int]]]:  # fmt: skip
    """Yield the stores to a memory that only loops over known ranges stand around."""
    for s in body:
        if isinstance(s, Store) and s.memory is memory and s.mask is None:
            yield s, around
        elif isinstance(s, For) and s.kind == SERIAL and s.extent.op is Op.CONST:
            yield from _stores(s.body, memory, {**around, s.var: int(s.extent.attr)})


def _covers(store: Store, around: dict[Any, int]) -> bool:
    """Whether the index of a store runs over all of its memory."""
    sizes = [around.get(i) for i in store.index]
    whole = [int(n.attr) if n.op is Op.CONST else None for n in store.memory.shape]
    return (None not in sizes and sizes == whole and len({*store.index}) == len(store.index)
            and all(around.values()))
