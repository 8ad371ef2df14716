"""What a device lacks among the primitives of kernels, from the data of its target.

Atomic operations and fences of an order, atomic operations of a type, addresses, clocks and calls:
a kernel that asks for one that is not there is refused before it is launched, with the device, the
primitive and its line. The statements of loop level and the instructions of kernel level are
treated alike, because the line is known of the one, and whether a value is asked for of the other.
"""

from __future__ import annotations

from typing import Final

from weft.errors import UnsupportedError
from weft.ir.dtype import DType
from weft.ir.linear import AddressInst, AtomicInst, CallInst, ClockInst, FenceInst, LinearKernel
from weft.ir.stmt import Address, Atomic, Call, Clock, Fence
from weft.target import Target

__all__ = ["PRIMITIVES", "Primitive", "PrimitiveStmt", "check", "lacking", "refuse"]

PrimitiveStmt = Address | Atomic | Call | Clock | Fence
Primitive = PrimitiveStmt | AddressInst | AtomicInst | CallInst | ClockInst | FenceInst
PRIMITIVES: Final = (Address, Atomic, Call, Clock, Fence)
# The types, by their kinds, that an atomic operation has; exchanges have all.
_TYPES: Final = {"add": "iuf", "sub": "iuf", "and": "biu", "or": "biu", "xor": "biu",
                 "min": "iuf", "max": "iuf", "nanmin": "f", "nanmax": "f",
                 "inc": "iu", "dec": "iu"}  # fmt: skip
_INSTRUCTIONS: Final = (AddressInst, AtomicInst, CallInst, ClockInst, FenceInst)
_BY_HALVES: Final = ("add", "sub", "and", "or", "xor")


def refuse(target: Target, s: Primitive, asked: bool = False,
           where: tuple[str, int] | None = None) -> None:  # fmt: skip
    """Refuse a primitive that a target lacks.

    Parameters
    ----------
    target : Target
        The device.
    s : statement or instruction
        The primitive.
    asked : bool
        Whether something asks for the value that an atomic operation found.
    where : (str, int), optional
        File and line of the statement.

    Raises
    ------
    UnsupportedError
        If the target lacks it, with the line `where`.
    """
    if missing := lacking(target, s, asked):
        error = UnsupportedError(target.name, found=missing[0], expected=missing[1], where=where)
        error.line = where
        raise error


def check(target: Target, kernel: LinearKernel) -> None:
    """Refuse a kernel with a primitive that a target lacks, whoever asks for values.

    Raises
    ------
    UnsupportedError
        If there is one.
    """
    for inst in kernel.code:
        if isinstance(inst, _INSTRUCTIONS):
            refuse(target, inst)


def lacking(target: Target, s: Primitive, asked: bool = False) -> tuple[str, str] | None:
    """Return what a primitive asks of a target that lacks it, and what there is; else None."""
    if isinstance(s, Call | CallInst):
        return None if target.calls else (f"a call of the function {s.callee}",
                                          "kernels that call no functions of this process")
    if isinstance(s, Clock | ClockInst):
        return None if target.clocks else ("a clock in a kernel",
                                           "a device whose kernels have a clock, such as cpu")
    if isinstance(s, Address | AddressInst):
        scope = s.memory.scope
        return None if scope in target.addresses else (
            f"the address of the array {s.memory.name} in {scope} memory",
            f"addresses of {' or '.join(target.addresses) or 'no'} memory")
    # The order of one thread is that of its text.
    if s.scope != "thread" and s.order not in target.orders:
        what = "a fence" if isinstance(s, Fence | FenceInst) else f"atomic {s.kind}"
        return (f"{what} of order {s.order} and scope {s.scope}",
                f"{' or '.join(target.orders)} atomic operations, and barriers")
    if isinstance(s, Fence | FenceInst):
        return None
    expected = _of_type(target, s.kind, s.memory.dtype, s.memory.scope, asked)
    return (f"atomic {s.kind} of {s.memory.dtype.name}", expected) if expected else None


def _of_type(target: Target, kind: str, d: DType, scope: str, asked: bool) -> str:
    """Return what there is instead of an atomic operation on a type, empty if it is there."""
    if d.kind not in _TYPES.get(kind, d.kind):
        return "an atomic operation that the type has"
    if d.bits < 64 or scope in target.wide_atomics:
        return ""
    if not target.halved_atomics or scope not in ("global", "shared"):
        return "atomic operations of at most 32 bits"
    if d.kind in "iu" and kind in _BY_HALVES and not asked:
        return ""
    return ("atomic operations of at most 32 bits, or sums and bits of 64 of which nobody asks "
            "what was there before")
