"""Kernels made of texts that are gone when they are decorated: generators of code."""

import ast
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import weft
from weft.compat import cuda
from weft.errors import KernelError
from weft.lang.source import source_audit

pytestmark = pytest.mark.usefixtures("compiled")

HEAD = "from weft import gpu\n"
BODY = """
def add(x):
    i = gpu.grid(1)
    if i < x.size:
        x[i] += {value}
"""


def made(text: str, name: str = "<string>") -> dict[str, Any]:
    """Run a text that is not there any more when this has returned."""
    space: dict[str, Any] = {}
    exec(compile(HEAD + text, name, "exec"), space)
    return space


@pytest.mark.parametrize("name", ["<string>", "no_such_file.py"])
def test_functions_that_are_decorated_after_their_text(name: str) -> None:
    """Each has its own text, also if more was compiled under that name since."""
    spaces = [made(BODY.format(value=v), name) for v in (1, 20, 300)]
    kernels = [cuda.jit(s["add"]) for s in spaces]
    x = np.zeros(3)
    for k in (*kernels, kernels[0]):
        k[1, 4](x)
    np.testing.assert_array_equal(x, np.full(3, 322.0))


def test_a_text_that_no_variable_holds() -> None:
    """The argument of `exec` is an expression; what comes later does not push it out."""
    space: dict[str, Any] = {"weft": weft}
    exec(HEAD + "@weft.kernel" + BODY.format(value=7), space)
    for k in range(200):
        exec(f"def add(x):\n    return {k}")
    x = np.zeros(3)
    space["add"][1, 4](x)
    np.testing.assert_array_equal(x, np.full(3, 7.0))


def expanded(function: str, names: list[str]) -> Any:
    """Return a function of a syntax tree whose ``*values`` are names."""
    tree = ast.parse(function)
    definition = tree.body[0]
    assert isinstance(definition, ast.FunctionDef)
    definition.args.vararg = None
    definition.args.args += [ast.arg(n) for n in names]
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            parts = [ast.Name(n, ast.Load()) for n in names]
            node.args = [a for arg in node.args
                         for a in (parts if isinstance(arg, ast.Starred) else [arg])]
    space: dict[str, Any] = {"gpu": weft.gpu, "total": total}
    exec(compile(ast.fix_missing_locations(tree), f"<{definition.name}>", "exec"), space)
    return space[definition.name]


@weft.func
def total(a: Any, b: Any, c: Any) -> Any:
    """Return a sum."""
    return a + b * c


def test_functions_of_syntax_trees() -> None:
    """Such as those whose list of arguments a library writes out."""
    text = "def fill(x, *v):\n    i = gpu.grid(1)\n    x[i] = total(*v)\n"
    x = np.zeros(2)
    weft.kernel(expanded(text, ["a", "b", "c"]))[1, 2](x, 1.0, 2.0, 3.0)
    np.testing.assert_array_equal(x, [7.0, 7.0])


def test_trees_are_written_only_for_functions_that_they_have(
        monkeypatch: pytest.MonkeyPatch) -> None:
    """Under pytest, hundreds of test files are compiled as trees: a launch must not write them."""
    others = [ast.parse(f"def other{k}(x):\n    return {k}\n") for k in range(20)]
    for tree in others:
        compile(tree, "<tree>", "exec")
    written: list[ast.AST] = []
    write = source_audit._written
    monkeypatch.setattr(source_audit, "_written", lambda tree: written.append(tree) or write(tree))
    assert source_audit.heard("other7") == [ast.unparse(others[7])]
    assert written == [others[7]]
    others[3].body[0].name = "renamed_tree"  # type: ignore[attr-defined]
    compile(others[3], "<tree>", "exec")
    assert source_audit.heard("other3") == []
    assert source_audit.heard("renamed_tree") == [ast.unparse(others[3])]


@pytest.mark.slow
def test_lambdas_and_their_neighbours() -> None:
    """Of two lambdas of a line, each is itself."""
    space = made("one, two = (lambda a, b: a - b), (lambda a, b: a * b + 1)")
    one, two = weft.func(space["one"]), weft.func(space["two"])

    @weft.kernel
    def use(x: Any) -> None:
        x[0] = one(5.0, 2.0)
        x[1] = two(5.0, 2.0)

    x = np.zeros(2)
    use[1, 1](x)
    np.testing.assert_array_equal(x, [3.0, 11.0])


def test_errors_show_the_line() -> None:
    """Of the text that was run."""
    with pytest.raises(KernelError, match=r"(?s)'nothing' is not defined.*x\[i\] \+= nothing"):
        weft.kernel(made(BODY.format(value="nothing"))["add"])[1, 1](np.zeros(1))


def test_a_definition_may_be_followed_by_lines_that_are_indented_less() -> None:
    text = """if wanted:
    for k in range(2):
        @weft.kernel
        def add(x):
            x[0] += k

        add[1, 1](x)
else:
    x[0] = -1
"""
    x = np.zeros(1)
    exec(compile(text, "<no file of this name>", "exec"), {"weft": weft, "wanted": True, "x": x})
    assert x[0] == 1


