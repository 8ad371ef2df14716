"""The kernels that measure the machine do what their names say."""

import numpy as np
import pytest

from weft.driver import peak_kernels, profile
from weft.ir import interpret
from weft.ir.stmt import Store
from weft.ir.traverse import walk
from weft.ir.verify import verify


@pytest.mark.parametrize("streams", [False, True])
def test_copies(streams):
    kernel = peak_kernels.move_kernel(4096, True, streams)
    verify(kernel)
    assert all(s.streaming == streams for s in walk(kernel.body) if isinstance(s, Store))
    source = np.arange(1024, dtype=np.float32).reshape(2, 512)
    target = np.zeros_like(source)
    interpret.run(kernel, {"source": source, "target": target})
    np.testing.assert_array_equal(source, target)


def test_rates():
    rates = profile.memory_rates()
    assert list(rates) == ["read", "write", "write past", "copy", "copy past"]
    assert all(0.1 < rate < 10_000 for rate in rates.values())
