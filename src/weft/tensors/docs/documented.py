"""Docstring sections that methods share: parameters, results, errors, by name.

Entries are in `weft.tensors.docs.parameters` and `weft.tensors.docs.results`. `documented` appends
sections to a class's methods, from tables whose rows are ``(parameters, result, errors, example)``:
names of entries, and the example itself. `fill_docstrings` expands a line ``{Parameters: dim
keepdim}``, ``{Returns: reduced}`` or ``{Raises: axis}`` in docstrings of a module to the section.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import FunctionType
from typing import Any, Final, TypeVar

from weft.errors import UnsupportedError
from weft.tensors.docs.parameters import PARAMETERS
from weft.tensors.docs.results import RAISES, RETURNS

__all__ = ["Field", "Row", "documented", "fill_docstrings", "misnamed", "of_function", "wrapping"]

C = TypeVar("C", bound=type)
F = TypeVar("F", bound=Callable[..., Any])
Field = str | tuple[str, ...]
Row = tuple[Field, str, Field, str]


def documented(kind: C, rows: Mapping[str, Row], entries: Mapping[str, str] = {}) -> C:
    r"""Append sections to the docstrings of a class's methods and properties.

    Parameters
    ----------
    kind : type
        The class that defines the methods.
    rows : mapping of str to Row
        For each method: keys of `PARAMETERS`, separated by spaces, an entry itself, or a tuple of
        these; a key of `RETURNS`, or the text; the same of `RAISES`; lines of a doctest. What is
        empty has no section.
    entries : mapping of str to str, optional
        Entries of the class's package, found before those of the tables.

    Returns
    -------
    type
        The class.

    Raises
    ------
    KeyError
        If the class has no such method, or a key is unknown.

    Examples
    --------
    >>> documented(TensorCore, {"dim": ("", "int", "", ">>> weft.ones(2).dim()\n1")})
    """
    members = vars(kind)
    arguments, results, failures = ({**table, **entries} if entries else table
                                    for table in (PARAMETERS, RETURNS, RAISES))
    for name, (parameters, result, errors, example) in rows.items():
        member = members[name]
        text = [(member.__doc__ or "").replace("\n        ", "\n").rstrip()]
        if parameters:
            text.append("Parameters\n----------\n" + _listed(parameters, arguments))
        if result:
            text.append("Returns\n-------\n" + results.get(result, result))
        if errors:
            text.append("Raises\n------\n" + _listed(errors, failures))
        text.append("Examples\n--------\n" + example)
        member.__doc__ = "\n\n".join(text)
    return kind


def _listed(field: Field, table: Mapping[str, str]) -> str:
    """Return the entries of a section; what has several lines is one itself."""
    parts = (field,) if isinstance(field, str) else field
    return "\n".join([entry for part in parts for entry in (
        (part,) if "\n" in part else [table[key] for key in part.split()])])


_TABLES: Final[dict[str, Mapping[str, str]]] = {
    "": PARAMETERS, "Parameters": PARAMETERS, "Returns": RETURNS, "Raises": RAISES,
    "Attributes": {},
}  # fmt: skip
_DOCUMENTED: Final = (FunctionType, property, type)
_OTHERS: Final = str.maketrans("", "", ":_ ")  # what references consist of beside letters


def fill_docstrings(names: Mapping[str, Any], entries: Mapping[str, str] = {}) -> None:
    r"""Expand references to shared entries in the docstrings of a module.

    A line ``{Raises: axis empty}`` becomes the section with these entries of `RAISES`; a line
    ``{dim keepdim}`` in a section of parameters becomes these entries of `PARAMETERS`.

    Parameters
    ----------
    names : mapping of str to object
        The module's ``globals()``: its functions, classes and their methods are expanded.
    entries : mapping of str to str, optional
        Entries that only this module shares, found before those of the tables.

    Raises
    ------
    KeyError
        If there is no such entry.

    Examples
    --------
    >>> def double(x):
    ...     r'''Return twice the number.\n\n    {Parameters: x}'''
    >>> fill_docstrings({"__name__": double.__module__, "f": double}, {"x": "x : float\n    It."})
    >>> double.__doc__.splitlines()[2:4]
    ['    Parameters', '    ----------']
    """
    module = names["__name__"]
    for value in list(names.values()):
        if getattr(value, "__module__", None) == module:
            for member in (value, *vars(value).values()) if isinstance(value, type) else (value,):
                if isinstance(member, _DOCUMENTED) and (text := member.__doc__) and "{" in text:
                    member.__doc__ = expanded = _expanded(text, entries)
                    inner = getattr(member, "__wrapped__", None)  # what documentation tools show
                    while inner is not None and inner.__doc__ == text:
                        inner.__doc__ = expanded
                        inner = getattr(inner, "__wrapped__", None)


def _expanded(text: str, entries: Mapping[str, str]) -> str:
    """Return a docstring with entries and sections in place of the lines that refer to them."""
    parts: list[str] = []
    done, at = 0, text.find("{")
    while at >= 0:
        end = text.find("\n", at)
        end = len(text) if end < 0 else end
        margin, inner = text[text.rfind("\n", 0, at) + 1 : at], text[at + 1 : end - 1]
        if text[end - 1] == "}" and not margin.strip() and inner.translate(_OTHERS).isalnum():
            section, _, keys = inner.rpartition(": ")
            table = _TABLES[section]
            found = [entries[key] if key in entries else table[key] for key in keys.split()]
            if section:
                found[:0] = [section, "-" * len(section)]
            parts += text[done:at], "\n".join(found).replace("\n", "\n" + margin)
            if section and text.startswith(margin + "{", end + 1):
                parts.append("\n")
            done = end
        at = text.find("{", end)
    return "".join([*parts, text[done:]])


def wrapping(made: F, function: Any, text: str | None = None) -> F:
    """Return a function that calls another, under the other's name, docstring and signature.

    What `functools.update_wrapper` does, but for the annotations, in a third of the time, of which
    the import has hundreds; `inspect.signature` finds them by ``__wrapped__``.

    Parameters
    ----------
    made : callable
        The function that calls.
    function : callable
        The one that is called.
    text : str, optional
        Another docstring.

    Returns
    -------
    callable
        `made`.

    Examples
    --------
    >>> wrapping(lambda *args: abs(*args), abs).__name__
    'abs'
    """
    made.__module__, made.__name__ = function.__module__, function.__name__
    made.__qualname__ = function.__qualname__
    made.__doc__ = function.__doc__ if text is None else text
    made.__dict__.update(getattr(function, "__dict__", ()), __wrapped__=function)
    return made


def misnamed(error: TypeError, function: Any, options: Mapping[str, object]) -> TypeError:
    """Return the error to raise for a call that Python refused, with what may have been meant.

    Parameters
    ----------
    error : TypeError
        What was caught in the function that called.
    function : callable
        What was called.
    options : mapping of str to object
        The keywords that it was given.

    Returns
    -------
    TypeError
        `error` itself, unless a keyword is unknown.

    Examples
    --------
    >>> misnamed(TypeError("no"), len, {}).args
    ('no',)
    """
    trace = error.__traceback__
    if trace is None or trace.tb_next is not None:  # it arose in the function
        return error
    import inspect  # which NumPy has imported

    found = inspect.signature(function).parameters
    unknown = [name for name in options if name not in found]
    if not unknown or any(p.kind is p.VAR_KEYWORD for p in found.values()):
        return error
    names = [n for n in found if n != "self"]
    from difflib import get_close_matches

    close = get_close_matches(unknown[0], names, 1)
    return UnsupportedError(
        function.__name__, found=f"{unknown[0]}=", expected=", ".join(f"{n}=" for n in names),
        hint=f"did you mean {close[0]}=?" if close else None)


def of_function(text: str) -> str:
    r"""Return a method's docstring with an entry for its tensor, which functions take first.

    Parameters
    ----------
    text : str
        With a section of parameters or none, indented as it may be.

    Returns
    -------
    str
        The same, with an entry ``self`` that comes first.

    Examples
    --------
    >>> of_function("Return it.\\n\\nReturns\\n-------\\nTensor").splitlines()[4]
    'self : Tensor, array, nested list or number'
    """
    for title, entry in _ENTRIES:
        if title in text:
            return text.replace(title, entry, 1)
    return text


def _entries(margin: str) -> list[tuple[str, str]]:
    """Return the headings that an entry can stand before, at a margin, and both together."""
    first = f"\n\n{margin}Parameters\n{margin}----------\n"
    entry = (f"{first}{margin}self : Tensor, array, nested list or number\n"
             f"{margin}    Converted to a tensor; arrays are copied.\n")  # fmt: skip
    others = [f"\n{margin}{title}\n{margin}---" for title in ("Returns", "Raises", "Examples")]
    return [(first, entry), *((title, entry[1:] + title) for title in others)]


_ENTRIES: Final = [
    row for rows in zip(_entries(""), _entries("        "), strict=True) for row in rows]
