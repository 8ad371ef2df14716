"""LLVM loaded on the side: whoever needs it finds it, whatever became of the thread."""

import _thread
import os
import subprocess
import sys
import threading

import pytest

from weft import background
from weft.backends import cpu
from weft.compilers import llvm
from weft.errors import CompileError

pytestmark = pytest.mark.grid


@pytest.fixture
def fresh(monkeypatch):
    """As in a process that has done nothing yet, LLVM's library apart."""
    for name, value in (("_runtime", None), ("_loads", False)):
        monkeypatch.setattr(cpu, name, value)
    for name in ("_compiler", "_session"):
        monkeypatch.setattr(llvm, name, None)


def test_a_runtime_is_made_once(fresh, monkeypatch):
    cpu.prepare()
    cpu.prepare()
    found = cpu.runtime()
    background.drain()
    assert cpu.runtime() is found
    assert found.threads.threads >= 1
    loads = []
    monkeypatch.setattr(cpu, "_load", lambda: loads.append(True))
    cpu.prepare()
    background.drain()
    assert not loads


def test_one_thread_however_many_ask(fresh, monkeypatch):
    loads = []
    monkeypatch.setattr(cpu, "_load", lambda: loads.append(True))
    threads = [threading.Thread(target=cpu.prepare) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    background.drain()
    assert loads == [True]


def test_without_more_threads_it_is_made_here(fresh, monkeypatch):
    def refused(function, arguments):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(_thread, "start_new_thread", refused)
    cpu.prepare()
    assert cpu.runtime().threads.threads >= 1


def test_what_goes_wrong_there_is_told_here(fresh, monkeypatch):
    def broken(self, *words):
        raise CompileError("LLVM", found="a broken compiler")

    with monkeypatch.context() as patch:
        patch.setattr(llvm.LLVMCompiler, "__init__", broken)
        cpu.prepare()
        background.drain()
        with pytest.raises(CompileError, match="broken compiler"):
            cpu.runtime()
    assert cpu.runtime().compiler is llvm.compiler()


def test_the_first_translation_is_made_once(monkeypatch):
    compiler = llvm.LLVMCompiler()
    sources = []
    compile_ = llvm.LLVMCompiler.compile
    monkeypatch.setattr(llvm.LLVMCompiler, "compile",
                        lambda *words: sources.append(words[1]) or compile_(*words))  # fmt: skip
    compiler.warm_up()
    compiler.warm_up()
    assert len(sources) == 1
    assert "@first" in sources[0]


@pytest.mark.requires("fork")
def test_a_fork_while_llvm_is_loaded(tmp_path):
    code = (
        "import os, sys, weft\n"
        "from weft.backends import cpu\n"
        "cpu.prepare()\n"
        "children = []\n"
        "for _ in range(4):\n"
        "    child = os.fork()\n"
        "    if child == 0:\n"
        "        good = (weft.ones(5) + 1).sum().item() == 10\n"
        "        os._exit(0 if good else 1)\n"
        "    children.append(child)\n"
        "codes = [os.waitpid(child, 0)[1] for child in children]\n"
        "assert (weft.ones(7) + 1).sum().item() == 14\n"
        "sys.exit(any(codes))\n"
    )
    environment = {**os.environ, "WEFT_CACHE_DIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, check=False, timeout=120)
    assert done.returncode == 0


@pytest.mark.parametrize("mode", ["default", "error"])
def test_who_launches_is_told_of_a_cache_that_cannot_be_used(mode, tmp_path):
    code = (
        "import numpy, weft\n"
        "from weft import gpu\n"
        "@weft.kernel\n"
        "def add(x):\n"
        "    x[gpu.grid(1)] += 1\n"
        "x = numpy.zeros(4, 'f4')\n"
        "add[1, 4](x)\n"
        "print(x.sum())\n"
    )
    program = tmp_path / "program.py"
    program.write_text(code)
    environment = {**os.environ, "WEFT_CACHE_DIR": str(program / "none")}
    done = subprocess.run([sys.executable, "-W", mode, program], env=environment, text=True,
                          capture_output=True, check=False, timeout=120)  # fmt: skip
    assert done.stderr.count("RuntimeWarning: Weft works without its cache") == 1
    assert (done.returncode, done.stdout) == ((0, "4.0\n") if mode == "default" else (1, ""))
    assert "Exception in thread" not in done.stderr


@pytest.mark.requires("fork")
@pytest.mark.parametrize(
    "module",
    ["weft.strategies.contraction", "weft.schedule.loops.loops", "weft.passes.transcendental"],
)
def test_a_fork_while_another_thread_imports_what_compiles(module, tmp_path):
    code = (
        "import os, signal, sys, threading, time, weft\n"
        "begun = threading.Event()\n"
        "class Slow:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == sys.argv[1]:\n"
        "            begun.set()\n"
        "            time.sleep(0.3)\n"
        "def work():\n"
        "    x = weft.ones((3, 4))\n"
        "    assert (x @ x.T).sin().numpy().shape == (3, 3)\n"
        "sys.meta_path.insert(0, Slow())\n"
        "thread = threading.Thread(target=work)\n"
        "thread.start()\n"
        "assert begun.wait(60)\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    signal.alarm(30)\n"
        "    work()\n"
        "    os._exit(0)\n"
        "thread.join()\n"
        "sys.exit(os.waitpid(child, 0)[1] != 0)\n"
    )
    environment = {**os.environ, "WEFT_CACHE_DIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", code, module], env=environment, check=False,
                          timeout=120)  # fmt: skip
    assert done.returncode == 0
