"""``weft compile``: libraries that C can call, runs, and what it says where it cannot."""

import ctypes
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from commands import weft

pytestmark = pytest.mark.grid

LANGUAGE = '''\
"""Lines of the form `name = name * number`: a language for this test."""
import weft
from weft import build


class Unit:
    def __init__(self, path):
        self.programs, errors = [], build.Errors(path.name)
        for number, line in enumerate(path.read_text().splitlines(), 1):
            with errors:
                words = line.split()
                at = (str(path), number, 1, len(line) + 1)
                with build.function(words[0], at=at) as f:
                    n = f.size("n", at=at)
                    x = f.array("x", weft.float32, (n,))
                    y = f.array("y", weft.float32, (n,), writable=True)
                    with f.parallel(n, at=at) as (i,):
                        f.store(y, i, f.op(words[1], x[i], float(words[2]), at=at), at=at)
                self.programs.append(f.program)
        with build.kernel("last", at=(str(path), 1)) as k:
            y = k.array("y", weft.float32, 1, writable=True)
            k.store(y, k.grid(1), k.block("x") * 10 + k.thread("x"), at=(str(path), 1, 3))
        self.programs.append(k.program[2, 3])
        errors.check()

    def run(self, arguments):
        print("ran", list(arguments), [type(p).__name__ for p in self.programs])

    def explain(self):
        return f"{len(self.programs)} programs"


build.register(".lines", Unit)
'''


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "lines_language.py").write_text(LANGUAGE)
    (tmp_path / "a.lines").write_text("scale * 3\nadd_to + 0.5\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


LINES = ("--language", "lines_language")


def test_a_library_that_c_can_call(folder):
    out, _ = weft("compile", "a.lines", *LINES, "--explain")
    assert out.splitlines()[0] == "3 programs"
    assert [line.split(":")[0] for line in out.splitlines()[1:]] == ["a.so", "a.h"]
    library = ctypes.CDLL(str(folder / "a.so"))
    x, y = np.arange(37, dtype=np.float32), np.zeros(37, np.float32)
    address = (ctypes.c_void_p(a.ctypes.data) for a in (x, y))
    assert library.scale(ctypes.c_int64(37), *address, None) == 0
    np.testing.assert_array_equal(y, 3 * x)
    library.add_to(ctypes.c_int64(37), ctypes.c_void_p(x.ctypes.data),
                   ctypes.c_void_p(y.ctypes.data), None)
    np.testing.assert_array_equal(y, x + np.float32(0.5))
    last = (ctypes.c_int64(6), ctypes.c_void_p(y.ctypes.data), None)
    assert library.last(*last) == 0
    assert y[:6].tolist() == [0, 1, 2, 10, 11, 12]
    assert library.last(ctypes.c_int64(4), ctypes.c_void_p(y.ctypes.data), None) > 0
    assert library.scale(ctypes.c_int64(1), None, None, None) == -1
    text = (folder / "a.h").read_text()
    assert "int64_t n,\n    const float *x,\n    float *y,\n    weft_failure *failure" in text
    assert "index out of bounds, line 1" in text


def test_the_header_is_c(folder):
    weft("compile", "a.lines", *LINES, "-o", "b.h")
    assert not (folder / "b.so").exists()
    (folder / "use.c").write_text('#include "b.h"\n#include "b.h"\nint main(void) { return 0; }\n')
    compiler = next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))))
    subprocess.run([compiler, "-Wall", "-Werror", "-fsyntax-only", "use.c"], check=True,
                   timeout=60)


def test_run_and_its_arguments(folder):
    out, _ = weft("compile", "a.lines", *LINES, "--run", "one", "two")
    assert out == "ran ['one', 'two'] ['BuiltFunction', 'BuiltFunction', 'BuiltLaunch']\n"
    assert not (folder / "a.so").exists()


@pytest.mark.parametrize(("arguments", "message"), [
    (("--target", "nvptx"), "found --target nvptx, expected cpu"),
    (("--arch", "z80"), "found --arch z80, expected native or "),
    (("-o", "a.wasm"), "the suffix '.wasm'"),
    (("-o", "a.o"), "3 functions"),
    (("more",), "found arguments more"),
    (("--language", "no_such_module"), "no_such_module"),
])
def test_what_it_cannot_do(folder, arguments, message):
    _, err = weft("compile", "a.lines", *LINES, *arguments, code=1)
    assert err.startswith("weft: ")
    assert message in err
    assert "Traceback" not in err
    assert "site-packages" not in err


