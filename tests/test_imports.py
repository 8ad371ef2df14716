"""Blocks that import much: the collector rests and comes back, forks wait, modules come late."""

import gc
import os
import subprocess
import sys
import threading
import weakref

import pytest

from weft import imports
from weft.imports import Late, importing


@pytest.fixture(autouse=True)
def _all_is_visited():
    """Give back to the collector what the test run keeps from it (`conftest.py`)."""
    gc.unfreeze()
    yield
    gc.freeze()


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


@pytest.mark.requires("fork")
def test_a_fork_holds_what_comes_with_the_imports_that_it_waits_for(monkeypatch):
    """Whoever imported a module goes on and takes its locks, before the fork goes on."""
    monkeypatch.setattr(imports, "_holders", [])
    lock, inside = threading.Lock(), threading.Event()

    def hold():
        lock.acquire()
        return lock.release

    def other():
        with importing:
            inside.set()
            threading.Event().wait(0.05)
            imports.through_forks(hold)
            lock.acquire()
        threading.Event().wait(0.05)
        lock.release()

    thread = threading.Thread(target=other)
    thread.start()
    assert inside.wait(10)
    child = os.fork()
    if child == 0:
        os._exit(0 if lock.acquire(timeout=1) else 1)
    assert os.waitpid(child, 0)[1] == 0
    thread.join()
    assert lock.acquire(timeout=1)


def test_only_what_a_fork_took_is_given_back(monkeypatch):
    given = []
    monkeypatch.setattr(imports, "_outer", 0)
    monkeypatch.setattr(imports, "_holders", [lambda: lambda: given.append("first"),
                                              lambda: lambda: given.append("last")])
    importing.release()
    importing.hold()
    assert not given
    importing.release()
    importing.release()
    assert given == ["first", "last"]

    def interrupted():
        raise KeyboardInterrupt

    imports.through_forks(lambda: lambda: given.append("again"))
    imports._holders.insert(0, interrupted)
    with pytest.raises(KeyboardInterrupt):
        importing.hold()
    importing.release()
    assert given[2:] == ["first", "last", "again"]
    with importing:
        pass


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
    for name in (
        "weft.strategies.contraction",
        "weft.strategies.reductions.rowwise",
        "weft.strategies.scan",
        "weft.schedule.loops.reduction",
        "weft.schedule.data.memory",
        "weft.ir.text.text_parse",
        "weft.passes.transcendental",
        "weft.kernelize.common.emit",
        "llvmlite.binding",
        "weft.schedule.analysis.dependence",
        "weft.strategies.common.elementwise",
        "weft.rules.algebra",
        "weft.passes.packed_weights",
        "weft.passes.vector.warp",
        "weft.lang.device.fragments",
        "weft.lang.device.vector_accesses",
        "weft.lang.device.warp",
        "weft.lang.library.mathlib",
        "weft.lang.values.records",
        "weft.renderers.llvm.llvm_atomic",
        "cmath",
        "difflib",
    ):  # fmt: skip
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


_WATCHED = """
import sys
import numpy as np
import weft
from weft import gpu, nn, optim
from weft.imports import importing

open_, here = [], weft.__file__.removesuffix("__init__.py")

class Watch:
    def find_spec(self, name, path=None, target=None):
        frame = sys._getframe(1)
        while "importlib" in frame.f_code.co_filename:
            frame = frame.f_back
        caller = frame.f_code.co_filename
        while frame is not None and frame.f_code.co_name == "<module>":  # imports of an import
            frame = frame.f_back
            while frame is not None and "importlib" in frame.f_code.co_filename:
                frame = frame.f_back
        begins = frame.f_code.co_filename if frame is not None else ""
        if begins.startswith(here) and not importing._depth and not probing(frame):
            open_.append(f"{name} for {caller} by {begins}:{frame.f_lineno}")

def probing(frame):
    return frame.f_code.co_name == "probe"  # asks whether a module is there, and imports none

sys.meta_path.insert(0, Watch())

@weft.kernel
def double(x):
    x[gpu.grid(1)] *= 2

@weft.kernel
def total(x, out):
    part = gpu.shared.array(32, weft.float32)
    t = gpu.threadIdx.x
    part[t] = x[gpu.grid(1)]
    if t < 64:
        gpu.syncthreads()
    gpu.atomic.add(out, 0, part[t])

@weft.compute
def product(a, b, c):
    for i, j in weft.ndrange(a.shape[0], b.shape[1]):
        t = 0.0
        for k in range(a.shape[1]):
            t += a[i, k] * b[k, j]
        c[i, j] = t

@weft.critical
def mean(x: weft.float64, y: weft.float64) -> weft.float64:
    return (x + y) / 2

@weft.kernel
def wrong(x):
    x[0] = nowhere

x = weft.rand(33, 17)
(x @ x.T).sin().numpy()
doubled = weft.jit(lambda a: a * 2)
doubled(x), doubled(x), doubled(x)
weft.rand(50).sort()[0].cumsum(0).softmax(-1).numpy()
net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 36, 2))
opt = optim.Adam(net.parameters(), lr=0.1)

@weft.jit
def step(x):
    loss = net(x).sum()
    opt.zero_grad()
    loss.backward()
    opt.step()
    return loss

step(weft.rand(2, 3, 8, 8)), step(weft.rand(2, 3, 8, 8)), step(weft.rand(2, 3, 8, 8))
data, out = np.ones(64, np.float32), np.zeros(1, np.float32)
double[2, 32](data), double[2, 32](data), double[2, 32](data)
double[2, 32](weft.rand(64).realize())
total[2, 32](data, out)
a = np.ones((9, 9), np.float32)
product(a, a, np.ones((9, 9), np.float32)), product.explain(a, a, a.copy())
mean(1.0, 2.0)
weft.sanitize(total, 2, 32)(data, out)
try:
    wrong[1, 1](data)
except weft.errors.KernelError:
    print(*open_, sep="\\n")
"""


def test_what_is_imported_late_is_imported_where_forks_wait(tmp_path):
    path = tmp_path / "program.py"
    path.write_text(_WATCHED)
    environment = {**os.environ, "WEFT_CACHE_DIR": str(tmp_path / "cache")}
    done = subprocess.run([sys.executable, str(path)], env=environment, capture_output=True,
                          text=True, check=True)  # fmt: skip
    assert done.stdout.split("\n") == ["", ""]
