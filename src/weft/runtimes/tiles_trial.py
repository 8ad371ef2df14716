"""Run as a child process of its own: small products in tile registers (AMX), compared exactly.

It exits with 0 if all of them are right. A processor, hypervisor or kernel on which tile
instructions fail ends this process and not the user's. Nothing of Weft is imported, and the
instructions are given as bytes, so that the first process on a machine waits for it only briefly.
"""

import ctypes
import mmap
import struct
from collections.abc import Iterable

SIDE, ROW = 16, 64  # rows of a tile, bytes of a row
TILE = SIDE * ROW
_REQUEST = 158, 0x1023, 18  # arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA

# void products(config, a, b, c): the sums of bfloat16, of int8 and of uint8 by int8, one after the
# other, each as tilezero, product, tilestored; before them ldtilecfg and two of tileloadd.
_CODE = bytes.fromhex(
    "c4e2784907" "b840000000" "c4e27b4b0c06" "c4e27b4b1402"
    "c4e27b49c0" "c4e26a5cc1" "c4e27a4b0401"
    "c4e27b49c0" "c4e26b5ec1" "c4e27a4b840100040000"
    "c4e27b49c0" "c4e2695ec1" "c4e27a4b840100080000"
    "c4e27849c0" "c3"
)


def products(a: bytes, b: bytes) -> bytes:
    """Return the three products of two tiles of 1024 bytes, each as a tile of words."""
    libc = ctypes.CDLL(None)
    number, request, feature = (ctypes.c_long(n) for n in _REQUEST)
    if libc.syscall(number, request, feature):
        raise OSError("the kernel does not grant tile registers")
    code = mmap.mmap(-1, mmap.PAGESIZE)
    code.write(_CODE)
    start = ctypes.addressof(ctypes.c_char.from_buffer(code))
    if libc.mprotect(ctypes.c_void_p(start), ctypes.c_size_t(mmap.PAGESIZE),
                     mmap.PROT_READ | mmap.PROT_EXEC):
        raise OSError("no memory for code")
    config = ctypes.create_string_buffer(
        struct.pack("<B15x", 1) + struct.pack("<8H", *[ROW] * 3, *[0] * 5) + bytes(16)
        + struct.pack("<8B", *[SIDE] * 3, *[0] * 5) + bytes(8), ROW)
    result = ctypes.create_string_buffer(3 * TILE)
    run = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 4)(start)
    run(ctypes.cast(config, ctypes.c_void_p), ctypes.cast(ctypes.c_char_p(a), ctypes.c_void_p),
        ctypes.cast(ctypes.c_char_p(b), ctypes.c_void_p), ctypes.cast(result, ctypes.c_void_p))
    return result.raw


def expected(a: list[list[int]], b: list[list[int]]) -> list[int]:
    """Return the elements of a product of matrices, row by row."""
    return [sum(x * y for x, y in zip(row, column, strict=True))
            for row in a for column in zip(*b, strict=True)]


def packed(values: Iterable[int], kind: str) -> bytes:
    """Return numbers as bfloat16 (`kind` e: the upper half of a float32) or bytes (b, B)."""
    if kind == "e":
        return b"".join(struct.pack("<f", v)[2:] for v in values)
    return b"".join(struct.pack(kind, v) for v in values)


def mixed(seed: int, rows: int, columns: int, among: range) -> list[list[int]]:
    """Return a matrix of scattered numbers; `random` would take longer to import than all else."""
    return [[among[(seed + row * columns + column) ** 3 * 40503 % 65521 % len(among)]
             for column in range(columns)] for row in range(rows)]


def wrong(place: int, kind: str, other: str, ranges: tuple[range, range]) -> bool:
    """Whether the product at a place of the results errs, for scattered numbers of two kinds."""
    each = 2 if kind == "e" else 4  # terms in a word
    depth = SIDE * each
    a, b = (mixed(place + 7, SIDE, depth, ranges[0]), mixed(place + 70, depth, SIDE, ranges[1]))
    words = (b[k + i][n] for k in range(0, depth, each) for n in range(SIDE) for i in range(each))
    made = products(packed((v for row in a for v in row), kind), packed(words, other))
    found = struct.unpack_from("<256f" if kind == "e" else "<256i", made, place * TILE)
    return list(found) != expected(a, b)


def main() -> int:
    """Return how many of the three products are wrong."""
    small, signed, unsigned = range(-4, 5), range(-128, 128), range(256)
    return (wrong(0, "e", "e", (small, small)) + wrong(1, "b", "b", (signed, signed))
            + wrong(2, "B", "b", (unsigned, signed)))


if __name__ == "__main__":
    raise SystemExit(main())
