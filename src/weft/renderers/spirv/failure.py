"""What kernels tell the host: the first failure of a launch, and what they print.

The status record is that of kernels in OpenCL C: ``i32 code, kernel_number, statement, pad; i64
index, bound``; behind it are a count of printed words and the words.
"""

from __future__ import annotations

from typing import Final

from weft.errors import UnsupportedError
from weft.ir import dtype as dt
from weft.ir import linear as li
from weft.renderers.spirv import opcodes as spv
from weft.renderers.spirv.conversions import widened
from weft.renderers.spirv.function import Function, Term
from weft.renderers.spirv.memory import at, read, write
from weft.renderers.spirv.values import Values, is_narrow

__all__ = ["PRINTED", "fail", "failed", "print_line"]

PRINTED: Final = 1 << 16  # words of 64 bits that a launch can print
_RECORD: Final = 32  # bytes
_WORDS: Final = _RECORD + 8


def failed(f: Function, status: Term) -> Term:
    """Return whether a launch has failed already."""
    return read(f, status, "u32").ne(0)


def fail(v: Values, status: Term, message: int, index: Term, bound: Term) -> None:
    """Write the failure of an assertion, unless another one was first."""
    f = v.f
    callee = v.module.function("weft_fail", "void", ("u64", "u32", "u64", "u64"), _fail)
    f.call(callee, status, f.const("u32", message), index, bound)


def _fail(f: Function, status: Term, message: Term, index: Term, bound: Term) -> None:
    scope, relaxed = f.const("u32", spv.SCOPE_DEVICE).id, f.const("u32", 0).id
    found = f.emit(spv.ATOMIC_COMPARE_EXCHANGE, "u32", at(f, status, "u32"), scope, relaxed,
                   relaxed, (message + 1).id, f.const("u32", 0).id)

    def first() -> None:
        write(f, status + 8, message)
        write(f, status + 16, index)
        write(f, status + 24, bound)

    f.when(found.eq(0), first)


def print_line(v: Values, status: Term, inst: li.PrintInst, printed: list[tuple[str, list[str]]]
               ) -> None:  # fmt: skip
    """Write a line, as its number and its values, behind the status record.

    Raises
    ------
    UnsupportedError
        For a vector.
    """
    values, dtypes = [], []
    for a in inst.args:
        if a.lanes > 1:
            raise UnsupportedError("print", found=f"a vector of {a.lanes} lanes",
                                   expected="a scalar")
        d, x = a.dtype, v.term(a)
        if is_narrow(d):
            d, x = dt.float32, widened(v, x, d)
        if d.is_bool:
            x = x.choose(v.f.const("u64", 1), 0)
        word = x if d.is_bool else x.bitcast(f"u{x.kind[1:]}")
        values.append(word.extended("u64") if d.kind == "i" else word.to("u64"))
        dtypes.append(d.text)
    line = inst.text
    if not line.endswith("\n"):
        line = " ".join([line, *(["{}"] * len(values))]) + "\n"
    printed.append((line, dtypes))
    number = v.f.const("u64", len(printed) - 1)
    callee = v.module.function(f"weft_print{len(values)}", "void",
                               ("u64",) * (len(values) + 2), _print)  # fmt: skip
    v.f.call(callee, status, number, *values)


def _print(f: Function, status: Term, *words: Term) -> None:
    scope, relaxed = f.const("u32", spv.SCOPE_DEVICE).id, f.const("u32", 0).id
    count = len(words)
    place = f.emit(spv.ATOMIC_I_ADD, "u32", at(f, status + _RECORD, "u32"), scope, relaxed,
                   f.const("u32", count).id)
    address = status + _WORDS + (place.to("u64") << 3)

    def store() -> None:
        for k, word in enumerate(words):
            write(f, address + 8 * k, word)

    def end() -> None:  # of what found room
        write(f, address, f.const("u64", -1))

    is_full = f.const("u32", PRINTED - count).lt(place)
    f.when(~is_full, store)
    f.when(is_full & place.lt(PRINTED), end)
