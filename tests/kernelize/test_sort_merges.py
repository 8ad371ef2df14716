"""Merges of sorted columns of registers, simulated with NumPy."""

import numpy as np
import pytest

from seeds import seeds
from weft.kernelize.sorting.sort_merges import COMPARED, rounds, turn

SHAPES = [(2, 2), (4, 2), (2, 8), (8, 4), (8, 16), (16, 8), (16, 16), (16, 32)]


def take(line, steps):
    """Apply steps to registers."""
    for a, b, picks in steps:
        if picks == COMPARED:
            line[a], line[b] = np.minimum(line[a], line[b]), np.maximum(line[a], line[b])
        else:
            both = np.concatenate([line[a], line[b]])
            line[a], line[b] = (both[list(part)] for part in picks)


@pytest.mark.parametrize(("count", "lanes"), SHAPES)
@pytest.mark.parametrize("values", [2, 5, 10**6])
@pytest.mark.parametrize("seed", seeds(2))
def test_sorts(count, lanes, values, seed):
    x = np.random.default_rng(seed).integers(0, values, (count, lanes))
    lane = np.arange(lanes)

    def fall(bit):
        return np.where(lane >> bit & 1, -1, 1)

    line = list(np.sort(x * fall(0), axis=0))
    for number, steps in enumerate(rounds(count, lanes)):
        line = [row * fall(number) * fall(number + 1) for row in line]
        take(line, steps)
    columns = np.stack(line, 1).ravel()
    np.testing.assert_array_equal(columns, np.sort(x, axis=None))
    steps, order = turn(count, lanes)
    take(line, steps)
    np.testing.assert_array_equal(np.concatenate([line[a] for a in order]), columns)


@pytest.mark.parametrize(("count", "lanes"), SHAPES)
def test_a_bit_is_exchanged_once_and_the_registers_own_once_more(count, lanes):
    for number, steps in enumerate(rounds(count, lanes)):
        exchanges = sum(picks != COMPARED for _, _, picks in steps)
        compared = sum(picks == COMPARED for _, _, picks in steps)
        bits = number + 1 + (count.bit_length() - 1)
        assert exchanges == (number + 2) * count // 2
        assert compared == bits * count // 2
