"""The shape of the source: layers, sizes, names, the cost of the import, and the map."""

import ast
import re
import subprocess
import sys
from fnmatch import fnmatch
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "weft"
SOURCE = sorted(PACKAGE.rglob("*.py"))
TESTS = sorted((ROOT / "tests").rglob("*.py"))
OTHERS = sorted(file for name in ("bench", "examples") for file in (ROOT / name).rglob("*.py"))
FOLDERS = sorted({file.parent for file in SOURCE} - {PACKAGE})
LIMIT = 500  # lines of a module
TEST_LIMIT = 800  # lines of other files
# Modules of more lines: tables (a row, a class or a builder for each thing), by what they list.
TABLES = {
    "compat/cuda/libdevice.py": "functions of libdevice",
    "ir/expr.py": "builders of expressions",
    "ir/stmt.py": "statements",
}
ROOM = 20  # modules of a folder, at most
# Written so that this file does not find itself.
UNFINISHED = re.compile("|".join(["TO" + "DO", "FIX" + "ME", r"\bXX" + r"X\b", r"\bHA" + r"CK\b"]))
# What a file with a hollow place has somewhere in its text: only those are parsed.
HOLLOW = re.compile(r"NotImplementedError|\bmark\.skip\b|\bassert *\(? *(True|False|None|[\d\"'])")
HEAVY = ["llvmlite", "click", "rich", "ml_dtypes", "platformdirs", "torch", "scipy", "sklearn",
         "hashlib", "tempfile", "dataclasses", "decimal"]


@cache
def text_of(file):
    return file.read_text()


@cache
def tree_of(file):
    return ast.parse(text_of(file))


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
    assert "2 kept, 0 broken" in done.stdout


def test_layers_would_fail():
    """The contract must see a module that it has no place for."""
    text = (ROOT / "pyproject.toml").read_text()
    assert "exhaustive = true" in text
    layers = re.search(r"^layers = \[(.*?)^\]", text, re.MULTILINE | re.DOTALL)[1]
    listed = set(re.findall(r"[a-z_]+", layers))
    present = {file.stem for file in PACKAGE.glob("*.py")} - {"__init__", "__main__"}
    present |= {folder.name for folder in FOLDERS if folder.parent == PACKAGE}
    assert present <= listed


def test_files():
    faults = [f"{relative(file)}: {fault}" for file in SOURCE + TESTS + OTHERS
              for fault in faults_of(file)]  # fmt: skip
    assert not faults, "\n".join(faults)


def faults_of(file):
    """Return what is wrong with a file as such: its length, its name, what it leaves unfinished."""
    lines = text_of(file).splitlines()
    if len(lines) > most_lines(file):
        yield f"{len(lines)} lines: split it, see docs/design/style.md"
    if file.name in ("utils.py", "util.py", "helpers.py", "misc.py"):
        yield "a name that says nothing of what is inside"
    yield from (line.strip() for line in lines if UNFINISHED.search(line))
    for node in ast.walk(tree_of(file)) if HOLLOW.search(text_of(file)) else ():
        if (
            (isinstance(node, ast.Name) and node.id == "NotImplementedError")
            or (isinstance(node, ast.Assert) and isinstance(node.test, ast.Constant))
            or (isinstance(node, ast.Attribute) and node.attr == "skip"
                and ast.unparse(node) == "pytest.mark.skip")
        ):
            yield f"line {node.lineno} does nothing: {ast.unparse(node)}"


def most_lines(file):
    """Return how many lines a file may have."""
    if PACKAGE not in file.parents:
        return TEST_LIMIT
    name = file.relative_to(PACKAGE).as_posix()
    return TEST_LIMIT if name in TABLES else LIMIT


def test_long_modules_are_listed():
    """A module that is split or gone leaves the list; what is no table may not become one."""
    assert {name for name in TABLES if not (PACKAGE / name).exists()} == set()
    assert most_lines(PACKAGE / "ir" / "node.py") == LIMIT < most_lines(PACKAGE / "ir" / "stmt.py")
    assert most_lines(Path(__file__)) == TEST_LIMIT


def test_lines_are_short():
    """Linters let a line be longer that ends in a long word, as a comment to a type checker."""
    found = [f"{relative(file)}:{n}" for file in SOURCE + TESTS + OTHERS
             for n, line in enumerate(text_of(file).splitlines(), 1) if len(line) > 100]
    assert not found


