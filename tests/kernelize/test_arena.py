"""The arena: no two arrays alive at once overlap, and dead memory is used again."""

from hypothesis import given
from hypothesis import strategies as some

from weft.kernelize.memory.memory_planner import ALIGNMENT, Lifetime, plan_arena

lifetimes = some.lists(
    some.builds(
        lambda nbytes, first, length: Lifetime(nbytes, first, first + length),
        some.integers(0, 5000), some.integers(0, 30), some.integers(0, 10),
    ),
    max_size=40,
)  # fmt: skip


@given(lifetimes)
def test_no_overlap(lives):
    offsets, end = plan_arena(lives)
    spans = [(o, o + life.nbytes, life) for o, life in zip(offsets, lives, strict=True)]
    assert all(o % ALIGNMENT == 0 for o in offsets)
    assert all(stop <= end for _, stop, _ in spans)
    for i, (a, b, one) in enumerate(spans):
        for c, d, two in spans[:i]:
            together = one.first <= two.last and two.first <= one.last
            assert not (together and a < d and c < b)


def test_a_chain_needs_two_buffers():
    lives = [Lifetime(1000, i, i + 1) for i in range(100)]
    assert plan_arena(lives)[1] <= 3 * 1024
