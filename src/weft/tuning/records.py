"""What was found: the best choices of each kernel, and every trial on the way, in one database.

The file lies beside the disk cache, is this user's alone, and is shared by all processes: SQLite
writes ahead into a log, and each trial is committed as it comes, so that a process killed at any
moment loses the one in flight. A file that is damaged is moved aside and reported; one that cannot
be written costs a warning, and the process keeps what it finds to itself. Where there is no file,
looking for a record costs one question to the file system and imports nothing.
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
import time
import warnings
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from weft.config import config
from weft.imports import importing, through_forks
from weft.locks import mutex
from weft.store import cache
from weft.store.digest import blake2b

if TYPE_CHECKING:
    import sqlite3

T = TypeVar("T")
Choice = int | bool | str

_NAME: Final = "tuning.sqlite"
_LOCK: Final = "tuning.lock"
_TURN: Final = "tuning.turn"
_SCHEMA: Final = 1
_MOST_READ: Final = 8192  # records that are kept in memory
_TABLES: Final = """
CREATE TABLE trials (
    key TEXT, digest TEXT, pipeline TEXT, choices TEXT, status TEXT, ratio REAL,
    PRIMARY KEY (key, digest, pipeline)) WITHOUT ROWID;
CREATE TABLE records (
    key TEXT PRIMARY KEY, kind TEXT, choices TEXT, pipeline TEXT, digest TEXT, trace TEXT,
    before REAL, after REAL, trials INTEGER, made REAL) WITHOUT ROWID;
CREATE TABLE finished (key TEXT PRIMARY KEY, trials INTEGER, made REAL) WITHOUT ROWID;
"""
_WAIT_S: Final = 10.0  # for another process's write

# SQLite has locks of its own, for its memory and its open files, whichever database it is asked
# about. A fork while another thread is inside would leave them locked for ever in the child: so who
# calls it has this one, and forks hold it.
_lock: Final = mutex()


def _hold() -> Callable[[], None]:
    _lock.acquire()
    return _lock.release


through_forks(_hold, outer=True)


class Record(NamedTuple):
    """The best that is known of one kernel.

    ``choices`` and ``pipeline`` make it, ``digest`` tells whether they still make the same schedule
    and ``trace`` shows it; ``before`` and ``after`` are seconds by default and tuned, ``trials``
    how many candidates were tried.
    """

    key: str
    kind: str
    choices: dict[str, Choice]
    pipeline: str
    digest: str
    trace: tuple[str, ...]
    before: float
    after: float
    trials: int

    @property
    def mark(self) -> str:
        """What tells code made by this record from other code of the kernel."""
        return f"{self.digest} {self.pipeline}"


class Trial(NamedTuple):
    """One candidate that was tried: ``ratio`` is its time over the default's, inf if it failed."""

    digest: str
    pipeline: str
    choices: dict[str, Choice]
    status: str
    ratio: float


def key_of(text: str, target: str, compiler: str, threads: int) -> str:
    """Return the key of a kernel: its canonical text, and for what it is compiled."""
    digest = blake2b(digest_size=20)
    for part in (text, target, compiler, str(threads)):
        data = part.encode("utf-8", "surrogatepass")
        digest.update(b"%d:" % len(data) + data)
    return digest.hexdigest()


def digest_of(text: str) -> str:
    """Return what stands for the text of a scheduled kernel."""
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=12).hexdigest()


