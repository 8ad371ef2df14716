"""The CPU runtime: launches, copies, cached support code, typed errors."""

import threading

import pytest

from weft.compilers import llvm
from weft.errors import CompileError, CopyError, HandleError, LaunchError
from weft.runtimes.base import Device, Event, Failure, Pool, Program, Queue, View
from weft.runtimes.cpu.runtime import CpuRuntime
from weft.runtimes.memory.buffer import Buffer
from weft.runtimes.native.executor.threads import MAX_THREADS
from weft.store import DiskCache


@pytest.fixture
def program(runtime):
    from native_kernels import KERNELS

    return runtime.program(llvm.compiler().compile(KERNELS), "add_variable", 2, 1)


@pytest.fixture
def pair(runtime):
    buffers = runtime.pool.allocate(8, zero=True), runtime.pool.allocate(8, zero=True)
    buffers[1].view().cast("q")[0] = 40
    return buffers


def test_runtime_meets_the_protocols(runtime, program):
    device: Device = runtime
    pool: Pool = runtime.pool
    queue: Queue = runtime.queue
    named: Program = program
    assert (device.name, named.name) == ("cpu", "add_variable")
    assert pool.bytes_free <= runtime.pool.limit
    queue.synchronize()
    assert 0.0 <= device.free_compute() <= 1.0
    assert set(device.info) == {"name", "cpus", "threads", "memory"}


def test_launch(runtime, program, pair):
    event = runtime.queue.launch(program, pair, [2], wait=[pair[0].ready])
    assert event.done
    assert pair[0].view().cast("q")[0] == 42


def test_launch_checks_its_arguments(runtime, program, pair):
    launch = runtime.queue.launch
    with pytest.raises(LaunchError, match="found 1 buffers"):
        launch(program, pair[:1], [2])
    with pytest.raises(LaunchError, match="found 0 variables"):
        launch(program, pair)
    with pytest.raises(LaunchError, match="bytearray for buffer 1"):
        launch(program, [pair[0], bytearray(8)], [2])
    for value in (1.5, "2", 1 << 63, -(1 << 63) - 1):
        with pytest.raises(LaunchError, match="variable 0"):
            launch(program, pair, [value])
    with pytest.raises(HandleError):
        launch("program", pair, [2])
    used = Event("cpu")
    used.consume("cpu")
    with pytest.raises(HandleError):
        launch(program, pair, [2], wait=[used])
    pair[1].release()
    with pytest.raises(HandleError):
        launch(program, pair, [2])
    assert pair[0].view().cast("q")[0] == 0


def test_failure_of_a_kernel_is_that_of_its_event(runtime):
    from native_kernels import KERNELS

    program = runtime.program(llvm.compiler().compile(KERNELS), "fail", 0)
    event = runtime.queue.launch(program, [])
    assert event.failure == event.share().failure == Failure(7, -5, 1 << 40)


def test_parts_of_buffers_are_copied_and_filled(runtime):
    first, second = runtime.pool.allocate(16), runtime.pool.allocate(16)
    runtime.queue.fill(first, 16, 1)
    runtime.queue.fill(View(first, 4), 4, 7)
    runtime.queue.copy(View(second, 8), View(first, 2), 4)
    assert bytes(second.view()[8:12]) == bytes([1, 1, 7, 7])
    for wrong in ((View(first, 4), 13), (first, 17), (first, -1)):
        with pytest.raises(CopyError):
            runtime.queue.fill(*wrong)
    with pytest.raises(CopyError):
        runtime.queue.copy(View(second, 12), first, 5)


def test_copy(runtime, pair):
    runtime.queue.copy(pair[0], pair[1])
    assert pair[0].view().cast("q")[0] == 40
    assert pair[0].version == 1
    for nbytes in (-1, 9):
        with pytest.raises(CopyError):
            runtime.queue.copy(pair[0], pair[1], nbytes)
    with pytest.raises(CopyError):
        runtime.queue.copy(Buffer.foreign(pair[0].address, 8, pair[0], readonly=True), pair[1])


SUPPORT = 3  # objects: the pool, the executor, and what asks for interrupts


class CountingCompiler:
    def __init__(self):
        self.count = 0

    @property
    def cache_key(self):
        return llvm.compiler().cache_key

    def compile(self, source, pipeline="short"):
        self.count += 1
        return llvm.compiler().compile(source, pipeline)


def test_support_code_is_compiled_once_for_all_processes(tmp_path):
    compiler, cache = CountingCompiler(), DiskCache(str(tmp_path))
    for count in (SUPPORT, SUPPORT):
        runtime = CpuRuntime(compiler, llvm.session(), cache)
        assert runtime.plan([], 0, 0).call(0) is None
        assert compiler.count == count


def test_objects_that_do_not_link_are_compiled_anew(tmp_path):
    class Poisoned(DiskCache):
        def get(self, kind, key):
            return b"not an object"

    compiler = CountingCompiler()
    runtime = CpuRuntime(compiler, llvm.session(), Poisoned(str(tmp_path)))
    assert runtime.plan([], 0, 0).call(0) is None
    assert compiler.count == SUPPORT


def test_nothing_is_compiled_before_it_is_needed():
    compiler = CountingCompiler()
    runtime = CpuRuntime(compiler, llvm.session())
    runtime.pool.allocate(100)
    assert compiler.count == 0


def test_bad_binary(runtime):
    with pytest.raises(CompileError):
        runtime.program(b"nonsense", "kernel", 1)


class _Counting:
    """A compiler that notes who compiled what, and can fail."""

    def __init__(self, fails_aside=False):
        self.inner, self.fails_aside, self.calls = llvm.compiler(), fails_aside, []
        self.cache_key = self.inner.cache_key

    def compile(self, source, pipeline="short"):
        aside = threading.current_thread() is not threading.main_thread()
        self.calls.append(aside)
        if self.fails_aside and aside:
            raise CompileError("LLVM", found="nothing")
        return self.inner.compile(source, pipeline)


@pytest.mark.parametrize("fails", [False, True])
def test_the_pool_is_prepared_on_the_side(fails):
    compiler = _Counting(fails)
    runtime = CpuRuntime(compiler, llvm.session(), thread_count=3)
    assert runtime.thread_count == 3
    runtime.prepare()
    runtime.prepare()
    assert runtime.threads.threads == runtime.thread_count == 3
    calls = [True] + [False] * SUPPORT if fails else [True] * SUPPORT
    assert compiler.calls == calls
    runtime.prepare()
    assert compiler.calls == calls


@pytest.mark.parametrize(("asked", "count"), [(1, 1), (7, 7), (100_000, MAX_THREADS)])
def test_the_number_of_threads_is_known_before_the_pool_starts(asked, count):
    runtime = CpuRuntime(llvm.compiler(), llvm.session(), thread_count=asked)
    assert runtime.thread_count == count == runtime.threads.threads
