"""Reading machine code: lengths and kinds of instructions, and what an object reaches."""

import platform
import re
import shutil
import subprocess

import pytest

from weft.compilers.llvm import LLVMCompiler, compiler
from weft.compilers.machine_code import decode_x86, reach
from weft.errors import UnsupportedError

# instruction, its bytes, and its kind (Intel SDM volume 2; checked against GNU objdump)
X86 = [
    ("nop", "90", "plain"), ("ret", "c3", "plain"), ("push rbp", "55", "plain"),
    ("mov rax, imm64", "48 b8 0f 05 0f 05 0f 05 0f 05", "plain"),
    ("mov eax, imm32", "b8 0f 05 00 00", "plain"), ("mov ax, imm16", "66 b8 0f 05", "plain"),
    ("mov word [rdi], imm16", "66 c7 07 0f 05", "plain"),
    ("mov qword [rdi+8], imm32", "48 c7 47 08 0f 05 00 00", "plain"),
    ("lea rax, [rip+disp]", "48 8d 05 0f 05 00 00", "plain"),
    ("mov eax, [disp32]", "8b 04 25 0f 05 00 00", "plain"),
    ("mov eax, [rsp+8]", "8b 44 24 08", "plain"), ("mov eax, [r13]", "41 8b 45 00", "plain"),
    ("mov eax, [rax*4+disp]", "8b 04 85 0f 05 00 00", "plain"),
    ("movabs al, [moffs]", "a0 01 02 03 04 05 06 07 08", "plain"),
    ("test byte [rdi], imm", "f6 07 05", "plain"), ("not byte [rdi]", "f6 17", "plain"),
    ("test dword [rdi], imm", "f7 07 0f 05 00 00", "plain"), ("neg rax", "48 f7 d8", "plain"),
    ("lock cmpxchg", "f0 0f b1 17", "plain"), ("imul imm8", "6b c0 05", "plain"),
    ("imul imm32", "69 c0 0f 05 00 00", "plain"), ("shl imm8", "c1 e0 05", "plain"),
    ("prefetcht0", "0f 18 0f", "plain"), ("shufps", "0f c6 c1 05", "plain"),
    ("pshufd", "66 0f 70 c1 05", "plain"), ("roundsd", "66 0f 3a 0b c1 05", "plain"),
    ("pshufb", "66 0f 38 00 c1", "plain"), ("bt imm8", "0f ba e0 05", "plain"),
    ("cpuid", "0f a2", "plain"), ("bswap", "0f c8", "plain"), ("ud2", "0f 0b", "plain"),
    ("vzeroupper", "c5 f8 77", "plain"), ("vaddsd", "c5 fb 58 c1", "plain"),
    ("vpermq imm8", "c4 e3 fd 00 c1 05", "plain"), ("vfmadd", "c4 e2 f1 b8 c2", "plain"),
    ("vpslldq imm8", "c5 f1 73 f9 05", "plain"),
    ("vmovsd [rdi+rax*8]", "c5 fb 10 04 c7", "plain"),
    ("vaddpd zmm disp8", "62 f1 fd 48 58 47 05", "plain"),
    ("vcmppd k imm8", "62 f1 fd 48 c2 c1 05", "plain"),
    ("vrndscale imm8", "62 f3 fd 48 09 c1 05", "plain"),
    ("nopw cs:", "66 2e 0f 1f 84 00 00 00 00 00", "plain"),
    ("call rel32", "e8 00 00 00 00", "call"), ("jmp rel32", "e9 00 00 00 00", "jump"),
    ("jmp rel8", "eb 05", "jump"), ("je rel8", "74 05", "jump"),
    ("je rel32", "0f 84 00 00 00 00", "jump"), ("loop", "e2 05", "jump"),
    ("call rax", "ff d0", "computed"), ("call [rip+disp]", "ff 15 00 00 00 00", "computed"),
    ("jmp [rax*8]", "ff 24 c5 00 00 00 00", "computed"), ("far call", "ff 1f", "computed"),
    ("inc eax", "ff c0", "plain"), ("push [rax]", "ff 30", "plain"),
    ("syscall", "0f 05", "system"), ("sysenter", "0f 34", "system"), ("int 80", "cd 80", "system"),
    ("sysret", "0f 07", "system"), ("icebp", "f1", "system"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "code", "kind"), X86, ids=[row[0] for row in X86])
def test_an_instruction_of_x86(name, code, kind):
    data = bytes.fromhex(code)
    (found,) = decode_x86(data)
    assert (found.start, found.end, found.kind) == (0, len(data), kind)
    with pytest.raises(UnsupportedError):
        decode_x86(data[:-1] or b"\x06")
    assert [i.end - i.start for i in decode_x86(data + b"\x90" + data)] == [
        len(data), 1, len(data)]  # fmt: skip


def test_a_system_call_hides_in_no_operand():
    """The bytes of one inside a number are none; those of one behind a number are."""
    hidden, open_ = bytes.fromhex("b80f050000"), bytes.fromhex("b8000000000f05")
    assert [i.kind for i in decode_x86(hidden)] == ["plain"]
    assert [i.kind for i in decode_x86(open_)] == ["plain", "system"]


