"""Where arrays of a kernel are, and how an element is read and written there.

Parameters and scratch memory are addresses of 64 bits (physical storage buffers). Private arrays
are variables of the function, those of a work-group variables of the module; their elements of 8
and 16 bits take a word each, unless the device has arithmetic of their width.
"""

from __future__ import annotations

from typing import Final

from weft.errors import UnsupportedError
from weft.ir import dtype as dt
from weft.ir.dtype import DType
from weft.renderers.spirv import opcodes as spv
from weft.renderers.spirv.function import Function, Term
from weft.renderers.spirv.module import Module
from weft.renderers.spirv.values import is_narrow, register

__all__ = ["Physical", "Place", "Private", "at", "read", "write"]

_STORAGE: Final = {"u8": (spv.STORAGE_8, "storageBuffer8BitAccess"),
                   "u16": (spv.STORAGE_16, "storageBuffer16BitAccess")}  # fmt: skip
_ARITHMETIC: Final = {"u8": (spv.INT8, "shaderInt8"), "u16": (spv.INT16, "shaderInt16")}


def at(f: Function, address: Term, kind: str) -> int:
    """Return a pointer to what is at an address."""
    module = f.module
    if kind in _STORAGE:
        module.capability(*_STORAGE[kind])
    typed = module.pointer(spv.PHYSICAL, module.type(kind))
    return f.typed(spv.CONVERT_U_TO_PTR, typed, address.id)


def read(f: Function, address: Term, kind: str) -> Term:
    """Return what is at an address, which is aligned to its size."""
    return f.emit(spv.LOAD, kind, at(f, address, kind), spv.ALIGNED, int(kind[1:]) // 8)


def write(f: Function, address: Term, value: Term) -> None:
    """Write to an address, which is aligned to the size of the value."""
    pointer = at(f, address, value.kind)
    f.effect(spv.STORE, pointer, value.id, spv.ALIGNED, int(value.kind[1:]) // 8)


class Place:
    """An array of elements of one type.

    Attributes
    ----------
    dtype : DType
        The type.
    element : str
        The kind of its elements in memory.
    """

    def __init__(self, dtype: DType, element: str) -> None:
        self.dtype, self.element = dtype, element

    def load(self, f: Function, offset: Term | int) -> Term:
        """Return an element as it is in a register."""
        return self.value(self.raw(f, offset))

    def store(self, f: Function, offset: Term | int, value: Term) -> None:
        """Write an element."""
        self.write(f, offset, self.stored(value))

    def raw(self, f: Function, offset: Term | int) -> Term:
        """Return an element as it is in memory."""
        raise UnsupportedError("render", found="an array without a place")

    def write(self, f: Function, offset: Term | int, value: Term) -> None:
        """Write an element as it is in memory."""
        raise UnsupportedError("render", found="an array without a place")

    def value(self, raw: Term) -> Term:
        """Return what was read as it is in registers."""
        d = self.dtype
        if d.is_bool:
            return raw.to("u32").ne(0)
        kind = register(d)
        if raw.kind in ("u8", "u16"):
            return raw.extended(kind) if d.kind == "i" else raw.to(kind)
        return raw.bitcast(kind)

    def stored(self, value: Term) -> Term:
        """Return what is in a register as it is in memory."""
        if self.dtype.is_bool:
            value = value.choose(value.f.const("u32", 1), 0)
        return value.to(self.element) if self.dtype.bits < 32 else value.bitcast(self.element)


class Physical(Place):
    """An array at an address."""

    def __init__(self, dtype: DType, address: Term) -> None:
        nbytes = dtype.itemsize
        is_word = is_narrow(dtype) or dtype.kind != "f"
        super().__init__(dtype, f"u{8 * nbytes}" if is_word else register(dtype))
        self.address, self.nbytes = address, nbytes

    def locate(self, offset: Term | int) -> Term:
        """Return the address of an element."""
        if isinstance(offset, int):
            return self.address + offset * self.nbytes if offset else self.address
        if offset.kind == "u32":
            offset = offset.extended("u64")
        shift = self.nbytes.bit_length() - 1
        return self.address + (offset << shift if shift else offset)

    def raw(self, f: Function, offset: Term | int) -> Term:
        """Return an element as it is in memory."""
        return read(f, self.locate(offset), self.element)

    def write(self, f: Function, offset: Term | int, value: Term) -> None:
        """Write an element as it is in memory."""
        write(f, self.locate(offset), value)


class Private(Place):
    """An array that is a variable of a work-item or of a work-group."""

    def __init__(self, dtype: DType, element: str, variable: int, storage: int) -> None:
        super().__init__(dtype, element)
        self.variable, self.storage = variable, storage

    @classmethod
    def declare(cls, f: Function, module: Module, dtype: DType, size: int, is_shared: bool,
                is_atomic: bool) -> Private:  # fmt: skip
        """Return a new array; one with atomic operations has words as elements."""
        element = register(dt.uint32 if dtype.bits < 32 else dtype)
        if dtype.bits >= 32 and is_atomic:
            element = f"u{dtype.bits}"
        narrow = f"u{8 * dtype.itemsize}"
        if is_shared and not is_atomic and narrow in _ARITHMETIC:
            capability, feature = _ARITHMETIC[narrow]
            if module.has(feature):
                module.capability(capability)
                element = narrow
        if is_shared:
            return cls(dtype, element, module.shared(element, max(size, 1)), spv.WORKGROUP)
        variable = f.declare(module.array(element, max(size, 1)))
        return cls(dtype, element, variable, spv.FUNCTION_CLASS)

    def over(self, dtype: DType) -> Private:
        """Return the same memory as an array of another type.

        Raises
        ------
        UnsupportedError
            If its elements have another size.
        """
        if dtype.itemsize != self.dtype.itemsize:
            raise UnsupportedError(
                "render", found=f"{dtype.name} in the memory of an array of {self.dtype.name}",
                expected="elements of one size in each array of a work-group or work-item")
        return Private(dtype, self.element, self.variable, self.storage)

    def pointer(self, f: Function, offset: Term | int) -> int:
        """Return a pointer to an element."""
        module = f.module
        typed = module.pointer(self.storage, module.type(self.element))
        index = f.const("u32", offset) if isinstance(offset, int) else offset.to("u32")
        return f.typed(spv.ACCESS_CHAIN, typed, self.variable, index.id)

    def raw(self, f: Function, offset: Term | int) -> Term:
        """Return an element as it is in memory."""
        return f.emit(spv.LOAD, self.element, self.pointer(f, offset))

    def write(self, f: Function, offset: Term | int, value: Term) -> None:
        """Write an element as it is in memory."""
        f.effect(spv.STORE, self.pointer(f, offset), value.id)
