"""Drivers that hang, crash, print or lie are asked in a process of their own, and once."""

import fcntl
import json
import os
import re
import subprocess
import sys
import threading
import time

import pytest

from cli.commands import weft
from weft import config, store
from weft.backends import probing, registry
from weft.backends.probing import Probe
from weft.backends.registry import Backend, Found
from weft.errors import DeviceError
from weft.store import disk

LONG = 240.0  # seconds that no machine needs
DRIVER = '''
import ctypes, fcntl, os, signal, subprocess, sys, time

HERE = os.path.dirname(__file__)

def asked():
    with open(os.path.join(HERE, "asked"), "a") as file:
        file.write("x")

def two():
    asked()
    return 2

def none():
    asked()
    return 0

def absent():
    asked()
    return "the driver is too old"

def slow():
    asked()
    time.sleep(1)
    return 3

def hang():
    asked()
    while True:
        time.sleep(1)

def hang_with_lock():
    """Hold the interpreter's lock, and leave a process behind that holds a file's."""
    file = open(os.path.join(HERE, "held"), "w")
    fcntl.flock(file, fcntl.LOCK_EX)
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"],
                     pass_fds=[file.fileno()], stderr=subprocess.DEVNULL)
    asked()
    ctypes.PyDLL(None).pause()

def abort():
    asked()
    print("assertion failed", file=sys.stderr)
    os.abort()

def leave():
    asked()
    os.write(2, b"fatal: no firmware\\n")
    os._exit(3)

def leave_politely():
    asked()
    sys.exit(3)

def leave_pleased():
    os._exit(0)

def crash():
    asked()
    ctypes.string_at(0)

def killed():
    asked()
    os.kill(os.getpid(), signal.SIGKILL)

def refuse():
    asked()
    os.write(2, b"one\\ntwo\\n\\x1b[31mthree\\x07\\nfour\\n")
    raise OSError("no device node")

def noisy():
    asked()
    print('{"answer": 7}')
    print('{"answer": 7}', file=sys.stderr)
    for stream in (1, 2):
        os.write(stream, b"garbage \\xff\\x00" * 100000)
    return 2

def noisy_and_dead():
    os.write(2, b"x" * 3000000 + b"\\nthe end\\n")
    os.abort()

def nothing():
    asked()

def negative():
    return -1

def countless():
    return 10 ** 12

def true():
    return True

def fraction():
    return 1.5

def empty():
    return ""

def unprintable():
    return "\\x00 \\x1b\\n"

def colourful():
    return "\\x1b[31mred\\x1b[0m\\nand [/red] \\x07\\ud800 " + "long " * 1000

def mapping():
    return {"answer": {"answer": 2}}

def no_json():
    return object()

def long():
    return "x" * 1000000

def set_by_environment():
    asked()
    return int(os.environ.get("TOY_DEVICES", "1"))

def nested():
    from weft.backends import probing
    answer = probing.ask(probing.Probe("toy_driver:two"), 240.0)
    return f"inside: {answer}"

class Query:
    @staticmethod
    def count():
        return 4
'''


@pytest.fixture(autouse=True)
def _fresh(monkeypatch):
    monkeypatch.setattr(probing, "PATIENCE", LONG)
    registry.reset()
    yield
    registry.reset()
    config.reset()


@pytest.fixture
def driver(tmp_path, monkeypatch):
    """Return the folder of a package with a driver; its files make a key of its own."""
    (tmp_path / "toy_driver.py").write_text(DRIVER)
    (tmp_path / "libtoy.so").write_bytes(b"version 1")
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def probe(folder, function, **given):
    return Probe(f"toy_driver:{function}", (str(folder / "libtoy.so*"),), **given)


def times_asked(folder):
    file = folder / "asked"
    return len(file.read_text()) if file.exists() else 0


def backend(asked, family="toy"):
    return Backend(family, ("a",), None, None, None, None, None, None, probe_in_child=asked)


