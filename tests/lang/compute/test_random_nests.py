"""Random small loop nests, against the Python that they are."""

import linecache
import random
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft
from weft import ndrange
from weft.errors import BoundsError, KernelError

CASES = 40
ARRAYS = {"a": 2, "b": 2, "c": 2, "x": 1, "y": 1}
OTHER = ("range(n)", "range(m)", "range(1, n - 1)", "range(n - 1, -1, -1)", "range(0, n, 2)",
         "range(n - 1, 0, -2)", "range(3)", "range(0)")


class Checked(np.ndarray[Any, Any]):
    """An array without indices below 0."""

    def _check(self, index: Any) -> None:
        for i, n in zip(index if isinstance(index, tuple) else (index,), self.shape, strict=False):
            if not 0 <= i < n:
                raise IndexError

    def __getitem__(self, index: Any) -> Any:
        self._check(index)
        return super().__getitem__(index)

    def __setitem__(self, index: Any, value: Any) -> None:
        self._check(index)
        super().__setitem__(index, value)


class Generator:
    """Writes one function."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.lines: list[str] = []
        self.count = 0

    def name(self, base: str) -> str:
        self.count += 1
        return f"{base}{self.count}"

    def index(self, loops: list[str]) -> str:
        r = self.random
        v = r.choice(loops)
        return r.choice([v, v, v, v, v, f"{v} + {r.randint(0, 2)}", f"2 * {v}", f"n - 1 - {v}",
                         f"{v} + {r.choice(loops)}", f"({v}) % n", str(r.randint(0, 3))])

    def element(self, loops: list[str]) -> str:
        array = self.random.choice(list(ARRAYS))
        return f"{array}[{', '.join(self.index(loops) for _ in range(ARRAYS[array]))}]"

    def value(self, loops: list[str], names: list[str], depth: int = 0) -> str:
        r = self.random
        kind = r.random()
        if kind < 0.5 or depth > 2:
            return self.element(loops)
        if kind < 0.6 and names:
            return r.choice(names)
        if kind < 0.7:
            return r.choice(["0.5", "2", "1.0", "-1", r.choice(loops)])
        p, q = (self.value(loops, names, depth + 1) for _ in range(2))
        if kind < 0.78:
            return f"{r.choice(['min', 'max'])}({p}, {q})"
        if kind < 0.84:
            return f"({p} if {q} > {self.value(loops, names, depth + 1)} else {q})"
        return f"({p} {r.choice('+-*')} {q})"

    def statement(self, indent: int, loops: list[str], names: list[str], depth: int) -> None:
        r, pad = self.random, "    " * indent
        kind = r.random()
        if kind < 0.35 or depth > 3 or (kind >= 0.62 and len(loops) > 2):
            self.lines.append(f"{pad}{self.element(loops)} {r.choice(['=', '+=', '-='])} "
                              f"{self.value(loops, names)} * 0.25")
        elif kind < 0.45 and names:
            s, v = r.choice(names), self.value(loops, [])
            self.lines.append(pad + r.choice([
                f"{s} += {v} * 0.25", f"{s} = max({s}, {v})", f"{s} = {v} * 0.5",
                f"if {self.value(loops, [])} > 0.1: {s} -= {v}"]))
        elif kind < 0.55:
            s = self.name("s")
            self.lines.append(f"{pad}{s} = {r.choice(['0.0', '1', self.element(loops)])}")
            names.append(s)
            self.statement(indent, loops, names, depth)
            self.lines.append(f"{pad}{self.element(loops)} = {s}")
        elif kind < 0.62:
            self.lines.append(f"{pad}if {self.value(loops, names)} > {self.value(loops, names)}:")
            self.body(indent + 1, loops, list(names), depth + 1)
        else:
            self.loop(indent, loops, names, depth)

    def loop(self, indent: int, loops: list[str], names: list[str], depth: int) -> None:
        r, pad, v = self.random, "    " * indent, self.name("i")
        if r.random() < 0.25:
            w = self.name("j")
            self.lines.append(f"{pad}for {v}, {w} in ndrange((0, n - {r.randint(0, 2)}), m):")
            inner = [v, w]
        else:
            ranges = OTHER + ((f"range({loops[-1]})", f"range({loops[-1]}, n)") if loops else ())
            self.lines.append(f"{pad}for {v} in {r.choice(ranges)}:")
            inner = [v]
        self.body(indent + 1, [*loops, *inner], list(names), depth + 1)

    def body(self, indent: int, loops: list[str], names: list[str], depth: int) -> None:
        for _ in range(self.random.choice([1, 1, 2, 2, 3])):
            self.statement(indent, loops, names, depth)

    def function(self, name: str) -> Callable[..., None]:
        for _ in range(self.random.choice([1, 1, 2])):
            self.loop(1, [], [], 1)
        text = "def nest(a, b, c, x, y, n, m):\n" + "\n".join(self.lines) + "\n"
        linecache.cache[name] = (len(text), None, text.splitlines(True), name)
        space: dict[str, Any] = {"ndrange": ndrange}
        exec(compile(text, name, "exec"), space)
        made: Callable[..., None] = space["nest"]
        return made


def arguments(seed: int, size: int, dtype: Any) -> dict[str, Any]:
    """Return arrays, some of which share memory."""
    rng = np.random.default_rng(seed)
    made = {name: rng.standard_normal((3 * size,) if ndim == 1 else (size, size)).astype(dtype)
            for name, ndim in ARRAYS.items()}
    way = seed % 7
    if way == 0:
        made["b"] = made["a"]
    elif way == 1:
        made["y"] = made["x"][1:]
    elif way == 2:
        made["b"] = made["a"].T
    elif way == 3:
        made["b"], made["x"] = made["b"][::-1], made["x"][::-1]
    return made


@pytest.mark.grid
@pytest.mark.parametrize("seed", range(CASES))
def test_random_nest(seed: int) -> None:
    """A nest computes what its Python computes, or fails as that does."""
    generator = Generator(seed)
    function = generator.function(f"<nest {seed}>")
    n, m = generator.random.choice([(5, 7), (8, 3), (17, 18), (3, 1), (20, 13), (9, 0)])
    dtype = generator.random.choice([np.float64, np.float64, np.float32])
    ours = arguments(seed, 2 * max(n, m) + 4, dtype)
    expected = arguments(seed, 2 * max(n, m) + 4, dtype)
    fails = False
    with np.errstate(all="ignore"):
        try:
            function(*(v.view(Checked) for v in expected.values()), n, m)
        except IndexError:
            fails = True
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", weft.DependenceWarning)
        try:
            weft.compute(function)(*ours.values(), n, m)
        except BoundsError:
            assert fails, "\n".join(generator.lines)
            return
        except KernelError as error:
            pytest.fail(f"{error}\n" + "\n".join(generator.lines))
    assert not fails, "\n".join(generator.lines)
    for name, wanted in expected.items():
        finite = np.abs(np.where(np.isfinite(wanted), wanted, 0))
        scale = float(finite.max(initial=1))
        if scale < 1e6:  # beyond, differences in rounding have grown
            np.testing.assert_allclose(ours[name], wanted, rtol=0, err_msg="\n".join(
                generator.lines), atol=scale * (1e-10 if dtype is np.float64 else 2e-3))
