"""Products of a matrix with a vector: rows that come from memory are asked for in time."""

import numpy as np
import pytest

import schedule_nests as nests
import weft
from schedule_costs import lead
from weft.strategies import choose
from weft.target import Target

TARGET = Target("cpu", "aarch64", cores=1, vector_bytes=64, vector_registers=32,
                l1_bytes=48 << 10, l2_bytes=2 << 20, l3_bytes=480 << 20, line_bytes=64)


@pytest.mark.parametrize(("rows", "columns", "ahead"), [
    (4096, 4096, 256), (9000, 1024, 256), (300, 200_001, 256), (40_000, 1000, 0), (256, 4096, 0)])
def test_rows_are_asked_for_before_their_next_pages(rows, columns, ahead):
    """Rows that are short, and matrices that a cache holds, are followed well enough."""
    assert lead(choose(nests.matvec(rows, columns), TARGET, 1), "a") == ahead


@pytest.mark.grid
@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
@pytest.mark.parametrize(("rows", "columns"), [(2049, 4099), (37, 200_003)])
def test_values_at_the_ends_of_rows(rows, columns, dtype, rng):
    a = rng.integers(-4, 5, (rows, columns)).astype(np.float32)
    v = rng.integers(-4, 5, columns).astype(np.float32)
    kind = getattr(weft, dtype)
    made = (weft.tensor(a).astype(kind) @ weft.tensor(v).astype(kind)).astype(weft.float32)
    wanted = weft.tensor((a.astype(np.float64) @ v).astype(np.float32)).astype(kind)
    np.testing.assert_array_equal(made.numpy(), wanted.astype(weft.float32).numpy())
