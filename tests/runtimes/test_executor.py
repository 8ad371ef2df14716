"""Plans on devices that know nothing of each other: how bytes get from one to the other."""

import os

import pytest

from weft.ir.plan.plan import Copy, Plan, Ref
from weft.ir.plan.plan_verify import verify_plan
from weft.runtimes import executor
from weft.runtimes.executor import execute
from weft.runtimes.memory.device_pool import DevicePool
from weft.runtimes.memory.disk_device import DiskDevice, Place
from weft.runtimes.memory.immediate_queue import HostBlocks, ImmediateQueue
from weft.runtimes.memory.pool import Pool

PIECE = 1 << 12


class Hidden:
    """Memory that no address leads to; it notes the bytes of each access."""

    def __init__(self):
        self.sizes = []

    def take(self, nbytes):
        return bytearray(nbytes)

    def give_back(self, handle, nbytes):
        pass

    def write(self, handle, offset, source):
        self.sizes.append(source.nbytes)
        handle[offset : offset + source.nbytes] = source

    def read(self, handle, offset, target):
        self.sizes.append(target.nbytes)
        target[:] = memoryview(handle)[offset : offset + target.nbytes]


class Device:
    def __init__(self, name, driver):
        self.name, self.driver = name, driver
        self.pool = DevicePool(name, driver, 1 << 24)
        self.queue = ImmediateQueue(name)


class Host:
    """The memory of this process."""

    name = "cpu"

    def __init__(self):
        self.pool = Pool(limit=1 << 24)
        self.queue = ImmediateQueue("cpu")


def moved(origin, source, to, count, begin=0):
    """Return the bytes that a plan of one copy has brought to a device."""
    plan = verify_plan(Plan(
        "p", inputs=(source.nbytes,), outputs=(count,), devices=(origin.name, to.name),
        steps=(Copy(Ref("output", 0), Ref("input", 0, begin), count),), output_devices=(1,)))
    made = to.pool.allocate(count)
    assert execute(plan, [origin, to], {}, [source], [made], {}, True) is None
    found = bytearray(count)
    to.pool.pool_to_host(made, found)
    return bytes(found)


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch):
    monkeypatch.setattr(executor, "STAGE_BYTES", PIECE)


@pytest.mark.parametrize("count", [0, 1, PIECE - 1, PIECE, PIECE + 1, 5 * PIECE + 7])
def test_a_copy_between_devices_takes_a_piece_of_host_memory_at_a_time(count):
    origin, to = Device("one", Hidden()), Device("two", Hidden())
    data = os.urandom(count + 9)
    source = origin.pool.allocate(count + 9)
    origin.pool.host_to_pool(data, source)
    origin.driver.sizes.clear()
    assert moved(origin, source, to, count, 9) == data[9:]
    assert max(origin.driver.sizes, default=0) <= PIECE
    assert sum(origin.driver.sizes) == count


@pytest.mark.parametrize("to", [lambda: Device("two", HostBlocks()), Host])
def test_A11_a_file_is_read_straight_into_memory_that_has_an_address(to, tmp_path, monkeypatch):
    """By one read, whose target is the block itself."""
    data = os.urandom(3 * PIECE)
    (tmp_path / "f").write_bytes(data)
    disk, there, targets = DiskDevice("disk"), to(), []
    file = disk.pool.open(str(tmp_path / "f"))
    inner = type(file).read
    monkeypatch.setattr(type(file), "read", lambda self, offset, target: (
        targets.append((offset, target.nbytes)), inner(self, offset, target)))
    source = disk.pool.hold(Place(file, 5), 3 * PIECE - 5)
    assert moved(disk, source, there, 2 * PIECE + 9, 11) == data[16 : 2 * PIECE + 25]
    assert targets == [(16, 2 * PIECE + 9)]


def test_A11_a_file_is_read_by_pieces_for_memory_without_an_address(tmp_path):
    data = os.urandom(3 * PIECE)
    (tmp_path / "f").write_bytes(data)
    disk, there = DiskDevice("disk"), Device("two", Hidden())
    source = disk.pool.hold(Place(disk.pool.open(str(tmp_path / "f")), 0), 3 * PIECE)
    assert moved(disk, source, there, 3 * PIECE) == data
    assert there.driver.sizes[:3] == [PIECE] * 3
