"""The device ``cpu/c``: when it is there, its memory and queue, programs with LLVM and without."""

import os
import threading
from types import SimpleNamespace

import numpy as np
import pytest

import weft
from weft import config
from weft.backends import cpu, registry
from weft.backends.registry import Backend, Found
from weft.compilers import c
from weft.compilers.c_library import SharedLoader
from weft.config import BackendConfig, Config
from weft.driver import kernels
from weft.driver.context import context
from weft.driver.graph_key import Structure
from weft.driver.plans import plan_cache
from weft.errors import (
    AllocationError,
    CompileError,
    CopyError,
    DeviceError,
    HandleError,
    LaunchError,
)
from weft.runtimes.base import View
from weft.runtimes.cpu.isolated import IsolatedCpu

needs_compiler = pytest.mark.requires("cpu/c")

# y[i] = x[i] * k for i < n, by the threads of the process, which fails at elements of -1.
SOURCE = """
typedef long long i64;
struct weft_status { int code, kernel, statement, pad; i64 index, bound; };
extern void weft_parallel_for(void (*body)(void *, i64, i64), void *env, i64 count);
struct env { const i64 *x; i64 *y; i64 k; struct weft_status *status; };
static void body(void *env, i64 begin, i64 end) {
  const struct env *e = env;
  for (i64 i = begin; i < end; i++) {
    if (e->x[i] == -1) { e->status->code = 1; e->status->index = i; return; }
    e->y[i] = e->x[i] * e->k;
  }
}
__attribute__((visibility("default")))
int scale(void *const *buffers, const i64 *vars, struct weft_status *status) {
  struct env e = { buffers[0], buffers[1], vars[1], status };
  weft_parallel_for(body, &e, vars[0]);
  return status->code;
}
"""


@pytest.fixture(autouse=True)
def _fresh():
    registry.reset()
    yield
    registry.reset()
    config.reset()


@pytest.fixture(params=["linked", "shared"])
def device(request):
    """A device of its own, whose programs are linked into the process, or loaded by dlopen."""
    compiler = context("cpu/c").compiler
    host = cpu.runtime()
    loader = host.link if request.param == "linked" else SharedLoader(compiler, False).load
    return IsolatedCpu("own/c", loader, lambda: host.thread_count, 1 << 20)


def scale(device, nbuffers=2, variables=("n", "k")):
    image = context("cpu/c").compiler.compile(SOURCE)
    return device.load(SimpleNamespace(name="scale", image=image, variables=variables,
                                       nbuffers=nbuffers))  # fmt: skip


def put(device, values):
    held = device.pool.allocate(values.nbytes)
    device.pool.host_to_pool(values.view(np.uint8), held)
    return held


