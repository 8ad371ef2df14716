"""Kernels as C functions run in programs that know nothing of Weft."""

import subprocess
import sys

import numpy as np
import pytest

import weft
from weft.driver import counters, export
from weft.ir.traverse import stores
from weft.lang.critical.export import link
from weft.runtimes.native.calls import critical_ir as ir

_CALLER = """
import ctypes, sys
import numpy as np
x, y, out = (np.load(path) for path in sys.argv[2:5])
code = ctypes.CDLL(sys.argv[1]).product(*(ctypes.c_void_p(a.ctypes.data) for a in (x, y, out)))
np.save(sys.argv[4], out)
"""


@pytest.mark.parametrize("kind", ["bfloat16", "int8", "float32"])
def test_products_need_nothing_of_the_process(kind, tmp_path, rng):
    """A caller in C has not asked for tile registers: their first instruction would end it."""
    x, y = (rng.integers(-4, 5, shape).astype(np.float32) for shape in ((272, 256), (256, 256)))
    dtype = getattr(weft, kind)
    wide = weft.int32 if kind == "int8" else weft.float32
    a, b = (weft.from_numpy(v).to(dtype).realize() for v in (x, y))
    with counters.record() as recording:
        (a.to(wide) @ b.to(wide).T).realize()
    nest = recording.built[-1].nest
    written = stores(nest.body)
    params = {p.name: ir.Array(p.dtype, tuple(int(n.attr) for n in p.shape), "C", p in written)
              for p in nest.params}
    library = tmp_path / "product.so"
    link([export.c_function(nest, "product", params)], library)
    files = [tmp_path / f"{name}.npy" for name in "abo"]
    given = [weft_bits(v, kind) for v in (x, y)]
    out = np.zeros((272, 256), np.int32 if kind == "int8" else np.float32)
    for file, value in zip(files, (*given, out), strict=True):
        np.save(file, value)
    subprocess.run([sys.executable, "-c", _CALLER, str(library), *map(str, files)], check=True,
                   timeout=60)
    assert np.array_equal(np.load(files[2]), x @ y.T)


def weft_bits(values, kind):
    """Return small integers as words of bfloat16, as bytes, or as they are."""
    if kind == "int8":
        return values.astype(np.int8)
    if kind == "float32":
        return values
    return (values.view(np.uint32) >> 16).astype(np.uint16)
