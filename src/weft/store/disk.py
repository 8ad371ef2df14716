"""The cache directory: compiled kernels and plans that the next process starts from.

An entry is code, so nothing is loaded that another user could have written: the folder is ours
alone (mode 0700), every file is opened without following links and checked for owner and mode,
and a digest over kind, key and data finds what was cut short, mixed up or damaged. An entry is
written to a temporary name and renamed, so that readers and other writers of the same key only
ever see whole ones. A bad entry is a miss; a folder that cannot be used is bypassed with one
warning, and everything works without it.
"""

import itertools
import os
import stat
import struct
import time
import warnings
from collections.abc import Iterator
from functools import lru_cache
from typing import Final, NamedTuple

from weft.config import VERSION, config, user_folder
from weft.errors import CacheError
from weft.store.digest import blake2b

__all__ = ["CacheInfo", "DiskCache", "KindStats", "cache", "fingerprint", "reset"]

# The format is part of the folder's name: other versions neither read nor evict our entries.
_FOLDER: Final = "v1"
_MAGIC: Final = b"WEFTENT1"
_DIGEST_BYTES: Final = 32
_HEADER: Final = struct.Struct(f"<8sQ{_DIGEST_BYTES}s")

_LIMIT: Final = 2 << 30
_TOUCH_AFTER_S: Final = 3600.0
_SCAN_AFTER_S: Final = 86400.0
_STALE_AFTER_S: Final = 3600.0
_STAMP: Final = ".scanned"
_TEMPORARY: Final = ".tmp-"
_LOOSE: Final = stat.S_IWGRP | stat.S_IWOTH

# No O_NOFOLLOW, O_CLOEXEC on Windows, and no owners either: profiles are private there.
_READ_FLAGS: Final = (
    os.O_RDONLY
    | getattr(os, "O_NOFOLLOW", 0)
    | getattr(os, "O_CLOEXEC", 0)
    | getattr(os, "O_BINARY", 0)
    | getattr(os, "O_NONBLOCK", 0)
)
_WRITE_FLAGS: Final = (
    os.O_WRONLY
    | os.O_CREAT
    | os.O_EXCL
    | getattr(os, "O_NOFOLLOW", 0)
    | getattr(os, "O_CLOEXEC", 0)
    | getattr(os, "O_BINARY", 0)
)


@lru_cache(maxsize=1)
def _build() -> str:
    """Return a digest of sizes and times of Weft's own files: whoever edits them compiles anew."""
    seen: list[str] = []
    folders = [os.path.dirname(os.path.dirname(os.path.abspath(__file__)))]
    while folders:
        for entry in _scan(folders.pop()):
            if entry.is_dir(follow_symlinks=False) and entry.name != "__pycache__":
                folders.append(entry.path)
            elif entry.name.endswith(".py"):
                status = entry.stat()
                seen.append(f"{entry.path} {status.st_size} {status.st_mtime_ns}")
    return blake2b("\n".join(sorted(seen)).encode(), digest_size=8).hexdigest()


def fingerprint(*parts: str | bytes | int) -> str:
    """Return the key of ``parts``: 40 hexadecimal digits of BLAKE2b.

    The version and the build of Weft are always part of it. Each part counts with its type and
    length, so that ``("ab", "c")``, ``("a", "bc")`` and ``(b"ab", "c")`` differ.
    """
    digest = blake2b(f"{VERSION} {_build()}".encode(), digest_size=20)
    for part in parts:
        data = part if isinstance(part, bytes) else str(part).encode("utf-8", "surrogatepass")
        digest.update(b"%s%d:" % (type(part).__name__.encode(), len(data)))
        digest.update(data)
    return digest.hexdigest()


class KindStats:
    """Counts of one kind of entry in this process: ``hits``, ``misses``, ``writes``."""

    __slots__ = ("hits", "misses", "writes")

    def __init__(self) -> None:
        self.hits = self.misses = self.writes = 0

    def __repr__(self) -> str:
        return f"KindStats(hits={self.hits}, misses={self.misses}, writes={self.writes})"


class CacheInfo(NamedTuple):
    """What lies in the folder: its ``path``, ``entries`` and ``nbytes`` in all, and by kind."""

    path: str
    usable: bool
    entries: int
    nbytes: int
    limit: int
    kinds: dict[str, tuple[int, int]]


class _Entry(NamedTuple):
    used: float
    nbytes: int
    path: str
    kind: str


