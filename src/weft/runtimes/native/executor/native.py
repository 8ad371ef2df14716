"""Native plans: a table of steps behind one C function object.

A plan is called with plain ints, ``plan.call(in0, ..., out0, ..., arena, var0, ...)``: the
addresses of its inputs and outputs, the address of an arena of at least ``arena_bytes`` (0 if that
is 0), and its variables. It returns None, or ``(code, step, statement, index, bound)`` of the first
failure.
"""

import ctypes
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from weft.errors import LaunchError
from weft.runtimes.native.common.emitter import Module
from weft.runtimes.native.executor import concurrent_kernels, kernel_times
from weft.runtimes.native.executor.native_ir import CONTEXT, GROUP, STEP_WORDS, SYMBOLS, module

if TYPE_CHECKING:
    from weft.runtimes.base import Library

__all__ = ["INT64_OF", "SYMBOLS", "BufferRef", "CopyStep", "Executor", "FillStep", "KernelStep",
           "NativePlan", "Step", "VariableRef", "imports", "source"]  # fmt: skip

Failure = tuple[int, int, int, int, int]

_CALLS: Final = CONTEXT.index("calls")
_KERNEL: Final = 0  # the kind of a step
_COUNT: Final = 6  # the word of a kernel that tells the size of the group that it begins, and
_EAGER: Final = 7  # whether threads are woken for it
_METH_FASTCALL: Final = 0x80
_INT64: Final = 1 << 63
# Where a long has 64 bits, its conversion skips the detour over bytes: 6 ns less an argument.
INT64_OF: Final = "PyLong_AsLong" if ctypes.sizeof(ctypes.c_long) == 8 else "PyLong_AsLongLong"


class BufferRef:
    """Where a step finds a buffer, before the addresses of a call are known.

    Parameters
    ----------
    space
        ``input``, ``output``, ``arena`` or ``constant``.
    index
        Number of the input or output, 0 otherwise.
    offset
        Bytes from the start of the input, output or arena; for a constant its address.
    """

    __slots__ = ("index", "offset", "space")

    def __init__(self, space: str, index: int, offset: int) -> None:
        self.space, self.index, self.offset = space, index, offset

    @classmethod
    def input(cls, index: int, offset: int = 0) -> "BufferRef":
        """Return a reference ``offset`` bytes into an input."""
        return cls("input", index, offset)

    @classmethod
    def output(cls, index: int, offset: int = 0) -> "BufferRef":
        """Return a reference ``offset`` bytes into an output."""
        return cls("output", index, offset)

    @classmethod
    def arena(cls, offset: int) -> "BufferRef":
        """Return a reference ``offset`` bytes into the arena."""
        return cls("arena", 0, offset)

    @classmethod
    def constant(cls, address: int) -> "BufferRef":
        """Return a reference to memory that the plan keeps alive."""
        return cls("constant", 0, address)

    def __repr__(self) -> str:
        return f"BufferRef({self.space!r}, {self.index}, {self.offset})"


class VariableRef:
    """The value of a kernel's variable: a variable of the plan, or a constant.

    Parameters
    ----------
    index
        Number of the plan's variable, or -1.
    value
        The constant, if ``index`` is -1.
    """

    __slots__ = ("index", "value")

    def __init__(self, index: int, value: int = 0) -> None:
        self.index, self.value = index, value

    @classmethod
    def constant(cls, value: int) -> "VariableRef":
        """Return a fixed value."""
        return cls(-1, value)


class KernelStep:
    """A call of a kernel, ``i32 kernel(ptr buffers, ptr vars, ptr status)``.

    Parameters
    ----------
    function
        Address of the kernel.
    buffers, variables
        Its arguments, in parameter order.
    name
        Name of the kernel, for messages.
    """

    __slots__ = ("buffers", "function", "name", "variables")

    def __init__(
        self,
        function: int,
        buffers: Sequence[BufferRef],
        variables: Sequence[VariableRef] = (),
        name: str = "kernel",
    ) -> None:
        self.function, self.buffers = function, buffers
        self.variables, self.name = variables, name


class CopyStep:
    """A copy of ``nbytes`` bytes, times the plan variable ``scale`` if given; it may overlap."""

    __slots__ = ("nbytes", "scale", "source", "target")

    def __init__(
        self, target: BufferRef, source: BufferRef, nbytes: int, scale: int | None = None
    ) -> None:
        self.target, self.source = target, source
        self.nbytes, self.scale = nbytes, scale


class FillStep:
    """``nbytes`` bytes set to ``byte``, times the plan variable ``scale`` if given."""

    __slots__ = ("byte", "nbytes", "scale", "target")

    def __init__(
        self, target: BufferRef, nbytes: int, byte: int = 0, scale: int | None = None
    ) -> None:
        self.target, self.nbytes = target, nbytes
        self.byte, self.scale = byte, scale


Step = KernelStep | CopyStep | FillStep


def source() -> Module:
    """Return the code of the executor, which is linked with `imports`."""
    code = module()
    concurrent_kernels.functions(code)
    return code


