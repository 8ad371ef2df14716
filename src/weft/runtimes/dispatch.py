"""Native dispatch: calls of captured functions from Python's call slot to the plan and back.

`Dispatcher` loads the code of `weft.runtimes.dispatch_ir`; `Program` assembles the rows of one
dispatch; `Dispatcher.attach` gives them to a function object, whose class gets the native call
slot with that. None of it relies on how Python lays objects out: offsets of members are found by
looking at living objects, and where that fails `NotSupported` says so, and calls stay in Python.
"""

import contextlib
import ctypes
import sys
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from weft.runtimes import pool
from weft.runtimes.buffer import Buffer, ForeignBuffer, FreeList
from weft.runtimes.dispatch_ir import CONTEXT, ROW_WORDS, SYMBOLS, source
from weft.runtimes.dispatch_rows import OPERATIONS
from weft.runtimes.native import NativePlan, address_of

if TYPE_CHECKING:
    from weft.runtimes.base import Library

__all__ = ["SYMBOLS", "Dispatcher", "Host", "NotSupported", "Object", "Owned", "Program",
           "Slot", "imports", "layout", "mixin", "object_layout", "slots_of", "source"]  # fmt: skip

_TENSOR: Final = (
    "_base", "_buffer", "_grad", "_history", "_is_leaf", "_node", "_path", "_requires_grad",
    "_shared", "_version", "dtype", "shape",
)  # fmt: skip
_BUFFER: Final = ("_home", "address", "nbytes", "version")
_FUNCTIONS: Final = (
    "PyDict_GetItemWithError", "PyDict_Next", "PyDict_Size", "PyErr_Clear", "PyErr_NoMemory",
    "PyErr_Occurred", "PyFloat_AsDouble", "PyList_Append", "PyList_GetItem", "PyList_SetSlice",
    "PyList_Size", "PyLong_AsUnsignedLongLongMask", "PyLong_FromLongLong",
    "PyObject_CallFunctionObjArgs", "PyObject_CallMethodObjArgs", "PyObject_CallObject",
    "PyObject_GetAttr", "PyObject_RichCompareBool", "PyThreadState_Get", "PyThreadState_GetID",
    "PyTuple_GetItem", "PyTuple_New", "PyTuple_SetItem", "PyTuple_Size", "PyType_GenericAlloc",
    "Py_BuildValue", "Py_DecRef", "Py_IncRef",
)  # fmt: skip
_NAMES: Final = {
    "weft_name_dict": "__dict__", "weft_name_grad": "grad", "weft_name_capture": "capture",
    "weft_name_key": "key", "weft_name_advance": "advance", "weft_name_miss": "_miss",
}  # fmt: skip

# The public layout of a NumPy array after the object's head, which has not changed since 1.0.
_ARRAY: Final = {"data": 0, "nd": 8, "dimensions": 16, "strides": 24, "base": 32, "descr": 40,
                 "flags": 48}  # fmt: skip
_IN_ONE_PIECE_AND_ALIGNED: Final = 0x101

_TP_CALL, _TP_FINALIZE = 50, 80  # numbers of slots in Python's stable interface
_BASETYPE: Final = 1 << 10
_MOST_DISPATCHES: Final = 16  # of one function; what is beyond goes the Python way


class NotSupported(Exception):
    """An interpreter that lays its objects out in a way that native code cannot use."""


class Host(NamedTuple):
    """The front end's classes and objects that the code works on."""

    tensor: type
    function: type
    state: object


def layout(host: Host) -> dict[str, int]:
    """Return where members lie in objects, as bytes from their start.

    Raises
    ------
    NotSupported
        If the interpreter is none of CPython's with a global lock, or a member is not found.
    """
    found = object_layout()
    found |= {f"Tensor.{n}": o for n, o in slots_of(host.tensor, _TENSOR).items()}
    found |= {f"Buffer.{n}": o for n, o in slots_of(Buffer, _BUFFER).items()}
    found |= {f"Jitted.{n}": o for n, o in slots_of(host.function, ("_dispatch",)).items()}
    return found


