"""``WEFT_POISON`` and ``WEFT_GUARD`` in processes of their own: what they find."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parent.parent
MODES = [{"WEFT_POISON": "nan"}, {"WEFT_POISON": "ab", "WEFT_GUARD": "start"},
         {"WEFT_POISON": "nan", "WEFT_GUARD": "1"}]  # fmt: skip
linux = pytest.mark.skipif(sys.platform != "linux", reason="guards are Linux's")

PROGRAMS = """
import sys
sys.path[:0] = [{tests!r}, {conformance!r}]
from drawn import draw
from drawn_runs import fails

for number in range(8):
    problem = fails(draw(f"{seed}-{{number}}"))
    assert problem is None, problem
print("done")
"""

USES = """
import numpy as np
import weft
from weft import gpu

rng = np.random.default_rng(0)
x = rng.random((9, 17), np.float32)
t = weft.tensor(x)
np.testing.assert_allclose((t.softmax(-1) @ t.T).numpy(),
                           np.exp(x) / np.exp(x).sum(1, keepdims=True) @ x.T, rtol=1e-5)
np.testing.assert_allclose(t.sort(0)[0].cumsum(1).numpy(), np.sort(x, 0).cumsum(1), rtol=1e-5)

@weft.jit
def step(a, b):
    return (a - a.mean(-1, keepdim=True)).exp(), a @ b.T

for n in (9, 4, 9):
    e, product = step(t[:n], t[:n])
    np.testing.assert_allclose(e.numpy(), np.exp(x[:n] - x[:n].mean(1, keepdims=True)), rtol=1e-5)
    np.testing.assert_allclose(product.numpy(), x[:n] @ x[:n].T, rtol=1e-5)

w = weft.tensor(x, requires_grad=True)
(w * w).sum().backward()
np.testing.assert_allclose(w.grad.numpy(), 2 * x, rtol=1e-6)

@weft.kernel
def twice(a, b):
    i = gpu.grid(1)
    part = gpu.local.array(3, weft.float32)
    part[1] = a[i] if i < a.size else 0
    if i < a.size:
        b[i] = part[1] * 2

out = weft.empty(153)
twice[5, 32](t.reshape(-1), out)
np.testing.assert_allclose(out.numpy(), 2 * x.reshape(-1))
assert not (weft.empty(5).numpy() == 0).any() or {poison!r} == ""
print("done")
"""

UNWRITTEN = """
import weft
from weft import gpu

@weft.kernel
def half(a):
    i = gpu.grid(1)
    if i % 2 == 0:
        a[i] = 1

for _ in range(2):  # fresh memory, and then used memory
    a = weft.empty(6, dtype=weft.{dtype})
    half[1, 6](a)
    print(a.tolist())
    del a
"""

OUTSIDE = """
import ctypes
from weft import driver
buffer = driver.allocate({nbytes})
ctypes.memset(buffer.address + {at}, 0, 1)
{then}
print("survived")
"""


def child(text, **env):
    words = {k: v for k, v in os.environ.items() if not k.startswith("WEFT_")}
    words["WEFT_CACHE_DIR"] = os.environ["WEFT_CACHE_DIR"]
    return subprocess.run([sys.executable, "-c", text], env={**words, **env}, text=True,
                          capture_output=True, timeout=300, check=False)  # fmt: skip


@linux
@pytest.mark.parametrize("mode", MODES, ids=str)
def test_tensors_captures_and_kernels_run(mode):
    found = child(USES.format(poison=mode.get("WEFT_POISON", "")), **mode)
    assert found.stdout == "done\n", found.stderr


@linux
@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES[1:], ids=str)
def test_random_programs_run(mode):
    text = PROGRAMS.format(tests=str(TESTS), conformance=str(TESTS / "conformance"), seed=11)
    found = child(text, **mode)
    assert found.stdout == "done\n", found.stderr


@pytest.mark.parametrize(("mode", "dtype", "value"), [
    ("nan", "float32", "nan"), ("nan", "int16", "-1"), ("ab", "uint8", "171"), ("", "int32", "0")])
def test_what_nothing_wrote_shows(mode, dtype, value):
    found = child(UNWRITTEN.format(dtype=dtype), WEFT_POISON=mode)
    one = "1.0" if dtype.startswith("float") else "1"
    row = ", ".join([one, value] * 3)
    assert found.stdout.replace("0.0", "0") == 2 * f"[{row}]\n", found.stderr


@linux
@pytest.mark.parametrize(("guard", "nbytes", "at"), [
    ("1", 68, 68), ("1", 4096, 4096), ("start", 68, -1), ("1", 0, 0), ("1", 12, 1 << 12)])
def test_a_guard_stops_what_leaves_a_buffer(guard, nbytes, at):
    found = child(OUTSIDE.format(nbytes=nbytes, at=at, then=""), WEFT_GUARD=guard)
    assert found.returncode < 0
    assert "Segmentation fault" in found.stderr
    assert "<string>" in found.stderr  # the line of the program


@linux
def test_a_buffer_that_was_given_back_is_out_of_reach():
    then = "address = buffer.address; del buffer; ctypes.memset(address, 0, 1)"
    found = child(OUTSIDE.format(nbytes=68, at=0, then=then), WEFT_GUARD="1")
    assert found.returncode < 0


@linux
@pytest.mark.parametrize(("guard", "at"), [("1", -1), ("start", 68)])
def test_what_is_written_beside_a_buffer_is_told_later(guard, at):
    found = child(OUTSIDE.format(nbytes=68, at=at, then="del buffer; driver.allocate(4)"),
                  WEFT_GUARD=guard)
    assert "a write to bytes beside a buffer" in found.stderr
    assert "survived" not in found.stdout


@pytest.mark.parametrize("name", ["WEFT_POISON", "WEFT_GUARD"])
def test_other_words_are_refused(name):
    found = child("import weft; weft.ones(3).numpy()", **{name: "yes"})
    assert name in found.stderr
    assert "ParseError" in found.stderr
