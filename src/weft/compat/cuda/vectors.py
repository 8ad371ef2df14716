"""The vector types of CUDA in kernels: ``cuda.float32x4(x, y, z, w)``, also ``cuda.float4``."""

from __future__ import annotations

from typing import Any, Final

from weft.compat import numba_types
from weft.compat.numba_types import NumbaType

__all__ = ["VECTORS", "Vector"]

_SCALARS: Final = {
    "int8": "char", "int16": "short", "int32": "int", "int64": "longlong long", "uint8": "uchar",
    "uint16": "ushort", "uint32": "uint", "uint64": "ulonglong ulong", "float32": "float",
    "float64": "double",
}  # fmt: skip


class Vector:
    """A vector type. In a kernel a call of it makes a vector, of numbers and of shorter vectors.

    Attributes
    ----------
    element : NumbaType
        The type of its parts.
    names : tuple of str
        Their names: x, y, z, w.
    aliases : tuple of str
        Other names of the type.
    """

    def __init__(self, name: str, element: NumbaType, count: int,
                 aliases: tuple[str, ...]) -> None:  # fmt: skip
        self.__name__, self.element = name, element
        self.names = tuple("xyzw"[:count])
        self.aliases = aliases

    name = property(lambda self: self.__name__)
    base_type = property(lambda self: self.element)
    attr_names = property(lambda self: self.names)
    num_elements = property(lambda self: len(self.names))
    user_facing_object = property(lambda self: self)

    def __weft_call__(self, reader: Any, args: list[Any], node: Any) -> Any:
        """Return the vector that a call in a kernel makes."""
        from weft.lang.library.constructors import vector  # whoever reads a kernel has it

        dtype = self.element.__weft_dtype__
        assert dtype is not None
        return vector(reader, self, self.names, dtype, args, node)

    def __repr__(self) -> str:
        return f"<vector {self.__name__}>"


VECTORS: Final[dict[str, Vector]] = {}
for _name, _words in _SCALARS.items():
    for _count in (1, 2, 3, 4):
        _aliases = tuple(f"{_word}{_count}" for _word in _words.split())
        _made = Vector(f"{_name}x{_count}", getattr(numba_types, _name), _count, _aliases)
        VECTORS.update(dict.fromkeys((_made.__name__, *_aliases), _made))
