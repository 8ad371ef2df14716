"""Private arrays of a C kernel that are variables: those that compilers should keep in registers.

Compilers make registers of arrays, too, but not of all whose elements are read and written as
vectors. Where every access has a constant place and the same length, each place is a variable.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from weft.ir import linear as li
from weft.ir.linear import Inst, Value
from weft.ir.op import Op

__all__ = ["promoted"]

_MOST: Final = 48  # variables of one array
_BYTES: Final = 4 << 10  # of an array that is meant to be in registers


def promoted(code: Sequence[Inst]) -> dict[str, tuple[int, tuple[int, ...]]]:
    """Return the lanes of accesses, and their places, of arrays that are variables; by name."""
    numbers = {i.result.id: int(i.attr) for i in code
               if isinstance(i, li.Compute) and i.op is Op.CONST and i.result.dtype.is_integer}
    found: dict[str, dict[int, None]] = {}
    lanes: dict[str, int] = {}
    others: set[str] = set()
    functions = _functions(code)
    home: dict[str, int] = {}
    for position, inst in enumerate(code):
        if isinstance(inst, li.StorageInst):
            home[inst.memory.name] = functions[position]
            found[inst.memory.name] = {}
            if inst.base is not None:
                others |= {inst.memory.name, inst.base.name}
            if inst.memory.scope == "shared" or inst.size * inst.memory.dtype.itemsize > _BYTES:
                others.add(inst.memory.name)
        elif isinstance(inst, li.AtomicInst | li.AddressInst | li.PrefetchInst):
            others.add(inst.memory.name)
        elif isinstance(inst, li.LoadInst | li.StoreInst):
            name, place = inst.memory.name, numbers.get(inst.offset.id)
            value: Value = inst.result if isinstance(inst, li.LoadInst) else inst.value
            count = lanes.setdefault(name, value.lanes)
            if (place is None or inst.mask is not None or inst.offset.lanes > 1
                    or count != value.lanes or place % count or count & (count - 1)
                    or home.get(name) != functions[position]):
                others.add(name)
            elif name in found:
                found[name][place] = None
    return {name: (lanes[name], tuple(sorted(places))) for name, places in found.items()
            if name not in others and 0 < len(places) <= _MOST}


def _functions(code: Sequence[Inst]) -> list[int]:
    """Return for each instruction the parallel loop, by number, whose body it is in; 0: none."""
    out, opened, inside, count = [], 0, 0, 0
    for inst in code:
        if isinstance(inst, li.OPENERS):
            opened += 1
            if not inside and isinstance(inst, li.Loop) and inst.kind == li.PARALLEL:
                count += 1
                inside = opened
        out.append(count if inside else 0)
        if isinstance(inst, li.CLOSERS):
            if opened == inside:
                inside = 0
            opened -= 1
    return out
