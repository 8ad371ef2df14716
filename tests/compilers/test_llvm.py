"""LLVM through llvmlite: what is refused, what is made, and that it can be called."""

import ctypes
import os
import subprocess
import sys
import threading

import pytest

from weft.compilers import llvm
from weft.errors import CompileError, HandleError

ADD = """
define i64 @add(i64 %a, i64 %b) {
  %c = add i64 %a, %b
  ret i64 %c
}
"""
Binary = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)


@pytest.fixture(scope="module")
def add_object():
    return llvm.compiler().compile(ADD)


@pytest.mark.parametrize("pipeline", ["none", "short", "O1", "O2", "O3"])
def test_every_pipeline_makes_a_working_object(pipeline):
    library = llvm.session().load(llvm.compiler().compile(ADD, pipeline), ["add"])
    assert Binary(library["add"])(40, 2) == 42


def test_compile_is_deterministic(add_object):
    assert llvm.compiler().compile(ADD) == add_object


def test_short_pipeline_promotes_memory_and_folds():
    source = """
    define i32 @f(i32 %x) {
      %slot = alloca i32
      store i32 %x, ptr %slot
      %v = load i32, ptr %slot
      %zero = mul i32 %v, 0
      %w = add i32 %v, %zero
      ret i32 %w
    }
    """
    text = llvm.compiler().optimised(source)
    assert "alloca" not in text
    assert "mul" not in text


def test_assembly_shows_the_function():
    assert "add:" in llvm.compiler().assembly(ADD)


@pytest.mark.parametrize(
    "source",
    [
        "define i32 @f( {",
        "define i32 @f() { ret i64 0 }",
        "define i32 @f() {\na:\n %x = add i32 %y, 1\n %y = add i32 %x, 1\n ret i32 %x\n}",
        "define void @f() { call void @missing()\n ret void }",
        ADD + "\0",
        "x" * 10000,
    ],
)
def test_bad_source_is_a_compile_error(source):
    with pytest.raises(CompileError, match="LLVM"):
        llvm.compiler().compile(source)
    assert llvm.compiler().compile(ADD)  # and the compiler is unharmed


def test_unknown_pipeline():
    with pytest.raises(CompileError, match="pipeline 'fast'"):
        llvm.compiler().compile(ADD, "fast")


def test_unknown_triple():
    with pytest.raises(CompileError, match="pdp11"):
        llvm.LLVMCompiler("pdp11-dec-unix")


@pytest.mark.parametrize(
    ("triple", "cpu", "word"),
    [
        ("aarch64-unknown-linux-gnu", "neoverse-n1", "x0"),
        ("x86_64-unknown-linux-gnu", "skylake", "%r"),
        ("riscv64-unknown-linux-gnu", "generic-rv64", "a0"),
    ],
)
def test_foreign_targets(triple, cpu, word):
    compiler = llvm.LLVMCompiler(triple, cpu)
    assert word in compiler.assembly(ADD)
    assert triple in compiler.cache_key
    assert compiler.cache_key != llvm.compiler().cache_key


def test_cache_key_names_versions_cpu_and_features():
    host = llvm.host_cpu()
    key = llvm.compiler().cache_key
    assert host.cpu in key
    assert host.features in key
    assert host.enabled <= {word[1:] for word in host.features.split(",")}


@pytest.mark.parametrize("image", [b"", b"garbage", b"\x7fELF" + bytes(60)])
def test_bad_object_is_a_compile_error(image):
    with pytest.raises(CompileError):
        llvm.session().load(image, ["add"])


def test_truncated_object_is_a_compile_error(add_object):
    for size in (16, 64, len(add_object) // 2, len(add_object) - 1):
        with pytest.raises(CompileError):
            llvm.session().load(add_object[:size], ["add"])


def test_missing_symbol_and_missing_import(add_object):
    with pytest.raises(CompileError, match="nope"):
        llvm.session().load(add_object, ["nope"])
    caller = "declare i64 @not_there_at_all()\ndefine i64 @f() {\n"
    caller += "%x = call i64 @not_there_at_all()\nret i64 %x\n}"
    with pytest.raises(CompileError, match="LLVM link"):
        llvm.session().load(llvm.compiler().compile(caller), ["f"])


def test_imports_and_several_objects_in_one_library(add_object):
    caller = """
    declare i64 @add(i64, i64)
    declare i64 @outside(i64, i64)
    define i64 @f(i64 %a, i64 %b) {
      %x = call i64 @add(i64 %a, i64 %b)
      %y = call i64 @outside(i64 %x, i64 %b)
      ret i64 %y
    }
    """
    other = llvm.session().load(add_object, ["add"])
    images = [add_object, llvm.compiler().compile(caller)]
    library = llvm.session().load(images, ["f"], {"outside": other["add"]}, keep=(other,))
    assert Binary(library["f"])(1, 10) == 21


def test_libc_and_libm_are_found():
    source = """
    declare double @cos(double)
    define double @f(double %x) {
      %y = call double @cos(double %x)
      ret double %y
    }
    """
    library = llvm.session().load(llvm.compiler().compile(source), ["f"])
    assert ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_double)(library["f"])(0.0) == 1.0


def test_unload(add_object):
    library = llvm.session().load(add_object, ["add"])
    library.unload()
    library.unload()
    with pytest.raises(HandleError):
        library["add"]


def test_host_threads_compile_at_once():
    results = {}

    def work(number):
        source = f"define i64 @f() {{ ret i64 {number} }}"
        for _ in range(5):
            library = llvm.session().load(llvm.compiler().compile(source), ["f"])
            results[number] = ctypes.CFUNCTYPE(ctypes.c_int64)(library["f"])()

    workers = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert results == {number: number for number in range(8)}


@pytest.mark.slow
@pytest.mark.requires("fork")
def test_fork_while_another_thread_compiles():
    stop = threading.Event()

    def busy():
        while not stop.is_set():
            llvm.compiler().compile(ADD, "O2")

    worker = threading.Thread(target=busy)
    worker.start()
    try:
        for _ in range(40):
            child = os.fork()
            if child == 0:
                library = llvm.session().load(llvm.compiler().compile(ADD), ["add"])
                os._exit(0 if Binary(library["add"])(1, 2) == 3 else 1)
            assert os.waitpid(child, 0)[1] == 0
    finally:
        stop.set()
        worker.join()


def test_import_alone_loads_no_llvmlite():
    code = "import sys, weft.compilers.llvm; sys.exit('llvmlite' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_interpreter_ends_cleanly_with_code_loaded():
    code = (
        "from weft.compilers import llvm\n"
        f"s = llvm.session(); l = s.load(llvm.compiler().compile({ADD!r}), ['add']); l.pin()\n"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert (result.returncode, result.stderr) == (0, b"")
