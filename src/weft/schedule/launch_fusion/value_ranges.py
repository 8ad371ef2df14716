"""What is known of the integers of a kernel: weighted sums, intervals, and what conditions say.

Sizes are numbers by then. An integer that is no weighted sum of others becomes a variable of which
the interval is known; ``x // c`` becomes a variable ``q`` with ``0 <= x - c*q < c``.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from typing import Final

from weft.ir import dtype as dt
from weft.ir import expr as ex
from weft.ir.bounds import Ranges
from weft.ir.expr import Expr
from weft.ir.op import Op
from weft.ir.record import Record
from weft.schedule.analysis.affine import Constraint, Interval, Linear, solve

__all__ = ["NEVER", "Known", "Told", "explained"]

NEVER: Final = Constraint({}, 1, 1)  # 0 == 1
_NEGATED: Final = {Op.LT: Op.LE, Op.LE: Op.LT, Op.EQ: Op.NE, Op.NE: Op.EQ}
Told = tuple[tuple[Constraint, ...], tuple[Constraint, ...]]  # if it holds, and if it does not


class Known:
    """What is known at a place in a kernel.

    Attributes
    ----------
    boxes : dict
        The interval of each variable of the weighted sums.
    meanings : dict
        What makes a variable for a quotient one.
    facts : list of Constraint
        What holds here.
    names : dict of Expr to Linear
        The weighted sums of names.
    lets : dict of Expr to Expr
        The expressions of names.
    told : dict of Expr to Told
        What is true if a name of type bool is true, and if it is false.
    """

    def __init__(self, values: Mapping[str, int], variables: Iterable[Expr]) -> None:
        self.values = values
        self.boxes: dict[Hashable, Interval] = {}
        self.meanings: dict[Hashable, tuple[Constraint, ...]] = {}
        self.facts: list[Constraint] = []
        self.names: dict[Expr, Linear] = {}
        self.lets: dict[Expr, Expr] = {}
        self.told: dict[Expr, Told] = {}
        self.known: dict[Expr, Linear] = {}
        self.env: dict[Expr, tuple[int, int]] = {}
        for e in variables:
            value = values.get(e.attr.name)
            if value is not None:
                self.env[e] = (value, value)

    # --- conditions

    def assume(self, condition: Expr, truth: bool) -> None:
        """Note what a condition says about linear forms."""
        self.facts.extend(self.says(condition, truth))

    def says(self, condition: Expr, truth: bool) -> tuple[Constraint, ...]:
        """Return what is true of linear forms if a condition holds, or if it does not."""
        out: list[Constraint] = []
        for e, holds in self._parts(condition, truth):
            if e.op is Op.CONST:
                out.extend(() if bool(e.attr) is holds else (NEVER,))
            elif e in self.told:
                out.extend(self.told[e][0 if holds else 1])
            else:
                out.extend(self._compared(e, holds))
        return tuple(out)

    def _parts(self, condition: Expr, truth: bool) -> Iterator[tuple[Expr, bool]]:
        """Yield what holds, or does not, where a condition does: all of it together says so."""
        stack = [(condition, truth)]
        while stack:
            e, holds = stack.pop()
            if e.op is Op.VAR and e in self.lets:
                stack.append((self.lets[e], holds))
            elif e.op is Op.NOT and e.dtype.is_bool:
                stack.append((e.args[0], not holds))
            elif e.dtype.is_bool and ((e.op is Op.AND and holds) or (e.op is Op.OR and not holds)):
                stack.extend((a, holds) for a in e.args)
            else:
                yield e, holds

    def _compared(self, e: Expr, holds: bool) -> list[Constraint]:
        op = e.op if holds else _NEGATED.get(e.op)
        if op not in _NEGATED or not e.args[0].dtype.is_integer:
            return []
        a, b = map(self.linear, e.args)
        if not holds and op in (Op.LT, Op.LE):
            a, b = b, a
        gap = a.plus(b, -1)
        if op is Op.NE:
            return []
        if op is Op.EQ:
            return [*self._at_most(gap), *self._at_most(gap.times(-1))]
        return self._at_most(gap.plus(Linear({}, 1)) if op is Op.LT else gap)

    def is_told(self, condition: Expr, truth: bool) -> bool:
        """Whether a condition is no more than what `says` returns."""
        return all((e.op if holds else _NEGATED.get(e.op)) in (Op.LT, Op.LE, Op.EQ)
                   and e.args[0].dtype.is_integer for e, holds in self._parts(condition, truth))

    def below(self, a: Linear, b: Linear) -> None:
        """Note that one form is less than another one."""
        self.facts.extend(self._at_most(a.plus(b, -1).plus(Linear({}, 1))))

    def _at_most(self, form: Linear) -> list[Constraint]:
        """Return constraints for ``form <= 0``; a quotient is also multiplied away."""
        out = [self.bounded(form)]
        for key, weight in form.terms.items():
            if isinstance(key, _Quotient) and weight in (1, -1):
                rest = Linear({k: w for k, w in form.terms.items() if k != key}, form.constant)
                x, c = key.linear(), key.divisor
                if weight < 0:  # rest <= x // c
                    out.append(self.bounded(rest.times(c).plus(x, -1)))
                else:  # x // c <= -rest
                    out.append(self.bounded(x.plus(rest, c).plus(Linear({}, 1 - c))))
        return out

    def bounded(self, form: Linear) -> Constraint:
        """Return ``form <= 0`` with the lower limit that the intervals give."""
        low = form.interval(self.boxes)[0]
        return Constraint(form.terms, low - form.constant, -form.constant)

    def holds(self, condition: Expr) -> bool:
        """Whether a condition is proved where it stands."""
        return all(bool(e.attr) is wanted if e.op is Op.CONST else self._impossible(e, not wanted)
                   for e, wanted in self._parts(condition, True))

    def _impossible(self, e: Expr, holds: bool) -> bool:
        if e.args and (e.op if holds else _NEGATED.get(e.op)) is Op.NE:  # either less or greater
            a, b = e.args
            return (e.args[0].dtype.is_integer and self._impossible(a.lt(b), True)
                    and self._impossible(b.lt(a), True))
        rows = list(self.told[e][0 if holds else 1]) if e in self.told else self._compared(e, holds)
        if not rows:
            return False
        return solve(self.boxes, [*rows, *self.facts, *self.explained([*rows, *self.facts])]
                     ) is None

    def explained(self, rows: list[Constraint]) -> Iterator[Constraint]:
        """Yield what the quotients in some constraints mean."""
        return explained(self.meanings, rows)

    # --- expressions

    def range_of(self, e: Expr) -> Interval:
        """Return the interval of an integer expression."""
        form = self.linear(e)
        low, high = form.interval(self.boxes)
        found = Ranges(self.env).of(ex.substitute([e], self.lets)[0])
        return max(low, found.lo), min(high, found.hi)

    def opaque(self, key: Hashable, d: dt.DType, limits: Interval | None = None) -> Linear:
        """Return a form for a value of which only the interval is known."""
        whole = int(d.min), int(d.max)
        low, high = limits or whole
        self.boxes[key] = max(low, whole[0]), min(high, whole[1])
        return Linear({key: 1}, 0)

    def linear(self, e: Expr) -> Linear:
        """Return an integer expression as a weighted sum."""
        found = self.known.get(e)
        if found is not None:
            return found
        local: dict[Expr, Linear] = {}
        for node in ex.toposort([e]):
            if node in self.known:
                local[node] = self.known[node]
            elif node.dtype.is_integer:
                form = self._form(node, local)
                if form is None:
                    span = Ranges(self.env).of(node)
                    form = self.opaque(node, node.dtype, (span.lo, span.hi))
                local[node] = form
        if all(v.op is not Op.VAR for v in ex.toposort([e])):
            self.known[e] = local[e]
        return local[e]

    def _form(self, e: Expr, local: Mapping[Expr, Linear]) -> Linear | None:
        op = e.op
        if op is Op.CONST:
            return Linear({}, int(e.attr))
        if op is Op.VARIABLE:
            value = self.values.get(e.attr.name)
            return None if value is None else Linear({}, value)
        if op is Op.VAR:
            return self.names.get(e)
        if not e.args or any(a not in local for a in e.args):
            return self._chosen(e, local)
        found = self._combined(e, [local[a] for a in e.args])
        if found is None:
            return None
        low, high = found.interval(self.boxes)
        return found if int(e.dtype.min) <= low and high <= int(e.dtype.max) else None

    def _chosen(self, e: Expr, local: Mapping[Expr, Linear]) -> Linear | None:
        """Return the side of a choice whose condition is known."""
        if e.op is not Op.WHERE:
            return None
        found = Ranges(self.env).of(ex.substitute([e.args[0]], self.lets)[0])
        return local.get(e.args[1 if found.lo else 2]) if found.is_single else None

    def _combined(self, e: Expr, args: list[Linear]) -> Linear | None:
        op = e.op
        a = args[0]
        if op is Op.CAST:
            return a
        if op is Op.NEG:
            return a.times(-1)
        if len(args) != 2:
            return None
        b = args[1]
        if op is Op.ADD:
            return a.plus(b)
        if op is Op.SUB:
            return a.plus(b, -1)
        if op is Op.MUL:
            if not a.terms:
                a, b = b, a
            return None if b.terms else a.times(b.constant)
        return None if b.terms else self._by_constant(op, a, b.constant)

    def _by_constant(self, op: object, a: Linear, c: int) -> Linear | None:
        low = a.interval(self.boxes)[0]
        if op is Op.FLOORDIV and c > 0:
            return self.quotient(a, c)
        if (op is Op.MOD or (op is Op.FMOD and low >= 0)) and c > 0:
            return a.plus(self.quotient(a, c), -c)
        if op is Op.SHL and 0 <= c < 62:
            return a.times(1 << c)
        if op is Op.SHR and 0 <= c < 62:
            return self.quotient(a, 1 << c)
        if op is Op.AND and c >= 0 and not c & (c + 1):
            return a.plus(self.quotient(a, c + 1), -(c + 1))
        if op is Op.MAX and low >= c:
            return a
        if op is Op.MIN and a.interval(self.boxes)[1] <= c:
            return a
        return None

    def quotient(self, x: Linear, c: int) -> Linear:
        """Return ``x // c``, rounded down, for a positive number."""
        low, high = x.interval(self.boxes)
        first, last = low // c, high // c
        if first == last:
            return Linear({}, first)
        if all(w % c == 0 for w in x.terms.values()):
            return Linear({k: w // c for k, w in x.terms.items()}, x.constant // c)
        key = _Quotient(frozenset(x.terms.items()), x.constant, c)
        self.boxes[key] = (first, last)
        terms = {**x.terms, key: -c}
        self.meanings[key] = (Constraint(terms, -x.constant, c - 1 - x.constant),)
        return Linear({key: 1}, 0)


class _Quotient(Record):
    """The variable for ``x // divisor``."""

    terms: frozenset[tuple[Hashable, int]]
    constant: int
    divisor: int

    def linear(self) -> Linear:
        return Linear(dict(self.terms), self.constant)


def explained(meanings: Mapping[Hashable, tuple[Constraint, ...]],
              rows: list[Constraint]) -> Iterator[Constraint]:  # fmt: skip
    """Yield what the quotients in some constraints mean, and the quotients in those."""
    stack = [k for row in rows for k in row.terms]
    seen: set[Hashable] = set()
    while stack:
        key = stack.pop()
        if key in seen:
            continue
        seen.add(key)
        for row in meanings.get(key, ()):
            yield row
            stack.extend(row.terms)
