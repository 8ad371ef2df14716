"""A small language for pictures, built on ``weft.build``: see README.md."""

from __future__ import annotations

from weft import build

__all__ = ["language"]


def language(path):
    """Translate a file of the image language; what ``weft compile photo.img`` calls."""
    from examples.imagepipe.program import translate

    return translate(path)


build.register(".img", language)
