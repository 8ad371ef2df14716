"""Fixtures that every test may use: random numbers, golden text, a cache of their own."""

import functools
import gc
import os
import shutil
import signal
import tempfile
import zlib
from pathlib import Path

# The environment is set before anything of Weft is imported: a test run neither reads nor writes
# what belongs to the user. Workers of pytest-xdist inherit it, so one run shares one cache.
IS_WORKER = "PYTEST_XDIST_WORKER" in os.environ
if not IS_WORKER:
    os.environ["WEFT_CACHE_DIR"] = tempfile.mkdtemp(prefix="weft-test-cache-")
    os.environ["WEFT_CONFIG"] = os.devnull
    os.environ.setdefault("WEFT_TEST_SEED", str(int.from_bytes(os.urandom(4), "little")))
    os.environ.setdefault("MPLBACKEND", "Agg")
    # Tests run side by side: the libraries that they compare with take one core each.
    os.environ.setdefault("OMP_NUM_THREADS", "1")

# A shell without job control starts what runs in the background with interrupts ignored, which
# every child would inherit: the tests of interrupts would wait for nothing.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

import hypothesis  # noqa: E402
import numpy as np  # noqa: E402
import pytest  # noqa: E402

import tiers  # noqa: E402
from capabilities import CAPABILITIES, is_demanded, missing, require  # noqa: E402

# An example may have to compile first, which says nothing of the next one's time.
hypothesis.settings.register_profile("weft", deadline=None, print_blob=True)
hypothesis.settings.load_profile("weft")

if not IS_WORKER:
    os.environ["WEFT_GRID_SEED"] = tiers.choose_seed()
SEED = int(os.environ["WEFT_TEST_SEED"])
GRID_SEED = os.environ["WEFT_GRID_SEED"]
GOLDEN = Path(__file__).parent / "golden"


def pytest_configure(config):
    """Let examples that Hypothesis draws follow from the seed of the run, as all others do."""
    if config.getoption("--hypothesis-seed") is None:
        hypothesis.core.global_force_seed = SEED


def pytest_addoption(parser):
    parser.addoption(
        "--update-golden", action="store_true", help="write golden files instead of comparing"
    )
    parser.addoption(
        "--tier", choices=tiers.TIERS, default="full",
        help="fast: without slow tests, and with a tenth of each grid; full (default): everything",
    )  # fmt: skip
    parser.addoption("--record-passed", type=Path, help="write which tests passed to this file")
    parser.addoption(
        "--passed", type=Path,
        help="leave out what passed before by a file of --record-passed, of this very tree",
    )  # fmt: skip


def pytest_report_header(config):
    """Say once, in the process that reports, what is absent: workers deselect without a word."""
    lines = [f"weft: random seed {SEED} (repeat with WEFT_TEST_SEED={SEED})"]
    if config.getoption("--tier") == "fast":
        lines.append(f"weft: a tenth of each grid (repeat with WEFT_GRID_SEED={GRID_SEED})")
    for name in CAPABILITIES:
        if reason := missing(name):
            outcome = "fail, as WEFT_REQUIRE names it" if is_demanded(name) else "are deselected"
            lines.append(f"weft: no {name} ({reason}): tests that need it {outcome}")
    return lines


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    """Deselect what lacks a capability that is not demanded, and what the tier leaves out."""
    lacks = functools.cache(lambda name: missing(name) and not is_demanded(name))
    deselect(config, items, {item for item in items if any(map(lacks, _needs(item)))})
    if config.getoption("--tier") == "fast":
        deselect(config, items, tiers.left_out(items, GRID_SEED))
    else:
        deselect(config, items, tiers.left_out_of_full(items, GRID_SEED))
    if file := config.getoption("--passed"):
        passed = set(file.read_text().split("\n"))
        deselect(config, items, {item for item in items
                                 if item.nodeid in passed and "tier_rows" not in item.fixturenames})


def pytest_collection_finish(session):
    """Take what was collected out of the collector's visits, of which each would take seconds."""
    gc.freeze()


def _needs(item):
    return [name for mark in item.iter_markers("requires") for name in mark.args]


def deselect(config, items, dropped):
    """Take tests out of a collection, and count them as deselected."""
    if dropped:
        items[:] = [item for item in items if item not in dropped]
        config.hook.pytest_deselected(items=list(dropped))


def pytest_runtest_setup(item):
    for mark in item.iter_markers("requires"):
        require(*mark.args)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    outcome = yield
    report = outcome.get_result()
    if report.failed:
        report.sections.append(("random numbers", f"repeat with WEFT_TEST_SEED={SEED}"))


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session):
    """Write which tests passed, where that is asked for: the process that reports knows all."""
    file = session.config.getoption("--record-passed")
    if file and not IS_WORKER:
        found = session.config.pluginmanager.get_plugin("terminalreporter").stats.get("passed", ())
        file.write_text("\n".join(sorted({report.nodeid for report in found})))


def pytest_unconfigure(config):
    if not IS_WORKER:
        shutil.rmtree(os.environ["WEFT_CACHE_DIR"], ignore_errors=True)


@pytest.fixture(scope="session")
def seed():
    """The number that all random input of this run comes from; printed with each failure."""
    return SEED


@pytest.fixture
def rng(request):
    """A NumPy generator, fresh for each run and independent of which tests run beside it."""
    return np.random.default_rng([SEED, zlib.crc32(request.node.nodeid.encode())])


@pytest.fixture
def tier_rows(request):
    """Return what chooses the rows of a loop that run: all, or a tenth in the fast tier."""
    if request.config.getoption("--tier") == "fast":
        return lambda rows: tiers.some_of(list(rows), GRID_SEED)
    return list


@pytest.fixture
def cache_dir(tmp_path, monkeypatch):
    """An empty cache folder for one test alone."""
    from weft import config
    from weft.store import disk

    folder = tmp_path / "cache"
    monkeypatch.setenv("WEFT_CACHE_DIR", str(folder))
    config.reset()
    disk.reset()
    yield folder
    config.reset()
    disk.reset()


@pytest.fixture
def golden(request):
    """Compare text with ``tests/golden/NAME``; ``--update-golden`` writes it instead."""

    def check(name, text):
        file = GOLDEN / name
        text = text.rstrip("\n") + "\n"
        if request.config.getoption("--update-golden"):
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
            return
        if not file.exists():
            pytest.fail(f"{file} is missing: run pytest --update-golden and read what it wrote")
        assert text == file.read_text(), f"differs from {file}; --update-golden if it should"

    return check


@pytest.fixture(scope="session", autouse=True)
def _verify_levels():
    """Verify each kernel and plan at every level in all tests."""
    from weft.driver import pipeline

    pipeline.verifying = True


@pytest.fixture(autouse=True)
def _nothing_waits():
    """Let no test compute what another one, whose tensors still live, has left waiting."""
    from weft.tensors.core import pending

    pending.take_state()
    pending.take_losses()
