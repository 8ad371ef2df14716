"""All settings: the environment and the optional config file, read once.

``config()`` reads both at its first call and keeps the result, so that nothing on a hot path
parses the environment. The environment wins over the file, and the file over the defaults. A
value that cannot be understood is a `ParseError` that names the key; it is never ignored.

=====================================  =========================================================
``WEFT_DEVICE``                        default device, ``family[:ordinal or name][/pair]``
``WEFT_CACHE_DIR``                     folder of the disk cache
``WEFT_NUM_THREADS``                   threads of the CPU pool, at least 1
``WEFT_DEBUG``                         bit mask, see `Debug`
``WEFT_REQUIRE``                       capabilities whose absence is an error: ``cpu,torch``
``WEFT_CONFIG``                        config file instead of the user's own
``WEFT_BACKEND_NAME``                  1 or 0: enable or disable a backend
``WEFT_BACKEND_NAME_IDS``              the device ids that it may use: ``0,2``
``WEFT_CC``                            C compilers of ``cpu/c``, tried in order, each a name on
                                       PATH or a whole path: ``clang-15,gcc``
``WEFT_AMX``                           0: leave the tile registers of the processor alone
``WEFT_SPLIT_FLOAT32``                 0: leave them alone in products of float32
``WEFT_CHECK``                         1: compare every result with the plainest interpretation
``WEFT_SANITIZE``                      ``native``: kernels check themselves, see `weft.sanitize`
``WEFT_POISON``                        ``nan`` or ``ab``: fill memory before its use with bytes
                                       0xFF (NaN as floats) or 0xAB
``WEFT_GUARD``                         1: inaccessible pages after each buffer, bounds asserted
                                       in kernels; ``start``: the pages before it
``WEFT_TIERED``                        1: quick code first, hot kernels compiled again behind it
``WEFT_PACK_WEIGHTS``                  1: captured functions keep weights packed (`weft.jit`)
``WEFT_TUNE``                          1: tune each kernel when it is first compiled
``WEFT_TUNE_SECONDS``                  time that the search for one kernel may take
``WEFT_AUTOTUNE_LIMIT``                one limit of `AutotuneConfig`, e.g. ``..._N_LAUNCHES``
=====================================  =========================================================

In ``NAME``, every character that is not a letter or digit is written ``_``: ``cpu/c`` is
``WEFT_BACKEND_CPU_C``. The file, ``config.toml`` in the user's config folder, looks like this::

    tiered = true

    [backends.cuda]
    enabled = true
    ids = [0, 1]

    [autotune]
    n_launches = 3
"""

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, Literal

from weft.errors import ParseError
from weft.imports import Late, importing

if TYPE_CHECKING:
    from weft import settings
else:
    settings = Late("weft.settings")

__all__ = ["VERSION", "AutotuneConfig", "BackendConfig", "Config", "Debug", "config", "debug",
           "reset", "user_folder"]  # fmt: skip

VERSION = "0.1.0"


class Debug:
    """The bits of ``WEFT_DEBUG``; each prints its own category and nothing else."""

    DEVICE: Final = 1
    GRAPH: Final = 2
    SCHEDULE: Final = 4
    IR: Final = 8
    SOURCE: Final = 16
    COPY: Final = 32
    ALLOCATION: Final = 64
    COMPILE: Final = 128
    AUTOTUNE: Final = 256
    ALL: Final = 511


class _Record:
    """An immutable record over ``__slots__``.

    Three frozen dataclasses would cost more than a millisecond of every import.
    """

    __slots__: tuple[str, ...] = ()

    def _fields(self) -> Iterator[tuple[str, object]]:
        return ((name, getattr(self, name)) for name in self.__slots__)

    def _init(self, **values: object) -> None:
        for name, value in values.items():
            object.__setattr__(self, name, value)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{type(self).__name__}.{name} is read-only")

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return dict(self._fields()) == dict(other._fields())

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={value!r}" for name, value in self._fields())
        return f"{type(self).__name__}({fields})"


