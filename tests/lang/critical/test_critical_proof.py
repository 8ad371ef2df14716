"""What the machine code of critical functions may do: proofs, breaches, sealed children."""

import os
import subprocess
import sys

import pytest

import weft
from weft.compilers.llvm import compiler, host_cpu
from weft.compilers.machine_code import decode_x86
from weft.driver.critical import Contract, violations
from weft.errors import KernelError, LaunchError


def show(x):
    print("value", x)
    return x * 2


def twice_shown(x):
    return show(x) + 1


def test_a_proof_names_what_is_called():
    @weft.critical
    def plus(x: weft.float64) -> weft.float64:
        return x + 1

    text = plus.proof()
    assert text.startswith("plus: ")
    assert text.endswith("calls nothing")


def test_a_breach_tells_the_line_and_the_chain_of_calls():
    def outer(x):
        return twice_shown(x)

    with pytest.raises(KernelError) as caught:
        weft.critical(outer)(1.0)
    (problem,) = caught.value.problems
    assert problem.file == __file__
    assert problem.line == show.__code__.co_firstlineno + 1
    text = str(caught.value)
    assert 'print("value", x)' in text
    assert "printf" in text
    assert "no_syscalls" in text
    first = outer.__code__.co_firstlineno
    chain = (f"outer (line {first}) -> twice_shown (called on line {first + 1}) -> show (called on "
             f"line {twice_shown.__code__.co_firstlineno + 1}) -> print -> printf")
    assert chain in text
    assert len(text.splitlines()) < 10


def test_all_breaches_are_told_at_once():
    def two(x):
        print(x)
        y = x + 1
        print(y)
        return y

    with pytest.raises(KernelError, match="2 errors") as caught:
        weft.critical(two)(1.0)
    assert [p.line - two.__code__.co_firstlineno for p in caught.value.problems] == [1, 3]


@pytest.mark.parametrize(("flags", "allowed"), [
    ({"no_syscalls": False}, False), ({"no_allocation": False}, False),
    ({"no_syscalls": False, "no_allocation": False}, True),
])  # fmt: skip
def test_printing_needs_both_rules_to_be_lifted(flags, allowed):
    function = weft.critical(**flags)(show)
    if allowed:
        assert function.compile(1.0) is function
    else:
        with pytest.raises(KernelError, match="printf"):
            function.compile(1.0)


def test_what_is_printed(tmp_path):
    program = tmp_path / "program.py"
    program.write_text("import weft\n"
                       "@weft.critical(no_syscalls=False, no_allocation=False)\n"
                       "def loud(x, y):\n"
                       "    print('100 % of {x}:', x, 'and', y)\n"
                       "    print('done')\n"
                       "loud(3, 1.5)\n")
    done = subprocess.run([sys.executable, str(program)], capture_output=True, text=True,
                          timeout=120, check=True)
    assert done.stdout == "100 % of {x}: 3 and 1.5\ndone\n"


def test_a_breach_stays_one():
    function = weft.critical(show)
    for _ in range(2):  # also when the code comes from a cache
        with pytest.raises(KernelError, match="printf"):
            function(1.0)


def test_too_much_on_the_stack():
    def large(x):
        a = weft.gpu.local.array(6000, weft.float64)
        b = weft.gpu.local.array((60, 60), weft.float64)
        a[0] = b[0, 0] = x
        return a[0] + b[0, 0]

    with pytest.raises(KernelError, match="local arrays of 76800 bytes") as caught:
        weft.critical(large)(1.0)
    assert caught.value.problems[0].line == large.__code__.co_firstlineno + 2
    assert "large (line" in str(caught.value)


def code_of(text):
    """Return the code of a function with other machine code."""
    @weft.critical
    def f(x: weft.float64) -> weft.float64:
        return x

    made = f.compile()._annotated().code
    return made.replace(core=compiler().compile(text, "O2"))


def vectors(x: weft.float32[::1], y: weft.float32[::1]):
    for i in range(x.size):
        y[i] = x[i] * 2 + y[i]


@pytest.mark.parametrize("level", ["O0", "O3", "Olatency"])
def test_the_latency_level_prefetches_and_aligns_and_vectorises(level):
    import platform
    import struct

    function = weft.critical(level=level, unchecked=True)(vectors)
    image = function._annotated().code.core
    if platform.machine() not in ("x86_64", "AMD64"):
        assert function.proof()
        return
    offset, = struct.unpack_from("<Q", image, 40)
    size, count = struct.unpack_from("<HH", image, 58)
    headers = [struct.unpack_from("<IIQQQQIIQQ", image, offset + k * size) for k in range(count)]
    start, length = next(h[4:6] for h in headers if h[2] & 4 and h[5])
    text = image[start : start + length]
    code = decode_x86(text)
    returns = [i.start for i in code if text[i.start : i.end] == b"\xc3"]
    loops = {(i.target, i.start) for i in code if i.kind == "jump" and i.target <= i.start
             and not any(i.target <= at < i.start for at in returns)}  # else: jumps to the end
    prefetches = sum(text[i.start : i.end].startswith(b"\x0f\x18") for i in code)
    wide = [i for i in code if text[i.start] == 0x62 or (text[i.start] == 0xC5
            and text[i.start + 1] & 4)]  # 64 or 32 bytes
    assert loops
    assert prefetches == (2 if level == "Olatency" else 0)
    assert any(wide) == (level != "O0" and "avx" in host_cpu().enabled)
    if level == "Olatency":
        hot = {head for head, end in loops if any(head <= i.start < end for i in wide)} or {
            head for head, _ in loops}  # the compiler aligns what it adds for remainders by itself
        assert all(head % 32 == 0 for head in hot)


