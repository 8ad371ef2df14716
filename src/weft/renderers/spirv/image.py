"""The image of a kernel: a line that describes it, then the words of its module.

In a `Source` the words are text; the compiler of the backend takes `image` of it.
"""

from __future__ import annotations

import base64
import binascii
from typing import Final

from weft.errors import CompileError

__all__ = ["image", "image_text", "module_of"]

_COLUMNS: Final = 76


def image_text(head: str, words: bytes) -> str:
    """Return the text of an image: its first line, and the words in base 64."""
    code = base64.b64encode(words).decode()
    rows = [code[k : k + _COLUMNS] for k in range(0, len(code), _COLUMNS)]
    return "\n".join([head, *rows, ""])


def image(text: str) -> bytes:
    """Return the bytes of an image from its text.

    Raises
    ------
    CompileError
        If the text is none.
    """
    head, _, code = text.partition("\n")
    try:
        words = base64.b64decode("".join(code.split()), validate=True)
    except (ValueError, binascii.Error) as error:
        raise CompileError("spirv", found=f"text that is no base 64: {error}",
                           expected="the words of a module behind a line that describes it"
                           ) from error  # fmt: skip
    return head.encode() + b"\n" + words


def module_of(image: bytes) -> bytes:
    """Return the words of the module in an image."""
    return image.partition(b"\n")[2]
