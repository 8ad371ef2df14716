"""``weft tune``, and what ``weft cache`` says of its records."""

import json
import os
import re
import signal
import subprocess
import sys

import pytest
from commands import weft

pytestmark = pytest.mark.grid

SCRIPT = """\
import sys
import weft
x = weft.tensor([[0.5] * 200] * 64)
print("sum", round(float(x.softmax(-1).numpy().sum())), sys.argv[1:])
"""
FEW = {"WEFT_AUTOTUNE_N_SEEDS": "4", "WEFT_AUTOTUNE_N_ADDED_PER_STEP": "0"}


@pytest.fixture
def script(tmp_path):
    file = tmp_path / "train.py"
    file.write_text(SCRIPT)
    return file


@pytest.fixture
def folder(tmp_path):
    return {"WEFT_CACHE_DIR": str(tmp_path / "cache"), **FEW}


def test_help():
    out, _ = weft("tune", "--help")
    assert out.startswith("Usage: weft tune")
    for option in ("--seconds", "--again", "--json"):
        assert option in out
    assert "tune" in weft("--help")[0]


def test_a_table_of_kernels(script, folder):
    out, err = weft("tune", script, "a", "b", **folder)
    lines = out.splitlines()
    assert lines[0] == "sum 64 ['a', 'b']"
    assert lines[1].split() == ["kernel", "kind", "launches", "default", "tuned", "gain", "trials",
                                "ended"]  # fmt: skip
    number = r" +([\d.]+)"
    row = re.fullmatch(rf"([0-9a-f]{{12}}) +rowwise +1{number} ms{number} ms{number}× "
                       r"+(\d) +\w+ *", lines[2])  # fmt: skip
    assert row, lines[2]
    assert float(row[3]) <= float(row[2]) * 1.05
    assert row[5] == "3"
    assert re.match(r"[01] of 1 kernels are faster", lines[3])
    assert err.startswith("weft: tuning kernel 1 of 1 (rowwise): 0 candidates, ")
    assert all(line.startswith("weft: tuning kernel 1 of 1 ") for line in err.splitlines())


def test_json(script, folder):
    out, err = weft("tune", "--json", script, **folder)
    (kernel,) = json.loads(out)
    assert set(kernel) == {"kernel", "kind", "launches", "default_ms", "tuned_ms", "gain",
                           "trials", "ended", "choices"}  # fmt: skip
    assert kernel["kind"] == "rowwise"
    assert kernel["trials"] == 3
    assert kernel["default_ms"] > 0
    assert "sum 64" in err
    (again,) = json.loads(weft("tune", "--json", script, **folder)[0])
    assert again["ended"] == "known"
    more = {**folder, "WEFT_AUTOTUNE_N_SEEDS": "7"}
    (again,) = json.loads(weft("tune", "--json", "--again", script, **more)[0])
    assert again["trials"] == 6


def test_no_time(script, folder):
    (kernel,) = json.loads(weft("tune", "--json", "--seconds", "0", script, **folder)[0])
    assert (kernel["trials"], kernel["ended"], kernel["gain"]) == (0, "time", 1.0)


def test_progress_on_a_terminal(script, folder):
    text, _ = weft("tune", script, terminal=True, **folder)
    assert re.search(r"tuning kernel 1 of 1 \(rowwise\): \d candidates, best [\d.]+× the default",
                     text)  # fmt: skip


def test_an_error_of_the_script(tmp_path, folder):
    file = tmp_path / "bad.py"
    file.write_text("import weft\nweft.ones(2, 3) @ weft.ones(2, 3)\n")
    _, err = weft("tune", file, code=1, **folder)
    assert "bad.py:2" in err
    assert not os.path.exists(os.path.join(folder["WEFT_CACHE_DIR"], "v1", "tuning.sqlite"))


def test_a_script_without_kernels(tmp_path, folder):
    file = tmp_path / "empty.py"
    file.write_text("import weft\n")
    out, _ = weft("tune", file, **folder)
    assert "0 of 0 kernels" in out


def test_the_cache_knows_the_records(script, folder):
    assert "tuned kernels: 0 (0 trials" in weft("cache", "info", **folder)[0]
    weft("tune", script, **folder)
    out, _ = weft("cache", "info", **folder)
    assert re.search(r"tuned kernels: [01] \(3 trials, \d+ bytes\)", out)
    out, _ = weft("cache", "clear", "--keep-tuning", **folder)
    assert "tuning" not in out
    assert "(3 trials" in weft("cache", "info", **folder)[0]
    assert "tuning records" in weft("cache", "clear", **folder)[0]
    assert "tuned kernels: 0 (0 trials" in weft("cache", "info", **folder)[0]


@pytest.mark.slow
def test_ctrl_c_keeps_what_was_measured(script, folder):
    program = "import sys\nsys.argv[0] = 'weft'\nfrom weft.cli import main\nmain()\n"
    env = {**os.environ, **folder, "WEFT_AUTOTUNE_N_SEEDS": "100", "WEFT_DEBUG": "256"}
    command = [sys.executable, "-c", program, "tune", str(script)]
    process = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                               text=True)  # fmt: skip
    measured = 0
    while measured < 3:
        line = process.stderr.readline()
        assert line.startswith("weft: tuning")
        measured += line.startswith("weft: tuning k0: ")
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert "interrupted" in err
    assert "Traceback" not in err
    assert "0 of 0 kernels" in out
    trials = re.search(r"\((\d+) trials", weft("cache", "info", **folder)[0])[1]
    assert int(trials) >= 3
