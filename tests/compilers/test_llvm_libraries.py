"""LLVM's library called directly and through llvmlite's Python: the same work, the same errors."""

import ctypes
import gc
import os
import subprocess
import sys

import llvmlite
import pytest

from weft.compilers import llvm
from weft.compilers.llvm_binding import BoundLibrary
from weft.compilers.llvm_library import _FUNCTIONS, DirectLibrary, library_path
from weft.errors import CompileError

# A loop that the levels vectorise and unroll, a call to inline, and a slot to promote.
SUM = """
define internal float @twice(float %x) alwaysinline {
  %slot = alloca float
  store float %x, ptr %slot
  %a = load float, ptr %slot
  %b = fadd float %a, %x
  ret float %b
}

define void @f(ptr %p, i64 %n) {
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  %at = getelementptr float, ptr %p, i64 %i
  %x = load float, ptr %at
  %y = call float @twice(float %x)
  store float %y, ptr %at
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %n
  br i1 %more, label %loop, label %end
end:
  ret void
}
"""
OUTSIDE = """
declare i64 @outside(i64)
define i64 @g(i64 %x) {
  %y = call i64 @outside(i64 %x)
  ret i64 %y
}
"""


@pytest.fixture(scope="module")
def libraries():
    path = library_path()
    if not path:
        pytest.fail("this version of llvmlite is not among those that are called directly")
    return DirectLibrary(path), BoundLibrary()


@pytest.fixture(params=["direct", "bound"])
def library(request, libraries):
    return libraries[request.param == "bound"]


def host_machine(library, level=2, jit=False):
    return library.machine(*library.host(), level, jit)


def test_both_say_the_same_of_the_machine(libraries):
    direct, bound = libraries
    assert direct.host() == bound.host()
    assert direct.version == bound.version
    assert direct.host()[2].count(",") > 3


@pytest.mark.parametrize("product", ["object", "assembly", "text"])
@pytest.mark.parametrize("pipeline", list(llvm._RUNS))
def test_both_make_the_same(libraries, pipeline, product):
    made = []
    for library in libraries:
        machine = host_machine(library, llvm._CODEGEN_LEVEL[pipeline])
        made.append(
            library.translate(machine, SUM, llvm._RUNS[pipeline], pipeline == "Os", product)
        )
    assert made[0] == made[1]
    assert len(made[0]) > 100
    if product == "text" and pipeline in ("none", "O3", "Os"):
        assert (b"alloca" in made[0]) == (pipeline == "none")
        assert (b" x float>" in made[0]) == (pipeline == "O3")


@pytest.mark.parametrize(
    ("source", "message"),
    [("define i32 @f( {", "does not parse"),
     ('define i32 @f() { ret i32 %"\\ff" }', "does not parse"),
     ("define i32 @f() { ret i64 0 }", "does not parse"),
     ("define i32 @f() {\na:\n %x = add i32 %y, 1\n %y = add i32 %x, 1\n ret i32 %x\n}",
      "is not valid")],
    ids=["syntax", "name", "type", "order"],
)  # fmt: skip
def test_bad_text(library, source, message):
    machine = host_machine(library)
    with pytest.raises(CompileError, match=message):
        library.translate(machine, source, 2, False, "object")
    assert library.translate(machine, SUM, 2, False, "object")


@pytest.mark.parametrize("text", ["define i32 @f( {", "@x = global i32 0\n@x = global i32 1"])
def test_both_say_the_same_of_bad_text(libraries, text):
    said = []
    for library in libraries:
        with pytest.raises(CompileError) as caught:
            library.translate(host_machine(library), text, 2, False, "object")
        said.append(caught.value.message)
    assert said[0] == said[1]


def test_what_cannot_be_unloaded_is_an_error(libraries, monkeypatch):
    direct = libraries[0]
    image = direct.translate(host_machine(direct), SUM, 1, False, "object")
    kept, _ = direct.link(direct.engine(host_machine(direct, jit=True)), "u", [image], {}, ["f"])
    monkeypatch.setitem(direct._functions, "LLJIT_Dylib_Tracker_Dispose", lambda *words: True)
    with pytest.raises(CompileError, match="unload"):
        kept.close()
    kept.close()


