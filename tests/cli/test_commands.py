"""``weft devices``, ``run``, ``explain`` and ``cache``."""

import re

import pytest
from commands import weft

from capabilities import missing
from weft.backends import registry
from weft.config import VERSION

SCRIPT = """\
import sys
import weft
x = weft.rand(32, 48)
y = (x @ weft.rand(48, 16)).softmax(-1)
print("arguments", sys.argv[1:], __name__, __file__ == sys.argv[0])
print("sum", round(y.sum().item()))
"""


@pytest.fixture
def script(tmp_path):
    file = tmp_path / "train.py"
    file.write_text(SCRIPT)
    return file


def written(tmp_path, text):
    file = tmp_path / "script.py"
    file.write_text(text)
    return file


# ---- help ----------------------------------------------------------------------------------------


def test_help_names_every_command():
    out, err = weft("--help")
    for name in ("cache", "demo", "devices", "explain", "run"):
        assert re.search(rf"^  {name} +\w", out, re.MULTILINE), out
    assert weft("-h")[0] == out
    assert not err


@pytest.mark.grid
@pytest.mark.parametrize("name", ["demo", "devices", "run", "explain", "cache", "cache info"])
def test_help_of_a_command(name):
    out, _ = weft(*name.split(), "--help")
    assert out.startswith(f"Usage: weft {name}")
    assert len(out.splitlines()) > 4


def test_version():
    assert VERSION in weft("--version")[0]


def test_unknown_command():
    _, err = weft("nonsense", code=2)
    assert "No such command 'nonsense'" in err


# ---- devices -------------------------------------------------------------------------------------


def test_devices():
    out, err = weft("devices")
    assert not err
    header, *rows = out.splitlines()
    assert header.split() == ["device", "state", "what"]
    (cpu,) = [r for r in rows if r.startswith("cpu ")]
    (of_c,) = [r for r in rows if r.startswith("cpu/c ")]
    assert of_c.split()[1] == ("absent" if missing("cpu/c") else "ready")
    assert "ready" in cpu
    assert "cores" in cpu
    rows = [r for r in rows if not r.startswith(" ")]  # what a device goes on to say
    absent = [r.split()[0] for r in rows if " absent " in r]
    assert {"cuda", "vulkan", "tenstorrent"} <= set(absent)
    assert all(r.split("absent")[1].strip() for r in rows if " absent " in r)


@pytest.mark.requires("opencl")
def test_devices_of_drivers_are_listed_by_name_with_what_each_is():
    found = registry.probe("opencl")
    rows = weft("devices", COLUMNS="300")[0].splitlines()
    for name, said in zip(found.devices, found.described, strict=True):
        (row,) = [r for r in rows if r.startswith(f"{name} ")]
        assert row.rstrip().split(maxsplit=2)[1:] == ["ready", said["description"]]


def test_a_disabled_device_is_absent():
    out, _ = weft("devices", WEFT_BACKEND_CUDA="0")
    assert "cuda" not in out or "disabled" in out


# ---- run -----------------------------------------------------------------------------------------


def test_run(script):
    out, err = weft("run", script, "a", "--epochs", "3", "--help", "-x")
    assert "arguments ['a', '--epochs', '3', '--help', '-x'] __main__ True" in out
    assert "sum 32" in out
    assert re.search(r"weft: \d+\.\d\d s, \d+ kernels compiled in \d+\.\d\d s, \d+ disk", err)


def test_run_without_statistics(script):
    assert weft("run", "--no-stats", script)[1] == ""


def test_run_finds_modules_beside_the_script(tmp_path):
    (tmp_path / "beside.py").write_text("value = 41\n")
    out, _ = weft("run", written(tmp_path, "import beside\nprint(beside.value + 1)"))
    assert out == "42\n"


def test_run_of_no_script(tmp_path):
    for name in ("missing.py", str(tmp_path)):
        _, err = weft("run", name, code=2)
        assert name in err
        assert "Traceback" not in err


