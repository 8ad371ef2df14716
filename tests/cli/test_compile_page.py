"""``weft compile FILE:NAME --target webgpu``."""

import json

import pytest
from commands import weft

SCRIPT = """\
import numpy as np
import weft
from weft import gpu

@weft.jit(dynamic={"x": {0: weft.Variable("n", 1, 64)}})
def scaled(x, by):
    return x * by

scaled.example_inputs = lambda: (np.zeros((3, 4), np.float32), 2.0)

@weft.kernel
def negate(x):
    i = gpu.grid(1)
    if i < x.size:
        x[i] = -x[i]

wide = negate[7, 32]
number = 5

@weft.jit
def plain(x):
    return x + 1

if __name__ == "__main__":
    raise SystemExit("it ran")
"""


@pytest.fixture
def script(tmp_path):
    file = tmp_path / "script.py"
    file.write_text(SCRIPT)
    return file


def plan_of(folder, name):
    return json.loads((folder / f"{name}.plan.json").read_text())


def test_modules_are_written(script, tmp_path):
    out, _ = weft("compile", f"{script}:scaled", "--target", "webgpu", "--page", "-o",
                  tmp_path / "out")
    assert "index.html: " in out
    plan = plan_of(tmp_path / "out", "scaled")
    assert plan["inputs"][0]["shape"] == ["n", 4]
    assert plan["variables"] == [{"name": "n", "min": 1, "max": 64}]
    weft("compile", f"{script}:negate", "--target", "webgpu", "--input", "x=i32[n:1..9000,2]",
         "-o", tmp_path / "bad", code=1)
    weft("compile", f"{script}:negate", "--target", "webgpu", "--input", "x=i32[9000]",
         "--grid", "40", "--block", "256", "-o", tmp_path / "out")
    assert plan_of(tmp_path / "out", "negate")["outputs"][0]["name"] == "x"
    assert not (tmp_path / "bad").exists()
    weft("compile", f"{script}:wide", "--target", "webgpu", "--input", "x=i32[200]",
         "-o", tmp_path / "wide")
    assert not (tmp_path / "wide" / "index.html").exists()
    assert (tmp_path / "wide" / "wide.js").exists()


@pytest.mark.parametrize(("name", "options", "said"), [
    ("none", [], "nothing that is called none"), ("number", [], "a int"),
    ("plain", [], "no example inputs"), ("", [], "name it: "),
    ("plain", ["--input", "y=f32[2]"], "inputs that plain does not take"),
    ("plain", ["--input", "x=f32[2"], "NAME=DTYPE[SIZES]"),
    ("plain", ["--arch", "native", "--explain"], "none of them with --target webgpu"),
    ("negate", ["--input", "x=f32[2]", "--grid", "a"], "--grid a"),
])  # fmt: skip
def test_mistakes_are_told(script, tmp_path, name, options, said):
    place = f"{script}:{name}" if name else script
    _, err = weft("compile", place, "--target", "webgpu", "-o", tmp_path / "out", *options, code=1)
    assert said in err


def test_options_of_pages_need_the_target(script):
    for more in (["--page"], ["--input", "x=f32[3]"], ["--grid", "3"]):
        _, err = weft("compile", script, *more, code=1)
        assert "expected --target webgpu with it" in err
    _, err = weft("compile", f"{script}:plain", code=1)
    assert "found :plain" in err
    _, err = weft("compile", f"{script.parent}/none.py:plain", code=2)
    assert "none.py' does not exist" in err
