"""What passes over straight lines share: new names, which memories overlap, transpositions."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import ClassVar, Final

from weft.ir import expr as ex
from weft.ir.expr import Expr
from weft.ir.op import Op
from weft.ir.stmt import Alloc, Body, Location, Memory, Stmt
from weft.ir.traverse import Rewriter, walk
from weft.passes.common.lanes import Affine

LEAST: Final = 4  # neighbouring places that are worth a transposition
MOST: Final = 16  # vectors transposed at once: with their results they fill the registers


class StraightLines(Rewriter):
    """Rewrites the straight lines of each body.

    Parameters
    ----------
    body : Body
        All of what is rewritten: the views in it are known by their memories.
    locations : dict of Stmt to Location
        Source places; those of new statements are added.
    apart : bool
        Whether no two parameters overlap.
    """

    MARK: ClassVar[str]  # in new names, of this pass alone

    def __init__(self, body: Body, locations: dict[Stmt, Location], apart: bool) -> None:
        self.locations, self.apart = locations, apart
        self.made = 0
        self.roots: dict[str, str] = {}
        for s in walk(body):
            if isinstance(s, Alloc) and s.base is not None:
                self.roots[s.memory.name] = self.root(s.base)

    def root(self, memory: Memory) -> str:
        """Return the name of the memory whose bytes these are; a view may be of a view."""
        return self.roots.get(memory.name, memory.name)

    def overlap(self, a: Memory, b: Memory) -> bool:
        """Whether two memories may have bytes in common."""
        if not self.apart and a.scope == b.scope == "global":
            return True
        return self.root(a) == self.root(b)

    def fresh(self, name: str, like: Expr, lanes: int) -> Expr:
        """Return a new name for a value of a dtype like another's."""
        self.made += 1
        return ex.var(f"{name}.{self.MARK}{self.made}", like.dtype, lanes)


class StridedLines(StraightLines):
    """Rewrites the straight lines that have strided vector accesses, innermost bodies first.

    Parameters
    ----------
    strided : dict of Stmt to Affine
        The accesses, with first offset and stride.
    """

    def __init__(self, body: Body, strided: dict[Stmt, Affine], locations: dict[Stmt, Location],
                 apart: bool) -> None:
        super().__init__(body, locations, apart)
        self.strided = strided

    def body(self, body: Body) -> Body:
        """Return a body with each of its straight lines treated."""
        done = super().body(body)
        return self.treated(done) if any(s in self.strided for s in done) else done

    @abstractmethod
    def treated(self, body: Body) -> Body:
        """Return a straight line with its strided accesses replaced."""


def transpose(rows: list[Expr], count: int, let: Callable[[Expr], Expr]) -> list[Expr]:
    """Return `count` vectors, a power of two, with a lane of each row, by shuffles named by `let`.

    Each row, of which there is one a lane, holds one lane of all of them.
    """
    lanes = len(rows)
    while rows[0].lanes < lanes:  # rows side by side until they fill a vector
        wide = range(2 * rows[0].lanes)
        rows = [let(ex.shuffle(a, b, wide)) for a, b in zip(rows[::2], rows[1::2], strict=True)]
    # The low bits of the place in all vectors together move to the top, one a stage.
    for _ in range(count.bit_length() - 1):
        pairs = list(zip(rows[::2], rows[1::2], strict=True))
        rows = [let(ex.shuffle(a, b, range(odd, 2 * lanes, 2))) for odd in (0, 1) for a, b in pairs]
    return rows


def runs(offsets: list[int], lanes: int) -> list[tuple[int, int]]:
    """Cut increasing offsets into runs of neighbours whose lengths are powers of two."""
    out: list[tuple[int, int]] = []
    i = 0
    while i < len(offsets):
        j = i
        while j + 1 < len(offsets) and offsets[j + 1] == offsets[j] + 1:
            j += 1
        length = j + 1 - i
        while length:
            part = min(1 << (length.bit_length() - 1), lanes, MOST)
            if part < LEAST:
                part = length  # too short to transpose: one piece
            out.append((offsets[i], part))
            i += part
            length -= part
    return out


def of_lane(mask: Expr | None, lane: int, elements: int) -> Expr | None:
    """Return the mask of a row that one lane of a masked access reads: all of it, or nothing."""
    return None if mask is None else ex.broadcast(ex.extract(mask, lane), elements)


def behind(base: Expr, offset: int) -> Expr:
    """Return a place so many elements behind another."""
    return ex.binary(Op.ADD, base, ex.index(offset)) if offset else base
