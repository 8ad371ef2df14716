"""The thread pool: right chunks, on any number of threads, from anywhere, after fork, idle."""

import ctypes
import os
import random
import signal
import subprocess
import sys
import threading
import time

import pytest
from native_kernels import KERNELS, SYMBOLS

from weft.compilers import llvm
from weft.errors import CompileError
from weft.runtimes.native.executor import threads
from weft.runtimes.native.executor.threads import ThreadPool

Region = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)


class Case:
    """A pool of its own with the test kernels linked to it."""

    def __init__(self, kind, count):
        library = llvm.session().load(
            llvm.compiler().compile(threads.source(kind), "O2"), threads.SYMBOLS
        )
        library.pin()
        self.pool = ThreadPool(library, count)
        self.kernels = llvm.session().load(
            llvm.compiler().compile(KERNELS), SYMBOLS, {"weft_parallel_for": self.pool.address}
        )
        self.region = Region(self.pool.address)

    def run(self, name, env, n):
        self.region(self.kernels[name], env, n)


# Condition variables work wherever futexes do.
FLAVOURS = ["futex", "condition"] if threads.flavour() == "futex" else [threads.flavour()]


@pytest.fixture(scope="module", params=FLAVOURS)
def case(request):
    case = Case(request.param, 4)
    yield case
    case.pool.shutdown()


@pytest.fixture(autouse=True)
def four_threads(request):
    if "case" in request.fixturenames:
        request.getfixturevalue("case").pool.resize(4)


