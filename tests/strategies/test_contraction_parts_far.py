"""Products of parts are left to multiply-adds where rows come from memory for few columns."""

import numpy as np
import pytest

import schedule_nests as nests
import weft
from seeds import seeds
from weft.backends import cpu
from weft.strategies import choose

FEATURES = tuple(f"+{name}" for name in (
    "amx-bf16", "amx-int8", "amx-tile", "avx", "avx2", "avx512bf16", "avx512bw", "avx512dq",
    "avx512f", "avx512vl", "avx512vnni", "f16c", "fma", "sse2"))  # fmt: skip
TARGET = cpu.target_from("x86_64", "sapphirerapids", FEATURES,
                         {"l1_bytes": 48 << 10, "l2_bytes": 2 << 20})


def takes_parts(rows, columns, terms, layout, threads):
    made = choose(nests.matmul(rows, columns, terms, *layout.split(",")), TARGET, threads)
    return dict(made.meta.hints).get("form") == "split_float32"


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(("rows", "columns", "layout"), [
    (128, 50257, "ik,jk"), (20000, 128, "ik,kj"), (4096, 128, "ki,kj")])
def test_long_rows_meet_few_columns_in_vectors(rows, columns, layout, threads):
    assert not takes_parts(rows, columns, 1024, layout, threads)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(("rows", "columns", "layout"), [
    (512, 50257, "ik,jk"), (4096, 512, "ki,kj"), (128, 2048, "ik,jk"), (2048, 2048, "ik,kj")])
def test_near_rows_and_many_columns_meet_in_tiles(rows, columns, layout, threads):
    assert takes_parts(rows, columns, 1024, layout, threads)


@pytest.mark.parametrize("seed", seeds(1))
def test_either_form_gives_the_product(seed):
    rng = np.random.default_rng(seed)
    a, b = (rng.standard_normal(shape, dtype=np.float32) for shape in ((128, 770), (5003, 770)))
    found = np.asarray(weft.jit(lambda x, y: x @ y.T)(weft.tensor(a), weft.tensor(b)))
    wanted = a.astype(np.float64) @ b.T.astype(np.float64)
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)
