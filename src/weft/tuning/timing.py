"""Whether one candidate is faster than another: pairs of times taken in turn.

Drift of the machine hits both sides of a pair alike, so it is ratios within pairs that count. Even
and odd pairs are taken with the inputs in two places: who is faster must be so in both.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

Pairs = Sequence[Sequence[float]]  # seconds of (old, new)

LEAST_GAIN = 0.02  # a smaller one is not worth other code
_CHANCE = 0.05


def ratio(pairs: Pairs) -> float:
    """Return the time of the new one over that of the old: the median of the rounds."""
    return statistics.median(new / old for old, new in pairs)


def significant(pairs: Pairs, least: float = LEAST_GAIN) -> bool:
    """Tell whether the new one is faster by `least`, and not by chance (sign test at 5 %)."""
    if ratio(pairs) > 1.0 - least or len(pairs) < 2:
        return False
    if max(ratio(pairs[0::2]), ratio(pairs[1::2])) > 1.0 - least / 2:
        return False
    rounds = len(pairs)
    wins = sum(new < old for old, new in pairs)
    chance = float(sum(math.comb(rounds, k) for k in range(wins, rounds + 1))) / 2.0**rounds
    return chance <= _CHANCE


__all__ = ["LEAST_GAIN", "Pairs", "ratio", "significant"]
