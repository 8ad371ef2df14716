"""Products of few results with short sums: in tiles where these are filled, or else in vectors."""

import pytest

import schedule_nests as nests
from schedule_costs import Cost
from schedule_nests import assert_same
from weft.backends import cpu
from weft.strategies import choose

FEATURES = tuple(f"+{name}" for name in (
    "amx-bf16", "amx-int8", "amx-tile", "avx", "avx2", "avx512bf16", "avx512bw", "avx512dq",
    "avx512f", "avx512vl", "avx512vnni", "f16c", "fma", "sse2"))  # fmt: skip
TARGET = cpu.target_from("x86_64", "sapphirerapids", FEATURES,
                         {"l1_bytes": 48 << 10, "l2_bytes": 2 << 20})


@pytest.mark.grid
@pytest.mark.parametrize("layout", ["ik,kj", "ki,kj", "ik,jk"])
@pytest.mark.parametrize(("shape", "tiles"), [
    ((32, 32, 13), True), ((62, 62, 8), True), ((64, 6, 13), True),
    ((16, 16, 3), False), ((33, 33, 5), False), ((9, 40, 12), False), ((6, 70, 13), False),
])
def test_short_sums_take_tiles_that_are_filled(shape, tiles, layout):
    kernel = nests.narrow(*shape, "bf16", "bf16", *layout.split(","))
    made = choose(kernel, TARGET, 1)
    assert (Cost(made).unit == "matrix") is tiles
    assert_same(kernel, made)
