"""When one candidate counts as faster than another."""

import pytest

from weft.tuning.timing import ratio, significant


def test_ratio_is_the_median_of_the_rounds():
    assert ratio([(1.0, 0.5), (1.0, 0.7), (2.0, 20.0)]) == 0.7


@pytest.mark.parametrize(
    ("pairs", "expected"),
    [
        ([(1.0, 0.9)] * 9, True),
        ([(1.0, 0.9)] * 7 + [(1.0, 1.1)], True),
        ([(1.0, 0.9)] * 6 + [(1.0, 1.1)] * 3, False),  # three of nine: chance
        ([(1.0, 0.99)] * 9, False),  # not worth it
        ([(1.0, 0.5)] * 3, False),  # too few rounds to know
        ([(1.0, 1.1)] * 9, False),
    ],
)
def test_significant(pairs, expected):
    assert significant(pairs) is expected


def test_what_is_faster_in_one_place_only_is_not_faster():
    """Even and odd pairs are of inputs that lie in different places."""
    assert significant([(1.0, 0.6), (1.0, 0.98)] * 7)
    assert not significant([(1.0, 0.6), (1.0, 1.02)] * 7)


def test_drift_of_the_machine_is_no_gain():
    """Both sides get slower from round to round: nothing is faster."""
    assert not significant([(t, t * 1.001) for t in (1.0, 2.0, 4.0, 8.0, 9.0, 10.0, 12.0)])