def imports(functions: Iterable[str]) -> dict[str, int]:
    """Return the addresses of functions of Python and of the objects that the executor uses.

    They are given by address because an interpreter that is linked statically, or hides its
    symbols, does not offer them to the dynamic linker.
    """
    objects = {"weft_none": id(None), "weft_type_error": id(TypeError)}
    return {**{name: address_of(name) for name in functions}, **objects,
            "weft_int64_of": address_of(INT64_OF)}  # fmt: skip


def address_of(name: str) -> int:
    """Return the address of a function of the Python API."""
    return ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p).value or 0


class _MethodDef(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    )


class Executor:
    """The loaded executor, from which C function objects are made.

    Parameters
    ----------
    library
        The loaded object of `source`, with `SYMBOLS` exported, linked with `imports`.
    """

    __slots__ = ("_definition", "_make", "library", "plan_address")

    def __init__(self, library: "Library") -> None:
        self.library = library
        self.plan_address = library["weft_plan"]
        library.pin()  # function objects may outlive every other reference to the code
        self._definition = _MethodDef(b"plan", library["weft_call"], _METH_FASTCALL, None)
        _definitions.append(self._definition)
        make = ctypes.PYFUNCTYPE(
            ctypes.py_object, ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p
        )
        self._make = make(("PyCFunction_NewEx", ctypes.pythonapi))

    def bind(self, context: "_Context") -> Callable[..., Failure | None]:
        """Return the C function object that runs the plan at ``context``."""
        function: Callable[..., Failure | None] = self._make(
            ctypes.addressof(self._definition), context, None
        )
        return function


# Function objects point at their definition for as long as they live, which may be to the end.
_definitions: list[_MethodDef] = []


class _Context(int):
    """The address of a context that also keeps alive whatever the context points at.

    It is the ``self`` of the C function object, so that the function alone is enough.
    """

    keep: tuple[object, ...]


class NativePlan:
    """A step table that is run by one native call.

    Parameters
    ----------
    executor
        Where the code of the executor lies.
    steps
        What to do, in order.
    ninputs, noutputs, nvariables
        Counts of the call's arguments.
    arena_bytes
        Least size of the arena that a caller passes.
    release_gil
        Whether other Python threads run during the call, and signals are handled between steps:
        right for plans above about 2 µs.
    keep
        Whatever the addresses in ``steps`` belong to: loaded objects, constant buffers.
    interruptible
        How many steps a signal may end the call after, by default all. From the first step on that
        writes over an input, a call has to come to its end.
    groups
        Steps that run at the same time: the first, how many there are, and whether that is worth
        waking threads for. They are kernels, and none of them touches what another one writes.

    Raises
    ------
    LaunchError
        If a reference names an input, output, variable or arena byte that is not there, or a group
        has other steps than kernels.
    """

    __slots__ = (
        "_context",
        "_steps",
        "_tables",
        "_words",
        "arena_bytes",
        "call",
        "context_address",
        "frame_words",
        "names",
        "ninputs",
        "noutputs",
        "nvariables",
        "release_gil",
    )

    def __init__(
        self,
        executor: Executor,
        steps: Sequence[Step],
        ninputs: int,
        noutputs: int,
        arena_bytes: int = 0,
        nvariables: int = 0,
        release_gil: bool = False,
        keep: Sequence[object] = (),
        interruptible: int | None = None,
        groups: Sequence[tuple[int, int, bool]] = (),
    ) -> None:
        self.ninputs, self.noutputs, self.nvariables = ninputs, noutputs, nvariables
        self.arena_bytes, self.release_gil = arena_bytes, release_gil
        self.names = tuple(
            step.name if isinstance(step, KernelStep) else type(step).__name__ for step in steps
        )
        tables = _Tables(ninputs, noutputs, arena_bytes, nvariables, self.names)
        for step in steps:
            tables.add(step)
        for first, count, eager in groups:
            tables.group(steps, first, count, eager)
        nargs = ninputs + noutputs + 1 + nvariables
        first_variable = 2 + ninputs + noutputs
        first_buffer = 1 + nargs
        first_kernel_variable = first_buffer + tables.most_buffers
        self.frame_words = first_kernel_variable + tables.most_variables
        values = {
            "nargs": nargs,
            "first_variable": first_variable,
            "nsteps": len(steps),
            "steps": tables.steps.buffer_info()[0],
            "references": tables.references.buffer_info()[0],
            "variables": tables.variables.buffer_info()[0],
            "frame_words": self.frame_words,
            "first_buffer": first_buffer,
            "first_kernel_variable": first_kernel_variable,
            "release_gil": int(release_gil),
            "ninputs": ninputs,
            "noutputs": noutputs,
            "calls": 0,
            "interruptible": len(steps) if interruptible is None else interruptible,
        }
        words = array("q", [values[name] for name in CONTEXT])
        self.context_address = words.buffer_info()[0]
        self._words, self._steps, self._tables = words, tables.steps, tables
        self._context = _Context(self.context_address)
        self._context.keep = (words, tables, executor, tuple(keep))
        self.call = executor.bind(self._context)
        kernel_times.register(tables)

    @property
    def calls(self) -> int:
        """How often the plan was run; of runs at the same time some may be missing."""
        return self._words[_CALLS]

    def switch(self, step: int, function: int, keep: object) -> None:
        """Let a kernel step run other code from now on.

        The address is stored as one word: a run that is under way finds the old code or the new.
        The old code stays, for a run may be in it.

        Parameters
        ----------
        step
            Number of the step, a kernel's.
        function
            Address of a kernel that takes the same buffers and variables.
        keep
            What the address belongs to.
        """
        self._context.keep = (*self._context.keep, keep)
        kernel_times.switch(self._tables, step, function)


