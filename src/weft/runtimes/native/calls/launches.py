"""Native launches: the code of `launch_ir`, loaded, and tables of rows for it."""

from __future__ import annotations

import contextlib
import ctypes
import sys
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from weft.runtimes.memory.buffer import Buffer
from weft.runtimes.native.calls import program
from weft.runtimes.native.calls.callables import (
    VECTORCALL,
    address_in,
    check_slot,
    mixin,
    set_code,
    set_context,
    takes_code,
    watched,
)
from weft.runtimes.native.calls.dispatch import NotSupported, object_layout, slots_of
from weft.runtimes.native.calls.launch_ir import CONTEXT, MOST_WORDS, SYMBOLS, module
from weft.runtimes.native.calls.launch_rows import TABLE
from weft.runtimes.native.calls.program import Turns
from weft.runtimes.native.executor import kernel_times
from weft.runtimes.native.executor.native import INT64_OF, address_of

if TYPE_CHECKING:
    from weft.runtimes.base import Library

__all__ = ["SYMBOLS", "Context", "Launcher", "NotSupported", "Program", "Types", "imports",
           "layout", "module"]  # fmt: skip

_FUNCTION: Final = CONTEXT.index("function")
_MP_SUBSCRIPT: Final = 5  # number of the slot in Python's stable interface
_MOST_LAUNCHES: Final = 64  # of one configuration; what is beyond goes the Python way
_TENSOR: Final = ("_base", "_buffer", "_history", "_node", "_requires_grad", "_shared", "_version",
                  "dtype", "shape")  # fmt: skip


class Types(NamedTuple):
    """The front end's classes that the code works on.

    Attributes
    ----------
    configured : type
        The class whose instances a kernel configures.
    kernel : type
        The class whose instances are configured.
    tensor : type
        The class of tensors.
    """

    configured: type
    kernel: type
    tensor: type


def layout(types: Types) -> dict[str, int]:
    """Return where members lie in objects, as bytes from their start.

    Raises
    ------
    NotSupported
        If the interpreter is none of CPython's with a global lock, or a member is not found.
    """
    found = object_layout()
    for kind in (np.float64, np.float32, np.int64, np.int32, np.uint8):
        _check_scalar(kind, found["float.value"])
    found["references"] = 0
    _check_references()
    found |= {f"Tensor.{n}": o for n, o in slots_of(types.tensor, _TENSOR).items()}
    found |= {f"Buffer.{n}": o for n, o in slots_of(Buffer, ("address", "version")).items()}
    found |= {f"Kernel.{n}": o for n, o in slots_of(types.kernel, ("_configured",)).items()}
    if not check_slot(types.configured):
        raise NotSupported("the slot of vectorcall in types")
    found["type.vectorcall"] = VECTORCALL
    return found


def _check_scalar(kind: Any, offset: int) -> None:
    """Look whether NumPy's scalars keep their value where floats do."""
    value = kind(77)
    data = (ctypes.c_char * value.itemsize).from_address(id(value) + offset).raw
    if data != value.tobytes():
        raise NotSupported("values of NumPy's scalars")


def _check_references() -> None:
    """Look whether objects begin with the number of their references."""
    held = [object()] * 7
    if ctypes.c_int32.from_address(id(held[0])).value != len(held):
        raise NotSupported("counts of references")


def imports(functions: Iterable[str]) -> dict[str, int]:
    """Return the addresses that the code is linked with, which calls functions of Python."""
    found = {name: address_of(name) for name in functions}
    constants: dict[str, object] = {"none": None, "true": True, "false": False, "int": int,
                                    "float": float, "tuple": tuple}  # fmt: skip
    names = {"miss": "_miss", "is_neg": "is_neg", "configure": "_configure"}
    constants |= {f"name_{key}": sys.intern(name) for key, name in names.items()}
    found |= {"weft_watched": watched.buffer_info()[0], "weft_int64_of": address_of(INT64_OF)}
    return found | {f"weft_{name}": id(value) for name, value in constants.items()}


