"""Large arrays that begin at the same place of a page, in launches that are joined."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Final

from weft.ir.stmt import SERIAL, For, Memory, While
from weft.ir.traverse import stores, walk
from weft.schedule.launch_fusion.launches import Group, Part

__all__ = ["LARGE", "PAGE", "crowded", "with_barriers"]

LARGE: Final = 4 << 20  # bytes of an array that no cache near a core holds beside others
PAGE: Final = 4096  # bytes by which processors compare addresses at first
_STREAMS: Final = 3  # large arrays that a thread writes
_NEAR: Final = 64  # bytes of a vector


def crowded(spans: Iterable[tuple[int, int]]) -> bool:
    """Return whether several large arrays begin near the same place of a page."""
    places = [address % PAGE for address, nbytes in spans if nbytes >= LARGE]
    return any(sum((q - p) % PAGE <= _NEAR for q in places) > _STREAMS for p in places)


def with_barriers(made: Group, spare: Collection[Memory], parts: Sequence[Part]) -> Group:
    """Return a group whose blocks write one large array after the other, where that is faster.

    Most large arrays begin at the same place of a page. A processor that writes to several such
    in turn holds reads back that are as far into a page, as if they read what it has just written.
    Where some arrays are not kept, or threads loop, values stay in registers all the same.
    """
    spans = {parts[part].arrays[k][:2] for part, k in made.arrays.values()}
    if spare or not crowded(spans):
        return made
    sizes = {m: parts[part].arrays[k].nbytes for m, (part, k) in made.arrays.items()}
    written = [{m for m in stores(kernel.body) if sizes.get(m, 0) >= LARGE}
               for kernel in made.kernels]
    loops = any(isinstance(s, While) or (isinstance(s, For) and s.kind == SERIAL)
                for kernel in made.kernels for s in walk(kernel.body))
    if loops or len(set[Memory]().union(*written)) < _STREAMS:
        return made
    barriers, busy = set(made.barriers), False
    for number, several in zip(made.parts, written, strict=True):
        if busy and several:
            barriers.add(number)
        busy |= bool(several)
    return made.replace(barriers=frozenset(barriers))
