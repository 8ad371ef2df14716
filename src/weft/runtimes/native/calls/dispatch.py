"""Native dispatch: calls of captured functions from Python's call slot to the plan and back.

`Dispatcher` loads the code of `weft.runtimes.native.calls.dispatch_ir`; `Program` makes the rows
of one dispatch; `Dispatcher.attach` gives them to a function object, whose class gets the native
call slot with that. None of it relies on how Python lays objects out: offsets of members are found
by looking at living objects, and where that fails `NotSupported` says so, and calls stay in Python.
"""

import contextlib
import ctypes
import sys
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from weft.runtimes.memory import pool
from weft.runtimes.memory.buffer import Buffer, ForeignBuffer, FreeList
from weft.runtimes.native.calls import program
from weft.runtimes.native.calls.callables import mixin
from weft.runtimes.native.calls.dispatch_ir import CONTEXT, KEYWORDS, SYMBOLS, module
from weft.runtimes.native.calls.dispatch_rows import TABLE
from weft.runtimes.native.calls.program import Object, Operand, Turns
from weft.runtimes.native.calls.rows import ROW_WORDS
from weft.runtimes.native.executor.native import INT64_OF, NativePlan, address_of

if TYPE_CHECKING:
    from weft.runtimes.base import Library

__all__ = ["SYMBOLS", "Dispatcher", "Host", "NotSupported", "Owned", "Program",
           "Slot", "imports", "layout", "module", "object_layout", "slots_of"]  # fmt: skip

_TENSOR: Final = (
    "_base", "_buffer", "_grad", "_history", "_is_leaf", "_node", "_path", "_requires_grad",
    "_shared", "_version", "dtype", "shape",
)  # fmt: skip
_BUFFER: Final = ("_home", "address", "nbytes", "version")
_NAMES: Final = {
    "weft_name_dict": "__dict__", "weft_name_grad": "grad", "weft_name_capture": "capture",
    "weft_name_key": "key", "weft_name_advance": "advance", "weft_name_miss": "_miss",
    "weft_name_is_neg": "is_neg",
}  # fmt: skip

# The public layout of a NumPy array after the object's head, which has not changed since 1.0.
_ARRAY: Final = {"data": 0, "nd": 8, "dimensions": 16, "strides": 24, "base": 32, "descr": 40,
                 "flags": 48}  # fmt: skip
_IN_ONE_PIECE_AND_ALIGNED: Final = 0x101

_TP_CALL, _TP_FINALIZE = 50, 80  # numbers of slots in Python's stable interface
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


def imports(host: Host, run: int, functions: Iterable[str]) -> dict[str, int]:
    """Return the addresses that the code is linked with.

    Parameters
    ----------
    host
        The front end's classes and objects.
    run
        The address of ``weft_run``.
    functions
        The functions of Python that the code calls.
    """
    found = {name: address_of(name) for name in functions}
    found |= {name: id(text) for name, text in _NAMES.items()}
    constants = {
        "none": None, "true": True, "false": False, "zero": _ZERO, "empty": _EMPTY, "list": list,
        "dict": dict, "str": str, "int": int, "float": float, "tuple": tuple,
        "context_type": Context, "tensor_type": host.tensor, "buffer_type": Buffer,
        "foreign_type": ForeignBuffer, "free_type": FreeList, "state": host.state,
    }  # fmt: skip
    found |= {f"weft_{name}": id(value) for name, value in constants.items()}
    return found | {"weft_int64_of": address_of(INT64_OF), "weft_run": run}


_ZERO: Final = 0
_EMPTY: Final = ()


class Owned(int):
    """The number of a word of the frame whose object the call owns."""


class Slot(int):
    """The number of a slot of the plan."""


class Context(int):
    """The address of a dispatch that also keeps alive whatever the dispatch points at."""

    keep: tuple[object, ...]
    next: "Context | None"
    is_last: bool  # serves many sizes: it is tried after those that serve some

    def __reduce_ex__(self, protocol: object) -> tuple[type, tuple[()]]:
        """Return None for copies and pickles: the address would outlive what is there."""
        return type(None), ()


