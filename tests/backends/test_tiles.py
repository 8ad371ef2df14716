"""Tile registers: asked for, tried in a child process, and switched off."""

import subprocess

import pytest

from weft.backends import cpu
from weft.compilers.llvm import HostCPU, host_cpu
from weft.frontend import check_tiles
from weft.ir.dtype import uint32
from weft.ir.op import Op
from weft.runtimes import tiles

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

        def run(*args, **options):
            calls.append(args)
            if isinstance(result, Exception):
                raise result
            return subprocess.CompletedProcess(args, result)

        monkeypatch.setattr(subprocess, "run", run)
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
    machine(result)
    assert cpu.tiles_state()
    assert not cpu.host_target().supports(Op.MATRIX2, uint32)
    assert cpu.host_target().supports(Op.DOT2, uint32)


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


def test_the_trial_itself(monkeypatch, fresh):
    """Its products are right here, by whatever instructions this machine has."""
    monkeypatch.setattr(cpu, "_trusted", False)
    assert check_tiles.main() == 0
