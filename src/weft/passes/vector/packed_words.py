"""Words of narrow elements that lie side by side are read as they lie.

Before: a word of each lane is made of elements that are loaded one by one, with a stride::

    v0 = x[0 + 4 * lane]; v1 = x[1 + 4 * lane]; ...;  w = v0 | v1 << 8 | v2 << 16 | v3 << 24

After: ``r = x[0:64]; w = words(r)``. Where the lanes lie further apart, neighbouring words (copies
of an unrolled loop) become one contiguous load a lane and a transposition of whole words.

Masks of words that lie side by side become one mask of all elements. Where the lanes lie further
apart, a mask that all elements have is one of lanes, and each load takes its own.

Limits: words of uint32 that are bound by LETs; nothing is moved past control flow or a write to the
same memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Final, NamedTuple

from weft.ir import dtype as dt
from weft.ir import expr as ex
from weft.ir.expr import Expr
from weft.ir.op import Op
from weft.ir.stmt import Alloc, Body, Let, Load, Location, Memory, Prefetch, Stmt, Store
from weft.ir.traverse import walk
from weft.passes.common.lanes import Affine, linear
from weft.passes.common.straight_line import LEAST, StridedLines, behind, of_lane, runs, transpose

_PLAIN: Final = (Load, Store, Let, Prefetch, Alloc)

Strided = dict[Stmt, Affine]


class _Word(NamedTuple):
    """A word in a LET: the part of its value that makes it, and the loads of its elements."""

    position: int
    node: Expr
    loads: tuple[int, ...]  # positions
    base: Expr
    offset: int  # elements from the base of its group
    masks: tuple[Expr | None, ...]  # of its elements


def join_words(body: Body, strided: Strided, locations: dict[Stmt, Location],
               apart: bool = True) -> Body:  # fmt: skip
    """Return a body of kernel level with the words in it read as a whole.

    Parameters are those of `weft.passes.vector.strided.regroup`, which treats what this leaves.
    """
    return _Join(body, strided, locations, apart).body(body) if strided else body


class _Join(StridedLines):
    MARK = "w"

    def treated(self, body: Body) -> Body:
        """Return a straight line whose words are read as a whole."""
        groups = self._groups(body)
        return self._replaced(body, groups) if groups else body

    def _groups(self, body: Body) -> list[tuple[Memory, int, int, list[_Word]]]:
        """Return the words by memory, stride, lanes and what their places have in common."""
        lets = {s.var: s.value for s in body if isinstance(s, Let) and s.var.lanes == 1}
        loads = {s.var: p for p, s in enumerate(body)
                 if isinstance(s, Load) and s in self.strided}
        found: dict[object, tuple[Memory, int, int, list[_Word]]] = {}
        for position, stmt in enumerate(body):
            if not isinstance(stmt, Let) or stmt.var.dtype is not dt.uint32:
                continue
            made = _elements(stmt.value)
            if made is None or not all(e in loads for e in made[1]):
                continue
            at = tuple(loads[e] for e in made[1])
            places = [self.strided[body[p]] for p in at]
            memories = {body[p].memory for p in at}  # type: ignore[attr-defined]
            masks = tuple([body[p].mask for p in at])  # type: ignore[attr-defined]
            start, *rest = [linear(a.base, lets) for a in places]
            if len(memories) > 1 or any(
                    found != (start[0], start[1] + r) for r, found in enumerate(rest, 1)) or (
                    len({a.stride for a in places}) > 1):
                continue
            (memory,) = memories
            key = memory, places[0].stride, stmt.var.lanes, frozenset(start[0].items()), masks
            group = found.setdefault(key, (memory, key[1], key[2], []))
            group[3].append(_Word(position, made[0], at, places[0].base, start[1], masks))
        return list(found.values())

    def _replaced(self, body: Body,
                  groups: list[tuple[Memory, int, int, list[_Word]]]) -> Body:
        before: dict[int, list[Stmt]] = {}
        values: dict[int, tuple[Expr, Expr]] = {}  # by position: what stands for which node
        for memory, stride, lanes, words in groups:
            size = 4 // memory.dtype.itemsize
            if not self._unwritten(body, memory, words):
                continue
            masks = words[0].masks
            if stride == size:
                for word in words:
                    out = before.setdefault(max(word.loads), [])
                    mask = self._of_elements(masks, lanes, out)
                    values[word.position] = word.node, self._read(memory, word.base, lanes, out,
                                                                  mask)
                continue
            if len(set(masks)) > 1:
                continue
            by_offset = {w.offset: w for w in words}
            low = min(by_offset)
            if len(by_offset) < len(words) or any((o - low) % size for o in by_offset):
                continue
            top = words[0]
            out = before.setdefault(top.loads[0], [])
            for first, count in runs(sorted((o - low) // size for o in by_offset), lanes):
                if not LEAST <= count <= lanes or stride < count * size:
                    continue
                start = low + first * size - top.offset
                rows = [self._read(memory, behind(top.base, start + lane * stride), count, out,
                                   of_lane(masks[0], lane, count * size))
                        for lane in range(lanes)]
                for i, row in enumerate(transpose(rows, count, partial(self._let, out))):
                    word = by_offset[low + (first + i) * size]
                    values[word.position] = word.node, row
        return self._cleaned(body, before, values) if values else body

    def _unwritten(self, body: Body, memory: Memory, words: list[_Word]) -> bool:
        """Whether nothing between the loads of words writes what they read."""
        places = [p for w in words for p in w.loads]
        between = body[min(places) : max(places)]
        return all(isinstance(s, _PLAIN) for s in between) and not any(
            isinstance(s, Store) and self.overlap(s.memory, memory) for s in between)

    def _read(self, memory: Memory, base: Expr, count: int, out: list[Stmt],
              mask: Expr | None = None) -> Expr:
        """Emit the load of words side by side, in whose elements a mask holds."""
        lanes = count * (4 // memory.dtype.itemsize)
        var = self.fresh("read", ex.const(0, memory.dtype), lanes)
        out.append(Load(var, memory, (base,), mask))
        return self._let(out, ex.words(var))

    def _of_elements(self, masks: Sequence[Expr | None], lanes: int,
                     out: list[Stmt]) -> Expr | None:
        """Return the masks of the elements of all words as one, in the order of memory."""
        if all(m is None for m in masks):
            return None
        always = ex.const(True, dt.bool_, lanes)
        whole = [always if m is None else m for m in masks]
        while len(whole) > 1:  # every second one, then these with those between
            half = len(whole) // 2
            n = whole[0].lanes
            picks = [p for i in range(n) for p in (i, n + i)]
            whole = [self._let(out, ex.shuffle(a, b, picks))
                     for a, b in zip(whole[:half], whole[half:], strict=True)]
        return whole[0]

    def _let(self, out: list[Stmt], value: Expr) -> Expr:
        var = self.fresh("words", value, value.lanes)
        out.append(Let(var, value))
        return var

    def _cleaned(self, body: Body, before: dict[int, list[Stmt]],
                 values: dict[int, tuple[Expr, Expr]]) -> Body:
        """Return the body with the new statements, without loads that nothing reads any more."""
        made: list[Stmt] = []
        for position, stmt in enumerate(body):
            for new in before.get(position, ()):
                self.carry(stmt, new)
                made.append(new)
            if position in values:
                assert isinstance(stmt, Let)
                node, value = values[position]
                (whole,) = ex.substitute([stmt.value], {node: value})
                new = Let(stmt.var, whole)
                self.carry(stmt, new)
                stmt = new
            made.append(stmt)
        used = ex.free_vars(_expressions(made))
        return tuple([s for s in made if not (
            isinstance(s, Load) and s in self.strided and s.var not in used)])


def _expressions(body: Iterable[Stmt]) -> list[Expr]:
    return [e for s in walk(tuple(body)) for e in s.exprs()]


def _elements(value: Expr) -> tuple[Expr, list[Expr]] | None:
    """Return the part of a value that is a word, and its elements from the lowest bits on."""
    while value.op is Op.XOR and value.args[1].op is Op.CONST:
        value = value.args[0]
    if value.op is not Op.OR or value.dtype is not dt.uint32:
        return None
    parts: dict[int, Expr] = {}
    stack = [value]
    while stack:
        e, shift = stack.pop(), 0
        if e.op is Op.OR:
            stack.extend(e.args)
            continue
        if e.op is Op.SHL and e.args[1].op is Op.CONST:
            e, shift = e.args[0], int(e.args[1].attr)
        if e.op is not Op.CAST or e.args[0].dtype.kind != "u":
            return None
        (e,) = e.args
        if e.op is Op.BITCAST:
            (e,) = e.args
        if shift in parts:
            return None
        parts[shift] = e
    bits = value.dtype.bits // len(parts)
    same = {e.dtype for e in parts.values()}
    if sorted(parts) != list(range(0, 32, bits)) or any(
            d.is_bool or d.bits != bits for d in same) or len(same) > 1:
        return None
    return value, [parts[shift] for shift in sorted(parts)]
