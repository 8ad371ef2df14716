"""Tiered compilation: the switch happens, results stay right, and nothing of it shows by default.

What runs in the background is tested in processes of its own, which a switch cannot disturb.
"""

import os
import subprocess
import sys

import pytest

import graphs
from graphs import leaf
from weft import config
from weft.driver import kernels, pipeline
from weft.driver.context import host_context
from weft.driver.plans import tiers
from weft.kernelize.build import kernelize

pytestmark = pytest.mark.grid

HEAD = '''
import os, sys, threading, time
import numpy as np
import weft
from weft.driver import counters as report
from weft.driver.plans import tiers

rng = np.random.default_rng(3)
x, w = (rng.standard_normal(s).astype(np.float32) for s in ((37, 53), (53, 29)))
a, b = weft.from_numpy(x), weft.from_numpy(w)
product = x.astype(np.float64) @ w
spread = np.exp(product - product.max(1, keepdims=True))
wanted = spread / spread.sum(1, keepdims=True)
call = weft.jit(lambda a, b: (a @ b).softmax(1))

def check():
    np.testing.assert_allclose(call(a, b).numpy(), wanted, rtol=2e-5, atol=1e-7)

def until(happened, seconds=200):
    """Call until something has happened in the background, which a busy machine delays."""
    end = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < end, f"nothing happened in {seconds} seconds"
        check()
        time.sleep(0)  # the thread in the background needs the interpreter, too
'''


def run(script, tmp_path, tiered="1", debug="128"):
    """Run a script in a fresh process; return what it printed."""
    done = subprocess.run(
        [sys.executable, "-c", HEAD + script], capture_output=True, text=True, timeout=300,
        env={**os.environ, "WEFT_CACHE_DIR": str(tmp_path), "WEFT_TIERED": tiered,
             "WEFT_DEBUG": debug, "WEFT_NUM_THREADS": "2"},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def test_hot_kernels_are_switched_and_results_stay_right(tmp_path):
    told = run("""
until(lambda: len(tiers.switches()) == 2)
for _ in range(10):
    check()
assert {s.kind for s in tiers.switches()} == {"contraction", "rowwise"}
assert all(s.calls > 1 and s.milliseconds > 0 for s in tiers.switches())
assert report.counters()["kernels switched"] == 2
""", tmp_path)
    assert told.count("first tier) in") == 2
    assert told.count("to the full tier after") == 2


def test_threads_call_while_kernels_are_switched(tmp_path):
    run("""
failures = []
def work():
    try:
        until(lambda: len(tiers.switches()) == 2)
        check()
    except BaseException as error:
        failures.append(error)
threads = [threading.Thread(target=work) for _ in range(4)]
for t in threads: t.start()
for t in threads: t.join()
assert not failures, failures
""", tmp_path)


def test_without_the_setting_there_is_one_tier_and_the_same_bits(tmp_path):
    told = run("""
first = call(a, b).numpy().tobytes()
assert all(call(a, b).numpy().tobytes() == first for _ in range(3000))
assert not tiers.switches()
assert not any("tiers" in t.name for t in threading.enumerate())
""", tmp_path, tiered="0")
    assert "tier" not in told


def test_the_next_process_finds_the_full_tier(tmp_path):
    run("until(lambda: len(tiers.switches()) == 2)", tmp_path)
    told = run("check(); assert 'kernels compiled' not in report.counters()", tmp_path)
    assert "tier" not in told


def test_a_failure_in_the_background_leaves_the_first_tier(tmp_path):
    told = run("""
from weft.driver import pipeline
from weft.errors import CompileError
check()
def broken(*args):
    raise CompileError("LLVM", found="nothing good")
pipeline.render = broken
until(lambda: report.counters().get("background failures") == 2)
check()
assert not tiers.switches()
""", tmp_path)
    assert told.count("stays on the first tier") == 2


def test_the_process_may_end_while_a_kernel_is_compiled(tmp_path):
    run("""
from weft.driver import pipeline
check()
render, begun = pipeline.render, threading.Event()
def slow(*args):
    begun.set()
    time.sleep(0.2)
    return render(*args)
pipeline.render = slow
until(begun.is_set)
""", tmp_path)


def test_a_forked_child_goes_on_by_itself(tmp_path):
    run("""
check()
child = os.fork()
if child == 0:
    check()
    other = weft.jit(lambda a, b: (a @ b).exp())
    end = time.monotonic() + 200
    while not tiers.switches() and time.monotonic() < end:
        other(a, b)
    os._exit(0 if tiers.switches() else 1)
_, status = os.waitpid(child, 0)
assert os.waitstatus_to_exitcode(status) == 0
until(lambda: len(tiers.switches()) == 2)
""", tmp_path)


def test_a_kernel_with_much_work_has_no_first_tier(tmp_path):
    told = run("""
big = weft.from_numpy(np.ones((1024, 1024), np.float32))
assert (weft.jit(lambda a: a @ a)(big).numpy() == 1024).all()
""", tmp_path)
    assert "(contraction) in" in told


@pytest.mark.parametrize("outputs", [
    lambda: [graphs.softmax(leaf(37, 53))],
    lambda: [graphs.layer_norm(leaf(8, 64))],
    lambda: [graphs.matmul(leaf(33, 17), leaf(17, 65))],
    lambda: [graphs.conv2d(leaf(2, 4, 9, 9), leaf(8, 4, 3, 3))],
])  # fmt: skip
def test_the_first_tier_gives_llvm_a_fraction_of_the_text(outputs):
    for step in kernelize(outputs()):
        full = pipeline.build(step.kernel, "full", host_context())
        quick = pipeline.build(step.kernel, "quick", host_context(), pipeline.QUICK)
        assert (quick.tier, quick.pipeline) == ("quick", "quick")
        assert quick.effort.primitives <= 1
        assert quick.source.count("\n") < full.source.count("\n")


def test_nothing_is_watched_without_a_first_tier():
    assert not config.config().tiered
    code = kernels.compiled(kernelize([graphs.softmax(leaf(5, 7))])[0].kernel, host_context())
    assert code.nest is None
    assert not tiers.switches()
