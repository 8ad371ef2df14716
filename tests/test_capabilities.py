"""The test suite's own rules: nothing is skipped in silence, no golden file may be missing."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import capabilities
from capabilities import missing, require
from weft import config

TESTS = Path(__file__).parent
SUITE = """
import pytest

@pytest.mark.requires("fork", "torch")
def test_marked():
    assert {runs}

def test_plain():
    pass

def test_golden(golden):
    golden("no/such/file.txt", "text")

def test_random(rng, seed):
    print("drew", rng.integers(1 << 60), seed)
"""


@pytest.fixture
def demand():
    """Set what WEFT_REQUIRE would hold."""
    yield lambda *names: config.reset(config.Config(require=frozenset(names)))
    config.reset()


@pytest.fixture
def absent(monkeypatch):
    monkeypatch.setitem(capabilities.CAPABILITIES, "torch", lambda: "it is away")


def suite(folder, tests, *options, probe, **environ):
    """Run some tests of a small suite under our conftest, in a process of its own."""
    (folder / "test_suite.py").write_text(SUITE.format(runs=True))
    (folder / "absent.py").write_text(
        f"import capabilities\ncapabilities.CAPABILITIES['torch'] = lambda: {probe!r}\n"
    )
    # Only what a plain shell has: the run must make its own seed and cache, as a user's would.
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("WEFT_", "PYTEST_"))}
    path = os.pathsep.join([str(folder), str(TESTS), str(TESTS.parent / "src")])
    chosen = [f"test_suite.py::test_{name}" for name in tests.split()]
    command = [sys.executable, "-m", "pytest", "-p", "absent", "-p", "conftest", *options]
    return subprocess.run(
        [*command, "--rootdir", str(folder), "-c", os.devnull, *chosen],
        env=kept | {"PYTHONPATH": path} | environ,
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    ).stdout


def test_present_capability_runs(monkeypatch):
    monkeypatch.setitem(capabilities.CAPABILITIES, "torch", lambda: "")
    require("torch")
    assert missing("torch") == ""


def test_absent_capability_skips_with_its_reason(absent, demand):
    demand()
    with pytest.raises(pytest.skip.Exception, match="needs torch: it is away"):
        require("torch")


def test_absent_capability_fails_where_it_is_demanded(absent, demand):
    demand("torch")
    with pytest.raises(pytest.fail.Exception, match="WEFT_REQUIRE names torch, but it is away"):
        require("torch")


def test_unknown_capability_is_an_error():
    with pytest.raises(KeyError, match="tourch"):
        require("tourch")


def test_every_capability_in_use_is_declared(demand):
    for name in capabilities.CAPABILITIES:
        assert isinstance(missing(name), str)


@pytest.mark.slow
@pytest.mark.parametrize("workers", [[], ["-n", "1"]])
def test_marked_tests_are_deselected(tmp_path, workers):
    out = suite(tmp_path, "marked plain", *workers, probe="it is away")
    assert "1 passed" in out
    assert "skipped" not in out
    assert "weft: no torch (it is away): tests that need it are deselected" in out


def test_marked_tests_fail_where_demanded(tmp_path):
    out = suite(tmp_path, "marked plain", probe="it is away", WEFT_REQUIRE="torch")
    assert "1 passed" in out
    assert "1 error" in out
    assert "WEFT_REQUIRE names torch, but it is away" in out


def test_missing_golden_file_fails(tmp_path):
    out = suite(tmp_path, "golden", probe="")
    assert "1 failed" in out
    assert "is missing: run pytest --update-golden" in out
    assert "repeat with WEFT_TEST_SEED=" in out


@pytest.mark.slow
def test_seed_is_fresh_and_can_be_repeated(tmp_path):
    def drawn(**environ):
        out = suite(tmp_path, "random", "-s", probe="", **environ)
        return next(line for line in out.splitlines() if "drew" in line)

    assert drawn() != drawn()
    assert drawn(WEFT_TEST_SEED="5") == drawn(WEFT_TEST_SEED="5")
