"""Control flow that all items of a group take alike, so that compilers can prove it.

Browsers refuse a barrier in control flow that depends on a value which might differ between items:
every value that is read from memory. What barriers stand in, or behind a return, is computed by all
items alike; here the value of the first item goes through a variable of the group, and what comes
out of ``workgroupUniformLoad`` is known to be the same for all.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from weft.ir import dtype as dt
from weft.ir import linear as li
from weft.ir.linear import Inst, Value
from weft.ir.op import Op
from weft.renderers.cstyle.text import Text, atom
from weft.renderers.cstyle.wgsl.context import WGSLWords
from weft.renderers.cstyle.wgsl.operations import is_wide

__all__ = ["divergent", "shared_value", "shared_word"]

_CELL: Final = "weft_alike"
_UNIFORM: Final = (li.GROUP_ID, li.NUM_GROUPS, li.LOCAL_SIZE)
_BEGINS: Final = (li.Loop, li.IfBegin, li.WhileBegin)
_ENDS: Final = (li.EndLoop, li.EndIf, li.EndWhile)


def divergent(code: Sequence[Inst]) -> dict[int, list[Value]]:
    """Return what control flow around barriers depends on and no compiler knows to be uniform.

    By the identity of the instruction: a loop, a branch, the test of a while loop, or an assertion
    that stops. Empty if there is no barrier.
    """
    if not any(isinstance(inst, li.BarrierInst) for inst in code):
        return {}
    around = _around(code)
    uniform: set[int] = set()
    found: dict[int, list[Value]] = {}
    for inst in code:
        operands = list(inst.operands())
        known = all(v.id in uniform for v in operands)
        if isinstance(inst, li.VariableInst) or (
                isinstance(inst, li.Compute) and (inst.op is Op.CONST or known)) or (
                isinstance(inst, li.SpecialInst) and inst.register in _UNIFORM):
            uniform.update(v.id for v in inst.results())
        elif isinstance(inst, li.Loop) and (known or id(inst) in around):
            uniform.add(inst.var.id)
        if id(inst) in around and not known:
            used = [inst.condition] if isinstance(inst, li.AssertInst) else operands
            found[id(inst)] = [v for v in used if v.id not in uniform]
    return {key: values for key, values in found.items() if values}


def _around(code: Sequence[Inst]) -> set[int]:
    """Return the control flow that barriers, or ends of the kernel, stand in, and these ends."""
    found: set[int] = set()
    open_: list[list[Inst]] = []
    for inst in code:
        if isinstance(inst, _BEGINS):
            open_.append([inst])
        elif isinstance(inst, li.WhileTest):
            open_[-1].append(inst)
        elif isinstance(inst, _ENDS):
            open_.pop()
        stops = isinstance(inst, li.AssertInst) and inst.stops
        if stops:
            found.add(id(inst))
        if stops or isinstance(inst, li.BarrierInst):
            found.update(id(part) for parts in open_ for part in parts)
    return found


def shared_word(w: WGSLWords, words: str) -> str:
    """Return the name of the first item's two words, as all items know them."""
    w.helper(_CELL, lambda: f"var<workgroup> {_CELL}: vec2<u32>;")
    w.emit(f"if (local_id == 0u) {{ {_CELL} = {words}; }}")
    return w.hoisted(atom(f"workgroupUniformLoad(&{_CELL})"), dt.uint64)


def shared_value(w: WGSLWords, text: Text, value: Value) -> Text:
    """Return the first item's value, as all items know it."""
    d = value.dtype
    if is_wide(d):
        return atom(shared_word(w, text.text))
    word = f"select(0u, 1u, {text.text})" if d.is_bool else f"bitcast<u32>({text.text})"
    name = shared_word(w, f"vec2<u32>({word}, 0u)")
    return atom(f"({name}.x != 0u)" if d.is_bool else f"bitcast<{w.type(d)}>({name}.x)")
