"""How much work large kernels are: nodes that are read, counted, for programs of several sizes."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft
from weft.compat import cuda
from weft.errors import KernelError
from weft.lang.core.context import Context


def kernel_of(text: str) -> Any:
    space: dict[str, Any] = {"weft": weft, "cuda": cuda, "np": np}
    exec(text, space)
    return cuda.jit(space["kernel"])


def nodes_read(monkeypatch: pytest.MonkeyPatch, kernel: Any, *args: Any) -> int:
    """Launch a kernel for the first time; return how many expressions were read for it."""
    visit, count = Context.visit, 0

    def counted(reading: Context, node: Any) -> Any:
        nonlocal count
        count += 1
        return visit(reading, node)

    with monkeypatch.context() as patch:
        patch.setattr(Context, "visit", counted)
        kernel[1, 1](*args)
    return count


def loops(depth: int) -> str:
    """Loops in loops, each with a name that gets a wider type in it and one that is born in it."""
    lines = ["def kernel(a, out):", "    total = 0"]
    for k in range(depth):
        inner = "    " * (k + 1)
        lines += [f"{inner}w{k} = 0", f"{inner}for i{k} in range(2):",
                  f"{inner}    if i{k} < 1:", f"{inner}        b{k} = 1",
                  f"{inner}    w{k} += a[i{k}]"]
    inner = "    " * (depth + 1)
    lines += [f"{inner}total += {' + '.join(f'w{k} + b{k}' for k in range(depth))}"]
    return "\n".join([*lines, "    out[0] = total", ""])


def functions(depth: int) -> str:
    """Functions that call each other, with two returns each, the last of another type."""
    lines = ["@cuda.jit(device=True)", "def f0(x):", "    if x > 3:", "        return 1",
             "    return x * 0.5"]
    for k in range(1, depth):
        lines += ["@cuda.jit(device=True)", f"def f{k}(x):", f"    if x > {k + 3}:",
                  "        return 1", f"    return f{k - 1}(x) + x"]
    return "\n".join([*lines, "def kernel(a, out):", f"    out[0] = f{depth - 1}(a[1])", ""])


def branches(count: int) -> str:
    """Branches one behind the other."""
    lines = ["def kernel(a, out):", "    x = a[0]", "    y = a[1]"]
    for k in range(count):
        lines += [f"    if x > {k}.5:", "        y = y * 0.5 + x", "    else:", "        x = x + y"]
    return "\n".join([*lines, "    out[0] = x + y", ""])


def terms(count: int) -> str:
    """One long expression."""
    added = " ".join(f"{'+-'[k % 3 == 0]} a[{k % 2}] * {k}.0" for k in range(count))
    return f"def kernel(a, out):\n    out[0] = 1.0 {added}\n"


# The sizes, and what the larger one may read for one node that the smaller one reads.
PROGRAMS: dict[str, tuple[Callable[[int], str], int, int, float]] = {
    "loops": (loops, 3, 6, 5.0),  # each level asks for one more reading of what is in it
    "functions": (functions, 4, 8, 3.5),
    "branches": (branches, 150, 600, 4.2),
    "terms": (terms, 200, 800, 4.2),
}


@pytest.mark.grid
@pytest.mark.parametrize("name", PROGRAMS)
def test_what_is_read_does_not_grow_faster_than_the_kernel(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, small, large, most = PROGRAMS[name]
    a = np.array([0.75, 2.5])
    counts = []
    for size in (small, large):
        text = made(size)
        space: dict[str, Any] = {"cuda": cuda, "np": np}
        exec(text.replace("@cuda.jit(device=True)\n", ""), space)
        found, wanted = np.zeros(1), np.zeros(1)
        counts.append(nodes_read(monkeypatch, kernel_of(text), a, found))
        space["kernel"](a, wanted)
        np.testing.assert_allclose(found, wanted, rtol=1e-12)
    assert counts[1] < most * counts[0]


def test_what_lies_too_deeply_in_itself_is_said() -> None:
    lines = [f"    {'el' if k else ''}if a[0] > {k}:\n        out[0] = {k}\n"
             for k in range(600)]
    with pytest.raises(KernelError, match="more deeply in each other"):
        kernel_of("def kernel(a, out):\n" + "".join(lines))[1, 1](np.zeros(1), np.zeros(1))


def test_a_function_is_read_anew_where_it_returns_other_types() -> None:
    text = """
@cuda.jit(device=True)
def f(x, y):
    if x > 3:
        return 0
    if y:
        return x * 0.5
    return x + 1
@cuda.jit(device=True)
def h(x, wide):
    for k in range(2):
        if k == 1:
            return f(x, wide)
    return f(x, not wide)
def kernel(a, out):
    out[0] = h(2, True) / 2
    out[1] = h(2, False) / 2
    out[2] = f(2, True) / 4
    out[3] = f(2, False) // 2
    out[4] = f(a[0], False)
"""
    space: dict[str, Any] = {"cuda": cuda, "np": np}
    exec(text.replace("@cuda.jit(device=True)\n", ""), space)
    a, found, wanted = np.array([1.25]), np.zeros(5), np.zeros(5)
    kernel_of(text)[1, 1](a, found)
    space["kernel"](a, wanted)
    np.testing.assert_array_equal(found, wanted)


def test_a_loop_is_read_anew_where_a_function_reads_other_types() -> None:
    """The name that decides is one of the kernel's, the loop one of the function it calls."""
    text = """
def kernel(a, out):
    def scaled(i):
        return i * k
    def total(f):
        s = 0
        for i in range(5):
            s = s + f(i)
        return s
    j = 0
    for k in (0.5, 1, 4611686018427387):
        out[j] = total(scaled) % 1000
        j += 1
"""
    space: dict[str, Any] = {}
    exec(text, space)
    a, found, wanted = np.zeros(1), np.zeros(3), np.zeros(3)
    kernel_of(text)[1, 1](a, found)
    space["kernel"](a, wanted)
    np.testing.assert_array_equal(found, wanted)  # as floats the last sum would lose its last bits
