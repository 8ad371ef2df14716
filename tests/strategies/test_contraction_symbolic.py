"""Convolutions of a symbolic number of images take the forms that they take of a known one."""

import numpy as np
import pytest

import weft
from schedule_costs import WIDE, Cost
from weft import nn
from weft.driver import counters
from weft.strategies import choose

SIZES = (1, 2, 3, 7, 20)
CASES = {
    "window": (nn.Conv2d(3, 16, 3, padding=1), (3, 12, 12)),
    "large stride": (nn.Conv2d(3, 16, 3, stride=3), (3, 14, 14)),
    "deep": (nn.Conv2d(64, 64, 3, padding=1), (64, 8, 8)),
    "deep stride": (nn.Conv2d(64, 64, 3, padding=1, stride=2), (64, 9, 9)),
    "short rows": (nn.Conv2d(8, 4, 3, padding=1), (8, 7, 7)),
    "depthwise": (nn.Conv2d(16, 16, 3, padding=1, groups=16), (16, 12, 12)),
    "groups": (nn.Conv2d(16, 32, 3, padding=1, groups=2), (16, 9, 9)),
    "points": (nn.Conv2d(16, 24, 1), (16, 6, 6)),
    "signals": (nn.Conv1d(16, 24, 5, padding=2), (16, 40)),
    "depthwise signals": (nn.Conv1d(16, 16, 5, padding=2, groups=16), (16, 40)),
    "volumes": (nn.Conv3d(4, 8, 3, padding=1), (4, 5, 6, 7)),
    "transposed": (nn.ConvTranspose2d(8, 16, 4, stride=2, padding=1), (8, 6, 6)),
}  # fmt: skip

TOGETHER = {"deep stride", "transposed"}  # known images are gone through several at a time


def cost_of(record):
    """Return what the slowest kernel costs for the last number of images."""
    most = max(record.built, key=lambda b: b.scheduled.meta.flops)
    return Cost(choose(most.nest, WIDE, 1), sizes={"n": SIZES[-1]})


@pytest.mark.grid
@pytest.mark.parametrize("name", CASES)
def test_images_of_any_number(name, rng):
    layer, shape = CASES[name]
    for p in layer.parameters():
        p.data = weft.tensor(rng.integers(-3, 4, p.shape).astype(np.float32))
    n = weft.Variable("n", 1, 64)
    sized = weft.jit(lambda x: layer(x).relu(), dynamic={"x": {0: n}})
    fixed = weft.jit(lambda x: layer(x).relu())
    given = [weft.tensor(rng.integers(-3, 4, (count, *shape)).astype(np.float32))
             for count in SIZES]  # fmt: skip
    with weft.no_grad():
        for x in given:
            np.testing.assert_array_equal(sized(x).numpy(), fixed(x).numpy())
        assert sized.captures == 1
        found = []
        for options in ({}, {"dynamic": {"x": {0: n}}}):
            with counters.record() as record:
                weft.jit(lambda x: layer(x).relu(), **options)(given[-1])
            found.append(cost_of(record))
    known, sized = found
    alike = known.form == sized.form and known.multiplications >= sized.multiplications
    assert alike != (name in TOGETHER)
