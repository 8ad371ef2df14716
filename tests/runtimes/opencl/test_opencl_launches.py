"""Launches on OpenCL devices: arguments, entries, scratch memory, failures, events, threads."""

import sys
import threading
import time

import numpy as np
import opencl_images as images
import pytest

import far_devices
from weft.driver.context import context
from weft.errors import HandleError, LaunchError
from weft.runtimes.base import Event, Failure, View
from weft.runtimes.memory.device_pool import AllOf


@pytest.mark.parametrize("groups", [0, 1, 3, 100, 10**9])
def test_any_number_of_iterations_and_offsets(device, groups):
    """Parts begin at any multiple of the element, whatever a driver aligns buffers to."""
    program = device.load(images.add(groups))
    for first in (0, 1, 3, 129):
        held = images.put(device, np.arange(300))
        device.queue.launch(program, [View(held, 8 * first)], [100, -7]).wait()
        want = np.arange(300)
        want[first : first + 100] -= 7
        np.testing.assert_array_equal(images.get(device, held), want, f"from {first}")


def test_entries_share_scratch_memory_and_groups_have_their_own(device, rng):
    program = device.load(images.total())
    for n in (1, 63, 1000):
        x = rng.integers(-1000, 1000, n)
        out = images.put(device, np.zeros(3, np.int64))
        device.queue.launch(program, [images.put(device, x), View(out, 8)], [n]).wait()
        assert images.get(device, out).tolist() == [0, x.sum(), 0], n


def test_scratch_memory_bounds_the_number_of_groups(device):
    """A group that needs much memory of its own is one of few; results do not depend on it."""
    text = """
    __kernel void k(__global uchar *a, long oa, __global int *status, __global uchar *scratch) {
        for (long i = get_group_id(0); i < 40; i += get_num_groups(0)) {
            scratch[get_group_id(0) * (100L << 20) + (100L << 20) - 1] = i;
            ((__global long *)(a + oa))[i] = get_num_groups(0);
        }
    }"""
    program = device.load(images.image(text, [("k", 40)], own=100 << 20))
    held = images.put(device, np.zeros(40, np.int64))
    device.queue.launch(program, [held]).wait()
    assert set(images.get(device, held)) == {2}


def test_failures_are_told_by_their_own_event_alone(device):
    """Status records are used again, after a failure too, and by launches that overlap."""
    program, other = device.load(images.check()), device.load(images.add())
    held = images.put(device, np.arange(100))
    events, wanted = [], []
    for number in range(60):
        bound = 99 if number % 3 else 1000
        events.append(device.queue.launch(program, [held], [100, bound]))
        wanted.append(Failure(3, 99, 99) if bound == 99 else None)
        if number % 20 == 10:
            events.pop().wait()
            wanted.pop()
        if number % 7 == 0:
            device.queue.launch(other, [held], [0, 1])
    shared = [e.share() for e in events]
    device.queue.synchronize()
    assert [e.done and e.failure for e in events] == [w or None for w in wanted]
    assert [e.failure for e in shared] == wanted
    assert device.queue.launch(other, [held], [100, 1]).failure is None


def test_wrong_arguments_are_refused_and_nothing_runs(device):
    program, held = device.load(images.add()), images.put(device, np.zeros(4, np.int64))
    queue = device.queue
    for wrong in (lambda: queue.launch(program, [], [4, 1]),
                  lambda: queue.launch(program, [held], [4]),
                  lambda: queue.launch(program, [held], [4, 1 << 63]),
                  lambda: queue.launch(program, [held], [4, -(1 << 63) - 1]),
                  lambda: queue.launch(program, [held], [4, 1.5]),
                  lambda: queue.launch(program, [held], ["4", 1])):  # fmt: skip
        with pytest.raises(LaunchError):
            wrong()
    stale = device.pool.allocate(64)
    device.pool.free(stale)
    foreign = context("interpreter").runtime.pool.allocate(64)
    for wrong in (lambda: queue.launch(program, [stale], [4, 1]),
                  lambda: queue.launch(program, [foreign], [4, 1]),
                  lambda: queue.launch("add", [held], [4, 1])):  # fmt: skip
        with pytest.raises(HandleError):
            wrong()
    assert images.get(device, held).tolist() == [0] * 4


def test_wait_lists_take_events_of_any_device_once(device):
    far_devices.register()
    late = context("late").runtime
    program, held = device.load(images.add()), images.put(device, np.zeros(100, np.int64))
    there = late.pool.allocate(800)
    first = device.queue.launch(program, [held], [100, 1])
    events = [first.share(), late.queue.fill(there, 800, 7), Event(device.name),
              AllOf(device.name, [first.share(), late.queue.fill(there, 800, 3)])]  # fmt: skip
    device.queue.launch(program, [held], [100, 2], events).wait()
    assert late.queue.last.done
    assert set(images.get(device, held)) == {3}
    for event in events:
        with pytest.raises(HandleError, match="wait list"):
            device.queue.fill(held, 8, 0, [event])
    assert set(images.get(device, held)) == {3}


def test_times_of_the_device_are_of_the_clock_of_the_host(device):
    program = device.load(images.total())
    x, out = images.put(device, np.arange(1000)), images.put(device, np.zeros(1, np.int64))
    queue = device.queue
    for begin in (lambda: queue.launch(program, [x, out], [1000]), lambda: queue.copy(x, x, 8),
                  lambda: queue.fill(out, 8)):  # fmt: skip
        before = time.monotonic_ns()
        event = begin()
        event.wait()
        start, end = event.interval
        assert before <= start <= end <= time.monotonic_ns()


def test_threads_launch_programs_at_once(device):
    """Kernels keep their arguments, and launches share scratch memory: neither is mixed up."""
    adding, summing = device.load(images.add()), device.load(images.total())
    wrong = []

    def work(number):
        try:
            x = images.put(device, np.zeros(500, np.int64))
            out = images.put(device, np.zeros(1, np.int64))
            for _ in range(20):
                device.queue.launch(adding, [x], [500, number])
                event = device.queue.launch(summing, [x, out], [500])
            event.wait()
            if images.get(device, out).tolist() != [20 * 500 * number]:
                wrong.append(number)
        except Exception as error:
            wrong.append(error)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)  # so that threads meet between arguments and launch
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert not wrong


def test_what_is_under_way_lowers_the_free_share(device):
    device.queue.synchronize()
    assert device.queue.in_flight == 0
    assert 0 <= device.free_compute() <= 1
    assert device.info["memory"] == device.pool.limit
