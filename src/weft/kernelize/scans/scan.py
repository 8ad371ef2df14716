"""Loop nests of scans: running sums, products, maxima and minima, linear recurrences."""

from __future__ import annotations

from typing import Final

from weft.ir import expr as ex
from weft.ir.node import Node
from weft.ir.stmt import Memory
from weft.kernelize.common.emit import Emitter
from weft.kernelize.common.rows import close_rows, open_rows
from weft.kernelize.common.sizes import elements, upper_bound
from weft.kernelize.scans.running_value import Scan
from weft.kernelize.scans.scan_blocks import Blocks
from weft.kernelize.scans.scan_groups import Groups, tile_of
from weft.kernelize.scans.scan_stretches import Stretches, cut_of
from weft.target import SIMT, Target

LONG: Final = 1 << 13  # elements of a row that is cut into blocks where there are few rows
LONG_SUM: Final = 1 << 15  # the same where one row alone can be scanned in lanes
FEW: Final = 32  # rows, of which each is cut
FEW_SUMS: Final = 4
LONG_LOGARITHM: Final = 128  # a step takes so long that fewer rows than a vector holds are cut


def lower_scan(node: Node, sources: dict[Node, Memory], stored: dict[Node, Memory],
               target: Target | None = None) -> tuple[Emitter, bool]:  # fmt: skip
    """Return the nest of a running sum, product, maximum or minimum, or of a recurrence.

    A register carries the running value: the rows beside each other in memory are lanes of it.
    Few long rows are cut into blocks (`weft.kernelize.scans.scan_blocks`). On devices of threads
    rows are those of groups (`weft.kernelize.scans.scan_groups`), or cut into stretches
    (`weft.kernelize.scans.scan_stretches`), and these loops are to stay as they are: that is
    returned, too.
    """
    axis = node.attr.axis
    em = Emitter(sources, hoist=False)
    scan = Scan(node, em, stored[node], target)
    if target is not None and target.style == SIMT:
        nest = _for_threads(scan, target)
        if nest is not None:
            nest.emit()
            return em, True
    loops, index = open_rows(em, node.shape, axis)
    carry = scan.start(index, "carry")
    is_cut = (target is None or target.style != SIMT) and _is_long(node, scan)
    left = Blocks(scan, index, carry).emit() if is_cut else ex.index(0)
    scan.walk(index, "k", left, scan.extent - left, carry)
    close_rows(em, loops, node.shape, axis)
    return em, False


def _for_threads(scan: Scan, target: Target) -> Stretches | None:
    """Return the nest for a device of threads, None where each thread has a row."""
    tile = tile_of(scan, target)
    if tile is not None:
        return Groups(scan, tile)
    cut = cut_of(scan, target)
    return None if cut is None else Stretches(scan, cut.size, cut.stretches)


def _is_long(node: Node, scan: Scan) -> bool:
    """Whether the rows are so few and long that each is cut into blocks."""
    axis = node.attr.axis
    n = node.shape[axis]
    if not all(isinstance(d, int) for d in node.shape) or elements(node.shape[axis + 1:]) != 1:
        return False
    rows = elements(node.shape) // max(upper_bound(n), 1)
    if scan.is_joined_in_any_order:
        return rows < FEW_SUMS and upper_bound(n) >= LONG_SUM
    if scan.is_logarithm and rows < FEW_SUMS:
        return upper_bound(n) >= LONG_LOGARITHM
    return rows < FEW and upper_bound(n) >= LONG
