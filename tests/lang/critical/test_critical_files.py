"""Latency, affinity, and critical functions as C headers and libraries."""

import ctypes
import os
import shutil
import subprocess

import numpy as np
import pytest

import weft
from weft.errors import DeviceError, LaunchError, LibraryNotFoundError, UnsupportedError
from weft.lang.critical.latency import Latency, Percentiles


@weft.critical(target_latency_ns=10_000_000)
def weigh(x: weft.float32[::1], weights: weft.float64[3], sign: weft.bool,
          bias: weft.int16) -> tuple[weft.float64, weft.uint8]:
    """Weigh three numbers."""
    total = weft.float64(bias)
    for i in range(3):
        total += x[i] * weights[i]
    return -total if sign else total, weft.uint8(x.size)


X = np.array([1, 2, 3, 4], np.float32)
WEIGHTS = np.array([1.0, 10.0, 100.0])


def test_latency():
    found = weigh.latency(X, WEIGHTS, False, 7, calls=2000)
    assert found.calls == 2000
    for p in (found.native, found.python):
        assert 0 <= p.p50 <= p.p99 <= p.p999 <= p.longest
        assert 0 < p.mean < 1e6
    assert found.met is True
    assert (found.p50, found.p99) == (found.native.p50, found.native.p99)
    text = str(found)
    assert "target 1e+07 ns: met" in text
    assert "p99.9" in text


def test_a_missed_target_is_no_error():
    @weft.critical(target_latency_ns=1)
    def slow(n: weft.int64) -> weft.float64:
        found = 0.0
        for i in range(n):
            found = found / 3 + i
        return found

    found = slow.latency(2000, calls=200)
    assert found.met is False
    assert "missed" in str(found)
    assert found.p50 > 1000

    @weft.critical
    def free(x: weft.int64) -> weft.int64:
        return x

    assert free.latency(1, calls=10).met is None


def test_what_is_below_the_step_of_the_clock_says_so():
    some = Percentiles(p50=0.0, p99=10.0, p999=25.04, longest=400.0, mean=1.5)
    rows = str(Latency(some, some, None, 100, step_ns=10.0)).splitlines()
    assert rows[1].split() == ["native", "<10.0", "10.0", "25.0", "400.0", "1.5"]
    for calls in (100, 2000):
        found = weigh.latency(X, WEIGHTS, False, 7, calls=calls)
        assert found.step_ns > 0
        assert " 0.0" not in str(found)


def test_latency_of_calls_that_fail():
    with pytest.raises(IndexError):
        weigh.latency(X[:2], WEIGHTS, False, 7, calls=10)
    with pytest.raises(LaunchError):
        weigh.latency(X, WEIGHTS, False, 7, calls=0)

    @weft.critical
    def once(state: weft.int64[1]):
        assert state[0] < 5
        state[0] += 1

    with pytest.raises(LaunchError, match="failed"):
        once.latency(np.zeros(1, np.int64), calls=50)


def test_pinned_sets_the_affinity_and_restores_it():
    if not hasattr(os, "sched_getaffinity"):
        with pytest.raises(DeviceError), weigh.pinned(0):
            pass
        return
    before = os.sched_getaffinity(0)
    cpu = max(before)
    with weigh.pinned(cpu) as function:
        assert function is weigh
        assert os.sched_getaffinity(0) == {cpu}
        assert weigh(X, WEIGHTS, True, 0) == (-321.0, 4)
    assert os.sched_getaffinity(0) == before
    with pytest.raises(ZeroDivisionError), weigh.pinned(cpu):
        raise ZeroDivisionError
    assert os.sched_getaffinity(0) == before
    for wrong in (1 << 20, -1, None):
        with pytest.raises(DeviceError), weigh.pinned(wrong):
            pass
    assert os.sched_getaffinity(0) == before

    @weft.critical(cpu_affinity=cpu)
    def same(x):
        return x

    with same.pinned():
        assert os.sched_getaffinity(0) == {cpu}


def test_the_header_names_types_and_codes():
    text = weigh.header()
    for part in ("const float *x,", "int64_t x_0,", "const double *weights,", "bool sign,",
                 "int16_t bias,", "double *result0,", "uint8_t *result1,", "int32_t weigh(",
                 "Weigh three numbers.", "index out of bounds, line", "weft_failure *failure"):
        assert part in text, text


class Failure(ctypes.Structure):
    _fields_ = (("code", ctypes.c_int32), ("unused", ctypes.c_int32), ("check", ctypes.c_int32),
                ("padding", ctypes.c_int32), ("value", ctypes.c_int64), ("bound", ctypes.c_int64))


