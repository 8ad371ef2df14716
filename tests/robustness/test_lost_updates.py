"""Threads that change the same tensors: no update is lost, and what changes nothing goes on."""

import random
import threading
import time

import numpy as np
import pytest
from test_threads_and_processes import together

import weft
from weft import build, gpu
from weft.tensors.core.write_lock import changing, writing

SIZES = (3, 5_000, 300_000)  # within Python's lock, outside of it, and written over the old value
THREADS, CALLS = 5, 40


def one_function(state):
    f = weft.jit(lambda: state.add_(1))
    return [f]


def two_functions(state):
    def add():
        state.add_(1)

    def add_more(x):
        state.copy_(state + x)

    f, g = weft.jit(add), weft.jit(add_more)
    one = weft.ones(1)
    return [f, lambda: g(one)]


def an_argument(state):
    @weft.jit
    def f(x):
        x += 1

    return [lambda: f(state)]


def eager(state):
    return [lambda: state.add_(1)]


def eager_beside_captured(state):
    f = weft.jit(lambda: state.add_(1))
    return [f, lambda: state.add_(1)]


def a_view(state):
    f = weft.jit(lambda: state.add_(1))
    view = state.view(state.numel(), 1)
    return [f, lambda: view.add_(1)]


def of_many(state):
    others = [weft.zeros(50) for _ in range(4)]

    @weft.jit
    def f():
        state.add_(1)
        for other in others:
            other.add_(1)

    return [f]


def with_random_numbers(state):
    f = weft.jit(lambda: state.add_(weft.rand(1) * 0 + 1))
    return [f]


def gradients(state):
    """The state is a gradient: eager and captured backward passes add to it."""
    w = weft.zeros(state.numel(), requires_grad=True)
    w.grad = state

    def step():
        w.sum().backward()

    return [step, weft.jit(step)]


@weft.kernel
def added(x):
    i = gpu.grid(1)
    if i < x.size:
        x[i] += 1


@weft.compute
def added_by_loops(x):
    for i in range(x.shape[0]):
        x[i] += 1


def built():
    with build.function("added") as f:
        x = f.array("x", weft.float32, 1, writable=True)
        with f.loop(x.shape[0]) as i:
            x[i] = x[i] + 1
    return f.program


def a_kernel(state):
    launch = added[(state.numel() + 255) // 256, 256]
    return [lambda: launch(state)]


def a_kernel_beside_captured(state):
    return [*a_kernel(state), weft.jit(lambda: state.add_(1)), lambda: state.add_(1)]


def a_kernel_on_a_view(state):
    view = state.view(state.numel(), 1)[:, 0]
    launch = added[(state.numel() + 255) // 256, 256]
    return [lambda: launch(view), weft.jit(lambda: state.add_(1))]


def fused_kernels(state):
    launch = added[(state.numel() + 255) // 256, 256]

    def twice():
        with weft.fuse():
            launch(state)

    return [twice, lambda: state.add_(1)]


def loops(state):
    return [lambda: added_by_loops(state), weft.jit(lambda: state.add_(1))]


def a_program(state):
    program = built()
    return [lambda: program(state), lambda: added_by_loops(state)]


def a_captured_kernel(state):
    launch = added[(state.numel() + 255) // 256, 256]
    return [weft.jit(lambda: launch(state)), lambda: launch(state)]


KERNELS = (a_kernel, a_kernel_beside_captured, a_kernel_on_a_view, fused_kernels, loops, a_program,
           a_captured_kernel)  # fmt: skip
KINDS = (one_function, two_functions, an_argument, eager, eager_beside_captured, a_view, of_many,
         with_random_numbers, gradients, *KERNELS)  # fmt: skip


@pytest.mark.grid
@pytest.mark.parametrize("kind", KINDS, ids=lambda k: k.__name__)
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("warm", [False, True])
def test_no_update_is_lost(kind, size, warm):
    state = weft.zeros(size).realize()
    functions = kind(state)
    for f in functions * (3 * warm):
        f()
    before = state[0].item()

    def work(i):
        rng = random.Random(i)
        for k in range(CALLS):
            rng.choice(functions)()
            if k % 16 == 15:
                state.realize()

    together(THREADS, work)
    found = state.numpy()
    assert found.min() == found.max() == before + THREADS * CALLS


def test_programs_of_updates_are_those_of_some_order():
    """Threads add powers of two, each by another way: the sum tells what is lost."""
    rng = random.Random()
    states = [weft.zeros(n, dtype=weft.int64).realize() for n in (4, 4000, 200_000)]
    total = np.zeros(len(states), np.int64)
    steps = []
    for _ in range(60):
        chosen, amount = rng.sample(range(len(states)), rng.randint(1, 3)), rng.randrange(1000)
        way = rng.choice(["eager", "captured", "argument"])
        total[chosen] += amount
        steps.append((way, chosen, amount))

    @weft.jit
    def by_argument(x, amount):
        x += amount

    def add(chosen, amount):
        for i in chosen:
            states[i].add_(amount)

    captured = {s: weft.jit(lambda s=s: add(*s[1:])) for s in map(tuple_of, steps)}

    def work(i):
        for step in steps[i::4]:
            way, chosen, amount = step
            if way == "eager":
                add(chosen, amount)
            elif way == "captured":
                captured[tuple_of(step)]()
            else:
                for k in chosen:
                    by_argument(states[k], weft.tensor(amount))

    together(4, work)
    assert [int(s[0].item()) for s in states] == total.tolist(), steps


def tuple_of(step):
    return step[0], tuple(step[1]), step[2]


def test_what_changes_nothing_does_not_wait():
    state, x = weft.zeros(10), weft.ones(10)
    reads = weft.jit(lambda x: x + state)
    reads(x)
    reads(x)
    done = []

    def work():
        less = weft.jit(lambda x: x - 1)
        done.append([reads(x).tolist(), (x * 2).tolist(), less(x).tolist()])

    @changing
    def meanwhile():
        thread = threading.Thread(target=work)
        thread.start()
        thread.join(60)

    meanwhile()
    assert done


@pytest.mark.parametrize("size", SIZES)
def test_who_changes_waits(size):
    state = weft.zeros(size).realize()
    f = weft.jit(lambda: state.add_(1))
    for _ in range(3):
        f()
    thread = threading.Thread(target=f)

    @changing
    def meanwhile():
        thread.start()
        time.sleep(0.05)
        assert thread.is_alive()
        f()  # this thread's own call does not wait
        assert state[0].item() == 4

    meanwhile()
    thread.join(60)
    assert state[0].item() == 5


def test_a_call_that_fails_lets_others_go_on():
    state, where = weft.zeros(4000).realize(), weft.tensor([0])

    @weft.jit
    def f(i):
        state.add_(state[i])

    for _ in range(3):
        f(where)
    with pytest.raises(weft.errors.BoundsError):
        f(weft.tensor([4000]))
    assert not writing.is_mine
    together(2, lambda i: state.add_(1))
    together(2, lambda i: f(where))
    assert state[0].item() == 8
