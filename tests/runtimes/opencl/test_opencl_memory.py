"""Memory of OpenCL devices: copies and fills of any length and place, and too little of it."""

import numpy as np
import opencl_images as images
import pytest

from weft.errors import AllocationError, CopyError, DeallocationError, SyncError
from weft.runtimes.base import View
from weft.runtimes.launches import queue as queues


def test_copies_and_fills_of_odd_lengths_touch_nothing_else(device, rng):
    for nbytes in range(10):
        for at, start in ((0, 0), (1, 3), (5, 2), (7, 7)):
            sent = rng.integers(0, 256, 32, np.uint8)
            want = sent.copy()
            held, other = images.put(device, sent), images.put(device, sent)
            device.queue.copy(View(held, at), View(other, start + 8), nbytes)
            want[at : at + nbytes] = sent[start + 8 : start + 8 + nbytes]
            device.queue.fill(View(held, 20 + at % 3), nbytes, 0x1FF)
            want[20 + at % 3 : 20 + at % 3 + nbytes] = 0xFF
            np.testing.assert_array_equal(images.get(device, held, np.uint8), want)
            device.pool.host_to_pool(sent[:nbytes], View(held, at))
            want[at : at + nbytes] = sent[:nbytes]
            out = np.zeros(nbytes, np.uint8)
            device.pool.pool_to_host(View(held, at), out)
            np.testing.assert_array_equal(out, sent[:nbytes])
            np.testing.assert_array_equal(images.get(device, held, np.uint8), want)


@pytest.mark.parametrize("stage", [16, 64 << 20])
def test_copies_that_overlap(device, monkeypatch, stage):
    """In either direction, by one piece or many, as if all were read before any is written."""
    monkeypatch.setattr(queues, "_STAGE", stage)
    for distance in (-17, -16, -15, -1, 0, 1, 15, 16, 17, 40):
        for count in (1, 16, 40):
            held, want = images.put(device, np.arange(128, dtype=np.uint8)), np.arange(128)
            event = device.queue.copy(View(held, 30 + distance), View(held, 30), count)
            event.wait()
            want[30 + distance : 30 + distance + count] = np.arange(30, 30 + count)
            np.testing.assert_array_equal(images.get(device, held, np.uint8), want)


def test_an_event_of_no_bytes_waits_for_its_wait_list(device):
    held = images.put(device, np.zeros(8, np.uint8))
    program = device.load(images.add())
    big = images.put(device, np.zeros(100_000, np.int64))
    first = device.queue.launch(program, [big], [100_000, 1])
    for event in (device.queue.copy(held, held, 0, [first.share()]),
                  device.queue.fill(held, 0, 1, [first.share()])):  # fmt: skip
        event.wait()
        assert first.done


def test_memory_that_is_used_again_is_written_in_order(device):
    """A block is lent out while a launch that uses it may still run."""
    program = device.load(images.add())
    for number in range(20):
        held = images.put(device, np.zeros(50_000, np.int64))
        device.queue.launch(program, [held], [50_000, number])
        del held
        zeroed = device.pool.allocate(400_000, zero=True)
        assert not images.get(device, zeroed).any()


def test_too_large_and_too_many_blocks_are_typed_errors(device, monkeypatch):
    pool, largest = device.pool, device.info["max_alloc"]
    held, used = images.put(device, np.arange(10)), pool.bytes_in_use
    if largest < pool.limit:
        with pytest.raises(AllocationError, match="in one block"):
            pool.allocate(largest + 1)
    cl = device._now().session.cl

    def exhausted(nbytes):
        raise cl.MemoryError("create_buffer", -4, "")

    monkeypatch.setattr(device._now().session, "buffer", exhausted)
    with pytest.raises(AllocationError, match="in use"):
        pool.allocate(123_456_789)
    with pytest.raises(AllocationError, match="no memory left"):
        device.queue.copy(View(held, 1), held, 16)
    monkeypatch.undo()
    assert pool.bytes_in_use == used
    assert images.get(device, held).tolist() == list(range(10))


def test_what_a_driver_throws_is_an_error_of_its_device(device, monkeypatch):
    held = images.put(device, np.arange(4))
    cl, core = device._now().session.cl, device._now().session.core

    def broken(*given):
        raise cl.RuntimeError("enqueue", -36, "the queue is gone")

    for name in ("_enqueue_copy_buffer", "_enqueue_fill_buffer", "_enqueue_write_buffer",
                 "_enqueue_read_buffer", "_enqueue_marker_with_wait_list"):  # fmt: skip
        monkeypatch.setattr(core, name, broken)
    for use in (lambda: device.queue.copy(held, View(held, 16), 8),
                lambda: device.queue.fill(held, 8), lambda: images.get(device, held),
                lambda: images.put(device, np.arange(4))):  # fmt: skip
        with pytest.raises(CopyError, match="RuntimeError: enqueue"):
            use()
    with pytest.raises(SyncError):
        device.queue.synchronize()
    monkeypatch.undo()
    gone = device._now().session.buffer(64)
    gone.release()  # behind the back of the pool
    device.pool.flush()
    device.pool.put_back((gone, 64), [])
    with device.pool._lock:
        device.pool._reserved += 64
    with pytest.raises(DeallocationError):
        device.pool.flush()
    assert images.get(device, held).tolist() == [0, 1, 2, 3]
