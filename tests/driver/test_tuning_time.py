"""How the time of ``weft tune`` is divided, and how progress is told."""

import io
import random
import sys
from types import SimpleNamespace

import pytest

from weft.driver.tuning import tune_display, tune_kernels
from weft.driver.tuning.tune_display import Progress
from weft.driver.tuning.tune_kernels import Tuned


@pytest.fixture
def searches(monkeypatch):
    """Replace searches by ones that take a given part of their time; return what each got."""
    now, got, takes = [0.0], {}, {}

    def tune_kernel(kernel, context, limit, again, heard, launches):
        got[kernel] = limit
        now[0] += takes.get(kernel, 1.0) * limit
        return Tuned(kernel.key, "k", 1.0, 1.0, 1, launches, {}, "time")

    monkeypatch.setattr(tune_kernels, "tune_kernel", tune_kernel)
    monkeypatch.setattr(tune_kernels, "record_key", lambda kernel, context: kernel.key)
    monkeypatch.setattr(tune_kernels, "_cost", lambda kernel: kernel.cost)
    monkeypatch.setattr(tune_kernels.time, "monotonic", lambda: now[0])
    return SimpleNamespace(got=got, takes=takes, now=now)


CONTEXT = SimpleNamespace(is_native=True, is_tunable=True, target=SimpleNamespace(style="vector"))


class Nest:
    def __init__(self, key, cost):
        self.key, self.cost, self.meta = key, cost, SimpleNamespace(kind="k")


def recording_of(nests, launches):
    steps = [SimpleNamespace(kernel=n) for n in nests for _ in range(launches[n])]
    return SimpleNamespace(built=[SimpleNamespace(nest=n, context=CONTEXT) for n in nests],
                           plans=[SimpleNamespace(steps=steps, context=CONTEXT)])  # fmt: skip


def test_time_is_divided_by_what_kernels_cost(searches, seed):
    rng = random.Random(seed)
    for _ in range(60):
        searches.got.clear()
        searches.now[0] = 0.0
        nests = [Nest(str(i), rng.choice((1, 10, 1000, 1e5))) for i in range(rng.randint(1, 9))]
        launches = {n: rng.randint(1, 5) for n in nests}
        seconds = rng.choice((5.0, 60.0))
        found = list(tune_kernels.tune_program(recording_of(nests, launches), seconds))
        total = sum(n.cost * launches[n] for n in nests)
        assert {t.key for t in found} == {n.key for n in nests}
        for nest in nests:
            part = seconds * nest.cost * launches[nest] / total
            if nest in searches.got:
                assert searches.got[nest] >= part * (1 - 1e-6)  # and of those left, perhaps
            else:
                assert part < 0.1 * (1 + 1e-6)
        assert searches.now[0] <= seconds * (1 + 1e-9)


def test_what_one_leaves_goes_to_the_others(searches):
    big, small = Nest("big", 90.0), Nest("small", 10.0)
    searches.takes[big] = 0.1
    list(tune_kernels.tune_program(recording_of([small, big], {small: 1, big: 1}), 100.0))
    assert searches.got == {big: pytest.approx(90.0), small: pytest.approx(91.0)}


def test_progress_is_told_in_a_pipe(monkeypatch):
    pipe, now = io.StringIO(), [0.0]
    monkeypatch.setattr(sys, "stderr", pipe)
    monkeypatch.setattr(tune_display.time, "monotonic", lambda: now[0])
    with tune_display.Display(lines=True) as display:
        for trials in range(6):
            display.heard(Progress(0, 2, "contraction", trials, 0.5, 9.0))
            now[0] += 1.0
        display.heard(Progress(1, 2, "elementwise", 0, 1.0, 3.0))
    lines = pipe.getvalue().splitlines()
    assert [line.split(": ")[2].split()[0] for line in lines] == ["0", "2", "4", "0"]
    assert lines[1] == ("weft: tuning kernel 1 of 2 (contraction): 2 candidates, best 2.00× the "
                        "default, 9 s left")
    with tune_display.Display() as display:  # inside a program that tunes by itself
        display.heard(Progress(0, 1, "contraction", 1, 0.5, 9.0))
    assert len(pipe.getvalue().splitlines()) == 4
