"""The queue of WebGPU devices: copies of any length, launches on arrays that share buffers."""

import os
import subprocess
import sys

import numpy as np
import pytest
import wgsl_images as images

from weft.errors import AllocationError, CompileError, LaunchError
from weft.runtimes.base import View
from weft.runtimes.launches import queue as queues


def test_copies_and_fills_of_odd_lengths_touch_nothing_else(device, rng):
    for nbytes in range(10):
        for at, start in ((0, 0), (1, 3), (5, 2), (7, 7)):
            sent = rng.integers(0, 256, 33, np.uint8)
            want = sent.copy()
            held, other = images.put(device, sent), images.put(device, sent)
            device.queue.copy(View(held, at), View(other, start + 8), nbytes)
            want[at : at + nbytes] = sent[start + 8 : start + 8 + nbytes]
            device.queue.fill(View(held, 20 + at % 3), nbytes, 0x1FF)
            want[20 + at % 3 : 20 + at % 3 + nbytes] = 0xFF
            np.testing.assert_array_equal(images.get(device, held, np.uint8), want)
            device.pool.host_to_pool(sent[:nbytes], View(held, at))
            want[at : at + nbytes] = sent[:nbytes]
            np.testing.assert_array_equal(images.get(device, held, np.uint8), want)


def test_the_last_bytes_of_a_buffer_are_written_one_by_one(device):
    sent = np.full(64, 9, np.uint8)
    held, other = images.put(device, sent), images.put(device, sent)
    device.pool.host_to_pool(b"\1\1", View(held, 60))
    np.testing.assert_array_equal(images.get(device, held, np.uint8)[58:], [9, 9, 1, 1, 9, 9])
    device.queue.fill(View(held, 60), 1, 0)
    np.testing.assert_array_equal(images.get(device, held, np.uint8)[58:], [9, 9, 0, 1, 9, 9])
    device.queue.copy(View(other, 60), View(held, 60), 2)
    np.testing.assert_array_equal(images.get(device, other, np.uint8)[58:], [9, 9, 0, 1, 9, 9])


@pytest.mark.parametrize("stage", [16, 64 << 20])
def test_copies_that_overlap(device, monkeypatch, stage):
    monkeypatch.setattr(queues, "_STAGE", stage)
    for distance in (-17, -16, -15, -1, 0, 1, 15, 16, 17, 40):
        for count in (1, 16, 40):
            held, want = images.put(device, np.arange(128, dtype=np.uint8)), np.arange(128)
            device.queue.copy(View(held, 30 + distance), View(held, 30), count).wait()
            want[30 + distance : 30 + distance + count] = np.arange(30, 30 + count)
            np.testing.assert_array_equal(images.get(device, held, np.uint8), want)


