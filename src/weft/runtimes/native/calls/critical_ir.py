"""Critical functions as LLVM IR: the body of the kernel inside of one C function.

``int32_t NAME(arguments, results, failure *)`` is what is proved, saved and called. Calls from
Python (`weft.runtimes.native.calls.critical_call`) are no part of the proof, nor is
``weft_frame(ptr words, ptr results, ptr failure)``, which takes arguments from 64-bit words and
puts results into words.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Final, NamedTuple

from weft.errors import VerifyError
from weft.ir import dtype as dt
from weft.ir.dtype import DType
from weft.runtimes.native.common.emitter import Module, Value

__all__ = ["BODY", "FAILURE", "NULL", "Array", "Param", "Scalar", "Struct", "Word", "bare_type",
           "c_type", "core_module", "frame", "is_native", "passed", "words_of"]  # fmt: skip

FAILURE: Final = "{ i32, i32, i32, i32, i64, i64 }"  # code, -, check, -, value, bound
NULL: Final = -1  # what the function returns for an address that is 0
BODY: Final = "weft.body"  # symbol of the kernel


class Scalar(NamedTuple):
    """A number; ``exact`` where no annotation allows one of another type to be converted."""

    dtype: DType
    exact: bool = False


class Array(NamedTuple):
    """An array; sizes that are known, None for the others; order ``C`` or ``A``."""

    dtype: DType
    shape: tuple[int | None, ...]
    order: str = "C"
    written: bool = True


class Struct(NamedTuple):
    """A tuple, or an object of a class: ``attributes`` says that its fields are no items."""

    items: tuple[Param, ...]
    names: tuple[str, ...] = ()
    kind: type = tuple
    attributes: bool = False


Param = Scalar | Array | Struct | None


class Word(NamedTuple):
    """One parameter of the C function: a number, or the address of memory `memory`."""

    name: str
    dtype: DType | None
    memory: int = -1


def words_of(params: Mapping[str, Param]) -> list[Word]:
    """Return the parameters of the C function, in order; names are those of the variables."""
    words: list[Word] = []
    count = 0
    stack = list(params.items())[::-1]
    while stack:
        name, param = stack.pop()
        if isinstance(param, Scalar):
            words.append(Word(name, param.dtype))
        elif isinstance(param, Struct):
            names = param.names or tuple(map(str, range(len(param.items))))
            stack.extend((f"{name}.{n}", p) for n, p in reversed(
                list(zip(names, param.items, strict=True))))
        elif isinstance(param, Array):
            words.append(Word(name, None, count))
            count += 1
            words += [Word(f"{name}.{k}", dt.int64) for k, n in enumerate(param.shape)
                      if n is None]
            if param.order != "C":
                words.append(Word(f"{name}.first", dt.int64))
                words += [Word(f"{name}.step{k}", dt.int64) for k in range(len(param.shape))]
                words.append(Word(f"{name}.span", dt.int64))
    return words


def is_native(params: Mapping[str, Param]) -> bool:
    """Whether `weft_call` can take such arguments; Python takes the others apart."""
    stack = list(params.values())
    while stack:
        param = stack.pop()
        if isinstance(param, Struct):
            stack.extend(param.items)
        elif param is None or (isinstance(param, Array) and param.order != "C"):
            return False
        elif isinstance(param, Scalar):
            d = param.dtype
            if (d.is_float and d.bits < 32) or (
                param.exact and d not in (dt.float64, dt.int64, dt.bool_)
            ):
                return False
    return True


def c_type(d: DType | None) -> str:
    """Return the LLVM type and attribute of a parameter."""
    if d is None:
        return "ptr"
    if d.is_float and d.bits > 16:
        return "double" if d.bits == 64 else "float"
    bits = max(d.bits, 8)
    return f"i{bits}" + ("" if bits == 64 else " signext" if d.kind == "i" else " zeroext")


def bare_type(d: DType | None) -> str:
    """Return the type of a value of some dtype, without how it is widened."""
    return c_type(d).partition(" ")[0]


def _head(words: Sequence[Word], nresults: int) -> str:
    parts = [f"{c_type(w.dtype)} %a{k}" for k, w in enumerate(words)]
    parts += [f"ptr noalias %r{k}" for k in range(nresults)]
    return ", ".join([*parts, "ptr %failure"])


def core_module(body: str, name: str, words: Sequence[Word], nresults: int,
                variables: Sequence[str], *, nulls: bool) -> str:  # fmt: skip
    """Return the module of the function itself.

    Parameters
    ----------
    body
        The module of the kernel, whose symbol is `BODY`, rendered to become a part of its caller.
    name
        Symbol of the function.
    words
        Its parameters.
    nresults
        How many results there are: the kernel's memories behind those of `words`.
    variables
        The kernel's variables, in order.
    nulls
        Whether it looks at addresses before it uses them, and returns `NULL` for one that is 0.

    Raises
    ------
    VerifyError
        If the body would stay a function of its own, or has no attributes for its caller.
    """
    for expected in (rf"^define internal i32 @{re.escape(BODY)}\(.*\) alwaysinline #0 ",
                     r"^attributes #0 = .*nounwind"):  # fmt: skip
        if not re.search(expected, body, re.MULTILINE):
            raise VerifyError("critical", found="another text of the kernel", expected=expected)
    m = Module()
    m.include(body, **{BODY: "i32"})
    c = m.define(f"i32 @{name}({_head(words, nresults)}) #0 align 64")
    given, failure = dict(zip([w.name for w in words], c.params, strict=False)), c.params[-1]
    addresses = [a for w, a in zip(words, c.params, strict=False) if w.memory >= 0]
    addresses += c.params[len(words) : -1]
    buffers = c.alloca(f"[{max(len(addresses), 1)} x ptr]")
    values, own = c.alloca(f"[{max(len(variables), 1)} x i64]"), c.alloca(FAILURE)
    if nulls and addresses:
        with c.when(reduce(operator.or_, [address.eq(None) for address in addresses])):
            c.ret(NULL, "i32")
    status = c.select(failure.eq(None), own, failure)
    c.store(status, 0, 0, "i32")
    for k, address in enumerate(addresses):
        c.put(buffers, k, address)
    signed = {w.name: w.dtype is not None and w.dtype.kind == "i" for w in words}
    for k, variable in enumerate(variables):
        c.put(values, k, _widened(given[variable], signed[variable]))
    c.ret(c.call(BODY, buffers, values, status))
    return m.text


def _widened(value: Value, signed: bool) -> Value:
    """Return an argument as a variable of 64 bits."""
    if value.type == "double":
        return value.cast("bitcast", "i64")
    if value.type == "float":
        return value.cast("bitcast", "i32").cast("zext", "i64")
    return value if value.type == "i64" else value.cast("sext" if signed else "zext", "i64")


def frame(m: Module, name: str, words: Sequence[Word], nresults: int) -> None:
    """Write the function that takes its arguments from words."""
    c = m.define("i32 @weft_frame(ptr %words, ptr %results, ptr %failure) nounwind")
    table, results, failure = c.params
    given = [passed(c.word(table, k, bare_type(w.dtype)), w.dtype) for k, w in enumerate(words)]
    places = [c.at(results, k, "i64") for k in range(nresults)]
    c.ret(c.call(name, *given, *places, failure, returns="i32"))


def passed(value: Value, d: DType | None) -> Value:
    """Return a value as an argument, which C widens."""
    return Value(value.code, value.text, c_type(d))
