"""Processes that use Vulkan devices: Ctrl-C at any moment, early forks, their end."""

import subprocess
import sys

import pytest

from driver_images import run


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


def test_ends_while_a_kernel_never_does(device):
    assert run(device, """
device.queue.launch(images.spin(device), [held])
print("end")
""") == ["end"]
