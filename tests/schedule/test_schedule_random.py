"""Random sequences of primitives: whatever is accepted keeps the meaning."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as hs

import schedule_nests as nests
from weft.errors import ScheduleError
from weft.ir.stmt import For, Reduce
from weft.ir.traverse import Rewriter, walk
from weft.passes.vector.vectorize import vectorize
from weft.schedule import Schedule
from weft.schedule.analysis.space import Copy

KERNELS = {
    "chain": lambda n, m: nests.chain(n),
    "bias": nests.bias,
    "transpose": nests.transpose,
    "softmax": nests.softmax,
    "column_sum": nests.column_sum,
    "argmax": nests.argmax,
    "matmul": lambda n, m: nests.matmul(n, m, 3),
    "matvec": nests.matvec,
    "running_sum": nests.running_sum,
    "guarded": lambda n, m: nests.guarded(n, m),
}
SIZES = hs.integers(0, 9)
FACTORS = hs.sampled_from([1, 2, 3, 4, 8])
TAILS = hs.sampled_from(["mask", "peel", "trim", "overlap", "clamp", "pad"])


def loops(kernel):
    names = [s.var.attr for s in walk(kernel.body) if isinstance(s, For)]
    return names + [a.var.attr for s in walk(kernel.body) if isinstance(s, Reduce) for a in s.axes]


def accumulators(kernel):
    return [a.var.attr for s in walk(kernel.body) if isinstance(s, Reduce) for a in s.accumulators]


class Backwards(Rewriter):
    """Runs parallel and vector loops from their end: independent iterations do not care."""

    def visit(self, stmt):
        if isinstance(stmt, For) and stmt.kind in ("parallel", "vector"):
            body = Copy({}, {stmt.var: stmt.extent - 1 - stmt.var}).body(stmt.body)
            return For(stmt.var, stmt.extent, "serial", body)
        return stmt


def backwards(kernel):
    return Backwards(kernel).run()


def step(data, schedule):
    names = loops(schedule.bare)
    name = hs.sampled_from(names)
    primitive = data.draw(hs.sampled_from(
        ["split", "split", "split", "peel", "fuse", "reorder", "sink", "unroll", "vectorize",
         "parallel", "rfactor", "decompose_reduction", "stage"]))
    if primitive == "split":
        schedule.split(data.draw(name), data.draw(FACTORS), data.draw(TAILS))
    elif primitive == "peel":
        schedule.peel(data.draw(name), data.draw(hs.integers(1, 3)))
    elif primitive == "fuse":
        schedule.fuse(data.draw(name), data.draw(name))
    elif primitive == "reorder":
        schedule.reorder(*data.draw(hs.lists(name, min_size=2, max_size=3, unique=True)
                                    if len(names) > 1 else hs.just(names * 2)))
    elif primitive == "decompose_reduction":
        sums = accumulators(schedule.bare)
        if sums:
            partial = data.draw(hs.lists(name, max_size=1))
            schedule.decompose_reduction(data.draw(hs.sampled_from(sums)), data.draw(name),
                                         tuple(partial), data.draw(hs.booleans()))
    elif primitive == "stage":
        memory = data.draw(hs.sampled_from([p.name for p in schedule.bare.params]))
        layout = data.draw(hs.lists(name, min_size=1, max_size=2, unique=True))
        schedule.stage(memory, data.draw(name), tuple(layout), skew=data.draw(hs.integers(0, 1)))
    else:
        getattr(schedule, primitive)(data.draw(name))


@pytest.mark.slow
@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(hs.sampled_from(sorted(KERNELS)), SIZES, SIZES, hs.data())
def test_accepted_schedules_keep_the_meaning(name, n, m, data):
    kernel = KERNELS[name](n, m)
    schedule = Schedule(kernel)
    for _ in range(data.draw(hs.integers(1, 6))):
        try:
            step(data, schedule)
        except ScheduleError:
            continue
    nests.assert_same(kernel, schedule.kernel, exact=name != "softmax")
    nests.assert_same(kernel, backwards(schedule.kernel), exact=name != "softmax")
    nests.assert_same(schedule.kernel, vectorize(schedule.kernel), exact=name != "softmax")
    again = Schedule.replay(kernel, schedule.trace).kernel
    assert again.meta.schedule == schedule.kernel.meta.schedule
    nests.assert_same(schedule.kernel, again)