def get(device, held, count=None):
    out = np.empty(held.nbytes // 8 if count is None else count, np.int64)
    device.pool.pool_to_host(held, out.view(np.uint8))
    return out


# when it is there


@needs_compiler
def test_it_is_a_pair_of_the_cpu_and_no_native_device():
    found, name = registry.lookup("cpu:0/c")
    assert registry.canonical(found, name) == "cpu/c"
    own, host = context("cpu/c"), context("cpu")
    assert (own.is_native, host.is_native) == (False, True)
    assert own.threads == host.threads
    assert own.target.arch == host.target.arch
    assert Found("cpu/c", "", ("cpu/c",)) in registry.more_pairs()
    with pytest.raises(DeviceError):
        registry.lookup("cpu:1/c")


@needs_compiler
def test_B2_keys_hold_the_pair_and_the_compiler(monkeypatch):
    own, host = context("cpu/c"), context("cpu")
    assert own.key("kernel", "text") != host.key("kernel", "text")
    assert "cpu/c" in own.fingerprint()
    key = own.key("kernel", "text")
    monkeypatch.setattr(own.compiler, "_words", "another version")
    assert own.key("kernel", "text") != key


def test_without_a_compiler_it_is_absent_and_says_why(monkeypatch, tmp_path):
    monkeypatch.setattr(c, "_found", {})
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(DeviceError, match="gcc is not on PATH; cc is not on PATH"):
        registry.lookup("cpu/c")
    (found,) = [f for f in registry.more_pairs() if f.family == "cpu/c"]
    assert "no C compiler" in found.reason
    assert registry.lookup("cpu")
    config.reset(Config(device="cpu/c"))
    with pytest.raises(DeviceError, match="WEFT_DEVICE"):
        registry.default()


def test_the_configuration_disables_it():
    config.reset(Config(backends={"cpu/c": BackendConfig(enabled=False)}))
    with pytest.raises(DeviceError, match="disabled"):
        registry.lookup("cpu/c")
    reasons = [f.reason for f in registry.more_pairs() if f.family == "cpu/c"]
    assert reasons == ["disabled in the configuration"]
    assert registry.lookup("cpu")


def test_A2_nothing_of_the_cpu_is_there_without_its_native_pair():
    """Arrays come in and go out by the memory of the host."""
    config.reset(Config(backends={"cpu/llvm": BackendConfig(enabled=False)}))
    assert registry.probe("cpu").reason == "disabled in the configuration"


def test_a_pair_whose_probe_raises_is_absent():
    def missing(pair):
        raise OSError(f"no {pair}")

    registry.register(Backend("toy", ("a", "b"), lambda: "", lambda: 2, None, None, None, None,
                              missing=missing))  # fmt: skip
    assert registry.lookup("toy:1")[1].pair == "a"
    with pytest.raises(DeviceError, match="OSError: no b"):
        registry.lookup("toy/b")


def test_pairs_are_probed_once():
    asked = []
    registry.register(Backend("toy", ("a", "b"), lambda: "", lambda: 2, None, None, None, None,
                              missing=lambda pair: asked.append(pair) or ""))  # fmt: skip
    for _ in range(3):
        assert registry.lookup("toy:1/b")
    assert asked == ["b"]
    assert Found("toy/b", "", ("toy/b", "toy:1/b")) in registry.more_pairs()


# what a compiler does later


@needs_compiler
def test_keys_of_plans_on_several_devices_hold_each_compiler(monkeypatch):
    there = weft.ones(3, device="cpu/c")
    here = weft.arange(3, device="cpu") * weft.tensor([1, 2, 3], device="cpu")
    structure = Structure([(there.to("cpu") + here)._read()])
    assert set(structure.devices) == {"cpu", "cpu/c"}
    key = plan_cache._disk_key(structure)
    assert plan_cache._disk_key(structure) == key
    monkeypatch.setattr(context("cpu/c").compiler, "_words", "another version")
    assert plan_cache._disk_key(structure) != key


@needs_compiler
@pytest.mark.parametrize(("text", "reason"), [
    ("exit 1", "exit status 1"), ("exit 0", "wrote no file"),
    ('while [ "$1" != -o ]; do shift; done; echo nonsense > "$2"', "no object file"),
])  # fmt: skip
def test_a_compiler_that_fails_later_harms_nothing_else(text, reason, monkeypatch, tmp_path,
                                                        cache_dir):
    """The error is told, values stay as they were, and what comes afterwards is right."""
    path, flag = tmp_path / "cc", tmp_path / "flag"
    real = context("cpu/c").compiler.path
    path.write_text(f'#!/bin/sh\nif [ ! -e {flag} ]; then exec {real} "$@"; fi\n{text}\n')
    path.chmod(0o755)
    monkeypatch.setenv("WEFT_CC", str(path))
    config.reset()
    registry.reset()
    plan_cache.forget()
    kernels.forget()
    assert context("cpu/c").compiler.path == str(path)
    x = weft.tensor([1.0, 2.0, 3.0], device="cpu/c")
    assert (x * 7).tolist() == [7, 14, 21]
    flag.touch()
    y = x * 11 + 1
    with pytest.raises(CompileError, match=reason):
        y.tolist()
    assert (x * 7).tolist() == [7, 14, 21]
    assert (x.cpu() * 13).tolist() == [13, 26, 39]
    flag.unlink()
    assert y.tolist() == [12, 23, 34]


@needs_compiler
def test_B2_another_compiler_makes_everything_anew(monkeypatch, tmp_path, cache_dir):
    """What the disk cache has of one compiler is not taken for another."""
    real, log = context("cpu/c").compiler.path, tmp_path / "log"
    for number in range(3):
        path = tmp_path / "cc"
        text = f"# build {min(number, 1)}"
        if not path.exists() or text not in path.read_text():
            path.unlink(missing_ok=True)
            path.write_text(f'#!/bin/sh\n{text}\necho "$@" >> {log}\nexec {real} "$@"\n')
            path.chmod(0o755)
        monkeypatch.setenv("WEFT_CC", str(path))
        config.reset()
        registry.reset()
        plan_cache.forget()
        kernels.forget()
        before = log.read_text().count("kernel.c") if log.exists() else 0
        assert (weft.tensor([1.0, 2.0], device="cpu/c") * 5).tolist() == [5, 10]
        made = log.read_text().count("kernel.c") - before
        assert bool(made) == (number < 2)


@pytest.mark.requires("cpu/c", "fork")
def test_a_forked_child_goes_on():
    x = weft.ones(300, 300, device="cpu/c") * 2
    assert (x @ x).max().item() == 1200
    child = os.fork()
    if not child:
        code = 1
        try:
            y = weft.ones(310, 310, device="cpu/c") * 3
            code = (y @ y).min().item() != 2790 or x.sum().item() != 180000
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0


# programs


@needs_compiler
def test_a_program_runs_and_reports_its_first_failure(device):
    x = np.arange(1000)
    source, target = put(device, x), put(device, np.zeros(1000, np.int64))
    event = device.queue.launch(scale(device), [source, target], [1000, -3])
    assert event.done
    assert event.failure is None
    np.testing.assert_array_equal(get(device, target), x * -3)
    device.pool.host_to_pool(np.array([5, -1, 7]).view(np.uint8), source)
    event = device.queue.launch(scale(device), [source, target], [3, 2])
    assert (event.failure.code, event.failure.value) == (1, 1)
    assert event.share().failure == event.failure


@needs_compiler
def test_programs_take_parts_of_buffers(device):
    held = put(device, np.arange(10))
    device.queue.launch(scale(device), [View(held, 8), View(held, 40)], [4, 10])
    assert get(device, held).tolist() == [0, 1, 2, 3, 4, 10, 20, 30, 40, 9]


@needs_compiler
def test_threads_launch_one_program_at_once(device):
    program, failures = scale(device), []

    def work(k):
        for _ in range(20):
            x = np.arange(500) + k
            source, target = put(device, x), device.pool.allocate(4000)
            device.queue.launch(program, [source, target], [500, k])
            if (get(device, target) != x * k).any():
                failures.append(k)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


@needs_compiler
def test_wrong_launches_are_refused_and_touch_nothing(device):
    program = scale(device)
    held, other = put(device, np.arange(4)), put(device, np.zeros(4, np.int64))
    foreign = cpu.runtime().pool.allocate(64)
    gone = device.pool.allocate(64)
    gone.release()
    for error, given, buffers, variables in [
        (LaunchError, program, [held], [4, 2]), (LaunchError, program, [held, other], [4]),
        (LaunchError, program, [held, other], [4, 1 << 63]),
        (LaunchError, program, [held, other], [4, 2.5]),
        (HandleError, program, [held, foreign], [4, 2]), (HandleError, None, [held, other], [4, 2]),
        (HandleError, program, [held, gone], [4, 2]),
    ]:  # fmt: skip
        with pytest.raises(error):
            device.queue.launch(given, buffers, variables)
    twin = IsolatedCpu("twin/c", cpu.runtime().link, lambda: 1, 1 << 20)
    with pytest.raises(HandleError):
        device.queue.launch(program, [held, twin.pool.allocate(32)], [4, 2])
    with pytest.raises(HandleError):
        twin.queue.launch(program, [], [])
    assert not get(device, other).any()


@needs_compiler
def test_the_host_does_not_take_its_buffers(device):
    held = device.pool.allocate(64)
    host = cpu.runtime()
    for use in (lambda: host.queue.copy(host.pool.allocate(64), held), lambda: held.address):
        with pytest.raises((DeviceError, HandleError, AttributeError)):
            use()


@needs_compiler
def test_copies_and_fills(device):
    held, other = put(device, np.arange(8)), put(device, np.zeros(8, np.int64))
    device.queue.copy(View(other, 8), View(held, 32), 24)
    assert get(device, other).tolist() == [0, 4, 5, 6, 0, 0, 0, 0]
    device.queue.fill(View(other, 8), 16, 0xFF)
    assert get(device, other).tolist() == [0, -1, -1, 6, 0, 0, 0, 0]
    device.queue.copy(View(held, 8), held, 56)  # over itself
    assert get(device, held).tolist() == [0, 0, 1, 2, 3, 4, 5, 6]
    for use in (lambda: device.queue.copy(View(other, 8), held),
                lambda: device.queue.copy(other, held, -1),
                lambda: device.queue.fill(View(other, 60), 5)):  # fmt: skip
        with pytest.raises(CopyError):
            use()
    device.queue.synchronize()


@needs_compiler
def test_memory_runs_out_with_all_else_as_it_was(device):
    held = put(device, np.arange(1000))
    with pytest.raises(AllocationError):
        device.pool.allocate(2 << 20)
    with pytest.raises(AllocationError):
        _ = [device.pool.allocate(200_000) for _ in range(20)]
    assert get(device, held)[-1] == 999
    before = device.pool.bytes_in_use
    for _ in range(1000):
        device.pool.allocate(100_000)
    assert device.pool.bytes_in_use == before


@needs_compiler
def test_compile_load_launch_and_free_leave_nothing(device):
    """Handles and memory stay the same, however often."""
    program = scale(device)
    before = device.pool.bytes_in_use
    for _ in range(2000):
        x = device.pool.allocate(800)
        device.queue.launch(program, [x, x], [0, 1])
        del x
    assert device.pool.bytes_in_use == before
    assert device.pool.bytes_reserved < 1 << 14
    assert 0 <= device.free_compute() <= 1
    assert device.info["threads"] == device.thread_count
