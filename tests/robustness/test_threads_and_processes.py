"""Many threads at once, and processes that were forked or spawned."""

import copy
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

import weft

SECONDS = 60.0


def together(count, work):
    """Run `work(i)` in threads that start at once; raise what any of them raised."""
    barrier = threading.Barrier(count)
    results, errors = [None] * count, []

    def run(i):
        try:
            barrier.wait(SECONDS)
            results[i] = work(i)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(i,), daemon=True) for i in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SECONDS)
        assert not thread.is_alive(), "a thread hangs"
    if errors:
        raise errors[0]
    return results


# ---- threads -------------------------------------------------------------------------------------


def test_threads_compile_different_programs_at_once():
    def work(i):
        x = weft.arange(1000 + i, dtype=weft.float32)
        return ((x * (i + 1)).sum() + i).item()

    assert together(8, work) == [
        pytest.approx((i + 1) * (999 + i) * (1000 + i) / 2 + i) for i in range(8)
    ]


def test_threads_realize_one_tensor_at_once():
    for attempt in range(5):
        x = (weft.arange(5000, dtype=weft.float32) + attempt).exp2().reciprocal().cumsum(0)
        values = together(4, lambda i, x=x: x.numpy().copy())
        for value in values[1:]:
            np.testing.assert_array_equal(value, values[0])


def test_threads_realize_parts_of_one_graph_at_once():
    base = weft.rand(300, 300)
    shared = (base @ base).softmax(-1)
    results = together(4, lambda i: (shared * (i + 1)).sum().item())
    np.testing.assert_allclose(results, [300 * (i + 1) for i in range(4)], rtol=1e-4)


def test_large_parallel_kernels_from_many_threads():
    x = weft.rand(1 << 20).realize()
    want = x.numpy().astype(np.float64)

    def work(i):
        return [(x * (i + 1) + j).sum().item() for j in range(5)]

    for i, found in enumerate(together(4, work)):
        np.testing.assert_allclose(
            found, [(want * (i + 1) + j).sum() for j in range(5)], rtol=1e-5
        )


def test_first_call_of_one_captured_function_at_once():
    for attempt in range(4):
        runs = []

        @weft.jit
        def f(x, attempt=attempt, runs=runs):
            runs.append(1)
            return (x * (attempt + 2)).sum() + x.amax()

        results = together(6, lambda i, f=f: [f(weft.full((64,), float(i + k))).item()
                                              for k in range(20)])  # fmt: skip
        for i, found in enumerate(results):
            assert found == [64 * (attempt + 2) * (i + k) + i + k for k in range(20)]
        # several threads may capture, but what they made is one entry
        assert 1 <= f.captures <= len(runs) <= 6


def test_signatures_captured_by_several_threads():
    f = weft.jit(lambda x, n: x.reshape(-1)[:n].sum() * n)

    def work(i):
        return [f(weft.ones(4, 5 + k), k + 1).item() for k in range(4)]

    assert together(4, work) == [[1, 4, 9, 16]] * 4


def test_gradient_mode_belongs_to_a_thread():
    inside, leave = threading.Event(), threading.Event()

    def hold():
        with weft.no_grad():
            inside.set()
            leave.wait(SECONDS)

    thread = threading.Thread(target=hold)
    thread.start()
    inside.wait(SECONDS)
    try:
        x = weft.ones(2, requires_grad=True)
        assert weft.is_grad_enabled()
        (x * 3).sum().backward()
        assert x.grad.tolist() == [3, 3]
    finally:
        leave.set()
        thread.join(SECONDS)


def test_a_capture_in_one_thread_does_not_stop_another():
    inside, leave = threading.Event(), threading.Event()

    @weft.jit
    def f(x):
        inside.set()
        leave.wait(SECONDS)
        return x + 1

    result = []
    thread = threading.Thread(target=lambda: result.append(f(weft.ones(2)).tolist()))
    thread.start()
    inside.wait(SECONDS)
    try:
        assert (weft.ones(3) * 5).tolist() == [5, 5, 5]  # reads a value meanwhile
    finally:
        leave.set()
        thread.join(SECONDS)
    assert result == [[2, 2]]


