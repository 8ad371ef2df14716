"""The evolutionary search on made-up spaces: limits, determinism, resuming, what it finds."""

import itertools
import math

import pytest

from weft.config import AutotuneConfig
from weft.schedule.choices import Choices
from weft.tuning.features import NAMES, Features
from weft.tuning.search import Candidate, Measurement, Search

SMALL = AutotuneConfig(n_seeds=8, n_added_per_step=4, n_removed_per_step=2, n_total_opts=60)
OPTIONS = {"a": (1, 2, 4, 8), "b": (1, 2, 4, 8), "c": (False, True), "d": (1, 3, 5, 7, 9)}


def cost(choices):
    """The default costs 1; the best is a=8, b=2, c=True, d=9."""
    a, b, c, d = (choices.get(n, o[0]) for n, o in OPTIONS.items())
    return (1.0 - 0.1 * math.log2(a) - 0.1 * (b == 2) - 0.1 * c) * (1.3 - 0.02 * d) / 1.28


def schedule(given):
    choices = Choices(given)
    values = {name: choices.pick(name, options[0], options) for name, options in OPTIONS.items()}
    features = [math.log1p(float(v)) for v in values.values()]
    features += [0.0] * (len(NAMES) - len(features))
    changed = choices.changed()
    return Candidate(changed, tuple(choices.made.values()), repr(sorted(changed.items())), "short",
                     (), Features(100.0, tuple(features)))  # fmt: skip


class Bench:
    """Measures by `cost` and keeps count."""

    def __init__(self, fail=()):
        self.batches, self.fail, self.duels = [], fail, 0

    @property
    def tried(self):
        return [c.choices for batch in self.batches for c in batch]

    def measure(self, batch):
        self.batches.append(list(batch))
        for c in batch:
            bad = any(c.choices.get(n) == v for n, v in self.fail)
            yield Measurement(c, "hung" if bad else "ok", math.inf if bad else cost(c.choices))

    def better(self, new, old):
        self.duels += 1
        ratio = cost(new.choices) / cost(old.choices)
        return ratio if ratio < 0.98 else None


def search(bench, limits=SMALL, seconds=1e9, seed=7, **named):
    return Search(schedule, bench.measure, bench.better, limits, seconds, seed, **named)


def test_it_finds_the_best_of_a_small_space():
    bench = Bench()
    result = search(bench, AutotuneConfig(n_seeds=20, n_total_opts=161)).run()
    assert result.best.choices == {"a": 8, "b": 2, "c": True, "d": 9}
    assert result.ratio == pytest.approx(cost(result.best.choices))
    assert result.trials == len(bench.tried)
    assert result.ended


def test_the_default_stays_where_nothing_is_better():
    bench = Bench()
    bench.better = lambda new, old: None
    result = search(bench).run()
    assert (result.best.choices, result.ratio) == ({}, 1.0)


def test_no_schedule_is_tried_twice():
    bench = Bench()
    search(bench, AutotuneConfig(n_seeds=10, n_total_opts=500)).run()
    tried = [tuple(sorted(c.items())) for c in bench.tried]
    assert len(tried) == len(set(tried))
    assert () not in tried


def test_equal_measurements_give_equal_steps():
    first, second, other = Bench(), Bench(), Bench()
    a, b = search(first).run(), search(second).run()
    search(other, seed=8).run()
    assert first.tried == second.tried
    assert a == b
    assert first.tried != other.tried


@pytest.mark.parametrize("total", [1, 2, 9, 33])
def test_A5_total_limit(total):
    """The default is one of the candidates."""
    bench = Bench()
    limits = AutotuneConfig(n_seeds=10, n_added_per_step=5, n_total_opts=total)
    result = search(bench, limits).run()
    assert len(bench.tried) == total - 1
    assert result.reason == "candidates"


@pytest.mark.parametrize("seeds", [1, 2, 7, 30])
def test_A5_seed_limit(seeds):
    bench = Bench()
    result = search(bench, AutotuneConfig(n_seeds=seeds, n_added_per_step=0)).run()
    assert len(bench.tried) == seeds - 1
    assert result.reason == "seeds"


@pytest.mark.parametrize("added", [1, 3, 10])
def test_A5_added_limit(added):
    bench = Bench()
    limits = AutotuneConfig(n_seeds=2, n_added_per_step=added, n_total_opts=40)
    search(bench, limits).run()
    sizes = [len(b) for b in bench.batches]
    steps = [sum(s) for s in itertools.batched(sizes[1:], -(-added // 8))] if hasattr(
        itertools, "batched") else sizes[1:]
    assert max(steps) <= added
    assert sum(sizes) == 39


@pytest.mark.parametrize("removed", [0, 2, 50])
def test_A5_removed_limit(removed):
    """The population loses so many in each step, and is never empty."""
    bench = Bench()
    limits = AutotuneConfig(n_seeds=6, n_added_per_step=4, n_removed_per_step=removed,
                            n_total_opts=26)  # fmt: skip
    made = search(bench, limits)
    made.run()
    assert len(made._population) == max(26 - 5 * removed, 2)


def test_time_limit():
    """Nothing new is begun after the end."""
    now = [0.0]
    bench = Bench()
    plain = bench.measure

    def slow(batch):
        for found in plain(batch):
            now[0] += 1.0
            yield found

    bench.measure = slow
    result = search(bench, AutotuneConfig(), seconds=10.0, clock=lambda: now[0]).run()
    assert result.reason == "time"
    assert not result.ended
    assert 10 <= len(bench.tried) <= 16


def test_failures_count_and_never_win():
    bench = Bench(fail=[("a", 8)])
    result = search(bench, AutotuneConfig(n_seeds=20, n_total_opts=161)).run()
    assert result.best.choices == {"a": 4, "b": 2, "c": True, "d": 9}


def test_resuming_repeats_nothing():
    first = Bench()
    limits = AutotuneConfig(n_seeds=20, n_total_opts=161)
    search(first, AutotuneConfig(n_seeds=20, n_total_opts=30)).run()
    known = [(c, "ok", cost(c), (repr(sorted(c.items())), "short")) for c in first.tried]
    second = Bench()
    result = search(second, limits, known=known).run()
    assert not {repr(c) for c in first.tried} & {repr(c) for c in second.tried}
    assert result.trials == len(first.tried) + len(second.tried)
    assert result.best.choices == {"a": 8, "b": 2, "c": True, "d": 9}


def test_what_failed_before_is_not_tried_again():
    bench = Bench()
    lost = {"a": 8}
    known = [(lost, "hung", math.inf, (repr(sorted(lost.items())), "short"))]
    search(bench, AutotuneConfig(n_seeds=20, n_total_opts=161), known=known).run()
    assert lost not in bench.tried


def test_progress_is_heard():
    bench, heard = Bench(), []
    result = search(bench, heard=lambda trials, ratio: heard.append((trials, ratio))).run()
    assert heard[-1] == (result.trials, result.ratio)
    assert [r for _, r in heard] == sorted((r for _, r in heard), reverse=True)


def test_the_model_orders_the_seeds():
    """With a space whose cost is linear in the features, good ones are found early."""
    bench = Bench()
    search(bench, AutotuneConfig(n_seeds=100, n_added_per_step=0)).run()
    costs = [cost(c) for c in bench.tried]
    third = len(costs) // 3
    assert sum(costs[8 : 8 + third]) / third < sum(costs[-third:]) / third
