"""Kernels are made of the text that Python has read, whatever became of the file since."""

import ast
import importlib
import sys
import types

import numpy as np
import pytest

import weft
from weft.errors import KernelError
from weft.lang.source import texts

pytestmark = pytest.mark.usefixtures("compiled")

HELPER = "C = 1.0\ndef helper(v):\n    return v + C\n"
KERNEL = """\
import weft
import {helper}

@weft.kernel
def add(x):
    x[0] = {helper}.helper(x[0]) + 10
"""


@pytest.fixture
def modules(tmp_path, monkeypatch):
    """Import a helper and a kernel that calls it; return them and the path of each."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    written = {"texts_helper": HELPER, "texts_kernel": KERNEL.format(helper="texts_helper")}
    files = []
    for name, text in written.items():
        files.append(tmp_path / f"{name}.py")
        files[-1].write_text(text)
    importlib.invalidate_caches()
    yield [importlib.import_module(name) for name in written], files
    for name in written:
        del sys.modules[name]


def first(kernel, d=np.float64):
    x = np.zeros(1, d)
    kernel[1, 1](x)
    return x[0]


def test_a_kernel_is_what_it_was_when_it_was_decorated(modules):
    (_, kernel), (_, file) = modules
    file.write_text("# more\n" * 3 + file.read_text().replace("10", "2000"))
    assert first(kernel.add) == 11
    assert first(kernel.add, np.float32) == 11  # another text for another type would be worse
    assert first(importlib.reload(kernel).add) == 2001


@pytest.mark.parametrize("text", [
    "# more\n" + HELPER, HELPER.replace("v + C", "v + 99"), "", "x = (", HELPER.replace("v", "w"),
    "C = 1.0\ndef another(v):\n    return v + C\n",
])  # fmt: skip
def test_another_text_of_a_helper_is_never_taken_for_it(modules, text):
    (helper, kernel), (file, _) = modules
    file.write_text(text)
    with pytest.raises(KernelError, match="a file that has changed since Python read the function"):
        first(kernel.add)
    file.write_text(HELPER.replace("return v", "return 5 + v"))
    importlib.reload(helper)
    assert first(kernel.add) == 16


def test_what_was_read_once_is_kept(modules):
    (helper, kernel), (file, _) = modules
    assert first(kernel.add) == 11
    file.write_text("")
    helper.C = 2.0
    assert first(kernel.add) == 11  # values of globals are kept with the code, too
    assert first(kernel.add, np.float32) == 12


def test_lambdas_of_one_line():
    both = [lambda v: v + 1, lambda v: v + 2]
    names = [both[0], both[1]]
    nested = lambda v: (lambda w: w * 3)(v) + (lambda w: w * 4)(v)  # noqa: E731
    one, two = names

    @weft.kernel
    def use(x):
        x[0] = one(x[0]) * 10 + two(x[0])

    assert nested(1) == 7
    assert first(use) == 12
    third = weft.func(lambda v: v + 3), weft.func(lambda v: v + 4)
    last = third[1]

    @weft.kernel
    def again(x):
        x[0] = last(x[0])

    assert first(again) == 4


def test_a_lambda_has_its_place():
    wrong = weft.kernel(lambda x: x)
    with pytest.raises(KernelError) as caught:
        first(wrong)
    (problem,) = caught.value.problems
    assert problem.column == len("    wrong = weft.kernel(")


def test_texts_that_stand_elsewhere():
    factor = 3

    @weft.kernel
    def odd(x):
        """A text
that goes on to the left.
        """
        x[0] = factor

    assert first(odd) == 3

    class Scale:
        __by = 5

        @staticmethod
        @weft.kernel
        def apply(x):
            __by = 4
            x[0] = __by

    assert first(Scale.apply) == 4


def test_long_functions_of_modules_that_import():
    """Python writes calls of what a module imports, and long jumps, in a way of their own."""
    lines = "\n".join(f"            s = np.sqrt(np.abs(s)) + {k}" for k in range(60))
    text = f"import numpy as np\n\ndef long(x):\n    s = 0.0\n    for i in range(2):\n        " \
           f"if x[0] < i:\n{lines}\n    x[0] = s\n"  # fmt: skip
    (code,) = (c for c in compile(text, "long.py", "exec", dont_inherit=True).co_consts
               if isinstance(c, types.CodeType))
    rows = text.splitlines(keepends=True)
    assert texts._in_lines(rows, code) is not None
    assert texts._in_lines([row.replace("+ 30", "+ 31") for row in rows], code) is None


SHAPES = {
    "one line": "def f(x): x[0] = 1\n",
    "last line": "def f(x):\n    x[0] = 1",
    "header": "def f(\n    x,\n    y=(1,\n2),\n):\n    x[0] = 1\n\n\nz = 1\n",
    "end of a statement": "def f(x):\n    x[0] = (\n1\n)\nz = 1\n",
    "comments": "def f(x):\n    x[0] = 1\n# here\n    # there\n\n    x[1] = 2\n# behind\nz = 1\n",
    "text": "def f(x):\n    '''One\ntwo\n'''\n    x[0] = 1\nz = 1\n",
    "text at the end": "def f(x):\n    x[0] = 1\n    '''One\ntwo\n'''\nz = 1\n",
    "nothing at the end": "def f(x):\n    x[0] = 1\n    if x[0]:\n        pass\nz = 1\n",
    "never reached": "def f(x):\n    return 1\n    x[0] = (\n2\n)\nz = 1\n",
    "inside": "def f(x):\n    def g(y):\n        return [\ny for a in y]\n    return g(x)\nz = 1\n",
    "decorated": "@(lambda g:\n g)\n@(\nlambda g: g\n)\ndef f(x):\n    x[0] = 1\nz = 1\n",
    "in a class": "class A:\n    def f(x):\n        x[0] = 1\n    z = 1\nf = A.f\n",
    "tabs": "if True:\n\tdef f(x):\n\t\tx[0] = 1\n\t\n\tz = 1\n",
}


@pytest.mark.parametrize("shape", list(SHAPES))
def test_a_definition_ends_where_it_ends(shape):
    lines = SHAPES[shape].splitlines(keepends=True)
    space = {}
    exec(compile(SHAPES[shape], "<shape>", "exec"), space)
    found = texts._in_lines(lines, space["f"].__code__)
    everything = texts._in_file(lines, space["f"].__code__)
    assert ast.dump(found, include_attributes=True) == (
        ast.dump(everything, include_attributes=True))  # fmt: skip
