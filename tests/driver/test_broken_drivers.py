"""What a driver throws is a typed error of its device, and harms no other."""

import gc

import numpy as np
import pytest

import far_devices
import weft
from weft import gpu
from weft.backends import cpu, registry
from weft.backends.registry import Backend
from weft.driver.context import context
from weft.errors import (
    AllocationError,
    CompileError,
    CopyError,
    DeallocationError,
    DeviceError,
    InitializationError,
    LaunchError,
    LibraryNotFoundError,
    QueryError,
    SyncError,
)


def fails(*args):
    raise OSError("the driver is broken")


class Queue:
    """A queue that takes no work."""

    copy = fill = launch = synchronize = fails


class Device:
    """A device that opens and does nothing."""

    def __init__(self):
        self.name, self.pool, self.queue = "broken", cpu.runtime().pool, Queue()

    load = fails


@pytest.fixture
def broken():
    """Return what registers a driver that is broken in the parts given."""

    def register(**parts):
        given = {"probe": lambda: "", "count": lambda: 1, "open": lambda ordinal, pair: Device(),
                 "target": lambda ordinal, pair: cpu.host_target().replace(name="broken"),
                 **parts}  # fmt: skip
        registry.register(Backend("broken", ("llvm",), given["probe"], given["count"],
                                  given["target"], lambda target, pair: cpu.renderer(target),
                                  cpu.BACKEND.compiler, given["open"]))  # fmt: skip

    yield register
    registry.reset()


def compute():
    return (weft.tensor([1.0, 2.0], device="broken") + 1).numpy()


@pytest.mark.parametrize(("part", "error"), [
    ({"open": fails}, InitializationError), ({"open": lambda ordinal, pair: None},
                                             InitializationError),
    ({"target": fails}, QueryError), ({"count": fails}, DeviceError),
    ({"probe": fails}, DeviceError),
])  # fmt: skip
def test_A9_what_a_driver_throws(broken, part, error):
    broken(**part)
    with pytest.raises(error, match="broken"):
        compute()
    assert (weft.ones(2) + 1).tolist() == [2, 2]


def test_A9_enumeration_is_a_reason(broken):
    broken(count=fails)
    found = {f.family: f for f in registry.available()}["broken"]
    assert "EnumerationError" in found.reason
    assert "the driver is broken" in found.reason


def test_A9_synchronisation(broken):
    broken()
    with pytest.raises(SyncError, match="the driver is broken"):
        weft.synchronize("broken")


class Gone:
    """What a queue or the memory of a device becomes that is pulled out in the middle."""

    def __init__(self, inner):
        self.inner, self.left = inner, 1 << 30

    def __getattr__(self, name):
        found = getattr(self.inner, name)
        if name not in ("copy", "fill", "launch", "synchronize", "take", "write", "read"):
            return found

        def ask(*args, **kwargs):
            self.left -= 1
            if self.left < 0:
                raise OSError("the device is gone")
            return found(*args, **kwargs)

        return ask


@pytest.mark.grid
@pytest.mark.parametrize("after", [0, 1, 2, 5])
@pytest.mark.parametrize("part", ["queue", "pool"])
def test_a_device_that_disappears_in_the_middle(part, after, monkeypatch, rng):
    """Everything on it is a typed error from then on; everything else stays as it was."""
    far_devices.register()
    runtime = context("far").runtime
    here = weft.tensor(rng.random(64, np.float32)).realize()
    x = weft.tensor(here.numpy(), device="far")
    step = weft.jit(lambda t: (t * 2).cumsum(0))
    step(x)

    @weft.kernel
    def double(y):
        y[gpu.grid(1)] *= 2

    owner, name = (runtime, "queue") if part == "queue" else (runtime.pool, "_driver")
    gone = Gone(getattr(owner, name))
    monkeypatch.setattr(owner, name, gone)
    gone.left = after
    used = runtime.pool.bytes_in_use
    told = []
    for number in range(8):
        try:
            ((x + number) @ x).item()
            step(x).numpy()
            double[1, 64](x)
            weft.ones(1 << (12 + number), device="far").realize()
            (here.to("far") * 3).cpu().numpy()
        except (DeviceError, AllocationError) as error:
            told.append(str(error))
    assert told
    assert all("the device is gone" in text for text in told)
    np.testing.assert_array_equal((here + 1).numpy(), here.numpy() + np.float32(1))
    monkeypatch.undo()
    gc.collect()
    assert runtime.pool.bytes_in_use <= used
    assert (weft.ones(5, device="far") + 1).tolist() == [2] * 5


def test_A9_memory_copies_compilation_and_launch(monkeypatch, tmp_path):
    pool = context("null").runtime.pool
    with pytest.raises(AllocationError):
        pool.allocate(1 << 60)
    held = pool.allocate(8)
    with pytest.raises(CopyError):
        pool.host_to_pool(np.zeros(9, np.uint8), held)
    with pytest.raises(CopyError):
        pool.pool_to_host(held, np.zeros(9, np.uint8))
    pool.free(held)
    with pytest.raises(DeallocationError):
        held.release()
    with pytest.raises(CompileError):
        context("cpu").compiler.compile("this is no module")
    image = context("cpu").runtime
    with pytest.raises((LaunchError, DeviceError)):
        image.queue.launch(None, [])
    assert issubclass(LibraryNotFoundError, DeviceError)
