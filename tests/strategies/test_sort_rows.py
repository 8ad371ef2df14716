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


@pytest.mark.grid
@pytest.mark.parametrize("kind", ["float32", "float64", "int32", "int64", "float16", "int16"])
@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("seed", seeds(2))
def test_rows_in_order_but_for_a_few(kind, descending, seed):
    """All rows in order, then one of them not: by one element, zeros of both signs, or a NaN."""
    rng = np.random.default_rng(seed)
    rows, n = int(rng.integers(8, 60)), int(rng.integers(1030, 6000)) // np.dtype(kind).itemsize
    ordered = np.sort(rng.integers(-n // 20, n // 20, (rows, n)), axis=1)
    x = (ordered[:, ::-1] if descending else ordered).astype(kind)
    fn = weft.jit(lambda x: x.sort(1, descending=descending)[0])

    def check():
        key = -x if descending and x.dtype.kind == "f" else ~x if descending else x
        order = np.argsort(np.where(x != x, -np.inf, key) if descending and x.dtype.kind == "f"
                           else key, 1, kind="stable")
        assert fn(weft.from_numpy(x.copy())).numpy().tobytes() == np.take_along_axis(
            x, order, 1).tobytes()

    check()
    if x.dtype.kind == "f":
        x[rng.random(x.shape) < 0.5] *= -1  # zeros of both signs
        x = np.take_along_axis(x, np.argsort(-x if descending else x, 1, kind="stable"), 1)
        check()
        x[rng.integers(rows), n - 1] = np.nan
        check()
    x[rng.integers(rows), [0, n - 1][rng.integers(2)]] = rng.integers(-n, n) % 100
    check()
    x[rng.integers(rows), rng.integers(n)] = 1
    check()
