"""A Ctrl-C at any moment of a call that changes tensors leaves their lock free, gradients on.

Python looks for signals where its functions begin and where native ones have returned: there, a
profiler raises what a Ctrl-C would.
"""

import contextlib
import inspect
import itertools
import sys
import threading

import pytest

import weft
from weft import gpu, imports
from weft.tensors.core.write_lock import writing


@weft.kernel
def doubled(x):
    i = gpu.grid(1)
    if i < x.size:
        x[i] = x[i] * 2


@weft.compute
def increased(x):
    for i in range(x.shape[0]):
        x[i] += 1


def in_place():
    x = weft.ones(8).realize()
    return lambda: x.add_(1)


def operator():
    x, y = weft.ones(8).realize(), weft.ones(8).realize()
    held = [x]

    def write():
        held[0] *= y

    return write


def part():
    x = weft.ones(8).realize()
    return lambda: x.__setitem__(slice(2, 5), 3.0)


def gradient():
    w = weft.ones(8, requires_grad=True)
    loss = (w * w).sum()

    def add():
        loss.backward()
        assert w.grad is not None

    return add


def optimiser():
    w = weft.nn.Parameter(weft.ones(8))
    step = weft.optim.SGD([w], lr=0.5).step
    (w * w).sum().backward()
    return step


def captured():
    state, x = weft.ones(8).realize(), weft.ones(16).realize()
    f = weft.jit(lambda x: state.add_(x))
    return lambda: f(x[2:10])  # a view is taken in Python


def launch():
    x, launched = weft.ones(8).realize(), doubled[1, 8]
    return lambda: launched(x + 1)  # what is not computed is taken in Python


def loops():
    x = weft.ones(8).realize()
    return lambda: increased(x + 1)


def fused():
    x = weft.ones(8).realize()

    def launches():
        with weft.fuse():
            doubled[1, 8](x)
            doubled[1, 8](x)

    return launches


def profiled(call, at):
    """Call it, and `at` with the number of each moment at which a Ctrl-C may come.

    Those in blocks of `weft.imports` are left out: they are about another lock.
    """
    moments = itertools.count()

    def moment(frame, event, argument):
        code = frame.f_code
        if (event in ("call", "c_return") and code.co_filename != imports.__file__
                and not code.co_flags & inspect.CO_GENERATOR):  # seen where they are left, too
            at(next(moments))

    sys.setprofile(moment)
    try:
        call()
    finally:
        sys.setprofile(None)


def around_turns(call):
    """Return the moments shortly before and after those at which the lock is taken or given."""
    mine = []
    profiled(call, lambda number: mine.append(writing.is_mine))
    turns = [n for n in range(1, len(mine)) if mine[n] != mine[n - 1]]
    assert turns
    assert not mine[0]
    return sorted({n for t in turns for n in range(t - 6, t + 7) if n >= 0})


def interrupted(call, number):
    """Call it, interrupted at some moment."""

    def at(moment):
        if moment == number:
            raise KeyboardInterrupt

    with contextlib.suppress(KeyboardInterrupt):
        profiled(call, at)


def in_another_thread(call):
    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    thread.join(60)
    return not thread.is_alive()


@pytest.mark.parametrize("make", [in_place, operator, part, gradient, optimiser, captured, launch,
                                  loops, fused])  # fmt: skip
def test_an_interrupted_write_leaves_the_lock(make):
    call = make()
    for _ in range(4):
        call()
    for number in around_turns(call):
        interrupted(call, number)
        assert not writing.is_mine, number
        assert weft.is_grad_enabled(), number
    y = weft.zeros(3).realize()
    assert in_another_thread(lambda: y.add_(1))
    assert y.tolist() == [1, 1, 1]
