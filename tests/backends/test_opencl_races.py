"""Kernels in OpenCL C under oclgrind, which sees races and accesses that are out of bounds."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLES = (*((name, "") for name in ("saxpy", "warp_reduction", "transpose")),
            *((name, "/threads") for name in ("histogram", "block_reduction", "scan", "softmax")))

RACE = """
import numpy as np
from weft.backends import registry
from weft.driver.context import context
from weft.runtimes.base import Image

text = '// weft {"entries": [{"name": "race", "groups": 0}], "shared": 0, "own": 0, ' \\
       '"fails": false, "options": []}\\n' \\
       'kernel void race(global int *b, long o, global int *s, global char *t) ' \\
       '{ b[0] = get_group_id(0); }\\n'
device = context("opencl:oclgrind").runtime
held = device.pool.allocate(64)
program = device.load(Image("race", text.encode(), (), 1))
device.queue.launch(program, [held], []).wait()
"""


def run(code):
    """Return how a process under oclgrind ended, and what was found."""
    return subprocess.run(["oclgrind", "--data-races", sys.executable, "-c", code],
                          cwd=ROOT, capture_output=True, text=True, timeout=500)  # fmt: skip


@pytest.mark.slow
@pytest.mark.grid
@pytest.mark.requires("oclgrind")
@pytest.mark.parametrize(("name", "pair"), EXAMPLES)
def test_examples_have_no_races(name, pair):
    done = run(f"import weft; weft.set_default_device('opencl:oclgrind{pair}')\n"
               f"from examples.kernels import {name}; {name}.check()")
    assert done.returncode == 0, done.stderr[-2000:]
    assert "race" not in done.stderr.lower()
    assert "invalid" not in done.stderr.lower()


@pytest.mark.slow
@pytest.mark.requires("oclgrind")
def test_a_race_is_found():
    done = run(RACE)
    assert "data race" in done.stderr, done.stderr[-2000:]
