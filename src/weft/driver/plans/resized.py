"""Generalise plans of eager graphs whose sizes keep changing: symbolic from the third size on.

Graphs that differ in nothing but sizes and numbers are alike: ``x[:i]`` for another ``i``, a
sequence that grows. Of three that are alike but of other sizes, a graph with variables is made: a
size that had the same value in all three is that value; the others are variables, or sums and
multiples of one. A later graph that is alike is computed by the plan of the variables if it is that
very graph at some values of them, which is checked size by size; what the three had in common by
chance is therefore no fault. A graph that comes again with the same sizes gets a plan of its own.

Graphs that add up floats stay static: how a sum is split depends on the plan, and the same eager
expression gives the same bits whenever it is computed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from weft.driver.graph_key import Structure
from weft.driver.plans.runtime_constants import scalar
from weft.driver.slices import Cut, Parts
from weft.errors import WeftError
from weft.imports import importing
from weft.ir import expr as ex
from weft.ir import node as nd
from weft.ir.expr import Expr
from weft.ir.node import Dim, Node, Storage
from weft.ir.op import Op
from weft.ir.size import canonical, evaluate_all, exact_quotient, replaced, span_of
from weft.locks import mutex

if TYPE_CHECKING:
    from weft.driver.plans.compiled_graph import Compiled

__all__ = ["resized"]

SAMPLES: Final = 3  # sizes of which a graph with variables is made
_PATIENCE: Final = 3  # calls with the same sizes after which they get a plan of their own
_MOST_PLANS: Final = 3  # with variables, of graphs that are alike
_TRACKED: Final = 256  # kinds of graphs, and sizes of each
_MOST_NODES: Final = 400
_ROOM: Final = 256  # a variable reaches that far, or so many times its largest value
_REFUSED: Final = (Op.WINDOW, Op.UNWINDOW, Op.STRIDED, Op.LAUNCH, Op.PACK)
_SELECTING: Final = ("max", "min")  # their result is one of the operands, in any order

Sizes = tuple[int, ...]
Make = Callable[[Sequence[Node]], "Compiled"]


class _Plan(NamedTuple):
    """A plan for many sizes.

    Attributes
    ----------
    run : Compiled
        The graph with variables.
    sizes : tuple of Expr or int
        All its sizes.
    places : dict of str to int
        Of each variable, which of the sizes it is.
    limits : dict of str to (int, int)
        Its least and largest value.
    numbers : tuple
        Numbers of the graph: constants, and None for those that are read from memory.
    sources : list of int
        Where each array that `run` reads comes from: a leaf, or (negative, from -1) a number.
    """

    run: Compiled
    sizes: tuple[Dim, ...]
    places: dict[str, int]
    limits: dict[str, tuple[int, int]]
    numbers: tuple[Any, ...]
    sources: list[int]

    def values(self, sizes: Sizes, numbers: tuple[Any, ...]) -> dict[str, int] | None:
        """Return the values at which this is a graph of these sizes and numbers, if there are."""
        values = {name: sizes[i] for name, i in self.places.items()}
        for name, (low, high) in self.limits.items():
            if not low <= values[name] <= high:
                return None
        if any(a is not None and a != b for a, b in zip(self.numbers, numbers, strict=True)):
            return None
        return values if evaluate_all(self.sizes, values) == sizes else None


class _Alike:
    """What is known of graphs that differ in nothing but sizes and numbers."""

    def __init__(self) -> None:
        self.samples: dict[Sizes, tuple[Any, ...]] = {}  # with the numbers of each
        self.met: dict[Sizes, int] = {}  # how often since then
        self.plans: list[_Plan] = []
        self.is_hopeless = False


_alike: Final[dict[Any, _Alike]] = {}


_changing: Final = mutex()


def resized(graph: Cut, make: Make) -> Compiled | None:
    """Return the plan of a graph without one of its own, at its sizes, if one for many fits.

    Parameters
    ----------
    graph
        What is to be computed.
    make
        Compiles a graph.
    """
    nodes = graph.structure.nodes
    if len(nodes) > _MOST_NODES or not any(n.shape and n.op is not Op.BUFFER for n in nodes):
        return None
    if any(_rounds_by_order(n) for n in nodes):
        return None
    with _changing:
        return _found(graph, make)


def _found(graph: Cut, make: Make) -> Compiled | None:
    outputs, parts, structure = graph
    skeleton, sizes, numbers = _taken_apart(structure)
    known = _alike.get(skeleton)
    if known is None:
        if len(_alike) >= _TRACKED:
            _alike.clear()
        known = _alike[skeleton] = _Alike()
    if sizes in known.samples:
        return None
    count = known.met[sizes] = known.met.get(sizes, 0) + 1
    if count >= _PATIENCE:
        return None
    if len(known.met) > _TRACKED:
        known.met.clear()
    for plan in known.plans:
        values = plan.values(sizes, numbers)
        if values is not None:
            return _at(plan, values, structure, parts)
    if known.is_hopeless:
        return None
    known.samples[sizes] = numbers
    if len(known.samples) < SAMPLES:
        return None
    varied = [len(set(column)) > 1 for column in zip(*known.samples, strict=True)]
    for sample in list(known.samples):  # sizes 0 and 1 are no values of variables
        if any(is_varied and size < 2 for is_varied, size in zip(varied, sample, strict=True)):
            del known.samples[sample]
    if len(known.samples) < SAMPLES:
        return None
    made = _planned(structure, outputs, known, make)
    known.samples.clear()
    values = None if made is None else made.values(sizes, numbers)
    if made is None or values is None:
        known.is_hopeless = True
        return None
    known.plans.append(made)
    known.is_hopeless = len(known.plans) >= _MOST_PLANS
    return _at(made, values, structure, parts)


def _rounds_by_order(node: Node) -> bool:
    """Return whether the value of a node depends on the order in which a plan combines floats."""
    if not node.dtype.is_float:
        return False
    if node.op is Op.REDUCE or node.op is Op.SCAN or node.op is Op.RECURRENCE:
        return node.attr.kind not in _SELECTING
    return node.op is Op.SCATTER


def _is_number(node: Node) -> bool:
    return node.op is Op.CONST and not node.dtype.is_bool


def _taken_apart(structure: Structure) -> tuple[Any, Sizes, tuple[Any, ...]]:
    """Return what graphs that are alike have in common, the sizes, and the numbers."""
    rows: list[Any] = []
    sizes: list[Any] = []
    numbers: list[Any] = []
    for node, row in zip(structure.nodes, structure.key[0], strict=True):
        attr = row[4]
        sizes += node.shape
        if node.op is Op.SLICE:
            sizes += node.attr.starts
            attr = node.attr.steps
        elif node.op is Op.PAD:
            sizes += node.attr.before
            attr = repr(node.attr.value)
        elif _is_number(node):
            numbers.append(attr)
            attr = None
        rows.append((row[0], row[1], len(node.shape), row[3], attr))
    return (tuple(rows), structure.key[1:]), tuple(sizes), tuple(numbers)


def _at(plan: _Plan, values: dict[str, int], structure: Structure, parts: Parts) -> Compiled:
    """Return a plan at its sizes, with the arrays of a graph."""
    numbers = [n for n in structure.nodes if _is_number(n)]
    captured: list[Storage] = []
    offsets: list[int] = []
    for source in plan.sources:
        if source < 0:
            node = numbers[-1 - source]
            captured.append(Storage(node.dtype, 1, scalar(node.attr, node.dtype)))
            offsets.append(0)
            continue
        storage, offset = parts.get(structure.leaves[source], (structure.leaves[source], 0))
        captured.append(storage)
        offsets.append(offset)
    made = copy(plan.run.at(values))
    made.read(captured, offsets, structure.nodes)
    return made


class _Unfit(Exception):
    """A graph has no form with variables, or none that is worth it."""


def _planned(structure: Structure, outputs: Sequence[Node], known: _Alike, make: Make
             ) -> _Plan | None:  # fmt: skip
    """Return a plan for graphs that are alike; None if there is none."""
    sizes = list(known.samples)
    numbers = list(known.samples.values())
    varied = [len(set(column)) > 1 for column in zip(*numbers, strict=True)]
    try:
        form = _Form(structure, sizes)
        nodes, leaves = form.build([i for i, is_varied in enumerate(varied) if is_varied])
        with importing:
            from weft.ir.verify.verify_graph import verify_graph

        roots = [nodes[o] for o in outputs]
        verify_graph(roots)
        run = make(roots)
        if not all(s in leaves for s in run.captured) or not run.is_direct:
            return None
    except (_Unfit, WeftError, ArithmeticError):
        return None
    kept = tuple([None if is_varied else value
                  for value, is_varied in zip(numbers[-1], varied, strict=True)])
    return _Plan(run, tuple(form.sizes), form.places, form.limits, kept,
                 [leaves[s] for s in run.captured])  # fmt: skip


class _Form:
    """The graph with variables that three graphs are.

    Parameters
    ----------
    structure : Structure
        One of them.
    samples : list of tuple of int
        The sizes of each.
    """

    def __init__(self, structure: Structure, samples: Sequence[Sizes]) -> None:
        self._structure = structure
        self._columns = list(zip(*samples, strict=True))
        self.sizes: list[Any] = [None] * len(self._columns)
        self.places: dict[str, int] = {}
        self.limits: dict[str, tuple[int, int]] = {}
        self._variables: list[tuple[Expr, tuple[int, ...]]] = []
        self._found: dict[tuple[int, ...], Dim] = {}
        self._first: dict[Node, int] = {}  # where the sizes of a node begin
        at = 0
        for node in structure.nodes:
            self._first[node] = at
            extra = (Op.SLICE, Op.PAD)
            at += len(node.shape) * (2 if node.op in extra else 1)
        flat = {self._first[n] for n in structure.nodes if n.op is Op.BUFFER}
        inner = [i for i, c in enumerate(self._columns) if i not in flat and min(c) >= 2]
        varied = [i for i in inner if len(set(self._columns[i])) > 1]
        if varied:  # others may be multiples of what changes least
            self._size(min(varied, key=lambda i: max(self._columns[i]) - min(self._columns[i])))
        self._describe()

    def _describe(self) -> None:
        """Find all sizes: arrays in memory are as large as what they are read as."""
        nodes = self._structure.nodes
        for node in nodes:
            if node.op is Op.RESHAPE and node.args[0].op is Op.BUFFER:
                self._shape(node)
                flat = self._first[node.args[0]]
                if self.sizes[flat] is None:
                    self._set(flat, canonical(nd.size(self._dims(node))))
        for node in nodes:
            self._shape(node)
            if node.op is Op.SLICE or node.op is Op.PAD:
                first = self._first[node] + len(node.shape)
                for i in range(first, first + len(node.shape)):
                    self._set(i, self._size(i))
        for node in nodes:
            self._check(node)

    def _dims(self, node: Node, further: int = 0) -> tuple[Any, ...]:
        first = self._first[node] + further
        return tuple(self.sizes[first : first + len(node.shape)])

    def _set(self, i: int, size: Dim) -> None:
        self.sizes[i] = size

    def _shape(self, node: Node) -> None:
        first = self._first[node]
        for i in range(first, first + len(node.shape)):
            if self.sizes[i] is None:
                self._set(i, self._merged(node, i) or self._size(i))

    def _merged(self, node: Node, i: int) -> Dim | None:
        """Return a size of a reshape that follows from the other sizes, if no variable gives it."""
        if node.op is not Op.RESHAPE or self._single(self._columns[i]) is not None:
            return None
        if node.args[0].op is Op.BUFFER:
            return None
        first = self._first[node]
        others = [j for j in range(first, first + len(node.shape)) if j != i]
        if any(self.sizes[j] is None and self._single(self._columns[j]) is None for j in others):
            return None
        rest = nd.size(tuple([self._size(j) for j in others]))
        return exact_quotient(nd.size(self._dims(node.args[0])), rest)

    def _size(self, i: int) -> Dim:
        if self.sizes[i] is not None:
            return self.sizes[i]  # type: ignore[no-any-return]
        column = self._columns[i]
        found = self._single(column)
        if found is None:
            if min(column) < 2 or len(self._variables) >= 3:
                raise _Unfit
            name = f"n{len(self._variables)}"
            limits = 2, max(_ROOM, 16 * (1 << (max(column) - 1).bit_length()))
            found = ex.Variable(name, *limits)
            self._variables.append((found, column))
            self.places[name], self.limits[name] = i, limits
            self._found[column] = found
        return found

    def _single(self, column: tuple[int, ...]) -> Dim | None:
        """Return a size as a number, or by one variable."""
        if len(set(column)) == 1:
            return column[0]
        if column not in self._found:
            for variable, values in self._variables:
                size = _line(variable, values, column)
                if size is not None:
                    self._found[column] = size
                    break
        return self._found.get(column)

    def _check(self, node: Node) -> None:
        """Keep every variable where the sizes of a node are right."""
        dims = self._dims(node)
        if any(isinstance(d, Expr) for d in dims):
            if node.op in _REFUSED:
                raise _Unfit
            for dim in dims:
                self._at_least(dim, 2 if isinstance(dim, Expr) else 0)
        if node.op is Op.SLICE:
            whole = self._dims(node.args[0])
            for size, start, step, most in zip(dims, self._dims(node, len(dims)), node.attr.steps,
                                               whole, strict=True):  # fmt: skip
                last = start + (size - 1) * step
                self._at_least(start, 0)
                self._at_least(last, 0)
                self._at_least(most - 1 - last, 0)
        elif node.op is Op.PAD:
            for size, before, inner in zip(dims, self._dims(node, len(dims)),
                                           self._dims(node.args[0]), strict=True):  # fmt: skip
                self._at_least(before, 0)
                self._at_least(size - before - inner, 0)

    def _at_least(self, given: Dim, least: int) -> None:
        """Bound a variable so that a size of it is at least a number."""
        size = canonical(given)
        if not isinstance(size, Expr):
            if size < least:
                raise _Unfit
            return
        names = [v.attr.name for v in ex.toposort([size]) if v.op is Op.VARIABLE]
        if len(names) != 1:
            if span_of(size)[0] < least:
                raise _Unfit
            return
        low, high = self.limits[names[0]]
        at = [evaluate_all((size,), {names[0]: n})[0] for n in (low, low + 1, low + 2)]
        slope = at[1] - at[0]
        if at[2] - at[1] != slope or slope == 0:
            if span_of(size)[0] < least:
                raise _Unfit
            return
        bound = low + -((at[0] - least) // slope) if slope > 0 else low + (at[0] - least) // -slope
        low, high = (max(low, bound), high) if slope > 0 else (low, min(high, bound))
        if low >= high:
            raise _Unfit
        self.limits[names[0]] = low, high

    def build(self, numbers: Sequence[int]) -> tuple[dict[Node, Node], dict[Storage, int]]:
        """Return the nodes with variables, and where the new leaves are found.

        Parameters
        ----------
        numbers
            Those that are read from memory.
        """
        exact = {name: ex.Variable(name, *ends) for name, ends in self.limits.items()}
        new: dict[Node, Node] = {}
        leaves: dict[Storage, int] = {}
        self.sizes = [replaced(s, exact) if isinstance(s, Expr) else s for s in self.sizes]
        known = {storage: i for i, storage in enumerate(self._structure.leaves)}
        count = -1
        for node in self._structure.nodes:
            dims, attr = self._dims(node), node.attr
            count += _is_number(node)
            if _is_number(node) and count in numbers:
                storage = Storage(node.dtype, 1)
                leaves[storage] = -1 - count
                new[node] = nd.make(Op.RESHAPE, node.dtype, (), (nd.buffer(storage),))
                continue
            if node.op is Op.BUFFER:
                storage = Storage(node.dtype, dims[0], None, attr.device, None, attr.shared)
                leaves[storage] = known[attr]
                new[node] = nd.buffer(storage)
                continue
            if node.op is Op.SLICE:
                attr = nd.SliceAttr(self._dims(node, len(dims)), attr.steps)
            elif node.op is Op.PAD:
                attr = nd.PadAttr(self._dims(node, len(dims)), attr.value)
            new[node] = nd.make(node.op, node.dtype, dims, tuple([new[a] for a in node.args]), attr)
        return new, leaves


def _line(variable: Expr, values: tuple[int, ...], column: tuple[int, ...]) -> Dim | None:
    """Return ``a * variable + b`` with whole `a` and `b` that has these values, if there is one."""
    pairs = sorted(set(zip(values, column, strict=True)))
    (x, y), (u, v) = pairs[0], pairs[-1]
    if x == u or (v - y) % (u - x):
        return None
    slope = (v - y) // (u - x)
    if any(slope * (a - x) + y != b for a, b in pairs):
        return None
    return canonical(variable * slope + (y - slope * x))
