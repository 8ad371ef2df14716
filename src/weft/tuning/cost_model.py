"""The cost model: an estimate from static features, corrected by what was measured.

The logarithm of a candidate's time over the default's is the difference of the estimates plus a
linear function of the differences of the features, found by ridge regression: with few
measurements the estimate rules, with many they do.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np

from weft.tuning.features import NAMES, Features

_RIDGE: Final = 0.3
_WORST: Final = 3.0  # logarithm of the ratio that failures and hopeless candidates count as


class Model:
    """Predicts the time of candidates of one kernel, relative to its default.

    Parameters
    ----------
    default : Features
        What candidates are compared with.
    """

    def __init__(self, default: Features) -> None:
        self.default = default
        self._rows: list[list[float]] = []
        self._values: list[float] = []
        self._weights = np.zeros(len(NAMES))
        self._trust = 0.5  # in the estimate: it knows the direction better than the size

    def _differences(self, found: Features) -> list[float]:
        return [a - b for a, b in zip(found.values, self.default.values, strict=True)]

    def _estimate(self, found: Features) -> float:
        return self._trust * math.log(found.cycles / self.default.cycles)

    def learn(self, found: Features, ratio: float) -> None:
        """Note that a candidate took `ratio` times as long as the default."""
        value = min(math.log(max(ratio, 1e-3)), _WORST)
        self._rows.append(self._differences(found))
        self._values.append(value - self._estimate(found))

    def fit(self) -> None:
        """Take what was learned since into account."""
        if not self._rows:
            return
        x, y = np.array(self._rows), np.array(self._values)
        gram = x.T @ x + _RIDGE * np.eye(x.shape[1])
        self._weights = np.linalg.solve(gram, x.T @ y)

    def predict(self, candidates: Sequence[Features]) -> list[float]:
        """Return the expected logarithm of each ratio; the least is the most promising."""
        x = np.array([self._differences(f) for f in candidates]).reshape(-1, len(NAMES))
        found = x @ self._weights
        return [float(v) + self._estimate(f) for v, f in zip(found, candidates, strict=True)]


__all__ = ["Model"]