# ---- what drivers do -----------------------------------------------------------------------------


@pytest.mark.parametrize(("function", "answer"), [
    ("two", 2), ("none", 0), ("slow", 3), ("Query.count", 4), ("noisy", 2),
    ("absent", "the driver is too old"),
])  # fmt: skip
def test_answers(driver, function, answer, capfd):
    assert probing.ask(probe(driver, function)) == answer
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(("function", "reason"), [
    ("abort", "its driver ended the probe by SIGABRT; stderr: assertion failed"),
    ("leave", "its driver ended the probe by exit status 3; stderr: fatal: no firmware"),
    ("leave_politely", "its driver ended the probe by exit status 3"),
    ("leave_pleased", "its probe ended without an answer: it wrote no file"),
    ("crash", "its driver ended the probe by SIG(SEGV|BUS)"),
    ("killed", "its driver ended the probe by SIGKILL"),
    ("refuse", re.escape("OSError: no device node; stderr: two | [31mthree | four")),
    ("noisy_and_dead", "its driver ended the probe by SIGABRT; stderr: .*the end"),
    ("nothing", "its probe answered None, not a reason .*"),
    ("negative", "its probe answered -1, .*"), ("countless", "its probe answered 10+, .*"),
    ("true", "its probe answered True, .*"), ("fraction", "its probe answered 1.5, .*"),
    ("empty", "its probe answered '', .*"), ("unprintable", "its probe answered .*, not a .*"),
    ("mapping", "its probe answered {'answer': .*"),
    ("no_json", "TypeError: .* not JSON serializable"),
    ("long", "its probe ended without an answer: it wrote 10.* bytes.*"),
    ("nested", "inside: it is asked within a probe"),
    ("missing", "AttributeError: .*missing.*"),
])  # fmt: skip
def test_what_goes_wrong_is_a_reason(driver, function, reason, capfd):
    found = probing.ask(probe(driver, function))
    assert re.fullmatch(reason, found)
    assert len(found) <= 400
    assert found.isprintable()
    assert capfd.readouterr() == ("", "")


def test_reasons_can_be_shown_anywhere(driver):
    found = probing.ask(probe(driver, "colourful"))
    assert found.startswith("[31mred [0m and [/red] ? long long")
    assert found.isprintable()
    assert len(found) <= 400


@pytest.mark.parametrize("name", ["toy_driver", "no_such_module:count", "", ":", "toy_driver:two:x",
                                  "..:x", "\0:x", "toy driver:two"])  # fmt: skip
def test_a_function_that_is_not_there(driver, name):
    found = probing.ask(Probe(name, (str(driver / "libtoy.so"),)))
    assert re.match(r"\w+(Error|Exception): ", found)


def test_A2_a_driver_that_hangs(driver):
    assert probing.ask(probe(driver, "hang"), 0.2).startswith(
        "its probe did not answer within 0.2 s")


def test_all_processes_of_a_driver_are_killed(driver, monkeypatch):
    def wait(process, seconds):
        while not times_asked(driver):
            assert process.poll() is None
            time.sleep(0.01)

    monkeypatch.setattr(probing, "wait", wait)
    assert "did not answer" in probing.ask(probe(driver, "hang_with_lock"))
    end = time.monotonic() + LONG
    with open(driver / "held") as file:
        while True:  # the lock is free when the last process that had the file is gone
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                assert time.monotonic() < end
                time.sleep(0.01)
            else:
                return


def test_an_interrupt_ends_the_child(driver, monkeypatch):
    children = []

    def wait(process, seconds):
        children.append(process)
        raise KeyboardInterrupt

    monkeypatch.setattr(probing, "wait", wait)
    with pytest.raises(KeyboardInterrupt):
        probing.ask(probe(driver, "hang"))
    assert children[0].returncode is not None