def test_what_is_kept_is_bounded_and_strange_trees_do_no_harm() -> None:
    """A long text and a tree that cannot be written are nobody's."""
    strange = ast.Module([ast.FunctionDef("strange", ast.arguments(), None, [])], [])
    source_audit._listen("compile", (strange, "<tree>"))
    source_audit._listen("compile", (None, None))
    source_audit._listen("open", ())
    long = "def long(x): pass\n" + "#" * (1 << 18)
    exec(long, {})
    assert source_audit.heard("strange") == []
    assert long not in source_audit.heard("long")
    for k in range(300):
        exec(f"def short(x): return {k}\n" + "#" * (1 << 16), {})
    assert sum(map(len, (t for t in source_audit._texts if isinstance(t, str)))) <= 1 << 22


def test_a_text_is_still_known_after_many_others(tmp_path: Path) -> None:
    """A program makes its kernels when it begins, and hundreds of functions before a launch."""
    assert python("""
import numpy as np
from weft.compat import cuda

space = {}
exec("def set_to(x):\\n    x[0] = 5\\n", space)
for k in range(500):
    exec(f"def other{k}(x): return {k}", {})
    eval(f"{k} + 1")
for k in range(100):
    compile("def same(): pass" + "#" * 100_000, "source", "exec")
x = np.zeros(1)
cuda.jit(space["set_to"])[1, 1](x)
print(x[0])
""", tmp_path) == "5.0\n"


def test_texts_of_kernels_are_not_kept_again() -> None:
    """What is compiled to find a kernel's text in others' would drive those out, one by one."""
    space: dict[str, Any] = {}
    exec("def again(x): x[0] += 1", space)
    for _ in range(3):
        weft.kernel(space["again"])[1, 1](np.zeros(1))
        trees = [t for t in source_audit._texts if isinstance(t, ast.AST)]
        assert not any("def again" in ast.unparse(t) for t in trees[-8:])


def test_threads_compile_at_the_same_time(tmp_path: Path) -> None:
    """What is kept of one thread's texts is no error in another one."""
    assert python("""
import sys, threading
from weft.lang.source import source_audit as heard

heard.listen()
sys.setswitchinterval(1e-6)
failed = []
threading.excepthook = lambda raised: failed.append(repr(raised.exc_value))

def work(number):
    for k in range(150):
        compile(f"def f{k % 7}(): pass" + "#" * (1 << 16), "<text>", "exec")
        compile(f"def f{number}_{k}(): pass" + "#" * (1 << 16), "<text>", "exec")

threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
for t in threads:
    t.start()
for t in threads:
    t.join()
print(failed, sum(map(len, heard._texts)) <= 1 << 22)
""", tmp_path) == "[] True\n"


def python(code: str, folder: Path) -> str:
    """Run a program in a process of its own and return what it prints."""
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True,
                          timeout=60)  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_files_are_left_alone(tmp_path: Path) -> None:
    """Modules that are imported are not kept: their files have the text."""
    (tmp_path / "this_is_new.py").write_text("def f(x):\n    return x\n")
    python("import weft.compat.cuda; from weft.lang.source import source_audit as heard\n"
           "n = len(heard._texts)\nimport this_is_new\nassert len(heard._texts) == n\n", tmp_path)


LOCAL = """
import ast
import numpy as np
import weft
from weft.lang.source import source_audit as heard

class Generator:
    def __init__(self, value):
        self.text = "def add(x):\\n    x[0] += " + str(value)

    def of_attribute(self):
        space = {}
        exec(self.text, space)
        return weft.kernel(space["add"])

    def of_tree(self):
        tree, space = ast.parse(self.text), {}
        tree.body[0].body = 2 * tree.body[0].body
        exec(compile(ast.fix_missing_locations(tree), "<tree>", "exec"), space)
        return weft.kernel(space["add"])

    def of_helper(self):
        space = {}
        exec("def more(a): return a + 1000", space)
        more = weft.func(space["more"])

        @weft.kernel
        def add(x):
            x[0] = more(x[0])
        return add

x = np.zeros(1)
Generator(1).of_attribute()[1, 1](x)
Generator(20).of_tree()[1, 1](x)
Generator(0).of_helper()[1, 1](x)
print(x[0], len(heard._texts))
"""


def test_texts_that_a_caller_holds(tmp_path: Path) -> None:
    """They are found without listening, which `import weft` does not do."""
    (tmp_path / "program.py").write_text(LOCAL)
    assert python("import program", tmp_path).split() == ["1041.0", "0"]


def test_a_text_that_nothing_holds(tmp_path: Path) -> None:
    """Without listening, an error says what to do."""
    (tmp_path / "program.py").write_text(
        "import weft\ndef made():\n    space = {}\n"
        "    exec('def add(x):' + '    x[0] = ' + str(1), space)\n    return space['add']\n"
        "try:\n    weft.kernel(made())[1, 1](memoryview(bytearray(4)).cast('i'))\n"
        "except weft.errors.KernelError as error:\n    print(error)\n")
    assert "where a variable holds its text" in python("import program", tmp_path)