def test_run_shows_the_traceback_of_the_script_alone(tmp_path):
    file = written(tmp_path, "def f():\n    return 1 / 0\n\nf()\n")
    _, err = weft("run", file, code=1)
    assert "ZeroDivisionError: division by zero" in err
    assert f'File "{file}", line 4, in <module>' in err
    assert f'File "{file}", line 2, in f' in err
    assert err.count("File ") == 2


def test_run_of_a_script_that_is_not_python(tmp_path):
    _, err = weft("run", written(tmp_path, "x = = 1\n"), code=1)
    assert "SyntaxError" in err
    assert "script.py" in err
    assert "runpy" not in err


def test_run_shows_no_traceback_of_wefts_own_errors(tmp_path):
    file = written(tmp_path, "import weft\n\nweft.ones(2) + weft.ones(3)\n")
    _, err = weft("run", file, code=1)
    assert "weft: add: found (2,) and (3,)" in err
    assert f"{file}:3: weft.ones(2) + weft.ones(3)" in err
    assert "Traceback" not in err


@pytest.mark.parametrize(("text", "code"), [("sys.exit(7)", 7), ("sys.exit()", 0),
                                            ("sys.exit('no')", 1)])  # fmt: skip
def test_run_keeps_the_exit_code(tmp_path, text, code):
    weft("run", "--no-stats", written(tmp_path, f"import sys\n{text}\n"), code=code)


def test_module_runs_as_a_command(script):
    import subprocess
    import sys

    done = subprocess.run([sys.executable, "-m", "weft", "run", str(script)], capture_output=True,
                          text=True, check=True)  # fmt: skip
    assert "sum 32" in done.stdout


# ---- explain -------------------------------------------------------------------------------------


def test_explain(script):
    out, err = weft("explain", script, "mine")
    assert "arguments ['mine'] __main__ True" in out
    assert re.search(r"^kernel \d+: \w+ \(weft_[0-9a-f]+\)$", out, re.MULTILINE)
    assert "because: " in out
    assert "why: " not in out
    assert {"-- graph", "-- loop", "-- schedule"} <= set(out.splitlines())
    assert "contraction" in out
    for column in ("line", "launches", "time", "share", "GB/s", "GFLOP/s", "of peak"):
        assert column in out
    assert out.index("share") < out.index("\nkernel ")  # the summary comes first
    assert "train.py:4: y = (x @ weft.rand(48, 16)).softmax(-1)" in out
    assert re.search(r"random numbers: \d kernels?", out)
    assert "in cache" in out
    assert re.search(r"\d+ kernels? in \d+ plans?; machine peak [\d.]+ GB/s read, \d+ GFLOP/s", out)
    assert not err


def test_explain_shows_kernels_that_users_launch(tmp_path):
    file = written(tmp_path, """import numpy as np
import weft
from weft import gpu

@weft.kernel
def double(x):
    i = gpu.grid(1)
    if i < x.size:
        x[i] *= 2

x = np.ones(100, np.float32)
for _ in range(5):
    double[2, 64](x)
print("got", x.max())
""")
    out, _ = weft("explain", "--level", "all", file)
    assert "got 32.0" in out
    assert out.count("kernel 0: kernel double (weft_") == 1
    assert "block.x" in out  # as loops over blocks and threads
    assert re.search(r"\bret(q)?\b", out)
    assert re.search(
        r"^0 +kernel double +[\d.]+ \+ [\d.]+ ms +5 +[\d.]+ ms +100% *$", out, re.M)


@pytest.mark.slow
def test_explain_all_levels(script):
    out, _ = weft("explain", "--level", "all", "--kernel", "1", script)
    parts = re.split(r"^-- (\w+)$", out, flags=re.MULTILINE)
    shown = dict(zip(parts[1::2], parts[2::2], strict=True))
    assert list(shown) == ["graph", "loop", "schedule", "kernel", "source", "assembly"]
    assert "f32" in shown["graph"]
    assert "for " in shown["loop"]
    assert shown["schedule"].strip()
    assert "store" in shown["kernel"]
    assert "define " in shown["source"]
    assert re.search(r"\bret(q)?\b", shown["assembly"])


