"""One suite for the pools, queues and programs of all devices, by the protocols alone."""

import gc
import os
import threading
from pathlib import Path

import numpy as np
import pytest

import far_devices
import graphs
import weft
from weft import gpu
from weft.driver import kernels
from weft.driver.context import context
from weft.errors import (
    AllocationError,
    CopyError,
    DeallocationError,
    DeviceError,
    HandleError,
    WeftError,
)
from weft.ir.op import Op
from weft.kernelize.build import kernelize
from weft.runtimes import base
from weft.runtimes.base import Image, View

DEVICES = {"cpu": "cpu", "cpu/c": "cpu/c", "interpreter": "interpreter", "null": "null",
           "far": "cpu", "late": "cpu", "late:1": "cpu", "opencl:pocl": "opencl:pocl",
           "opencl:intel": "opencl:intel",
           "vulkan:lavapipe": "vulkan:lavapipe"}  # fmt: skip


def rows(devices):
    return [pytest.param(name, marks=pytest.mark.requires(capability))
            for name, capability in devices.items()]  # fmt: skip


def opened(name):
    far_devices.register()
    weft.synchronize(name)
    return context(name).runtime


@pytest.fixture(params=rows(DEVICES))
def device(request):
    return opened(request.param)


def has_memory(device):
    """Return whether a device has any memory: what is read from ``null`` is zeros."""
    return device.name != "null"


@pytest.fixture
def keeps(device):
    return has_memory(device)


def put(pool, array):
    buffer = pool.allocate(array.nbytes)
    pool.host_to_pool(array.view(np.uint8), buffer).wait()
    return buffer


def get(pool, buffer, count=None):
    nbytes = buffer.nbytes if count is None else count
    out = np.full(nbytes, 0xA5, np.uint8)
    pool.pool_to_host(buffer, out)
    return out


def test_A7_accounts_are_exact(device, rng):
    pool = device.pool
    used, free = pool.bytes_in_use, pool.bytes_free
    held = [pool.allocate(int(n)) for n in rng.integers(1, 5000, 30)]
    taken = pool.bytes_in_use - used
    assert taken >= sum(b.nbytes for b in held)
    assert free - pool.bytes_free == taken
    for buffer in held[::2]:
        pool.free(buffer)
    del held, buffer
    assert pool.bytes_in_use == used
    assert pool.flush() >= 0
    assert pool.bytes_free >= free


@pytest.mark.parametrize("nbytes", [0, 1, 7, 64, 4099])
def test_A7_bytes_come_back(device, keeps, rng, nbytes):
    pool = device.pool
    sent = rng.integers(0, 256, nbytes, np.uint8)
    buffer = pool.allocate(nbytes)
    event = pool.host_to_pool(sent, buffer, [buffer.ready])
    out = np.full(nbytes, 0xA5, np.uint8)
    pool.pool_to_host(buffer, out, [event])
    np.testing.assert_array_equal(out, sent if keeps else 0)
    zeroed = pool.allocate(nbytes, zero=True)
    assert not get(pool, zeroed).any()


def test_A7_an_event_stands_in_one_wait_list(device):
    pool = device.pool
    buffer = pool.allocate(64)
    event = pool.host_to_pool(np.ones(64, np.uint8), buffer)
    other = event.share()
    pool.pool_to_host(buffer, np.empty(64, np.uint8), [event])
    for again in (lambda: pool.pool_to_host(buffer, np.empty(64, np.uint8), [event]),
                  lambda: device.queue.fill(buffer, 1, 0, [event])):  # fmt: skip
        with pytest.raises(HandleError, match="wait list"):
            again()
    pool.sync_events([other])
    assert other.done
    pool.release_events([pool.host_to_pool(np.ones(64, np.uint8), buffer)])
    pool.free(buffer, [device.queue.fill(pool.allocate(8), 8)])


def test_A7_what_does_not_fit_is_refused_and_harms_nothing(device, keeps, rng):
    pool = device.pool
    sent = rng.integers(0, 256, 300, np.uint8)
    buffer, used = put(pool, sent), pool.bytes_in_use
    for nbytes in (pool.bytes_free + (1 << 20), 1 << 62):
        with pytest.raises(AllocationError):
            pool.allocate(nbytes)
    assert pool.bytes_in_use == used
    np.testing.assert_array_equal(get(pool, buffer), sent if keeps else 0)
    for copy in (lambda: pool.host_to_pool(np.zeros(301, np.uint8), buffer),
                 lambda: pool.pool_to_host(View(buffer, 8), np.zeros(299, np.uint8))):  # fmt: skip
        with pytest.raises(CopyError):
            copy()
    np.testing.assert_array_equal(get(pool, buffer), sent if keeps else 0)


def test_A3_stale_and_foreign_buffers_are_refused(device):
    pool, queue = device.pool, device.queue
    stale, own = pool.allocate(64), pool.allocate(64)
    pool.free(stale)
    foreign = context("cpu" if device.name != "cpu" else "null").runtime.pool.allocate(64)
    for wrong in (stale, foreign, None, "a buffer"):
        for use in (lambda b: pool.host_to_pool(np.zeros(8, np.uint8), b),
                    lambda b: pool.pool_to_host(b, np.zeros(8, np.uint8)),
                    lambda b: queue.copy(b, own, 8), lambda b: queue.copy(own, b, 8),
                    lambda b: queue.fill(b, 8), pool.free):  # fmt: skip
            with pytest.raises((HandleError, DeviceError, DeallocationError)):
                use(wrong)


