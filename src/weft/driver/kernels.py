"""Compiled kernels: by their text, from memory, from disk, or from the compiler."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable
from typing import Any, Final

from weft.config import Debug, debug
from weft.driver import device, report
from weft.errors import CacheError, CompileError
from weft.ir.stmt import Kernel
from weft.store import fingerprint

_KIND: Final = "kernel"


class Code:
    """One compiled kernel.

    Attributes
    ----------
    key, name : str
        Cache key, and the symbol of the entry function.
    image : bytes
        The object file.
    messages : list of (text, check)
        What a failure code (less 1) means, and the number of the check that failed or -1.
    variables : list of str
        Names of the symbolic variables in ABI order.
    address : int
        Where it is loaded; 0 before.
    """

    __slots__ = ("address", "image", "key", "library", "messages", "name", "variables")

    def __init__(self, key: str, image: bytes, messages: list[tuple[str, int]],
                 variables: list[str]) -> None:  # fmt: skip
        self.key, self.name, self.image = key, symbol(key), image
        self.messages, self.variables = messages, variables
        self.address = 0
        self.library: Any = None

    def pack(self) -> bytes:
        """Return the cache entry."""
        head = json.dumps({"messages": self.messages, "variables": self.variables}).encode()
        return len(head).to_bytes(4, "little") + head + self.image

    @classmethod
    def unpack(cls, key: str, data: bytes) -> Code | None:
        """Return the kernel of a cache entry, or None if it is not one."""
        try:
            size = int.from_bytes(data[:4], "little")
            head = json.loads(data[4 : 4 + size])
            messages = [(str(text), int(check)) for text, check in head["messages"]]
            return cls(key, data[4 + size :], messages, [str(v) for v in head["variables"]])
        except (ValueError, KeyError, TypeError, RecursionError):
            return None


_loaded: Final[dict[str, Code]] = {}
_read: Final[set[str]] = set()  # keys of what came from disk
_distrusted: Final[set[str]] = set()  # and of what the linker refused then


def symbol(key: str) -> str:
    """Return the entry symbol of the kernel with this key."""
    return f"weft_{key[:24]}"


def key_of(kernel: Kernel) -> str:
    """Return the cache key: text, target, compiler, threads and Weft's version."""
    from weft.ir.text import canonical_text

    runtime = device.runtime()
    text = canonical_text(kernel)
    return fingerprint("kernel", text, device.target().fingerprint(), runtime.compiler.cache_key,
                       runtime.threads.threads)


def compiled(kernel: Kernel) -> Code:
    """Return the code of a loop-level kernel, compiling it if no cache has it."""
    key = key_of(kernel)
    found = _loaded.get(key)
    if found is not None and report.active() is None:
        report.count("kernel memory hits")
        return found
    if report.active() is None:
        found = from_disk(key)
        if found is not None:
            return found
    return _compile(kernel, key)


def from_disk(key: str) -> Code | None:
    """Return a kernel that this or another process compiled before."""
    found = _loaded.get(key)
    if found is not None:
        return found
    data = device.disk().get(_KIND, key) if key not in _distrusted else None
    found = Code.unpack(key, data) if data is not None else None
    if found is not None:
        report.count("kernel disk hits")
        _loaded[key] = found
        _read.add(key)
    return found


def _compile(kernel: Kernel, key: str) -> Code:
    from weft.driver.pipeline import build

    start = time.perf_counter()
    built = build(kernel, symbol(key))
    seconds = time.perf_counter() - start
    report.compiled(seconds, built)
    if debug(Debug.COMPILE):
        print(f"weft: compiled {kernel.name} ({kernel.meta.kind}) in {seconds * 1e3:.1f} ms",
              file=sys.stderr)
    code = Code(key, built.image, built.messages, built.variables)
    _loaded[key] = code
    device.disk().put(_KIND, key, code.pack())
    return code


def load(codes: Iterable[Code]) -> None:
    """Link every kernel that is not loaded yet, as one library.

    Raises
    ------
    CompileError
        If the linker refuses an object.
    CacheError
        If it does, and some came from disk: those will be compiled anew when asked for again.
    """
    new = list({c.key: c for c in codes if not c.address}.values())
    if not new:
        return
    try:
        library = device.runtime().load([c.image for c in new], [c.name for c in new])
    except CompileError as error:
        doubtful = [c.key for c in new if c.key in _read]
        if not doubtful:
            raise
        _distrusted.update(doubtful)
        _read.difference_update(doubtful)
        for key in doubtful:
            _loaded.pop(key, None)
        raise CacheError("load", found=error.message) from error
    for code in new:
        code.address, code.library = library[code.name], library


def forget() -> None:
    """Drop all compiled kernels of this process (for tests and after a cache clear)."""
    _loaded.clear()
    _read.clear()


__all__ = ["Code", "compiled", "forget", "from_disk", "key_of", "load", "symbol"]
