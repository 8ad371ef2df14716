"""Function objects whose calls are native: a class with a vectorcall slot, made at run time.

An instance holds the address of the code that runs when it is called (PEP 590). While that is 0,
Python calls its method ``__call__``; so a class that cannot be made leaves everything working.
Behind it lies a word for the code's own use, 0 at first.
"""

from __future__ import annotations

import ctypes
import sys
from array import array
from typing import Final

__all__ = ["VECTORCALL", "address_in", "check_slot", "context_at", "mixin", "native_class",
           "set_code", "set_context", "takes_code", "watched"]  # fmt: skip

_MEMBERS: Final = 72  # number of the slot tp_members in Python's stable interface
_SSIZE, _READONLY = 19, 1
_BASETYPE: Final = 1 << 10
_HAS_VECTORCALL: Final = 1 << 11
_WORD: Final = 8
VECTORCALL: Final = 7 * _WORD  # where a type keeps the place of its instances' code


# One word: not 0 while some thread is to see each launch before it runs.
watched: Final = array("q", [0])


class _Member(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p), ("kind", ctypes.c_int), ("offset", ctypes.c_ssize_t),
        ("flags", ctypes.c_int), ("doc", ctypes.c_char_p),
    )  # fmt: skip


class _Slot(ctypes.Structure):
    _fields_ = (("slot", ctypes.c_int), ("function", ctypes.c_void_p))


class _Spec(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p), ("basicsize", ctypes.c_int), ("itemsize", ctypes.c_int),
        ("flags", ctypes.c_uint), ("slots", ctypes.POINTER(_Slot)),
    )  # fmt: skip


_specs: Final[list[object]] = []  # types may point at what they were made from


def native_class(base: type) -> type:
    """Return a class like `base` whose instances can have native code to call.

    `base` itself where the interpreter allows none. Its method ``__call__`` stays for instances
    without code.
    """
    if sys.implementation.name != "cpython" or "t" in getattr(sys, "abiflags", ""):
        return base
    if ctypes.sizeof(ctypes.c_void_p) != _WORD:
        return base
    size: int = base.__basicsize__
    members = (_Member * 2)(_Member(b"__vectorcalloffset__", _SSIZE, size, _READONLY, None))
    _specs.append(members)
    try:
        return _made(f"{base.__module__}.{base.__name__}", size + 2 * _WORD, _HAS_VECTORCALL,
                     _MEMBERS, ctypes.addressof(members), (base,))  # fmt: skip
    except (TypeError, SystemError):
        return base


def mixin(name: str, slot: int, function: int) -> type:
    """Return a class that has nothing but one native slot."""
    return _made(f"weft.{name}", 0, _BASETYPE, slot, function, (object,))


def _made(name: str, size: int, flags: int, slot: int, value: int, bases: tuple[type, ...]) -> type:
    """Return a class with one slot."""
    slots = (_Slot * 2)(_Slot(slot, value))
    spec = _Spec(name.encode(), size, 0, flags, slots)
    _specs.append((slots, spec))
    make = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.py_object)(
        ("PyType_FromSpecWithBases", ctypes.pythonapi))
    made: type = make(ctypes.addressof(spec), bases)
    return made


def set_code(instance: object, base: type, address: int) -> None:
    """Let calls of an instance of ``native_class(base)`` go to a vectorcall function."""
    if type(instance) is not base:
        ctypes.c_void_p.from_address(id(instance) + base.__basicsize__).value = address


def address_in(instance: object, base: type) -> int:
    """Return the address of the code of an instance, 0 if it has none."""
    if type(instance) is base:
        return 0
    return ctypes.c_void_p.from_address(id(instance) + base.__basicsize__).value or 0


def context_at(base: type) -> int:
    """Return where the code's own word lies in instances of ``native_class(base)``."""
    return base.__basicsize__ + _WORD


def set_context(instance: object, base: type, address: int) -> None:
    """Set the code's own word of an instance of ``native_class(base)``."""
    ctypes.c_void_p.from_address(id(instance) + context_at(base)).value = address


def takes_code(kind: type) -> bool:
    """Whether a class was made by `native_class`."""
    return bool(kind.__flags__ & _HAS_VECTORCALL)


def check_slot(base: type) -> bool:
    """Whether types keep the place of their instances' code where `VECTORCALL` says."""
    made = native_class(base)
    if made is base:
        return False
    found = ctypes.c_int64.from_address(id(made) + VECTORCALL).value
    return found == base.__basicsize__