BREACHES = [
    ("declare ptr @malloc(i64)\ndefine i32 @f(i64 %n) { %p = call ptr @malloc(i64 %n)\n"
     " store i8 1, ptr %p\n %q = ptrtoint ptr %p to i32\n ret i32 %q }",
     "malloc allocates memory", {"no_allocation": False}),
    ("define i32 @f(ptr %g) { %r = call i32 %g()\n %s = add i32 %r, 1\n ret i32 %s }",
     "computed address", {"no_allocation": False, "no_syscalls": False}),
    ("define internal i32 @g(i32 %x) noinline { %r = mul i32 %x, %x\n ret i32 %r }\n"
     "define i32 @f(i32 %x) { %r = call i32 @g(i32 %x)\n %s = add i32 %r, 1\n ret i32 %s }",
     "g is not inlined", {"inline_always": False}),
    ("declare i64 @write(i32, ptr, i64)\ndefine i32 @f(ptr %p) {\n"
     " %r = call i64 @write(i32 1, ptr %p, i64 1)\n ret i32 0 }",
     "a call of write", {"no_allocation": False, "no_syscalls": False}),
]


@pytest.mark.parametrize(("text", "message", "lifted"), BREACHES, ids=[b[1] for b in BREACHES])
def test_breaches_in_machine_code(text, message, lifted):
    code = code_of(text)
    (found,) = violations(code, Contract())
    assert message in found[0]
    assert found[1][0] == "f"
    assert violations(code, Contract(**lifted)) == []


def test_calls_that_only_compute_are_allowed():
    text = ("declare ptr @memcpy(ptr, ptr, i64)\ndefine i32 @f(ptr %a, ptr %b, i64 %n) {\n"
            " %r = call ptr @memcpy(ptr %a, ptr %b, i64 %n)\n ret i32 0 }")
    code = code_of(text)
    assert violations(code, Contract()) == []
    assert "memcpy" in code.reach().chains("f")


@pytest.mark.requires("seccomp")
def test_a_million_calls_survive_strict_seccomp():
    @weft.critical
    def step(x: weft.float64[:], by: weft.float64) -> weft.float64:
        total = 0.0
        for i in range(x.size):
            x[i] += by
            total += x[i]
        return total

    import numpy as np

    x = np.zeros(3)
    step.run_sealed(x, 1.0)
    assert not x.any()  # the child has memory of its own

    @weft.critical
    def small(x: weft.int64) -> weft.int64:
        assert x > 0
        return x

    small.run_sealed(1, calls=100)
    with pytest.raises(LaunchError, match="calls that failed"):
        small.run_sealed(0, calls=100)


@pytest.mark.requires("seccomp")
def test_a_system_call_ends_a_sealed_child(tmp_path):
    program = tmp_path / "program.py"
    program.write_text("import weft\n"
                       "@weft.critical(no_syscalls=False, no_allocation=False)\n"
                       "def loud(x: weft.int64) -> weft.int64:\n"
                       "    print(x)\n"
                       "    return x\n"
                       "try:\n"
                       "    loud.run_sealed(1, calls=10)\n"
                       "except weft.WeftError as error:\n"
                       "    print(error)\n")
    # With a buffer, the first text asks the system for memory; without one, it is only written,
    # which even the strict mode allows.
    environ = {k: v for k, v in os.environ.items() if k != "PYTHONUNBUFFERED"}
    done = subprocess.run([sys.executable, str(program)], capture_output=True, text=True,
                          timeout=120, check=False, env=environ)
    assert "killed by SIG" in done.stdout, done.stderr


def test_errors_tell_the_calls_that_are_in_the_source():
    """Nothing calls the function that is compiled."""
    def unknown(a):
        return a + nowhere  # noqa: F821

    @weft.critical
    def calls(a: weft.int64) -> weft.int64:
        b = {}
        return unknown(a) + b

    with pytest.raises(KernelError) as caught:
        calls(3)
    line = calls.__weft_function__.__code__.co_firstlineno
    told = [row.strip() for row in str(caught.value).splitlines() if "called at" in row]
    assert told == [f"called at {__file__}:{line + 3}"]
    assert [len(p.calls) for p in caught.value.problems] == [1, 0]
