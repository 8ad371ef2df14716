"""The kernels that measure the machine do what their names say."""

import numpy as np
import pytest

from weft.driver.context import host_context
from weft.driver.report import peak_kernels, profile
from weft.ir import expr as ex
from weft.ir.dtype import uint32
from weft.ir.interpret import interpret
from weft.ir.op import Op
from weft.ir.stmt import Prefetch, Store
from weft.ir.traverse import walk
from weft.ir.verify.verify import verify


@pytest.mark.parametrize("asks", [False, True])
@pytest.mark.parametrize("streams", [False, True])
def test_copies(streams, asks):
    kernel = peak_kernels.move_kernel(4096, True, streams, asks)
    verify(kernel)
    assert all(s.streaming == streams for s in walk(kernel.body) if isinstance(s, Store))
    asked = {s.memory.name for s in walk(kernel.body) if isinstance(s, Prefetch)}
    assert asked == (({"source"} if streams else {"source", "target"}) if asks else set())
    source = np.arange(1024, dtype=np.float32).reshape(2, 512)
    target = np.zeros_like(source)
    interpret.run(kernel, {"source": source, "target": target})
    np.testing.assert_array_equal(source, target)


@pytest.mark.slow
def test_rates():
    rates = profile.memory_rates()
    assert list(rates) == ["read", "write", "write past", "copy", "copy ahead", "copy past",
                           "copy past ahead"]
    assert all(0.1 < rate < 10_000 for rate in rates.values())


def test_requests_name_every_line_of_the_next_block():
    kernel = peak_kernels.move_kernel(1 << 18, True, True, True)
    asked = [s.index[1] for s in walk(kernel.body) if isinstance(s, Prefetch)]
    k = next(v for v in ex.free_vars(asked) if v.attr == "k")
    lines = sorted(e.attr for turn in range(128) for e in ex.substitute(asked, {k: ex.index(turn)}))
    assert lines == list(range(128 * 64, 2 * 128 * 64, 16))


def test_products_in_tile_registers():
    kernel, work = peak_kernels.tile_kernel(2, 3)
    verify(kernel)
    out = np.zeros((2, 16), np.float32)
    interpret.run(kernel, {"out": out})
    assert np.all(out == 3 * 32)
    assert work == 2 * 3 * 4 * 2 * 16 * 16 * 32
    rate = profile.tile_rate()
    assert (rate > 0) == host_context().target.supports(Op.MATRIX2, uint32)
