"""Vectors that are summed at the same place are summed side by side.

The lanes of one vector become one value by halves: eight lanes are added to the other eight, four
to four, two to two, one to one, each step in a narrower register. Several vectors of a straight
line (the results of a tile of products, copies of an unrolled loop over rows) share those steps::

    a = fold(x); y[0] = a; b = fold(z); y[1] = b
    ->
    both = [x.low, z.low] + [x.high, z.high]        # full vectors, half of the lanes for each
    ...
    y[0:2] = both                                   # neighbours are stored together

Every value is added in the same order as before, so no result changes by a bit. What uses the
results moves behind the last of the vectors; what those need does not move.

Limits: plain operations (sums, products, extremes, bits); nothing is moved past control flow, or
past an access to the same memory of which one is a write.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from weft.ir import expr as ex
from weft.ir.expr import Expr
from weft.ir.op import Op, Operation
from weft.ir.record import Record
from weft.ir.stmt import Alloc, Body, Let, Load, Location, Prefetch, Stmt, Store
from weft.passes.common.lanes import linear
from weft.passes.common.straight_line import StraightLines

if TYPE_CHECKING:
    from collections.abc import Iterable

REGISTER_BYTES: Final = 64  # of the largest vectors; larger ones are several registers
BLOCK_BYTES: Final = 16  # of a register, within which a shuffle is cheap
_PLAIN: Final = (Load, Store, Let, Prefetch, Alloc)


class Fold(Record):
    """The lanes of `root` combined to `result` by the statements `steps`, names of halves.

    ``start`` is added to a sum at its end, if there is one.
    """

    root: Expr
    result: Expr
    op: Operation
    steps: tuple[Stmt, ...]
    start: Expr | None = None


def gather(body: Body, folds: dict[Stmt, Fold], locations: dict[Stmt, Location],
           apart: bool) -> Body:
    """Return a body of kernel level in which neighbouring folds are one.

    Parameters
    ----------
    body : Body
        What vectorisation made.
    folds : dict of Stmt to Fold
        The folds in it, by their first steps.
    locations : dict of Stmt to Location
        Source places; those of new statements are added.
    apart : bool
        Whether no two parameters overlap.
    """
    if len(folds) < 2:
        return body
    return _Gather(body, folds, locations, apart).body(body)


class _Gather(StraightLines):
    """Treats the straight lines of each body."""

    MARK = "f"

    def __init__(self, body: Body, folds: dict[Stmt, Fold], locations: dict[Stmt, Location],
                 apart: bool) -> None:
        super().__init__(body, locations, apart)
        self.folds = folds

    def body(self, body: Body) -> Body:
        """Return a body with each of its straight lines treated."""
        done = super().body(body)
        if sum(1 for s in done if s in self.folds) < 2:
            return done
        return _Line(self, done).run()


class _Line:
    """One body: holds back what needs a result until the folds of a group are there."""

    def __init__(self, owner: _Gather, body: Body) -> None:
        self.owner, self.source = owner, body
        self.out: list[Stmt] = []
        self.lets: dict[Expr, Expr] = {}
        self.group: list[Fold] = []
        self.since: list[Stmt] = []  # the first fold of the group, and all behind it
        self.early: list[Stmt] = []  # of these, what no result is needed for
        self.late: list[Stmt] = []
        self.names: set[Expr] = set()  # known only behind the group

    def run(self) -> Body:
        """Return the body with its folds gathered."""
        steps: set[Stmt] = set()
        for stmt in self.source:
            if isinstance(stmt, Let) and stmt.var.lanes == 1:
                self.lets[stmt.var] = stmt.value
            fold = self.owner.folds.get(stmt)
            if fold is not None:
                self._join(fold)
                steps.update(fold.steps)
            if not isinstance(stmt, _PLAIN):
                self._flush()
            if not self.group:
                self.out.append(stmt)
                continue
            self.since.append(stmt)
            if stmt in steps:
                continue
            if self._waits(stmt):
                self.late.append(stmt)
                if isinstance(stmt, Let | Load):
                    self.names.add(stmt.var)
            else:
                self.early.append(stmt)
        self._flush()
        return tuple(self.out)

    def _join(self, fold: Fold) -> None:
        if self.group:
            kinds = [(f.op, f.start, f.root.dtype, f.root.lanes) for f in (fold, self.group[0])]
            if fold.root in self.names or kinds[0] != kinds[1] or (
                    len(self.group) == fold.root.lanes):
                self._flush()
        self.group.append(fold)
        self.names.add(fold.result)

    def _waits(self, stmt: Stmt) -> bool:
        """Whether a statement has to stay behind what is held back."""
        if any(v in self.names for v in ex.free_vars(stmt.exprs())):
            return True
        if not isinstance(stmt, Load | Store):
            return isinstance(stmt, Prefetch)
        write = isinstance(stmt, Store)
        return any(isinstance(s, Load | Store) and (write or isinstance(s, Store))
                   and self.owner.overlap(s.memory, stmt.memory) for s in self.late)

    def _flush(self) -> None:
        """Write down the group, and what was held back."""
        rest = self.group
        if len(rest) < 2:
            self.out += self.since
        else:
            self.out += self.early
            places: dict[Expr, tuple[Expr, int]] = {}
            while rest:
                count = 1 << (len(rest).bit_length() - 1)
                if count == 1:
                    self.out += rest[0].steps
                    break
                sums = self._sums(rest[:count])
                for lane, fold in enumerate(rest[:count]):
                    places[fold.result] = sums, lane
                rest = rest[count:]
            self._after(places)
        self.group, self.since, self.early, self.late = [], [], [], []
        self.names = set()

    def _let(self, value: Expr, like: Fold) -> Expr:
        var = self.owner.fresh(str(like.result.attr), value, value.lanes)
        made = Let(var, value)
        self.owner.carry(like.steps[0], made)
        self.out.append(made)
        return var

    def _sums(self, folds: list[Fold]) -> Expr:
        """Return a vector of the results of a power of two of folds, in their order."""
        first = folds[0]
        order = _order(len(folds), first.root)
        vectors = [first.root] * len(folds)
        for fold, place in zip(folds, order, strict=True):
            vectors[place] = fold.root
        width = first.root.lanes  # that each fold still has in its vector
        while len(vectors) > 1:
            low, high = _halves(vectors[0], width, both=True)
            vectors = [self._step(a, b, low, high, first)
                       for a, b in zip(vectors[::2], vectors[1::2], strict=True)]
            width //= 2
        (whole,) = vectors
        while width > 1:
            low, high = _halves(whole, width, both=False)
            whole = self._step(whole, whole, low, high, first)
            width //= 2
        if first.start is not None:
            whole = self._let(ex.binary(Op.ADD, ex.broadcast(first.start, whole.lanes), whole),
                              first)
        return whole

    def _step(self, a: Expr, b: Expr, low: list[int], high: list[int], like: Fold) -> Expr:
        return self._let(ex.binary(like.op, ex.shuffle(a, b, low), ex.shuffle(a, b, high)), like)

    def _after(self, places: dict[Expr, tuple[Expr, int]]) -> None:
        """Write down what needs the results; neighbours that are only stored leave together."""
        skipped, vectors = self._runs(places)
        for fold in self.group:
            if fold.result in places:
                self.out.append(Let(fold.result, ex.extract(*places[fold.result])))
                self.owner.carry(fold.steps[-1], self.out[-1])
        for stmt in self.late:
            if stmt in vectors:
                self.out.append(vectors[stmt])
                self.owner.carry(stmt, self.out[-1])
            elif stmt not in skipped:
                self.out.append(stmt)

    def _runs(self, places: dict[Expr, tuple[Expr, int]]) -> tuple[set[Stmt], dict[Stmt, Stmt]]:
        """Return the stores that become parts of vectors, and the vectors at the last of each."""
        gone: set[Stmt] = set()
        vectors: dict[Stmt, Stmt] = {}
        for line in self._lines(places):
            while line:
                sums, lane = places[line[0].value]
                count = 1 << (len(line).bit_length() - 1)
                while lane % count:
                    count //= 2
                part, rest = line[:count], line[count:]
                if count > 1:
                    value = sums
                    for size in _sizes(sums.lanes, count):
                        value = ex.half(value, lane // size % 2)
                    stores = part[0]
                    vectors[part[-1]] = Store(stores.memory, stores.index, value, None,
                                              stores.streaming)
                    gone.update(part)
                line = rest
        return gone, vectors

    def _lines(self, places: dict[Expr, tuple[Expr, int]]) -> Iterable[list[Store]]:
        """Yield stores of neighbouring results to neighbouring places, nothing between them."""
        line: list[Store] = []
        base: tuple[dict[Expr, int], int] = {}, 0
        for stmt in self.late:
            if isinstance(stmt, Let):
                continue
            if not isinstance(stmt, Store) or stmt.mask is not None or stmt.value not in places:
                yield line
                line = []
                continue
            place = linear(stmt.index[0], self.lets)
            sums, lane = places[stmt.value]
            if line:
                last, at = places[line[-1].value]
                if stmt.memory is not line[-1].memory or last is not sums or lane != at + 1 or (
                        place[0] != base[0] or place[1] != base[1] + len(line)):
                    yield line
                    line = []
            if not line:
                base = place
            line.append(stmt)
        yield line


def _sizes(lanes: int, count: int) -> list[int]:
    """Return the widths of the halves from a vector down to `count` lanes."""
    found = []
    while lanes > count:
        lanes //= 2
        found.append(lanes)
    return found


def _halves(like: Expr, width: int, both: bool) -> tuple[list[int], list[int]]:
    """Return which lanes are the lower and the upper halves of all that lies in vectors.

    Each value has `width` lanes of its vector. Of two vectors, halves of registers' blocks stay in
    their block where they can, because that is what processors do fast.
    """
    lanes, middle, block = like.lanes, width // 2, BLOCK_BYTES // like.dtype.itemsize
    if both and width <= block <= lanes:
        starts = [side * lanes + at + i for at in range(0, lanes, block) for side in (0, 1)
                  for i in range(0, block, width)]
    else:
        starts = [*range(0, 2 * lanes if both else lanes, width)]
    low = [s + i for s in starts for i in range(middle)]
    return low, [i + middle for i in low]


def _order(count: int, like: Expr) -> list[int]:
    """Return where to put each of `count` vectors so that their results come out in order."""
    vectors = [[i] * like.lanes for i in range(count)]
    width = like.lanes
    while len(vectors) > 1:
        low, _ = _halves(like, width, both=True)
        vectors = [[(a + b)[i] for i in low] for a, b in zip(vectors[::2], vectors[1::2],
                                                               strict=True)]
        width //= 2
    return vectors[0][::width]
