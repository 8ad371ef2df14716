"""Images of Vulkan devices with another head or other words."""

import json

from driver_images import add, check, get, image, numbers, put, spin, total

__all__ = ["add", "changed", "check", "get", "image", "numbers", "put", "spin", "total"]


def changed(code, words=None, **said):
    """Return an image whose first line says something else, or with other words."""
    line, _, body = code.image.partition(b"\n")
    head = json.loads(line.removeprefix(b"// weft ")) | said
    body = body if words is None else words
    return code._replace(image=f"// weft {json.dumps(head)}\n".encode() + body)
