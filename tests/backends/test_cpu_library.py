"""A host without llvmlite, or with half of it: the error says what to install."""

import os
import subprocess
import sys

import pytest

_TRIES = """
import numpy as np
import weft
from weft import gpu
from weft.errors import DeviceError

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
    except DeviceError as error:
        assert len(str(error).splitlines()) < 10
        print(HINT in error.hint, "llvmlite" in str(error))
"""


@pytest.mark.parametrize(("broken", "hint"), [
    ("sys.modules['llvmlite'] = None", "python -m pip install llvmlite"),
    ("import llvmlite; llvmlite.__file__ = '/nowhere/file'; sys.modules['llvmlite.binding'] = None",
     "python -m pip install --force-reinstall llvmlite"),
], ids=["absent", "broken"])  # fmt: skip
def test_what_is_missing_is_named(broken, hint, tmp_path):
    path = tmp_path / "program.py"
    path.write_text(f"import sys\n{broken}\nHINT = {hint!r}\n{_TRIES}")
    environment = {**os.environ, "WEFT_CACHE_DIR": str(tmp_path / "cache")}
    done = subprocess.run([sys.executable, str(path)], env=environment, capture_output=True,
                          text=True, check=False)  # fmt: skip
    assert (done.stdout, done.stderr) == ("True True\n" * 3, "")


@pytest.mark.parametrize(("device", "said"), [
    (None, "DeviceError True"), ("interpreter", "1.0 1.0 1.0 1.0"),
], ids=["default", "interpreter"])  # fmt: skip
def test_the_interpreter_is_taken_only_by_name(device, said, tmp_path):
    path = tmp_path / "program.py"
    path.write_text(
        "import sys\n"
        "sys.modules['llvmlite'] = None\n"
        f"{_TRIES.partition('for attempt')[0]}"
        "x = np.ones(4, np.float32)\n"
        "try:\n"
        "    double[1, 4](x)\n"
        "    halve(x)\n"
        "    print(*x)\n"
        "except DeviceError as error:\n"
        "    print(type(error).__name__, 'pip install llvmlite' in str(error))\n"
    )
    environment = {**os.environ, "WEFT_CACHE_DIR": str(tmp_path / "cache")}
    environment.pop("WEFT_DEVICE", None)
    if device is not None:
        environment["WEFT_DEVICE"] = device
    done = subprocess.run([sys.executable, str(path)], env=environment, capture_output=True,
                          text=True, check=False)  # fmt: skip
    assert (done.stdout, done.stderr) == (f"{said}\n", "")
