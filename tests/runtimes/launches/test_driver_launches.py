"""Launches on devices of drivers: arguments, entries, scratch memory, failures, events, threads."""

import json
import sys
import threading
import time

import numpy as np
import pytest

import driver_images as images
import far_devices
from weft.driver.context import context
from weft.errors import HandleError, LaunchError
from weft.runtimes.base import Event, Failure, View
from weft.runtimes.memory.device_pool import AllOf


@pytest.mark.parametrize("groups", [0, 1, 3, 100, 10**9])
def test_any_number_of_groups_and_offsets(device, groups):
    """Parts begin at any multiple of the element, whatever a driver aligns buffers to."""
    code = images.add(device)
    line, _, body = code.image.partition(b"\n")
    head = json.loads(line.removeprefix(b"// weft "))
    head["entries"][0]["groups"] = groups
    program = device.load(code._replace(
        image=f"// weft {json.dumps(head)}\n".encode() + body))  # fmt: skip
    for first in (0, 1, 3, 129):
        held = images.put(device, images.numbers(300))
        device.queue.launch(program, [View(held, 4 * first)], [100, -7]).wait()
        want = images.numbers(300)
        want[first : first + 100] -= 7
        np.testing.assert_array_equal(images.get(device, held), want, f"from {first}")


def test_entries_share_scratch_memory_and_items_have_their_own(device, rng):
    code = images.total(device)
    program = device.load(code)
    assert program.header.own >= 4096
    assert len(program.counts) == 2
    for n in (1, 63, 1000):
        x = rng.integers(-1000, 1000, n).astype(np.int32)
        out = images.put(device, np.zeros(3, np.int32))
        device.queue.launch(program, [images.put(device, x), View(out, 4)], [n]).wait()
        assert images.get(device, out).tolist() == [0, (x**2).sum(), 0], n


def test_scratch_memory_bounds_the_number_of_groups(device, monkeypatch):
    """Results do not depend on how many groups find room."""
    program = device.load(images.total(device))
    many, _ = program.counts
    family = device.name.partition(":")[0]
    monkeypatch.setattr(f"weft.runtimes.{family}.program.MOST_SCRATCH", program.header.shared + (
        2 * program.header.entries[0].items * program.header.own))
    program = device.load(images.total(device))
    few, _ = program.counts
    assert few == 2 < many
    out = images.put(device, np.zeros(1, np.int32))
    device.queue.launch(program, [images.put(device, images.numbers(500)), out], [500]).wait()
    assert images.get(device, out)[0] == sum(i * i for i in range(500))


def test_failures_are_told_by_their_own_event_alone(device):
    """Status records are used again, after a failure too, and by launches that overlap."""
    code, plain = images.check(device), images.add(device)
    program, other = device.load(code), device.load(plain)
    held = images.put(device, images.numbers(100))
    events, wanted = [], []
    for number in range(60):
        bound = 99 if number % 3 else 1000
        events.append(device.queue.launch(program, [held], [100, bound]))
        wanted.append((99, 99) if bound == 99 else None)
        if number % 20 == 10:
            events.pop().wait()
            wanted.pop()
        if number % 7 == 0:
            device.queue.launch(other, [held], [0, 1])
    shared = [e.share() for e in events]
    device.queue.synchronize()
    found = [e.done and e.failure for e in events]
    assert [f and (f.value, f.bound) for f in found] == wanted
    assert all(f is None or (isinstance(f, Failure) and f.code == 1) for f in found)
    assert [e.failure for e in shared] == found
    assert device.queue.launch(other, [held], [100, 1]).failure is None


def test_wrong_arguments_are_refused_and_nothing_runs(device):
    program, held = device.load(images.add(device)), images.put(device, np.zeros(4, np.int32))
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
    code = images.add(device)
    program, held = device.load(code), images.put(device, np.zeros(100, np.int32))
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


def test_times_of_the_device_are_of_the_clock_of_the_host(clocked):
    program = clocked.load(images.total(clocked))
    x, out = images.put(clocked, images.numbers(1000)), images.put(clocked, np.zeros(1, np.int32))
    queue = clocked.queue
    for begin in (lambda: queue.launch(program, [x, out], [1000]), lambda: queue.copy(x, x, 8),
                  lambda: queue.fill(out, 4)):  # fmt: skip
        before = time.monotonic_ns()
        event = begin()
        event.wait()
        start, end = event.interval
        assert before <= start <= end <= time.monotonic_ns()


def test_threads_launch_programs_at_once(device):
    """Kernels keep their arguments, and launches share memory: nothing is mixed up."""
    code = images.add(device)
    adding, summing = device.load(code), device.load(images.total(device))
    wrong = []

    def work(number):
        try:
            x = images.put(device, np.zeros(500, np.int32))
            out = images.put(device, np.zeros(1, np.int32))
            for _ in range(20):
                device.queue.launch(adding, [x], [500, number])
                event = device.queue.launch(summing, [x, out], [500])
            event.wait()
            if images.get(device, out).tolist() != [500 * (20 * number) ** 2]:
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