def object_layout() -> dict[str, int]:
    """Return where Python and NumPy keep types of objects, floats and members of arrays.

    Raises
    ------
    NotSupported
        If the interpreter is none of CPython's with a global lock, or a member is not found.
    """
    if sys.implementation.name != "cpython" or "t" in getattr(sys, "abiflags", ""):
        raise NotSupported(sys.implementation.name)
    if ctypes.sizeof(ctypes.c_void_p) != 8 or sys.byteorder != "little":
        raise NotSupported("words of another size or order")
    found = {"ob_type": _find(object.__new__(Buffer), id(Buffer))}
    for value, kind in ((1, int), (0.5, float), ("text", str), ((), tuple), ([], list), ({}, dict)):
        if _word(id(value) + found["ob_type"]) != id(kind):
            raise NotSupported("types of objects")
    head = object.__basicsize__
    found["float.value"] = head
    for number in (0.5, -1e300):
        if ctypes.c_double.from_address(id(number) + head).value != number:
            raise NotSupported("values of floats")
    found |= {f"array.{name}": head + offset for name, offset in _ARRAY.items()}
    found["array.good"] = _IN_ONE_PIECE_AND_ALIGNED
    _check_arrays(found)
    return found


def _word(address: int) -> int:
    return ctypes.c_int64.from_address(address).value


def _find(instance: object, value: int) -> int:
    """Return the one place in an object where a word stands."""
    size: int = type(instance).__basicsize__
    places = [at for at in range(0, size, 8) if _word(id(instance) + at) == value]
    if len(places) != 1:
        raise NotSupported(f"{len(places)} words of {type(instance).__name__} fit a member")
    return places[0]


def slots_of(kind: type, names: Iterable[str]) -> dict[str, int]:
    """Return where the slots of a class lie, found twice with other values in them."""
    found: list[dict[str, int]] = []
    for _ in range(2):
        instance: object = object.__new__(kind)
        marks = {name: object() for name in names}
        for name, mark in marks.items():
            object.__setattr__(instance, name, mark)
        found.append({name: _find(instance, id(mark)) for name, mark in marks.items()})
        for name in names:
            object.__delattr__(instance, name)  # not for a finaliser to use
    if found[0] != found[1]:
        raise NotSupported(f"members of {kind.__name__} move")
    return found[0]


def _check_arrays(found: Mapping[str, int]) -> None:
    """Look whether arrays lie in memory as `_ARRAY` says."""
    whole = np.zeros((3, 5), np.float32)
    for value in (whole, whole[:, ::2], whole.T, np.zeros((2, 0, 7), np.int8), np.ones(())):
        at = id(value)
        address, _ = value.__array_interface__["data"]
        flags = ctypes.c_int32.from_address(at + found["array.flags"]).value
        good = value.flags.c_contiguous and value.flags.aligned
        dims = _word(at + found["array.dimensions"])
        sizes = tuple(_word(dims + 8 * i) for i in range(value.ndim))
        if (
            _word(at + found["array.data"]) != address
            or ctypes.c_int32.from_address(at + found["array.nd"]).value != value.ndim
            or sizes != value.shape
            or _word(at + found["array.descr"]) != id(value.dtype)
            or (flags & found["array.good"] == found["array.good"]) is not good
        ):
            raise NotSupported("arrays of NumPy")


