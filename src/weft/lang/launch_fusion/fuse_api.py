"""``weft.fuse``; what it needs is imported when it is called."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.imports import importing

if TYPE_CHECKING:
    from weft.lang.launch_fusion.fuse_launches import Fusion

__all__ = ["fuse"]


def fuse() -> Fusion:
    """Return a block whose launches run together.

    ::

        with weft.fuse() as f:
            t = f.empty(n, weft.float32)
            scale[blocks, 256](2.0, x, t)
            shift[blocks, 256](1.0, t, y)
        print(f.explain())

    Launches are noted where they stand and run when the block ends, in order. Consecutive ones
    become one kernel where every element that one of them writes is touched in the other one by
    the same thread only (or by threads of the same block, between which a barrier is put), the
    grid and the block are the same, and shared memory and registers suffice; `Fusion.explain` says
    what became of each, and why. Results are those of the launches one by one, to the last bit.

    Inside the block nothing has run yet: its arrays are not to be read or changed there. If the
    block raises an error, nothing runs.
    """
    with importing:
        from weft.lang.launch_fusion.fuse_launches import Fusion

    return Fusion()
