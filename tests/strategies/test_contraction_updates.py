"""Products whose epilogues update what they read: nothing of them may be computed twice."""

import numpy as np
import pytest

import weft
from weft.ir.text.text_parse import parse_kernel
from weft.strategies import choose
from weft.target import Target

RNG = np.random.default_rng(9)
TARGET = Target("cpu", "x86_64", vector_bytes=64, vector_registers=32, cores=2)

# Equal blocks of whole tiles, sizes that none divide, long sums, one row or column more.
SHAPES = [(576, 1024, 40), (1000, 512, 24), (577, 511, 13), (600, 520, 1), (384, 400, 1100),
          (385, 401, 1030), (7, 5, 3), (1, 900, 5)]  # fmt: skip


def update(rows, columns, depth):
    """Return the nest of ``m = m*0.5 + a.T @ b``, with the product stored too."""
    return parse_kernel(f"""kernel k0 kind=contraction flops=0 traffic=0
param a: f32[{depth}, {rows}]
param b: f32[{depth}, {columns}]
param m: f32[{rows}, {columns}]
param o: f32[{rows}, {columns}]
{{
  for %i in {rows} serial {{
    for %j in {columns} serial {{
      reduce %k in {depth} serial {{
        acc %s: f32 = 0.0:f32
        load %x: f32 = a[%k, %i]
        load %y: f32 = b[%k, %j]
        update %s = %s + (%y * %x) combine %s.l + %s.r
      }}
      store o[%i, %j] = %s
      load %z: f32 = m[%i, %j]
      store m[%i, %j] = (%z * 0.5:f32) + %s
    }}
  }}
}}
""")


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("shape", [
    (3072, 768, 128), (768, 3072, 64), (1024, 4096, 32), (1000, 512, 128), (50257, 768, 128),
    (3071, 769, 1024), (300, 700, 2048)])
def test_tiles_stay_in_registers(shape, threads):
    why = dict(choose(update(*shape), TARGET, threads).meta.hints)["why"]
    assert "results in registers" in why


@pytest.mark.grid
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("kept", [False, True])
def test_values(shape, kept):
    rows, columns, depth = shape
    a, b = (RNG.integers(-4, 5, (depth, n)).astype(np.float32) for n in (rows, columns))
    m = weft.tensor(np.full((rows, columns), 8, np.float32))
    x, y = weft.from_numpy(a), weft.from_numpy(b)

    def step(x, y):
        product = x.transpose(0, 1) @ y
        m.copy_(m * 0.5 + product)
        return product if kept else x.sum()

    call, product = weft.jit(step), a.astype(np.float64).T @ b
    expected = np.full((rows, columns), 8.0)
    for _ in range(3):
        found = call(x, y).numpy()
        expected = expected * 0.5 + product
        np.testing.assert_array_equal(m.numpy(), expected)
    if kept:
        np.testing.assert_array_equal(found, product)
