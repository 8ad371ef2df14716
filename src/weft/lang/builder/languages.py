"""Languages that target Weft: which suffix of a file is whose, and what a file of it becomes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, Protocol, runtime_checkable

from weft.errors import UnsupportedError
from weft.lang.builder.programs import BuiltFunction, BuiltLaunch

__all__ = ["Language", "Unit", "language_of", "register"]

GROUP: Final = "weft.languages"  # of entry points: a suffix such as ".img", and a language


@runtime_checkable
class Unit(Protocol):
    """One translated file.

    Attributes
    ----------
    programs : sequence of (BuiltFunction or BuiltLaunch)
        What the file has become, in the order in which it runs: functions, and kernels with the
        shape of their launch (``k[grid, block]``).
    """

    programs: Sequence[BuiltFunction | BuiltLaunch]

    def run(self, arguments: Sequence[str]) -> None:
        """Run the file with the arguments of the command line."""
        ...

    def explain(self) -> str:
        """Return what each program does, and which lines of the file are in it."""
        ...


class Language(Protocol):
    """A front end: it reads a file of its language."""

    def __call__(self, path: Path) -> Unit:
        """Translate a file.

        Raises
        ------
        KernelError
            With everything that is wrong in it.
        """
        ...


_languages: Final[dict[str, Language]] = {}


def register(suffix: str, language: Language) -> None:
    """Let ``weft compile`` take files with a suffix.

    An installed package does it by an entry point of the group ``weft.languages`` whose name is the
    suffix. What is registered last counts, before entry points.

    Parameters
    ----------
    suffix
        Such as ``.img``.
    language
        Called with the path of a file; returns a `Unit`.
    """
    if not isinstance(suffix, str) or len(suffix) < 2 or suffix[0] != "." or "." in suffix[1:]:
        raise UnsupportedError("register", found=f"the suffix {suffix!r}", expected="such as .img")
    if not callable(language):
        raise UnsupportedError("register", found=repr(language),
                               expected="a function of the path of a file")
    _languages[suffix] = language


def known() -> dict[str, Any]:
    """Return the suffixes that are known: languages, and entry points that are not loaded yet."""
    from importlib.metadata import entry_points

    found: dict[str, Any] = {e.name: e for e in entry_points(group=GROUP)}
    return found | _languages


def language_of(path: str | Path) -> Language:
    """Return the language of a file, by its suffix.

    Raises
    ------
    UnsupportedError
        If no language is registered for it.
    """
    suffix = Path(path).suffix
    found = _languages.get(suffix)
    if found is not None:
        return found
    entry = known().get(suffix)
    if entry is None:
        listed = ", ".join(sorted({".py", *known()}))
        told = f"the suffix {suffix!r}, which no language is registered for" if suffix else (
            "a file without a suffix, which tells its language")
        raise UnsupportedError(f"compile {path}", found=told, expected=listed,
                               hint="if a module registers it, name that: --language MODULE")
    language: Language = entry.load()
    _languages[suffix] = language
    return language
