"""How settings are written: the environment and the config file read, and each value checked.

What the settings are, `weft.config` says, and how long they are kept. Every function here takes the
key that a value was given for, or finds it, so that a `ParseError` can name it.
"""

import re
from collections.abc import Mapping
from typing import Any, Final

from weft.errors import ParseError
from weft.imports import importing

__all__ = ["autotune", "backends", "boolean", "device", "env_boolean", "env_integer", "env_name",
           "guard", "ids", "integer", "known", "poison", "programs", "read_file", "sanitize",
           "words"]  # fmt: skip

_TRUE: Final = frozenset({"1", "true", "yes", "on"})
_FALSE: Final = frozenset({"0", "false", "no", "off"})


# ---- reading -------------------------------------------------------------------------------------


def read_file(path: str, must_exist: bool) -> dict[str, object]:
    """Return what a config file says; nothing without a path, or without a file that may lack."""
    if not path:
        return {}
    try:
        with open(path, "rb") as file:
            content = file.read()
    except FileNotFoundError:
        if must_exist:
            raise ParseError(
                "config file", found=f"WEFT_CONFIG={path}, which is not there", expected="a file"
            ) from None
        return {}
    except OSError as error:
        raise ParseError(
            "config file", found=f"{path}: {error.strerror}", expected="a readable file"
        ) from error
    with importing:
        import tomllib  # parsing is rare: most users have no file

    try:
        return tomllib.loads(content.decode())
    except ValueError as error:  # TOMLDecodeError and UnicodeDecodeError are both ValueErrors
        raise ParseError("config file", found=f"{path}: {error}", expected="valid TOML") from error


def autotune(env: Mapping[str, str], file: Mapping[str, object],
             keys: frozenset[str]) -> dict[str, Any]:  # fmt: skip
    """Return the limits of the tuner that are given; who takes them checks each value."""
    table = dict(_table("autotune", file.get("autotune", {})))
    known("autotune", table, keys)
    for key in keys:
        name = f"WEFT_AUTOTUNE_{key.upper()}"
        if env.get(name):
            is_flag = key == "save_to_disk"
            table[key] = env_boolean(env, name) if is_flag else env_integer(env, name, 0)
    return table


def backends(env: Mapping[str, str], file: Mapping[str, object],
             keys: frozenset[str]) -> dict[str, tuple[bool, tuple[int, ...] | None]]:  # fmt: skip
    """Return for each backend that is mentioned whether it is enabled, and its device ids."""
    enabled: dict[str, bool] = {}
    allowed: dict[str, tuple[int, ...]] = {}
    for name, value in _table("backends", file.get("backends", {})).items():
        key = f"backends.{name}"
        table = _table(key, value)
        known(key, table, keys)
        if "enabled" in table:
            enabled[env_name(name)] = boolean(f"{key}.enabled", table["enabled"])
        if "ids" in table:
            allowed[env_name(name)] = ids(f"{key}.ids", table["ids"])
    for key, value in env.items():
        match = re.fullmatch(r"WEFT_BACKEND_(\w+?)(_IDS)?", key)
        if match is None or not value:
            continue
        if match[2]:
            given = tuple(_parse_integer(key, word, 0) for word in words(value))
            allowed[match[1]] = ids(key, given)
        else:
            enabled[match[1]] = env_boolean(env, key)
    return {
        name: (enabled.get(name, True), allowed.get(name))
        for name in sorted(enabled.keys() | allowed.keys())
    }


def env_name(backend: str) -> str:
    """Return a backend's name as the environment spells it; ``cpu/c`` and ``cpu_c`` are one."""
    return re.sub(r"\W", "_", backend).upper()


def words(text: str) -> list[str]:
    """Return the parts of a list with commas."""
    return [word.strip() for word in text.split(",") if word.strip()]


# ---- checks: each takes the key, so that an error can name it ------------------------------------


def _table(key: str, value: object) -> Mapping[str, object]:
    if not isinstance(value, dict):
        raise ParseError(key, found=repr(value), expected="a table")
    return value


def known(key: str, table: Mapping[str, object], names: frozenset[str]) -> None:
    """Check that a table has no key but those that there are."""
    for name in table:
        if name not in names:
            raise ParseError(key, found=f"the key {name!r}", expected=f"one of {sorted(names)}")


def boolean(key: str, value: object) -> bool:
    """Return a value that is true or false."""
    if not isinstance(value, bool):
        raise ParseError(key, found=repr(value), expected="true or false")
    return value


def integer(key: str, value: object, low: int, high: int | None = None) -> int:
    """Return an integer within limits."""
    # not isinstance: True would pass for 1
    if type(value) is int and value >= low and (high is None or value <= high):
        return value
    limits = f"of at least {low}" if high is None else f"from {low} to {high}"
    raise ParseError(key, found=repr(value), expected=f"an integer {limits}")


def ids(key: str, value: object) -> tuple[int, ...]:
    """Return device ids, each there once."""
    if not isinstance(value, (list, tuple)):
        raise ParseError(key, found=repr(value), expected="a list of device ids")
    found = tuple(integer(key, item, 0) for item in value)
    if len(set(found)) != len(found):
        raise ParseError(key, found=repr(list(found)), expected="each device id once")
    return found


def programs(key: str, value: object) -> tuple[str, ...]:
    """Return names of programs, or whole paths, in order."""
    if not isinstance(value, (list, tuple)) or not all(isinstance(v, str) and v for v in value):
        raise ParseError(key, found=repr(value), expected="a list of names or paths of programs")
    return tuple(value)


def sanitize(key: str, value: str) -> str:
    """Return how kernels check themselves, nothing for not at all."""
    if value not in ("", "native"):
        raise ParseError(key, found=repr(value), expected="native, or nothing")
    return value


def poison(key: str, value: str) -> str:
    """Return what memory is filled with before its use, nothing for nothing."""
    if value in ("", "0"):
        return ""
    if value not in ("nan", "ab"):
        raise ParseError(key, found=repr(value), expected="nan, ab, or nothing")
    return value


def guard(key: str, value: str) -> str:
    """Return at which end of a buffer the inaccessible page is, nothing for none."""
    if value in ("", "0"):
        return ""
    if value not in ("1", "end", "start"):
        raise ParseError(key, found=repr(value), expected="1, end, start, or nothing")
    return "start" if value == "start" else "end"


def device(key: str, value: str) -> str:
    """Return the name of a device; whether there is one is asked later."""
    if re.fullmatch(r"[a-z][a-z0-9_]*(:(\d+|[a-z][a-z0-9_]*))?(/[a-z][a-z0-9_]*)?", value) is None:
        raise ParseError(
            key, found=repr(value), expected="family[:ordinal or name][/pair], e.g. cpu, cpu/c, "
            "cuda:1 or opencl:pocl"
        )
    return value


def _parse_integer(key: str, text: str, low: int, high: int | None = None) -> int:
    try:
        value: object = int(text, 0)
    except ValueError:
        value = text
    return integer(key, value, low, high)


def env_integer(env: Mapping[str, str], key: str, low: int,
                high: int | None = None) -> int | None:  # fmt: skip
    """Return a variable as an integer within limits, None where it is not set."""
    text = env.get(key)
    return _parse_integer(key, text, low, high) if text else None


def env_boolean(env: Mapping[str, str], key: str) -> bool:
    """Return a variable that is set as true or false."""
    text = env[key].lower()
    if text not in _TRUE | _FALSE:
        raise ParseError(key, found=repr(env[key]), expected="1 or 0")
    return text in _TRUE
