"""The example of loop nests, on the CPU and small on the interpreter device."""

import runpy
from pathlib import Path

import weft

FILE = Path(__file__).parent.parent.parent / "examples" / "loops.py"


def test_on_the_cpu() -> None:
    """Its results are NumPy's, and its loops run as its comments say."""
    text = runpy.run_path(str(FILE))["check"](60)
    assert "for _: serial; line" in text
    assert text.count("for j: vector") == 2


def test_on_the_interpreter() -> None:
    """The same functions on the reference device."""
    before = weft.get_default_device()
    weft.set_default_device("interpreter")
    try:
        runpy.run_path(str(FILE))["check"](6)
    finally:
        weft.set_default_device(before)