def imports(host: Host, run: int) -> dict[str, int]:
    """Return the addresses that the code is linked with; ``run`` is that of ``weft_run``."""
    found = {name: address_of(name) for name in _FUNCTIONS}
    found |= {name: id(text) for name, text in _NAMES.items()}
    found["weft_int64_of"] = address_of(
        "PyLong_AsLong" if ctypes.sizeof(ctypes.c_long) == 8 else "PyLong_AsLongLong"
    )
    constants = {
        "none": None, "true": True, "false": False, "zero": _ZERO, "empty": _EMPTY, "list": list,
        "dict": dict, "str": str, "float": float, "context_type": Context,
        "tensor_type": host.tensor, "buffer_type": Buffer, "foreign_type": ForeignBuffer,
        "free_type": FreeList, "array_type": np.ndarray, "state": host.state,
    }  # fmt: skip
    found |= {f"weft_{name}": id(value) for name, value in constants.items()}
    found["weft_run"] = run
    return found


_ZERO: Final = 0
_EMPTY: Final = ()


class Owned(int):
    """The number of a word of the frame whose object the call owns."""


class Slot(int):
    """The number of a slot of the plan."""


class Object(NamedTuple):
    """An operand that is an integer object, and not its value."""

    value: object


Operand = int | object


class Context(int):
    """The address of a dispatch that also keeps alive whatever the dispatch points at."""

    keep: tuple[object, ...]
    next: "Context | None"
    length: int

    def __reduce_ex__(self, protocol: object) -> tuple[type, tuple[()]]:
        """Return None for copies and pickles: the address would outlive what is there."""
        return type(None), ()


class Program:
    """The rows of one dispatch, as they are assembled.

    Operands are integers, objects (their address, and they are kept alive), `Owned`, `Slot`, or
    what `table` returns. Words 0 and 1 of the frame are the arguments and the keywords.

    Parameters
    ----------
    plan
        What is run.
    """

    def __init__(self, plan: NativePlan) -> None:
        self.plan = plan
        self.nobjects, self.nowned = 2, 0
        self._checks: list[tuple[Operand, ...]] = []
        self._reads: list[tuple[Operand, ...]] = []
        self._rest: list[tuple[Operand, ...]] = []
        self._keep: list[object] = [plan]
        self._tables: list[tuple[array[int], Sequence[Operand]]] = []

    def objects(self, count: int = 1) -> int:
        """Return the first of new words for borrowed objects."""
        self.nobjects += count
        return self.nobjects - count

    def scratch(self) -> int:
        """Return a word that nobody reads."""
        return self.objects()

    def keep(self, value: object) -> None:
        """Keep something alive as long as the dispatch."""
        self._keep.append(value)

    def owned(self) -> Owned:
        """Return a new word for an object of the call's own."""
        self.nowned += 1
        return Owned(self.nowned)

    def table(self, words: Sequence[Operand]) -> int:
        """Return the address of a table of operands."""
        found = array("q", bytes(8 * max(len(words), 1)))
        self._tables.append((found, words))
        return found.buffer_info()[0]

    def check(self, operation: str, *operands: Operand) -> None:
        """Add a row that looks at something, before anything else is done."""
        self._checks.append((operation, *operands))

    def read(self, operation: str, *operands: Operand) -> None:
        """Add a row that comes last before the run: reading addresses."""
        self._reads.append((operation, *operands))

    def finish(self, operation: str, *operands: Operand) -> None:
        """Add a row that comes after the run."""
        self._rest.append((operation, *operands))

    def allocate(self, blocks: FreeList, nbytes: int, slot: Slot) -> Owned:
        """Take a buffer for a slot of the plan."""
        found = self.owned()
        self.check("allocate", found, slot, blocks, Object(nbytes))
        return found

    def assemble(self, result: Owned, fail: Callable[[Any], object], arena: int = 0,
                 keep: Sequence[object] = ()) -> Context:  # fmt: skip
        """Return the dispatch; ``fail`` raises what a kernel reported.

        Parameters
        ----------
        result
            The word with the result.
        arena
            Whether there is an arena that only one call at a time may use (1 or 0).
        keep
            What else has to live as long.
        """
        places = _Places(self.nobjects, self.nobjects + self.nowned)
        words = array("q")
        for operation, *operands in (*self._checks, *self._reads, *self._rest):
            row = [OPERATIONS[str(operation)], *(self._word(places, o) for o in operands)]
            words.extend(row + [0] * (ROW_WORDS - len(row)))
        for table, operands_ in self._tables:
            for i, operand in enumerate(operands_):
                table[i] = self._word(places, operand)
        values = {
            "next": 0, "rows": words.buffer_info()[0],
            "guards": len(self._checks) + len(self._reads), "nrows": len(words) // ROW_WORDS,
            "frame_words": places.slots + self.plan.frame_words,
            "owned": places.owned, "nowned": self.nowned, "slots": places.slots,
            "plan": self.plan.context_address, "result": self._word(places, result),
            "exclusive": arena, "busy": 0, "fail": id(fail),
        }  # fmt: skip
        head = array("q", [values[name] for name in CONTEXT])
        made = Context(head.buffer_info()[0])
        made.keep = (head, words, self._tables, self._keep, fail, tuple(keep))
        made.next, made.length = None, 1
        return made

    def _word(self, places: "_Places", operand: Operand) -> int:
        if isinstance(operand, Owned):
            return places.owned + operand - 1
        if isinstance(operand, Slot):
            return places.slots + operand
        if type(operand) is int:
            return operand
        value = operand.value if isinstance(operand, Object) else operand
        self._keep.append(value)
        return id(value)


