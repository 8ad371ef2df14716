"""Evolutionary search in the space that a strategy declares.

It starts from the default, its neighbours and random candidates; each step mutates and crosses the
best of a population, lets the cost model order what came of it, and measures the most promising.
The space is explored by scheduling: a candidate tells which choices it met, so what one choice
opens for another is found on the way. Schedules that come out the same are tried once. Given equal
measurements, a search with an equal seed takes equal steps.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from weft.config import AutotuneConfig
from weft.schedule.choices import Choice, Value
from weft.tuning.cost_model import Model
from weft.tuning.features import Features

BATCH: Final = 8  # candidates compiled together, after which the model learns
_POOL: Final = 3  # proposals for each candidate that is measured
_TRIES: Final = 20  # proposals in a row without a new schedule, after which the space is empty
_CURIOUS: Final = 0.2  # share of what is measured whatever the model says


class Candidate(NamedTuple):
    """One schedule: what was decided, what could have been, and what it looks like.

    ``digest`` and ``pipeline`` identify it, ``trace`` makes it, and ``features`` describe it.
    """

    choices: dict[str, Value]
    space: tuple[Choice, ...]
    digest: str
    pipeline: str
    trace: tuple[str, ...]
    features: Features

    @property
    def identity(self) -> tuple[str, str]:
        """Equal for candidates that are the same code."""
        return self.digest, self.pipeline


class Measurement(NamedTuple):
    """What became of a candidate: ``ok`` and its time over the default's, or how it failed."""

    candidate: Candidate
    status: str
    ratio: float


class Result(NamedTuple):
    """The end of a search: the best, its time over the default's, candidates tried, and why."""

    best: Candidate
    ratio: float
    trials: int
    reason: str

    @property
    def ended(self) -> bool:
        """Whether the search came to an end of its own, not of the time it was given."""
        return self.reason != "time"


