"""The devices of numba.cuda: one, on which Weft runs kernels."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, Final, NamedTuple

from weft.errors import LaunchError, outermost
from weft.ir.stmt import MOST_WAITING
from weft.lang.core.intrinsics import MOST_SHARED, MOST_THREADS
from weft.lang.launch.streams import Event, Stream

__all__ = [
    "Context", "Device", "MemoryInfo", "close", "current_context", "detect", "get_current_device",
    "gpus", "list_devices", "require_context", "select_device", "synchronize",
]  # fmt: skip


def synchronize() -> None:
    """Return at once: every launch is finished when it returns."""


@functools.cache
def _clock() -> int:
    with contextlib.suppress(OSError), open("/proc/cpuinfo", encoding="utf-8") as file:
        for line in file:
            name, _, value = line.partition(":")
            if name.strip() == "cpu MHz":
                return int(float(value) * 1e3)
    return 1_000_000


class Name(str):
    """The name of a device: text, which older programs decode first."""

    __slots__ = ()

    def decode(self, *options: Any) -> str:
        """Return the text, as of bytes."""
        del options
        return str(self)


class Device:
    """What programs ask of a device; its limits are those of launches.

    It has all attributes of `cudadrv.enums`; those of what a CPU has not, as textures, are 0.
    """

    id = 0
    name = Name("cpu")
    uuid = "GPU-00000000-0000-0000-0000-000000000000"
    compute_capability = (8, 0)
    COMPUTE_CAPABILITY_MAJOR, COMPUTE_CAPABILITY_MINOR = compute_capability
    supports_float16 = True
    WARP_SIZE = 32
    MAX_THREADS_PER_BLOCK = 1024
    MAX_BLOCK_DIM_X = MAX_BLOCK_DIM_Y = 1024
    MAX_BLOCK_DIM_Z = 1024
    MAX_GRID_DIM_X = (1 << 31) - 1
    MAX_GRID_DIM_Y = MAX_GRID_DIM_Z = 65535
    MAX_SHARED_MEMORY_PER_BLOCK = 48 << 10
    MAX_SHARED_MEMORY_PER_MULTIPROCESSOR = 164 << 10
    MAX_REGISTERS_PER_BLOCK = MAX_REGISTERS_PER_MULTIPROCESSOR = 65536
    MAX_THREADS_PER_MULTI_PROCESSOR = 2048
    TOTAL_CONSTANT_MEMORY = 64 << 10
    ASYNC_ENGINE_COUNT = 0  # copies are finished when they return
    CAN_MAP_HOST_MEMORY = UNIFIED_ADDRESSING = MANAGED_MEMORY = CONCURRENT_KERNELS = 1
    COOPERATIVE_LAUNCH = INTEGRATED = GPU_OVERLAP = 1
    PCI_BUS_ID = PCI_DEVICE_ID = PCI_DOMAIN_ID = 0
    MAX_SHARED_MEMORY_PER_BLOCK_OPTIN = MOST_SHARED
    MAX_PITCH = (1 << 31) - 1
    GLOBAL_MEMORY_BUS_WIDTH = 64
    HOST_NATIVE_ATOMIC_SUPPORTED = PAGEABLE_MEMORY_ACCESS = CONCURRENT_MANAGED_ACCESS = 1
    GLOBAL_L1_CACHE_SUPPORTED = LOCAL_L1_CACHE_SUPPORTED = COMPUTE_PREEMPTION_SUPPORTED = 1
    CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM = 1
    SINGLE_TO_DOUBLE_PRECISION_PERF_RATIO = 2

    def __new__(cls, devnum: int = 0) -> Device:
        """Return the device with a number, which is 0."""
        if devnum != 0:
            raise LaunchError("Device", found=f"device {devnum}", expected="device 0")
        return object.__new__(cls)

    @classmethod
    def from_identity(cls, identity: object) -> Device:
        """Return the device that gave its identity."""
        if identity != _device.get_device_identity():
            raise LaunchError("from_identity", found=repr(identity),
                              expected="what get_device_identity() returned")
        return _device

    def get_device_identity(self) -> dict[str, int]:
        """Return what names the device for other processes."""
        return {f"pci_{name}_id": 0 for name in ("domain", "bus", "device")}

    def __eq__(self, other: object) -> bool:
        """Whether another one is a device: there is one."""
        return isinstance(other, Device)

    def __hash__(self) -> int:
        """Return the number of the device."""
        return hash(self.id)

    def __getattr__(self, name: str) -> int:
        """Return an attribute that says that there is nothing of the kind."""
        from weft.compat.cuda.device_attributes import ATTRIBUTES

        if name in ATTRIBUTES:
            return 0
        raise AttributeError(f"a device has no attribute {name}")

    @property
    def CLOCK_RATE(self) -> int:
        """Kilohertz of a core, as the system says; 1 GHz where it does not."""
        return _clock()

    MEMORY_CLOCK_RATE = CLOCK_RATE

    @property
    def L2_CACHE_SIZE(self) -> int:
        """Bytes of the second cache of a core."""
        from weft.driver.context import host_context

        return host_context().target.l2_bytes

    @property
    def MULTIPROCESSOR_COUNT(self) -> int:
        """Cores."""
        from weft.driver.context import host_context

        return host_context().target.cores

    def __repr__(self) -> str:
        return f"<Weft device {self.id} {self.name!r}>"

    def __enter__(self) -> Device:
        """Return the device itself: it is the only one."""
        return self

    def __exit__(self, *error: object) -> None:
        """Do nothing."""

    def get_primary_context(self) -> Context:
        """Return the context of the device."""
        return current_context()

    def reset(self) -> None:
        """Do nothing."""

    def synchronize(self) -> None:
        """Return at once."""


class _Devices(tuple[Device, ...]):
    """The devices, by number."""

    __slots__ = ()

    @property
    def lst(self) -> tuple[Device, ...]:
        """The devices."""
        return self

    @property
    def current(self) -> Device:
        """The device that kernels run on."""
        return self[0]


_device: Final = Device()
gpus: Final = _Devices((_device,))


class MemoryInfo(NamedTuple):
    """Bytes of memory."""

    free: int
    total: int


class _Nothing(tuple[Any, ...]):
    """What waits to be given back: nothing."""

    __slots__ = ()

    def clear(self) -> None:
        """Do nothing."""


class Context:
    """What programs ask of the context of a device: its memory, and a way to wait for it."""

    device = _device
    deallocations = _Nothing()  # memory is given back when nothing has it
    memory_manager = SimpleNamespace(deallocations=deallocations, initialize=synchronize,
                                     reset=synchronize)

    def get_memory_info(self) -> MemoryInfo:
        """Return the memory that is free, and all of it."""
        from weft.driver.context import host_context

        pool = host_context().native.pool
        return MemoryInfo(pool.bytes_free, pool.bytes_free + pool.bytes_in_use)

    def memalloc(self, bytesize: int) -> Any:
        """Return new memory of so many bytes."""
        from weft.compat.cuda.memory import given

        return given(self, bytesize)

    def memhostalloc(self, bytesize: int, mapped: bool = False, portable: bool = False,
                     wc: bool = False) -> Any:  # fmt: skip
        """Return new memory of so many bytes, which is the host's."""
        del mapped, portable, wc
        from weft.compat.cuda.memory import MappedMemory, given

        return given(self, bytesize, MappedMemory)

    def memallocmanaged(self, bytesize: int, attach_global: bool = True) -> Any:
        """Return new memory of so many bytes, which is the host's."""
        del attach_global
        from weft.compat.cuda.memory import ManagedMemory, given

        return given(self, bytesize, ManagedMemory)

    def mempin(self, owner: Any, pointer: Any, size: int, mapped: bool = False) -> Any:
        """Return the memory of an array."""
        del pointer, mapped
        from weft.compat.cuda.memory import PinnedMemory, given

        return given(self, size, PinnedMemory, owner)

    def create_stream(self) -> Stream:
        """Return a new stream."""
        return Stream()

    get_default_stream = get_legacy_default_stream = get_per_thread_default_stream = create_stream

    def create_external_stream(self, pointer: int) -> Stream:
        """Return a stream for one of another library."""
        made = Stream()
        made.handle, made.external = pointer, True
        return made

    def create_event(self, timing: bool = True) -> Event:
        """Return a new event."""
        return Event(timing)

    def get_max_potential_block_size(self, func: Any, b2d_func: Any, memsize: int,
                                     blocksizelimit: int, flags: Any = None,
                                     ) -> tuple[int, int]:  # fmt: skip
        """Return how many blocks keep all cores busy, and a size of a block that is good."""
        del func, b2d_func, memsize, flags
        return self.device.MULTIPROCESSOR_COUNT, blocksizelimit or MOST_THREADS

    def can_access_peer(self, peer: int) -> bool:
        """Return False: there is no other device."""
        del peer
        return False

    def get_active_blocks_per_multiprocessor(self, func: Any, blocksize: int, memsize: int,
                                             flags: Any = None) -> int:  # fmt: skip
        """Return how many blocks may wait for each other at a barrier, for each core."""
        del func, memsize, flags
        return max(MOST_WAITING // max(blocksize, 1) // self.device.MULTIPROCESSOR_COUNT, 1)

    def synchronize(self) -> None:
        """Return at once."""

    reset = push = pop = synchronize

    def __enter__(self) -> Context:
        """Return the context itself."""
        return self

    def __exit__(self, *error: object) -> None:
        """Do nothing."""


def current_context(devnum: int | None = None) -> Context:
    """Return the context of the device."""
    del devnum
    return Context()


def get_current_device() -> Device:
    """Return the device that kernels run on."""
    return _device


def list_devices() -> tuple[Device, ...]:
    """Return the devices."""
    return gpus


@outermost
def select_device(device_id: int) -> Device:
    """Return the device with a number, which is 0."""
    if device_id != 0:
        raise LaunchError("select_device", found=f"device {device_id}", expected="device 0")
    return _device


def detect() -> bool:
    """Print the devices; return whether there is one."""
    print(f"Found {len(gpus)} CUDA devices")
    for device in gpus:
        print(f"id {device.id}    {device.name}    [SUPPORTED]")
    return True


def close() -> None:
    """Do nothing."""


def require_context(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function as it is: there is no context to open."""
    return function
