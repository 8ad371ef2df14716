"""The text that a function was made of.

Files change while a program runs: an editor saves them, a new version is installed. Python goes on
with what it has read, so a kernel must, too. The text of a kernel is kept when it is decorated, and
what is read later is compiled and compared with the function. So is each lambda of a line.
"""

from __future__ import annotations
import __future__

import ast
import inspect
import linecache
import os
import textwrap
from collections.abc import Callable, Iterator, Sequence
from types import CodeType
from typing import Any, Final
from weakref import WeakKeyDictionary

from weft.errors import KernelError
from weft.lang.source.interactive import note, same, shown, typed
from weft.lang.source.source_audit import heard, parsed, unaudited

__all__ = ["definition_of", "keep"]

_FUTURE: Final = __future__.annotations.compiler_flag

Found = tuple[ast.stmt, str]

# lines of the file of a function as they were when it was made, or when it was first read
_kept: Final[WeakKeyDictionary[Callable[..., Any], Sequence[str]]] = WeakKeyDictionary()

# texts that a function without a file may be made of, as they were known when it was decorated
_compiled: Final[WeakKeyDictionary[Callable[..., Any], list[str]]] = WeakKeyDictionary()


def keep(function: Any) -> None:
    """Keep the text of a function that is being decorated."""
    note(function)
    if not inspect.isfunction(function):
        return
    lines = linecache.getlines(function.__code__.co_filename, function.__globals__)
    if lines:
        _kept[function] = lines
    elif not os.path.isfile(function.__code__.co_filename):
        _compiled[function] = heard(function.__code__.co_name)


def definition_of(function: Callable[..., Any]) -> Found:
    """Return the definition of a function, with places in its file, and the name of the file.

    Raises
    ------
    KernelError
        If Python does not have its text, or not any more.
    """
    code: CodeType = function.__code__
    changed = os.path.isfile(code.co_filename)
    for lines in _texts(function):
        found = _in_lines(lines, code)
        if found is not None:
            _kept[function] = lines
            return found, shown(code.co_filename, lines, 1)
    by_hand = typed(function)
    if by_hand is not None:
        rest, first, file = by_hand
        return _moved(textwrap.dedent("".join(rest)), rest, first), file
    for text in () if changed else _compiled.get(function) or heard(code.co_name):
        lines = text.splitlines(keepends=True)
        found = _in_file(lines, code, placed=False)
        if found is not None:
            return found, shown(code.co_filename, lines, 1)
    where = (code.co_filename, code.co_firstlineno, "")
    title = f"kernel {function.__name__}"
    if changed:
        raise KernelError(title, found="a file that has changed since Python read the function",
                          expected="the text that it was made of",
                          hint="reload the module, or start again", where=where)
    raise KernelError(title, found="a function without its source",
                      expected="a function that stands in a file, a notebook or a console",
                      hint=_hint(code.co_filename),
                      where=where)


def _hint(name: str) -> str:
    if name == "<stdin>":
        return "Python does not keep what it reads from a pipe: write it to a file and run that"
    return ("write it to a file, put its text into linecache.cache, or decorate it where "
            "a variable holds its text")


def _texts(function: Callable[..., Any]) -> Iterator[Sequence[str]]:
    """Yield the lines of the file of a function: those that were kept, those of today."""
    kept = _kept.get(function)
    if kept:
        yield kept
    try:
        lines, _ = inspect.findsource(function)
    except (OSError, TypeError):
        return
    if lines is not kept:
        yield lines


def _in_lines(lines: Sequence[str], code: CodeType) -> ast.stmt | None:
    """Return the definition in a file that has given a code, or None if it has not."""
    if code.co_name != "<lambda>":
        for cut in (_block, _block_of_tokens):
            try:
                rest = cut(lines, code)
                made = _moved(textwrap.dedent("".join(rest)), rest, code.co_firstlineno)
                if _has_given(made, code):
                    return made
            except (SyntaxError, IndexError, ValueError):
                continue
    return _in_file(lines, code)  # such as one whose text goes on to the left of it


