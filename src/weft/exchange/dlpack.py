"""DLPack, plain and versioned, in and out.

NumPy speaks DLPack for its own types; the types that it lacks (bfloat16, the 8-bit floats) are
read and written here, from the structures of ``dlpack.h`` 1.1.
"""

import ctypes
from typing import Any, Final

import numpy as np

from weft.errors import DeviceError, DTypeError
from weft.ir import dtype as dt
from weft.ir.dtype import DType

__all__ = ["CPU", "code_of", "consume", "exchange_function", "produce"]

CPU: Final = (1, 0)  # kDLCPU, ordinal
_HOST_DEVICES: Final = (1, 3, 11)  # kDLCPU, kDLCUDAHost, kDLROCMHost: memory the CPU may read
_READ_ONLY: Final = 1
_COPIED: Final = 2
_CODES: Final = {0: "i", 1: "u", 2: "f", 6: "b"}
_NARROW: Final = {
    (4, 16): dt.bfloat16, (10, 8): dt.float8_e4m3fn, (12, 8): dt.float8_e5m2,
}  # fmt: skip


class _Device(ctypes.Structure):
    _fields_ = (("type", ctypes.c_int32), ("id", ctypes.c_int32))


class _DataType(ctypes.Structure):
    _fields_ = (("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16))


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p), ("device", _Device), ("ndim", ctypes.c_int32),
        ("dtype", _DataType), ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)), ("byte_offset", ctypes.c_uint64),
    )  # fmt: skip


_Deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class _Managed(ctypes.Structure):
    _fields_ = (("tensor", _Tensor), ("context", ctypes.c_void_p), ("deleter", _Deleter))


class _ManagedVersioned(ctypes.Structure):
    _fields_ = (
        ("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("context", ctypes.c_void_p),
        ("deleter", _Deleter), ("flags", ctypes.c_uint64), ("tensor", _Tensor),
    )  # fmt: skip


_api: Final = ctypes.pythonapi
_capsule_new = _api.PyCapsule_New
_capsule_new.restype, _capsule_new.argtypes = ctypes.py_object, (
    ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)  # fmt: skip
_capsule_pointer = _api.PyCapsule_GetPointer
_capsule_pointer.restype, _capsule_pointer.argtypes = ctypes.c_void_p, (
    ctypes.py_object, ctypes.c_char_p)  # fmt: skip
_capsule_rename = _api.PyCapsule_SetName
_capsule_rename.argtypes = (ctypes.py_object, ctypes.c_char_p)
_capsule_is = _api.PyCapsule_IsValid
_capsule_is.argtypes = (ctypes.py_object, ctypes.c_char_p)

# What an exported capsule needs, by the address of its managed structure, until its deleter runs.
_exported: dict[int, tuple[Any, ...]] = {}
_COMPLEX: Final = 5
_PLAIN: Final = b"dltensor"
_VERSIONED: Final = b"dltensor_versioned"


def _forget(address: int) -> None:
    _exported.pop(address, None)


_forget_callback: Final = _Deleter(_forget)
_CapsuleDestructor = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


def _dropped(capsule: int) -> None:
    """Free what nobody consumed; a consumed capsule has another name."""
    for name in (_PLAIN, _VERSIONED):
        if _raw_is(capsule, name):
            _exported.pop(_raw_pointer(capsule, name), None)


_raw_is = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p)(
    ("PyCapsule_IsValid", _api))
_raw_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", _api))
_dropped_callback: Final = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)(_dropped)