@pytest.mark.parametrize("code", ["06", "62 f7 fd 48 58 c1", "0f 04", "8f e8 78 80 00", "ea"])
def test_what_is_no_instruction(code):
    with pytest.raises(UnsupportedError, match="x86-64"):
        decode_x86(bytes.fromhex(code))


SOURCE = """
declare i32 @printf(ptr, ...)
declare ptr @malloc(i64)
@text = private constant [3 x i8] c"hi\\00"
define i32 @plain(i32 %x) { %y = add i32 %x, 1321
  ret i32 %y }
define internal i32 @inner(i32 %x) noinline { %r = call i32 (ptr, ...) @printf(ptr @text, i32 %x)
  ret i32 %r }
define i32 @outer(i32 %x) { %a = call i32 @inner(i32 %x)
  %b = add i32 %a, 1
  ret i32 %b }
define ptr @tail(i64 %n) { %p = tail call ptr @malloc(i64 %n)
  ret ptr %p }
define i32 @through(ptr %f) { %r = call i32 %f(i32 1)
  %s = add i32 %r, 1
  ret i32 %s }
"""


@pytest.mark.parametrize("triple", ["x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu"])
@pytest.mark.parametrize("pipeline", ["none", "O2"])
def test_what_an_object_reaches(triple, pipeline):
    found = reach(LLVMCompiler(triple, cpu="").compile(SOURCE, pipeline))
    assert set(found.calls) == {"plain", "inner", "outer", "tail", "through"}
    assert not found.system
    assert set(found.chains("plain")) == {"plain"}
    assert found.chains("outer")["printf"] == ("outer", "inner", "printf")
    assert found.chains("tail")["malloc"] == ("tail", "malloc")
    assert found.chains("through")[""] == ("through", "")
    assert all(size > 0 for size in found.sizes.values())


def test_system_calls_in_an_object():
    """A constant is placed in the code: the compiler makes no such instruction by itself."""
    if platform.machine() not in ("x86_64", "AMD64"):
        image, mark = compiler().compile("define i32 @f() { ret i32 77 }", "O2"), None
        assert not reach(image).system
        return
    image = compiler().compile("define i32 @f() { ret i32 1321 }", "O2")
    place = image.index(bytes.fromhex("b829050000c3"))  # mov eax, 1321; ret
    mark = bytes.fromhex("0f0590909090")
    changed = image[:place] + mark + image[place + len(mark) :]
    assert not reach(image).system
    assert list(reach(changed).system) == ["f"]
    jump = bytes.fromhex("eb039090900f")  # into the middle of what follows
    with pytest.raises(UnsupportedError):
        reach(image[:place] + jump + image[place + len(jump) :])


def test_what_is_no_object():
    for image in (b"", b"MZ" + bytes(100), b"\x7fELF\x01\x01" + bytes(100)):
        with pytest.raises(UnsupportedError, match="ELF"):
            reach(image)
    with pytest.raises(UnsupportedError, match="machine"):
        reach(LLVMCompiler("riscv64-unknown-linux-gnu", cpu="").compile(SOURCE))


def test_lengths_against_another_disassembler(tmp_path):
    """Everything that our own kernels' code has, if there is something to compare it with."""
    objdump = shutil.which("objdump")
    body = "\n".join(f"""
define <{n} x {t}> @f_{t}_{n}(<{n} x {t}> %a, <{n} x {t}> %b, ptr %p) {{
  %x = load <{n} x {t}>, ptr %p
  %c = {op}add <{n} x {t}> %a, %x
  %d = {op}mul <{n} x {t}> %c, %b
  %s = shufflevector <{n} x {t}> %d, <{n} x {t}> %a, <{n} x i32> <{
    ', '.join(f'i32 {(5 * k) % (2 * n)}' for k in range(n))}>
  store <{n} x {t}> %s, ptr %p
  ret <{n} x {t}> %s
}}""" for t, op in (("double", "f"), ("float", "f"), ("i8", ""), ("i16", ""), ("i32", ""),
                    ("i64", "")) for n in (1, 2, 4, 8, 16))
    lengths = []
    for features in ("", "+avx,+avx2,+fma", "+avx512f,+avx512bw,+avx512vl,+avx512dq,+avx512vbmi"):
        made = LLVMCompiler("x86_64-unknown-linux-gnu", "", features)
        image = made.compile(body, "O2")
        found = reach(image)
        assert len(found.calls) == 30
        file = tmp_path / "code.o"
        file.write_bytes(image)
        if objdump is None:
            continue
        shown = subprocess.run([objdump, "-d", "--no-show-raw-insn", str(file)], text=True,
                               capture_output=True, check=False).stdout
        if "file format elf64-x86-64" not in shown:
            continue
        starts = [int(at, 16) for at in re.findall(r"^ +([0-9a-f]+):\t", shown, re.MULTILINE)]
        size = max(starts) + 64
        place = image.index(b"\x7fELF") + 64
        code = image[place : place + size]
        ours = []
        while not ours or ours[-1] < starts[-1]:
            ours = [i.start for i in decode_x86(code[: starts[-1]])] + [starts[-1]]
        assert ours == starts
        lengths.append(len(starts))
    assert objdump is None or len(lengths) in (0, 3)
