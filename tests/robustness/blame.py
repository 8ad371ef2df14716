"""Demand that a call fails as an error should: typed, telling, and blaming the user's line."""

import pytest

from weft.errors import WeftError


def fails(kind, call, *parts, facts=True):
    """Call a function of a test; return the error it must raise.

    Its message names every one of `parts`, says what was found and expected (`facts`), and blames
    a line of the function itself.
    """
    with pytest.raises(kind) as caught:
        call()
    error = caught.value
    assert isinstance(error, WeftError), f"{type(error).__name__} is not one of Weft's: {error}"
    text = str(error)
    for part in parts:
        assert part in text, f"{part!r} is not in {text!r}"
    if facts:
        assert error.operation, text
        assert error.found, text
        assert error.expected, text
    blames(error, call)
    return error


def blames(error, call):
    """Assert that the error points at a line of `call`, and quotes it."""
    code = call.__code__
    lines = {line for _, _, line in code.co_lines() if line}
    assert error.where is not None, str(error)
    assert error.where.file == code.co_filename, str(error)
    assert error.where.line in lines, f"{error}: not one of the lines {sorted(lines)}"
    assert error.where.text, str(error)
    assert f"{error.where.file}:{error.where.line}" in str(error)