def test_A3_parts_that_begin_outside_of_their_buffer_are_refused(device, keeps, rng):
    """Memory of others lies there: a negative offset would read it, or write over it."""
    pool, queue = device.pool, device.queue
    sent = rng.integers(0, 256, 64, np.uint8)
    held, other = put(pool, sent), pool.allocate(64)
    for offset in (-1, -8, 65, 1 << 40, "8", None):
        wrong = View(held, offset)
        for use in (lambda b: pool.host_to_pool(np.zeros(0, np.uint8), b),
                    lambda b: pool.pool_to_host(b, np.zeros(8, np.uint8)),
                    lambda b: queue.copy(b, other, 8), lambda b: queue.copy(other, b, 8),
                    lambda b: queue.copy(other, b), lambda b: queue.fill(b, 8)):  # fmt: skip
            with pytest.raises((HandleError, CopyError)):
                use(wrong)
    np.testing.assert_array_equal(get(pool, held), sent if keeps else 0)


def test_A7_what_is_no_number_of_bytes_is_no_allocation(device):
    used = device.pool.bytes_in_use
    for nbytes in (-1, "3", 2.5, None, 1 << 70):
        with pytest.raises(AllocationError):
            device.pool.allocate(nbytes)
    assert device.pool.bytes_in_use == used


def test_A8_copies_and_fills_of_parts(device, keeps):
    pool, queue = device.pool, device.queue
    held = put(pool, np.arange(64, dtype=np.uint8))
    other = put(pool, np.zeros(64, np.uint8))
    first = queue.copy(View(other, 8), View(held, 40), 16)
    queue.fill(View(other, 12), 4, 0xFF, [first]).wait()
    want = np.zeros(64, np.uint8)
    want[8:24] = np.arange(40, 56)
    want[12:16] = 0xFF
    np.testing.assert_array_equal(get(pool, other), want if keeps else 0)
    for wrong in (lambda: queue.copy(View(other, 60), held, 5), lambda: queue.copy(other, held, -1),
                  lambda: queue.fill(View(other, 60), 5)):  # fmt: skip
        with pytest.raises(CopyError):
            wrong()
    queue.synchronize()


def test_A8_it_meets_the_protocol(device):
    for protocol, found in ((base.Device, device), (base.Pool, device.pool),
                            (base.Queue, device.queue)):  # fmt: skip
        names = [n for n in vars(protocol) if not n.startswith("_")]
        assert [n for n in names if not hasattr(found, n)] == []
    assert device.name == device.pool.device
    assert 0 <= device.free_compute() <= 1
    assert device.info["name"]


def test_A8_programs_and_failures(device, rng):
    """What stops a kernel stops it alone: the first failure is told, and all goes on."""
    device, keeps = device, has_memory(device)
    x = weft.tensor(rng.random(100, np.float32), device=device.name)
    table = weft.arange(100, device=device.name).realize()
    np.testing.assert_allclose((x * 2 + 1).numpy(), x.numpy() * 2 + keeps)
    late = weft.tensor([1, 100], device=device.name)
    if keeps:
        with pytest.raises(weft.errors.BoundsError, match="100"):
            table[late].numpy()
    assert table[weft.tensor([1, 99], device=device.name)].tolist() == [keeps, 99 * keeps]


def test_D4_threads_share_a_program(device):
    device, keeps = device, has_memory(device)

    @weft.kernel
    def scaled(x, y, k):
        i = gpu.grid(1)
        if i < x.size:
            y[i] = x[i] * k

    wrong = []

    def work(number):
        try:
            x = weft.arange(300, device=device.name).realize()
            y = weft.zeros(300, dtype=x.dtype, device=device.name).realize()
            for _ in range(5):
                scaled[3, 128](x, y, number)
            if y.tolist() != [i * number * keeps for i in range(300)]:
                wrong.append(number)
        except WeftError as error:
            wrong.append(error)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.slow
def test_A8_ten_thousand_cycles_of_load_launch_and_free_leave_nothing(device):
    """Memory, handles and mappings of the process stay as they are."""
    device = device
    kernel = kernelize([graphs.el(Op.MUL, graphs.leaf(7), graphs.leaf(7))])[0].kernel
    code = kernels.compiled(kernel, context(device.name), tiers=False)
    loaded = Image(code.name, code.image, tuple(code.variables), len(kernel.params))

    def cycle():
        program = device.load(loaded)
        buffers = [device.pool.allocate(56, zero=True) for _ in kernel.params]
        device.queue.launch(program, buffers, [7] * len(code.variables)).wait()

    def taken():
        gc.collect()
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return (pages * 4, len(os.listdir("/proc/self/fd")),
                len(Path("/proc/self/maps").read_text().splitlines()))  # fmt: skip

    for _ in range(500):
        cycle()
    used, (kilobytes, files, mappings) = device.pool.bytes_in_use, taken()
    for _ in range(10_000):
        cycle()
    after = taken()
    assert device.pool.bytes_in_use == used
    assert after[0] - kilobytes < 4096
    assert after[1] == files
    assert after[2] - mappings < 50
