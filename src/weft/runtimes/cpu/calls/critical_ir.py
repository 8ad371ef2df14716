"""Critical functions as LLVM IR text: the body of the kernel inside of one C function.

``int32_t NAME(arguments, results, failure *)`` is what is proved, saved and called. Calls from
Python (`weft.runtimes.cpu.calls.critical_call`) are no part of the proof, nor is ``weft_frame(ptr
words, ptr results, ptr failure)``, which takes arguments from 64-bit words and puts results into
words.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from weft.ir import dtype as dt
from weft.ir.dtype import DType

__all__ = [
    "BODY", "FAILURE", "NULL", "Array", "Param", "Scalar", "Struct", "Word", "bare_type", "c_type",
    "core_module", "frame", "is_native", "words_of",
]  # fmt: skip

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
                variables: Sequence[str], *, inline: bool, nulls: bool) -> str:  # fmt: skip
    """Return the module of the function itself.

    Parameters
    ----------
    body
        The module of the kernel, whose symbol is `BODY`.
    name
        Symbol of the function.
    words
        Its parameters.
    nresults
        How many results there are: the kernel's memories behind those of `words`.
    variables
        The kernel's variables, in order.
    inline
        Whether what reports a failure is inlined, too.
    nulls
        Whether it looks at addresses before it uses them, and returns `NULL` for one that is 0.
    """
    body = body.replace(f"define i32 @{BODY}(", f"define internal i32 @{BODY}(", 1)
    body = body.replace(") #0 {", ") alwaysinline #0 {", 1)
    body = body.replace("attributes #0 = { nounwind ",
                        'attributes #0 = { nounwind "no-jump-tables"="true" ', 1)
    if inline:
        body = body.replace("noinline cold optnone }", "alwaysinline cold }", 1)
    by_name = {w.name: k for k, w in enumerate(words)}
    memories = [k for k, w in enumerate(words) if w.memory >= 0]
    addresses = [f"%a{k}" for k in memories] + [f"%r{k}" for k in range(nresults)]
    rows = [f"define i32 @{name}({_head(words, nresults)}) #0 align 64 {{", "entry:",
            f"  %buffers = alloca [{max(len(addresses), 1)} x ptr]",
            f"  %vars = alloca [{max(len(variables), 1)} x i64]", f"  %own = alloca {FAILURE}"]
    if nulls and addresses:
        rows += [f"  %null{k} = icmp eq ptr {a}, null" for k, a in enumerate(addresses)]
        rows.append("  %any0 = or i1 false, %null0")
        rows += [f"  %any{k} = or i1 %any{k - 1}, %null{k}" for k in range(1, len(addresses))]
        rows += [f"  br i1 %any{len(addresses) - 1}, label %absent, label %begin", "absent:",
                 f"  ret i32 {NULL}", "begin:"]
    rows += ["  %silent = icmp eq ptr %failure, null",
             "  %status = select i1 %silent, ptr %own, ptr %failure", "  store i32 0, ptr %status"]
    for k, address in enumerate(addresses):
        rows += [f"  %b{k} = getelementptr ptr, ptr %buffers, i64 {k}",
                 f"  store ptr {address}, ptr %b{k}"]
    for k, variable in enumerate(variables):
        at = by_name[variable]
        rows += _widen(f"%a{at}", words[at].dtype, f"%v{k}")
        rows += [f"  %v{k}.at = getelementptr i64, ptr %vars, i64 {k}",
                 f"  store i64 %v{k}, ptr %v{k}.at"]
    rows += [f"  %code = call i32 @{BODY}(ptr %buffers, ptr %vars, ptr %status)",
             "  ret i32 %code", "}"]
    return body + "\n" + "\n".join(rows) + "\n"


def _widen(value: str, d: DType | None, name: str) -> list[str]:
    """Return the rows that make a variable of 64 bits of an argument."""
    assert d is not None
    kind = bare_type(d)
    if kind == "double":
        return [f"  {name} = bitcast double {value} to i64"]
    if kind == "float":
        return [f"  {name}.b = bitcast float {value} to i32",
                f"  {name} = zext i32 {name}.b to i64"]
    if kind == "i64":
        return [f"  {name} = add i64 {value}, 0"]
    return [f"  {name} = {'sext' if d.kind == 'i' else 'zext'} {kind} {value} to i64"]


def frame(name: str, words: Sequence[Word], nresults: int) -> str:
    """Return the function that takes its arguments from words."""
    rows = ["define i32 @weft_frame(ptr %words, ptr %results, ptr %failure) nounwind {"]
    given = []
    for k, word in enumerate(words):
        rows += [f"  %w{k} = getelementptr i64, ptr %words, i64 {k}",
                 f"  %a{k} = load {bare_type(word.dtype)}, ptr %w{k}"]
        given.append(f"{c_type(word.dtype)} %a{k}")
    for k in range(nresults):
        rows.append(f"  %r{k} = getelementptr i64, ptr %results, i64 {k}")
        given.append(f"ptr %r{k}")
    rows += [f"  %code = call i32 @{name}({', '.join([*given, 'ptr %failure'])})",
             "  ret i32 %code", "}"]
    return "\n".join(rows)