class Records:
    """The records of one folder.

    Parameters
    ----------
    folder : str or None
        Where the database is; None keeps everything in this process.
    writes : bool
        Whether what is found goes into the file, or stays in this process.
    """

    def __init__(self, folder: str | None, writes: bool = True) -> None:
        self.folder, self.writes = folder, writes
        self._records: dict[str, Record | None] = {}  # read before, or not to be written
        self._trials: dict[str, dict[tuple[str, str], Trial]] = {}
        self._finished: dict[str, int] = {}
        self._open: tuple[sqlite3.Connection, tuple[int, int], int] | None = None
        self._warned = False

    @property
    def path(self) -> str | None:
        """The database file."""
        return None if self.folder is None else os.path.join(self.folder, _NAME)

    # ---- reading ---------------------------------------------------------------------------------

    def find(self, key: str) -> Record | None:
        """Return the record of a kernel, if there is one."""
        if key in self._records:
            return self._records[key]
        row = self._read(lambda db: db.execute(
            "SELECT kind, choices, pipeline, digest, trace, before, after, trials FROM records "
            "WHERE key = ?", (key,)).fetchone(), None)
        found = None
        if row is not None:
            with contextlib.suppress(ValueError, TypeError, AttributeError):
                found = Record(key, str(row[0]), _choices(row[1]), str(row[2]), str(row[3]),
                               tuple(str(row[4]).splitlines()), float(row[5]), float(row[6]),
                               int(row[7]))  # fmt: skip
        if self.writes and len(self._records) >= _MOST_READ:
            self._records.clear()  # the file has them
        self._records[key] = found
        return found

    def trials(self, key: str) -> list[Trial]:
        """Return the candidates of a kernel that were tried, by this and by other processes."""
        nothing: list[Any] = []
        rows = self._read(lambda db: db.execute(
            "SELECT digest, pipeline, choices, status, ratio FROM trials WHERE key = ?",
            (key,)).fetchall(), nothing)
        found = dict(self._trials.get(key, {}))
        for digest, pipeline, choices, status, ratio in rows:
            with contextlib.suppress(ValueError, TypeError, AttributeError):
                trial = Trial(str(digest), str(pipeline), _choices(choices), str(status),
                              float("inf") if ratio is None else float(ratio))
                found[trial.digest, trial.pipeline] = trial
        return list(found.values())

    def finished(self, key: str) -> int | None:
        """Return how many candidates a search tried that came to its end, None if none did."""
        row = self._read(lambda db: db.execute(
            "SELECT trials FROM finished WHERE key = ?", (key,)).fetchone(), None)
        return int(row[0]) if row is not None else self._finished.get(key)

    def counts(self) -> tuple[int, int, int]:
        """Return how many records and trials there are, and the bytes of the file."""
        found = self._read(lambda db: tuple(
            db.execute(f"SELECT count(*) FROM {t}").fetchone()[0] for t in ("records", "trials")
        ), (0, 0))
        size = 0
        with contextlib.suppress(OSError, TypeError):
            size = os.stat(self.path).st_size  # type: ignore[arg-type]
        return found[0], found[1], size

    # ---- writing ---------------------------------------------------------------------------------

    def tried(self, key: str, trial: Trial) -> None:
        """Note one candidate, at once and for good."""
        self._trials.setdefault(key, {})[trial.digest, trial.pipeline] = trial
        ratio = trial.ratio if trial.ratio < float("inf") else None
        self._write("INSERT OR REPLACE INTO trials VALUES (?, ?, ?, ?, ?, ?)",
                    (key, trial.digest, trial.pipeline, json.dumps(trial.choices), trial.status,
                     ratio))  # fmt: skip

    def put(self, record: Record) -> None:
        """Note the best of a kernel."""
        self._records[record.key] = record
        self._write("INSERT OR REPLACE INTO records VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                    (record.key, record.kind, json.dumps(record.choices), record.pipeline,
                     record.digest, "\n".join(record.trace), record.before, record.after,
                     record.trials, time.time()))  # fmt: skip

    def drop(self, key: str) -> None:
        """Forget the record of a kernel: the default turned out to be as good."""
        self._records[key] = None
        self._write("DELETE FROM records WHERE key = ?", (key,))

    def finish(self, key: str, trials: int) -> None:
        """Note that a search came to its end."""
        self._finished[key] = trials
        self._write("INSERT OR REPLACE INTO finished VALUES (?, ?, ?)", (key, trials, time.time()))

    def clear(self) -> int:
        """Remove everything; return how many records there were."""
        with _lock:
            removed = self.counts()[0]
            self.forget()
            if self.path is not None:
                for ending in ("", "-wal", "-shm"):
                    with contextlib.suppress(OSError):
                        os.unlink(self.path + ending)
            return removed

    def forget(self) -> None:
        """Drop what this process holds of the file."""
        with _lock:
            self._disconnect()
            for held in (self._records, self._trials, self._finished):
                held.clear()

    @contextlib.contextmanager
    def turn(self) -> Iterator[None]:
        """Keep other processes from measuring at the same time."""
        with self._alone(_TURN):
            yield

    @contextlib.contextmanager
    def _alone(self, name: str) -> Iterator[None]:
        """Hold a lock among processes; it ends with its holder at worst."""
        try:
            import fcntl

            if self.folder is None:
                raise OSError
            path = os.path.join(self.folder, name)
            flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
            file = os.open(path, flags, 0o600)
        except (ImportError, OSError):  # nothing is shared, or no such locks: measure anyway
            yield
            return
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield
        finally:
            with contextlib.suppress(OSError):  # a forked child has the file, and so the lock, too
                fcntl.flock(file, fcntl.LOCK_UN)
            os.close(file)

    # ---- the database ----------------------------------------------------------------------------

    def _read(self, query: Callable[[sqlite3.Connection], T], otherwise: T) -> T:
        if self.path is None or (self._open is None and not os.path.exists(self.path)):
            return otherwise
        return self._run(query, False, otherwise)

    def _write(self, statement: str, values: tuple[object, ...]) -> None:
        if self.path is not None and self.writes:
            self._run(lambda db: db.execute(statement, values), True, None)

    def _run(self, query: Callable[[sqlite3.Connection], T], create: bool, otherwise: T) -> T:
        with importing:
            import sqlite3

        with _lock:
            for _ in range(2):  # a damaged file is replaced by a new one, once
                try:
                    db = self._connect(create)
                    return otherwise if db is None else query(db)
                except sqlite3.OperationalError as error:  # full, locked, read-only
                    self._warn(str(error))
                    return otherwise
                except sqlite3.DatabaseError as error:
                    self._set_aside(str(error))
                except OSError as error:
                    self._warn(str(error))
                    return otherwise
            return otherwise

    def _connect(self, create: bool) -> sqlite3.Connection | None:
        import sqlite3

        path = self.path
        assert path is not None
        found = _identity(path)
        if self._open is not None:
            db, identity, process = self._open
            if process == os.getpid() and identity == found:
                return db
            self._disconnect()
        if found is None:
            if not create:
                return None
            flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0)
            with contextlib.suppress(FileExistsError):
                os.close(os.open(path, flags, 0o600))
            found = _identity(path)
        if not _trusted(path):
            raise OSError(f"{path} is not this user's own file")
        db = sqlite3.connect(path, timeout=_WAIT_S, isolation_level=None, check_same_thread=False)
        try:
            self._prepare(db)
        except BaseException:
            db.close()
            raise
        self._open = db, found or (0, 0), os.getpid()
        return db

    def _prepare(self, db: sqlite3.Connection) -> None:
        import sqlite3

        version = db.execute("PRAGMA user_version").fetchone()[0]
        if version == 0:
            with self._alone(_LOCK):  # another process may be making the tables, too
                version = db.execute("PRAGMA user_version").fetchone()[0]
                if version == 0:
                    db.execute("PRAGMA journal_mode = WAL")
                    version = _SCHEMA
                    tables = f"{_TABLES} PRAGMA user_version = {version};"
                    db.executescript(f"BEGIN IMMEDIATE; {tables} COMMIT;")
        if version != _SCHEMA:
            raise sqlite3.DatabaseError(f"schema {version}, expected {_SCHEMA}")
        db.execute("PRAGMA synchronous = NORMAL")

    def _disconnect(self) -> None:
        opened, self._open = self._open, None
        if opened is not None and opened[2] == os.getpid():  # a parent's is not ours to close
            opened[0].close()

    def _set_aside(self, reason: str) -> None:
        """Move a damaged file out of the way, unless somebody else did already."""
        path = self.path
        assert path is not None
        broken = self._open[1] if self._open is not None else _identity(path)
        self._disconnect()
        with self._alone(_LOCK):
            if broken is None or _identity(path) != broken:
                return
            aside = f"{path}.damaged-{int(time.time())}-{os.getpid()}"
            with contextlib.suppress(OSError):
                os.replace(path, aside)
            for ending in ("-wal", "-shm"):
                with contextlib.suppress(OSError):
                    os.replace(path + ending, aside + ending)
        self._warn(f"{reason}; the file was moved to {aside}")

    def _warn(self, reason: str) -> None:
        if not self._warned:
            self._warned = True
            warnings.warn(f"Weft's tuning records in {self.path}: {reason}.", RuntimeWarning,
                          stacklevel=2)  # fmt: skip


def _choices(text: str) -> dict[str, Choice]:
    found = json.loads(text)
    if not all(isinstance(v, int | str) for v in found.values()):
        raise ValueError(text)
    return dict(found)


def _identity(path: str) -> tuple[int, int] | None:
    try:
        status = os.lstat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _trusted(path: str) -> bool:
    """Tell whether only this user can have written the file."""
    status = os.lstat(path)
    if not stat.S_ISREG(status.st_mode):
        return False
    if not hasattr(os, "geteuid"):
        return True
    loose = status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    return status.st_uid == os.geteuid() and not loose


_current: Records | None = None


def records() -> Records:
    """Return the records of this process's cache folder."""
    global _current
    if _current is None:
        _current = Records(cache().folder(), config().autotune.save_to_disk)
    return _current


def reset() -> None:
    """Drop the records held, so that the next call reads the settings again."""
    global _current
    if _current is not None:
        _current.forget()
    _current = None


__all__ = ["Record", "Records", "Trial", "digest_of", "key_of", "records", "reset"]

