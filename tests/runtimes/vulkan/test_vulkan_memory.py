"""Memory of Vulkan devices: parts and stages, too little of it, its loss; its command buffers."""

from itertools import pairwise

import numpy as np
import pytest
import vulkan_images as images

from weft.errors import AllocationError, CopyError, DeviceError, HandleError, SyncError
from weft.runtimes.base import View
from weft.runtimes.vulkan import memory as memories
from weft.runtimes.vulkan.binding import LOST, VulkanError
from weft.runtimes.vulkan.device import VulkanDevice
from weft.runtimes.vulkan.memory import OWN, Memory


def test_copies_of_many_pieces(any_device, monkeypatch, rng):
    """Stages are used again, in turn, in both directions."""
    monkeypatch.setattr("weft.runtimes.vulkan.blocks._PIECE", 1000)
    monkeypatch.setattr(any_device.pool._driver, "_stages", [])  # of that size, for this test
    sent = rng.integers(0, 256, 12_345, np.uint8)
    held = images.put(any_device, sent)
    np.testing.assert_array_equal(images.get(any_device, held, np.uint8), sent)
    any_device.pool.host_to_pool(sent[::-1].copy()[:5001], View(held, 77))
    sent[77:5078] = sent[::-1][:5001].copy()
    np.testing.assert_array_equal(images.get(any_device, held, np.uint8), sent)


def test_memory_that_is_not_coherent_is_flushed_and_invalidated(any_device, monkeypatch):
    """Ranges are of whole atoms, and inside of the memory."""
    vk, atom = any_device._now().session.vk, any_device.info["nonCoherentAtomSize"]
    held = images.put(any_device, np.zeros(5000, np.uint8))
    blocks = any_device.pool._driver
    block = held.handle if blocks.is_direct else blocks._stage(0)
    chunk, told, call = block.chunk, [], vk.call

    def noted(name, *given):
        if "MappedMemoryRanges" in name:
            place = given[2]
            assert place.offset % atom == 0
            assert place.size % atom == 0 or place.offset + place.size == chunk.size
            assert place.offset + place.size <= chunk.size
            told.append(name)
        return call(name, *given)

    monkeypatch.setattr(chunk, "coherent", False)
    monkeypatch.setattr(vk, "call", noted)
    sent = np.arange(300, dtype=np.uint8)
    any_device.pool.host_to_pool(sent, View(held, 3))
    assert "vkFlushMappedMemoryRanges" in told
    out = np.zeros(300, np.uint8)
    any_device.pool.pool_to_host(View(held, 3), out)
    assert "vkInvalidateMappedMemoryRanges" in told
    np.testing.assert_array_equal(out, sent)


def test_more_arguments_than_a_slot_has_room_for(device):
    """A kernel with hundreds of arrays: their addresses are in memory of their own."""
    n = 700
    params = "".join(f"param x{k}: i32[1]\n" for k in range(n))
    body = "".join(f"  store x{k}[%0] = %{k + 1}\n" for k in range(n))
    values = "".join(f"  %{k + 1}: i32 = const {k}\n" for k in range(n))
    program = device.load(images.image(device, (
        f"linear many kind=custom\n{params}{{\n  %0 = const 0\n{values}{body}}}\n")))
    held = [images.put(device, np.zeros(1, np.int32)) for _ in range(n)]
    for _ in range(3):
        device.queue.launch(program, held)
    assert [images.get(device, h)[0] for h in held] == list(range(n))


def test_times_are_kept_when_many_launches_follow(device):
    """A command buffer is used again, with its times."""
    code = images.add(device)
    program, x = device.load(code), images.put(device, images.numbers(100))
    events = [device.queue.launch(program, [x], [100, 0]) for _ in range(1200)]
    device.queue.synchronize()
    found = [event.interval for event in events]
    assert all(a[1] <= b[1] and a[0] <= a[1] for a, b in pairwise(found))


def test_parts_of_shared_buffers_do_not_overlap_and_all_come_back(any_device, rng):
    memory = Memory(any_device._now().session)
    held = []
    for _ in range(300):
        if held and rng.random() < 0.45:
            memory.give_back(held.pop(int(rng.integers(len(held)))))
        else:
            held.append(memory.take(int(rng.integers(1, 3 << 20)), OWN))
        places = sorted((b.address, b.nbytes) for b in held)
        assert all(a + n <= b for (a, n), (b, _) in pairwise(places))
        assert all(a % memories.ALIGNMENT == 0 for a, _ in places)
    assert len({b.chunk for b in held}) < len(held)
    for block in held:
        memory.give_back(block)
    assert not any(memory._chunks.values())