def test_independent_training_in_threads():
    def work(i):
        weights = weft.nn.Parameter(weft.zeros(3))
        optimizer = weft.optim.SGD([weights], lr=0.1)
        goal = weft.full((3,), float(i))

        @weft.jit
        def step():
            optimizer.zero_grad()
            loss = ((weights - goal) ** 2).sum()
            loss.backward()
            optimizer.step()
            return loss

        for _ in range(60):
            step()
        return weights.detach().mean().item()

    np.testing.assert_allclose(together(3, work), [0, 1, 2], atol=1e-3)


def test_random_numbers_from_threads_are_distinct():
    draws = together(6, lambda i: tuple(weft.rand(4).tolist()))
    assert len(set(draws)) == 6


# ---- processes -----------------------------------------------------------------------------------


def compute():
    """Return a number that needs a compiled kernel, threads, and a captured function."""
    x = weft.arange(1 << 19, dtype=weft.float64)
    f = weft.jit(lambda x: (x * 2).sum())
    return [(x + 1).sum().item(), f(x).item(), f(x).item(), (weft.eye(40) @ weft.ones(40)).sum(
    ).item()]  # fmt: skip


WANT = [(1 << 18) * ((1 << 19) - 1) + (1 << 19), *[(1 << 19) * ((1 << 19) - 1)] * 2, 40]


def in_child(work):
    """Fork; return the exit code of a child that runs `work`, or a negative signal number."""
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        code = 70
        try:
            code = 0 if work() else 71
        except BaseException as error:
            os.write(2, f"{type(error).__name__}: {error}\n".encode())
        finally:
            os._exit(code)
    until = time.monotonic() + SECONDS
    while time.monotonic() < until:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.005)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    pytest.fail("the child hangs")