def test_targets(library):
    with pytest.raises(CompileError, match="pdp11"):
        library.machine("pdp11-dec-unix", "", "", 2, False)
    library.register_all_targets()
    machine = library.machine("riscv64-unknown-linux-gnu", "generic-rv64", "", 2, False)
    assert b"a0" in library.translate(machine, SUM, (), False, "assembly")


@pytest.mark.grid
def test_link(library):
    function = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)
    outside = function(lambda x: x + 1)
    address = ctypes.cast(outside, ctypes.c_void_p).value
    machine = host_machine(library)
    images = [library.translate(machine, text, 1, False, "object") for text in (SUM, OUTSIDE)]
    engine = library.engine(host_machine(library, jit=True))
    kept, found = library.link(engine, "a", images, {"outside": address}, ["g", "f", "g"])
    assert list(found) == ["g", "f"]
    assert function(found["g"])(41) == 42
    data = (ctypes.c_float * 3)(1, 2, 3)
    ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)(found["f"])(data, 3)
    assert list(data) == [2, 4, 6]
    with pytest.raises(CompileError, match="LLVM link"):
        library.link(engine, "b", images, {}, ["g"])
    with pytest.raises(CompileError, match="nope"):
        library.link(engine, "c", images[:1], {}, ["nope"])
    for image in (b"", b"garbage", images[0][:64]):
        with pytest.raises(CompileError):
            library.link(engine, f"d{len(image)}", [image], {}, ["f"])
    kept.close()
    kept.close()
    again, _ = library.link(engine, "e", [], {}, [])
    del again, engine
    gc.collect()


def test_only_versions_that_were_looked_at_are_called_directly(monkeypatch):
    assert library_path()
    for version in ("0.44.1", "0.51.0", "1.0.0", "unknown", ""):
        monkeypatch.setattr(llvmlite, "__version__", version)
        assert library_path() == ""
    monkeypatch.setattr(llvmlite, "__version__", "0.45.0rc1")
    assert library_path()
    monkeypatch.setattr(llvmlite, "__file__", os.path.join(os.sep, "nowhere", "__init__.py"))
    assert library_path() == ""


@pytest.mark.parametrize("broken", ["version", "file", "function"])
def test_what_cannot_be_called_directly_goes_through_llvmlite(broken, monkeypatch):
    if broken == "version":
        monkeypatch.setattr(llvmlite, "__version__", "0.51.0")
    elif broken == "file":
        monkeypatch.setattr(llvm, "library_path", lambda: __file__)
    else:
        monkeypatch.setitem(_FUNCTIONS, "NoSuchFunction", (None,))
    monkeypatch.setattr(llvm, "_library", None)
    monkeypatch.setattr(llvm, "_freeing", llvm._freeing)
    assert isinstance(llvm._llvm(), BoundLibrary)
    text = llvm.LLVMCompiler().optimised(SUM)
    library = llvm.JITSession().load(llvm.LLVMCompiler().compile(SUM), ["f"])
    assert "alloca" not in text
    assert library["f"]
    child = os.fork() if hasattr(os, "fork") else None
    if child == 0:
        os._exit(0 if llvm.LLVMCompiler().compile(SUM) else 1)
    if child is not None:
        assert os.waitpid(child, 0)[1] == 0


def test_a_kernel_needs_no_python_of_llvmlite(tmp_path):
    code = (
        "import sys, weft\n"
        "assert (weft.ones(8) + weft.ones(8)).sum().item() == 16\n"
        "print(sorted(m for m in sys.modules if m.startswith('llvmlite.')))\n"
    )
    environment = {**os.environ, "WEFT_CACHE_DIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True,
                          text=True, check=True)  # fmt: skip
    assert done.stdout.strip() == "['llvmlite._version']"