def expected_bounds(n, count):
    parts = min(n, count)
    sizes = [n // parts + (c < n % parts) for c in range(parts)] if n > 0 else []
    return [(sum(sizes[:c]), sum(sizes[: c + 1])) for c in range(len(sizes))]


def bounds(case, n):
    """Return the (begin, end) of every chunk that the body saw."""
    env = (ctypes.c_int64 * max(n, 1))()
    case.run("bounds_body", ctypes.addressof(env), n)
    return [(begin, end) for begin, end in enumerate(env) if end]


@pytest.mark.grid
@pytest.mark.parametrize("count", [1, 2, 3, 4, 7, 64])
def test_chunks_are_contiguous_and_fixed(case, count):
    assert case.pool.resize(count) == count
    for n in (-5, 0, 1, 2, 3, count - 1, count, count + 1, 100, 1001):
        for _ in range(3):
            assert bounds(case, n) == expected_bounds(n, count)


def test_every_iteration_once(case):
    for n in (1, 5, 1000, 100_003):
        env = (ctypes.c_int64 * (n + 1))()
        case.run("squares_body", ctypes.addressof(env) + 8, n)
        assert list(env[1:]) == [i * i for i in range(n)]
        assert env[0] == min(n, 4)


def test_huge_counts_do_not_wrap(case):
    env = ctypes.c_int64()
    case.run("one_body", ctypes.addressof(env), (1 << 63) - 1)
    assert env.value == (1 << 63) - 1


def test_nested_regions_run_inline(case):
    env = ctypes.c_int64()
    case.run("nested_body", ctypes.addressof(env), 50)
    assert env.value == 5000


def test_workers_start_when_needed_and_end_at_shutdown(case):
    case.pool.shutdown()
    assert case.pool.workers == 0
    assert bounds(case, 1) == [(0, 1)]
    assert case.pool.workers == 0
    bounds(case, 2)
    assert case.pool.workers == 1
    bounds(case, 100)
    assert case.pool.workers == 3
    case.pool.shutdown()
    case.pool.shutdown()
    assert case.pool.workers == 0
    assert bounds(case, 100) == expected_bounds(100, 4)


def test_resize_up_and_down(case):
    for count in (1, 8, 2, 4, 3):
        case.pool.resize(count)
        assert case.pool.threads == count
        assert bounds(case, 97) == expected_bounds(97, count)
    assert case.pool.resize(0) == 1
    assert case.pool.resize(10**6) == threads.MAX_THREADS
    assert bounds(case, 1) == [(0, 1)]


def test_eight_host_threads_share_the_pool(case):
    failures = []

    def work(number):
        for step in range(200):
            n = 10 + number * 37 + step
            env = (ctypes.c_int64 * (n + 1))()
            case.run("squares_body", ctypes.addressof(env) + 8, n)
            if list(env[1:]) != [i * i for i in range(n)] or env[0] != 4:
                failures.append((number, step))

    hosts = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for host in hosts:
        host.start()
    for host in hosts:
        host.join(60)
    assert not failures
    assert not any(host.is_alive() for host in hosts)


def test_more_threads_than_processors(case):
    """The caller takes over what workers without a processor have not begun."""
    case.pool.resize(64)
    env = ctypes.c_int64()
    for _ in range(200):
        case.run("one_body", ctypes.addressof(env), 1000)
    assert env.value == 200_000
    for n in (63, 64, 65, 1000):
        assert bounds(case, n) == expected_bounds(n, 64)


def test_no_wake_is_ever_lost(case):
    """Workers that never spin fall asleep between any two instructions of a poster."""
    case.pool.resize(threads.usable_cpus() + 1)
    end = time.monotonic() + 1.5

    def work(number):
        rng = random.Random(number)
        while time.monotonic() < end:
            env = ctypes.c_int64()
            for _ in range(rng.choice((1, 100, 1000))):
                case.run("one_body", ctypes.addressof(env), 2 + number)
            if rng.random() < 0.2:
                time.sleep(rng.random() * 1e-3)

    hosts = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for host in hosts:
        host.start()
    for host in hosts:
        host.join(60)
    # Only a worker that wakes up for its last post can be joined.
    last = threading.Thread(target=case.pool.shutdown, daemon=True)
    last.start()
    last.join(30)
    assert not last.is_alive()


def test_regions_after_idleness(case):
    for pause in (0.0, 0.001, 0.02, 0.05):
        time.sleep(pause)
        assert bounds(case, 100) == expected_bounds(100, 4)


@pytest.mark.skipif(threads.flavour() != "futex" or threads.usable_cpus() < 2,
                    reason="needs Linux and a second CPU to go to")
def test_a_worker_leaves_the_cpu_of_its_caller():
    allowed = os.sched_getaffinity(0)
    before = set(os.listdir("/proc/self/task"))
    case = Case("futex", 2)
    try:
        assert bounds(case, 100) == expected_bounds(100, 2)
        (worker,) = (int(t) for t in set(os.listdir("/proc/self/task")) - before)
        for cpu in sorted(allowed)[:2]:
            os.sched_setaffinity(0, {cpu})
            os.sched_setaffinity(worker, {cpu})
            time.sleep(0.02)  # it sleeps
            os.sched_setaffinity(worker, allowed)
            end = time.monotonic() + 60
            while time.monotonic() < end:
                assert bounds(case, 1 << 12) == expected_bounds(1 << 12, 2)
                time.sleep(0.001)
                if _place(worker, cpu) == (False, allowed):
                    break
            assert _place(worker, cpu) == (False, allowed)
    finally:
        os.sched_setaffinity(0, allowed)
        case.pool.shutdown()


def _place(thread, cpu):
    """Return whether a thread of this process ran on a CPU last, and the CPUs it may run on."""
    with open(f"/proc/self/task/{thread}/stat", encoding="ascii") as file:
        last = int(file.read().rpartition(")")[2].split()[36])
    return last == cpu, os.sched_getaffinity(thread)


def in_child(work, seconds=120):
    """Return the exit status of ``work`` in a forked child, which may not take too long."""
    child = os.fork()
    if child == 0:
        try:
            os._exit(0 if work() else 1)
        except BaseException:
            os._exit(2)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.005)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return "hangs"


@pytest.mark.requires("fork")
def test_child_after_fork_computes_with_workers_of_its_own(case):
    case.pool.shutdown()
    bounds(case, 100)
    assert case.pool.workers == 3

    def work():
        return bounds(case, 100) == expected_bounds(100, 4) and case.pool.workers == 3

    assert in_child(work) == 0
    assert bounds(case, 100) == expected_bounds(100, 4)


@pytest.mark.requires("fork")
def test_grandchild_computes(case):
    def work():
        bounds(case, 100)
        return in_child(lambda: bounds(case, 100) == expected_bounds(100, 4)) == 0

    assert in_child(work) == 0


@pytest.mark.slow
@pytest.mark.requires("fork")
def test_fork_while_another_thread_is_in_a_region(case):
    stop = threading.Event()

    def busy():
        env = (ctypes.c_int64 * 1000)()
        while not stop.is_set():
            case.run("squares_body", ctypes.addressof(env) + 8, 999)

    host = threading.Thread(target=busy)
    host.start()
    try:
        for _ in range(10):
            assert in_child(lambda: bounds(case, 100) == expected_bounds(100, 4)) == 0
    finally:
        stop.set()
        host.join()


