"""Each example of a kernel computes what NumPy does, on every device, and breaks no rule."""

import runpy

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


@pytest.mark.parametrize("name", NAMES)
def test_on_the_cpu(name):
    example = load(FOLDER / f"{name}.py", natively)
    for n in ([0] if name in EMPTY else []) + SIZES:
        assert example.check(n)


@pytest.mark.parametrize("name", NAMES)
def test_on_the_interpreter(name):
    example = load(FOLDER / f"{name}.py", interpreted)
    for n in ([0] if name in EMPTY else []) + SIZES[:-1]:
        assert example.check(n)


@pytest.mark.parametrize("name", NAMES)
def test_breaks_no_rule(name):
    launches = Sanitised()
    example = load(FOLDER / f"{name}.py", launches)
    for n in (1, 37):
        assert example.check(n)
    assert not launches.findings, "\n".join(map(str, launches.findings))


@pytest.mark.parametrize("name", ["saxpy", "radix_sort"])
def test_as_a_script(name, capsys):
    runpy.run_path(str(FOLDER / f"{name}.py"), run_name="__main__")
    assert capsys.readouterr().out.strip()