def test_errors_of_the_program(folder):
    (folder / "a.lines").write_text("scale * 3\nworse +* 3\nbad ? 4\n")
    _, err = weft("compile", "a.lines", *LINES, code=1)
    assert "a.lines: 2 errors" in err
    assert ":2:1: no operator '+*'" in err
    assert "    bad ? 4\n    ^^^^^^^\n" in err


def test_a_suffix_that_nobody_knows(folder):
    _, err = weft("compile", "a.lines", code=1)
    assert "the suffix '.lines'" in err
    assert "--language MODULE" in err


def test_a_python_script(folder):
    (folder / "script.py").write_text(
        "import sys, weft\n@weft.critical\n"
        "def twice(x: weft.float64) -> weft.float64:\n    return x * 2\n"
        "print(__name__, sys.argv[1:])\n")
    out, _ = weft("compile", "script.py", "--explain")
    assert out.splitlines()[0].startswith("script")
    assert "twice.so" in out
    assert "no system call" in out
    library = ctypes.CDLL(str(folder / "twice.so"))
    result = ctypes.c_double()
    assert library.twice(ctypes.c_double(21), ctypes.byref(result), None) == 0
    assert result.value == 42
    out, _ = weft("compile", "script.py", "--run", "a", "b")
    assert out == "__main__ ['a', 'b']\n"
    (folder / "empty.py").write_text("x = 1\n")
    _, err = weft("compile", "empty.py", code=1)
    assert "no function under @weft.critical" in err


@pytest.mark.requires("lark")
@pytest.mark.requires("pillow")
def test_an_image_program(folder):
    import PIL.Image

    PIL.Image.fromarray(np.full((20, 30, 3), 100, np.uint8)).save(folder / "in.png")
    (folder / "photo.img").write_text(
        'load "in.png" as photo\nresize photo to 60x50\nblur photo 2\nbrightness photo 1.5\n'
        'save photo as "out.png"\n')
    root = str(Path(__file__).parent.parent.parent)
    language = ("--language", "examples.imagepipe")
    path = {"PYTHONPATH": ":".join([str(Path(root) / "src"), root])}
    out, _ = weft("compile", "photo.img", *language, "--run", "--explain", **path)
    assert "6 operations" in out
    assert "in 2 kernels" in out
    with PIL.Image.open(folder / "out.png") as made:
        np.testing.assert_array_equal(np.asarray(made), np.full((50, 60, 3), 150, np.uint8))
    weft("compile", "photo.img", *language, **path)
    library = ctypes.CDLL(str(folder / "photo.so"))
    planes = np.zeros((3, 50, 60), np.float32)
    source, out = np.full((20, 30, 3), 100, np.uint8), np.zeros((50, 60, 3), np.uint8)
    first, second = library.load_resize_blur, library.blur_brightness_save
    assert first(*(ctypes.c_void_p(a.ctypes.data) for a in (source, planes)), None) == 0
    assert second(*(ctypes.c_void_p(a.ctypes.data) for a in (planes, out)), None) == 0
    np.testing.assert_array_equal(out, 150)
    (folder / "photo.img").write_text('load "in.png" as photo\nblurr photo 2\n')
    _, err = weft("compile", "photo.img", *language, code=1, **path)
    assert "photo.img:2:1: found 'blurr'" in err
    (folder / "photo.img").write_text(
        'load "in.png" as p\n@kernel\ncompute p {\n r = red(x - 1, y) }\nsave p as "o.png"\n')
    _, err = weft("compile", "photo.img", *language, "--run", code=1, **path)
    assert "found index -1, expected an index from 0 to 29" in err
    assert "photo.img:4: r = red(x - 1, y) }" in err
    assert sys.executable not in err


def test_no_line_is_told_where_the_command_is_wrong(folder):
    """Not that of what reads the command line."""
    (folder / "two.py").write_text("import weft\n" + "".join(
        f"@weft.critical\ndef {name}(a: weft.int64) -> weft.int64:\n    return a\n"
        for name in ("one", "two")))
    _, err = weft("compile", "two.py", "-o", "both.so", code=1)
    assert err.strip() == ("weft: compile two.py: found --output and 2 functions, expected "
                           "no --output: each is written to a file of its name")
