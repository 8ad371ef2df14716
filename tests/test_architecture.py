"""The shape of the source: layers, sizes, names, the cost of the import, and the map."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "weft"
SOURCE = sorted(PACKAGE.rglob("*.py"))
TESTS = sorted((ROOT / "tests").rglob("*.py"))
OTHERS = sorted(file for name in ("bench", "examples") for file in (ROOT / name).rglob("*.py"))
FOLDERS = sorted({file.parent for file in SOURCE} - {PACKAGE})
HARD_LIMIT = 800  # lines
# Written so that this file does not find itself.
UNFINISHED = re.compile("|".join(["TO" + "DO", "FIX" + "ME", r"\bXX" + r"X\b", r"\bHA" + r"CK\b"]))
HEAVY = ["llvmlite", "click", "rich", "ml_dtypes", "platformdirs", "torch", "scipy", "sklearn",
         "hashlib", "tempfile", "dataclasses", "decimal"]


def relative(file):
    return str(file.relative_to(ROOT))


def run(*command):
    return subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=300
    )


def test_the_source_was_found():
    assert PACKAGE / "errors.py" in SOURCE
    assert Path(__file__) in TESTS


def test_layers():
    done = run(
        sys.executable,
        "-c",
        "from importlinter.cli import lint_imports_command as main; main()",
        "--no-cache",
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 kept, 0 broken" in done.stdout


def test_layers_would_fail():
    """The contract must see a module that it has no place for."""
    text = (ROOT / "pyproject.toml").read_text()
    assert "exhaustive = true" in text
    layers = re.search(r"^layers = \[(.*?)^\]", text, re.MULTILINE | re.DOTALL)[1]
    listed = set(re.findall(r"[a-z_]+", layers))
    present = {file.stem for file in PACKAGE.glob("*.py")} - {"__init__", "__main__"}
    present |= {folder.name for folder in FOLDERS if folder.parent == PACKAGE}
    assert present <= listed


@pytest.mark.parametrize("file", SOURCE + TESTS + OTHERS, ids=relative)
def test_file(file):
    text = file.read_text()
    lines = text.splitlines()
    assert len(lines) <= HARD_LIMIT, "split it: see docs/design/style.md"
    assert file.name not in ("utils.py", "util.py", "helpers.py", "misc.py")
    unfinished = [line for line in lines if UNFINISHED.search(line)]
    assert not unfinished
    hollow = [
        ast.unparse(node)
        for node in ast.walk(ast.parse(text))
        if (isinstance(node, ast.Name) and node.id == "NotImplementedError")
        or (isinstance(node, ast.Assert) and isinstance(node.test, ast.Constant))
        or (isinstance(node, ast.Attribute) and ast.unparse(node) == "pytest.mark.skip")
    ]
    assert not hollow


def test_modules_of_tests_have_distinct_names():
    """Pytest imports test files by their bare name."""
    names = [file.name for file in TESTS if file.name not in ("conftest.py", "__init__.py")]
    assert sorted(names) == sorted(set(names))


def test_every_folder_is_on_the_map():
    names = [folder.relative_to(PACKAGE).as_posix() for folder in FOLDERS]
    rows = re.findall(r"^\| *`([\w/]+)/` *\| *\S.*\|$", map_text(), re.MULTILINE)
    assert not set(names) - set(rows), "give each a row | `folder/` | what it does | in the map"
    assert len(rows) == len(set(rows))


def test_the_map_shows_nothing_that_is_not_there():
    """A path in the map is a promise to a newcomer."""
    named = set(re.findall(r"`([\w./]*/[\w./]+\.(?:py|md))`", map_text()))
    absent = {path for path in named if not ((ROOT / path).exists() or (PACKAGE / path).exists())}
    assert len(named) > 10
    assert not absent


def map_text():
    return (ROOT / "ARCHITECTURE.md").read_text()


def test_documents_link_to_what_exists():
    broken = []
    for file in [ROOT / "README.md", ROOT / "ARCHITECTURE.md", *(ROOT / "docs").rglob("*.md")]:
        prose = re.sub(r"```.*?```|`[^`]*`", "", file.read_text(), flags=re.DOTALL)
        for target in re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", prose):
            if not (file.parent / target).exists():
                broken.append(f"{relative(file)}: {target}")
    assert not broken


def test_requirements_keep_every_row():
    text = (ROOT / "docs" / "design" / "requirements.md").read_text()
    rows = re.findall(r"^\| *([A-F]\d+) *\| *(\S.*?) *\| *(\S.*?) *\|$", text, re.MULTILINE)
    counts = {"A": 13, "B": 9, "C": 6, "D": 10, "E": 31, "F": 6}
    expected = [f"{group}{n}" for group, last in counts.items() for n in range(1, last + 1)]
    assert [row[0] for row in rows] == expected


def test_import_is_light():
    script = (
        "import sys, weft\n"
        f"print([name for name in {HEAVY} if name in sys.modules])\n"
        "print([name for name in sys.modules if name.startswith('importlib.metadata')])\n"
    )
    done = run(sys.executable, "-c", script)
    assert done.returncode == 0, done.stderr
    heavy, metadata = done.stdout.splitlines()
    assert heavy == "[]"
    # Looking for entry points reads every installed package: for the first use, not the import.
    bare = run(sys.executable, "-c", script.replace(", weft", ", numpy"))
    assert metadata == bare.stdout.splitlines()[1]


def test_import_costs_less_than_numpy(tmp_path, monkeypatch):
    """A ratio, because a time in a test measures the machine; benchmarks have the figure.

    Byte code is cached, as it is for any installed package.
    """
    monkeypatch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
    monkeypatch.setenv("PYTHONPYCACHEPREFIX", str(tmp_path))
    script = (
        "import time; a = time.perf_counter(); import numpy; b = time.perf_counter();"
        "import weft; c = time.perf_counter(); print((c - b) / (b - a))"
    )
    ratios = [float(run(sys.executable, "-c", script).stdout) for _ in range(5)]
    assert min(ratios) < 1, f"import weft took {min(ratios):.2f} times as long as import numpy"


def test_import_prints_nothing_and_warns_of_nothing():
    done = run(sys.executable, "-W", "error", "-c", "import weft")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize("part", range(4))
def test_each_module_imports_alone(part):
    """Modules that only import after another one have a cycle between them."""
    script = (
        "import importlib, sys, traceback\n"
        "for name in sys.argv[1:]:\n"
        "    for loaded in [m for m in sys.modules if m.split('.')[0] == 'weft']:\n"
        "        del sys.modules[loaded]\n"
        "    try:\n"
        "        importlib.import_module(name)\n"
        "    except Exception:\n"
        "        traceback.print_exc()\n"
    )
    done = run(sys.executable, "-c", script, *sorted(set(modules()) - {"weft.__main__"})[part::4])
    assert (done.returncode, done.stderr) == (0, "")


def test_no_import_cycles():
    """No cycle between modules, with imports inside functions; between folders, see the layers."""
    graph = import_graph()
    order, state = [], {}
    for root in graph:
        stack = [(root, iter(graph[root]))]
        if state.setdefault(root, "open") == "done":
            continue
        while stack:
            module, targets = stack[-1]
            following = next((t for t in targets if state.get(t) != "done"), None)
            if following is None:
                state[module] = "done"
                order.append(module)
                stack.pop()
                continue
            path = [entry[0] for entry in stack]
            assert following not in path, f"{path[path.index(following) :]} import one another"
            state[following] = "open"
            stack.append((following, iter(graph[following])))
    assert len(order) == len(graph)


def running_nodes(tree):
    """Walk what runs: two modules of a folder may name each other's types for the type checker."""
    todo = [tree]
    while todo:
        node = todo.pop()
        if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
            todo.extend(node.orelse)
            continue
        yield node
        todo.extend(ast.iter_child_nodes(node))


def modules():
    """Return {module: file}; a package's name stands for its __init__."""
    found = {}
    for file in SOURCE:
        parts = file.relative_to(PACKAGE.parent).with_suffix("").parts
        found[".".join(part for part in parts if part != "__init__")] = file
    return found


def import_graph():
    """Return {module: modules of Weft that it imports}."""
    known = modules()
    graph = {}
    for module, file in known.items():
        targets = set()
        for node in running_nodes(ast.parse(file.read_text())):
            if isinstance(node, ast.Import):
                targets |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                assert node.level == 0, f"{relative(file)}: write imports in full"
                for alias in node.names:
                    name = f"{node.module}.{alias.name}"
                    targets.add(name if name in known else node.module)
            elif isinstance(node, ast.Call) and ast.unparse(node.func) == "Late":
                targets.add(ast.literal_eval(node.args[0]))
        graph[module] = sorted(t for t in targets if t in known and t != module)
    return graph
