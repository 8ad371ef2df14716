"""Sorts of many rows, in lanes or parted: whatever their number, threads share them."""

import numpy as np
import pytest

import weft
from seeds import seeds
from weft import strategies
from weft.backends import cpu
from weft.ir import dtype as dt
from weft.ir import infer
from weft.ir import node as nd
from weft.ir.stmt import PARALLEL, For
from weft.ir.traverse import walk
from weft.kernelize.build import kernelize


@pytest.mark.parametrize("kind", [dt.float32, dt.float64, dt.int32], ids=str)
@pytest.mark.parametrize(("rows", "n"), [(128, 300), (142, 300), (250, 300), (333, 300), (9, 1000),
                                         (2, 20_000), (1, 70_000), (5, 40_000)])
def test_threads_share_rows(kind, rows, n):
    x = infer.reshape(nd.buffer(nd.Storage(kind, rows * n)), (rows, n))
    values, _ = infer.sort(x, 1)
    target = cpu.host_target()
    (step,) = kernelize([values], target)
    made = strategies.choose(step.kernel, target, 2)
    assert any(isinstance(s, For) and s.kind == PARALLEL for s in walk(made.body))


@pytest.mark.parametrize("kind", ["float32", "float64"])
@pytest.mark.parametrize("seed", seeds(3))
def test_rows_that_two_vectors_hold(kind, seed):
    """Rows in two overlapping vectors, some of which hold zeros and NaNs that are put in order."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((int(rng.integers(100, 300)), int(rng.integers(20, 400)))).astype(kind)
    x[rng.random(x.shape) < 0.01] = np.nan
    x[rng.random(x.shape) < 0.01] = -0.0
    x[rng.random(x.shape) < 0.01] = 0.0
    x[rng.random(len(x)) < 0.3] = 1.5
    got = weft.from_numpy(x).sort(1)[0].numpy()
    want = np.take_along_axis(x, np.argsort(x, 1, kind="stable"), 1)
    assert got.tobytes() == want.tobytes()
