"""Programs of a line or a few, evaluated with Weft and with PyTorch or NumPy, and compared.

The tables are the files in ``behaviour``: a program on each line (in ``blocks.txt`` and
``training.txt`` several lines, set apart by empty ones), whose last expression is the result:
values, dtypes, shapes, signs of zeros, texts, Python's own types, or an error of both. Names are
`m` (the library), `t` (its ``tensor``), `A` and `I` (floats and integers from 0 on, of a shape),
`nn`, `F` and `optim`. In ``numpy.txt`` `m` is NumPy in both runs, and `t` and `A` give its arrays
or tensors of Weft's. What Weft takes and the other library refuses is an extension.
"""

import ast
import copy
import io
import math
import pickle
import re
import warnings
from pathlib import Path

import numpy as np
import pytest

import weft
from capabilities import module

torch = module("torch")
pytestmark = pytest.mark.requires("torch")

TABLES = sorted((Path(__file__).parent / "behaviour").glob("*.txt"))
SLICES = 25  # of each table; the fast tier runs a tenth of them


def programs(table):
    """Return the programs of a table."""
    text = table.read_text()
    if table.stem in ("blocks", "training"):
        return [p.strip("\n") for p in re.split(r"\n\s*\n", text) if p.strip()]
    return [line for line in text.splitlines() if line.strip()]


def names(library, table):
    """Return what programs of a table may name."""
    found = {"np": np, "math": math, "copy": copy, "pickle": pickle, "io": io, "inf": math.inf,
             "nan": math.nan}  # fmt: skip
    if table.stem == "numpy":
        make = np.array if library is np else lambda x, dtype=None: weft.tensor(np.array(x, dtype))
        return {**found, "m": np, "t": make,
                "A": lambda *s: make(np.arange(float(np.prod(s))).reshape(s))}  # fmt: skip
    library.manual_seed(0)
    return {**found, "m": library, "t": library.tensor, "nn": library.nn, "optim": library.optim,
            "F": library.nn.functional,
            "A": lambda *s: library.arange(float(np.prod(s))).reshape(s),
            "I": lambda *s: library.arange(int(np.prod(s))).reshape(s)}  # fmt: skip


def outcome(program, library, table):
    """Return the result of a program as `plain` has it, or the error that it raises."""
    tree, values = ast.parse(program), names(library, table)
    last = ast.Expression(tree.body.pop().value)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            exec(compile(tree, "program", "exec"), values)
            return plain(eval(compile(last, "program", "eval"), values))
    except Exception as error:
        return error


def plain(value):
    """Return a result with tensors as dtype and values, and one name for both libraries."""
    if isinstance(value, torch.Tensor | weft.Tensor):
        kind = str(value.dtype).rpartition(".")[2]
        value = value.detach()
        value = value.to(torch.float32 if isinstance(value, torch.Tensor) else weft.float32) if (
            kind in ("bfloat16", "float16")) else value  # fmt: skip
        return kind, np.array(value.numpy())
    if isinstance(value, np.ndarray | np.generic):
        return value.dtype.name, np.asarray(value)
    if isinstance(value, torch.dtype | weft.DType | np.dtype):
        return str(value).rpartition(".")[2]
    if isinstance(value, dict):
        return {key: plain(v) for key, v in value.items()}
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    if isinstance(value, str):
        return value.replace("torch.", "m.").replace("weft.", "m.")
    return value.__name__ if isinstance(value, type) else value


def difference(mine, theirs):
    """Return what differs in two outcomes, None where nothing does."""
    if isinstance(mine, Exception):
        if isinstance(theirs, Exception) and isinstance(mine, weft.WeftError | type(theirs)):
            return None
        return f"{type(mine).__name__}: {mine}"
    return None if isinstance(theirs, Exception) or same(mine, theirs) else f"{mine}, not {theirs}"


def same(mine, theirs):
    """Whether two results are alike."""
    if isinstance(mine, tuple) and isinstance(theirs, tuple):
        (kind, a), (other, b) = mine, theirs
        if kind != other or a.shape != b.shape:
            return False
        if a.dtype.kind != "f":
            return np.array_equal(a, b)
        near = 1e-2 if kind in ("bfloat16", "float16") else 3e-5
        close = np.isclose(a, b, near, near, equal_nan=True)
        return bool((close & ((a != 0) | (np.signbit(a) == np.signbit(b)))).all())
    if isinstance(mine, list) and isinstance(theirs, list):
        return len(mine) == len(theirs) and all(map(same, mine, theirs))
    if isinstance(mine, dict) and isinstance(theirs, dict):
        return list(mine) == list(theirs) and all(same(mine[k], theirs[k]) for k in mine)
    if isinstance(mine, float) and isinstance(theirs, float):
        return mine == pytest.approx(theirs, 3e-5, 3e-5, nan_ok=True)
    return type(mine) is type(theirs) and bool(mine == theirs)


@pytest.mark.grid
@pytest.mark.parametrize("part", range(SLICES))
@pytest.mark.parametrize("table", TABLES, ids=lambda t: t.stem)
def test_behaviour(table, part, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = []
    for program in programs(table)[part::SLICES]:
        theirs = outcome(program, np if table.stem == "numpy" else torch, table)
        words = difference(outcome(program, weft, table), theirs)
        if words:
            found.append(f"{program}\n    {words}")
    assert not found, "\n".join(found)


def test_differences_are_found():
    zero, one = (("float32", np.array(v, np.float32)) for v in (0.0, 1.0))
    assert difference([zero], [zero]) is None
    assert difference(("float32", -zero[1]), zero)
    assert difference(one, zero)
    assert difference(("int64", np.array(1)), one)
    assert difference([one], [one, one])
    assert difference(KeyError("a"), one)
    assert difference(KeyError("a"), IndexError("a"))
    assert difference(1, True)
    assert len(TABLES) >= 7
