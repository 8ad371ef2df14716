"""Blocks that import much: the collector rests and comes back, forks wait, modules come late."""

import gc
import os
import subprocess
import sys
import threading
import weakref

import pytest

from weft.imports import Late, importing


@pytest.mark.parametrize("enabled", [True, False])
def test_the_collector_is_as_before(enabled):
    before = gc.isenabled()
    try:
        (gc.enable if enabled else gc.disable)()
        with importing:
            assert not gc.isenabled()
            with importing:
                assert not gc.isenabled()
            assert not gc.isenabled()
        assert gc.isenabled() is enabled
        with pytest.raises(ImportError), importing:
            raise ImportError("nothing")
        assert gc.isenabled() is enabled
    finally:
        (gc.enable if before else gc.disable)()


class Node:
    """What only the collector frees: it refers to itself."""

    def __init__(self):
        self.me = self


def in_many_modules(monkeypatch, count=20):
    """Make garbage in a block in which modules appear; return a reference to it."""
    with importing:
        for number in range(count):
            monkeypatch.setitem(sys.modules, f"weft_absent_{number}", sys)
        return weakref.ref(Node())


def test_what_was_imported_is_old_and_still_collected(monkeypatch):
    gc.collect()
    found = in_many_modules(monkeypatch)
    gc.collect(1)
    assert found() is not None  # old: a visit to what is young does not find it
    gc.collect()
    assert found() is None
    assert gc.get_freeze_count() == 0


def test_a_block_without_modules_changes_no_ages(monkeypatch):
    gc.collect()
    found = in_many_modules(monkeypatch, 0)
    gc.collect(1)
    assert found() is None


def test_what_a_program_froze_stays_frozen(monkeypatch):
    gc.freeze()
    try:
        frozen = gc.get_freeze_count()
        found = in_many_modules(monkeypatch)
        assert gc.get_freeze_count() == frozen > 0
        gc.collect(1)
        assert found() is None
    finally:
        gc.unfreeze()


def test_a_late_module_comes_when_it_is_asked(tmp_path, monkeypatch):
    (tmp_path / "weft_told_late.py").write_text("answer = 42\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    late = Late("weft_told_late")
    assert "weft_told_late" not in sys.modules
    try:
        assert late.answer == 42
        sys.modules["weft_told_late"].answer = 43
        assert late.answer == 43
        with pytest.raises(AttributeError, match="question"):
            late.question  # noqa: B018
    finally:
        sys.modules.pop("weft_told_late", None)
    with pytest.raises(ImportError):
        Late("weft_never_there").answer  # noqa: B018


def test_importing_weft_leaves_the_collector_on():
    code = "import gc, weft, sys; sys.exit(not gc.isenabled())"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_threads_take_turns():
    inside, order = threading.Event(), []

    def other():
        inside.wait(10)
        with importing:
            order.append("other")

    thread = threading.Thread(target=other)
    thread.start()
    with importing:
        inside.set()
        thread.join(0.05)
        order.append("here")
    thread.join(10)
    assert order == ["here", "other"]
    assert gc.isenabled()


@pytest.mark.requires("fork")
def test_a_fork_waits_for_the_end():
    inside, ends = threading.Event(), []

    def other():
        with importing:
            inside.set()
            threading.Event().wait(0.05)
            ends.append(True)

    thread = threading.Thread(target=other)
    thread.start()
    assert inside.wait(10)
    child = os.fork()
    if child == 0:
        with importing:
            os._exit(0 if ends and not gc.isenabled() else 1)
    assert os.waitpid(child, 0)[1] == 0
    thread.join()


def test_a_simple_kernel_imports_no_more_than_it_needs(tmp_path):
    path = tmp_path / "program.py"
    path.write_text(
        "import sys\n"
        "import numpy as np\n"
        "import weft\n"
        "@weft.kernel\n"
        "def double(x):\n"
        "    x[weft.gpu.grid(1)] *= 2\n"
        "x = np.ones(8, np.float32)\n"
        "double[1, 8](x)\n"
        "assert x.tolist() == [2.0] * 8\n"
        "print(*sys.modules)\n"
    )
    environment = {**os.environ, "WEFT_CACHE_DIR": str(tmp_path / "cache")}
    done = subprocess.run([sys.executable, str(path)], env=environment, capture_output=True,
                          text=True, check=True)  # fmt: skip
    present = set(done.stdout.split())
    assert "weft.driver.pipeline" in present
    for name in ("weft.strategies.contraction", "weft.strategies.rowwise", "weft.strategies.scan",
                 "weft.schedule.reduction", "weft.schedule.memory", "weft.ir.text_parse",
                 "weft.passes.transcendental", "weft.kernelize.emit", "llvmlite.binding",
                 "weft.schedule.dependence", "weft.strategies.elementwise", "weft.rules.algebra",
                 "weft.passes.panels", "weft.passes.warp", "weft.frontend.kernel.matrix",
                 "weft.frontend.kernel.vectors", "weft.frontend.kernel.warp",
                 "weft.frontend.kernel.mathlib", "weft.frontend.kernel.fields",
                 "weft.renderers.llvm_atomic", "cmath", "difflib"):  # fmt: skip
        assert name not in present


def test_the_usual_cache_folder_costs_no_import(tmp_path):
    code = (
        "import sys, weft.store; weft.store.cache()\n"
        "sys.exit(sys.platform == 'linux' and 'platformdirs' in sys.modules)"
    )
    environment = {key: value for key, value in os.environ.items() if key != "WEFT_CACHE_DIR"}
    environment["XDG_CACHE_HOME"] = str(tmp_path)
    done = subprocess.run([sys.executable, "-c", code], env=environment, check=False)
    assert done.returncode == 0
