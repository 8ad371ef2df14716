"""Realizing and replaying compute nothing with NumPy, SciPy or BLAS."""

import platform
import re
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parent / "without_numpy.py"


@pytest.mark.slow
def test_programs_run_without_numpy():
    source = SCRIPT.parent.parent.parent / "src"
    done = subprocess.run(
        [sys.executable, "-c",
         "import runpy, sys; sys.path.insert(0, sys.argv[1]); "
         "runpy.run_path(sys.argv[2], run_name='__main__')", str(source), str(SCRIPT)],
        capture_output=True, text=True, check=False, timeout=240,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    found = re.search(r"ok, (\d+) entries", done.stdout)
    assert found, done.stdout
    if sys.platform == "linux" and platform.machine() == "x86_64":
        assert int(found[1]) >= 2
