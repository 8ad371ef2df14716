"""Which memories of a body may have bytes in common."""

import pytest

from schedule_nests import memory
from weft.ir.stmt import Alloc
from weft.passes.common.straight_line import StraightLines

STORE, OTHER = (memory(name, 8, scope="local") for name in ("store", "other"))
VIEW, INNER = (memory(name, 4, scope="local") for name in ("view", "inner"))
BODY = (Alloc(STORE), Alloc(OTHER), Alloc(VIEW, base=STORE), Alloc(INNER, base=VIEW))


@pytest.mark.parametrize("memories", [(VIEW, STORE), (INNER, VIEW), (INNER, STORE), (STORE, STORE)])
def test_views_overlap_what_they_see(memories):
    lines = StraightLines(BODY, {}, True)
    assert lines.overlap(*memories)
    assert lines.overlap(*reversed(memories))
    assert not lines.overlap(INNER, OTHER)


@pytest.mark.parametrize("apart", [False, True])
def test_parameters_overlap_unless_they_are_apart(apart):
    x, y = memory("x", 4), memory("y", 4)
    lines = StraightLines(BODY, {}, apart)
    assert lines.overlap(x, y) is not apart
    assert lines.overlap(x, x)
    assert not lines.overlap(x, STORE)