class Search:
    """One search.

    Parameters
    ----------
    schedule : callable
        Makes the candidate of some choices; None if they lead nowhere.
    measure : callable
        Yields the measurement of each candidate of a batch as it comes.
    better : callable
        ``better(new, old)`` measures two candidates against each other and returns the time of
        `new` over that of `old` if the difference is significant, else None.
    limits : AutotuneConfig
        Bounds of the search.
    seconds : float
        Time after which nothing new is begun.
    seed : int
        Of the random numbers.
    known : iterable of (choices, status, ratio, identity)
        What an earlier search of the kernel measured.
    heard : callable, optional
        Called with the number of candidates tried and the best ratio after each.
    clock : callable
        Tells seconds.
    """

    def __init__(self, schedule: Callable[[Mapping[str, Value]], Candidate | None],
                 measure: Callable[[Sequence[Candidate]], Iterable[Measurement]],
                 better: Callable[[Candidate, Candidate], float | None],
                 limits: AutotuneConfig, seconds: float, seed: int,
                 known: Iterable[tuple[Mapping[str, Value], str, float, tuple[str, str]]] = (),
                 heard: Callable[[int, float], None] | None = None,
                 clock: Callable[[], float] = time.monotonic) -> None:
        self._schedule, self._measure, self._better = schedule, measure, better
        self.limits = limits
        self._clock, self._end = clock, clock() + seconds
        self._random = random.Random(seed)
        self._heard = heard
        default = schedule({})
        assert default is not None
        self.default = default
        self.best, self.ratio = default, 1.0
        self.trials = 0
        self._seen: set[tuple[str, str]] = {default.identity}
        self._population: list[tuple[float, int, Candidate]] = [(1.0, 0, default)]
        self._model = Model(default.features)
        self._resume(known)

    def _resume(self, known: Iterable[tuple[Mapping[str, Value], str, float, tuple[str, str]]],
                ) -> None:
        """Start from what was measured before; its ratios count as they are."""
        for choices, status, ratio, identity in sorted(known, key=lambda k: k[3]):
            if identity in self._seen:
                continue
            self._seen.add(identity)
            self.trials += 1
            candidate = self._schedule(choices) if status == "ok" else None
            if candidate is not None and candidate.identity == identity:
                self._enter(Measurement(candidate, status, ratio))
        fastest = sorted(self._population, key=lambda p: p[:2])[:2]
        self._challenge([c for ratio, _, c in fastest if ratio < 1.0])
        self._model.fit()

    def run(self) -> Result:
        """Search until a limit is reached, or nothing new is found."""
        reason = self._grow(list(self._seeds()), rank=True)
        while reason is None:
            if self._clock() >= self._end:
                reason = "time"
                break
            if not self.limits.n_added_per_step:
                reason = "seeds"
                break
            if self._room() <= 0:
                reason = "candidates"
                break
            proposals = self._proposals(self.limits.n_added_per_step)
            if not proposals:
                reason = "time" if self._clock() >= self._end else "space"  # or it was cut short
                break
            reason = self._grow(proposals, rank=False)
            self._cull()
        return Result(self.best, self.ratio, self.trials, reason)

    # ---- candidates ------------------------------------------------------------------------------

    def _seeds(self) -> Iterator[Candidate]:
        """Yield what the search starts from: all that differ in one choice, then random ones."""
        wanted = self.limits.n_seeds - 1 - self.trials
        single = [(c.name, o) for c in self.default.space for o in c.options if o != c.value]
        self._random.shuffle(single)
        drawn: Iterator[Mapping[str, Value]] = iter({name: option} for name, option in single)
        failures = 0
        while wanted > 0 and failures < _TRIES and self._clock() < self._end:
            choices = next(drawn, None)
            if choices is None:
                choices = {c.name: self._random.choice(c.options) for c in self.default.space}
                failures += 1
            candidate = self._new(choices)
            if candidate is not None:
                wanted, failures = wanted - 1, 0
                yield candidate

    def _new(self, choices: Mapping[str, Value]) -> Candidate | None:
        """Return the candidate of some choices if its schedule is a new one."""
        candidate = self._schedule(choices)
        if candidate is None or candidate.identity in self._seen:
            return None
        self._seen.add(candidate.identity)
        return candidate

    def _proposals(self, count: int) -> list[Candidate]:
        """Return new candidates from the population, the most promising by the model."""
        pool: list[Candidate] = []
        failures = 0
        while len(pool) < _POOL * count and failures < _TRIES and self._clock() < self._end:
            candidate = self._new(self._child())
            failures = failures + 1 if candidate is None else 0
            if candidate is not None:
                pool.append(candidate)
        ranked = self._ranked(pool)
        kept = ranked[:count]
        for place in range(len(kept)):
            rest = len(ranked) - count
            if rest > 0 and self._random.random() < _CURIOUS:
                other = count + self._random.randrange(rest)
                kept[place], ranked[other] = ranked[other], kept[place]
        chosen = {c.identity for c in kept}
        self._seen -= {c.identity for c in pool if c.identity not in chosen}
        return kept

    def _child(self) -> dict[str, Value]:
        """Return choices made from those of one or two of the population."""
        first = self._parent()
        choices = dict(first.choices)
        if len(self._population) > 1 and self._random.random() < 0.4:
            second = self._parent()
            for name in sorted(set(choices) | set(second.choices)):
                if self._random.random() < 0.5:
                    if name in second.choices:
                        choices[name] = second.choices[name]
                    else:
                        choices.pop(name)
        changes = 1 + (self._random.random() < 0.3)
        for choice in self._random.sample(first.space, min(changes, len(first.space))):
            choices[choice.name] = self._random.choice(choice.options)
        return choices

    def _parent(self) -> Candidate:
        """Return the better of two drawn at random."""
        drawn = [self._random.choice(self._population) for _ in range(2)]
        return min(drawn, key=lambda p: p[:2])[2]

    def _ranked(self, candidates: Sequence[Candidate]) -> list[Candidate]:
        expected = self._model.predict([c.features for c in candidates])
        order = sorted(range(len(candidates)), key=lambda i: (expected[i], i))
        return [candidates[i] for i in order]

    def _room(self) -> int:
        """Return how many more may be tried; the default is one of them."""
        return self.limits.n_total_opts - 1 - self.trials

    # ---- measuring -------------------------------------------------------------------------------

    def _grow(self, candidates: list[Candidate], rank: bool) -> str | None:
        """Measure candidates batch by batch; return which limit ended that, if one did.

        With `rank`, what is left is put into order again after each batch.
        """
        while candidates:
            room = self._room()
            if room <= 0:
                return "candidates"
            if self._clock() >= self._end:
                return "time"
            if rank:
                candidates = self._ranked(candidates)
            batch, candidates = candidates[: min(BATCH, room)], candidates[min(BATCH, room) :]
            entered = []
            for measurement in self._measure(batch):
                self.trials += 1
                if self._enter(measurement):
                    entered.append(measurement)
                if self._heard is not None:
                    self._heard(self.trials, self.ratio)
            self._challenge([m.candidate for m in sorted(entered, key=lambda m: m.ratio)])
            self._model.fit()
        return None

    def _enter(self, measurement: Measurement) -> bool:
        """Take a measurement into the population and the model; whether it may be the best."""
        candidate, _, ratio = measurement
        self._model.learn(candidate.features, ratio if math.isfinite(ratio) else 100.0)
        if not math.isfinite(ratio):
            return False
        self._population.append((ratio, self.trials, candidate))
        return ratio < self.ratio

    def _challenge(self, candidates: Sequence[Candidate]) -> None:
        """Let candidates that seem faster than the best prove it, the fastest first."""
        for candidate in candidates[:2]:
            gain = self._better(candidate, self.best)
            if gain is not None and gain < 1.0:
                self.best, self.ratio = candidate, self.ratio * gain
                if self._heard is not None:
                    self._heard(self.trials, self.ratio)

    def _cull(self) -> None:
        """Drop the worst of the population, but never the last two."""
        drop = min(self.limits.n_removed_per_step, len(self._population) - 2)
        if drop > 0:
            self._population = sorted(self._population, key=lambda p: p[:2])[:-drop]


__all__ = ["BATCH", "Candidate", "Measurement", "Result", "Search"]
