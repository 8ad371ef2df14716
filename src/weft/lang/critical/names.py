"""Names in C of functions and of what they take."""

from __future__ import annotations

import keyword
import math
from collections.abc import Iterable
from typing import Final

__all__ = ["identifiers", "symbol"]

# Words of C and C++, which read the same header.
_WORDS: Final = frozenset({
    *keyword.kwlist, "alignas", "alignof", "asm", "auto", "bool", "case", "catch", "char",
    "compl", "const", "constexpr", "decltype", "default", "delete", "do", "double", "enum",
    "explicit", "export", "extern", "false", "float", "friend", "goto", "inline", "int", "long",
    "mutable", "namespace", "new", "noexcept", "nullptr", "operator", "private", "protected",
    "public", "register", "requires", "restrict", "short", "signed", "sizeof", "static", "struct",
    "switch", "template", "this", "throw", "true", "typedef", "typeid", "typename", "typeof",
    "union", "unsigned", "using", "virtual", "void", "volatile", "xor", "bitand", "bitor",
})  # fmt: skip

# Functions of its library that compilers know by name.
_LIBRARY: Final = frozenset({
    "main", "abs", "labs", "malloc", "free", "calloc", "realloc", "printf", "puts", "memcpy",
    "memset", "memmove", "memcmp", "strlen", "exit", "hypot", "round", "roundeven", "rint",
    "log1p", "exp2", "fma", "fmax", "fmin", *dir(math),
})  # fmt: skip


def _plain(name: str) -> str:
    letters = "".join(c if c.isascii() and (c.isalnum() or c == "_") else f"_{ord(c):x}"
                      for c in name)
    return f"_{letters}" if letters[:1].isdigit() else letters


def symbol(name: str) -> str:
    """Return the name in C of a function."""
    plain = _plain(name)
    return plain + "_" if plain in _WORDS or plain in _LIBRARY else plain


def identifiers(names: Iterable[str], taken: Iterable[str] = ()) -> list[str]:
    """Return the names in C of the parameters of one function, each another one.

    Parameters
    ----------
    names
        What the parameters are called.
    taken
        Names that the function has for something else.
    """
    used = set(taken) | _WORDS
    made = []
    for name in names:
        plain = _plain(name.replace(".", "_"))
        while plain in used:
            plain += "_"
        used.add(plain)
        made.append(plain)
    return made