class DiskCache:
    """One cache folder.

    Parameters
    ----------
    path
        The folder; by default ``WEFT_CACHE_DIR`` or the user's own cache folder.
    limit
        Bytes to keep at most; those used longest ago are removed first.
    """

    def __init__(self, path: str | None = None, limit: int = _LIMIT) -> None:
        self.path = path or config().cache_dir or user_folder("cache")
        self.limit = limit
        self.stats: dict[str, KindStats] = {}
        self._root = os.path.join(self.path, _FOLDER)
        self._usable: bool | None = None
        self._writable = True
        self._folders: set[str] = set()
        self._written = 0
        self._scan_at = 0 if limit < _LIMIT else limit // 32
        self._numbers = itertools.count()
        self._looked = False

    def get(self, kind: str, key: str) -> bytes | None:
        """Return the entry, or None if there is none that can be trusted."""
        stats = self._stats(kind)
        if self._usable is None:
            self._open()
        if self._usable:
            path = self._path(kind, key)
            data = self._read(path, kind, key)
            if data is not None:
                stats.hits += 1
                return data
        stats.misses += 1
        return None

    def put(self, kind: str, key: str, data: bytes) -> bool:
        """Store an entry; return whether it was. A failure to write is never an error."""
        stats = self._stats(kind)
        if self._usable is None:
            self._open()
        if not (self._usable and self._writable):
            return False
        header = _HEADER.pack(_MAGIC, len(data), _digest(kind, key, data))
        try:
            self._write(kind, key, header, data)
        except OSError as error:
            self._writable = False  # what is there can still be read
            self._warn(error)
            return False
        stats.writes += 1
        self._written += len(data) + len(header)
        self._maybe_evict()
        return True

    def info(self) -> CacheInfo:
        """Count what lies in the folder."""
        if self._usable is None:
            self._open()
        kinds: dict[str, tuple[int, int]] = {}
        for entry in self._entries() if self._usable else ():
            count, nbytes = kinds.get(entry.kind, (0, 0))
            kinds[entry.kind] = count + 1, nbytes + entry.nbytes
        entries = sum(count for count, _ in kinds.values())
        nbytes = sum(nbytes for _, nbytes in kinds.values())
        return CacheInfo(self.path, bool(self._usable), entries, nbytes, self.limit, kinds)

    def folder(self) -> str | None:
        """Return the folder that is this user's alone, None if it cannot be used."""
        if self._usable is None:
            self._open()
        return self._root if self._usable else None

    def clear(self, kind: str | None = None) -> int:
        """Remove all entries, or those of one kind; return how many."""
        if self._usable is None:
            self._open()
        removed = 0
        for entry in list(self._entries()) if self._usable else ():
            if kind in (None, entry.kind) and _remove(entry.path):
                removed += 1
        return removed

    # ---- the folder ------------------------------------------------------------------------------

    def _open(self) -> None:
        """Make the folder or check that it is ours."""
        try:
            if not self.path:
                raise CacheError("cache folder", found="no home directory")
            os.makedirs(self.path, mode=0o700, exist_ok=True)
            try:
                os.mkdir(self._root, 0o700)
            except FileExistsError:
                self._check_root()
        except (OSError, CacheError) as error:
            self._warn(error)
            self._usable = False
        else:
            self._usable = True

    def _check_root(self) -> None:
        status = os.lstat(self._root)
        if not stat.S_ISDIR(status.st_mode):
            raise CacheError("cache folder", found=f"{self._root}, no folder", expected="a folder")
        if not hasattr(os, "geteuid"):
            return
        if status.st_uid != os.geteuid():
            raise CacheError("cache folder", found=f"{self._root} of user {status.st_uid}")
        if stat.S_IMODE(status.st_mode) != 0o700:
            os.chmod(self._root, 0o700)

    def _warn(self, error: Exception) -> None:
        """Say that the folder is not used, once in the life of the process."""
        try:
            _warnings_left.pop()  # atomic, and no lock that a fork could leave closed
        except IndexError:
            return
        reason = error.message if isinstance(error, CacheError) else str(error)
        warnings.warn(
            f"Weft works without its cache{self.path and ' in '}{self.path}: {reason}. "
            "WEFT_CACHE_DIR names another.",
            RuntimeWarning,
            stacklevel=2,
        )

    def _path(self, kind: str, key: str) -> str:
        return f"{self._root}{os.sep}{kind}{os.sep}{key[:2]}{os.sep}{key}"

    def _stats(self, kind: str) -> KindStats:
        stats = self.stats.get(kind)
        if stats is None:
            if not kind.isidentifier():
                raise CacheError("cache", found=f"kind {kind!r}", expected="a plain name")
            stats = self.stats.setdefault(kind, KindStats())
        return stats

    # ---- entries ---------------------------------------------------------------------------------

    def _read(self, path: str, kind: str, key: str) -> bytes | None:
        try:
            file = os.open(path, _READ_FLAGS)
        except FileNotFoundError:
            return None
        except OSError:
            return None  # a link, a folder, no permission: not an entry of ours
        try:
            status = os.fstat(file)
            if not _trusted(status):
                return None
            content = _read_all(file, status.st_size)
        except OSError:
            return None
        finally:
            os.close(file)
        data = content[_HEADER.size :]
        if len(content) >= _HEADER.size:
            magic, length, digest = _HEADER.unpack_from(content)
            if magic == _MAGIC and length == len(data) and digest == _digest(kind, key, data):
                if time.time() - status.st_mtime > _TOUCH_AFTER_S:
                    _touch(path)
                return data
        _remove(path)
        return None

    def _write(self, kind: str, key: str, header: bytes, data: bytes) -> None:
        path = self._path(kind, key)
        folder = os.path.dirname(path)
        try:
            if folder not in self._folders:
                os.makedirs(folder, mode=0o700, exist_ok=True)
                self._folders.add(folder)
            self._write_file(path, header, data)
        except FileNotFoundError:  # somebody cleared the folder under us: make it anew
            self._folders.clear()
            os.makedirs(self._root, mode=0o700, exist_ok=True)
            os.makedirs(folder, mode=0o700, exist_ok=True)
            self._write_file(path, header, data)

    def _write_file(self, path: str, header: bytes, data: bytes) -> None:
        name = f"{_TEMPORARY}{os.getpid()}-{next(self._numbers)}-{os.urandom(4).hex()}"
        temporary = os.path.join(os.path.dirname(path), name)
        file = os.open(temporary, _WRITE_FLAGS, 0o600)
        try:
            try:
                _write_all(file, header)
                _write_all(file, data)
            finally:
                os.close(file)
            os.replace(temporary, path)
        except BaseException:
            _remove(temporary)
            raise

    def _entries(self) -> Iterator[_Entry]:
        """Yield all entries, and remove temporary files that a killed process left."""
        now = time.time()
        for kind in _scan(self._root):
            if not kind.is_dir(follow_symlinks=False):
                continue
            for folder in _scan(kind.path):
                for file in _scan(folder.path):
                    try:
                        status = file.stat(follow_symlinks=False)
                    except OSError:
                        continue
                    if not file.name.startswith(_TEMPORARY):
                        yield _Entry(status.st_mtime, status.st_size, file.path, kind.name)
                    elif now - status.st_mtime > _STALE_AFTER_S:
                        _remove(file.path)

    def _maybe_evict(self) -> None:
        """Look at the size of the folder once a day, and after every 32nd of the limit written."""
        if self._written < self._scan_at and self._looked:
            return
        self._looked = True
        stamp = os.path.join(self._root, _STAMP)
        if self._written < self._scan_at:
            try:
                if time.time() - os.stat(stamp).st_mtime < _SCAN_AFTER_S:
                    return
            except OSError:
                pass
        self._written = 0
        try:
            os.close(os.open(stamp, os.O_WRONLY | os.O_CREAT, 0o600))
        except OSError:
            return
        _touch(stamp)
        self.evict()

    def evict(self) -> int:
        """Remove the entries used longest ago until the rest fits; return how many."""
        entries = sorted(self._entries())
        total = sum(entry.nbytes for entry in entries)
        removed = 0
        if total <= self.limit:
            return removed
        # A tenth below the limit, so that the next entry does not evict again at once.
        target = self.limit - self.limit // 10
        for entry in entries:
            if total <= target:
                break
            if _remove(entry.path):
                removed += 1
            total -= entry.nbytes
        return removed


