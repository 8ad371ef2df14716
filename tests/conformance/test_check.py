"""``WEFT_CHECK=1``: right programs pass, and a fault planted in each stage is found and named."""

import os
import subprocess
import sys

import numpy as np
import pytest

import weft
from weft import config, gpu
from weft.driver import kernels, pipeline
from weft.driver.check import blame
from weft.driver.plans import host_program, plan_cache
from weft.errors import CheckError
from weft.ir import expr as ex
from weft.ir import node as nd
from weft.ir.op import Op
from weft.ir.stmt import Store
from weft.ir.traverse import map_exprs
from weft.kernelize import build


@pytest.fixture(autouse=True)
def _checking(tmp_path):
    """Check in this process, with caches that no planted fault outlives."""
    config.reset(config.Config(check=True, cache_dir=str(tmp_path)))
    plan_cache.forget()
    yield
    plan_cache.forget()
    config.reset()


def caught(*tensors):
    with pytest.raises(CheckError) as found:
        weft.realize(*tensors)
    return str(found.value)


def example():
    """Return a tensor of one kernel."""
    x = weft.tensor(np.linspace(-1, 1, 24, dtype=np.float32).reshape(4, 6))
    return (x * 3).exp()


def test_functions_of_the_front_end_pass(rng):
    x = weft.tensor(rng.standard_normal((6, 8)).astype(np.float32), requires_grad=True)
    w = weft.tensor(rng.standard_normal((8, 5)).astype(np.float32), requires_grad=True)
    loss = ((x @ w).softmax(-1).sort(-1)[0] * (x > 0).sum(1, keepdim=True)).cumsum(0).var()
    loss.backward()
    weft.realize(loss, x.grad, w.grad)

    @weft.jit
    def step(x, w, scale):
        return (x @ w).relu().mean(0) * scale

    for k in range(3):
        step(x.detach() + k, w.detach(), 0.5).numpy()


def test_a_fault_of_simplification_is_named(monkeypatch):
    right = blame.simplify

    def wrong(outputs):
        return [nd.make(Op.NEG, n.dtype, n.shape, (n,)) for n in right(outputs)]

    monkeypatch.setattr(blame, "simplify", wrong)
    monkeypatch.setattr(host_program, "simplify", wrong)
    message = caught(example())
    assert "simplification" in message
    assert "return (x * 3).exp()" in message


def spoiled(kernel):
    """Return a kernel that stores 1 more than it should."""
    def more(s):
        if isinstance(s, Store) and s.value.dtype.is_float:
            return Store(s.memory, s.index, ex.make(Op.ADD, s.value.dtype, (
                s.value, ex.const(1.0, s.value.dtype))))
        return s
    return map_exprs(kernel, lambda e: e, more)


def test_a_fault_of_lowering_is_named(monkeypatch):
    right = build.lower
    monkeypatch.setattr(build, "lower", lambda *args: (
        lambda made: made.replace(kernel=spoiled(made.kernel)))(right(*args)))
    message = caught(example())
    assert "lowering" in message
    assert "kernel k0" in message
    assert "test_check.py" in message


def test_a_fault_of_scheduling_is_named(monkeypatch):
    right = pipeline.choose
    monkeypatch.setattr(pipeline, "choose", lambda *args: spoiled(right(*args)))
    assert "code generation" in caught(example())


def test_a_fault_of_the_plan_is_named(monkeypatch):
    """Arrays between kernels that share memory though both are needed."""
    monkeypatch.setattr(host_program, "plan_arena", lambda lives: ([0] * len(lives), 1 << 20))
    x = weft.tensor(np.linspace(-1, 1, 4096, dtype=np.float32).reshape(64, 64))
    a, b = x.sort(0)[0], x.sort(1)[0]
    monkeypatch.setattr(pipeline, "verifying", False)
    message = caught(a.sort(1)[0] - b.sort(0)[0].flip(0))
    assert "the plan" in message


def test_kernels_are_compared_with_the_interpreter(monkeypatch):
    @weft.kernel
    def double(x: weft.float32[:]):
        i = gpu.grid(1)
        if i < x.size:
            x[i] = x[i] * 2 + 0.3125  # a kernel that no other test has compiled

    x = np.arange(40, dtype=np.float32)
    for _ in range(4):
        double[2, 32](x)
    np.testing.assert_array_equal(x, np.arange(40) * 16 + 0.3125 * 15)
    right = pipeline.choose
    kernels.forget()
    monkeypatch.setattr(pipeline, "choose", lambda *args: spoiled(right(*args)))
    with pytest.raises(CheckError, match="kernel double"):
        double[1, 64](x)


def test_the_environment_turns_it_on(tmp_path):
    program = """
import sys, weft
import weft.driver.plans.realize
realize = sys.modules["weft.driver.plans.realize"]
assert realize._kind() is realize.Checked
print((weft.tensor([1.0, 2.0]) + 1).tolist())
"""
    env = {**os.environ, "WEFT_CHECK": "1", "WEFT_CACHE_DIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True,
                          timeout=120, check=True)  # fmt: skip
    assert done.stdout.strip() == "[2.0, 3.0]"
