"""Products of turned matrices whose rows are copied: against float64, on one thread and on two."""

import numpy as np
import pytest

import weft


@pytest.mark.grid
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("right", ["n", "t"])
@pytest.mark.parametrize("bounds", [
    ((48, 200), (64, 700), (1280, 2100)),  # long sums
    ((800, 1400), (500, 1000), (60, 170)),  # results that leave the caches
])
def test_turned_products(bounds, right, seed, request):
    rng = np.random.default_rng([seed, *request.node.name.encode()])
    m, n, k = (int(rng.integers(*b)) for b in bounds)
    a = rng.standard_normal((k, m), np.float32)
    b = rng.standard_normal((n, k) if right == "t" else (k, n), np.float32)
    bias = rng.standard_normal(n, np.float32)

    def product(a, b, bias):
        return a.T @ (b.T if right == "t" else b) + bias

    want = product(*(x.astype(np.float64) for x in (a, b, bias)))
    got = weft.jit(product)(*map(weft.from_numpy, (a, b, bias))).numpy()
    np.testing.assert_allclose(got, want, rtol=0, atol=4e-6 * np.sqrt(k), err_msg=f"{m} {n} {k}")
