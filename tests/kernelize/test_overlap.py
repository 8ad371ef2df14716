"""Groups of launches: legal orders, independent members, gains that are worth it."""

import pytest
from hypothesis import given
from hypothesis import strategies as some

from weft.kernelize.memory.concurrency import ANYWHERE, Group, Work, arrange
from weft.target import CostModel

places = some.frozensets(some.integers(0, 11), max_size=3)
works = some.lists(
    some.builds(Work, places, places, some.sampled_from([0, 100, 3_000, 40_000, 3_000_000]),
                some.sampled_from([1, 1, 1, 2, 64])),
    max_size=24,
)  # fmt: skip


def work(reads, writes, nanoseconds=5_000, width=1, updates=False):
    return Work(frozenset(reads), frozenset(writes), nanoseconds, width, updates)


def depend(a, b):
    return a.writes & (b.reads | b.writes) or a.reads & b.writes


@pytest.mark.slow
@given(works, some.sampled_from([1, 2, 3, 16]), some.sampled_from([0, 1, 3, ANYWHERE]),
       some.integers(0, 24))  # fmt: skip
def test_every_order_of_a_group_is_that_of_the_program(launches, threads, reach, updates):
    launches = [w._replace(updates=i >= updates and bool(w.writes))
                for i, w in enumerate(launches)]  # fmt: skip
    groups = arrange(launches, threads, reach)
    order = [i for group in groups for i in group.launches]
    assert sorted(order) == list(range(len(launches)))
    place = {i: n for n, group in enumerate(groups) for i in group.launches}
    for later, b in enumerate(launches):
        for earlier in range(later):
            if depend(launches[earlier], b):
                assert place[earlier] < place[later]
    for group in groups:
        first = min(group.launches)
        assert all(i - first <= reach for i in group.launches)
        assert (group.saves > 0) is (len(group.launches) > 1)
        spent = [launches[i].nanoseconds for i in group.launches]
        assert spent == sorted(spent, reverse=True)
    first = next((i for i, w in enumerate(launches) if w.updates), len(launches))
    assert sorted(order[:first]) == list(range(first))
    if threads == 1 or reach == 0:
        assert order == list(range(len(launches)))
        assert len(groups) == len(launches)


def test_two_chains_go_side_by_side():
    chains = [work([c, i], [(c, i)]) if i == 0 else work([(c, i - 1)], [(c, i)])
              for c in "ab" for i in range(3)]  # fmt: skip
    assert [set(g.launches) for g in arrange(chains, 2)] == [{0, 3}, {1, 4}, {2, 5}]
    near = arrange(chains, 2, reach=2)
    assert [set(g.launches) for g in near] == [{0}, {1, 3}, {2, 4}, {5}]


def test_what_fills_the_machine_runs_alone():
    wide = [work([], [i], 1_000_000, 64) for i in range(4)]
    assert arrange(wide, 2) == [Group((i,)) for i in range(4)]
    mixed = [work([], [0], 1_000_000, 64), work([], [1]), work([], [2])]
    assert [set(g.launches) for g in arrange(mixed, 2)] == [{0}, {1, 2}]


def test_long_launches_of_one_thread_overlap():
    assert [g.launches for g in arrange([work([], [i], 10**9) for i in range(2)], 2)] == [(0, 1)]


def test_a_shared_launch_does_not_keep_the_others_apart():
    """Two that cannot be shared out, and one that would take longer on one thread."""
    launches = [work([], [0], 9_000), work([], [1], 9_000), work([], [2], 60_000, 64)]
    assert [set(g.launches) for g in arrange(launches, 2)] == [{0, 1}, {2}]


@pytest.mark.parametrize("nanoseconds", [0, 50, 800])
def test_small_gains_are_left(nanoseconds):
    assert len(arrange([work([], [i], nanoseconds) for i in range(2)], 2)) == 2
    long_and_short = [work([], [0], 50_000), work([], [1], nanoseconds)]
    assert len(arrange(long_and_short, 2)) == 2


def test_devices_say_from_which_gain_on_launches_overlap():
    launches = [work([], [i], 700) for i in range(2)]
    shared = [work([], [i], 60_000, 64) for i in range(2)]
    for costs, groups in ((CostModel(), 2), (CostModel(handover_ns=0, group_gain_ns=1), 1),
                          (CostModel(handover_ns=10**4, group_gain_ns=1), 2)):
        assert len(arrange(launches, 2, costs=costs)) == groups
    for costs, groups in ((CostModel(handover_ns=10**5), 1), (CostModel(
            handover_ns=10**5, group_kernel_ns=50_000), 2)):
        assert len(arrange(shared, 2, costs=costs)) == groups


def test_reads_are_shared_and_writes_are_not():
    assert len(arrange([work("x", "a"), work("x", "b")], 2)) == 1
    assert len(arrange([work("x", "a"), work("a", "x")], 2)) == 2
    assert len(arrange([work("x", "a"), work("", "x")], 2)) == 2
    assert len(arrange([work("", "a"), work("", "a")], 2)) == 2
    assert len(arrange([work("a", "a"), work("b", "b")], 2)) == 1


def test_updates_stay_behind_all_that_may_fail():
    launches = [work([], ["g"]), work(["g"], ["p"], updates=True), work([], ["h"]),
                work(["h"], ["q"], updates=True)]  # fmt: skip
    assert [set(g.launches) for g in arrange(launches, 2)] == [{0}, {1, 2}, {3}]


@pytest.mark.slow
def test_many_launches_are_arranged_quickly():
    launches = [work([i - 1 if i % 50 else "x"], [i]) for i in range(20_000)]
    groups = arrange(launches, 2)
    assert len(groups) == 50
    assert sum(len(g.launches) for g in groups) == 20_000
