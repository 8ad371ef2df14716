"""A host without llvmlite, or with half of it: the error says what to install."""

import os
import subprocess
import sys

import pytest

_TRIES = """
import numpy as np
import weft
from weft import gpu
from weft.errors import DeviceError, LibraryNotFoundError

@weft.kernel
def double(x):
    x[gpu.grid(1)] *= 2

@weft.compute
def halve(x):
    for i in range(x.shape[0]):
        x[i] /= 2

@weft.critical
def same(x: weft.float64) -> weft.float64:
    return x

for attempt in (
    lambda: (weft.ones(3) + 1).numpy(),
    lambda: weft.jit(lambda a: a + 1)(weft.ones(3)).numpy(),
    lambda: same(1.0),
):
    try:
        attempt()
    except LibraryNotFoundError as error:
        assert isinstance(error, DeviceError)
        assert len(str(error).splitlines()) < 10
        print("llvmlite" in str(error), error.hint)
"""


@pytest.mark.parametrize(("broken", "hint"), [
    ("sys.modules['llvmlite'] = None", "python -m pip install llvmlite"),
    ("import llvmlite; llvmlite.__file__ = '/nowhere/file'; sys.modules['llvmlite.binding'] = None",
     "python -m pip install --force-reinstall llvmlite"),
], ids=["absent", "broken"])  # fmt: skip
def test_what_is_missing_is_named(broken, hint, tmp_path):
    path = tmp_path / "program.py"
    path.write_text(f"import sys\n{broken}\n{_TRIES}")
    environment = {**os.environ, "WEFT_CACHE_DIR": str(tmp_path / "cache")}
    done = subprocess.run([sys.executable, str(path)], env=environment, capture_output=True,
                          text=True, check=False)  # fmt: skip
    assert (done.stdout, done.stderr) == (f"True {hint}\n" * 3, "")


def test_without_it_the_interpreter_is_left(tmp_path):
    path = tmp_path / "program.py"
    path.write_text(
        "import sys\n"
        "sys.modules['llvmlite'] = None\n"
        f"{_TRIES.partition('for attempt')[0]}"
        "x = np.ones(4, np.float32)\n"
        "double[1, 4](x)\n"
        "halve(x)\n"
        "print(*x, *weft.devices())\n"
    )
    environment = {**os.environ, "WEFT_CACHE_DIR": str(tmp_path / "cache")}
    done = subprocess.run([sys.executable, str(path)], env=environment, capture_output=True,
                          text=True, check=False)  # fmt: skip
    assert (done.stdout, done.stderr) == ("1.0 1.0 1.0 1.0 interpreter\n", "")