def test_faults_of_a_file_are_found(tmp_path):
    bad = tmp_path / "utils.py"
    marker = "TO" + "DO"
    bad.write_text(f"# {marker}\nassert True\n" + "raise NotImplemented" + "Error\n" * 900)
    assert len(list(faults_of(bad))) > 3


def test_tests_need_torch_only_where_they_say_so():
    """A test file that imports it by itself fails where it is not installed."""
    found = [relative(file) for file in TESTS
             if re.search(r"^(import|from) torch\b", file.read_text(), re.MULTILINE)]
    assert not found, "import it in tests that are marked requires('torch')"


def test_modules_of_tests_have_distinct_names():
    """Pytest imports test files by their bare name."""
    names = [file.name for file in TESTS if file.name not in ("conftest.py", "__init__.py")]
    assert sorted(names) == sorted(set(names))


def test_every_test_is_collected(pytestconfig):
    """Pytest passes by folders of some names, such as `build`, without a word."""
    passed_by = pytestconfig.getini("norecursedirs")
    assert "build" in passed_by
    lost = [relative(file) for file in TESTS for name in file.relative_to(ROOT).parts[:-1]
            if any(fnmatch(name, pattern) for pattern in passed_by)]
    assert not lost


def test_tests_mirror_the_source():
    """A folder of tests that belongs to a room of the source lies where the room does."""
    beside = {"conformance", "examples", "fuzz", "outside", "robustness"}
    folders = {file.parent.relative_to(ROOT / "tests") for file in TESTS} - {Path()}
    elsewhere = {folder for folder in folders if folder.parts[0] not in beside
                 and not (PACKAGE / folder).is_dir()}  # fmt: skip
    assert not elsewhere


def test_every_folder_is_on_the_map():
    rows = dict(re.findall(r"^\| *`(\w+)/` *\| *(\S.*)\|$", map_text(), re.MULTILINE))
    absent = []
    for folder in FOLDERS:
        room, *inner = folder.relative_to(PACKAGE).parts
        if not (room in rows and all(f"`{name}/`" in rows[room] for name in inner)):
            absent.append(f"{room}: {inner}")
    assert not absent, "give each room a row | `room/` | `folder/` what it holds | in the map"


def test_rooms_are_small():
    """A reader finds a module among those of its room; rows of one table may be twenty."""
    full = [f"{relative(folder)}: {len(files)} modules" for folder in FOLDERS
            if len(files := [file for file in folder.glob("*.py") if file.stem != "__init__"])
            > ROOM]  # fmt: skip
    assert not full


def test_rooms_leave_public_names_alone():
    """A room called as a function would hide it from `pydoc` and from documentation tools."""
    import weft

    hidden = [name for name in weft.__all__ if (PACKAGE / name / "__init__.py").exists()
              and not isinstance(getattr(weft, name), type(weft))]  # fmt: skip
    assert not hidden


def test_the_map_is_short():
    assert len(map_text().splitlines()) <= 250


def test_the_map_shows_nothing_that_is_not_there():
    """A path in the map is a promise to a newcomer."""
    named = set(re.findall(r"`([\w./]*/[\w./]+\.(?:py|md))`", map_text()))
    absent = {path for path in named if not ((ROOT / path).exists() or (PACKAGE / path).exists())}
    assert len(named) > 10
    assert not absent


def map_text():
    return (ROOT / "ARCHITECTURE.md").read_text()


DOCUMENTS = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")]


def test_documents_link_to_what_exists():
    broken = [f"{relative(file)}: {link}" for file in DOCUMENTS for link in dead_links(file)]
    assert len(DOCUMENTS) > 20
    assert not broken


def dead_links(file):
    """Return the links of a document to files, or to headings, that are not there."""
    for link in re.findall(r"\]\(([^):\s]+)\)", re.sub(CODE, "", file.read_text())):
        path, _, anchor = link.partition("#")
        target = file.parent / path if path else file
        if not target.exists() or (anchor and anchor not in headings(target)):
            yield link


CODE = re.compile(r"^```.*?^```|`[^`\n]*`", re.MULTILINE | re.DOTALL)


