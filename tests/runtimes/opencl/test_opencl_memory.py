"""Memory of OpenCL devices: too little of it, and what drivers throw."""

import numpy as np
import opencl_images as images
import pytest

from weft.errors import AllocationError, CopyError, DeallocationError
from weft.runtimes.base import View


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
    assert images.get(device, held, np.int64).tolist() == list(range(10))


def test_what_a_driver_throws_is_an_error_of_its_device(device, monkeypatch):
    held = images.put(device, np.arange(4))
    cl, core = device._now().session.cl, device._now().session.core

    def broken(*given):
        raise cl.RuntimeError("enqueue", -36, "the queue is gone")

    for name in ("_enqueue_copy_buffer", "_enqueue_fill_buffer", "_enqueue_write_buffer",
                 "_enqueue_read_buffer", "_enqueue_marker_with_wait_list"):  # fmt: skip
        monkeypatch.setattr(core, name, broken)
    for use in (lambda: device.queue.copy(held, View(held, 16), 8),
                lambda: device.queue.fill(held, 8), lambda: images.get(device, held, np.int64),
                lambda: images.put(device, np.arange(4))):  # fmt: skip
        with pytest.raises(CopyError, match="RuntimeError: enqueue"):
            use()
    monkeypatch.undo()
    gone = device._now().session.buffer(64)
    gone.release()  # behind the back of the pool
    device.pool.flush()
    device.pool.put_back((gone, 64), [])
    with device.pool._lock:
        device.pool._reserved += 64
    with pytest.raises(DeallocationError):
        device.pool.flush()
    assert images.get(device, held, np.int64).tolist() == [0, 1, 2, 3]
