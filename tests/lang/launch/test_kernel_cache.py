"""Compiled kernels on disk: found by what they do, with all that they call and know."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

PROGRAM = """
import sys
sys.path.insert(0, {folder!r})
import numpy as np
import weft
from weft import gpu
import helper

@weft.kernel
def apply(x):
    i = gpu.grid(1)
    if i < x.size:
        x[i] = helper.change(x[i]) + helper.LIMIT * helper.TABLE[i % 2]
        x[i + {beyond}] += 0

x = np.arange(5.0)
try:
    apply[1, 8](x)
except weft.BoundsError as e:
    print("line", str(e).splitlines()[-1].split("program.py:")[1].split(":")[0])
print(x.tolist())
"""
HELPER = """
import numpy as np
LIMIT = {limit}
TABLE = np.array([1.0, {table}])
def deeper(v):
    return v * {factor}
def change(v):
    return deeper(v) + 1
"""


@pytest.fixture
def run(tmp_path: Path):
    """Run the program in a process of its own; return how many kernels it compiled, and x."""
    environment = dict(os.environ, WEFT_CACHE_DIR=str(tmp_path / "cache"), WEFT_DEBUG="128")

    def once(limit=10, table=2.0, factor=3, beyond=0, before="", tiered="0"):
        environment["WEFT_TIERED"] = tiered
        (tmp_path / "helper.py").write_text(HELPER.format(limit=limit, table=table, factor=factor))
        program = tmp_path / "program.py"
        program.write_text(before + PROGRAM.format(folder=str(tmp_path), beyond=beyond))
        done = subprocess.run([sys.executable, "-B", str(program)], env=environment, text=True,
                              capture_output=True, timeout=120, check=True)
        return done.stderr.count("weft: compiled apply"), done.stdout.split("\n")

    return once


def expected(limit=10, table=2.0, factor=3):
    x = np.arange(5.0)
    return str((x * factor + 1 + limit * np.array([1, table, 1, table, 1])).tolist())


@pytest.mark.slow
def test_what_a_kernel_calls_and_knows_is_part_of_it(run) -> None:
    """A function two calls away, a number; not comments, nor what arrays hold, nor lines."""
    assert run() == (1, [expected(), ""])
    assert run() == (0, [expected(), ""])
    assert run(factor=4) == (1, [expected(factor=4), ""])
    assert run(limit=11) == (1, [expected(limit=11), ""])
    assert run(table=5.0) == (0, [expected(table=5.0), ""])  # an array is passed
    assert run(before="# a comment\n\n") == (0, [expected(), ""])


@pytest.mark.slow
def test_lines_are_those_of_this_program(run) -> None:
    """A kernel from the cache reports failures where they stand now."""
    compiled, out = run(beyond=1)
    assert (compiled, out[0]) == (1, "line 14")
    compiled, out = run(beyond=1, before="\n\n\n")
    assert (compiled, out[0]) == (0, "line 17")


@pytest.mark.slow
def test_tiers_do_not_concern_kernels(run) -> None:
    """A kernel is compiled fully at once, as its native launches go to that code."""
    assert run(tiered="1") == (1, [expected(), ""])
    assert run(tiered="0") == (0, [expected(), ""])


@pytest.mark.slow
def test_files_that_are_broken(run, tmp_path: Path) -> None:
    """Cut, changed or empty files are compiled anew."""
    assert run() == (1, [expected(), ""])
    for damage in (lambda b: b[: len(b) // 2], lambda b: b"", lambda b: b"\0" * len(b),
                   lambda b: b[:-40] + bytes(40)):  # fmt: skip
        files = [f for f in (tmp_path / "cache").rglob("*") if f.is_file()]
        assert files
        for file in files:
            file.write_bytes(damage(file.read_bytes()))
        compiled, out = run()
        assert out == [expected(), ""]
        assert compiled == 1
    assert run() == (0, [expected(), ""])
