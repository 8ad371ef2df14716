"""Ctrl-C in a long compilation or a long run: KeyboardInterrupt, and the process is well."""

import os
import select
import signal
import subprocess
import sys
import time

import pytest

pytestmark = pytest.mark.grid

CHECK = """
def check():
    assert (weft.arange(10) * 2).sum().item() == 90
    x = weft.rand(200, 300)
    assert abs(x.softmax(-1).sum().item() - 200) < 1e-2
    assert abs((x + 1).sum().item() - x.sum().item() - 60000) < 10
    big = weft.ones(1 << 22).realize()
    assert (big * 2).sum().item() == 1 << 23
    f = weft.jit(lambda x: x @ x.T)
    for _ in range(3):
        assert f(weft.ones(4, 5))[0, 0].item() == 5
    w = weft.ones(3, requires_grad=True)
    (w * w).sum().backward()
    assert w.grad.tolist() == [2, 2, 2]
"""

COMPILE = """
def work():
    for n in range(100000):
        x = weft.ones(7 + n) * n
        for i in range(6):
            x = (x + i).exp().log() if i % 2 else x.sort(0).values.cumsum(0)
        (x.softmax(-1).sum() + x.amax()).item()
"""
DEEP = """
def work():
    while True:
        y = weft.ones(3)
        for i in range(3000):
            y = (y * (i + 1.5)).sin()
        y.numpy()
"""
RUN = """
x = weft.rand(1 << 21).realize()
plan = lambda: x.exp().sin().cos().exp().sin().sum().item()
plan()
def work():
    while True:
        plan()
"""
JIT = """
big = weft.rand(1 << 18).realize()
f = weft.jit(lambda x: (x * 1.5).sort(0).values.cumsum(0).sum())
f(big)
def work():
    while True:
        f(big)
"""
LONG_KERNEL = """
x = weft.rand(1 << 23).realize()
def work():
    while True:
        x.sort(0).values.realize()
"""
CAPTURE = """
def work():
    @weft.jit
    def f(x):
        for i in range(10 ** 9):
            x = x + 1
            if i % 1000 == 0:
                x = weft.zeros(2)
        return x
    f(weft.ones(2))
"""
TRAIN = """
net = weft.nn.Sequential(weft.nn.Linear(20, 50), weft.nn.ReLU(), weft.nn.Linear(50, 1))
optimizer = weft.optim.AdamW(net.parameters())
@weft.jit
def step(x):
    optimizer.zero_grad()
    loss = (net(x) ** 2).mean()
    loss.backward()
    optimizer.step()
    return loss
x = weft.rand(64, 20)
def work():
    while True:
        step(x).item()
"""
WORKS = {"compile": COMPILE, "deep": DEEP, "run": RUN, "jit": JIT, "long kernel": LONG_KERNEL,
         "capture": CAPTURE, "train": TRAIN}  # fmt: skip

PROGRAM = """
import sys, time, weft
{check}
{work}
for _ in range({times}):
    print("working", flush=True)
    try:
        work()
    except KeyboardInterrupt:
        print("interrupted", flush=True)
    check()
print("well", flush=True)
"""
TIMES = 3


@pytest.mark.parametrize("name", WORKS)
def test_interrupt(name, tmp_path):
    program = PROGRAM.format(check=CHECK, work=WORKS[name], times=TIMES)
    errors = (tmp_path / "errors").open("w+")
    process = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=errors,
        env={**os.environ, "WEFT_CACHE_DIR": str(tmp_path / "cache")}, bufsize=0,
    )  # fmt: skip

    def expect(line, patience=60.0, again=False):
        """Read one line; `again` repeats Ctrl-C, of which Python may lose one in a finaliser."""
        until = time.monotonic() + patience
        while not select.select([process.stdout], [], [], 2.0)[0]:
            assert time.monotonic() < until, f"no {line!r}"
            if again:
                process.send_signal(signal.SIGINT)
        found = process.stdout.readline().decode().strip()
        assert found == line, found + (tmp_path / "errors").read_text()

    try:
        for i in range(TIMES):
            expect("working")
            time.sleep(0.1 + 0.13 * i)
            process.send_signal(signal.SIGINT)
            expect("interrupted", again=True)
        expect("well")
        assert process.wait(60) == 0
        left = (tmp_path / "errors").read_text()
        assert not left or "Exception ignored in" in left, left
    finally:
        process.kill()
        process.communicate()
        errors.close()


def test_interrupt_of_a_script_ends_it():
    program = "import weft\nx = weft.rand(1 << 20)\nprint('ready', flush=True)\n" + (
        "while True:\n    x.exp().sum().item()\n"
    )
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True)  # fmt: skip
    assert process.stdout.readline() == "ready\n"
    time.sleep(0.3)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode in (-signal.SIGINT, 130)
    assert "KeyboardInterrupt" in err
    assert "Exception ignored" not in err


def test_termination_ends_at_once():
    program = "import weft\nx = weft.rand(1 << 22).realize()\nprint('ready', flush=True)\n" + (
        "while True:\n    x.sort(0).values.realize()\n"
    )
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True)  # fmt: skip
    assert process.stdout.readline() == "ready\n"
    time.sleep(0.2)
    process.terminate()
    process.communicate(timeout=60)
    assert process.returncode == -signal.SIGTERM