@pytest.mark.parametrize("executable", ["", None, "/nowhere/python"])
def test_no_python_to_ask_with(driver, monkeypatch, executable):
    monkeypatch.setattr(sys, "executable", executable)
    assert isinstance(probing.ask(probe(driver, "two")), str)
    assert not times_asked(driver)


def test_no_folder_to_answer_in(driver, monkeypatch):
    monkeypatch.setattr("tempfile.mkdtemp", lambda **_: (_ for _ in ()).throw(OSError("full")))
    assert probing.ask(probe(driver, "two")) == "OSError: full"


def test_nothing_is_left_behind(driver, tmp_path, monkeypatch):
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(scratch))
    for function in ("two", "abort", "refuse"):
        probing.ask(probe(driver, function))
    probing.ask(probe(driver, "hang"), 0.2)
    assert list(scratch.iterdir()) == []


def test_modules_of_the_folder_of_work_hide_none(driver, tmp_path, monkeypatch):
    """The child finds packages where this process does, and the current folder comes last."""
    work = tmp_path / "work"
    work.mkdir()
    (work / "subprocess.py").write_text("raise SystemExit(9)")
    (work / "toy_local.py").write_text("import subprocess\ndef count():\n    return 1\n")
    monkeypatch.chdir(work)
    monkeypatch.setattr(sys, "path", ["", *sys.path])
    assert probing.ask(Probe("toy_local:count")) == 1
    assert probing.ask(probe(driver, "two")) == 2


# ---- answers that are kept -----------------------------------------------------------------------


@pytest.mark.parametrize("function", ["two", "none", "absent", "abort", "leave", "crash"])
def test_a_kept_answer_starts_no_child(driver, function, monkeypatch):
    first = probing.ask(probe(driver, function))
    monkeypatch.setattr(subprocess, "Popen", None)
    assert probing.ask(probe(driver, function)) == first
    disk.reset()  # as another process would
    assert probing.ask(probe(driver, function)) == first
    assert times_asked(driver) == 1


@pytest.mark.parametrize("function", ["killed", "refuse", "nothing"])
def test_what_may_be_otherwise_is_asked_again(driver, function):
    for _ in range(2):
        assert isinstance(probing.ask(probe(driver, function)), str)
    assert times_asked(driver) == 2


def test_a_time_out_is_asked_again(driver):
    waiting = driver / "go"
    code = f"import os\ndef count():\n    while not os.path.exists({str(waiting)!r}): pass\n"
    (driver / "toy_late.py").write_text(code + "    return 5\n")
    asked = Probe("toy_late:count", (str(driver / "libtoy.so"),))
    assert "did not answer" in probing.ask(asked, 0.2)
    waiting.touch()
    assert probing.ask(asked) == 5


def test_without_files_nothing_is_kept(driver):
    for _ in range(2):
        assert probing.ask(Probe("toy_driver:two")) == 2
    assert times_asked(driver) == 2


def replaced(folder):
    (folder / "new").write_bytes(b"version 2")
    os.replace(folder / "new", folder / "libtoy.so")


def touched(folder):
    os.utime(folder / "libtoy.so", ns=(0, 1))


def edited(folder):
    (folder / "toy_driver.py").write_text(DRIVER + "\n# edited\n")


@pytest.mark.parametrize("change", [
    replaced, touched, edited,
    lambda folder: (folder / "libtoy.so").write_bytes(b"version two"),
    lambda folder: (folder / "libtoy.so").unlink(),
    lambda folder: (folder / "libtoy.so.2").touch(),
], ids=["replaced", "touched", "edited", "longer", "gone", "another"])  # fmt: skip
def test_a_changed_driver_is_asked_again(driver, change):
    asked = probe(driver, "two")
    before = probing.key(asked)
    assert probing.ask(asked) == 2
    change(driver)
    assert probing.key(asked) != before
    assert probing.ask(asked) == 2
    assert times_asked(driver) == 2


