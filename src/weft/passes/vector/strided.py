"""Accesses with a stride become contiguous ones and shuffles in registers.

Before: vector loads and stores whose lanes lie a constant stride apart, which a processor carries
out lane by lane. After: for each straight line of statements

* loads of neighbouring places (copies of an unrolled loop along the rows of a matrix, vectors down
  its columns) become one contiguous load a lane and a transposition::

      v0 = x[0 + 16 * lane]; v1 = x[1 + 16 * lane]; ...
      ->  r0 = x[0:16]; r1 = x[16:32]; ...; v0, v1, ... = transpose(r0, r1, ...)

* loads with a small stride read everything that lies between their lanes and pick;
* stores of neighbouring places are transposed likewise, or interleaved where they fill all places
  between their lanes; alone, with a small stride, their lanes are spread over contiguous stores
  whose masks leave out what lies between: a scatter takes ten times as long.

A masked load with a small stride is picked by itself, from loads whose masks leave out what lies
between its lanes. Of neighbouring ones with a larger stride and the same mask, each lane has a row
that is read or not.

Limits: no masked stores; nothing is moved past control flow, an assertion, or a write to
the same memory.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from weft.ir import dtype as dt
from weft.ir import expr as ex
from weft.ir.expr import Expr
from weft.ir.op import Op
from weft.ir.stmt import Alloc, Body, Let, Load, Location, Memory, Prefetch, Stmt, Store
from weft.passes.common.lanes import Affine, linear
from weft.passes.common.straight_line import LEAST, StridedLines, behind, of_lane, runs, transpose

NEAR: Final = 12  # strides up to which the places between the lanes are read as well
CLOSE: Final = 8  # up to which they are written together, or read under a mask
_PLAIN: Final = (Load, Store, Let, Prefetch, Alloc)  # storage of a copy's own touches no other


_Key = tuple[Memory, int, int, Expr | None]  # stride, lanes, mask


class _Access(NamedTuple):
    """A strided access of a straight line: where it stands and where it starts."""

    position: int
    stmt: Load | Store
    offset: int  # from the base of its group


class _Group:
    """Accesses of one memory, stride, mask and number of lanes whose distances are known."""

    def __init__(self, base: Expr, stride: int, lanes: int, symbols: dict[Expr, int],
                 constant: int, mask: Expr | None = None) -> None:  # fmt: skip
        self.base, self.stride, self.lanes = base, stride, lanes
        self.symbols, self.constant, self.mask = symbols, constant, mask
        self.members: list[_Access] = []


def regroup(body: Body, strided: dict[Stmt, Affine], locations: dict[Stmt, Location],
            apart: bool = True) -> Body:  # fmt: skip
    """Return a body of kernel level with strided accesses replaced.

    Parameters
    ----------
    body : Body
        What vectorisation made.
    strided : dict of Stmt to Affine
        The strided vector accesses in it (loads without a fill, stores without a mask), with first
        offset and stride.
    locations : dict of Stmt to Location
        Source places; those of new statements are added.
    apart : bool
        Whether no two parameters overlap. Else nothing is moved past a write to any of them.
    """
    if not strided:
        return body
    return _Regroup(body, strided, locations, apart).body(body)


class _Regroup(StridedLines):
    MARK = "x"

    def treated(self, body: Body) -> Body:
        """Return a straight line with contiguous accesses instead of strided ones."""
        return _Line(self, body).run()


class _Line:
    """One body: finds groups, and writes what replaces them."""

    def __init__(self, owner: _Regroup, body: Body) -> None:
        self.owner, self.source = owner, body
        self.lets: dict[Expr, Expr] = {}
        self.before: dict[int, list[Stmt]] = {}  # new statements, by the position they precede
        self.gone: set[int] = set()
        self.loads: dict[_Key, list[_Group]] = {}
        self.stores: dict[_Key, list[_Group]] = {}

    def run(self) -> Body:
        for position, stmt in enumerate(self.source):
            if isinstance(stmt, Let) and stmt.var.lanes == 1:
                self.lets[stmt.var] = stmt.value
            if not isinstance(stmt, _PLAIN):
                self._flush()
                continue
            if isinstance(stmt, Load):
                self._flush_of(self.stores, stmt.memory, None)
            elif isinstance(stmt, Store):
                self._flush_of(self.loads, stmt.memory, None)
            place = self.owner.strided.get(stmt)
            if place is not None and isinstance(stmt, Load) and stmt.mask is not None:
                if place.stride > CLOSE:
                    self._add(position, stmt, place)
                elif self.owner.apart:
                    self._masked(position, stmt, place)
            elif place is not None and isinstance(stmt, Load | Store):
                self._add(position, stmt, place)
            elif isinstance(stmt, Store):
                self._flush_of(self.stores, stmt.memory, None)
        self._flush()
        out: list[Stmt] = []
        for position, stmt in enumerate(self.source):
            for new in self.before.get(position, ()):
                self.owner.carry(stmt, new)
                out.append(new)
            if position not in self.gone:
                out.append(stmt)
        return tuple(out)

    def _masked(self, position: int, stmt: Load, place: Affine) -> None:
        """Replace a masked load of a small stride by itself."""
        symbols, constant = linear(place.base, self.lets)
        group = _Group(place.base, place.stride, stmt.var.lanes, symbols, constant)
        group.members.append(_Access(position, stmt, 0))
        out = self.before.setdefault(position, [])
        value = self._picked(group, [0], out, stmt.mask)[0]
        out.append(Let(stmt.var, value))
        self.gone.add(position)

    def _flush(self) -> None:
        for table, write in ((self.loads, self._loads), (self.stores, self._stores)):
            for groups in table.values():
                for group in groups:
                    write(group)
            table.clear()

    def _flush_of(self, table: dict[_Key, list[_Group]], memory: Memory,
                  spare: _Key | None) -> None:  # fmt: skip
        """Finish the groups that may overlap a memory, but not those under the key `spare`."""
        write = self._loads if table is self.loads else self._stores
        for key in [k for k in table if k != spare and self.owner.overlap(k[0], memory)]:
            for group in table.pop(key):
                write(group)

    def _add(self, position: int, stmt: Load | Store, place: Affine) -> None:
        lanes = stmt.var.lanes if isinstance(stmt, Load) else stmt.value.lanes
        table = self.loads if isinstance(stmt, Load) else self.stores
        key = (stmt.memory, place.stride, lanes, stmt.mask)
        if isinstance(stmt, Store):
            self._flush_of(self.stores, stmt.memory, key)
        symbols, constant = linear(place.base, self.lets)
        groups = table.setdefault(key, [])
        for group in groups:
            if group.symbols == symbols:
                offset = constant - group.constant
                if isinstance(stmt, Load) or all(m.offset != offset for m in group.members):
                    group.members.append(_Access(position, stmt, offset))
                    return
        if groups and isinstance(stmt, Store):  # they may meet: keep their order
            self._flush_of(self.stores, stmt.memory, None)
            groups = table.setdefault(key, [])
        group = _Group(place.base, place.stride, lanes, symbols, constant, stmt.mask)
        group.members.append(_Access(position, stmt, 0))
        groups.append(group)

    # loads

    def _loads(self, group: _Group) -> None:
        """Replace the loads of a group, at the place of the first one."""
        first = min(m.position for m in group.members)
        out = self.before.setdefault(first, [])
        by_offset: dict[int, list[_Access]] = {}
        for member in group.members:
            by_offset.setdefault(member.offset, []).append(member)
        values: dict[int, Expr] = {}
        # Alone a load is worth it only where others of its kind are not kept from it by writes.
        near = 1 < group.stride <= NEAR and group.mask is None and (
            self.owner.apart or len(by_offset) > 1)
        for start, count in runs(sorted(by_offset), group.lanes):
            if LEAST <= count <= group.lanes and group.stride >= count:
                values.update(self._transposed(group, start, count, out))
            elif near:
                offsets = [o for o in range(start, start + count) if o in by_offset]
                for low in range(0, len(offsets), group.stride):
                    values.update(self._picked(group, offsets[low:low + group.stride], out))
        for offset, value in values.items():
            for member in by_offset[offset]:
                assert isinstance(member.stmt, Load)
                self.gone.add(member.position)
                self.before.setdefault(member.position, []).append(Let(member.stmt.var, value))

    def _read(self, group: _Group, offset: int, lanes: int, out: list[Stmt],
              mask: Expr | None = None) -> Expr:  # fmt: skip
        """Emit a contiguous load, `offset` elements behind the base of a group."""
        like = group.members[0].stmt
        assert isinstance(like, Load)
        var = self.owner.fresh(str(like.var.attr), like.var, lanes)
        out.append(Load(var, like.memory, (behind(group.base, offset),), mask))
        return var

    def _between(self, mask: Expr | None, group: _Group, start: int,
                 out: list[Stmt]) -> Expr | None:  # fmt: skip
        """Return the mask of a contiguous load from `start` that reads what a lane wants."""
        if mask is None:
            return None
        if mask.op is Op.BROADCAST:  # all lanes or none: what lies between them is there as well
            return mask
        lanes, never = group.lanes, ex.const(False, mask.dtype, group.lanes)
        picks = [(start + i) // group.stride if (start + i) % group.stride == 0 else lanes
                 for i in range(lanes)]  # fmt: skip
        return self._let(ex.shuffle(mask, never, picks), out, group)

    def _let(self, value: Expr, out: list[Stmt], group: _Group) -> Expr:
        like = group.members[0].stmt
        name = like.var.attr if isinstance(like, Load) else "turned"
        var = self.owner.fresh(str(name), value, value.lanes)
        out.append(Let(var, value))
        return var

    def _transposed(self, group: _Group, start: int, count: int,
                    out: list[Stmt]) -> dict[int, Expr]:  # fmt: skip
        """Read one row a lane and transpose: `count` neighbouring loads, a power of two."""
        rows = [self._read(group, start + lane * group.stride, count, out,
                           of_lane(group.mask, lane, count)) for lane in range(group.lanes)]
        rows = transpose(rows, count, lambda e: self._let(e, out, group))
        return {start + i: row for i, row in enumerate(rows)}

    def _picked(self, group: _Group, offsets: list[int], out: list[Stmt],
                mask: Expr | None = None) -> dict[int, Expr]:  # fmt: skip
        """Read all between the lanes, from the first offset on, and pick the lanes."""
        lanes, stride = group.lanes, group.stride
        start, reach = offsets[0], offsets[-1] - offsets[0] + stride * (lanes - 1) + 1
        starts = [*range(0, reach - lanes, lanes), reach - lanes]  # the last one ends there
        windows: dict[int, Expr] = {}
        found = {}
        for offset in offsets:
            places = [offset - start + lane * stride for lane in range(lanes)]
            home = [min(p // lanes, len(starts) - 1) for p in places]
            value: Expr | None = None
            for number in sorted(set(home)):
                if number not in windows:
                    part = self._between(mask, group, starts[number], out)
                    windows[number] = self._read(group, start + starts[number], lanes, out, part)
                window = windows[number]
                inside = [p - starts[number] for p in places]
                if value is None:
                    picks = [i if h == number else 0
                             for i, h in zip(inside, home, strict=True)]  # fmt: skip
                    value = window
                    taken = picks
                    continue
                picks = [lanes + i if h == number else (t if t is not None else 0)
                         for i, h, t in zip(inside, home, taken, strict=True)]  # fmt: skip
                value = self._let(ex.shuffle(value, window, picks), out, group)
                taken = list(range(lanes))
            assert value is not None
            found[offset] = value
        return found

    # stores

    def _stores(self, group: _Group) -> None:
        """Replace the stores of a group, at the place of the last one."""
        offsets = {m.offset: m for m in group.members}
        last = max(m.position for m in group.members)
        out = self.before.setdefault(last, [])
        start, stride = min(offsets), group.stride
        if 1 < stride <= CLOSE and sorted(offsets) == list(range(start, start + stride)):
            self._interleaved(group, start, [self._value(offsets[start + i])
                                             for i in range(stride)], out)
            self.gone.update(m.position for m in group.members)
            return
        for first, count in runs(sorted(offsets), group.lanes):
            members = [offsets[first + i] for i in range(count) if first + i in offsets]
            if not LEAST <= count <= min(group.lanes, stride):
                if 1 < stride <= CLOSE and group.lanes >= LEAST:
                    for member in members:
                        self._spread(group, member)
                continue
            self._rows(group, first, [self._value(m) for m in members], out)
            self.gone.update(m.position for m in members)

    @staticmethod
    def _value(member: _Access) -> Expr:
        assert isinstance(member.stmt, Store)
        return member.stmt.value

    def _write(self, group: _Group, offset: int, value: Expr, out: list[Stmt],
               mask: Expr | None = None) -> None:
        like = group.members[0].stmt
        assert isinstance(like, Store)
        out.append(Store(like.memory, (behind(group.base, offset),), value, mask,
                         like.streaming and mask is None))  # fmt: skip

    def _rows(self, group: _Group, start: int, values: list[Expr], out: list[Stmt]) -> None:
        """Transpose vectors and write one row a lane."""
        lanes, count = group.lanes, len(values)
        for _ in range(count.bit_length() - 1):
            middle = count // 2
            low = [p for i in range(lanes // 2) for p in (i, lanes + i)]
            high = [p + lanes // 2 for p in low]
            values = [self._let(ex.shuffle(values[i], values[i + middle], picks), out, group)
                      for i in range(middle) for picks in (low, high)]
        while values[0].lanes > count:
            values = [self._let(ex.half(v, which), out, group)
                      for v in values for which in (0, 1)]  # fmt: skip
        for lane, value in enumerate(values):
            self._write(group, start + lane * group.stride, value, out)

    def _spread(self, group: _Group, member: _Access) -> None:
        """Write one vector through contiguous stores that leave out what lies between its lanes."""
        lanes, stride = group.lanes, group.stride
        out, value = self.before.setdefault(member.position, []), self._value(member)
        width = lanes * (2 - stride % 2)
        reach = stride * (lanes - 1) + 1
        never = ex.const(False, dt.bool_, lanes)
        always = ex.const(True, dt.bool_, lanes)
        for start in range(0, reach, width):
            places = range(start, start + width)
            spread = ex.shuffle(value, value, [min(p // stride, lanes - 1) for p in places])
            written = [p // stride if p % stride == 0 and p < reach else lanes for p in places]
            mask = self._let(ex.shuffle(always, never, written), out, group)
            self._write(group, member.offset + start, self._let(spread, out, group), out, mask)
        self.gone.add(member.position)

    def _interleaved(self, group: _Group, start: int, values: list[Expr],
                     out: list[Stmt]) -> None:  # fmt: skip
        """Write vectors whose lanes alternate as contiguous ones."""
        lanes, stride = group.lanes, group.stride
        for window in range(stride):
            places = [window * lanes + i for i in range(lanes)]
            value = values[0]
            taken = [p // stride if p % stride == 0 else 0 for p in places]
            for number in range(1, stride):
                picks = [lanes + p // stride if p % stride == number else t
                         for p, t in zip(places, taken, strict=True)]  # fmt: skip
                value = self._let(ex.shuffle(value, values[number], picks), out, group)
                taken = list(range(lanes))
            self._write(group, start + window * lanes, value, out)
