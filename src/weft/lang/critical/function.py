"""``@weft.critical``: a function that computes, and does nothing else; proved, measured, saved."""

from __future__ import annotations

import functools
import inspect
import os
from array import array
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

from weft.errors import (
    DeviceError,
    KernelError,
    LaunchError,
    UnsupportedError,
    VariableError,
    opened,
    outermost,
    outermost_methods,
)
from weft.imports import importing
from weft.lang.source.texts import keep
from weft.runtimes.native.calls.callables import native_class, set_code

if TYPE_CHECKING:
    from weft.driver.critical import Code, Contract, Failed, Loaded
    from weft.lang.critical.contract import Arguments, Signature
    from weft.lang.critical.latency import Latency
    from weft.lang.values.types import KernelType

__all__ = ["CriticalFunction", "make"]

LEVELS: Final = ("O0", "O1", "O2", "O3", "Os", "Olatency")


@outermost_methods
class CriticalFunction:
    """A function for the critical path: call it like any other.

    Made by `weft.critical`. It is compiled at its first call, or by `compile`, for the types of
    its arguments, and kept: in memory, and on disk for other processes. A call with arguments of
    types that it is compiled for does not run any Python.
    """

    __name__: str

    def __init__(self, function: Callable[..., Any], *, no_allocation: bool, no_syscalls: bool,
                 inline_always: bool, unchecked: bool, no_null_check: bool,
                 target_latency_ns: float | None, cpu_affinity: Any, level: str) -> None:
        functools.update_wrapper(self, function)
        self.__weft_function__ = function
        keep(function)
        self.unchecked = unchecked
        self.target_latency_ns = target_latency_ns
        self.cpu_affinity = cpu_affinity
        self._options = (no_allocation, no_syscalls, inline_always,
                         not (no_null_check or unchecked), level)
        self._known: Signature | None = None
        self._loaded: dict[Any, Loaded] = {}
        self._head = 0

    def __repr__(self) -> str:
        return f"<weft.critical {self.__name__}>"

    # --- calls

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Return what the function returns.

        Raises
        ------
        DTypeError, ShapeError, RangeError
            For an argument that its annotation does not allow.
        BoundsError
            For an index out of bounds in the function.
        LaunchError
            For an assertion that failed in it.
        KernelError
            If the function cannot be compiled, or its machine code breaks its contract.
        """
        return self._miss(*args, **kwargs)

    @outermost
    def _miss(self, *args: Any, **kwargs: Any) -> Any:
        """Take arguments apart that native code does not know."""
        with importing:
            from weft.lang.critical.contract import value_of

        loaded, arguments, results = self._prepared(args, kwargs)
        failed = loaded.run(arguments.words, results)
        if failed is not None:
            raise self._error(failed)
        return value_of(loaded.code.result, iter(results))

    def _error(self, failed: Failed) -> Exception:
        with importing:
            from weft.lang.launch.variants import failure

        return failure(self.__name__, failed, functions=[self])

    def _prepared(self, args: tuple[Any, ...], kwargs: dict[str, Any]
                  ) -> tuple[Loaded, Arguments, array[int]]:  # fmt: skip
        with importing:
            from weft.lang.critical.contract import Arguments

        signature = self._signature()
        arguments = Arguments(signature, signature.bind(args, kwargs))
        loaded = self._variant(arguments.types)
        return loaded, arguments, array("q", bytes(8 * max(len(loaded.code.results), 1)))

    def _signature(self) -> Signature:
        if self._known is None:
            with importing:
                from weft.lang.critical.contract import Signature

            self._known = Signature(self.__weft_function__)
        return self._known

    def _contract(self) -> Contract:
        with importing:
            from weft.driver.critical import Contract

        return Contract(*self._options)

    # --- compiling

    def compile(self, *args: Any, **kwargs: Any) -> CriticalFunction:
        """Compile the function now; return it.

        Arguments, which are not used, tell the types of parameters without an annotation.
        """
        if args or kwargs:
            self._prepared(args, kwargs)
        else:
            self._annotated()
        return self

    def _annotated(self) -> Loaded:
        """Return the code for the annotations, or what was compiled first if there are not all."""
        with importing:
            from weft.lang.values.types import dense

        signature = self._signature()
        if signature.is_complete:
            return self._variant({n: dense(k) for n, k in signature.wanted.items()})
        if self._loaded:
            return next(iter(self._loaded.values()))
        missing = [name for name, kind in signature.wanted.items() if kind is None]
        raise VariableError(f"compile {self.__name__}", where=signature.where,
                            found=f"no annotation of {', '.join(missing)}",
                            expected="annotations, a call before this, or example arguments")

    def _variant(self, types: dict[str, KernelType]) -> Loaded:
        """Return the code for arguments of some types."""
        key = tuple(types.values())
        found = self._loaded.get(key)
        if found is not None:
            return found
        with importing:
            from weft.driver import critical as driver
            from weft.driver.context import lock

        with lock:
            if key in self._loaded:
                return self._loaded[key]
            code = self._compiled(types)

            @outermost
            def failed(status: int, value: int, bound: int) -> None:
                raise self._error(code.failure(status, value, bound))

            loaded = driver.Loaded(code, failed)
            self._loaded[key] = loaded
            if loaded.call:
                loaded.follow(self._head or driver.missing())
                self._head = loaded.call
                set_code(self, CriticalFunction, loaded.call)
        return loaded

    def _compiled(self, types: dict[str, KernelType]) -> Code:
        with importing:
            from weft.driver import critical as driver
            from weft.lang.critical.contract import parameter_of
            from weft.lang.critical.names import symbol
            from weft.lang.critical.translate import proof_error, translate, written

        signature, contract = self._signature(), self._contract()
        made = translate(self.__weft_function__, types, signature.returns,
                         checked=not self.unchecked, prefetch=contract.level == "Olatency")
        stored = written(made.kernel)
        params = {name: parameter_of(kind, signature.wanted[name], name, stored)
                  for name, kind in types.items()}
        result = parameter_of(made.result, None, "", stored)
        code = driver.build(made.kernel, symbol(self.__name__), params, result, contract)
        broken = driver.violations(code, contract)
        if broken:
            raise proof_error(self.__name__, made, broken)
        return code

    def proof(self) -> str:
        """Return what the machine code of the function is and calls, as text."""
        code = self._annotated().code
        found = code.reach()
        outside = sorted(n for n in found.chains(code.name) if n not in found.calls)
        names = ", ".join(outside) or "nothing"
        return (f"{code.name}: {found.sizes[code.name]} bytes of machine code, "
                f"{len(found.calls)} function{'s' * (len(found.calls) > 1)}, "
                f"no system call; calls {names}")

    # --- running

    @opened
    def pinned(self, cpu: int | None = None) -> Iterator[CriticalFunction]:
        """Keep the calling thread on one CPU (by default `cpu_affinity`) for a while.

        ::

            with risk.pinned(3):
                while True: ...

        The affinity is set before and restored after; calls make no system call for it.

        Raises
        ------
        DeviceError
            If the system has no such CPU for this process, or cannot do it.
        """
        wanted = self.cpu_affinity if cpu is None else cpu
        if not hasattr(os, "sched_setaffinity"):
            raise DeviceError(f"{self.__name__}.pinned", found="a system without thread affinity",
                              expected="Linux")
        if wanted is None:
            raise DeviceError(f"{self.__name__}.pinned", found="no CPU",
                              expected="a number, here or as cpu_affinity of weft.critical")
        before = os.sched_getaffinity(0)
        try:
            os.sched_setaffinity(0, {wanted} if isinstance(wanted, int) else set(wanted))
        except (OSError, ValueError, TypeError, OverflowError) as error:
            raise DeviceError(f"{self.__name__}.pinned", found=f"CPU {wanted}",
                              expected=f"one of {sorted(before)}") from error
        try:
            yield self
        finally:
            os.sched_setaffinity(0, before)

    def latency(self, *args: Any, calls: int = 100_000) -> Latency:
        """Measure how long a call takes, `calls` times with the same arguments.

        Returns
        -------
        Latency
            Percentiles with and without the call from Python, and whether `target_latency_ns` was
            met by the 99th of those without.

        Raises
        ------
        LaunchError
            If a call fails.
        """
        with importing:
            from weft.lang.critical.latency import measure

        if calls < 1:
            raise LaunchError(f"{self.__name__}.latency", found=f"{calls} calls",
                              expected="at least 1")
        self(*args)
        return measure(self, *self._prepared(args, {}), args, calls, self.target_latency_ns)

    def run_sealed(self, *args: Any, calls: int = 1_000_000) -> None:
        """Call the function in a child process that may make no system call.

        The child is under seccomp's strict mode: the first system call would kill it.

        Raises
        ------
        UnsupportedError
            If the system has no such mode.
        LaunchError
            If the child was killed, or a call failed.
        """
        with importing:
            from weft.lang.critical.latency import sealed

        sealed(self.__name__, *self._prepared(args, {}), calls)

    # --- C

    @property
    def address(self) -> int:
        """Address of the C function that `header` describes, as long as this object lives."""
        return self._annotated().address

    @property
    def ctypes(self) -> Any:
        """The C function for ctypes: called through it, it runs without Python's lock."""
        with importing:
            from weft.lang.critical.export import prototype

        loaded = self._annotated()
        made = prototype(loaded.code)(loaded.address)
        made.keep = loaded  # what it points at
        return made

    def header(self) -> str:
        """Return a C header for the function, as it is in the file that `save` writes."""
        with importing:
            from weft.lang.critical.export import header

        return header(self._annotated().code, self.__doc__ or "")

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the function to a file.

        ``.so`` or ``.dylib`` is a shared library, with a header beside it; ``.o`` the object that
        was proved; ``.h`` the header.

        Raises
        ------
        LibraryNotFoundError
            If a shared library is asked for and there is no linker.
        """
        with importing:
            from weft.lang.critical.export import save

        save(self._annotated().code, self.__doc__ or "", os.fspath(path))


Native: Final = native_class(CriticalFunction)


def make(function: Any, options: dict[str, Any]) -> Any:
    """Return a critical function, or what makes one of a function (see `weft.critical`)."""
    level = options["level"]
    if level not in LEVELS:
        raise UnsupportedError("critical", found=f"level {level!r}",
                               expected="one of " + ", ".join(LEVELS))
    target = options["target_latency_ns"]
    if target is not None and not (isinstance(target, int | float) and target > 0):
        raise UnsupportedError("critical", found=f"target_latency_ns {target!r}",
                               expected="nanoseconds above 0")
    for name in ("no_allocation", "no_syscalls", "inline_always", "unchecked", "no_null_check"):
        if type(options[name]) is not bool:
            raise KernelError("critical", found=f"{name}={options[name]!r}",
                              expected="True or False")

    @outermost
    def wrap(function: Any) -> Any:
        if not inspect.isfunction(function):
            raise KernelError("critical", found=repr(function), expected="a function")
        return Native(function, **options)

    return wrap if function is None else wrap(function)