def test_a_driver_that_comes_is_asked(driver):
    os.rename(driver / "libtoy.so", driver / "elsewhere")
    assert probing.ask(probe(driver, "two")) == 2
    os.symlink(driver / "elsewhere", driver / "libtoy.so")
    probing.ask(probe(driver, "two"))
    assert times_asked(driver) == 2
    os.utime(driver / "elsewhere", ns=(0, 2))  # behind the link
    probing.ask(probe(driver, "two"))
    assert times_asked(driver) == 3


def test_variables_that_count(driver, monkeypatch):
    asked = probe(driver, "set_by_environment", environment=("TOY_DEVICES",))
    assert probing.ask(asked) == 1
    for count in (2, 3, 2):
        monkeypatch.setenv("TOY_DEVICES", str(count))
        assert probing.ask(asked) == count
    assert times_asked(driver) == 3
    monkeypatch.setenv("TOY_COLOUR", "red")
    assert probing.ask(asked) == 2
    assert times_asked(driver) == 3
    monkeypatch.setenv("LD_LIBRARY_PATH", str(driver))
    assert probing.ask(asked) == 2
    assert times_asked(driver) == 4


def test_installed_packages_count(driver, tmp_path, monkeypatch):
    """A function may say that a package is missing, which is then installed."""
    packages = tmp_path / "site-packages"
    packages.mkdir()
    monkeypatch.syspath_prepend(packages)
    before = probing.key(probe(driver, "two"))
    assert probing.key(probe(driver, "two")) == before
    os.utime(packages, ns=(0, 3))
    assert probing.key(probe(driver, "two")) != before


def test_a_driver_that_is_replaced_meanwhile_is_not_kept(driver, monkeypatch):
    def wait(process, seconds):
        replaced(driver)
        return process.wait()

    monkeypatch.setattr(probing, "wait", wait)
    before = probing.key(probe(driver, "two"))
    assert probing.ask(probe(driver, "two")) == 2
    for name in (before, probing.key(probe(driver, "two"))):
        assert store.cache().get("probe", name) is None


@pytest.mark.parametrize("entry", [
    b"", b"{", b"null", b"2", b"[]", b'"two"', b"\xff\xfe", b"[" * 100000, b'{"answer": -1}',
    b'{"answer": true}', b'{"answer": 1e3}', b'{"answer": null}', b'{"answer": ""}',
    b'{"answer": 99999999999}', b'{"answer": [2]}', b'{"answer": 7, "more": 1}', b'{"count": 7}',
    b'{"answer": ' + b"9" * 5000 + b"}", b'{"answer": NaN}',
], ids=repr)  # fmt: skip
def test_a_poisoned_entry_is_a_miss(driver, entry):
    asked = probe(driver, "two")
    assert store.cache().put("probe", probing.key(asked), entry)
    assert probing.ask(asked) == 2
    assert times_asked(driver) == 1
    kept = store.cache().get("probe", probing.key(asked))
    assert json.loads(kept) == {"answer": 2}


def test_a_damaged_file_is_a_miss(driver):
    asked = probe(driver, "two")
    assert probing.ask(asked) == 2
    name = probing.key(asked)
    path = os.path.join(store.cache().folder(), "probe", name[:2], name)
    with open(path, "r+b") as file:
        data = file.read()
        file.seek(0)
        file.write(data.replace(b"2}", b"3}"))
    assert probing.ask(asked) == 2
    assert times_asked(driver) == 2


def test_a_cache_that_fails_is_no_failure(driver, monkeypatch):
    def fail():
        raise RuntimeWarning("Weft works without its cache")

    monkeypatch.setattr(probing, "cache", fail)
    assert probing.ask(probe(driver, "two")) == 2


# ---- the registry --------------------------------------------------------------------------------


def test_the_registry_asks_the_child(driver):
    registry.register(backend(probe(driver, "two")))
    registry.register(backend(probe(driver, "abort"), "bad"))
    assert registry.probe("toy") == Found("toy", "", ("toy", "toy:1"), (0, 1))
    assert registry.lookup("toy:1")[1].ordinal == 1
    with pytest.raises(DeviceError, match="SIGABRT; stderr: assertion failed"):
        registry.lookup("bad")
    assert registry.lookup("cpu")
    assert times_asked(driver) == 2


