"""LLVM's work beside Weft's: the same code, errors where they belong, nothing left over."""

import _thread
import math
import sys
import threading
import time

import pytest

import weft
from weft import background
from weft.compilers import llvm
from weft.driver import counters
from weft.driver.background_compile import BackgroundCompile, Once
from weft.driver.context import host_context
from weft.errors import CompileError
from weft.runtimes.cpu.runtime import CpuRuntime


def none_left(before):
    """Whether there are no more threads than before, as soon as the last has ended."""
    for _ in range(1000):
        if _thread._count() <= before:
            return True
        time.sleep(0.01)
    return False


def test_calls_are_made_in_order_and_once():
    calls = []

    def call(number):
        calls.append((number, threading.get_ident()))
        return number

    jobs = [Once(lambda n=n: call(n)) for n in range(20)]
    interval = sys.getswitchinterval()
    with BackgroundCompile(True) as aside:
        for job in jobs:
            aside.start(job)
        assert [job() for job in jobs] == list(range(20))
    assert [job() for job in jobs] == list(range(20))
    assert sorted(n for n, _ in calls) == list(range(20))
    assert sys.getswitchinterval() == pytest.approx(interval)


def test_nothing_happens_aside_where_it_may_not():
    before = _thread._count()
    with BackgroundCompile(False) as aside:
        aside.start(Once(lambda: pytest.fail("it was called")))
    assert none_left(before)


def test_an_error_is_raised_where_the_result_is_wanted():
    def fail():
        raise CompileError("LLVM", found="nothing")

    job = Once(fail)
    with BackgroundCompile(True) as aside:
        aside.start(job)
        after = Once(lambda: 3)
        aside.start(after)
        assert after() == 3
    with pytest.raises(CompileError):
        job()


def test_what_was_not_begun_is_left_after_an_error():
    calls, going, before = [], threading.Event(), _thread._count()

    def slow():
        going.set()
        time.sleep(0.2)

    def interrupted():
        with BackgroundCompile(True) as aside:
            aside.start(Once(slow))
            aside.start(Once(lambda: calls.append(1)))
            assert going.wait(10)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert not calls
    assert none_left(before)


def test_kernels_compiled_aside_are_those_compiled_here(monkeypatch):
    used = []
    compile_ = llvm.LLVMCompiler.compile

    def watched(self, source, pipeline="short"):
        used.append(threading.get_ident())
        return compile_(self, source, pipeline)

    x = weft.rand(211).realize()  # the pool is there, too
    monkeypatch.setattr(llvm.LLVMCompiler, "compile", watched)
    monkeypatch.setattr(type(host_context().native), "thread_count", 2)
    before = counters.counters().get("kernels compiled", 0)
    out = (x.sort(0).values.cumsum(0).softmax(-1) * x.exp().sum()).numpy()
    assert counters.counters()["kernels compiled"] - before == len(used) > 2
    assert set(used) - {threading.get_ident()}
    data = x.numpy().astype("f8")
    running = sorted(data)
    total = [sum(running[:i + 1]) for i in range(len(running))]
    top = max(total)
    weights = [math.exp(t - top) for t in total]
    scale = sum(math.exp(d) for d in data) / sum(weights)
    assert out.tolist() == pytest.approx([w * scale for w in weights], rel=1e-4)


def test_a_kernel_that_does_not_compile_fails_as_ever(monkeypatch):
    background.drain()
    before = _thread._count()
    def broken(self, source, pipeline="short"):
        raise CompileError("LLVM", found="a broken compiler")

    with monkeypatch.context() as patch:
        patch.setattr(type(host_context().native), "thread_count", 2)
        patch.setattr(llvm.LLVMCompiler, "compile", broken)
        with pytest.raises(CompileError, match="broken compiler"):
            (weft.rand(223).sort(0).values.cumsum(0).exp().sum() + 3).item()
    assert none_left(before)
    assert (weft.ones(223).cumsum(0).sum()).item() == 223 * 112


def test_without_more_threads_everything_is_compiled_here(monkeypatch):
    background.drain()
    before = _thread._count()
    def refused(function, arguments):
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(type(host_context().native), "thread_count", 2)
        patch.setattr(_thread, "start_new_thread", refused)
        assert (weft.ones(229).cumsum(0).sort(0).values.sum() + 1).item() == 229 * 115 + 1
        runtime = CpuRuntime(llvm.compiler(), llvm.session(), None)
        runtime.prepare()
    assert runtime.threads.threads >= 1
    assert none_left(before)
