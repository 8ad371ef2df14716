"""LLVM IR text of one kernel: control flow, parallel regions, failures.

``i32 NAME(ptr buffers, ptr vars, ptr status)``: `buffers` points to the address of each parameter,
`vars` to the int64 value of each variable, `status` to ``{i32 code, i32 kernel, i32 statement,
i32 pad, i64 index, i64 bound}``. It returns 0, or the code of a failure: the number of its message
plus 1. The first failed assertion writes code, message number, value and bound; `kernel` is for the
caller to fill.

A parallel loop becomes a function ``void NAME.parK(ptr env, i64 begin, i64 end)`` that the thread
pool calls (`weft_parallel_for`); the values that it needs travel in a block on the stack of the
caller. Private arrays lie on the stack of the function that declares them, so no two threads share
one. Inside a parallel region further parallel loops run serially.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from weft.imports import importing
from weft.ir import linear as li
from weft.ir.dtype import DType
from weft.ir.linear import LinearKernel
from weft.ir.op import Operation
from weft.renderers.base import PLAIN, Source, Style
from weft.renderers.llvm.llvm_failure import FAIL, STOP
from weft.renderers.llvm.llvm_function import Function
from weft.renderers.llvm.llvm_kernel import KernelText, symbol
from weft.renderers.primitives import check
from weft.target import Target

__all__ = ["LLVMRenderer"]


class LLVMRenderer:
    """Writes kernels as LLVM IR for a CPU.

    Parameters
    ----------
    target : Target
        Whose `cpu`, `features` and `vector_bytes` the functions are compiled for.
    """

    def __init__(self, target: Target) -> None:
        self.target = target

    @property
    def device(self) -> str:
        """Name of the device family."""
        return self.target.name

    def render(self, kernel: LinearKernel, name: str | None = None, style: Style = PLAIN
               ) -> Source:  # fmt: skip
        """Return the module of one kernel.

        Raises
        ------
        UnsupportedError
            For what the target lacks, and for private arrays too large for a stack.
        """
        check(self.target, kernel)
        return _module(KernelText(self.target, kernel, name or kernel.name, style))

    def decompositor(self) -> Callable[[Operation, DType], bool]:
        """Return a function that tells which (op, dtype) has to be decomposed beforehand."""
        return lambda op, dtype: not self.target.supports(op, dtype)


def _module(k: KernelText) -> Source:
    main = Function(k, None)
    main.code(0, len(k.kernel.code))
    main.leave("ret i32 0")
    signature = "(ptr noalias %buffers, ptr noalias %vars, ptr %status)"
    style = k.module.style
    linkage, attributes = "", _COLD if _shares_out(k) else "#0"
    if style.inlined:
        linkage, attributes = "internal ", "alwaysinline #0"
    body = main.text(f"define {linkage}i32 {symbol(k.name)}{signature} {attributes} {{")
    parts = [*k.module.constants, body, *k.functions]
    if k.asserts:
        parts.append(FAIL)
    if k.stops:
        parts.append(STOP)
    if k.module.prints:
        with importing:
            from weft.renderers.llvm.llvm_print import NUMBER

        parts.append(NUMBER)
    parts.append("\n".join(k.module.declarations))
    parts.append(f"attributes #0 = {{ {' '.join([_attributes(k.target), *style.attributes])} }}")
    if k.asserts or k.stops:
        inlining = "alwaysinline cold" if style.inlined_failure else "noinline cold optnone"
        parts.append(f"attributes #1 = {{ nounwind {inlining} }}")
    if k.module.prints:
        parts.append("attributes #2 = { nounwind noinline }")
    if attributes == _COLD:
        parts.append(f"attributes {_COLD} = {{ noinline optnone {_attributes(k.target)} }}")
    parts.append("\n".join(k.module.metadata))
    text = "\n\n".join(part for part in parts if part) + "\n"
    return Source("llvm", k.name, text, tuple(k.module.imports))


def _shares_out(k: KernelText) -> bool:
    """Whether the entry function does nothing but share work out: there is nothing to optimise."""
    position, code = 0, k.kernel.code
    while position < len(code):
        inst = code[position]
        if isinstance(inst, li.Loop) and inst.kind == li.PARALLEL:
            position = k.regions[position].end
        elif not isinstance(inst, _TRIFLES):
            return False
        position += 1
    return bool(k.functions) and k.module.hides


def _attributes(t: Target) -> str:
    """Return the attributes of every function of the module."""
    words = ["nounwind"]
    if t.cpu:
        words.append(f'"target-cpu"="{t.cpu}"')
    if t.features:
        words.append(f'"target-features"="{",".join(t.features)}"')
    if t.vector_bytes >= 64:
        # Without it LLVM splits 64-byte vectors on CPUs that once lowered their clock for them.
        words.append(f'"prefer-vector-width"="{t.vector_bytes * 8}"')
    return " ".join(words)


_COLD: Final = "#3"  # attributes of functions that are not worth LLVM's time
_TRIFLES: Final = (li.Compute, li.StorageInst, li.VariableInst)