class _Places(NamedTuple):
    owned: int
    slots: int


class _Slot(ctypes.Structure):
    _fields_ = (("slot", ctypes.c_int), ("function", ctypes.c_void_p))


class _Spec(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p),
        ("basicsize", ctypes.c_int),
        ("itemsize", ctypes.c_int),
        ("flags", ctypes.c_uint),
        ("slots", ctypes.POINTER(_Slot)),
    )


_specs: Final[list[object]] = []  # types may point at what they were made from


def mixin(name: str, slot: int, function: int) -> type:
    """Return a class that has nothing but one native slot."""
    slots = (_Slot * 2)(_Slot(slot, function), _Slot(0, None))
    spec = _Spec(f"weft.{name}".encode(), 0, 0, _BASETYPE, slots)
    _specs.append((spec, slots))
    make = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p)(
        ("PyType_FromSpec", ctypes.pythonapi)
    )
    made: type = make(ctypes.addressof(spec))
    return made


class Dispatcher:
    """The loaded code, and the classes that were made with it.

    Parameters
    ----------
    library
        The loaded object of `source`, linked with `imports`.
    """

    def __init__(self, library: "Library") -> None:
        library.pin()  # objects of these classes may outlive everything else
        self._call = mixin("Call", _TP_CALL, library["weft_dispatch"])
        self._classes: dict[type, type] = {}
        finalizer = mixin("Finalizer", _TP_FINALIZE, library["weft_finalize"])
        pooled = type("Buffer", (finalizer, Buffer), {"__slots__": (), "__module__": __name__})
        ctypes.c_void_p.from_address(library["weft_pooled_type"]).value = id(pooled)
        self.pooled = pooled
        pool.use(pooled)

    def attach(self, function: Any, context: Context) -> None:
        """Let a function object try a dispatch first, before those that it has."""
        found: Context | None = function._dispatch
        if found is not None and found.length < _MOST_DISPATCHES:
            ctypes.c_int64.from_address(int(context)).value = int(found)  # its word "next"
            context.next, context.length = found, found.length + 1
        function._dispatch = context
        kind = type(function)
        if issubclass(kind, self._call):
            return
        native = self._classes.get(kind)
        if native is None:
            members = {"__slots__": (), "__module__": kind.__module__, "__doc__": kind.__doc__}
            native = self._classes[kind] = type(kind.__name__, (self._call, kind), members)
        # An interpreter that refuses a class of the same layout goes on calling in Python.
        with contextlib.suppress(TypeError):
            function.__class__ = native