@pytest.mark.requires("fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
class TestFork:
    def test_child_computes_after_the_parent_used_threads(self):
        assert compute() == WANT
        for _ in range(3):
            assert in_child(lambda: compute() == WANT) == 0
        assert compute() == WANT

    def test_child_of_a_child(self):
        assert compute() == WANT
        assert in_child(lambda: in_child(lambda: compute() == WANT) == 0) == 0

    def test_child_compiles_anew(self):
        assert compute() == WANT
        new = os.getpid() % 977 + 1013

        def work():
            x = weft.arange(new, dtype=weft.float32)
            return ((x + new).exp() * 0 + x).sum().item() == pytest.approx(new * (new - 1) / 2) or (
                (x + 1).sum().item() == pytest.approx(new * (new + 1) / 2)
            )

        assert in_child(work) == 0

    def test_child_reads_tensors_of_the_parent(self):
        x = weft.arange(100000, dtype=weft.float32).realize()
        lazy = x * 2
        f = weft.jit(lambda x: x + 1)
        f(x)
        assert in_child(lambda: lazy[7].item() == 14 and f(x)[9].item() == 10) == 0
        assert lazy[7].item() == 14

    def test_fork_while_another_thread_compiles(self):
        stop = threading.Event()
        errors = []

        def work():
            n = 100
            while not stop.is_set():
                n += 1
                try:
                    (weft.arange(n) * n).sum().item()
                except BaseException as error:
                    errors.append(error)
                    return

        thread = threading.Thread(target=work)
        thread.start()
        try:
            for _ in range(5):
                time.sleep(0.02)
                assert in_child(lambda: compute() == WANT) == 0
        finally:
            stop.set()
            thread.join(SECONDS)
        assert not thread.is_alive()
        assert not errors

    def test_random_numbers_of_a_child(self):
        weft.manual_seed(5)
        first = weft.rand(3).tolist()

        def work():
            weft.manual_seed(5)
            return weft.rand(3).tolist() == first

        assert in_child(work) == 0


# Children that are forked while a thread of the parent compiles for the first time.
FORK_EARLY = """
import os, threading, time, weft

def work():
    (weft.arange(1009) * 3).cumsum(0).sum().item()

thread = threading.Thread(target=work)
thread.start()
children = []
for _ in range(5):
    time.sleep(0.03)
    child = os.fork()
    if child == 0:
        os._exit(0 if (weft.arange(10) * 2).sum().item() == 90 else 1)
    children.append(child)
thread.join()
until, codes = time.monotonic() + 30, {}
while len(codes) < len(children) and time.monotonic() < until:
    for child in children:
        if child not in codes and (found := os.waitpid(child, os.WNOHANG))[0]:
            codes[child] = found[1]
    time.sleep(0.01)
for child in children:
    if child not in codes:
        os.kill(child, 9)
print([codes.get(child, "hangs") for child in children])
"""


@pytest.mark.requires("fork")
def test_fork_while_another_thread_imports_what_compiles(tmp_path):
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FORK_EARLY], capture_output=True, text=True,
        timeout=SECONDS, check=False, env={**os.environ, "WEFT_CACHE_DIR": str(tmp_path)},
    )  # fmt: skip
    assert done.stdout == "[0, 0, 0, 0, 0]\n", done.stderr


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_multiprocessing(method, tmp_path):
    if method not in multiprocessing.get_all_start_methods():
        method = "spawn"
    script = tmp_path / "work.py"
    script.write_text(
        "import multiprocessing, sys, weft\n"
        "def work(i):\n"
        "    return (weft.arange(1000) * i).sum().item()\n"
        "if __name__ == '__main__':\n"
        "    assert work(1) == 499500\n"
        f"    context = multiprocessing.get_context({method!r})\n"
        "    with context.Pool(2) as pool:\n"
        "        assert pool.map(work, range(4)) == [i * 499500 for i in range(4)]\n"
        "    assert work(3) == 3 * 499500\n"
        "    print('well')\n"
    )
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True,
                          timeout=SECONDS, check=False)  # fmt: skip
    assert done.stdout == "well\n", done.stderr


@pytest.mark.parametrize("dtype", [weft.float32, weft.bfloat16, weft.bool, weft.float8_e5m2],
                         ids=lambda d: d.name)  # fmt: skip
def test_tensors_travel_between_processes(dtype):
    x = weft.arange(6).reshape(2, 3).astype(dtype)
    for again in (pickle.loads(pickle.dumps(x)), copy.copy(x), copy.deepcopy(x),
                  pickle.loads(pickle.dumps(x.T)).T):  # fmt: skip
        assert again.dtype is x.dtype
        assert again.tolist() == x.tolist()
    net = weft.nn.Linear(2, 3)
    again = pickle.loads(pickle.dumps(net))
    assert type(again.weight) is weft.nn.Parameter
    assert again.weight.requires_grad
    assert again(weft.ones(1, 2)).tolist() == net(weft.ones(1, 2)).tolist()
    assert pickle.loads(pickle.dumps(weft.ones(0, 3))).shape == (0, 3)
    assert pickle.loads(pickle.dumps(weft.ones(()))).item() == 1


def test_exit_while_threads_work(tmp_path):
    """A process ends at once and well, whatever its threads are doing."""
    script = tmp_path / "leave.py"
    script.write_text(
        "import threading, time, weft\n"
        "def work():\n"
        "    while True:\n"
        "        (weft.rand(1000, 1000) + 1).sum().item()\n"
        "threading.Thread(target=work, daemon=True).start()\n"
        "time.sleep(0.4)\n"
        "print((weft.ones(3) + 1).tolist())\n"
    )
    for _ in range(2):
        done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True,
                              timeout=SECONDS, check=False)  # fmt: skip
        assert done.returncode == 0, (done.returncode, done.stderr)
        assert done.stdout == "[2.0, 2.0, 2.0]\n"
