"""Memory of devices of drivers: copies and fills of any length and place, in order."""

import numpy as np
import pytest

import driver_images as images
from weft.runtimes.base import View


def test_copies_and_fills_of_odd_lengths_touch_nothing_else(any_device, rng):
    for nbytes in range(10):
        for at, start in ((0, 0), (1, 3), (5, 2), (7, 7)):
            sent = rng.integers(0, 256, 33, np.uint8)
            want = sent.copy()
            held, other = images.put(any_device, sent), images.put(any_device, sent)
            any_device.queue.copy(View(held, at), View(other, start + 8), nbytes)
            want[at : at + nbytes] = sent[start + 8 : start + 8 + nbytes]
            any_device.queue.fill(View(held, 20 + at % 3), nbytes, 0x1FF)
            want[20 + at % 3 : 20 + at % 3 + nbytes] = 0xFF
            np.testing.assert_array_equal(images.get(any_device, held, np.uint8), want)
            any_device.pool.host_to_pool(sent[:nbytes], View(held, at))
            want[at : at + nbytes] = sent[:nbytes]
            out = np.zeros(nbytes, np.uint8)
            any_device.pool.pool_to_host(View(held, at), out)
            np.testing.assert_array_equal(out, sent[:nbytes])
            np.testing.assert_array_equal(images.get(any_device, held, np.uint8), want)


@pytest.mark.parametrize("piece", [16, 64 << 20])
def test_copies_that_overlap(any_device, monkeypatch, piece):
    """In either direction, by one piece or many, as if all were read before any is written."""
    monkeypatch.setattr("weft.runtimes.launches.queue._STAGE", piece)
    for distance in (-17, -16, -15, -1, 0, 1, 15, 16, 17, 40):
        for count in (1, 16, 40):
            held, want = images.put(any_device, np.arange(128, dtype=np.uint8)), np.arange(128)
            event = any_device.queue.copy(View(held, 30 + distance), View(held, 30), count)
            event.wait()
            want[30 + distance : 30 + distance + count] = np.arange(30, 30 + count)
            np.testing.assert_array_equal(images.get(any_device, held, np.uint8), want)


def test_an_event_of_no_bytes_waits_for_its_wait_list(device):
    held = images.put(device, np.zeros(8, np.uint8))
    program = device.load(images.add(device))
    big = images.put(device, np.zeros(4096, np.int32))
    first = device.queue.launch(program, [big], [4096, 1])
    for event in (device.queue.copy(held, held, 0, [first.share()]),
                  device.queue.fill(held, 0, 1, [first.share()])):  # fmt: skip
        event.wait()
        assert first.done


def test_memory_that_is_used_again_is_written_in_order(device):
    """A block is lent out while a launch that uses it may still run."""
    program = device.load(images.add(device))
    for number in range(50):
        held = images.put(device, np.zeros(4096, np.int32))
        for _ in range(5):
            device.queue.launch(program, [held], [4096, number])
        del held
        zeroed = device.pool.allocate(4 * 4096, zero=True)
        assert not images.get(device, zeroed).any()