def linker():
    return next((name for name in ("cc", "gcc", "clang", "ld.lld", "ld") if shutil.which(name)),
                None)


def test_a_shared_library_runs_without_python(tmp_path):
    path = tmp_path / "weigh.so"
    if linker() is None:
        with pytest.raises(LibraryNotFoundError):
            weigh.save(path)
        return
    weigh.save(path)
    assert (tmp_path / "weigh.h").read_text() == weigh.header()
    function = ctypes.CDLL(str(path)).weigh
    total, size, failure = ctypes.c_double(), ctypes.c_uint8(), Failure()

    def call(n, address=X.ctypes.data, told=failure):
        return function(ctypes.c_void_p(address), ctypes.c_int64(n),
                        ctypes.c_void_p(WEIGHTS.ctypes.data), ctypes.c_bool(True),
                        ctypes.c_int16(-5), ctypes.byref(total), ctypes.byref(size),
                        ctypes.byref(told) if told is not None else None)

    assert call(4) == 0
    assert (total.value, size.value) == (-316.0, 4)
    assert call(2) == 1
    assert (failure.code, failure.value, failure.bound) == (1, 2, 2)
    assert call(2, told=None) == 1
    assert call(4, address=None) == -1


PROGRAM = """
#include <stdio.h>
#include "weigh.h"
#include "weigh.h"
int main(void) {
    float x[4] = {1, 2, 3, 4};
    double weights[3] = {1, 10, 100}, total = 0;
    uint8_t size = 0;
    weft_failure failure;
    int32_t status = weigh(x, 4, weights, false, 7, &total, &size, &failure);
    printf("%d %g %d\\n", (int)status, total, (int)size);
    status = weigh(x, 1, weights, false, 7, &total, &size, &failure);
    printf("%d %d %d\\n", (int)status, (int)failure.value, (int)failure.bound);
    return 0;
}
"""


def test_a_program_in_c(tmp_path):
    weigh.save(tmp_path / "weigh.o")
    weigh.save(tmp_path / "weigh.h")
    (tmp_path / "main.c").write_text(PROGRAM)
    cc = shutil.which("cc")
    if cc is None:  # then the symbol is there, at least
        assert b"weigh\0" in (tmp_path / "weigh.o").read_bytes()
        return
    done = subprocess.run([cc, "-Wall", "-Werror", "-o", "main", "main.c", "weigh.o"], text=True,
                          cwd=tmp_path, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    shown = subprocess.run([str(tmp_path / "main")], capture_output=True, text=True, check=True)
    assert shown.stdout.split() == ["0", "328", "4", "1", "1", "1"]


def test_files_of_other_kinds(tmp_path):
    with pytest.raises(UnsupportedError, match="suffix"):
        weigh.save(tmp_path / "weigh.txt")


def test_no_linker(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(LibraryNotFoundError, match="no linker"):
        weigh.save(tmp_path / "weigh.so")


def test_a_function_without_annotations_needs_arguments_first(tmp_path):
    @weft.critical
    def add(x, y):
        return x + y

    with pytest.raises(weft.VariableError, match="annotation of x, y"):
        add.header()
    add.compile(1.0, 2)
    assert "double x,\n    int64_t y,\n    double *result," in add.header()


def test_names_that_c_does_not_have(tmp_path):
    @weft.critical
    def exp(x: weft.float64) -> weft.float64:
        return x + 1

    assert exp(1.0) == 2.0
    assert "int32_t exp_(" in exp.header()

    @weft.critical
    def größe(x: weft.float64) -> weft.float64:
        return x + 1

    assert größe(1.0) == 2.0
    assert größe.header().isascii()

    @weft.critical
    def side(short: weft.bool, long: weft.bool, result: weft.int64) -> weft.int64:
        return result if long else -result if short else 0

    assert side(True, False, 3) == -3
    assert ("bool short_,\n    bool long_,\n    int64_t result_,\n    int64_t *result,"
            in side.header())


def test_the_c_function_itself():
    total, size = ctypes.c_double(), ctypes.c_uint8()
    function = weigh.ctypes
    assert function(X.ctypes.data, 4, WEIGHTS.ctypes.data, False, 7, ctypes.addressof(total),
                    ctypes.addressof(size), None) == 0
    assert (total.value, size.value) == (328.0, 4)
    assert ctypes.cast(function, ctypes.c_void_p).value == weigh.address != 0
