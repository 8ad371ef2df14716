"""SPIR-V as it is looked at before a driver sees it, which may trust it blindly."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from weft.errors import CompileError
from weft.runtimes.launches.header import Entry

__all__ = ["verify"]

_MAGIC: Final = 0x07230203
_HEAD: Final = 5  # words before the first instruction
_NEWEST: Final = {(1, 2): 0x10500, (1, 3): 0x10600}  # version of Vulkan -> of SPIR-V
_CAPABILITY, _ENTRY, _MODE = 17, 15, 16  # opcodes
_COMPUTE: Final = 5  # execution model GLCompute
_LOCAL_SIZE: Final = 17

# Capability -> features or properties of which the device has to have one; () for none.
_CAPABILITIES: Final[Mapping[int, tuple[str, ...]]] = {
    0: (), 1: (), 9: ("shaderFloat16",), 10: ("shaderFloat64",), 11: ("shaderInt64",),
    12: ("shaderBufferInt64Atomics", "shaderSharedInt64Atomics"), 22: ("shaderInt16",),
    39: ("shaderInt8",), **dict.fromkeys(range(61, 69), ()),
    4433: ("storageBuffer16BitAccess",), 4448: ("storageBuffer8BitAccess",),
    **{number: tuple(f"shader{what}Float{bits}" for bits in (16, 32, 64)) for number, what in (
        (4464, "DenormPreserve"), (4465, "DenormFlushToZero"), (4466, "SignedZeroInfNanPreserve"),
        (4467, "RoundingModeRTE"), (4468, "RoundingModeRTZ"))},
    5345: ("vulkanMemoryModel",), 5346: ("vulkanMemoryModelDeviceScope",),
    5347: ("bufferDeviceAddress",),
}  # fmt: skip


class _Seen(NamedTuple):
    """What a module declares."""

    capabilities: list[int]
    entries: dict[str, int]  # name -> function
    sizes: dict[int, tuple[int, ...]]  # function -> work-items of a group


def verify(name: str, body: bytes, entries: tuple[Entry, ...], facts: Mapping[str, Any]) -> None:
    """Verify that words are a module with some entries which a device can run.

    Parameters
    ----------
    name : str
        The kernel, for errors.
    body : bytes
        The words.
    entries : tuple of Entry
        What it has to have.
    facts : mapping
        What the driver says of the device.

    Raises
    ------
    CompileError
        If it is none, lacks an entry, or needs what the device does not have.
    """
    try:
        seen = _read(body, *facts["version"])
        for number in seen.capabilities:
            wanted = _CAPABILITIES.get(number)
            if wanted is None or (wanted and not any(facts[w] for w in wanted)):
                raise ValueError(f"the capability {number} ({' or '.join(wanted or ('unknown',))})")
        for entry in entries:
            function = seen.entries.get(entry.name)
            if function is None:
                raise ValueError(f"no entry {entry.name!r} among {sorted(seen.entries)}")
            if seen.sizes.get(function) != (entry.items, 1, 1):
                raise ValueError(f"{seen.sizes.get(function)} work-items in a group of "
                                 f"{entry.name!r}, where its image says {entry.items}")
    except ValueError as error:
        raise CompileError(name, found=f"SPIR-V with {error}",
                           expected="a module whose entries the device can run") from error


def _read(body: bytes, major: int, minor: int) -> _Seen:
    """Return what a module declares, from a walk over all its instructions."""
    if len(body) % 4 or len(body) < 4 * _HEAD:
        raise ValueError(f"{len(body)} bytes")
    words = struct.unpack(f"<{len(body) // 4}I", body)
    if words[0] != _MAGIC:
        raise ValueError(f"0x{words[0]:08x} at the begin, not 0x{_MAGIC:08x}")
    newest = _NEWEST.get((major, minor), _NEWEST[1, 3])
    if not 0x10000 <= words[1] <= newest or words[1] & 0xFF0000FF:
        raise ValueError(f"version 0x{words[1]:x}, where the device takes up to 0x{newest:x}")
    if not 0 < words[3] <= 1 << 22:
        raise ValueError(f"{words[3]} as the bound of its numbers")
    seen = _Seen([], {}, {})
    at, end = _HEAD, len(words)
    while at < end:
        count, opcode = words[at] >> 16, words[at] & 0xFFFF
        if not 0 < count <= end - at:
            raise ValueError(f"an instruction of {count} words at word {at} of {end}")
        if opcode == _CAPABILITY and count == 2:
            seen.capabilities.append(words[at + 1])
        elif opcode == _ENTRY and count > 3 and words[at + 1] == _COMPUTE:
            text = body[4 * (at + 3) : 4 * (at + count)].partition(b"\0")[0]
            seen.entries[text.decode(errors="replace")] = words[at + 2]
        elif opcode == _MODE and count == 6 and words[at + 2] == _LOCAL_SIZE:
            seen.sizes[words[at + 1]] = words[at + 3 : at + 6]
        at += count
    return seen