class BackendConfig(_Record):
    """Whether a backend is used, and which of its devices.

    Parameters
    ----------
    enabled
        A disabled backend is never probed and is absent from ``weft.devices()``.
    ids
        The device ids that may be used; None is all of them.
    """

    __slots__ = ("enabled", "ids")
    enabled: bool
    ids: tuple[int, ...] | None

    def __init__(self, enabled: bool = True, ids: tuple[int, ...] | None = None) -> None:
        self._init(
            enabled=settings.boolean("backends.enabled", enabled),
            ids=None if ids is None else settings.ids("backends.ids", ids),
        )


class AutotuneConfig(_Record):
    """The limits of a search for schedules; each one bounds it.

    Parameters
    ----------
    save_to_disk
        Keep what was found, so that the next process launches nothing to tune.
    n_launches
        Timed launches for each candidate.
    n_seeds
        Candidates that the search starts from.
    n_added_per_step, n_removed_per_step
        Candidates that each step adds, and drops.
    n_total_opts
        Candidates tried at most.
    """

    __slots__ = (
        "n_added_per_step",
        "n_launches",
        "n_removed_per_step",
        "n_seeds",
        "n_total_opts",
        "save_to_disk",
    )
    save_to_disk: bool
    n_launches: int
    n_seeds: int
    n_added_per_step: int
    n_removed_per_step: int
    n_total_opts: int

    def __init__(
        self,
        save_to_disk: bool = True,
        n_launches: int = 1,
        n_seeds: int = 100,
        n_added_per_step: int = 10,
        n_removed_per_step: int = 5,
        n_total_opts: int = 1000,
    ) -> None:
        self._init(
            save_to_disk=settings.boolean("autotune.save_to_disk", save_to_disk),
            n_launches=settings.integer("autotune.n_launches", n_launches, 1),
            n_seeds=settings.integer("autotune.n_seeds", n_seeds, 1),
            n_added_per_step=settings.integer("autotune.n_added_per_step", n_added_per_step, 0),
            n_removed_per_step=settings.integer("autotune.n_removed_per_step",
                                                n_removed_per_step, 0),
            n_total_opts=settings.integer("autotune.n_total_opts", n_total_opts, 1),
        )


_FILE_KEYS = frozenset({"autotune", "backends", "cc", "pack_weights", "tiered", "tune",
                        "tune_seconds"})  # fmt: skip
_AUTOTUNE_KEYS = frozenset(AutotuneConfig.__slots__)
_BACKEND_KEYS = frozenset(BackendConfig.__slots__)


