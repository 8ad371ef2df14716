"""Weights of an exported function: blocks of memory for the browser's buffers, and their files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, cast

import numpy as np

from weft.exchange import host
from weft.ir.node import Storage

__all__ = ["ALIGNMENT", "BLOCK", "FILE", "Weights"]

ALIGNMENT: Final = 256  # bytes: the largest that WebGPU asks of parts of a buffer
BLOCK: Final = 128 << 20  # bytes of a buffer, unless one array is larger: what every adapter binds
FILE: Final = 24 << 20  # bytes of a file: static hosts take 25 MB


class Weights:
    """Arrays, laid out in blocks; the blocks lie behind each other in files.

    Attributes
    ----------
    places : dict of int to (int, int)
        For each input slot with a weight its block and the byte at which it begins there.
    blocks : list of int
        Bytes of each block.

    Parameters
    ----------
    arrays
        The weights by input slots.
    file_bytes
        The most that a file may have.
    """

    def __init__(self, arrays: Mapping[int, Storage], file_bytes: int = FILE) -> None:
        self.places: dict[int, tuple[int, int]] = {}
        self.blocks: list[int] = []
        self._arrays, self._file_bytes = arrays, file_bytes
        for slot, storage in arrays.items():
            nbytes = int(storage.size) * storage.dtype.itemsize
            taken = max(-(-nbytes // ALIGNMENT), 1) * ALIGNMENT
            if not self.blocks or self.blocks[-1] + taken > BLOCK:
                self.blocks.append(0)
            self.places[slot] = len(self.blocks) - 1, self.blocks[-1]
            self.blocks[-1] += taken

    @property
    def nbytes(self) -> int:
        """Bytes of all blocks."""
        return sum(self.blocks)

    def files(self, name: str) -> list[tuple[str, int]]:
        """Return names and bytes of the files: ``NAME.weights.bin``, or several with numbers."""
        sizes = [min(self._file_bytes, self.nbytes - at)
                 for at in range(0, self.nbytes, self._file_bytes)]
        if len(sizes) == 1:
            return [(f"{name}.weights.bin", sizes[0])]
        return [(f"{name}.weights-{i}.bin", size) for i, size in enumerate(sizes)]

    def data(self, name: str) -> dict[str, Any]:
        """Return what the plan says of them."""
        return {"blocks": self.blocks,
                "files": [{"name": file, "nbytes": n} for file, n in self.files(name)]}

    def write(self, name: str, folder: Path) -> list[Path]:
        """Write the files, and return their paths."""
        paths = []
        pieces = self._pieces()
        rest = memoryview(b"")
        for file, nbytes in self.files(name):
            with (folder / file).open("wb") as out:
                left = nbytes
                while left:
                    if not rest:
                        rest = next(pieces)
                    out.write(rest[:left])
                    taken = min(left, len(rest))
                    rest, left = rest[taken:], left - taken
            paths.append(folder / file)
        return paths

    def _pieces(self) -> Iterator[memoryview]:
        """Yield the bytes of all blocks."""
        for storage in self._arrays.values():
            size = int(storage.size)
            array: Any = host.view(storage.buffer, storage.dtype, (size,), False)
            data = np.ascontiguousarray(array).view(np.uint8)
            if len(data):
                yield memoryview(cast(Any, data))
            padding = -len(data) % ALIGNMENT if len(data) else ALIGNMENT
            if padding:
                yield memoryview(bytes(padding))
