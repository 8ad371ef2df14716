"""Rewriting expressions by rules: one bottom-up pass, each distinct expression once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from weft.ir.bounds import Env, Ranges
from weft.ir.expr import Expr, rebuild, toposort
from weft.ir.op import Operation
from weft.ir.record import Record
from weft.ir.rewriting.pattern import Match, Pattern, build, match

FUEL: Final = 8  # how often what a rule made may itself be rewritten

# When a rule preserves values.
IEEE: Final = "ieee"  # always: every bit but the payload and sign of a NaN
INTEGER: Final = "integer"  # always, and its operands are integers or bools
RANGE: Final = "range"  # where its condition on ranges holds
FASTMATH: Final = "fastmath"  # in real arithmetic only


class Rule(Record):
    """One rewrite: ``pattern -> replacement``.

    `replacement` is a pattern over the same names, or a function of the matched expressions by
    name that returns None where the rule does not apply. `valid` says when values are preserved.
    `when` is asked first, with the ranges of the environment and the match.
    """

    name: str
    pattern: Pattern
    replacement: Pattern | Callable[..., Expr | None]
    valid: str = IEEE
    when: Callable[[Ranges, Match], bool] | None = None

    def apply(self, e: Expr, ranges: Ranges) -> Expr | None:
        """Return what replaces `e`, or None where the rule does not apply."""
        found = match(self.pattern, e)
        if found is None or (self.when is not None and not self.when(ranges, found)):
            return None
        if isinstance(self.replacement, Pattern):
            return build(self.replacement, found, e.dtype, e.lanes)
        return self.replacement(**found)


class RuleSet:
    """Rules in order, indexed by the operation at the root of their patterns.

    `folds` maps an operation to a function from an expression to its replacement or None; it is
    asked before the rules.
    """

    __slots__ = ("folds", "index", "rules")

    def __init__(self, rules: Iterable[Rule],
                 folds: dict[Operation, Callable[[Expr], Expr | None]] | None = None) -> None:
        self.rules = tuple(rules)
        self.folds = dict(folds or {})
        self.index: dict[Operation, list[Rule]] = {}
        for rule in self.rules:
            if rule.pattern.op is None:
                raise ValueError(f"the rule {rule.name} matches everything")
            self.index.setdefault(rule.pattern.op, []).append(rule)

    def __iter__(self) -> Iterator[Rule]:
        return iter(self.rules)

    def __add__(self, other: RuleSet) -> RuleSet:
        return RuleSet(self.rules + other.rules, self.folds | other.folds)

    def step(self, e: Expr, ranges: Ranges) -> Expr | None:
        """Return the result of the first rule that changes `e`, or None."""
        fold = self.folds.get(e.op)
        if fold is not None:
            made = fold(e)
            if made is not None and made is not e:
                return made
        for rule in self.index.get(e.op, ()):
            made = rule.apply(e, ranges)
            if made is not None and made is not e:
                return made
        return None


def rewrite(roots: Iterable[Expr], rules: RuleSet, env: Env | None = None) -> list[Expr]:
    """Return `roots` rewritten bottom-up.

    Every distinct expression is visited once. What a rule makes is rewritten again, at most
    `FUEL` times, so that a cycle among rules ends.
    """
    roots = list(roots)
    pass_ = _Pass(rules, Ranges(env))
    pass_.run(roots, FUEL)
    return [pass_.done[r] for r in roots]


class _Pass:
    """The state of one rewrite: what each expression became."""

    __slots__ = ("done", "ranges", "rules")

    def __init__(self, rules: RuleSet, ranges: Ranges) -> None:
        self.rules, self.ranges = rules, ranges
        self.done: dict[Expr, Expr] = {}

    def run(self, roots: list[Expr], fuel: int) -> None:
        """Rewrite everything below `roots` that is not done yet; its depth is bounded by `fuel`."""
        done = self.done
        for e in self._pending(roots):
            new = e
            if e.args:
                new = rebuild(e, tuple(done[a] for a in e.args))
            if new is not e and new in done:
                done[e] = done[new]
                continue
            made = self.rules.step(new, self.ranges) if fuel else None
            if made is not None:
                if made not in done:
                    self.run([made], fuel - 1)
                final = done[made]
            else:
                final = new
            done[e] = done[new] = final
            done.setdefault(final, final)

    def _pending(self, roots: list[Expr]) -> list[Expr]:
        if not self.done:
            return toposort(roots)
        order: dict[Expr, None] = {}
        stack = [(r, False) for r in roots]
        while stack:
            e, ready = stack.pop()
            if e in self.done or e in order:
                continue
            if ready:
                order[e] = None
                continue
            stack.append((e, True))
            stack.extend((a, False) for a in e.args)
        return list(order)