class Config(_Record):
    """All settings of the process.

    Parameters
    ----------
    device
        Name of the default device, None when the user chose none.
    cache_dir
        Folder of the disk cache, None for the user's own cache folder.
    num_threads
        Threads of the CPU pool, None for one for each usable core.
    debug
        Bits of `Debug`.
    require
        Names of capabilities whose absence is an error.
    amx
        Whether tile registers of the processor may be used where it has them.
    split_float32
        Whether they may multiply float32 as sums of bfloat16 parts, where these are as exact.
    check
        Whether every result is compared with the plainest interpretation of what was asked for.
    sanitize
        ``native``: the cheap checks of the sanitiser are compiled into every kernel.
    poison
        ``nan`` or ``ab``: what fresh and reused memory, private arrays of kernels included, is
        filled with before it is used.
    guard
        ``end`` or ``start``: at which end buffers meet an inaccessible page. Every access of a
        kernel that is not proven to be within its array is asserted then.
    tiered
        Whether small kernels begin with code that is made quickly, and hot ones are compiled fully
        in the background. The last bits of a result may differ between the two, so it is off.
    pack_weights
        Whether `weft.jit` keeps weights packed between calls where it is not told.
    autotune
        Limits of the search for schedules.
    tune
        Search for the schedule of each kernel when it is first compiled.
    tune_seconds
        Time that the search for one kernel may take.
    backends
        Settings of the backends that the user mentioned; ask `backend` for any name.
    cc
        C compilers of ``cpu/c`` in the order in which they are tried, none for the usual ones.
    """

    __slots__ = (
        "amx",
        "autotune",
        "backends",
        "cache_dir",
        "cc",
        "check",
        "debug",
        "device",
        "guard",
        "num_threads",
        "pack_weights",
        "poison",
        "require",
        "sanitize",
        "split_float32",
        "tiered",
        "tune",
        "tune_seconds",
    )
    device: str | None
    cache_dir: str | None
    num_threads: int | None
    debug: int
    require: frozenset[str]
    tiered: bool
    pack_weights: bool
    autotune: AutotuneConfig
    backends: Mapping[str, BackendConfig]
    tune: bool
    amx: bool
    split_float32: bool
    tune_seconds: int
    sanitize: str
    check: bool
    poison: str
    guard: str
    cc: tuple[str, ...]

    def __init__(
        self,
        device: str | None = None,
        cache_dir: str | None = None,
        num_threads: int | None = None,
        debug: int = 0,
        require: frozenset[str] = frozenset(),
        autotune: AutotuneConfig | None = None,
        backends: Mapping[str, BackendConfig] | None = None,
        tiered: bool = False,
        tune: bool = False,
        tune_seconds: int = 30,
        amx: bool = True,
        sanitize: str = "",
        pack_weights: bool = False,
        split_float32: bool = True,
        check: bool = False,
        poison: str = "",
        guard: str = "",
        cc: tuple[str, ...] = (),
    ) -> None:
        threads = None if num_threads is None else settings.integer("num_threads", num_threads, 1)
        self._init(
            device=None if device is None else settings.device("device", device),
            cache_dir=cache_dir,
            num_threads=threads,
            debug=settings.integer("debug", debug, 0, Debug.ALL),
            require=require,
            tiered=settings.boolean("tiered", tiered),
            pack_weights=settings.boolean("pack_weights", pack_weights),
            autotune=AutotuneConfig() if autotune is None else autotune,
            backends={settings.env_name(name): value for name, value in (backends or {}).items()},
            tune=settings.boolean("tune", tune),
            amx=settings.boolean("amx", amx),
            split_float32=settings.boolean("split_float32", split_float32),
            tune_seconds=settings.integer("tune_seconds", tune_seconds, 1),
            sanitize=settings.sanitize("sanitize", sanitize),
            check=settings.boolean("check", check),
            poison=settings.poison("poison", poison),
            guard=settings.guard("guard", guard),
            cc=settings.programs("cc", cc),
        )

    @property
    def memory_mode(self) -> str:
        """How memory is checked, nothing for not at all: a part of the keys of all caches."""
        return f"poison {self.poison} guard {self.guard}" if self.poison or self.guard else ""

    def backend(self, name: str) -> BackendConfig:
        """Return the settings of the backend ``name``, the defaults if none were given."""
        return self.backends.get(settings.env_name(name)) or BackendConfig()

    @classmethod
    def load(cls, environ: Mapping[str, str] | None = None) -> "Config":
        """Read the environment (``os.environ`` by default) and the config file it points at."""
        source = os.environ if environ is None else environ
        env = {key: value.strip() for key, value in source.items()}
        named = env.get("WEFT_CONFIG", "")
        path = named or _default_path()
        file = settings.read_file(path, bool(named))
        try:
            return cls._read(env, file)
        except ParseError as error:
            if not error.operation.startswith("WEFT_"):  # those are of the environment
                error.hint = f"in {path}" if error.hint is None else f"{error.hint}; in {path}"
            raise

    @classmethod
    def _read(cls, env: Mapping[str, str], file: Mapping[str, Any]) -> "Config":
        """Return what the environment and the keys of the config file say."""
        settings.known("config", file, _FILE_KEYS)
        tiered = settings.boolean("tiered", file.get("tiered", False))
        packs = settings.boolean("pack_weights", file.get("pack_weights", False))
        tune = settings.boolean("tune", file.get("tune", False))
        seconds = settings.integer("tune_seconds", file.get("tune_seconds", 30), 1)
        return cls(
            device=(settings.device("WEFT_DEVICE", env["WEFT_DEVICE"])
                    if env.get("WEFT_DEVICE") else None),
            cache_dir=env.get("WEFT_CACHE_DIR") or None,
            num_threads=settings.env_integer(env, "WEFT_NUM_THREADS", 1),
            debug=settings.env_integer(env, "WEFT_DEBUG", 0, Debug.ALL) or 0,
            require=frozenset(settings.words(env.get("WEFT_REQUIRE", "").lower())),
            autotune=AutotuneConfig(**settings.autotune(env, file, _AUTOTUNE_KEYS)),
            backends={name: BackendConfig(*given)
                      for name, given in settings.backends(env, file, _BACKEND_KEYS).items()},
            tune=settings.env_boolean(env, "WEFT_TUNE") if env.get("WEFT_TUNE") else tune,
            sanitize=settings.sanitize("WEFT_SANITIZE", env.get("WEFT_SANITIZE", "")),
            check=bool(env.get("WEFT_CHECK")) and settings.env_boolean(env, "WEFT_CHECK"),
            poison=settings.poison("WEFT_POISON", env.get("WEFT_POISON", "")),
            guard=settings.guard("WEFT_GUARD", env.get("WEFT_GUARD", "")),
            cc=(settings.programs("WEFT_CC", settings.words(env["WEFT_CC"]))
                if env.get("WEFT_CC") else settings.programs("cc", file.get("cc", []))),
            amx=not env.get("WEFT_AMX") or settings.env_boolean(env, "WEFT_AMX"),
            split_float32=(not env.get("WEFT_SPLIT_FLOAT32")
                           or settings.env_boolean(env, "WEFT_SPLIT_FLOAT32")),
            tune_seconds=settings.env_integer(env, "WEFT_TUNE_SECONDS", 1) or seconds,
            tiered=settings.env_boolean(env, "WEFT_TIERED") if env.get("WEFT_TIERED") else tiered,
            pack_weights=(settings.env_boolean(env, "WEFT_PACK_WEIGHTS")
                          if env.get("WEFT_PACK_WEIGHTS") else packs),
        )


