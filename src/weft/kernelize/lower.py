"""Write each group as a loop nest."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from weft.imports import importing
from weft.ir import dtype as dt
from weft.ir import expr as ex
from weft.ir import node as nd
from weft.ir.dtype import DType
from weft.ir.expr import Expr
from weft.ir.infer import as_expr
from weft.ir.node import Node, Shape
from weft.ir.op import Op, Operation
from weft.ir.record import Record
from weft.ir.stmt import (
    SERIAL,
    Accumulator,
    Axis,
    For,
    Kernel,
    Memory,
    Meta,
    Reduce,
    Stmt,
    Store,
    lhs,
    rhs,
)
from weft.kernelize.attention.attention_gradient_nest import Gradients
from weft.kernelize.attention.attention_groups import GroupSoftmax
from weft.kernelize.attention.attention_matrix import MatrixSoftmax, suits
from weft.kernelize.attention.attention_nest import Nest
from weft.kernelize.attention.attention_softmax import Softmax
from weft.kernelize.common.cost import HEAVY, is_leaf
from weft.kernelize.common.emit import Emitter, Key
from weft.kernelize.common.flops import operations
from weft.kernelize.common.group import Group
from weft.kernelize.common.indexing import Index
from weft.kernelize.common.sizes import elements, upper_bound
from weft.kernelize.common.tidy import tidy
from weft.kernelize.fusion.fuse import Fusion
from weft.kernelize.launch import lower_launch
from weft.kernelize.scans.scan import lower_scan
from weft.kernelize.scans.scatter import lower_scatter
from weft.kernelize.sorting.pack import lower_pack
from weft.kernelize.sorting.sort import lower_sort
from weft.kernelize.special import attempt
from weft.kernelize.windows.domain_split import split_domain
from weft.kernelize.windows.padding_elimination import eliminate_padding
from weft.kernelize.windows.phase_split import split_phases
from weft.kernelize.windows.tap_interchange import interchange_taps
from weft.schedule.loops.search import prefer
from weft.target import SIMT, CostModel, Target

COLUMN_LANES: Final = 16  # columns that are reduced side by side

Staged = tuple[Node, Index]  # a value that is kept, at the one index at which its buffer has it


class Lowered(Record):
    """One kernel and the graph nodes its parameters stand for, inputs then outputs."""

    kernel: Kernel
    inputs: tuple[Node, ...]
    outputs: tuple[Node, ...]
    scratch: tuple[Memory, ...]
    checks: tuple[Node, ...]
    why: tuple[str, ...]


def lower(group: Group, fusion: Fusion, outputs: Sequence[Node], name: str,
          target: Target | None = None, strict: bool = False) -> Lowered:  # fmt: skip
    """Return the loop nest that computes a group.

    Parameters
    ----------
    group, fusion : Group, Fusion
        What `weft.kernelize.fusion.fuse.fuse` made.
    outputs : sequence of Node
        The members that are read outside the kernel.
    name : str
        Name of the kernel.
    target : Target, optional
        What decides between methods.
    strict : bool
        Check that every output is stored whole, and that rewrites of the nest leave it so.
    """
    sources = _sources(group, fusion)
    inputs = tuple(dict.fromkeys(nd.base(n) for n in sources))
    stored = {n: Memory(f"out{i}", n.dtype, _sizes(n.shape)) for i, n in enumerate(outputs)}
    scratch: tuple[Memory, ...] = ()
    tiled = plain = False
    splits = True
    if group.kind == "scan":
        em, tiled = lower_scan(group.members[0], sources, stored, target)
    elif group.kind == "sort":
        em, scratch = lower_sort(group.members[0], sources, stored, target)
    elif group.kind == "scatter":
        em = lower_scatter(group.members[0], sources, stored)
    elif group.kind == "pack":
        em = lower_pack(group.members[0], sources, stored, target)
    elif group.kind == "launch":
        em, scratch = lower_launch(group.members[0], sources, stored)
    elif group.kind == "attention":
        nest = _attention(group, fusion, sources, stored, target)
        em, scratch, tiled, splits = nest.run(), nest.scratch, nest.tiled, nest.splits
    else:
        costs = CostModel() if target is None else target.costs
        em, plain = _Nest(group, fusion, sources, stored, costs).run(), True
    memories = {nd.base(n): m for n, m in sources.items()}
    params = (*(memories[n] for n in inputs), *stored.values(), *scratch)
    flops = operations(tuple(em.scope.body)) if plain else _flops(group, fusion)
    meta = Meta(kind=group.kind, flops=flops, traffic=_traffic(inputs, outputs))
    if group.kind == "launch":  # as it was written, by the user
        meta = meta.replace(kind="custom", hints=em.hints)
        return Lowered(Kernel(name, params, tuple(em.scope.body), meta,
                              em.locations), inputs, tuple(outputs), scratch, tuple(em.checks),
                       tuple(group.why))
    kernel = Kernel(name, params, tuple(em.scope.body), meta, em.locations)
    if strict:
        with importing:
            from weft.ir.verify.verify_stores import verify_whole

        verify_whole(kernel, stored.values(), "lower")
    if group.kind in ("contraction", "rowwise"):
        for cut in CUTS:
            kernel = _rewritten(kernel, cut, strict)
    kernel = _rewritten(kernel, lambda k: tidy(k, tiled, splits), strict)
    return Lowered(kernel, inputs, tuple(outputs), scratch, tuple(em.checks), tuple(group.why))


def _rewritten(kernel: Kernel, rewrite: Callable[[Kernel], Kernel], strict: bool) -> Kernel:
    """Return a nest as a rewrite leaves it, or as it was if the rewrite fails."""
    made = attempt(lambda: rewrite(kernel), lambda _: kernel, strict)
    if strict and made is not kernel:
        with importing:
            from weft.ir.verify.verify_stores import verify_same_stores

        verify_same_stores(kernel, made, getattr(rewrite, "__name__", "tidy"))
    return made


# Rewrites of nests with one sum, in order; each leaves a nest that it does not fit as it is.
CUTS: Final[tuple[Callable[[Kernel], Kernel], ...]] = (
    lambda k: split_phases(k, k.meta.kind == "contraction"),
    split_domain, eliminate_padding, interchange_taps)


def _sizes(shape: Shape) -> tuple[Expr, ...]:
    return tuple(as_expr(d) for d in shape)


def _sources(group: Group, fusion: Fusion) -> dict[Node, Memory]:
    """Return the arrays a group reads, each with its memory (one per array in memory)."""
    members = frozenset(group.members)
    found: dict[Node, Memory] = {}
    roots: dict[Node, Memory] = {}
    seen: set[Node] = set()
    stack = list(reversed(group.members))
    while stack:
        node = stack.pop()
        if node in seen:
            continue
        seen.add(node)
        # What packs reads rows, in whatever shape their elements were stored.
        root = nd.base(node) if group.kind == "pack" else node
        if is_leaf(node) or (root in fusion.home and root not in members):
            root = nd.base(node)
            if root not in roots:
                roots[root] = Memory(f"in{len(roots)}", node.dtype, _sizes(node.shape))
                found[root] = roots[root]
            found[node] = roots[root]
        else:
            stack.extend(reversed(node.args))
    return found


def _flops(group: Group, fusion: Fusion) -> int:
    if group.kind == "attention":
        found = fusion.attention
        parts = {**found.outputs, **found.parts}
        sums = [m for m in group.members if m in parts]
        products = {p.node for m in sums for p in parts[m].products}
        return 2 * sum(elements(n.args[0].shape) for n in (*products, *sums))
    return elements(group.rows) * elements(group.inner)


def _attention(group: Group, fusion: Fusion, sources: dict[Node, Memory],
               stored: dict[Node, Memory], target: Target | None) -> Nest:
    """Return the nest of an attention or of gradients of one."""
    found = fusion.attention
    parts = [found.parts[m] for m in group.members if m in found.parts]
    if parts:
        return Gradients(parts, group, sources, stored, target)
    match = next(found.outputs[m] for m in group.members if m in found.outputs)
    if target is not None and target.style == SIMT:
        return GroupSoftmax(match, group, sources, stored, target)
    kind = MatrixSoftmax if suits(match, sources, target) else Softmax
    return kind(match, group, sources, stored, target)


def _traffic(inputs: Sequence[Node], outputs: Sequence[Node]) -> int:
    return sum(elements(n.shape) * n.dtype.itemsize for n in (*inputs, *outputs))


class _Nest:
    """Lowers elementwise, row-wise and contraction groups: rows, phases over the inner axes."""

    def __init__(self, group: Group, fusion: Fusion, sources: dict[Node, Memory],
                 stored: dict[Node, Memory], costs: CostModel) -> None:  # fmt: skip
        self.costs = costs
        self.group, self.fusion, self.sources, self.stored = group, fusion, sources, stored
        self.levels = self._member_levels()
        self.depth = max((self.levels[a] + 1 for a in group.anchors), default=0)
        self.stage: list[Staged] = []
        self.visits: list[list[Key]] = []

    def _member_levels(self) -> dict[Node, int]:
        """Return for each member how many reduction phases come before its value is known."""
        levels: dict[Node, int] = {}
        for member in self.group.members:
            level = 0
            for read in self.fusion.reads[member]:
                if read in levels:
                    level = max(level, levels[read] + (read.op in (Op.REDUCE, Op.ARGREDUCE)))
            levels[member] = level
        return levels

    def run(self) -> Emitter:
        """Return the emitter whose outermost scope is the kernel's body."""
        if self.depth >= 1 and any(n in HEAVY or n.group == "movement" for n in self._ops()):
            self._lower(names_unique=False)
            self.stage = self._repeated()
        return self._lower(names_unique=True)

    def _ops(self) -> set[Operation]:
        return {n.op for m in self.group.members for n in self._inlined(m)}

    def _inlined(self, member: Node) -> list[Node]:
        out: list[Node] = []
        seen: set[Node] = set()
        stack = list(member.args)
        while stack:
            top = stack.pop()
            if top in seen or top in self.sources or top in self.levels:
                continue
            seen.add(top)
            out.append(top)
            stack.extend(top.args)
        return out

    def _repeated(self) -> list[Staged]:
        """Return the expensive values that several phases compute at the same point.

        Beside transcendentals these are values made of scattered elements, such as the gradient
        of a pooling.
        """
        inner = elements(self.group.inner)
        # a reduction over columns holds one buffer for each lane of a vector
        along = len(self.group.full) - 1 in self.group.inner_axes
        most = self.costs.stage_bytes // (1 if along else COLUMN_LANES)
        phases: dict[Staged, set[int]] = {}
        scattered: set[Node] = set()
        for phase, keys in enumerate(self.visits):
            for key in keys:
                if _divides(key.place) or not scattered.isdisjoint(key.node.args):
                    scattered.add(key.node)
                costly = key.node.op in HEAVY or (key.node in scattered and
                                                  key.node.op.is_elementwise)
                if costly and key.mask is None and key.node.op is not Op.GATHER:
                    phases.setdefault((key.node, key.place), set()).add(phase)
        fits = {
            (node, index): seen for (node, index), seen in phases.items()
            if len(seen) > 1 and inner * node.dtype.itemsize <= most
            and any(v.attr.startswith("k") for v in ex.free_vars(index))
        }
        # a value below another one that is wanted in the same phases comes with it
        parts = {top: set(nd.toposort(top.args)) for top, _ in fits}
        covered = {
            below for (top, _), wide in fits.items() for below in fits
            if below[0] is not top and fits[below] <= wide and below[0] in parts[top]
        }
        return [key for key in fits if key not in covered]

    def _lower(self, names_unique: bool) -> Emitter:
        group = self.group
        em = Emitter(self.sources, hoist=bool(group.anchors))
        self.visits = []
        rows = self._open_loops(em, group.rows, "r")
        canonical = [ex.var(f"k{a}") for a in range(len(group.inner))]
        buffers = self._allocate_stages(em)
        done_staging: set[Staged] = set()
        for phase in range(self.depth + 1):
            anchors = [a for a in group.anchors if self.levels[a] == phase]
            values = [
                m for m in group.members
                if m in self.stored and not group.is_row_level(m) and m not in anchors
                and self.levels[m] == phase
            ]
            if not anchors and not values:
                continue
            self._phase(em, phase, rows, canonical, anchors, values, buffers, done_staging,
                        names_unique)  # fmt: skip
        for member in group.members:
            if member in self.stored and group.is_row_level(member):
                self._store(em, member, rows, ())
        self._close_loops(em, group.rows, rows)
        return em

    def _allocate_stages(self, em: Emitter) -> dict[Staged, Memory]:
        buffers: dict[Staged, Memory] = {}
        sizes = tuple(as_expr(upper_bound(d)) for d in self.group.inner)
        for number, staged in enumerate(self.stage):
            buffers[staged] = Memory(f"row{number}", staged[0].dtype, sizes, "local")
            em.alloc(buffers[staged])
        return buffers

    def _phase(self, em: Emitter, phase: int, rows: Index, canonical: list[Expr],
               anchors: list[Node], values: list[Node], buffers: dict[Staged, Memory],
               done: set[Staged], unique: bool) -> None:  # fmt: skip
        group = self.group
        em.open()
        first = len(em.visited)
        suffix = f"p{phase}_" if unique and self.depth else ""
        inner = self._loop_vars(em, group.inner, f"k{suffix}")
        rename = {c: i for c, i in zip(canonical, inner, strict=True) if c is not i}
        places = {staged: (staged[0], tuple(map(em.simplify, ex.substitute(staged[1], rename))))
                  for staged in self.stage}  # in terms of this phase's loops
        for staged in done:
            em.staged[places[staged]] = buffers[staged], inner
        accumulators = [self._accumulate(em, a, rows, inner) for a in anchors]
        for member in values:
            self._store(em, member, rows, inner)
        for staged, at in places.items():
            value = em.scope.values.get(Key(*at, None))
            if staged not in done and value is not None:
                em.emit(Store(buffers[staged], inner, value))
                done.add(staged)
        em.staged.clear()
        self.visits.append(em.visited[first:])
        body = em.close()
        used = [(v, d) for v, d in zip(inner, group.inner, strict=True) if v.op is Op.VAR]
        if anchors:
            for anchor, made in zip(anchors, accumulators, strict=True):
                result = made[0].var
                for acc in made:
                    em.bind(acc.var)
                if anchor.op is Op.ARGREDUCE:
                    result = made[1].var
                place = tuple(map(em.simplify, group.place(anchor, rows, inner) or ()))
                em.bound[anchor] = (place, ex.cast(result, anchor.dtype))
            axes = tuple(Axis(v, as_expr(d)) for v, d in used) or (
                Axis(em.fresh("one", dt.int64), ex.index(1)),)
            em.emit(Reduce(axes, tuple(a for made in accumulators for a in made), body))
        else:
            em.scope.body.extend(_nest(used, body))

    def _store(self, em: Emitter, member: Node, rows: Index, inner: Index) -> None:
        index = self.group.place(member, rows, inner)
        assert index is not None  # fuse admitted the member
        index = tuple(map(em.simplify, index))
        em.emit(Store(self.stored[member], index, em.value(member, index)))

    def _accumulate(self, em: Emitter, anchor: Node, rows: Index,
                    inner: Index) -> tuple[Accumulator, ...]:  # fmt: skip
        operand = anchor.args[0]
        index = self.group.place_operand(anchor, rows, inner)
        assert index is not None  # fuse admitted the member
        value = em.value(operand, index)
        if anchor.op is Op.ARGREDUCE:
            at = em.simplify(index[anchor.attr.axis])
            best = em.fresh("best", operand.dtype)
            where = em.fresh("at", dt.int64)
            return arg_accumulators(anchor.attr.kind, best, where, value, at)
        wide = dt.accumulator_dtype(operand.dtype)
        kind = anchor.attr.kind
        acc = em.fresh(kind, wide)
        return (accumulator(kind, acc, ex.cast(value, wide)),)

    def _loop_vars(self, em: Emitter, shape: Shape, prefix: str) -> Index:
        return tuple(
            em.loop_var(f"{prefix}{a}", upper_bound(d)) if upper_bound(d) != 1 else ex.index(0)
            for a, d in enumerate(shape)
        )

    def _open_loops(self, em: Emitter, shape: Shape, prefix: str) -> Index:
        if not self.group.anchors:
            return ()
        em.open()
        return self._loop_vars(em, shape, prefix)

    def _close_loops(self, em: Emitter, shape: Shape, rows: Index) -> None:
        if not self.group.anchors:
            return
        body = em.close()
        used = [(v, d) for v, d in zip(rows, shape, strict=True) if v.op is Op.VAR]
        em.scope.body.extend(_nest(used, body))