def test_arrays_share_bindings_or_do_not(device):
    """In two buffers, in one, on top of each other, at places that no binding may begin at."""
    program = device.load(images.add())
    numbers = np.arange(500, dtype=np.int32)
    for first, second in ((0, 0), (4, 300), (260, 1028), (1300, 8)):
        held, other = images.put(device, numbers), images.put(device, numbers)
        device.queue.launch(program, [View(held, first), View(other, second)], [7, 50])
        want = numbers.copy()
        want[second // 4 : second // 4 + 50] = numbers[first // 4 : first // 4 + 50] + 7
        np.testing.assert_array_equal(images.get(device, other), want)
        device.queue.launch(program, [View(held, first), View(held, first)], [1, 50])
        numbers_now = numbers.copy()
        numbers_now[first // 4 : first // 4 + 50] += 1
        np.testing.assert_array_equal(images.get(device, held), numbers_now)


def test_failures_are_told_by_their_own_event_alone(device):
    program = device.load(images.check())
    good, bad = (images.put(device, np.full(64, v, np.int32)) for v in (3, 77))
    events = [device.queue.launch(program, [held]) for held in (good, bad, good, bad)]
    for event in events:
        event.wait()
    assert [event.failure and tuple(event.failure) for event in events] == [
        None, (3, 77, 40), None, (3, 77, 40)]


def test_a_text_that_the_driver_refuses_is_told_with_its_words(device, capfd):
    wrong = images.image("@compute @workgroup_size(1) fn wrong() { let x = 1u + 1i; }", ["wrong"],
                         1, uses=())  # fmt: skip
    with pytest.raises(CompileError, match=r"wrong: found WGSL that webgpu.* refuses"):
        device.load(wrong)
    with pytest.raises(CompileError, match="first line"):
        device.load(wrong._replace(image=b"nothing"))
    with pytest.raises(CompileError, match="image of 1 arrays"):
        device.load(wrong._replace(nbuffers=3))
    assert capfd.readouterr().err == ""


def test_wrong_arguments_are_refused_and_nothing_runs(device):
    program = device.load(images.add())
    held = images.put(device, np.zeros(8, np.int32))
    for buffers, variables in (([held], [1, 1]), ([held, held], [1]), ([held, held], [1, 1 << 63])):
        with pytest.raises(LaunchError):
            device.queue.launch(program, buffers, variables)
    assert not images.get(device, held).any()


@pytest.mark.parametrize("count", [8, 9, 10])
def test_more_buffers_than_a_device_binds_are_copied(device, count):
    """Each array gets a number, from different places of buffers of different sizes."""
    lines = [f"weft_store_{name}(weft.{name}_at + i, weft_load_{name}(weft.{name}_at + i) + {k}u);"
             for k, name in enumerate("abcdefghij"[:count])]  # fmt: skip
    text = ("@compute @workgroup_size(64) fn many(@builtin(global_invocation_id) id: vec3<u32>) {"
            f"let i = id.x; if (i < 64u) {{ {' '.join(lines)} }} }}")  # fmt: skip
    program = device.load(images.image(text, ["many"], count))
    arrays = [np.arange(100 + 60 * k, dtype=np.int32) for k in range(count)]
    held = [images.put(device, array) for array in arrays]
    device.queue.launch(program, [View(h, 4 * k) for k, h in enumerate(held)]).wait()
    for k, (array, there) in enumerate(zip(arrays, held, strict=True)):
        array[k : k + 64] += k
        np.testing.assert_array_equal(images.get(device, there), array)


def test_larger_arrays_than_a_device_binds_are_typed_errors(device):
    held, most = images.put(device, np.zeros(8, np.int32)), device.info["max_binding"]
    large = device.pool.allocate(most + (1 << 20))
    with pytest.raises(LaunchError, match="what a binding holds"):
        device.queue.launch(device.load(images.add()), [large, held], [1, 1])
    with pytest.raises(AllocationError, match="at most"):
        device.pool.allocate(device.info["max_buffer"] + 4)


CODE = """
import os, signal, sys
import numpy as np
import wgsl_images as images
from weft.driver.context import context
from weft.errors import WeftError
device = context(sys.argv[1]).runtime
held = images.put(device, np.arange(8, dtype=np.int32))
"""


def run(device, code):
    """Return the words that a process of its own prints."""
    done = subprocess.run(
        [sys.executable, "-c", CODE + code, device.name], capture_output=True, text=True,
        timeout=100, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout.split()


@pytest.mark.requires("fork")
def test_a_forked_child_is_told_so_and_ends(device):
    assert run(device, """
child = os.fork()
if not child:
    uses = [lambda: device.queue.fill(held, 1), lambda: device.queue.copy(held, held, 8),
            device.queue.synchronize, lambda: images.get(device, held),
            lambda: images.put(device, np.arange(8)), lambda: device.load(images.add())]
    for use in uses:
        try:
            use()
        except WeftError as error:
            assert "forked" in str(error), error
        else:
            raise AssertionError("a child used the device")
    import weft
    assert (weft.ones(3) + 1).tolist() == [2.0] * 3
    os._exit(7)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
print(*images.get(device, held))
""") == ["7", *map(str, range(8))]


def test_nothing_of_it_is_loaded_with_weft():
    code = "import sys, weft; weft.ones(3).numpy(); print('wgpu' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False"]
