"""``@weft.compute``: a function whose loops the compiler maps to threads and vectors."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, cast

from weft.config import watchers
from weft.driver.context import Context, host_context
from weft.errors import DependenceWarning, LaunchError, outermost, trim, user_location
from weft.imports import importing
from weft.lang.compute.annotations import Annotations, check_made
from weft.lang.launch.signature import Signature
from weft.lang.launch.variants import failure, place_of
from weft.lang.source.closures import names_of
from weft.lang.source.texts import keep
from weft.runtimes.native.calls.callables import native_class, set_code
from weft.tensors.core.devices import get_default_device
from weft.tensors.core.fusion_scope import active
from weft.tensors.core.thread_state import state
from weft.weak import Living

if TYPE_CHECKING:
    from weft.driver.launch import Failed, Loaded, LoadedOnDevice
    from weft.ir.stmt import Kernel
    from weft.lang.compute.arguments import Arguments, Sharing
    from weft.lang.compute.report import Report
    from weft.lang.compute.translate import Written
    from weft.runtimes.native.calls.launches import Context as NativeContext

__all__ = ["ComputeFunction", "Native"]

_AGAIN: Final = 2  # calls with arrays of the same sizes, after which they go to native code
_MOST_SEEN: Final = 256  # kinds of calls that are counted
_MOST_SHAPES: Final = 8  # that a function is compiled for, of arguments of the same types


class ComputeFunction:
    """A function of loop nests over arrays, which writes its results to them.

    Made by `weft.compute`. It is compiled when it is first called with arguments of some types and
    shapes, and kept: in memory, and on disk for other processes.
    """

    __name__: str

    def __init__(self, function: Callable[..., Any], annotations: Annotations) -> None:
        self.annotations = annotations
        functools.update_wrapper(self, function)
        self.__weft_function__ = function
        keep(function)
        self._signature = Signature(function)
        self._written: dict[Any, frozenset[str]] = {}
        self._families: dict[Any, dict[Any, _Compiled]] = {}
        self._launches: list[NativeContext] = []
        self._seen: dict[Any, int] = {}
        _functions.add(self)

    def __call__(self, *args: Any, **named: Any) -> None:
        """Run the function; it is finished when this returns.

        Raises
        ------
        KernelError
            With all that is wrong in the function, at its first call with such arguments.
        BoundsError
            If it accessed an element that is not there.
        LaunchError
            If the arguments do not fit, or the function reported a failure.
        """
        try:
            self._called(args, named)
        except Exception as error:
            trim(error)
            raise

    def _called(self, args: tuple[Any, ...], named: dict[str, Any]) -> None:
        if state.capture is not None and not self._is_interpreted():
            with importing:
                from weft.lang.launch.captured import belongs

            args = self._bound(args, named)
            named = {}
            if belongs(args):
                with importing:
                    from weft.lang.compute.captured import call_captured

                call_captured(self, args)
                return
        if active.fusion is not None:
            active.fusion.flush()  # of kernels; loops do not wait
        host = self._take(args, named)
        interpreted = self._is_interpreted()
        place = None if interpreted else place_of(host, self.annotations.device)
        if place is not None and not place.is_native:
            with importing:
                from weft.lang.launch.tensors import Distant

            host.distant = Distant()
        written = self._written_by(host) if host.tensors else frozenset()
        with host.turn(written) as host.alone, host:
            host.resolve(written)
            if place is None:
                self._interpret(host)
                return
            call = _Call(self, host, place)
            failed = self._run(call)
            host.finish()
        if failed is not None:
            raise failure(self.__name__, failed, functions=[self])
        if call.is_plain and call.sharing is None and place.is_native:
            self._quicken(call, args, named)

    _miss = __call__  # what native code calls with arguments that it does not know

    def _is_interpreted(self) -> bool:
        device = get_default_device() if self.annotations.device == "auto" else ""
        if device != "cpu":
            device = self.annotations.resolved()
        return device.startswith("interpreter")

    def _run(self, call: _Call) -> Failed | None:
        if call.is_plain:
            compiled = self._compiled(call)
            failed = call.run(compiled.fast)
            if failed is None or failed.message != compiled.fallback:
                return failed
        return call.run(self._as_written(call))

    @outermost
    def explain(self, *args: Any, **named: Any) -> Report:
        """Return what becomes of each loop for such arguments, and why; nothing is run."""
        host = self._take(args, named)
        written = self._written_by(host) if host.tensors else frozenset()
        with host.turn(written) as host.alone, host:
            host.resolve(written)
            return self._compiled(_Call(self, host)).report

    def __repr__(self) -> str:
        return f"<weft.compute {self.__name__}>"

    def _quicken(self, call: _Call, args: tuple[Any, ...], named: dict[str, Any]) -> None:
        """Let calls like one that went well run in native code, from the second of them on."""
        kinds = tuple(map(type, (*args, *named.values())))
        key = kinds, tuple(named), call.family, call.static_key
        count = self._seen[key] = self._seen.get(key, 0) + 1
        if len(self._seen) > _MOST_SEEN or type(self) is ComputeFunction:
            return
        from weft.driver import counters as report
        from weft.lang.launch.launch import native_launcher

        launcher = None if report.active() is not None else native_launcher()
        # The code of all calls is compiled by the first one, which takes long anyway.
        if launcher is None or count < _AGAIN:  # none are allowed, or they are recorded
            return
        if count > _AGAIN:  # it has its code, which a change of devices may have taken away
            launcher.enable(self)
            return
        with importing:
            from weft.lang.compute.native import native_call

        compiled = self._compiled(call)
        loaded, name = cast("Loaded", compiled.fast), self.__name__
        source = self.__weft_function__

        @outermost
        def fail(code: int, _: int, __: int, value: int, bound: int) -> None:
            raise failure(name, loaded.failed(code, value, bound), functions=[source])

        annotated = {n for n, kind in self._signature.wanted.items() if kind is not None}
        written = self._written_by(call.host) if call.host.tensors else frozenset()
        context = native_call(launcher, loaded, compiled.fallback, args, named, call.host,
                              annotated, written, fail)
        if context is not None:
            launcher.attach(self, self._launches, context)

    # --- arguments

    def _take(self, args: tuple[Any, ...], named: Mapping[str, Any]) -> Arguments:
        with importing:
            from weft.lang.compute.arguments import Arguments

        args = self._bound(args, named)
        host = Arguments(self.__name__, self._signature)
        host.bind(self._signature, args)
        return host

    def _bound(self, args: tuple[Any, ...], named: Mapping[str, Any]) -> tuple[Any, ...]:
        """Return the arguments of a call in order, defaults included."""
        if not named and len(args) == len(self._signature.names):
            return args
        try:
            bound = self._signature.signature.bind(*args, **named)
        except TypeError as error:
            raise LaunchError(f"call of {self.__name__}", found=str(error),
                              expected=f"{self.__name__}{self._signature.signature}") from None
        bound.apply_defaults()
        return tuple(bound.arguments.values())

    def _check_requests(self, kernel: Kernel, written: Written,
                        place: Context | None = None) -> Report:  # fmt: skip
        """Return what becomes of the loops.

        It refuses annotations that cannot be followed, and warns of promises that are not kept.
        """
        with importing:
            from weft.driver.launch import schedule
            from weft.lang.compute.report import report

        scheduled = schedule(kernel, place or host_context())
        found = report(written, kernel, scheduled)
        if self.annotations.hints():
            code = self.__weft_function__.__code__
            check_made(self.annotations, self.__name__, (code.co_filename, code.co_firstlineno),
                       kernel, scheduled, found)
        for message in found.broken:
            file, line = user_location() or ("<compute>", 1)
            warnings.warn_explicit(message, DependenceWarning, file, line)
        return found

    def _written_by(self, host: Arguments) -> frozenset[str]:
        """Return the arguments that the function writes to."""
        with importing:
            from weft.lang.compute.arguments import Declared
            from weft.lang.compute.translate import written_memories

        key = tuple(host.types.values())
        if key not in self._written:
            declared = Declared(None, {}, frozenset(), exact=True, flat=True)
            self._written[key] = written_memories(self.__weft_function__, host.types, declared)
        return self._written[key]

    # --- compilation

    def _compiled(self, call: _Call) -> _Compiled:
        family = self._families.setdefault(call.family, {})
        found = family.get(call.static_key)
        # What is annotated is checked against sizes, and most wishes need them.
        many = len(family) >= _MOST_SHAPES and not self.annotations.hints()
        if found is None and many:
            found = family.get(())
        if found is None:
            static = {} if many else call.static
            found = family[call.static_key if static else ()] = _Compiled(self, call, static)
        return found

    def _as_written(self, call: _Call) -> Loaded | LoadedOnDevice:
        """Return the function as it stands in the source: in order, every index checked."""
        family = self._families.setdefault((call.family, "as written"), {})
        if () not in family:
            written = call.translate({}, exact=True)
            in_order = (("compute", True), ("wish vectors", False), ("wish threads", False))
            meta = written.kernel.meta.replace(hints=in_order)
            kernel = written.kernel.replace(meta=meta)
            loaded = self.load(kernel, call.place, written.constants)
            family[()] = loaded  # type: ignore[assignment]
        return family[()]  # type: ignore[return-value]

    def load(self, kernel: Kernel, place: Context | None,
             constants: Sequence[Any]) -> Loaded | LoadedOnDevice:  # fmt: skip
        """Return a kernel compiled for a device; what that lacks is an error with its line."""
        with importing:
            from weft.lang.launch.launch import load_at

        code = self.__weft_function__.__code__
        return load_at(place or host_context(), kernel, constants, f"function {self.__name__}",
                       (code.co_filename, code.co_firstlineno))

    def _interpret(self, host: Arguments) -> None:
        with importing:
            from weft.runtimes.lockstep.run import Grid, run

        call = _Call(self, host)
        written = call.translate({}, exact=True)
        addresses = [*call.addresses,
                     *(c.__array_interface__["data"][0] for c in written.constants)]
        run(written.kernel, addresses, host.variables, Grid((1, 1, 1), (1, 1, 1)),
            known=names_of(self))
        host.finish()


_functions: Final = Living[ComputeFunction]()
Native: Final = native_class(ComputeFunction)


def _reconsider() -> None:
    """Take the native code away: the default device, or a setting, may be another one."""
    for function in _functions:
        if isinstance(function, Native):
            set_code(function, ComputeFunction, 0)


watchers.append(_reconsider)


class _Call:
    """One call: what it passes, and what the function is to be compiled for.

    Attributes
    ----------
    static : dict of str to int
        Sizes and strides.
    is_plain : bool
        Whether its integers are small enough that indices cannot overflow.
    """

    __slots__ = ("addresses", "family", "function", "host", "is_plain", "negative", "place",
                 "sharing", "static", "static_key", "types")  # fmt: skip

    def __init__(self, function: ComputeFunction, host: Arguments,
                 place: Context | None = None) -> None:  # fmt: skip
        with importing:
            from weft.lang.compute.arguments import LARGEST

        self.function, self.host, self.types = function, host, host.types
        self.place = place
        self.sharing: Sharing | None = host.sharing()
        self.addresses = host.passes(self.sharing)
        variables = host.variables
        self.negative = frozenset(n for n in host.integers if variables[n] < 0)
        self.static = {k: v for k, v in variables.items() if k not in host.numbers}
        self.static_key = tuple(self.static.values())
        self.is_plain = all(-LARGEST <= variables[n] <= LARGEST for n in host.integers)
        self.family = (tuple(host.types.values()), self.sharing, self.negative,
                       "" if place is None or place.is_native else place.name)

    def run(self, loaded: Loaded | LoadedOnDevice) -> Failed | None:
        """Run a compiled kernel; return what stopped it, if anything did."""
        if self.host.distant is not None:
            with importing:
                from weft.lang.launch.device_launch import run_on_device

            return run_on_device(self.host, self.addresses, cast("LoadedOnDevice", loaded))
        variables = self.host.variables
        values = [variables[name] for name in loaded.variables]
        return cast("Loaded", loaded).run(self.addresses, values)

    def translate(self, static: Mapping[str, int], exact: bool) -> Written:
        """Return the function as loop nests as they were written."""
        with importing:
            from weft.lang.compute.arguments import Declared
            from weft.lang.compute.translate import translate
            from weft.lang.values.records import FlatNeeded

        function, checked = self.function.__weft_function__, not self.function.annotations.unchecked
        try:
            declared = Declared(self.sharing, static, self.negative, exact)
            return translate(function, self.types, declared, checked)
        except FlatNeeded:
            declared = Declared(self.sharing, static, self.negative, exact, flat=True)
            return translate(function, self.types, declared, checked)


class _Compiled:
    """A function for some types and shapes: the code for the usual case, and what it does."""

    def __init__(self, function: ComputeFunction, call: _Call, static: Mapping[str, int]) -> None:
        with importing:
            from weft.passes.nests import FALLBACK, normalise

        self.fallback = FALLBACK  # what a failure says where the function has to run as written
        written = call.translate(static, exact=False)
        kernel = normalise(written.kernel, not function.annotations.unchecked)
        wishes = function.annotations.hints()
        hints = (("compute", True), ("noalias", True), *wishes)
        kernel = kernel.replace(meta=kernel.meta.replace(hints=hints))
        self.report = function._check_requests(kernel, written, call.place)
        self.fast = function.load(kernel, call.place, written.constants)
