"""Memory orders and scopes in each language: litmus programs, and the table of the document."""

import re
from pathlib import Path

import pytest
from spirv.spirv_kernels import checked, source, tool
from test_opencl_phases import TARGET

from litmus import PROGRAMS, allowed, linear, numbered
from weft.errors import UnsupportedError
from weft.ir.stmt import FENCE_ORDERS, ORDERS, THREAD_SCOPES
from weft.ir.text.text_linear import print_linear
from weft.ir.text.text_parse_linear import parse_linear
from weft.renderers import base
from weft.renderers.cstyle.c import atomic as c
from weft.renderers.cstyle.c.renderer import CRenderer
from weft.renderers.cstyle.opencl.renderer import OpenCLRenderer
from weft.renderers.cstyle.wgsl import memory as wgsl
from weft.renderers.cstyle.wgsl.renderer import WGSLRenderer
from weft.renderers.cstyle.wgsl.target import webgpu_target
from weft.renderers.llvm import llvm_atomic as llvm
from weft.renderers.llvm.llvm import LLVMRenderer
from weft.renderers.spirv import atomic as spirv
from weft.target import Target

PAGE = Path(__file__).parents[2] / "docs" / "design" / "memory_model.md"
HOST = Target("cpu", "x86_64")
SEEN = re.compile(r"fence|FENCE\(__|atomicrmw|atomic_(add|exch)_i32\(|OpAtomic|OpMemoryBarrier"
                  r"|__atomic_\w+\(|OpFunctionCall|atomic(Add|Exchange)\(&")  # fmt: skip
LANGUAGES = {
    "kernel level": lambda k: print_linear(k),
    "llvm": lambda k: LLVMRenderer(HOST).render(k).text,
    "c": lambda k: CRenderer(HOST).render(k).text,
    "opencl": lambda k: OpenCLRenderer(TARGET).render(k).text,
    "spirv": lambda k: tool("spirv-dis", "--no-header", "-",
                            given=checked(source(k))).stdout.decode(),
    "wgsl": lambda k: WGSLRenderer(webgpu_target()).render(k).text,
}  # fmt: skip


def relevant(text):
    """Return the lines of a text that order memory, or access it atomically."""
    return [line.strip() for line in text.splitlines()
            if (SEEN.search(line) or " atomic " in line) and "#define" not in line]  # fmt: skip


@pytest.mark.requires("spirv-tools")
@pytest.mark.parametrize("language", LANGUAGES)
def test_litmus_programs_in_each_language(language, golden):
    lines = []
    for name, program in PROGRAMS.items():
        for scope in ("block", "device"):
            for k, thread in enumerate(numbered(program)):
                lines.append(f"# {name}, scope {scope}, thread {k}")
                try:
                    text = LANGUAGES[language](linear(program, thread, scope))
                except UnsupportedError as error:
                    lines.append(error.message)
                else:
                    lines += relevant(text)
    golden(f"litmus_{language.partition(' ')[0]}.txt", "\n".join(lines) + "\n")


@pytest.mark.parametrize("name", PROGRAMS)
def test_litmus_programs_as_text_and_in_the_interpreter(name):
    program = PROGRAMS[name]
    assert program.forbidden not in allowed(program)
    assert len(allowed(program)) > 2
    for thread in numbered(program):
        text = print_linear(linear(program, thread, "warp"))
        assert print_linear(parse_linear(text)) == text


def table():
    """Return the table of the document, from those of the renderers."""
    rows = [("order or scope", "LLVM", "C", "OpenCL C", "SPIR-V", "WGSL")]
    for order in ORDERS:
        before, after = base.FENCES_AROUND[order]
        built = ", ".join(filter(None, (before, "operation", after)))
        rows.append((f"atomic {order}", f"`{llvm.ATOMIC}`", f"`{c.ATOMIC}`", built, built,
                     "`atomic…`" if order in wgsl.ORDERS else "–"))
    for order in FENCE_ORDERS:
        item = " twice, around an `OpAtomicIAdd`" if order == "seq_cst" else ""
        rows.append((f"fence {order}", f"`fence {llvm.FENCES[order]}`", f"`{c.FENCES[order]}`",
                     f"`{c.FENCES[order]}`", f"`OpMemoryBarrier {spirv.ORDERS[order]:#x}`{item}",
                     "`" + order + "`" if order in wgsl.ORDERS else "–"))
    for scope in THREAD_SCOPES:
        rows.append((f"scope {scope}", f"`{llvm.SCOPES[scope].strip() or 'system'}`",
                     f"`{c.SCOPES[scope]}`",
                     "no fence" if scope == "thread" else f"`{c.SCOPES[scope]}`",
                     f"{spirv.SCOPES[scope]}", "no fence" if scope == "thread" else "–"))
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join([lines[0], "|---" * len(rows[0]) + "|", *lines[1:]])


def test_the_document_has_the_tables_of_the_renderers():
    assert table() in PAGE.read_text("utf-8"), table()
