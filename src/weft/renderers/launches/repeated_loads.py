"""Loads of what was just loaded or stored: a name for it instead.

Loops that are written out read an operand of a tile once for each result that it belongs to. Where
no control flow, no barrier, no atomic operation and no store to the same place stand in between, an
array of the kernel still holds what was read from it or written to it. Compilers of drivers hardly
ever find that out of memory that work-items share.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from weft.ir import linear as li
from weft.ir.linear import Inst, Value
from weft.renderers.launches.sums import Sums

__all__ = ["without_repeated_loads"]

_FORGETS = (*li.OPENERS, *li.MIDDLES, *li.CLOSERS, li.BarrierInst, li.FenceInst, li.AtomicInst,
            li.CallInst)  # fmt: skip

Terms = frozenset[tuple[Value, int]]


def without_repeated_loads(code: Sequence[Inst], others: Iterable[str]) -> tuple[Inst, ...]:
    """Return code without loads whose values have names.

    Parameters
    ----------
    code : sequence of Inst
        A phase.
    others : iterable of str
        Arrays that are left alone: memory of the device, which may overlap.
    """
    sums, known = Sums(code), dict[str, tuple[Terms, dict[int, Value]]]()
    named: dict[int, Value] = {}
    left = set(others)
    for inst in code:
        if isinstance(inst, li.StorageInst) and inst.base is not None:
            left |= {inst.memory.name, inst.base.name}
    out: list[Inst] = []
    for inst in code:
        if named:
            inst = _renamed(inst, named)
        if isinstance(inst, _FORGETS):
            known.clear()
        elif isinstance(inst, li.StorageInst):
            known.pop(inst.memory.name, None)
        elif isinstance(inst, li.LoadInst | li.StoreInst) and inst.memory.name not in left:
            value = inst.result if isinstance(inst, li.LoadInst) else inst.value
            found, place = sums.of(inst.offset)
            terms = frozenset(found.items())
            held_terms, held = known.get(inst.memory.name, (terms, {}))
            if inst.mask is not None or value.lanes > 1:
                if isinstance(inst, li.StoreInst):
                    known.pop(inst.memory.name, None)
            elif isinstance(inst, li.StoreInst) or held_terms != terms:
                held = held if held_terms == terms else {}
                known[inst.memory.name] = terms, {**held, place: value}
            elif place in held:
                named[value.id] = held[place]
                continue
            else:
                known[inst.memory.name] = terms, {**held, place: value}
        out.append(inst)
    return tuple(out)


def _renamed(inst: Inst, named: dict[int, Value]) -> Inst:
    """Return an instruction that uses values by other names."""
    if not any(v.id in named for v in inst.operands()):
        return inst
    changes = {}
    for field in inst._uses:
        item = getattr(inst, field)
        if type(item) is tuple:
            changes[field] = tuple([named.get(v.id, v) for v in item])
        elif item is not None:
            changes[field] = named.get(item.id, item)
    return inst.replace(**changes)