class Program(program.Program):
    """The rows of one dispatch, as they are assembled.

    Operands are `Owned` and `Slot`, too.

    Parameters
    ----------
    plan
        What is run.
    memory
        Where results and scratch memory come from.
    """

    def __init__(self, plan: NativePlan, memory: pool.Pool) -> None:
        super().__init__(TABLE, 1 + KEYWORDS)
        self.plan, self._pool = plan, memory
        self.nowned = 0
        self.chosen = 0  # the word with the plan's address, if a row chooses the plan
        self._rest: list[tuple[Operand, ...]] = []
        self.keep(plan)

    def owned(self) -> Owned:
        """Return a new word for an object of the call's own."""
        self.nowned += 1
        return Owned(self.nowned)

    def finish(self, operation: str, *operands: Operand) -> None:
        """Add a row that comes after the run."""
        self._rest.append((operation, *operands))

    def allocate(self, nbytes: int, slot: Slot) -> Owned:
        """Take a buffer for a slot of the plan."""
        found = self.owned()
        self.check("allocate", found, slot, self._pool.blocks(nbytes), Object(nbytes))
        return found

    def allocate_sized(self, nbytes: int, slot: Slot) -> Owned:
        """Take a buffer of as many bytes as a word says for a slot of the plan."""
        found, memory = self.owned(), self._pool
        self.check("sized_allocate", found, slot, memory.requests, nbytes, memory.allocate)
        return found

    def assemble(self, result: Owned, fail: Callable[[Any], object], arena: int = 0,
                 keep: Sequence[object] = (), turns: Turns | None = None) -> Context:
        """Return the dispatch; ``fail`` raises what a kernel reported.

        Parameters
        ----------
        result
            The word with the result.
        arena
            Whether there is an arena that only one call at a time may use (1 or 0).
        keep
            What else has to live as long.
        turns
            How calls take turns, if they do.
        """
        words = self._assembled((*self._checks, *self._reads, *self._rest))
        rows = words.buffer_info()[0]
        guards = ROW_WORDS * (len(self._checks) + len(self._reads))
        slots = self.nwords + self.nowned
        values = {
            "next": 0, "rows": rows, "end": rows + 8 * guards, "last": rows + 8 * len(words),
            "frame_words": slots + self.plan.frame_words, "owned": self.nwords,
            "nowned": self.nowned, "slots": slots, "plan": self.plan.context_address,
            "chosen": self.chosen, "result": self._word(result), "exclusive": arena, "busy": 0,
            "fail": id(fail), **program.lock_words(turns),
        }  # fmt: skip
        head = array("q", [values[name] for name in CONTEXT])
        made = Context(head.buffer_info()[0])
        made.keep = (head, words, self._tables, self._keep, fail, tuple(keep), turns)
        made.next, made.is_last = None, False
        return made

    def _word(self, operand: Operand) -> int:
        if isinstance(operand, Owned):
            return self.nwords + operand - 1
        if isinstance(operand, Slot):
            return self.nwords + self.nowned + operand
        return super()._word(operand)


def _chain(first: Context | None) -> Iterator[Context]:
    """Yield dispatches in the order in which they are tried."""
    while first is not None:
        yield first
        first = first.next


def _link(context: Context, following: Context | None) -> None:
    """Have a dispatch followed by another one."""
    ctypes.c_int64.from_address(int(context)).value = int(following or 0)  # its word "next"
    context.next = following


class Dispatcher:
    """The loaded code, and the classes that were made with it.

    Parameters
    ----------
    library
        The loaded object of `module`, linked with `imports`.
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

    def attach(self, function: Any, context: Context, last: bool = False) -> None:
        """Let a function object try a dispatch before those that it has, or as its last."""
        context.is_last = last
        chain = list(_chain(function._dispatch))
        others = [c for c in chain if c.is_last is last]
        if last:
            if len(others) >= _MOST_DISPATCHES:
                return
            if chain:
                _link(chain[-1], context)
        else:
            found = chain[0] if chain else None
            if len(others) >= _MOST_DISPATCHES:
                found = next((c for c in chain if c.is_last), None)
            _link(context, found)
        if not (last and chain):
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
