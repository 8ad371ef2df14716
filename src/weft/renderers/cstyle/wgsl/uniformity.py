"""Control flow that all items of a group take alike, so that compilers can prove it.

Browsers refuse a barrier in control flow that depends on a value which might differ between items:
every value that is read from memory. What barriers stand in, or behind a return, is computed by all
items alike; here the value of the first item goes through a variable of the group, and what comes
out of ``workgroupUniformLoad`` is known to be the same for all.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from weft.ir import linear as li
from weft.ir.linear import Inst, Value
from weft.ir.op import Op
from weft.renderers.cstyle.text import Text, atom
from weft.renderers.cstyle.wgsl.operations import is_wide

if TYPE_CHECKING:
    from weft.renderers.cstyle.wgsl.renderer import WGSLWriter

__all__ = ["CELL", "alike", "divergent"]

CELL: Final = "weft_alike"
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


@contextmanager
def alike(w: WGSLWriter, inst: Inst) -> Iterator[None]:
    """Have an instruction read values of which all items have the same."""
    before: dict[int, Text] = {}
    for value in w.divergent.get(id(inst), ()):
        text = w.operand(value)
        before[value.id] = text
        w.texts[value.id] = shared_value(w, text, value)
    yield
    w.texts.update(before)


def shared_value(w: WGSLWriter, text: Text, value: Value) -> Text:
    """Return the first item's value, as all items know it."""
    d = value.dtype
    w.helper(CELL, lambda: f"var<workgroup> {CELL}: vec2<u32>;")
    if is_wide(d):
        words = text.text
    elif d.is_bool:
        words = f"vec2<u32>(select(0u, 1u, {text.text}), 0u)"
    else:
        words = f"vec2<u32>(bitcast<u32>({text.text}), 0u)"
    w.emit(f"if (local_id == 0u) {{ {CELL} = {words}; }}")
    name = w.names.take("alike")
    w.emit(f"let {name} = workgroupUniformLoad(&{CELL});")
    if is_wide(d):
        return atom(name)
    return atom(f"({name}.x != 0u)" if d.is_bool else f"bitcast<{w.type(d)}>({name}.x)")
