"""The text of an image program as a tree, and places in it."""

from __future__ import annotations

import functools
from pathlib import Path

import lark

_NESTED = 200  # parentheses, blocks and operators inside each other

_WORDS = {
    "NAME": "a name", "STRING": 'a file name such as "photo.jpg"', "SIZE": "a size such as 800x600",
    "INT": "a number", "FLOAT": "a number", "SUM": "+ or -", "TERM": "* / or %",
    "COMPARE": "a comparison", "TRUTH": "true or false", "LBRACE": "{", "RBRACE": "}",
    "LPAR": "(", "RPAR": ")", "LSQB": "[", "RSQB": "]", "EQUAL": "=", "COMMA": ",", "AT": "@",
    "__ANON_0": "..", "$END": "the end of the file",
}  # fmt: skip


@functools.cache
def parser():
    """Return the parser of the grammar beside this file."""
    text = (Path(__file__).parent / "grammar.lark").read_text()
    return lark.Lark(text, parser="lalr", propagate_positions=True, maybe_placeholders=True)


def parse(text, file, errors):
    """Return the statements of a program; what does not follow the grammar becomes an error."""
    try:
        tree = parser().parse(text)
    except lark.exceptions.UnexpectedInput as error:
        line, column = max(error.line, 1), max(error.column, 1)
        if isinstance(error, lark.exceptions.UnexpectedToken):
            wide = len(str(error.token)) or 1
            found = f"found {str(error.token)!r}" if error.token else "the program ends here"
            if error.token.type == "$END":
                lines = text.splitlines() or [""]
                found, line, column = "the program ends here", len(lines), len(lines[-1]) + 1
            words = error.accepts or error.expected
            expected = sorted({_WORDS.get(w, w.strip("_").lower()) for w in words})
            hint = "expected " + ", ".join(expected[:12])
        else:
            wide, found, hint = 1, f"the character {text[error.pos_in_stream]!r} means nothing", ""
        errors.note(found, (file, line, column, column + wide), hint)
        return []
    found = []
    for statement in tree.children:
        if _depth(statement) > _NESTED:
            errors.note(f"more than {_NESTED} levels of nesting", at(statement, file))
        else:
            found.append(statement)
    return found


def at(node, file):
    """Return the place of a node or a word, for ``at=``."""
    meta = node if isinstance(node, lark.Token) else node.meta
    if not hasattr(meta, "line"):
        return (file, 1)
    if meta.end_line == meta.line:
        return (file, meta.line, meta.column, meta.end_column)
    return (file, meta.line, meta.column)


def _depth(tree):
    most, stack = 0, [(tree, 1)]
    while stack:
        node, depth = stack.pop()
        most = max(most, depth)
        stack.extend((c, depth + 1) for c in node.children if isinstance(c, lark.Tree))
    return most
