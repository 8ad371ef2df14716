"""The sanitiser's cheap checks as compiled code: the same findings, none in correct kernels."""

import inspect
import os
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

import weft
from weft import gpu
from weft.errors import BoundsError, KernelError, LaunchError

f32 = np.float32


@weft.kernel
def past_the_end(x: Any, out: Any) -> None:
    i = gpu.grid(1)
    out[i] = x[i + 1]  # BUG


@weft.kernel
def shared_never_written(x: Any, out: Any) -> None:
    s = gpu.shared.array(64, weft.float32)
    t = gpu.threadIdx.x
    if t != 5:
        s[t] = x[t]
    gpu.syncthreads()
    out[t] = s[63 - t]  # BUG


@weft.kernel
def local_never_written(x: Any, out: Any) -> None:
    a = gpu.local.array((2, 2), weft.float32)
    t = gpu.threadIdx.x
    a[0, 0] = a[1, 1] = x[t]
    out[t] = a[0, 0] + a[1, t % 2]  # BUG


@weft.kernel
def some_wait(x: Any, out: Any) -> None:
    t = gpu.threadIdx.x
    for _ in range(int(x[t])):
        gpu.syncthreads()  # BUG
    out[t] = 1


@weft.kernel
def odd_place(x: Any, out: Any) -> None:
    t = gpu.threadIdx.x
    a, b = gpu.load(x, t // 2, 2)  # BUG
    out[t] = a + b


@weft.kernel
def never_negative(x: Any, out: Any) -> None:
    t = gpu.threadIdx.x
    assert x[t] != 17  # BUG
    out[t] = x[t]


KINDS = {"past_the_end": "out-of-bounds", "shared_never_written": "uninitialised",
         "local_never_written": "uninitialised", "some_wait": "barrier-divergence",
         "odd_place": "misaligned", "never_negative": "assertion"}  # fmt: skip


def _line(kernel: Any) -> int:
    lines, start = inspect.getsourcelines(kernel.__weft_function__)
    return next(start + k for k, line in enumerate(lines) if "# BUG" in line)


@pytest.mark.parametrize("name", KINDS)
def test_a_bug_is_found_by_compiled_code(name: str) -> None:
    kernel = globals()[name]
    x, out = np.arange(64, dtype=f32), np.zeros(64, f32)
    native = weft.sanitize(kernel, 1, 64, native=True)(x, out)
    full = weft.sanitize(kernel, 1, 64)(x, out.copy())
    (finding,) = native.findings
    (other,) = full.findings
    assert (finding.kind, finding.file) == (KINDS[name], __file__)
    assert finding.line == _line(kernel)
    assert finding.kind == other.kind
    if name in ("past_the_end", "shared_never_written", "never_negative"):
        assert finding.threads[0] == other.threads[0]
        assert finding.message == other.message or name == "shared_never_written"
    assert finding.count >= 1


def test_one_code_is_used_again() -> None:
    x, out = np.arange(64, dtype=f32), np.zeros(63, f32)
    run = weft.sanitize(past_the_end, 1, 63, native=True)
    for _ in range(2):
        assert run(x, out).findings == ()
        np.testing.assert_array_equal(out, x[1:])
    assert len(run(x[:40].copy(), out).findings) == 1
    assert run(x, out).findings == ()


def test_checked_kernels_raise_what_they_find() -> None:
    checked = weft.kernel(check=True)(shared_never_written.__weft_function__)
    with pytest.raises(LaunchError, match=r"uninitialised: thread \(58, 0, 0\)"):
        checked[1, 64](np.zeros(64, f32), np.zeros(64, f32))
    bounds = weft.kernel(check=True)(past_the_end.__weft_function__)
    with pytest.raises(BoundsError, match=r"thread \(31, 0, 0\) of block \(1, 0, 0\)"):
        bounds[2, 32](np.zeros(64, f32), np.zeros(64, f32))
    out = np.zeros(64, f32)
    for _ in range(80):  # more often than a launch needs to become native
        bounds[2, 32](np.arange(65, dtype=f32), out)
    np.testing.assert_array_equal(out, np.arange(1, 65))


@pytest.mark.slow
def test_the_environment_asks_for_checks() -> None:
    program = ("import numpy as np, weft, sys; sys.path.insert(0, sys.argv[1])\n"
               "from test_native_checks import local_never_written as k\n"
               "x = np.zeros(64, np.float32)\nk[1, 64](x, x)\n")
    run = [sys.executable, "-c", program, os.path.dirname(__file__)]
    for value, words in (("native", "uninitialised"), ("all", "WEFT_SANITIZE")):
        found = subprocess.run(run, env={**os.environ, "WEFT_SANITIZE": value}, text=True,
                               capture_output=True, timeout=120)
        assert words in found.stderr
        assert found.returncode


def test_built_kernels_are_checked_too() -> None:
    with weft.build.kernel("built") as k:
        x = k.array("x", weft.float32, 1, writable=True)
        k.store(x, k.grid(1), 1, at=("prog.img", 2, 3))
    x = np.zeros(3, f32)
    (finding,) = weft.sanitize(k.program, 1, 4, native=True)(x).findings
    assert (finding.kind, finding.file, finding.line) == ("out-of-bounds", "prog.img", 2)
    assert finding.threads == (((0, 0, 0), (3, 0, 0)),)


def test_an_option_that_means_nothing() -> None:
    with pytest.raises(KernelError):
        weft.sanitize(len, 1, 1, native=True)
