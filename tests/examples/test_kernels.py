"""Each example of a kernel computes what NumPy does, on every device, and breaks no rule."""

import re
import subprocess
import sys

import numpy as np
import pytest
from tests.examples.kernel_examples import FOLDER, NAMES, Sanitised, load

import weft

SIZES = [1, 7, 67, 130]
EMPTY = ["block_reduction", "histogram", "monte_carlo", "radix_sort", "saxpy", "scan"]


def natively(kernel, configuration, args):
    """Launch a kernel as it stands."""
    kernel[configuration](*args)


def interpreted(kernel, configuration, args):
    """Launch a kernel on the interpreter, with its blocks in another order."""
    grid, block, *rest = configuration
    weft.interpret(kernel, grid, block, shared=rest[1] if len(rest) > 1 else 0, seed=3)(*args)


def test_there_are_enough():
    assert len(NAMES) >= 18


@pytest.mark.grid
@pytest.mark.parametrize("name", NAMES)
def test_on_the_cpu(name):
    example = load(FOLDER / f"{name}.py", natively)
    for n in ([0] if name in EMPTY else []) + SIZES:
        assert example.check(n)


@pytest.mark.grid
@pytest.mark.parametrize("name", NAMES)
def test_on_the_interpreter(name):
    example = load(FOLDER / f"{name}.py", interpreted)
    for n in ([0] if name in EMPTY else []) + SIZES[:-1]:
        assert example.check(n)


@pytest.mark.grid
@pytest.mark.parametrize("name", NAMES)
def test_breaks_no_rule(name):
    launches = Sanitised()
    example = load(FOLDER / f"{name}.py", launches)
    for n in (1, 37):
        assert example.check(n)
    assert not launches.findings, "\n".join(map(str, launches.findings))


@pytest.mark.slow
def test_what_is_timed_is_the_same_work():
    for name in NAMES:
        by_kernel, by_numpy = load(FOLDER / f"{name}.py", natively).sides(67)
        found, expected = np.asarray(by_kernel()), np.asarray(by_numpy())
        assert found.shape == expected.shape, name
        # The edge of the Mandelbrot set goes by the rounding of the last step.
        rare = 1e-3 if name == "mandelbrot" else 0
        near = np.isclose(found, expected, rtol=1e-3, atol=1e-3)
        assert (~near).mean() <= rare, name


@pytest.mark.parametrize("name", ["saxpy", "radix_sort"])
def test_as_a_script(name, tmp_path):
    shown = subprocess.run([sys.executable, FOLDER / f"{name}.py"], cwd=tmp_path, check=True,
                           capture_output=True, text=True).stdout  # fmt: skip
    times = re.search(r" -- kernel ([\d.e-]+) ms, NumPy ([\d.e-]+) ms$", shown.strip())
    assert times
    assert all(float(t) > 0 for t in times.groups())
