"""Tile registers: asked for, tried in a child process, and switched off."""

import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import weft
from weft.backends import cpu
from weft.compilers.llvm import HostCPU, host_cpu
from weft.ir.dtype import uint32
from weft.ir.op import Op
from weft.runtimes import tiles, tiles_trial

WITH_TILES = "+avx512f,+avx512bf16,+amx-tile,+amx-bf16,+amx-int8"


@pytest.fixture
def fresh():
    cpu.tiles_state.cache_clear()
    cpu.host_target.cache_clear()
    yield
    cpu.tiles_state.cache_clear()
    cpu.host_target.cache_clear()


@pytest.fixture
def machine(monkeypatch, fresh, cache_dir):
    """A machine with tile registers, its trial run as given: an exit code or an exception."""
    from weft.compilers import llvm
    from weft.store import DiskCache

    calls = []
    folder = DiskCache(str(cache_dir))
    monkeypatch.setattr("weft.store.cache", lambda: folder)

    def prepare(result=0, permission=""):
        monkeypatch.setattr(llvm, "host_cpu", lambda: HostCPU(
            "x86_64-unknown-linux-gnu", "sapphirerapids", WITH_TILES))
        monkeypatch.setattr(tiles, "request", lambda: permission)

        class Trial:
            def wait(self, timeout):
                if isinstance(result, Exception):
                    raise result
                return result

            def kill(self):
                calls.append("killed")

        def started():
            calls.append(result)
            return Trial()

        monkeypatch.setattr(tiles, "_started", started)
        monkeypatch.setattr(tiles, "_trial", None)
        monkeypatch.setattr(tiles, "_described", lambda: "flags: amx_tile")
        return calls

    return prepare


def test_the_answer_of_the_kernel_is_a_reason_or_nothing():
    reason = tiles.request()
    has = "+amx-tile" in host_cpu().features.split(",")
    assert isinstance(reason, str)
    assert has or reason or cpu.tiles_state() == "absent"


def test_a_good_trial_is_remembered(machine):
    calls = machine(0)
    assert cpu.tiles_state() == ""
    assert cpu.host_target().supports(Op.MATRIX2, uint32)
    cpu.tiles_state.cache_clear()
    assert cpu.tiles_state() == ""
    assert len(calls) == 1


@pytest.mark.parametrize("result", [1, -4, OSError("no python"),
                                    subprocess.TimeoutExpired("check", 1)])
def test_a_trial_that_fails_leaves_them_alone(machine, result):
    calls = machine(result)
    assert cpu.tiles_state()
    assert ("killed" in calls) == isinstance(result, subprocess.TimeoutExpired | OSError)
    assert not cpu.host_target().supports(Op.MATRIX2, uint32)
    assert cpu.host_target().supports(Op.DOT2, uint32)


def test_a_trial_that_was_begun_is_waited_for(machine):
    calls = machine(0)
    tiles.begin()
    tiles.begin()
    assert cpu.tiles_state() == ""
    tiles.begin()
    assert len(calls) == 1


def test_no_trial_without_permission(machine):
    calls = machine(0, "refused by the kernel")
    assert cpu.tiles_state() == "refused by the kernel"
    assert not calls


def test_switched_off(machine, monkeypatch):
    from weft import config

    calls = machine(0)
    monkeypatch.setenv("WEFT_AMX", "0")
    config.reset()
    assert "WEFT_AMX" in cpu.tiles_state()
    assert not calls
    config.reset()


def ran(script) -> int:
    return subprocess.run([sys.executable, "-I", "-S", str(script)], capture_output=True,
                          timeout=100).returncode


def test_the_trial_tells_right_from_wrong(tmp_path):
    """It is right where this process may use tiles, and fails where an instruction is another."""
    script = Path(tiles_trial.__file__)
    if "+amx-int8" not in host_cpu().features.split(",") or tiles.request():
        assert ran(script) != 0
        return
    assert ran(script) == 0
    text = script.read_text(encoding="utf-8")
    for old, new, errors in (("c4e26b5ec1", "c4e2695ec1", 1), ("c4e26a5cc1", "c4e26b5ec1", 1),
                             ("c4e2784907", "0f0b4849ff", -signal.SIGILL)):
        assert text.count(old) == 1
        other = tmp_path / "trial.py"
        other.write_text(text.replace(old, new), encoding="utf-8")
        assert ran(other) == errors


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
