"""Processes that use Vulkan devices: imports, Ctrl-C while waiting, forks, their end."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

START = """
import os, signal, sys, threading, time
import numpy as np
sys.path[:0] = [{folder!r}, {tests!r}]
import vulkan_images as images
from weft.driver.context import context
from weft.errors import SyncError, WeftError
from weft.runtimes.vulkan.device import VulkanDevice
device = VulkanDevice({name!r}, {called!r}, {staged!r})
held = images.put(device, images.numbers(8))
program = device.load(images.add(device))
device.queue.launch(program, [held], [8, 1]).wait()
"""


def run(device, code):
    """Return what a process prints that has used the device."""
    folder = Path(__file__).parent
    start = START.format(folder=str(folder), tests=str(folder.parents[1]), name=device.name,
                         called=device._called, staged=device._staged)  # fmt: skip
    done = subprocess.run([sys.executable, "-c", start + code], capture_output=True, text=True,
                          timeout=240, env=dict(os.environ))  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.split()


def test_nothing_of_it_is_loaded_with_weft():
    code = "import sys, weft; weft.ones(3).numpy(); print('vulkan' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False"]


def test_waits_are_interrupted_and_launches_do_not_wait(device):
    """The kernel never ends: whatever waited for it in the driver would be there for ever."""
    assert run(device, """
class Interrupt(Exception):
    pass

def interrupt(number, frame):
    raise Interrupt

signal.signal(signal.SIGALRM, interrupt)
event = device.queue.launch(images.spin(device), [held])
print(event.done, event.failure)
held.used(event)
later = device.queue.fill(held, 8)
out = np.zeros(8, np.int32)
for wait in (event.wait, later.wait, device.queue.synchronize, held.ready.wait,
             lambda: device.pool.pool_to_host(held, out),
             lambda: device.pool.host_to_pool(out, held)):
    signal.setitimer(signal.ITIMER_REAL, 0.2)
    try:
        wait()
    except Interrupt:
        print("interrupted")
print(device.queue.in_flight > 1, device.free_compute() < 0.5)
sys.stdout.flush()
os._exit(0)
""") == ["False", "None", *["interrupted"] * 6, "True", "True"]


def test_interrupts_between_any_two_instructions_leave_the_queue_in_order(device):
    """At launches, fills and copies: what comes later runs, and nobody waits for ever."""
    assert run(device, """
class Interrupt(Exception):
    pass

def interrupt(number, frame):
    raise Interrupt

signal.signal(signal.SIGALRM, interrupt)
count = 0
for number in range(150):
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.0005 + 0.00001 * number)
        while True:
            device.queue.launch(program, [held], [8, 0])
            device.queue.fill(held, 3)
    except Interrupt:
        count += 1
device.queue.fill(held, 32, 0)
device.queue.launch(program, [held], [8, 7]).wait()
device.queue.synchronize()
print(count, *images.get(device, held))
""") == ["150", *["7"] * 8]


@pytest.mark.requires("fork")
def test_a_forked_child_is_told_so_and_ends(device):
    """The driver's threads are not there: nothing waits for them, at its end neither."""
    assert run(device, """
event = device.queue.launch(program, [held], [8, 1])
running = device.queue.launch(device.load(images.check(device)), [held], [8, 1000])
child = os.fork()
if not child:
    queue = device.queue
    uses = [lambda: queue.launch(program, [held], [8, 1]), lambda: queue.fill(held, 1),
            lambda: queue.copy(held, held, 8), queue.synchronize, queue.flush,
            lambda: images.get(device, held), lambda: images.put(device, images.numbers(8)),
            lambda: device.pool.allocate(1 << 20), lambda: device.load(images.total(device))]
    for use in uses:
        try:
            use()
        except WeftError as error:
            assert "forked" in str(error), error
        else:
            raise AssertionError("a child used the device")
    try:
        running.wait()
    except SyncError:
        pass
    del held, event, running
    import weft
    assert (weft.ones(3) + 1).tolist() == [2.0] * 3
    sys.exit(7)
deadline = time.monotonic() + 120
while True:
    found, status = os.waitpid(child, os.WNOHANG)
    if found or time.monotonic() > deadline:
        break
    time.sleep(0.01)
if not found:
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
print(found == child and os.waitstatus_to_exitcode(status))
running.wait()
print(*images.get(device, held))
""") == ["7", *[str(i + 2) for i in range(8)]]


@pytest.mark.requires("fork")
def test_a_child_that_was_forked_before_uses_the_device(device):
    """The parent has only asked which devices there are."""
    code = f"""
import os, sys
from weft.runtimes.vulkan import driver
from weft.runtimes.vulkan.device import VulkanDevice
driver.devices()
child = os.fork()
if not child:
    device = VulkanDevice({device.name!r}, {device._called!r})
    buffer = device.pool.allocate(8, zero=True)
    out = bytearray(b"x" * 8)
    device.pool.pool_to_host(buffer, out)
    os._exit(out == bytes(8))
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60,
                          check=True)  # fmt: skip
    assert done.stdout.split() == ["1"], done.stderr[-2000:]


def test_ends_with_work_under_way(device):
    assert run(device, """
for _ in range(200):
    device.queue.launch(program, [held], [8, 1])
print("end")
""") == ["end"]


def test_ends_while_a_kernel_never_does(device):
    assert run(device, """
device.queue.launch(images.spin(device), [held])
print("end")
""") == ["end"]
