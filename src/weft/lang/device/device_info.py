"""``weft.device_info``: what a device can do, each figure with who says so."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from weft.errors import DeviceError
from weft.imports import importing
from weft.ir import dtype as dt
from weft.ir.dtype import DType
from weft.ir.op import Op
from weft.ir.record import Record
from weft.tensors.core.devices import get_default_device

if TYPE_CHECKING:
    from weft.target import Target

__all__ = ["DEFINED", "DeviceInfo", "Figure", "device_info"]

DEFINED: Final = "defined"  # by Weft: equal on all devices, whatever their drivers say
_PRODUCTS: Final = ((Op.MATRIX2, dt.uint32, "bf16 tiles"), (Op.MATRIX4, dt.uint32, "uint8 tiles"),
                    (Op.MATRIX4S, dt.uint32, "int8 tiles"), (Op.DOT2, dt.uint32, "bf16 dots"),
                    (Op.DOT4, dt.uint32, "int8 dots"))  # fmt: skip


class Figure(NamedTuple):
    """A value, and who says so.

    Attributes
    ----------
    value : object
        The value.
    source : str
        ``reported`` (by the driver, the operating system or the processor), ``measured`` (by
        Weft), ``assumed`` (nobody says; a safe value), or ``defined`` (by Weft, on all devices).
    """

    value: Any
    source: str


class DeviceInfo(Record):
    """What a device can do. All but `name` are a `Figure`.

    Attributes
    ----------
    name : str
        The device.
    compute : Figure
        float32 operations a second, measured; 0 where nothing is computed.
    memory_bytes : Figure
        Memory that tensors may take.
    units : Figure
        Cores, or compute units.
    max_blocks : Figure
        Blocks of a launch along x, y, z. Weft deals blocks out to what the device has, so that
        limits of drivers are none of programs. A launch with more is a LaunchError.
    max_threads_by_axis, max_threads : Figure
        Threads of a block along x, y, z, and in all. A launch with more is a LaunchError.
    max_local_bytes : Figure
        Shared memory that a block may ask for; more is a KernelError when it is compiled.
    group_threads, group_bytes : Figure
        Threads of a group of the device, and bytes near it that a group shares; a processor has
        one thread to a group, and shares its second cache.
    vector_bytes, register_bytes : Figure
        The vector registers that code should use, and all of them that a thread has.
    matrix_products : Figure
        Products of narrow elements that instructions compute, by name.
    warp_size : Figure
        Threads of a warp, as kernels see it.
    dtypes : Figure
        dict of the name of each dtype to the set of its uses: ``storage``, ``compute`` (by
        instructions) or ``emulated`` (by several), ``atomics``.
    native_exp2 : Figure
        Whether an instruction computes powers of 2; else polynomials of Weft do.
    """

    name: str
    compute: Figure
    memory_bytes: Figure
    units: Figure
    max_blocks: Figure
    max_threads_by_axis: Figure
    max_threads: Figure
    max_local_bytes: Figure
    group_threads: Figure
    group_bytes: Figure
    vector_bytes: Figure
    register_bytes: Figure
    matrix_products: Figure
    warp_size: Figure
    dtypes: Figure
    native_exp2: Figure


def device_info(device: str | None = None) -> DeviceInfo:
    """Return what a device can do, each figure with who says so.

    The rate of float32 operations is measured, which takes some tenths of a second, and the time
    to compile a kernel on the first call.

    Parameters
    ----------
    device : str, optional
        By default the default device.

    Returns
    -------
    DeviceInfo
        A `Figure` for each.

    Raises
    ------
    DeviceError
        If the device is unknown or absent.

    Examples
    --------
    >>> weft.device_info("cpu").max_threads
    Figure(value=1024, source='defined')
    """
    if device is not None and not isinstance(device, str):
        raise DeviceError("device_info", found=repr(device), expected="the name of a device")
    with importing:
        from weft.driver.context import context
        from weft.driver.report.compute_rate import compute_rate
        from weft.lang.core.intrinsics import MOST_BLOCKS, MOST_SHARED, MOST_THREADS, WARP
        from weft.target import ASSUMED, MEASURED, REPORTED, SIMT

    place = context(get_default_device() if device is None else device)
    target, simt = place.target, place.target.style == SIMT
    computes = place.backend.computes
    rate = compute_rate(place) if computes else 0.0
    return DeviceInfo(
        name=place.name,
        compute=Figure(rate, MEASURED if rate else DEFINED),
        memory_bytes=Figure(place.runtime.pool.bytes_free + place.runtime.pool.bytes_in_use,
                            target.source("memory_bytes")),
        units=_told(target, "cores"),
        max_blocks=Figure(MOST_BLOCKS if computes else (0, 0, 0), DEFINED),
        max_threads_by_axis=Figure((MOST_THREADS if computes else 0,) * 3, DEFINED),
        max_threads=Figure(MOST_THREADS if computes else 0, DEFINED),
        max_local_bytes=Figure(MOST_SHARED if computes else 0, DEFINED),
        group_threads=Figure(target.max_items if simt else 1, REPORTED if simt else DEFINED),
        group_bytes=Figure(target.shared_bytes, REPORTED) if simt else _told(target, "l2_bytes"),
        vector_bytes=_told(target, "vector_bytes"),
        register_bytes=Figure(target.vector_registers * target.vector_bytes,
                              ASSUMED if simt else target.source("vector_registers")),
        matrix_products=Figure(tuple(name for op, d, name in _PRODUCTS if target.supports(op, d)),
                               target.source("operations") if simt else REPORTED),
        warp_size=Figure(WARP, DEFINED),
        dtypes=Figure({d.name: _uses(target, d) if computes else frozenset({"storage"})
                       for d in dt.ALL}, REPORTED if computes else DEFINED),
        native_exp2=Figure(target.supports(Op.EXP2, dt.float32), DEFINED),
    )


def _told(target: Target, field: str) -> Figure:
    return Figure(getattr(target, field), target.source(field))


def _uses(target: Target, d: DType) -> frozenset[str]:
    """Return what a dtype is good for on a device."""
    found = {"storage"}
    if d.is_float:
        found.add("compute" if target.computes(d) else "emulated")
    else:
        op = Op.AND if d.is_bool else Op.ADD
        found.add("compute" if target.supports(op, d) else "emulated")
    if d.itemsize < dt.int64.itemsize or "global" in target.wide_atomics:
        found.add("atomics")
    return frozenset(found)
