"""Pools of memory that no address leads to: what interrupts and errors leave of their accounts."""

import pytest

from weft.runtimes.base import Event
from weft.runtimes.memory.device_pool import DevicePool


class Memory:
    """Blocks that are numbers; it refuses to take back those that are named."""

    def __init__(self):
        self.held, self.made, self.broken = set(), 0, set()

    def take(self, nbytes):
        self.made += 1
        self.held.add(self.made)
        return self.made

    def give_back(self, handle, nbytes):
        self.held.remove(handle)
        if handle in self.broken:
            raise RuntimeError("the driver is gone")


class Pending(Event):
    """What has not happened while somebody interrupts, and happens at the next wait."""

    def __init__(self, kind):
        super().__init__("toy")
        self.kind, self.over = kind, False

    @property
    def done(self):
        return self.over

    def wait(self):
        if self.kind is not None:
            kind, self.kind = self.kind, None
            raise kind
        self.over = True

    def share(self):
        return self


@pytest.mark.parametrize("kind", [KeyboardInterrupt, OSError])
@pytest.mark.parametrize("use", ["flush", "allocate"])
def test_A7_a_wait_that_ends_early_loses_no_block(kind, use):
    """Ctrl-C while the pool waits for a device, or a device that fails: blocks stay cached."""
    memory = Memory()
    pool = DevicePool("toy", memory, 1 << 20)
    buffers = [pool.allocate(4096) for _ in range(5)]
    for number, buffer in enumerate(buffers):
        buffer.used(Pending(kind if number in (1, 3) else None))
        pool.free(buffer)
    reserved = pool.bytes_reserved
    for _ in range(2):  # one of them is waited for at each
        with pytest.raises(kind):
            pool.flush() if use == "flush" else [pool.allocate(4096) for _ in range(5)]
        assert pool.bytes_in_use == 0
        assert pool.bytes_reserved == 4096 * len(memory.held)
    assert use == "flush" or pool.bytes_reserved == reserved
    pool.flush()
    assert memory.held == set()
    assert pool.bytes_reserved == pool.bytes_cached == 0


def test_A7_a_driver_that_takes_nothing_back_costs_one_block_at_a_time():
    memory = Memory()
    pool = DevicePool("toy", memory, 1 << 20)
    buffers = [pool.allocate(4096) for _ in range(4)]
    memory.broken = {2}
    for buffer in buffers:
        pool.free(buffer)
    with pytest.raises(RuntimeError, match="the driver is gone"):
        pool.flush()
    assert pool.bytes_reserved == pool.bytes_cached == 4096 * len(memory.held)
    pool.flush()
    assert memory.held == set()
    assert pool.bytes_reserved == pool.bytes_in_use == 0
