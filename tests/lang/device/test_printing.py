"""What kernels print: the same natively, on the interpreter, and in Python where types agree."""

from __future__ import annotations

import ctypes
import sys
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import weft
from weft import gpu
from weft.ir import dtype as dt
from weft.ir.text.print_format import shown

FLOATS = [0.0, -0.0, 1.0, 1.65, -2.5, 0.1, 1 / 3, 1e15, 9007199254740993.0, 1e16, 123456789012.0,
          1e-4, 9.9e-5, 1.5e-7, 5e-324, 2.0**-44, 1.7976931348623157e308, float("inf"),
          float("-inf"), float("nan")]  # fmt: skip


@weft.kernel
def speak(x: Any) -> None:
    i = gpu.grid(1)
    if i < x.shape[0]:
        print("x", i, x[i], x[i] > 1)


def lines(run: Any, capfd: Any, *args: Any) -> list[str]:
    """Return what a launch prints, by line."""
    sys.stdout.flush()
    capfd.readouterr()
    run(*args)
    sys.stdout.flush()
    ctypes.CDLL(None).fflush(None)
    found: list[str] = capfd.readouterr().out.splitlines()
    return found


@pytest.mark.parametrize("name", ["float64", "float32", "float16", "bfloat16", "int8", "uint64",
                                  "bool"])  # fmt: skip
def test_all_devices_print_alike(name: str, capfd: Any) -> None:
    d = np.dtype(ml_dtypes.bfloat16 if name == "bfloat16" else name)
    with np.errstate(over="ignore", invalid="ignore"):
        x = (np.array(FLOATS) if d.kind not in "iub" else np.arange(-3, 4)).astype(d)
    native = lines(speak[1, 32], capfd, x)
    assert native == lines(weft.interpret(speak, 1, 32), capfd, x)
    assert len(native) == len(x)
    for i, value in enumerate(x.tolist()):
        word = native[i].split()[2]
        if name == "float64" and value != 2.0**-44:
            assert word == repr(value)
        elif name == "float32":
            assert np.float32(word) == x[i] or x[i] != x[i]
        elif d.kind in "iub":
            assert word == str(value)
    if name == "float32":
        assert native[3] == "x 3 1.65 True"
        assert native[5] == "x 5 0.1 False"


def test_fewest_digits_that_tell_a_number_apart(rng: np.random.Generator) -> None:
    for x in rng.standard_normal(200) * 10.0 ** rng.integers(-20, 20, 200):
        assert float(shown(float(x), dt.float64)) == x
        single = np.float32(x)
        text = shown(float(single), dt.float32)
        assert np.float32(text) == single
        digits = text.partition("e")[0].strip("-").replace(".", "").strip("0")
        assert len(digits) <= 9 or abs(x) > 1e7
    assert shown(3.4028234663852886e38, dt.float32) == "3.4028235e+38"