def headings(file):
    """Return the anchors that Markdown gives to the headings of a document."""
    text = re.sub(r"^```.*?^```", "", file.read_text(), flags=re.MULTILINE | re.DOTALL)
    found = (re.sub(r"[^\w -]", "", line) for line in re.findall(r"^#+ +(.*)$", text, re.MULTILINE))
    return {line.strip().lower().replace(" ", "-") for line in found}


def test_dead_links_are_found(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("# What `x` is\n[a](page.md) [b](#what-x-is) [c](no.md) [d](page.md#nowhere)\n"
                    "[e](https://example.org/) `[f](none.md)`\n```\n# [g](none.md)\n```\n")
    assert list(dead_links(page)) == ["no.md", "page.md#nowhere"]


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
    """A ratio of times of the CPU: seconds measure the machine; benchmarks have the figure.

    Byte code is cached, as it is for any installed package.
    """
    monkeypatch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
    monkeypatch.setenv("PYTHONPYCACHEPREFIX", str(tmp_path))
    script = (
        "import time; a = time.process_time(); import numpy; b = time.process_time();"
        "import weft; c = time.process_time(); print((c - b) / (b - a))"
    )
    ratios = [float(run(sys.executable, "-c", script).stdout) for _ in range(5)]
    assert min(ratios) < 1, f"import weft took {min(ratios):.2f} times as long as import numpy"


def test_import_prints_nothing_and_warns_of_nothing():
    done = run(sys.executable, "-W", "error", "-c", "import weft")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.slow
def test_each_module_imports_alone():
    """Modules that only import after another one have a cycle between them.

    Whatever is imported of a package, the package itself comes first: each module is imported where
    only that is loaded.
    """
    script = (
        "import importlib, sys, traceback, weft\n"
        "before = set(sys.modules)\n"
        "for name in sys.argv[1:]:\n"
        "    try:\n"
        "        importlib.import_module(name)\n"
        "    except Exception:\n"
        "        traceback.print_exc()\n"
        "    for loaded in [m for m in sys.modules if m.startswith('weft.') and m not in before]:\n"
        "        folder, _, own = loaded.rpartition('.')\n"
        "        del sys.modules[loaded]\n"
        "        if folder in sys.modules:\n"
        "            vars(sys.modules[folder]).pop(own, None)\n"
    )
    done = run(sys.executable, "-c", script, *sorted(set(modules()) - {"weft.__main__"}))
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.slow
def test_no_import_cycles():
    """No cycle between modules, with imports in functions and for the type checker alone."""
    graph = import_graph()
    assert "weft.ir.op" in graph["weft.ir.expr"]
    assert_no_cycle(graph)


@pytest.mark.slow
def test_no_cycles_between_rooms():
    """Folders import each other in one direction, also those of one layer, and a folder its rooms.

    What a package is seen as from outside, its ``__init__`` (`weft.compat.cuda`, for instance, as
    numba has it), joins rooms that do not know each other. Modules beside rooms obey the layers.
    """
    graph = import_graph()
    inside = {m: room_of(m) for m, file in modules().items() if file.stem != "__init__"}
    rooms = {room: set() for room in inside.values()}
    for module, room in inside.items():
        rooms[room] |= {inside[t] for t in graph[module] if t in inside} - {room}
    assert "weft.lang.source" in rooms["weft.lang.core"]
    assert_no_cycle({room: sorted(targets - {"weft"}) for room, targets in rooms.items()})


def room_of(module):
    """Return the folder of a module."""
    return module.rpartition(".")[0]


def test_cycles_are_found():
    with pytest.raises(AssertionError, match="import one another"):
        assert_no_cycle({"a": ["b"], "b": ["c"], "c": ["b"]})


def assert_no_cycle(graph):
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


def name_of(node):
    """Return the name that an expression is or ends in, None for others."""
    return node.id if isinstance(node, ast.Name) else getattr(node, "attr", None)


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
        for node in ast.walk(tree_of(file)):
            if isinstance(node, ast.Import):
                targets |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                assert node.level == 0, f"{relative(file)}: write imports in full"
                for alias in node.names:
                    name = f"{node.module}.{alias.name}"
                    targets.add(name if name in known else node.module)
            elif isinstance(node, ast.Call) and name_of(node.func) == "Late":
                targets.add(ast.literal_eval(node.args[0]))
        graph[module] = sorted(t for t in targets if t in known and t != module)
    return graph
