"""Kernels that were typed in: consoles, prompts, notebooks."""

import code
import linecache
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import weft
from weft.errors import KernelError
from weft.lang.source import interactive, texts

pytestmark = pytest.mark.usefixtures("compiled")

HEAD = "import weft, numpy as np\nfrom weft import gpu\n"
KERNEL = """
@weft.kernel
def add(x):
    x[gpu.grid(1)] += {value}

"""


class Console(code.InteractiveConsole):
    """A console that fails where a statement fails."""

    def showtraceback(self) -> None:
        """Raise what was raised."""
        raise sys.exc_info()[1] or AssertionError

    def type(self, text: str) -> None:
        """Type lines."""
        for line in text.splitlines():
            self.push(line)


def test_console() -> None:
    """A kernel works, its second definition too, and errors show the line."""
    console = Console()
    console.type(HEAD)
    x = np.zeros(4)
    console.locals["x"] = x  # type: ignore[index]
    console.type(KERNEL.format(value=1))
    console.type("add[1, 4](x)\n")
    np.testing.assert_array_equal(x, np.ones(4))
    console.type("old = add\n")
    console.type(KERNEL.format(value=20))
    for _ in range(3):
        console.type("add[1, 4](x)\n")
    np.testing.assert_array_equal(x, np.full(4, 61.0))
    console.type("old[1, 4](np.ones(4, np.float32)); old[1, 4](x)\n")
    np.testing.assert_array_equal(x, np.full(4, 62.0))
    console.type("@weft.func\ndef twice(v):\n    return v * 2\n\n")
    console.type("@weft.kernel\ndef use(x):\n    i = gpu.grid(1)\n    x[i] = twice(x[i])\n\n")
    console.type("use[1, 4](x)\n")
    np.testing.assert_array_equal(x, np.full(4, 124.0))
    console.type("@weft.kernel\ndef wrong(x):\n    x[0] = 1\n    x[1] = nothing_of_this_name\n\n")
    with pytest.raises(KernelError) as caught:
        console.type("wrong[1, 1](x)\n")
    assert "x[1] = nothing_of_this_name" in str(caught.value)
    assert "^^^^" in str(caught.value)


def test_notebook() -> None:
    """A cell has a name of its own in linecache."""
    space: dict[str, Any] = {}
    x = np.zeros(4)
    for number, value in enumerate((3, 4)):
        text, name = HEAD + KERNEL.format(value=value), f"<ipython-input-{number}-abc>"
        linecache.cache[name] = len(text), None, text.splitlines(keepends=True), name
        exec(compile(text, name, "exec"), space)
        space["add"][1, 4](x)
    np.testing.assert_array_equal(x, np.full(4, 7.0))


def test_without_source(monkeypatch: pytest.MonkeyPatch) -> None:
    """A text that nothing holds any more: the error says so, and what to do."""
    monkeypatch.setattr(texts, "heard", lambda name: [])
    space: dict[str, Any] = {}
    exec(HEAD + KERNEL.format(value=1), space)
    with pytest.raises(KernelError, match="without its source") as caught:
        space["add"][1, 4](np.zeros(4))
    assert "linecache" in str(caught.value)
    assert "a variable holds its text" in str(caught.value)


@pytest.mark.parametrize("name", ["<string>", "generated.py"])
def test_exec_of_a_text_that_a_variable_holds(name: str) -> None:
    """Such as a template: kernels, the functions that they call, and a second text of that name."""
    x = np.zeros(4)
    helper = "def twice(v):\n    return v * 2\n"
    for value in (3, 4):
        space: dict[str, Any] = {}
        text = HEAD + helper + KERNEL.format(value=f"twice({value})")
        exec(compile(text, name, "exec"), space)
        space["add"][1, 4](x)
    np.testing.assert_array_equal(x, np.full(4, 14.0))
    kernels = []
    for value in range(80):
        space = {}
        text = HEAD + KERNEL.format(value=value)
        exec(compile(text, name, "exec"), space)
        kernels.append(space["add"])
    kernels[0][1, 4](x)
    kernels[79][1, 4](x)
    np.testing.assert_array_equal(x, np.full(4, 93.0))