def test_too_large_and_too_many_blocks_are_typed_errors(any_device, monkeypatch):
    pool, largest = any_device.pool, any_device.info["maxMemoryAllocationSize"]
    held, used = images.put(any_device, images.numbers(10)), pool.bytes_in_use
    if largest < pool.limit:
        with pytest.raises(AllocationError, match="in one block"):
            pool.allocate(largest + 1)
    session = any_device._now().session
    made = session.made

    def exhausted(function, *given):
        if function == "vkAllocateMemory":
            raise VulkanError(function, -2, "VK_ERROR_OUT_OF_DEVICE_MEMORY")
        return made(function, *given)

    monkeypatch.setattr(session, "made", exhausted)
    with pytest.raises(AllocationError, match="in use"):
        pool.allocate(123_456_789)
    monkeypatch.setattr(any_device.queue, "_scratch_size", 0)
    monkeypatch.setattr(any_device.queue, "_scratch", None)
    monkeypatch.setattr(any_device.queue._memory, "take",
                        lambda *given: exhausted("vkAllocateMemory"))
    with pytest.raises(AllocationError, match="no memory left"):
        any_device.queue.copy(View(held, 1), held, 16)
    monkeypatch.undo()
    assert pool.bytes_in_use == used
    assert images.get(any_device, held).tolist() == list(range(10))


def test_what_a_driver_says_is_an_error_of_its_device(any_device, monkeypatch):
    held = images.put(any_device, images.numbers(4))
    vk, call = any_device._now().session.vk, any_device._now().session.vk.call

    def broken(name, *given):
        if name == "vkQueueSubmit":
            raise VulkanError(name, -3, "VK_ERROR_INITIALIZATION_FAILED")
        return call(name, *given)

    monkeypatch.setattr(vk, "call", broken)
    for use in (lambda: any_device.queue.copy(held, View(held, 8), 4),
                lambda: any_device.queue.fill(held, 8)):  # fmt: skip
        with pytest.raises(CopyError, match="INITIALIZATION_FAILED"):
            use()
    monkeypatch.undo()
    any_device.queue.fill(held, 4, 1).wait()
    assert images.get(any_device, held).tolist() == [0x01010101, 1, 2, 3]


def test_a_device_that_is_lost_is_opened_again(device, monkeypatch):
    """Who waits is told; what was there is gone; what comes next finds a new device."""
    name = device.name
    own = VulkanDevice(name, name.partition(":")[2], staged=device._staged)
    code = images.add(own)
    program, held = own.load(code), images.put(own, images.numbers(8))
    own.queue.synchronize()
    queue, session = own.queue, own._now().session
    vk, call = session.vk, session.vk.call
    last = []

    def lost(function, *given):
        if function in ("vkGetSemaphoreCounterValue", "vkWaitSemaphores", "vkQueueSubmit"):
            raise VulkanError(function, LOST, "VK_ERROR_DEVICE_LOST")
        return call(function, *given)

    last.append(queue.launch(program, [held], [8, 1]))
    monkeypatch.setattr(vk, "call", lost)
    with pytest.raises(DeviceError, match="lost"):
        last[0].wait()
    monkeypatch.undo()
    for use in (lambda: queue.launch(program, [held], [8, 1]), lambda: queue.fill(held, 1),
                queue.synchronize):  # fmt: skip
        with pytest.raises(DeviceError, match="lost"):
            use()
    assert own.queue is not queue
    for use in (lambda: own.queue.launch(program, [held], [8, 1]), lambda: own.queue.fill(held, 1),
                lambda: images.get(own, held)):  # fmt: skip
        with pytest.raises(HandleError):
            use()
    fresh = images.put(own, images.numbers(8))
    own.queue.launch(program, [fresh], [8, 5]).wait()  # the program is made again
    assert images.get(own, fresh).tolist() == list(range(5, 13))


def test_the_loss_is_told_by_the_call_that_meets_it(any_device, monkeypatch):
    name = any_device.name
    own = VulkanDevice(name, name.partition(":")[2], staged=any_device._staged)
    held, queue = images.put(own, images.numbers(8)), own.queue
    queue.synchronize()
    vk, call = own._now().session.vk, own._now().session.vk.call

    def lost(function, *given):
        if function == "vkQueueSubmit":
            raise VulkanError(function, LOST, "VK_ERROR_DEVICE_LOST")
        return call(function, *given)

    monkeypatch.setattr(vk, "call", lost)
    with pytest.raises(DeviceError, match="lost"):
        queue.fill(held, 4)
    monkeypatch.undo()
    assert images.get(own, images.put(own, images.numbers(3))).tolist() == [0, 1, 2]


def test_errors_of_waits_are_of_synchronisation(any_device, monkeypatch):
    queue, session = any_device.queue, any_device._now().session
    held = images.put(any_device, images.numbers(8))
    event = queue.fill(held, 4)
    queue.synchronize()
    assert event.done
    event.work.over = False
    monkeypatch.setattr(session, "has_reached", _failing)
    with pytest.raises(SyncError, match="UNKNOWN"):
        event.wait()


def _failing(value):
    raise VulkanError("vkGetSemaphoreCounterValue", -13, "VK_ERROR_UNKNOWN")
