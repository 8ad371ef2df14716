"""Print the requirements of docs/design/requirements.md with the tests that are named after each.

A test shows a row if its name begins with the row's number: ``test_A7_accounts_are_exact``. Rows
may have other tests; a row without any of its name is printed as such.
"""

import ast
import functools
import re
from pathlib import Path

TESTS = Path(__file__).parent
ROW = re.compile(r"\| ([A-H]\d+) \| (.*?) \|")
NAME = re.compile(r"test_([A-H]\d+)_")
DEFINED = re.compile(r"\bdef test_[A-H]\d+_")


def requirements():
    """Return the text of each row by its number."""
    text = (TESTS.parent / "docs" / "design" / "requirements.md").read_text("utf-8")
    return dict(m.groups() for m in map(ROW.match, text.splitlines()) if m)


@functools.cache
def named():
    """Return the tests that are named after each row: file and name."""
    found = {}
    for file in sorted(TESTS.rglob("test_*.py")):
        text = file.read_text("utf-8")
        for node in ast.walk(ast.parse(text)) if DEFINED.search(text) else ():
            if isinstance(node, ast.FunctionDef) and (match := NAME.match(node.name)):
                found.setdefault(match[1], []).append((file.relative_to(TESTS), node.name))
    return found


def table():
    """Return the table as text: a line for each row, and one for each of its tests."""
    tests = named()
    lines = []
    for row, text in requirements().items():
        lines.append(f"{row:4} {text[:90]}{'…' * (len(text) > 90)}")
        lines += [f"       {file}: {name}" for file, name in tests.get(row, ())]
        if row not in tests:
            lines.append("       no test of its name")
    return "\n".join(lines)


if __name__ == "__main__":
    print(table())