class Program(program.Program):
    """The rows of one launch, as they are assembled.

    Parameters
    ----------
    nargs
        How many arguments there are, in words 1 and following.
    """

    def __init__(self, nargs: int) -> None:
        super().__init__(TABLE, 1 + nargs)
        self.nargs = nargs

    def assemble(self, *, symbol: str, buffers: int, variables: int, owned: int, nowned: int,
                 function: int, release: bool, fail: Callable[..., object], again: int = 0,
                 names: tuple[str, ...] = (), order: Sequence[int] = (),
                 turns: Turns | None = None) -> Context | None:  # fmt: skip
        """Return the launch; None if its frame is too large.

        Parameters
        ----------
        symbol
            What the kernel is called.
        buffers, variables, owned, nowned
            First words of addresses, of variables and of objects that a call owns, and their count.
        function
            Address of the kernel.
        release
            Whether other threads of Python run meanwhile.
        fail
            Raises what a kernel reported.
        again
            Codes of failures, as bits, after which Python makes the call anew.
        names, order
            The names of the last arguments, as the call gives them, and which argument of the call
            each one is; neither where all are given by their place.
        turns
            How launches take turns, if they do. One that keeps Python's lock only looks whether
            somebody else has the turn.
        """
        if self.nwords > MOST_WORDS:
            return None
        if turns is not None and not release:
            self.check("zero", turns[2])
            turns = None
        interned = tuple(map(sys.intern, names))
        table = self.table(order) if order else 0
        words = self._assembled((*self._checks, *self._reads))
        rows = words.buffer_info()[0]
        values = {
            "next": 0, "rows": rows, "end": rows + 8 * len(words), "nargs": self.nargs,
            "buffers": buffers, "variables": variables, "owned": owned, "nowned": nowned,
            "function": function, "release": int(release), "fail": id(fail),
            "again": again, "names": id(interned) if names else 0, "order": table,
            **program.lock_words(turns),
        }  # fmt: skip
        head = array("q", [values[name] for name in CONTEXT])
        return Context(head, (words, self._tables, self._keep, fail, interned, turns), symbol)


class Context:
    """One launch, and all that it points at.

    As a table of one kernel it can be timed (`weft.runtimes.native.executor.kernel_times`).
    """

    def __init__(self, head: array[int], keep: tuple[object, ...], symbol: str) -> None:
        self.head, self.keep, self.names = head, keep, (symbol,)
        self.address = head.buffer_info()[0]
        kernel_times.register(self)

    def kernels(self) -> Iterator[int]:
        """Yield the step that is the kernel."""
        yield 0

    def function(self, step: int) -> int:
        """Return the address that is called."""
        return self.head[_FUNCTION]

    def replace(self, step: int, function: int) -> None:
        """Have another address called."""
        self.head[_FUNCTION] = function

    def follow(self, other: Context) -> None:
        """Let calls that do not fit go to another launch."""
        self.head[CONTEXT.index("next")] = other.address


class Launcher:
    """The loaded code.

    Parameters
    ----------
    library
        The loaded object of `module`, linked with `imports`.
    types
        What it was made for.
    """

    def __init__(self, library: Library, types: Types) -> None:
        library.pin()  # objects of these classes may outlive everything else
        self._types = types
        self._launch = library["weft_launch"]
        self.serial = library["weft_serial_for"]
        self._subscript = mixin("Kernel", _MP_SUBSCRIPT, library["weft_subscript"])
        self._classes: dict[type, type] = {}

    def attach(self, configured: Any, launches: list[Context], context: Context) -> bool:
        """Let an object try a launch first, before those that it has; False if it has too many.

        `launches`, which the object holds, keeps them alive.
        """
        kind: Any = type(configured)
        if len(launches) >= _MOST_LAUNCHES or not takes_code(kind):
            return False
        if launches:
            context.follow(launches[-1])
        launches.append(context)
        set_context(configured, kind.__base__, context.address)
        self.enable(configured)
        return True

    def enable(self, configured: Any) -> None:
        """Let an object try its launches again, after its code was taken away."""
        kind: Any = type(configured)
        base = kind.__base__
        if not address_in(configured, base):
            set_code(configured, base, self._launch)

    def quicken(self, kernel: Any) -> None:
        """Give a kernel's class the native way from ``kernel[...]`` to what was made before."""
        kind = type(kernel)
        if issubclass(kind, self._subscript):
            return
        native = self._classes.get(kind)
        if native is None:
            members = {"__slots__": (), "__module__": kind.__module__, "__doc__": kind.__doc__,
                       "__qualname__": kind.__qualname__}
            native = self._classes[kind] = type(kind.__name__, (self._subscript, kind), members)
        with contextlib.suppress(TypeError):  # an interpreter that refuses goes on in Python
            kernel.__class__ = native
