"""Sorting networks across vector registers and their lanes.

Columns are sorted first, register against register. Then neighbouring columns are merged until all
lanes are one run, which leaves as rows. Registers are compared as a whole: elements to be compared
that lie in lanes of one register are brought to the same lane of two before, by shuffles of pairs
that exchange a bit of the register's number and one of the lane's. The bit that leaves is the one
needed last. Comparisons of a float sort choose between two values, as one instruction does: which
of two equal ones comes first is of no use to ask.

Ref: Batcher, "Sorting networks and their applications", AFIPS 1968; Belady, "A study of replacement
algorithms for a virtual-storage computer", 1966.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from weft.ir import expr as ex
from weft.ir.expr import Expr
from weft.kernelize.sort_network import batcher

COUNT: Final = 8  # registers that are sorted together
# Of nine registers in order: the fourth, counted from 0.
_MEDIAN: Final = ((0, 1), (3, 4), (6, 7), (1, 2), (4, 5), (7, 8), (0, 1), (3, 4), (6, 7), (0, 3),
                  (5, 8), (4, 7), (3, 6), (1, 4), (2, 5), (4, 7), (4, 2), (6, 4), (4, 2))


class Registers:
    """Networks on vectors of so many lanes; `name` binds a value to a name."""

    def __init__(self, lanes: int, name: Callable[[Expr], Expr]) -> None:
        self.lanes, self.name = lanes, name

    def _lower(self, a: Expr, b: Expr) -> Expr:
        return ex.where(a.lt(b), a, b) if a.dtype.is_float else ex.minimum(a, b)

    def _upper(self, a: Expr, b: Expr) -> Expr:
        return ex.where(b.lt(a), a, b) if a.dtype.is_float else ex.maximum(a, b)

    def compare(self, line: list[Expr], a: int, b: int) -> None:
        """Bring the smaller elements of two registers to the first, lane by lane."""
        low, high = self._lower(line[a], line[b]), self._upper(line[b], line[a])
        line[a], line[b] = self.name(low), self.name(high)

    def columns(self, line: list[Expr]) -> None:
        """Sort each lane's elements of a power of two of registers."""
        for a, b in batcher(len(line)):
            self.compare(line, a, b)

    def ninther(self, line: list[Expr]) -> Expr:
        """Return the median of nine registers, lane by lane."""
        for a, b in _MEDIAN:
            self.compare(line, a, b)
        return line[4]

    def sort(self, line: list[Expr]) -> list[Expr]:
        """Return the elements of a power of two of registers in order, row after row."""
        line = list(line)
        self.columns(line)
        down = len(line).bit_length() - 1
        bits = list(range(down + self.lanes.bit_length() - 1))
        stages = []
        for top in bits[down:]:
            stages += [(top, (2 << top) - 1), *((b, 1 << b) for b in reversed(bits[:top]))]
        return self._run(line, stages, bits[:down], bits[down:])

    def merge(self, line: list[Expr]) -> list[Expr]:
        """Return elements in order that rise and then fall, or fall and then rise."""
        across = self.lanes.bit_length() - 1
        bits = list(range(across + len(line).bit_length() - 1))
        stages = [(b, 1 << b) for b in reversed(bits)]
        return self._run(list(line), stages, bits[across:], bits[:across])

    def _run(self, line: list[Expr], stages: list[tuple[int, int]], rows: list[int],
             columns: list[int]) -> list[Expr]:  # fmt: skip
        """Compare elements whose places in order differ by each mask, the lower without the bit.

        `rows` and `columns` are the bits of the places that the numbers of the registers and of
        their lanes hold at first, the lowest first. The result is in rows.
        """
        held = self._places(rows, columns)
        across = len(columns)
        final = sorted(rows + columns)[across:]
        for at, (bit, mask) in enumerate(stages):
            later = [b for b, _ in stages[at:]]
            rows, columns = _exchanged(rows, columns, bit, later, final)
            places = self._places(rows, columns)
            wanted = [[p ^ mask ^ 1 << bit if p >> bit & 1 else p for p in row] for row in places]
            line = self._gather(line, held, wanted)
            step = 1 << rows.index(bit)
            for a in range(len(line)):
                if not a & step:
                    self.compare(line, a, a + step)
            held = places
        while set(rows) != set(final):
            bit = next(b for b in final if b not in rows)
            rows, columns = _exchanged(rows, columns, bit, [], final)
            if set(rows) == set(final):
                rows, columns = final, sorted(columns)
            places = self._places(rows, columns)
            line, held = self._gather(line, held, places), places
        return self._gather(line, held, self._places(final, sorted(columns)))

    def _places(self, rows: list[int], columns: list[int]) -> list[list[int]]:
        """Return the place in order of each lane of each register."""
        def part(number: int, bits: list[int]) -> int:
            return sum((number >> i & 1) << b for i, b in enumerate(bits))

        lanes = [part(t, columns) for t in range(self.lanes)]
        return [[start + t for t in lanes] for start in
                (part(q, rows) for q in range(1 << len(rows)))]  # fmt: skip

    def _gather(self, line: list[Expr], held: list[list[int]],
                wanted: list[list[int]]) -> list[Expr]:  # fmt: skip
        """Return registers that hold other places, each from at most two."""
        where = {p: (q, t) for q, row in enumerate(held) for t, p in enumerate(row)}
        found = []
        for row in wanted:
            sources = sorted({where[p][0] for p in row})
            first, second = sources[0], sources[-1]
            picks = [where[p][1] + (where[p][0] != first) * self.lanes for p in row]
            moved = picks != list(range(self.lanes))
            x = line[first]
            found.append(self.name(ex.shuffle(x, line[second], picks)) if moved else x)
        return found


def _exchanged(rows: list[int], columns: list[int], bit: int, later: list[int],
               final: list[int]) -> tuple[list[int], list[int]]:  # fmt: skip
    """Return the bits of registers and lanes, a bit brought to the registers."""
    if bit in rows:
        return rows, columns
    never = len(later)

    def next_use(b: int) -> int:
        return later.index(b) if b in later else never + (b not in final)

    gone = max(rows, key=next_use)
    swap = {bit: gone, gone: bit}
    return [swap.get(b, b) for b in rows], [swap.get(b, b) for b in columns]
