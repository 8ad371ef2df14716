"""The first launch does all the work there is: the second one compiles and loads nothing."""

import subprocess
import sys

import pytest

PROGRAM = """
import numpy as np
import weft
from weft import gpu
from weft.compat import cuda
from weft.driver.context import host_context

def twice(x, y):
    i = {grid}
    if i < x.size:
        y[i] = 2 * x[i]

def loops(x, y):
    for i in range(x.size):
        y[i] = 2 * x[i]

def refuse(*args, **kwargs):
    raise AssertionError("compiles or loads code")

run = {run}
for kind in (np.float64, np.float32):
    x, y = np.arange(64, dtype=kind), np.zeros(64, kind)
    runtime = host_context().native
    kept = runtime.support, runtime.loader.load, runtime.compiler.compile
    run(x, y)
    y[:] = 0
    runtime.support = runtime.loader.load = runtime.compiler.compile = refuse
    run(x, y)
    runtime.support, runtime.loader.load, runtime.compiler.compile = kept
    assert (y == 2 * x).all()
print({native})
"""
FORMS = {
    "kernel": ("gpu.grid(1)", "weft.kernel(twice)[1, 64]", "len(run._launches)", "2"),
    "many blocks": ("gpu.grid(1)", "weft.kernel(twice)[16, 4]", "len(run._launches)", "2"),
    "numba": ("cuda.grid(1)", "cuda.jit(twice)[1, 64]", "len(run._launches)", "2"),
    "compute": ("0", "weft.compute(loops)", "0", "0"),
}


@pytest.mark.parametrize("form", FORMS)
def test_the_second_launch_compiles_nothing(form, tmp_path):
    grid, run, native, wanted = FORMS[form]
    script = tmp_path / "script.py"  # kernels are read from a file
    script.write_text(PROGRAM.format(grid=grid, run=run, native=native))
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True,
                          check=False, timeout=120)  # fmt: skip
    assert (done.returncode, done.stdout.strip()) == (0, wanted), done.stderr