@pytest.mark.requires("fork")
def test_child_may_shut_down(case):
    bounds(case, 100)

    def work():
        case.pool.shutdown()
        return bounds(case, 9) == expected_bounds(9, 4)

    assert in_child(work) == 0


def blocked_signals(task):
    with open(f"/proc/self/task/{task}/status") as file:
        mask = next(int(line.split()[1], 16) for line in file if line.startswith("SigBlk"))
    return {number for number in range(1, 32) if mask >> number - 1 & 1}


def test_workers_block_signals_but_not_their_own_faults(case):
    case.pool.shutdown()
    before = set(os.listdir("/proc/self/task"))
    bounds(case, 100)
    workers = set(os.listdir("/proc/self/task")) - before
    assert len(workers) == 3
    faults = {signal.SIGSEGV, signal.SIGFPE, signal.SIGILL, signal.SIGBUS}
    for worker in workers:
        end = time.monotonic() + 60
        blocked = blocked_signals(worker)
        while blocked & faults and time.monotonic() < end:
            time.sleep(0.001)  # libc blocks everything while a thread is being set up
            blocked = blocked_signals(worker)
        assert {signal.SIGINT, signal.SIGTERM, signal.SIGALRM, signal.SIGUSR1} <= blocked
        assert not blocked & faults
    # The mask of the thread that started them is as it was.
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, [])


def test_serial_flavour():
    case = Case("serial", 4)
    assert (case.pool.threads, case.pool.workers) == (1, 0)
    assert bounds(case, 100) == [(0, 100)]
    assert bounds(case, 0) == []
    case.pool.shutdown()


def test_default_thread_count(monkeypatch):
    from weft import config

    case = Case(None, None)
    assert case.pool.threads == (config.config().num_threads or threads.usable_cpus())
    monkeypatch.setenv("WEFT_NUM_THREADS", "3")
    config.reset()
    try:
        assert Case(None, None).pool.threads == 3
    finally:
        monkeypatch.undo()
        config.reset()


def test_usable_cpus_respects_a_quota(monkeypatch):
    monkeypatch.setattr(threads, "_cgroup_cpus", lambda: 1)
    assert threads.usable_cpus() == 1
    monkeypatch.setattr(threads, "_cgroup_cpus", lambda: None)
    assert threads.usable_cpus() >= 1


@pytest.mark.parametrize("kind", ["futex", "condition", "serial"])
@pytest.mark.parametrize("machine", ["x86_64", "aarch64", "riscv64", "s390x"])
def test_source_compiles_for_other_machines(monkeypatch, kind, machine):
    monkeypatch.setattr(threads, "_machine", lambda: machine)
    source = threads.source(kind)
    assert "$" not in source
    if machine == "s390x":  # not built into llvmlite: the text alone has to be right
        assert "weft_parallel_for" in source
        return
    assert llvm.LLVMCompiler(f"{machine}-unknown-linux-gnu", "").compile(source, "O2")


@pytest.mark.parametrize(
    ("system", "machine", "expected"),
    [("linux", "x86_64", "futex"), ("linux", "s390x", "condition"), ("darwin", "arm64", None)],
)
def test_flavour(monkeypatch, system, machine, expected):
    monkeypatch.setattr(sys, "platform", system)
    monkeypatch.setattr(threads, "_machine", lambda: machine)
    assert threads.flavour() == (expected or "condition")


def test_missing_threads_are_a_link_error_not_a_crash():
    with pytest.raises(CompileError):
        llvm.session().load(b"\x7fELF", threads.SYMBOLS)


def test_interpreter_ends_cleanly_while_workers_sleep_and_spin():
    code = """
import ctypes, sys, time
from weft.compilers import llvm
from weft.runtimes.native.executor import threads
library = llvm.session().load(llvm.compiler().compile(threads.source(), "O2"), threads.SYMBOLS)
library.pin()
pool = threads.ThreadPool(library, 4)
body = llvm.session().load(
    llvm.compiler().compile("define void @f(ptr %e, i64 %b, i64 %n) { ret void }"), ["f"])
region = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)(pool.address)
region(body["f"], None, 100)
time.sleep(float(sys.argv[1]))
"""
    for pause in ("0", "0.05"):
        result = subprocess.run(
            [sys.executable, "-c", code, pause], capture_output=True, timeout=60, check=False
        )
        assert (result.returncode, result.stderr) == (0, b"")
