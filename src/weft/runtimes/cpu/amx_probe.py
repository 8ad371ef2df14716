"""A program of its own that multiplies two tiles in tile registers (AMX), and what it has to write.

A processor, hypervisor or kernel on which tile instructions fail ends that program and not the
user's. It is a file of a few KiB that is only in memory and needs neither Python nor a C library,
since the first process on a machine waits for it: an interpreter would take 25 ms to begin.
"""

from __future__ import annotations

import binascii
import contextlib
import os
import select
import signal
import struct
from typing import Final

__all__ = ["Trial", "operands", "program"]

_TILE: Final = 1024  # bytes: 16 rows of 64
_RESULTS: Final = 3 * _TILE
_SUM: Final = 0x85877B70  # CRC-32 of the results

_CODE: Final = bytes.fromhex(
    "b89e000000 bf23100000 be12000000 0f05"  # arch_prctl(ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA)
    "85c0 757f"                              # if that is refused, exit with it
    "488d3581000000 4881ec00100000"          # rsi: the data behind this code; rsp: 4 KiB of results
    "b840000000 c4e2784906 4889e2"           # eax: bytes of a row; ldtilecfg; rdx: the results
    "c4e27b4b4c0640"                         # tileloadd tmm1
    "c4e27b4b940640040000"                   # tileloadd tmm2
    "c4e27b49c0 c4e26a5cc1 c4e27a4b0402"          # tilezero, tdpbf16ps, tilestored
    "c4e27b49c0 c4e26b5ec1 c4e27a4b840200040000"  # tilezero, tdpbssd, tilestored
    "c4e27b49c0 c4e2695ec1 c4e27a4b840200080000"  # tilezero, tdpbusd, tilestored
    "c4e27849c0"                             # tilerelease
    "b801000000 bf01000000 4889e6 ba000c0000 0f05"  # write(1, results, 3072)
    "31c0 89c7 b83c000000 0f05"              # exit(0)
)  # fmt: skip


def operands() -> bytes:
    """Return two tiles, of bfloat16 or of bytes: integers of up to 8 bits, all sums exact.

    As bytes they take nearly all values, with and without sign. The second is meant in the order
    of the instructions, with the terms of a word side by side.
    """
    values = ((n ** 3 * 40503 % 65521) % 511 - 255 for n in range(7, 7 + _TILE))
    return b"".join(struct.pack("<f", value)[2:] for value in values)


def program() -> bytes:
    """Return the program as an executable file (ELF) for Linux on x86-64."""
    shapes = struct.pack("<B15x", 1) + struct.pack("<8H", *[64] * 3, *[0] * 5) + bytes(16)
    rows = struct.pack("<8B", *[16] * 3, *[0] * 5) + bytes(8)
    start, size = 64 + 2 * 56, 64 + 2 * 56 + len(_CODE) + 64 + 2 * _TILE
    base = 0x400000
    kind = b"\x7fELF" + bytes([2, 1, 1]) + bytes(9)
    header = struct.pack("<HHIQQQIHHHHHH", 2, 62, 1, base + start, 64, 0, 0, 64, 56, 2, 0, 0, 0)
    loaded = struct.pack("<IIQQQQQQ", 1, 5, 0, base, base, size, size, 0x1000)
    stack = struct.pack("<IIQQQQQQ", 0x6474E551, 6, 0, 0, 0, 0, 0, 16)  # without execution
    return kind + header + loaded + stack + _CODE + shapes + rows + operands()


class Trial:
    """The program under way. Starting it raises OSError where the system does not allow it."""

    def __init__(self) -> None:
        self._results, results = os.pipe()
        try:
            self._process = _spawn(program(), results)
        except OSError:
            os.close(self._results)
            raise
        finally:
            os.close(results)

    def verdict(self, seconds: float) -> str:
        """Return what is wrong with the results, "" if nothing; TimeoutError if there are none."""
        waiting = select.poll()
        waiting.register(self._results, select.POLLIN)
        ready = waiting.poll(seconds * 1e3)
        if not ready:
            os.kill(self._process, signal.SIGKILL)
        found = os.read(self._results, _RESULTS) if ready else b""
        self.close()
        status = 0
        with contextlib.suppress(ChildProcessError):  # the system may collect it by itself
            status = os.waitpid(self._process, 0)[1]
        if not ready:
            raise TimeoutError
        if len(found) < _RESULTS:
            return f"failing in a trial (exit code {os.waitstatus_to_exitcode(status)})"
        return "" if binascii.crc32(found) == _SUM else "wrong in a trial"

    def close(self) -> None:
        """Close the pipe; the program may go on."""
        os.close(self._results)


def _spawn(image: bytes, output: int) -> int:
    """Run a program from memory with its standard output given; return the process."""
    with open(os.memfd_create("weft-tiles"), "wb") as file:
        file.write(image)
        file.flush()
        return os.posix_spawn(f"/proc/self/fd/{file.fileno()}", ["weft-tiles"], {},
                              file_actions=[(os.POSIX_SPAWN_DUP2, output, 1)])