@pytest.mark.slow
def test_explain_no_level(script):
    out, _ = weft("explain", script, "--level", "none")
    assert "-- " not in out
    assert re.search(r"^kernel \d", out, re.M)


@pytest.mark.slow
def test_explain_tells_what_runs_at_the_same_time(tmp_path):
    file = written(tmp_path, """\
import weft
xs = [weft.rand(60, 60).realize() for _ in range(3)]
weft.jit(lambda *xs: tuple(x @ x for x in xs))(*xs)
""")
    out, _ = weft("explain", "--level", "none", file, WEFT_NUM_THREADS="2")
    assert re.search(r"plan \d+: kernels (\d+), \1, \1 run at the same time, "
                     r"[\d.]+ us instead of [\d.]+ us$", out, re.MULTILINE)  # fmt: skip
    out, _ = weft("explain", "--level", "none", file, WEFT_NUM_THREADS="1")
    assert "at the same time" not in out


@pytest.mark.slow
def test_explain_ignores_what_is_cached(script):
    first, _ = weft("explain", "--level", "none", script)
    second, _ = weft("explain", "--level", "none", script)
    assert first.count("\nkernel ") == second.count("\nkernel ") > 1


@pytest.mark.slow
def test_explain_bad_options(script):
    _, err = weft("explain", "--level", "machine", script, code=2)
    assert "'machine'" in err
    _, err = weft("explain", "--kernel", "99", script, code=1)
    assert "99" in err
    assert "expected 0 to" in err


@pytest.mark.slow
def test_explain_of_failing_scripts(tmp_path):
    out, err = weft("explain", written(tmp_path, "import weft\nweft.ones(2)[5]\n"), code=1)
    assert "script.py:2" in err
    assert "Traceback" not in err
    _, err = weft("explain", written(tmp_path, "raise KeyError(1)\n"), code=1)
    assert "KeyError: 1" in err
    assert out == ""


@pytest.mark.slow
def test_explain_of_a_script_that_leaves(tmp_path):
    file = written(tmp_path, "import sys, weft\n(weft.ones(3) * 2).numpy()\nsys.exit(0)\n")
    assert "kernel 0" in weft("explain", file)[0]


@pytest.mark.slow
def test_explain_of_nothing(tmp_path):
    out, _ = weft("explain", written(tmp_path, "print('no tensors')\n"))
    assert "no tensors" in out
    assert "0 kernels in 0 plans" in out


# ---- cache ---------------------------------------------------------------------------------------


@pytest.mark.slow
def test_cache(script, tmp_path):
    folder = tmp_path / "cache"
    environment = {"WEFT_CACHE_DIR": str(folder)}
    out, _ = weft("cache", "info", **environment)
    assert out.splitlines() == [f"path: {folder}", "entries: 0", "bytes: 0",
                                "tuned kernels: 0 (0 trials, 0 bytes)"]  # fmt: skip
    weft("run", script, **environment)
    out, _ = weft("cache", "info", **environment)
    entries, size = (int(line.split(": ")[1]) for line in out.splitlines()[1:3])
    assert entries > 2
    assert size > 1000
    tuning = "removed 0 tuning records\n"
    assert weft("cache", "clear", **environment)[0] == f"removed {entries} entries\n{tuning}"
    assert weft("cache", "clear", **environment)[0] == f"removed 0 entries\n{tuning}"


def test_cache_that_cannot_be_used(tmp_path):
    blocked = tmp_path / "blocked"
    blocked.write_text("")
    out, err = weft("cache", "info", WEFT_CACHE_DIR=str(blocked))
    assert "entries: 0" in out
    assert "Traceback" not in err
    assert "works without its cache" in err


def test_a_bad_setting_is_an_error_without_a_traceback(script):
    _, err = weft("run", script, code=1, WEFT_NUM_THREADS="many")
    assert "WEFT_NUM_THREADS" in err
    assert "Traceback" not in err