def test_a_time_out_holds_for_the_process(driver, monkeypatch):
    monkeypatch.setattr(probing, "PATIENCE", 0.2)
    registry.register(backend(probe(driver, "hang")))
    first = registry.probe("toy")
    assert "did not answer" in first.reason
    monkeypatch.setattr(subprocess, "Popen", None)
    assert registry.probe("toy") is first


def test_threads_share_one_child(driver):
    registry.register(backend(Probe("toy_driver:slow")))
    start, found = threading.Barrier(8), []

    def work():
        start.wait()
        found.append(registry.probe("toy"))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [Found("toy", "", ("toy", "toy:1", "toy:2"), (0, 1, 2))] * 8
    assert times_asked(driver) == 1


def test_a_backend_that_is_replaced_meanwhile_is_asked(driver, monkeypatch):
    def wait(process, seconds):
        registry.register(backend(Probe("toy_driver:none")))
        return process.wait()

    registry.register(backend(Probe("toy_driver:two")))
    with monkeypatch.context() as patched:
        patched.setattr(probing, "wait", wait)
        registry.probe("toy")
    assert registry.probe("toy").reason == "no device of it was found"


def test_a_backend_that_tells_no_way(driver):
    registry.register(backend(None))
    assert "does not say" in registry.probe("toy").reason


@pytest.mark.parametrize("count", [-1, True, "", None, 10**12, object()])
def test_nonsense_of_this_process_is_a_reason(count):
    """The probe said that the family is there: what `count` returns is checked as well."""
    registry.register(Backend("toy", ("a",), lambda: "", lambda: count, *[None] * 4))
    assert "its probe answered" in registry.probe("toy").reason


def test_the_command_tells_reasons_as_they_are(driver):
    before = f"""
import sys
sys.path.insert(0, {str(driver)!r})
from weft.backends import probing, registry
probing.PATIENCE = {LONG}
for name in ("abort", "colourful", "two"):
    registry.register(registry.Backend(
        name, ("a",), None, None, None, None, None, None, description="a toy",
        probe_in_child=probing.Probe("toy_driver:" + name)))
def fail(ordinal, pair):
    raise OSError("lost [/it]")
registry.register(registry.Backend(
    "lost", ("a",), None, None, fail, None, None, None,
    probe_in_child=probing.Probe("toy_driver:two")))
"""
    out, err = weft("devices", before=before, COLUMNS="600")
    assert re.search(r"abort +absent +its driver ended the probe by SIGABRT; stderr: asser", out)
    assert "red [0m and [/red] ? long" in out
    assert re.search(r"two +ready +a toy\s+two:1 +ready +a toy", out)
    assert re.search(r"lost +failing +OSError: lost \[/it\]", out)
    assert re.search(r"cpu +ready", out)
    assert err == ""


def test_E1_importing_and_computing_probe_nothing(tmp_path):
    """A backend that is installed and would hang is met by those who ask for it."""
    info = tmp_path / "toy_backend-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Name: toy-backend\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[weft.backends]\ntoy = toy_backend\n")
    (tmp_path / "toy_backend.py").write_text("raise ImportError('toy backend was loaded')\n")
    code = """
import sys, weft
assert (weft.ones(3) + 1).tolist() == [2, 2, 2]
assert not {"toy_backend", "weft.backends.probing"} & set(sys.modules)
from weft.backends import registry
print(registry.probe("toy").reason)
"""
    path = os.pathsep.join([str(tmp_path), *filter(None, sys.path)])
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False,
                          env={**os.environ, "PYTHONPATH": path})  # fmt: skip
    assert (done.stdout, done.stderr) == ("ImportError: toy backend was loaded\n", "")