def _divides(place: Index) -> bool:
    """Whether an index divides a loop variable: elements that do not lie side by side."""
    return any(e.op is Op.FLOORDIV or e.op is Op.MOD for e in ex.toposort(place))


def _nest(loops: list[tuple[Expr, nd.Dim]], body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
    for v, dim in reversed(loops):
        body = (For(v, as_expr(dim), SERIAL, body),)
    return body


_COMBINE: Final = {"sum": Op.ADD, "prod": Op.MUL, "max": Op.MAX, "min": Op.MIN,
                   "any": Op.OR, "all": Op.AND}  # fmt: skip


def neutral(kind: str, dtype: DType) -> Expr:
    """Return the neutral value of a reduction."""
    value: bool | int | float
    if kind in ("max", "min"):
        value = dtype.min if kind == "max" else dtype.max
        if dtype.is_float:
            value = float("-inf") if kind == "max" else float("inf")
    else:
        value = kind in ("prod", "all")
    return ex.const(value, dtype)


def accumulator(kind: str, acc: Expr, value: Expr) -> Accumulator:
    """Return the accumulator of a plain reduction."""
    op = _COMBINE[kind]
    return Accumulator(acc, neutral(kind, acc.dtype), ex.binary(op, acc, value),
                       ex.binary(op, lhs(acc), rhs(acc)))


def arg_accumulators(kind: str, best: Expr, at: Expr, value: Expr,
                     index: Expr) -> tuple[Accumulator, ...]:  # fmt: skip
    """Return the pair (best value, its index): the first of equals, NaN before everything."""
    start = neutral("max" if kind == "max" else "min", best.dtype)
    largest = kind == "max"
    update = prefer(largest, value, index, best, at)
    combine = prefer(largest, rhs(best), rhs(at), lhs(best), lhs(at))
    return (
        Accumulator(best, start, ex.where(update, value, best),
                    ex.where(combine, rhs(best), lhs(best))),
        Accumulator(at, ex.const(dt.int64.max, dt.int64), ex.where(update, index, at),
                    ex.where(combine, rhs(at), lhs(at))),
    )
