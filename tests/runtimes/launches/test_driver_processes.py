"""Processes that use devices of drivers: imports, Ctrl-C while waiting, forks, their end."""

import subprocess
import sys

import pytest

from driver_images import run


def test_nothing_of_them_is_loaded_with_weft():
    code = ("import sys, weft; weft.ones(3).numpy(); "
            "print({'pyopencl', 'vulkan', 'wgpu'} & {*sys.modules})")  # fmt: skip
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


def test_waits_are_interrupted_and_launches_do_not_wait(clocked):
    """The kernel never ends: whatever waited for it in the driver would be there for ever."""
    assert run(clocked, """
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


def test_ends_with_work_under_way(device):
    assert run(device, """
for _ in range(200):
    device.queue.launch(program, [held], [8, 1])
print("end")
""") == ["end"]