def produce(array: np.ndarray[Any, Any], dtype: DType, max_version: tuple[int, int] | None,
            copied: bool) -> Any:  # fmt: skip
    """Return a capsule over the memory of `array` (which the capsule keeps alive).

    A versioned capsule is made when the consumer's `max_version` asks for it; only that one can
    say that the memory is read-only.
    """
    versioned = max_version is not None and max_version[0] >= 1
    managed = _ManagedVersioned() if versioned else _Managed()
    n = array.ndim
    shape = (ctypes.c_int64 * max(n, 1))(*array.shape)
    strides = (ctypes.c_int64 * max(n, 1))(*(s // array.itemsize for s in array.strides))
    tensor = managed.tensor
    tensor.data = array.__array_interface__["data"][0] if array.size else None
    tensor.device = _Device(*CPU)
    tensor.ndim = n
    tensor.dtype = _DataType(*_code(dtype), 1)
    tensor.shape, tensor.strides = shape, strides
    managed.deleter = _forget_callback
    if isinstance(managed, _ManagedVersioned):
        managed.major, managed.minor = 1, 0
        managed.flags = (0 if array.flags.writeable else _READ_ONLY) | (_COPIED if copied else 0)
    address = ctypes.addressof(managed)
    _exported[address] = (managed, array, shape, strides)
    name = _VERSIONED if versioned else _PLAIN
    return _capsule_new(address, name, ctypes.cast(_dropped_callback, ctypes.c_void_p))


def _code(dtype: DType) -> tuple[int, int]:
    for (code, bits), narrow in _NARROW.items():
        if narrow is dtype:
            return code, bits
    return {"i": 0, "u": 1, "f": 2, "b": 6}[dtype.kind], dtype.itemsize * 8


class _Imported:
    """Memory of another library, given back when the last array over it is gone."""

    __slots__ = ("__array_interface__", "_address", "_kind")

    def __init__(self, address: int, kind: type[ctypes.Structure],
                 interface: dict[str, Any]) -> None:  # fmt: skip
        self._address, self._kind, self.__array_interface__ = address, kind, interface

    def __del__(self) -> None:
        deleter = self._kind.from_address(self._address).deleter
        if deleter:
            deleter(self._address)


def _nothing(value: Any, error: Exception) -> DTypeError:
    found = f"a {type(value).__name__} that exports nothing: {error}"
    return DTypeError("from_dlpack", found=found, expected="an array of numbers")


def consume(value: Any) -> np.ndarray[Any, Any]:
    """Return an array over the memory of a DLPack producer, without a copy.

    Raises
    ------
    DeviceError
        If the memory is not the host's, or its elements are not what the producer means.
    DTypeError
        If Weft has no such element type.
    """
    turned = getattr(value, "is_neg", None)
    if turned is not None and turned() is True:  # which PyTorch exports as it lies in memory
        raise DeviceError("from_dlpack", found="a tensor whose sign PyTorch still has to turn",
                          expected="elements as they are", hint="x.resolve_neg()")
    try:
        device = value.__dlpack_device__()
    except Exception as error:  # whatever another library says of what it cannot export
        raise _nothing(value, error) from None
    if device[0] not in _HOST_DEVICES:
        raise DeviceError("from_dlpack", found=f"memory of the DLPack device {device}",
                          expected="host memory")
    try:
        try:
            capsule = value.__dlpack__(max_version=(1, 1))
        except (TypeError, BufferError):
            capsule = value.__dlpack__()
    except Exception as error:
        raise _nothing(value, error) from None
    versioned = bool(_capsule_is(capsule, _VERSIONED))
    kind: type[ctypes.Structure] = _ManagedVersioned if versioned else _Managed
    address = _capsule_pointer(capsule, _VERSIONED if versioned else _PLAIN)
    managed: Any = kind.from_address(address)
    tensor = managed.tensor
    dtype = _dtype(tensor.dtype)
    element = dtype.numpy if isinstance(dtype, DType) else dtype
    shape = tuple(tensor.shape[i] for i in range(tensor.ndim))
    read_only = bool(versioned and managed.flags & _READ_ONLY)
    interface: dict[str, Any] = {
        "data": ((tensor.data or 0) + tensor.byte_offset, read_only),
        "typestr": f"<u{dtype.itemsize}" if isinstance(dtype, DType) and dtype.is_float
        and dtype.itemsize * 8 == dtype.bits < 32 else element.str,
        "shape": shape,
        "version": 3,
    }
    if tensor.strides:
        interface["strides"] = tuple(tensor.strides[i] * dtype.itemsize for i in range(tensor.ndim))
    _capsule_rename(capsule, b"used_dltensor_versioned" if versioned else b"used_dltensor")
    owner = _Imported(address, kind, interface)
    if 0 in shape:
        return np.empty(shape, element)
    return np.asarray(owner).view(element)


def _dtype(found: Any) -> DType | np.dtype[Any]:
    """Return a type of elements; complex ones, which only kernels take, are NumPy's."""
    narrow = _NARROW.get((found.code, found.bits))
    if narrow is not None and found.lanes == 1:
        return narrow
    if found.code == _COMPLEX and found.bits in (64, 128) and found.lanes == 1:
        return np.dtype(f"<c{found.bits // 8}")
    kind = _CODES.get(found.code)
    for dtype in dt.ALL:
        if dtype.kind == kind and dtype.itemsize * 8 == found.bits and found.lanes == 1:
            return dtype
    raise DTypeError("from_dlpack", found=f"DLPack type code {found.code} of {found.bits} bits",
                     expected="a type that Weft has")


# The table of functions by which a class of arrays offers the memory of its objects (DLPack 1.3).
_TABLE: Final = b"dlpack_exchange_api"
_TABLE_MAJOR: Final = 1
_BORROW: Final = 40  # where it has `dltensor_from_py_object_no_sync`


def exchange_function(kind: type) -> int | None:
    """Return the address of a class's function ``int (PyObject *, DLTensor *)``, if it has one.

    The function fills in a description that is good as long as nothing else happens to the object.
    """
    capsule = getattr(kind, "__dlpack_c_exchange_api__", None)
    if capsule is None or not _capsule_is(capsule, _TABLE):
        return None
    address = _capsule_pointer(capsule, _TABLE)
    if ctypes.c_uint32.from_address(address).value != _TABLE_MAJOR:
        return None
    return ctypes.c_void_p.from_address(address + _BORROW).value


def code_of(dtype: DType) -> int:
    """Return an element type as the 32 bits of DLPack's ``DLDataType``, one lane."""
    code, bits = _code(dtype)
    return code | bits << 8 | 1 << 16
