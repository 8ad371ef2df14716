"""Tile registers: asked for, tried in a child process, and switched off."""

import binascii
import os
import platform
import signal
import struct
import sys

import numpy as np
import pytest

import weft
from weft.backends import cpu
from weft.compilers.llvm import HostCPU, host_cpu
from weft.ir.dtype import uint32
from weft.ir.op import Op
from weft.runtimes.cpu import amx, amx_probe

WITH_TILES = "+avx512f,+avx512bf16,+amx-tile,+amx-bf16,+amx-int8"
native = pytest.mark.skipif(sys.platform != "linux" or platform.machine() != "x86_64",
                            reason="the program of the trial is for Linux on x86-64")


@pytest.fixture
def fresh():
    cpu.tiles_state.cache_clear()
    cpu.host_target.cache_clear()
    yield
    cpu.tiles_state.cache_clear()
    cpu.host_target.cache_clear()


@pytest.fixture
def machine(monkeypatch, fresh, cache_dir):
    """A machine with tile registers, its trial run as given: what it says or an exception."""
    from weft.compilers import llvm
    from weft.store import DiskCache

    calls = []
    folder = DiskCache(str(cache_dir))
    monkeypatch.setattr("weft.store.cache", lambda: folder)

    def prepare(result="", permission=""):
        monkeypatch.setattr(llvm, "host_cpu", lambda: HostCPU(
            "x86_64-unknown-linux-gnu", "sapphirerapids", WITH_TILES))
        monkeypatch.setattr(amx, "request", lambda: permission)

        class Trial:
            def verdict(self, seconds):
                if isinstance(result, Exception):
                    raise result
                return result

            def close(self):
                calls.append("closed")

        def started():
            calls.append(result)
            return Trial()

        monkeypatch.setattr(amx, "_started", started)
        monkeypatch.setattr(amx, "_trial", None)
        monkeypatch.setattr(amx, "_described", lambda: "flags: amx_tile")
        return calls

    return prepare


def test_the_answer_of_the_kernel_is_a_reason_or_nothing():
    reason = amx.request()
    has = "+amx-tile" in host_cpu().features.split(",")
    assert isinstance(reason, str)
    assert has or reason or cpu.tiles_state() == "absent"


def test_a_good_trial_is_remembered(machine):
    calls = machine()
    assert cpu.tiles_state() == ""
    assert cpu.host_target().supports(Op.MATRIX2, uint32)
    cpu.tiles_state.cache_clear()
    assert cpu.tiles_state() == ""
    assert len(calls) == 1


@pytest.mark.parametrize("result", ["wrong in a trial", OSError("no files in memory"),
                                    TimeoutError()])
def test_a_trial_that_fails_leaves_them_alone(machine, result):
    calls = machine(result)
    assert cpu.tiles_state()
    assert not cpu.host_target().supports(Op.MATRIX2, uint32)
    assert cpu.host_target().supports(Op.DOT2, uint32)
    cpu.tiles_state.cache_clear()
    assert cpu.tiles_state()
    assert len(calls) == (2 if isinstance(result, OSError) else 1)  # what was not checked is again


def test_a_trial_that_was_begun_is_waited_for(machine):
    calls = machine()
    amx.begin()
    amx.begin()
    assert cpu.tiles_state() == ""
    amx.begin()
    assert len(calls) == 1


def test_no_trial_without_permission(machine):
    calls = machine("", "refused by the kernel")
    assert cpu.tiles_state() == "refused by the kernel"
    assert not calls


def test_switched_off(machine, monkeypatch):
    from weft import config

    calls = machine()
    monkeypatch.setenv("WEFT_AMX", "0")
    config.reset()
    assert "WEFT_AMX" in cpu.tiles_state()
    assert not calls
    config.reset()


def product_of_words(data, kinds):
    """Return the sums over words of two tiles, row by row, in the arithmetic of Python."""
    found = []
    for half, kind in zip((data[:1024], data[1024:]), kinds, strict=True):
        wide = b"".join(bytes(2) + half[i : i + 2] for i in range(0, 1024, 2))
        found.append(struct.unpack("<512f", wide) if kind == "e"
                     else struct.unpack(f"<1024{kind}", half))
    a, b = (np.array([int(v) for v in tile]).reshape(16, 16, -1) for tile in found)
    return np.einsum("rwt,wct->rc", a, b)


def test_the_sum_of_a_trial_is_that_of_the_products():
    data = amx_probe.operands()
    parts = [product_of_words(data, kinds) for kinds in ("ee", "bb", "Bb")]
    assert np.abs(parts[0]).max() < 1 << 24, "all sums are exact in float32"
    made = parts[0].astype("<f4").tobytes() + b"".join(p.astype("<i4").tobytes() for p in parts[1:])
    assert binascii.crc32(made) == amx_probe._SUM


@native
def test_the_trial_tells_right_from_wrong(monkeypatch):
    """It is right where this process may use tiles, and fails where an instruction is another."""
    code = amx_probe._CODE
    if "+amx-int8" not in host_cpu().features.split(",") or amx.request():
        assert amx_probe.Trial().verdict(60).startswith("failing")
        return
    assert amx_probe.Trial().verdict(60) == ""
    for old, new, said in (
        ("c4e26b5ec1", "c4e2695ec1", "wrong in a trial"),
        ("c4e26a5cc1", "c4e26b5ec1", "wrong in a trial"),
        ("c4e2784906", "0f0b4849ff", f"failing in a trial (exit code {-signal.SIGILL})"),
        ("ba000c00000f05", "ba000c00009090", "failing in a trial (exit code 0)"),
    ):
        assert code.count(bytes.fromhex(old)) == 1
        changed = code.replace(bytes.fromhex(old), bytes.fromhex(new))
        monkeypatch.setattr(amx_probe, "_CODE", changed)
        assert amx_probe.Trial().verdict(60) == said


@native
def test_a_trial_that_hangs_is_ended(monkeypatch):
    monkeypatch.setattr(amx_probe, "_CODE", bytes.fromhex("ebfe") + amx_probe._CODE[2:])
    trial = amx_probe.Trial()
    with pytest.raises(TimeoutError):
        trial.verdict(0.05)
    with pytest.raises(ProcessLookupError):
        os.kill(trial._process, 0)


def test_a_trial_that_a_forked_child_knows_of_is_the_parents(monkeypatch):
    closed = []

    class Trial:
        def close(self):
            closed.append(self)

    trial = Trial()
    monkeypatch.setattr(amx, "_trial", trial)
    amx._forget()
    assert closed == [trial]
    assert amx._trial is None


@pytest.mark.grid
@pytest.mark.parametrize(("m", "n", "k"), [(16, 16, 32), (48, 40, 70), (33, 64, 257)])
@pytest.mark.parametrize(("a_kind", "b_kind"), [("bfloat16", "bfloat16"), ("int8", "int8"),
                                            ("uint8", "int8")])
def test_narrow_products_are_exact(m, n, k, a_kind, b_kind, rng):
    """By whatever instructions this machine has."""
    a, b = (rng.integers(0 if kind == "uint8" else -4, 5, shape)
            for kind, shape in ((a_kind, (m, k)), (b_kind, (k, n))))
    wide = weft.float32 if a_kind == "bfloat16" else weft.int32
    x, y = (weft.tensor(v.astype(np.float32)).to(getattr(weft, kind)).realize().to(wide)
            for v, kind in ((a, a_kind), (b, b_kind)))
    assert np.array_equal((x @ y).numpy(), a @ b)
