"""What several questions about the loops of one kernel share, and what they do not."""

import pytest

import schedule_nests as nests
from weft.ir.stmt import For
from weft.ir.traverse import walk
from weft.schedule import Schedule
from weft.schedule.analysis import subscripts as sub


@pytest.fixture
def kernel():
    return Schedule(nests.matmul(9, 27, 12)).split("j", 8, "overlap").kernel


def test_spaces_of_a_kernel_share_what_was_worked_out(kernel, monkeypatch):
    first = sub.Space(kernel)
    loop = next(s for s in walk(kernel.body) if isinstance(s, For))
    known = first.poly(loop.var + 3), first.symbols(loop.var + 3), first.ranges
    first.failures = 7
    monkeypatch.setattr(sub, "walk", None)  # nobody goes through the kernel again
    again = sub.Space(kernel)
    assert again.failures == 0
    assert (again.poly(loop.var + 3), again.symbols(loop.var + 3), again.ranges) == known
    assert again.ranges is first.ranges


def test_points_of_overlapping_splits_are_of_one_kind_of_space(kernel):
    for _ in range(2):  # whichever comes first
        assert sub.Space(kernel).points
        assert not sub.Linear(kernel).points
    assert not sub.Space(nests.matmul(9, 27, 12)).points