_current: Config | None = None
watchers: Final[list[Callable[[], None]]] = []  # what keeps something that settings decide


def config() -> Config:
    """Return the settings of the process, read at the first call and kept."""
    global _current
    if _current is None:
        _current = Config.load()
    return _current


def reset(new: Config | None = None) -> None:
    """Replace the settings; with None, the next `config` reads environment and file again."""
    global _current
    _current = new
    changed()


def changed() -> None:
    """Tell those in `watchers` that a setting, or the default device, may be another one now."""
    for watcher in watchers:
        watcher()


def debug(bit: int) -> bool:
    """Tell whether a bit of `Debug` is set."""
    return bool(config().debug & bit)


def user_folder(kind: Literal["config", "cache"]) -> str:
    """Return the user's own folder for Weft's settings or its cache; it need not exist.

    An empty string if there is no home directory to be found: the working folder, which may be
    anybody's, is never one. The rules are those of platformdirs. On Linux they are few lines, and
    every process needs them, so its import of 9 ms is saved there.
    """
    android = hasattr(sys, "getandroidapilevel") or "ANDROID_DATA" in os.environ
    if sys.platform == "linux" and not android:
        base = os.environ.get(f"XDG_{kind.upper()}_HOME", "")
        if not os.path.isabs(base) and os.path.isabs(os.environ.get("HOME", os.sep)):
            base = os.path.expanduser(f"~/.{kind}")
        if os.path.isabs(base):
            return os.path.join(base, "weft")
    with importing:
        import platformdirs

    find = platformdirs.user_config_dir if kind == "config" else platformdirs.user_cache_dir
    try:
        folder = find("weft", appauthor=False)
    except RuntimeError:  # nobody knows the user, and nothing is set
        return ""
    return folder if os.path.isabs(folder) else ""


def _default_path() -> str:
    folder = user_folder("config")
    return folder and os.path.join(folder, "config.toml")