PROGRAM = HEAD + KERNEL.format(value=5) + """
@weft.compute
def scaled(a, b):
    for i in weft.ndrange(4):
        b[i] = a[i] * 2

@weft.critical
def product(a: weft.int64, b: weft.int64) -> weft.int64:
    return a * b + 1

x, y = np.zeros(4), np.zeros(4)
add[1, 4](x)
scaled(x, y)
print(x, y, product(3, 4))
"""


@pytest.mark.grid
@pytest.mark.parametrize("way", ["command", "input", "held", "debugger", "doctest"])
def test_programs_that_are_no_files_of_their_own(way: str, tmp_path: Path) -> None:
    """`python -c`, `python < file`, exec, pdb and doctest: all front ends find their source."""
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    python = [sys.executable]
    given: Any = ""
    if way == "command":
        python += ["-c", PROGRAM]
    elif way == "input":
        given = None
    elif way == "held":
        python += ["-c", f"text = open({str(path)!r}).read()\nexec(text, {{}})"]
    elif way == "debugger":
        python, given = [*python, "-m", "pdb", str(path)], "c\nq\n"
    else:
        lines = [">>> " + line if line and line[0] not in " " else "... " + line
                 for line in PROGRAM.splitlines()]
        for k in range(1, len(lines)):
            if lines[k - 1].startswith(">>> @"):
                lines[k] = "..." + lines[k][3:]
        path.write_text('"""\n' + "\n".join(lines) + '\n"""\n')
        python += ["-m", "doctest", "-v", str(path)]
    with path.open() as file:
        done = subprocess.run(python, input=given, stdin=file if given is None else None,
                              capture_output=True, text=True, timeout=120)
    assert "[5. 5. 5. 5.] [10. 10. 10. 10.] 13" in done.stdout, done.stdout + done.stderr
    assert "KernelError" not in done.stdout + done.stderr


def test_prompt_fed_by_a_pipe() -> None:
    """`python -i` without a terminal: the source is there from Python 3.13 on, else it says so."""
    lines = HEAD + KERNEL.format(value=5) + (
        "x = np.zeros(4)\ntry:\n    add[1, 4](x)\nexcept weft.WeftError as e:\n    print(e)\n\n"
        "print(x)\n")
    done = subprocess.run([sys.executable, "-i", "-q"], input=lines, capture_output=True,
                          text=True, timeout=120, check=True)
    if sys.version_info >= (3, 13):
        assert "[5. 5. 5. 5.]" in done.stdout
    else:
        assert "without its source" in done.stdout
        assert "write it to a file" in done.stdout
        assert "Traceback" not in done.stderr


def test_history_of_the_prompt(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last definition that is the function's; one that lost a line is none."""
    monkeypatch.setattr(texts, "heard", lambda name: [])
    space: dict[str, Any] = {}
    text = KERNEL.format(value=5).strip().splitlines()
    twice = ["@weft.kernel", "def more(x):", "    x[0] += 1", "    x[0] += 1"]
    exec(HEAD + "\n".join(text) + "\n\n" + "\n".join(twice) + "\n", space)
    lines = [*text, "", *[t.replace("5", "6") for t in text], "", "add[1, 4](x)", *twice[:-1], ""]
    fake = types.ModuleType("readline")
    fake.get_current_history_length = lambda: len(lines)  # type: ignore[attr-defined]
    fake.get_history_item = lambda k: lines[k - 1]  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "readline", fake)
    x = np.zeros(4)
    space["add"][1, 4](x)
    np.testing.assert_array_equal(x, np.full(4, 5.0))
    with pytest.raises(KernelError, match="without its source"):
        space["more"][1, 4](x)
    assert interactive.typed(weft.cdiv) is None
