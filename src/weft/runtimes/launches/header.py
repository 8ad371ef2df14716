"""The line that describes an image: what a driver has to know to launch a kernel.

An image begins with ``// weft`` and a JSON object on one line; text or machine code follows. It
names the entries in the order in which a launch runs them, each with its number of work-groups (0
where that is not known) and of work-items in each; bytes of scratch memory that are shared, and
those of each work-item; whether a launch may fail; options of the driver's compiler; lines that it
prints, and room for their values behind the status record.
"""

from __future__ import annotations

import json
from collections.abc import Set as AbstractSet
from typing import Final, NamedTuple

from weft.errors import CompileError
from weft.runtimes.launches.printing import Lines, lines_of

__all__ = ["Entry", "Header", "header_of"]

_MARK: Final = b"// weft "


class Entry(NamedTuple):
    """One launch of a kernel: its function, work-groups (0: any number), work-items of each."""

    name: str
    groups: int
    items: int = 1


class Header(NamedTuple):
    """What the first line of an image says."""

    entries: tuple[Entry, ...]
    shared: int
    own: int
    fails: bool
    options: tuple[str, ...] = ()
    lines: Lines = ()
    room: int = 0


def header_of(name: str, image: bytes, forbidden: AbstractSet[str] = frozenset()
              ) -> tuple[bytes, Header]:  # fmt: skip
    """Return the body of an image, and what its first line says.

    Parameters
    ----------
    name : str
        The kernel, for errors.
    image : bytes
        The image.
    forbidden : set of str
        Options that would change what a kernel computes.

    Raises
    ------
    CompileError
        If it says anything else than it should.
    """
    line, _, body = image.partition(b"\n")
    try:
        if not line.startswith(_MARK):
            raise ValueError(f"the first line is {line[:80]!r}")
        said = json.loads(line.removeprefix(_MARK).decode())
        entries = [Entry(e["name"], e["groups"], e.get("items", 1)) for e in said["entries"]]
        header = Header(tuple(entries), said["shared"], said["own"], said["fails"],
                        tuple(said.get("options", ())), lines_of(said.get("prints", ())),
                        said.get("room", 0))  # fmt: skip
        if not _is_sound(header, forbidden):
            raise ValueError(f"the first line says {line[:200]!r}")
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise CompileError(name, found=f"an image of which {error}",
                           expected="code behind a line that describes it") from error
    return body, header


def _is_sound(header: Header, forbidden: AbstractSet[str]) -> bool:
    counts = [header.shared, header.own, header.room, *(e.groups for e in header.entries)]
    return (bool(header.entries) and all(isinstance(e.name, str) for e in header.entries)
            and all(type(n) is int and n >= 0 for n in counts) and type(header.fails) is bool
            and all(type(e.items) is int and e.items > 0 for e in header.entries)
            and all(isinstance(o, str) and o not in forbidden for o in header.options))
