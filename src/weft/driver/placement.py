"""``device="auto"``: the device on which work would be done first, by an estimate of its cost.

The cost of a device is the time that the work takes on the share of it that is free, and the time
to copy what it reads from elsewhere; a device without enough memory is out. The first candidate is
the one with most of the operands, then the default device. Another one has to be better by a
margin, so that equal devices, and loads that flicker, do not move work.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from weft.backends import registry
from weft.driver.context import Context, context
from weft.errors import DeviceError, WeftError
from weft.ir import node as nd
from weft.ir.dtype import float32
from weft.ir.expr import Expr
from weft.ir.node import Node

__all__ = ["Candidate", "Work", "best", "cheapest", "cost", "devices", "work_of"]

_MARGIN: Final = 1.25  # how many times cheaper another device has to be than the first
_LEAST_FREE: Final = 1 / 64  # share of a device that work gets in the end, however busy it is
_CLOCK: Final = 2.0  # cycles a nanosecond, where nobody says how fast a device is
_LINK: Final = 10.0  # bytes a nanosecond of copies from another device
_COPY_NANOSECONDS: Final = 20_000.0  # of any copy


class Candidate(NamedTuple):
    """A device that work may be placed on.

    Attributes
    ----------
    name : str
        The device.
    flops, bandwidth : float
        Operations of float32, and bytes of memory, in a nanosecond, if all of it is free.
    free_compute : float
        The share that is free, from 0 to 1.
    free_bytes : int
        Memory that may still be allocated.
    link : float
        Bytes a nanosecond that copies from other devices bring.
    """

    name: str
    flops: float
    bandwidth: float
    free_compute: float
    free_bytes: int
    link: float = _LINK


class Work(NamedTuple):
    """What is to be placed.

    Attributes
    ----------
    flops : float
        Operations.
    nbytes : int
        Memory that it takes for its results.
    operands : mapping of str to int
        Bytes that it reads, by the device that has them.
    """

    flops: float = 0.0
    nbytes: int = 0
    operands: Mapping[str, int] = {}


def cost(device: Candidate, work: Work) -> float:
    """Return the nanoseconds that work takes on a device, copies of its operands included."""
    moved = [n for name, n in work.operands.items() if name != device.name]
    touched = work.nbytes + sum(work.operands.values())
    busy = work.flops / device.flops + touched / device.bandwidth
    copies = sum(moved) / device.link + _COPY_NANOSECONDS * len(moved)
    return busy / max(device.free_compute, _LEAST_FREE) + copies


def cheapest(devices: Sequence[Candidate], work: Work) -> str:
    """Return the device on which work costs least, of those whose memory suffices.

    Where none has enough memory it is the one that has most.

    Parameters
    ----------
    devices
        At least one. Earlier ones are preferred where nothing else tells, but for what has most of
        the operands.
    work
        What is to be placed.
    """
    whole = sum(work.operands.values())
    fit = [d for d in devices
           if work.nbytes + whole - work.operands.get(d.name, 0) <= d.free_bytes]
    if not fit:
        return max(devices, key=lambda d: d.free_bytes).name
    first = max(fit, key=lambda d: work.operands.get(d.name, 0))
    least = min(fit, key=lambda d: cost(d, work))
    return least.name if cost(least, work) * _MARGIN < cost(first, work) else first.name


def devices() -> list[str]:
    """Return the devices that ``auto`` chooses from, the default one first.

    They are those that compute without being asked for by name (`Backend.is_asked_for`).
    """
    names = [name for family in registry.families() if _is_offered(family)
             for name in registry.probe(family).devices]
    default = context()
    if not default.backend.is_asked_for:
        names = [default.name, *(n for n in names if n != default.name)]
    return names


def _is_offered(family: str) -> bool:
    """Return whether devices of a family are chosen unasked; no driver is asked for that."""
    try:
        return not registry.backend(family).is_asked_for
    except DeviceError:
        return False


def best(work: Work) -> str:
    """Return the device for work, among all that there are.

    Raises
    ------
    DeviceError
        If there is none.
    """
    names = devices()
    if len(names) <= 1:
        return names[0] if names else registry.first()
    found = []
    for name in names:
        try:
            found.append(_candidate(context(name)))
        except (WeftError, OSError):  # of a driver: the others have nothing to do with it
            continue
    return cheapest(found, work) if found else names[0]


def work_of(nodes: Sequence[Node]) -> Work:
    """Return what placing values is for.

    Nobody says what will be done with them. They are taken to be read by a product of square
    matrices of as many elements.

    Parameters
    ----------
    nodes
        The values; where they are on a device, they are operands.
    """
    flops, nbytes, operands = 0.0, 0, dict[str, int]()
    for node in nodes:
        size = nd.size(node.shape)
        count = _most(size) if isinstance(size, Expr) else size
        flops += 2.0 * count**1.5
        held = count * node.dtype.itemsize
        if node.device:
            operands[node.device] = operands.get(node.device, 0) + held
        else:
            nbytes += held
    return Work(flops, nbytes, operands)


def _most(size: Expr) -> int:
    from weft.ir.bounds import bounds

    return bounds(size, {}).hi


def _candidate(place: Context) -> Candidate:
    """Return what is known of a device: what its driver reports, else what its target suggests."""
    runtime, target, info = place.runtime, place.target, place.runtime.info
    lanes = max(target.vector_bytes // float32.itemsize, 1)
    flops = _rate(info, "flops") or 2.0 * lanes * target.cores * _CLOCK
    bandwidth = _rate(info, "bandwidth") or target.costs.memory_rate * _CLOCK
    return Candidate(place.name, flops, bandwidth, runtime.free_compute(), runtime.pool.bytes_free,
                     _rate(info, "link") or _LINK)  # fmt: skip


def _rate(info: Mapping[str, object], name: str) -> float:
    """Return a rate per nanosecond that the driver reports per second, 0 if it reports none."""
    value = info.get(name)
    return value / 1e9 if isinstance(value, int | float) and value > 0 else 0.0
