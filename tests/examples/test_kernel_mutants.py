"""Every example of a kernel with one small mistake: what breaks a rule or a result is found.

Whether a rule is broken says a second opinion, which runs kernels as Python, thread by thread; the
sanitiser must report something where that says so, and nothing where it does not.
"""

from pathlib import Path

import pytest
from tests.examples.kernel_examples import FOLDER, NAMES, Sanitised, load
from tests.examples.mutation import Mutant, mutants, mutated
from tests.examples.thread_by_thread import broken_rules

from weft.errors import WeftError

# Sizes with several blocks, the last of them not full; and smaller tiles, which are quicker.
SIZES = {
    "attention": (5, 11), "block_reduction": (37, 300), "convolution": (5, 7),
    "game_of_life": (5, 13), "histogram": (37, 130), "jacobi": (3, 11), "mandelbrot": (5, 37),
    "monte_carlo": (37, 130), "nbody": (5, 11), "radix_sort": (300,), "saxpy": (37, 300),
    "scan": (7, 70), "softmax": (7, 37), "tensor_core_matmul": (17,),
    "sparse_matvec": (5, 13), "tiled_matmul": (5,),
    "transpose": (5, 19), "warp_reduction": (5, 9),
    "copies_ahead": (2,), "matrix_pitch": (1, 2), "warps_in_step": (37, 300),
}  # fmt: skip
SMALLER = {
    "attention": {"WIDTH = 16": "WIDTH = 4", "TILE = 32": "TILE = 8"},
    "convolution": {"TILE = 16": "TILE = 4"},
    "jacobi": {"0.1, 1000)": "3.0, 12)"},
    "nbody": {"TILE = 64": "TILE = 8"},
    "radix_sort": {"0, 32, 4": "0, 4, 4", "0, 1 << 32, n": "0, 1 << 4, n"},
    "scan": {"THREADS = 64": "THREADS = 16"},
    "softmax": {"THREADS = 64": "THREADS = 16"},
    "tiled_matmul": {"TILE = 16": "TILE = 4"},
    "transpose": {"TILE = 32": "TILE = 8", "ROWS = 8": "ROWS = 2"},
}
MORE = Path(__file__).parent / "more"  # of what no example has: copies on the side, pitches
FILES = {name: FOLDER / f"{name}.py" for name in NAMES}
FILES |= {file.stem: file for file in sorted(MORE.glob("[a-z]*.py"))}
RACES = {"missing-barrier": "race"}  # the second opinion does not tell one from the other


def smaller(name: str, text: str) -> str:
    """Return the text of an example with smaller tiles."""
    for old, new in SMALLER.get(name, {}).items():
        assert old in text
        text = text.replace(old, new)
    return text


def outcome(name: str, mutant: Mutant, folder) -> tuple[str, set[str], set[str]]:
    """Return how a mutant computes something else, what was found, and what it breaks."""
    file = folder / f"{mutant}.py"
    file.write_text(smaller(name, mutated(FILES[name], mutant)))
    launches = Sanitised()
    example = load(file, launches)
    wrong = ""
    for n in SIZES[name]:
        try:
            example.check(n)
        except (AssertionError, WeftError) as error:
            wrong = type(error).__name__
    assert all(f.file == str(file) for f in launches.findings)
    return wrong, {f.kind for f in launches.findings}, broken_rules(file, SIZES[name])


@pytest.mark.slow
@pytest.mark.parametrize("name", FILES)
def test_mutants(name, tmp_path):
    todo = mutants(FILES[name])
    assert len(todo) >= 5
    harmless = []
    for mutant in todo:
        wrong, found, broken = outcome(name, mutant, tmp_path)
        if wrong == "KernelError":  # what is refused does not run
            assert not found, (str(mutant), found)
            assert broken, str(mutant)
            continue
        assert bool(found) == bool(broken), (str(mutant), wrong, found, broken)
        if {RACES.get(kind, kind) for kind in found} == {"race"}:
            assert "race" in broken, (str(mutant), found, broken)
        if "delete-barrier" in mutant.change and broken:
            assert "missing-barrier" in found, (str(mutant), found, broken)
        if not wrong and not broken:
            harmless.append(str(mutant))
    # Most mistakes do harm: were they many, the sizes or the inputs would not show them.
    assert len(harmless) <= len(todo) // 3, harmless


@pytest.mark.grid
@pytest.mark.parametrize("name", FILES)
def test_the_second_opinion_sees_nothing_in_what_is_right(name, tmp_path):
    file = tmp_path / f"{name}.py"
    file.write_text(smaller(name, (FILES[name]).read_text()))
    assert not broken_rules(file, SIZES[name])
