"""A trace is text that replays."""

import inspect

import pytest

import schedule_nests as nests
from weft.errors import ParseError, ScheduleError
from weft.schedule import Schedule, parse_line
from weft.schedule.primitive import PRIMITIVES


def test_trace_and_replay():
    kernel = nests.matmul(5, 40, 9)
    schedule = Schedule(kernel).split("j", 16, "overlap").split("i", 4, "overlap")
    schedule.reorder("j.o", "i.o", "i.i", "j.i").split("k", 4).parallel("j.o")
    schedule.decompose_reduction("s", "i.i", partial=("k.i",), spill=True)
    schedule.vectorize("j.i.f").stream("c")
    assert schedule.trace == [
        "split(j, 16, tail=overlap)",
        "split(i, 4, tail=overlap)",
        "reorder(j.o, i.o, i.i, j.i)",
        "split(k, 4, tail=mask)",
        "parallel(j.o)",
        "decompose_reduction(s, i.i, partial=k.i, spill=true)",
        "vectorize(j.i.f)",
        "stream(c)",
    ]
    assert schedule.kernel.meta.schedule == tuple(schedule.trace)
    again = Schedule.replay(nests.matmul(5, 40, 9), schedule.trace)
    assert again.trace == schedule.trace
    assert nests.execute(again.kernel)["c"].tolist() == nests.execute(kernel)["c"].tolist()


def test_a_trace_continues():
    first = Schedule(nests.chain(8)).split("i", 4).kernel
    assert Schedule(first).unroll("i.i").trace == ["split(i, 4, tail=mask)", "unroll(i.i)"]


def test_layouts_and_orders_round_trip():
    assert parse_line("stage(b, j.o, layout=k+j.i, skew=1)") == (
        "stage", ("b", "j.o"), {"layout": ("k", "j.i"), "skew": 1})
    assert parse_line("layout(t, order=1+0)") == ("layout", ("t",), {"order": (1, 0)})
    kernel = nests.transpose(8, 8)
    done = Schedule(kernel).tile("i", "j", 4, 4).stage("x", "j.o", ("j.i", "i.i"), skew=1)
    done.layout("x.s", (1, 0)).pad("x.s", 0, 8)
    nests.assert_same(kernel, Schedule.replay(kernel, done.trace).kernel)


@pytest.mark.parametrize("line", ["", "split", "split i, 4", "shuffle(i)", "import os", "split()",
                                  "split(i, 4, colour=red)", "prefetch_places(x, i, i, 4, 8)"])
def test_malformed_lines(line):
    with pytest.raises(ParseError):
        Schedule.replay(nests.chain(8), [line])


def test_replay_checks_legality_again():
    with pytest.raises(ScheduleError):
        Schedule.replay(nests.running_sum(3, 8), ["parallel(k)"])


def test_the_verifier_runs_after_every_primitive():
    seen = []
    Schedule(nests.chain(8), verify=seen.append).split("i", 4).unroll("i.i")
    assert len(seen) == 2


def test_methods_have_the_documentation_and_the_arguments_of_their_primitives():
    for name, row in PRIMITIVES.items():
        method = getattr(Schedule, name)
        assert method.__name__ == row.function.__name__ == name
        assert method.__doc__ == row.function.__doc__
        assert method.__doc__
        bound = inspect.signature(getattr(Schedule(nests.chain(8)), name))
        assert list(bound.parameters) == list(inspect.signature(row.function).parameters)[1:]


def test_lines_have_every_argument_however_it_was_given():
    made = [Schedule(nests.bias(6, 8)).peel("i"), Schedule(nests.bias(6, 8)).peel("i", count=1),
            Schedule(nests.bias(6, 8)).peel(loop="i", count=1)]
    assert [s.trace for s in made] == [["peel(i, 1)"]] * 3
    made = [Schedule(nests.bias(6, 8)).split("i", 2), Schedule(nests.bias(6, 8)).split(
        tail="mask", factor=2, loop="i")]
    assert [s.trace for s in made] == [["split(i, 2, tail=mask)"]] * 2
    made = [Schedule(nests.matmul(2, 3, 4)).decompose_reduction("s", "i", (), False),
            Schedule(nests.matmul(2, 3, 4)).decompose_reduction("s", "i", scope="local")]
    assert [s.trace for s in made] == [["decompose_reduction(s, i)"],
                                       ["decompose_reduction(s, i, scope=local)"]]


def test_a_primitive_that_changes_nothing_leaves_no_line():
    assert Schedule(nests.chain(8)).sink("i").trace == []