def _digest(kind: str, key: str, data: bytes) -> bytes:
    digest = blake2b(f"{kind}/{key}/".encode(), digest_size=_DIGEST_BYTES)
    digest.update(data)
    return digest.digest()


def _trusted(status: os.stat_result) -> bool:
    """Tell whether only this user can have written the file."""
    if not stat.S_ISREG(status.st_mode):
        return False
    if not hasattr(os, "geteuid"):
        return True
    return status.st_uid == os.geteuid() and not status.st_mode & _LOOSE


def _read_all(file: int, size: int) -> bytes:
    content = os.read(file, size + 1)
    while len(content) < size:
        more = os.read(file, size + 1 - len(content))
        if not more:
            break
        content += more
    return content


def _write_all(file: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(file, view) :]


def _touch(path: str) -> None:
    try:
        os.utime(path)
    except OSError:
        return  # removed meanwhile, or a read-only folder: only the order of eviction suffers


def _remove(path: str) -> bool:
    try:
        os.unlink(path)
    except OSError:
        return False
    return True


def _scan(path: str) -> list["os.DirEntry[str]"]:
    try:
        with os.scandir(path) as entries:
            return list(entries)
    except OSError:
        return []


_warnings_left: Final = [1]
_current: DiskCache | None = None


def cache() -> DiskCache:
    """Return the process's cache."""
    global _current
    if _current is None:
        _current = DiskCache()
    return _current


def reset() -> None:
    """Forget the process's cache object and that it warned; the next `cache` reads the settings."""
    global _current
    _current = None
    _warnings_left[:] = [1]
