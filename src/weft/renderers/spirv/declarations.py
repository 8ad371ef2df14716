"""Types, constants and variables of a SPIR-V module, each declared once.

Values have one of a few kinds: ``bool``, unsigned words ``u8`` to ``u64`` (operations that care
about a sign say so themselves), and floats ``f32`` and ``f64``.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from typing import Final

from weft.errors import UnsupportedError
from weft.ir import dtype as dt
from weft.renderers.base import encode_float
from weft.renderers.spirv import opcodes as spv

__all__ = ["Declarations", "instruction", "text_words"]

_KINDS: Final = {"u8": (spv.TYPE_INT, 8, 0), "u16": (spv.TYPE_INT, 16, 0),
                 "u32": (spv.TYPE_INT, 32, 0), "u64": (spv.TYPE_INT, 64, 0),
                 "f32": (spv.TYPE_FLOAT, 32), "f64": (spv.TYPE_FLOAT, 64)}  # fmt: skip
# What kinds need of the device: capability, and the names of Vulkan of which one must be there.
_NEEDS: Final = {"u64": (spv.INT64, ("shaderInt64",)), "f64": (spv.FLOAT64, ("shaderFloat64",))}


class Declarations:
    """What stands before the functions of a module.

    Parameters
    ----------
    has : callable
        Whether the device has a feature, by its name in Vulkan (``shaderInt64``).
    device : str
        What errors call the device.
    """

    def __init__(self, has: Callable[[str], bool], device: str) -> None:
        self.has, self.device = has, device
        self.count = 0
        self.capabilities: dict[int, None] = {}
        self.annotations: list[int] = []
        self.globals: list[int] = []  # types, constants, variables
        self._made: dict[tuple[object, ...], int] = {}
        self.glsl = self.id()
        self.capability(spv.SHADER)
        self.capability(spv.PHYSICAL_ADDRESSES)

    def id(self) -> int:
        """Return a new id."""
        self.count += 1
        return self.count

    def capability(self, number: int, *features: str) -> None:
        """Declare a capability.

        Raises
        ------
        UnsupportedError
            If the device has none of the features that bring it.
        """
        if features and not any(map(self.has, features)):
            raise UnsupportedError(self.device, found=f"a kernel that needs {features[0]}",
                                   expected="what the driver of the device reports")
        self.capabilities[number] = None

    def decorate(self, target: int, *words: int) -> None:
        """Decorate an id."""
        self.annotations += instruction(spv.DECORATE, target, *words)

    # types, constants, variables

    def _once(self, key: tuple[object, ...], opcode: int, words: Iterable[int],
              typed: int | None = None) -> int:  # fmt: skip
        found = self._made.get(key)
        if found is None:
            found = self._made[key] = self.id()
            ids = (found,) if typed is None else (typed, found)
            self.globals += instruction(opcode, *ids, *words)
        return found

    def type(self, kind: str) -> int:
        """Return the type of a kind: ``bool``, ``void``, ``u32``..."""
        need = _NEEDS.get(kind)
        if need is not None:
            self.capability(need[0], *need[1])
        if kind in _KINDS:
            opcode, *words = _KINDS[kind]
            return self._once((kind,), opcode, words)
        opcode = spv.TYPE_BOOL if kind == "bool" else spv.TYPE_VOID
        return self._once((kind,), opcode, ())

    def is_made(self, kind: str) -> bool:
        """Whether the module has a type of this kind."""
        return (kind,) in self._made

    def pointer(self, storage: int, pointee: int) -> int:
        """Return the type of a pointer."""
        return self._once(("pointer", storage, pointee), spv.TYPE_POINTER, (storage, pointee))

    def array(self, kind: str, size: int) -> int:
        """Return the type of an array of `size` elements."""
        length, element = self.constant("u32", size), self.type(kind)
        return self._once(("array", kind, size), spv.TYPE_ARRAY, (element, length))

    def function_type(self, result: str, params: tuple[str, ...]) -> int:
        """Return the type of a function."""
        types = [self.type(result), *map(self.type, params)]
        return self._once(("function", result, *params), spv.TYPE_FUNCTION, types)

    def constant(self, kind: str, value: float) -> int:
        """Return a constant; words are taken modulo their width, NaN is the quiet one."""
        typed = self.type(kind)
        if kind == "bool":
            opcode = spv.CONSTANT_TRUE if value else spv.CONSTANT_FALSE
            return self._once((kind, bool(value)), opcode, (), typed)
        words: tuple[int, ...]
        if kind == "f32":
            words = (encode_float(value, dt.float32),)
        elif kind == "f64":
            words = struct.unpack("<2I", struct.pack("<d", value))
        elif kind == "u64":
            bits = int(value) & 0xFFFFFFFFFFFFFFFF
            words = (bits & 0xFFFFFFFF, bits >> 32)
        else:
            words = (int(value) & ((1 << int(kind[1:])) - 1),)
        return self._once((kind, words), spv.CONSTANT, words, typed)

    def builtin(self, number: int) -> int:
        """Return the variable of a built-in vector of three words."""
        typed = self.pointer(spv.INPUT, self.vector(3))
        fresh = ("builtin", number) not in self._made
        made = self._once(("builtin", number), spv.VARIABLE, (spv.INPUT,), typed)
        if fresh:
            self.decorate(made, spv.BUILT_IN, number)
        return made

    def vector(self, size: int) -> int:
        """Return the type of a vector of words of 32 bits."""
        return self._once(("vector", size), spv.TYPE_VECTOR, (self.type("u32"), size))

    def pushed(self) -> int:
        """Return the variable of the pushed constant: one address."""
        fresh = ("pushed",) not in self._made
        block = self._once(("block",), spv.TYPE_STRUCT, (self.type("u64"),))
        typed = self.pointer(spv.PUSH_CONSTANT, block)
        made = self._once(("pushed",), spv.VARIABLE, (spv.PUSH_CONSTANT,), typed)
        if fresh:
            self.decorate(block, spv.BLOCK)
            self.annotations += instruction(spv.MEMBER_DECORATE, block, 0, spv.OFFSET, 0)
        return made

    def shared(self, kind: str, size: int) -> int:
        """Return a new array in the memory of a work-group."""
        typed = self.pointer(spv.WORKGROUP, self.array(kind, size))
        made = self.id()
        self.globals += instruction(spv.VARIABLE, typed, made, spv.WORKGROUP)
        return made


def instruction(opcode: int, *words: int) -> tuple[int, ...]:
    """Return the words of one instruction."""
    return ((len(words) + 1) << 16 | opcode, *words)


def text_words(text: str) -> tuple[int, ...]:
    """Return a string as words: UTF-8, with a zero at its end."""
    raw = text.encode() + b"\0"
    raw += b"\0" * (-len(raw) % 4)
    return struct.unpack(f"<{len(raw) // 4}I", raw)