def _block(lines: Sequence[str], code: CodeType) -> Sequence[str]:
    """Return the lines of a definition: to the last that has given code, and what is indented on.

    That may cut an odd text short, which then is not what gave the code; to ask Python's tokenizer
    takes 3 ms when it is asked first.
    """
    first = code.co_firstlineno - 1
    last, codes = first + 1, [code]
    for part in codes:
        codes.extend(c for c in part.co_consts if isinstance(c, CodeType))
        last = max(last, *(end or start or 0 for start, end, _, _ in part.co_positions()))
    indent = len(lines[first]) - len(lines[first].lstrip())
    while last < len(lines):
        rest = lines[last].lstrip()
        if rest and not rest.startswith("#") and len(lines[last]) - len(rest) <= indent:
            break
        last += 1
    return lines[first:last]


def _block_of_tokens(lines: Sequence[str], code: CodeType) -> Sequence[str]:
    return inspect.getblock(list(lines[code.co_firstlineno - 1:]))


def _moved(text: str, lines: Sequence[str], first: int) -> ast.stmt:
    """Return the statement of a text, with places in the file whose lines it is cut from."""
    made = parsed(text).body[0]
    indent = len(lines[0]) - len(lines[0].lstrip())
    for node in ast.walk(made):
        if hasattr(node, "lineno"):
            node.lineno += first - 1
            node.col_offset += indent  # type: ignore[attr-defined]
        if getattr(node, "end_lineno", None) is not None:
            node.end_lineno += first - 1  # type: ignore[attr-defined]
            node.end_col_offset += indent  # type: ignore[attr-defined]
    return made


def _in_file(lines: Sequence[str], code: CodeType, placed: bool = True) -> ast.stmt | None:
    """Return the definition of a function among all of a file; a lambda returns its value.

    If not `placed`, it may stand on any line: a syntax tree need not say where it came from.
    """
    try:
        tree = parsed("".join(lines))
    except (SyntaxError, ValueError):
        return None
    for node in ast.walk(tree):
        if isinstance(node, ast.Lambda) and (
            node.lineno == code.co_firstlineno or not placed
        ):
            if _has_given(ast.copy_location(ast.Return(node), node), code):
                body = ast.copy_location(ast.Return(node.body), node)
                made = ast.FunctionDef("lambda_", node.args, [body], [])
                return ast.fix_missing_locations(ast.copy_location(made, node))
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
            if (first == code.co_firstlineno or not placed) and _has_given(node, code):
                return node
    return None


def _has_given(stmt: ast.stmt, code: CodeType) -> bool:
    """Whether a statement is what a code was compiled from, as far as that can be told."""
    if any(name.startswith("@") for name in (*code.co_names, *code.co_varnames)):
        return True  # rewritten: pytest does that to assertions, under names that Python lacks
    if isinstance(stmt, ast.FunctionDef | ast.AsyncFunctionDef):
        if stmt.name != code.co_name:
            return False
        plain = type(stmt)(stmt.name, stmt.args, stmt.body, [])
        stmt = ast.fix_missing_locations(ast.copy_location(plain, stmt))
    outer = parsed(f"def _({', '.join(code.co_freevars)}): pass")
    assert isinstance(outer.body[0], ast.FunctionDef)
    outer.body[0].body = [stmt]
    if isinstance(stmt, ast.FunctionDef) and stmt.name not in code.co_freevars:
        own = ast.fix_missing_locations(ast.copy_location(ast.Global([stmt.name]), stmt))
        outer.body[0].body.insert(0, own)  # it may call itself
    try:
        made = compile(unaudited(outer), code.co_filename, "exec", code.co_flags & _FUTURE,
                       dont_inherit=True)
    except (SyntaxError, ValueError):
        return False
    around = next(c for c in made.co_consts if isinstance(c, CodeType))
    inner = [c for c in around.co_consts if isinstance(c, CodeType)]
    mangled = "." in code.co_qualname and any(  # names of classes, which stand around
        n.startswith("_") and "__" in n for n in (*code.co_names, *code.co_varnames))
    return mangled or any(same(c, code) for c in inner)