class _Tables:
    """The step, reference and variable tables of one plan, checked as they are filled."""

    __slots__ = (
        "__weakref__", "_limits", "_nvariables", "most_buffers", "most_variables", "names",
        "references", "steps", "variables",
    )  # fmt: skip

    def __init__(self, ninputs: int, noutputs: int, arena_bytes: int, nvariables: int,
                 names: tuple[str, ...]) -> None:  # fmt: skip
        self.names = names
        # Of each space: its first slot, the number of its slots, the first offset past its end.
        self._limits = {
            "constant": (0, 1, _INT64),
            "input": (1, ninputs, _INT64),
            "output": (1 + ninputs, noutputs, _INT64),
            "arena": (1 + ninputs + noutputs, 1, arena_bytes + 1),
        }
        self._nvariables = nvariables
        self.steps, self.references, self.variables = array("q"), array("q"), array("q")
        # One word even if nothing needs it: an empty array has no address.
        self.most_buffers, self.most_variables = 2, 1

    def add(self, step: Step) -> None:
        first = len(self.references) // 2
        if isinstance(step, KernelStep):
            first_variable = len(self.variables) // 2
            for ref in step.buffers:
                self._refer(ref)
            for variable in step.variables:
                self._bind(variable)
            nbuffers, nvariables = len(step.buffers), len(step.variables)
            self.most_buffers = max(self.most_buffers, nbuffers)
            self.most_variables = max(self.most_variables, nvariables)
            self.steps.extend(
                (0, step.function, nbuffers, first, nvariables, first_variable, 0, -1)
            )
            return
        scale = -1 if step.scale is None else self._check_variable(step.scale)
        if not 0 <= step.nbytes < _INT64:
            raise LaunchError("native plan", found=f"a step of {step.nbytes} bytes")
        self._refer(step.target)
        if isinstance(step, CopyStep):
            self._refer(step.source)
            self.steps.extend((1, 0, 2, first, 0, 0, step.nbytes, scale))
        else:
            self.steps.extend((2, step.byte & 255, 1, first, 0, 0, step.nbytes, scale))

    def group(self, steps: Sequence[Step], first: int, count: int, eager: bool) -> None:
        """Have steps run at the same time."""
        members = steps[first : first + count] if first >= 0 else ()
        if count < 1 or len(members) != count or not all(type(s) is KernelStep for s in members):
            raise LaunchError(
                "native plan", found=f"a group of {count} steps from {first}", expected="kernels"
            )
        if count > 1:
            self.steps[STEP_WORDS * first] = GROUP
            second = STEP_WORDS * (first + 1)  # holds how long the group took, either way
            self.steps[second + _COUNT] = self.steps[second + _EAGER] = 0
        self.steps[STEP_WORDS * first + _COUNT] = count
        self.steps[STEP_WORDS * first + _EAGER] = int(eager)

    def kernels(self) -> Iterator[int]:
        """Yield the steps that are kernels."""
        for step in range(len(self.names)):
            if self.steps[STEP_WORDS * step] in (_KERNEL, GROUP):
                yield step

    def function(self, step: int) -> int:
        """Return the address that a kernel step calls."""
        return self.steps[STEP_WORDS * step + 1]

    def replace(self, step: int, function: int) -> None:
        """Have a kernel step call another address."""
        self.steps[STEP_WORDS * step + 1] = function

    def _refer(self, ref: BufferRef) -> None:
        slot, count, end = self._limits[ref.space]
        if not (0 <= ref.index < count and 0 <= ref.offset < end):
            raise LaunchError(
                "native plan",
                found=f"{ref.space} {ref.index} at byte {ref.offset}",
                expected=f"one of {count}, at less than {end} bytes",
            )
        self.references.extend((slot + ref.index, ref.offset))

    def _bind(self, variable: VariableRef) -> None:
        if variable.index >= 0:
            self._check_variable(variable.index)
        self.variables.extend((variable.index, variable.value))

    def _check_variable(self, index: int) -> int:
        if not 0 <= index < self._nvariables:
            raise LaunchError(
                "native plan", found=f"variable {index}", expected=f"one of {self._nvariables}"
            )
        return index
