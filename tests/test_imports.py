"""Blocks that import much: the collector rests and comes back, forks wait, modules come late."""

import gc
import os
import subprocess
import sys
import threading

import pytest

from weft.imports import importing


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
                 "difflib"):  # fmt: skip
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
