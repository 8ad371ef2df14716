"""Which devices there are: names, probing, and packages outside Weft that bring more.

A device is named ``family[:ordinal or name][/pair]`` (`weft.backends.names`). A pair is one of the
(renderer, compiler) pairs of a backend; the first is its default.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol

from weft.backends.names import DeviceName, parse
from weft.config import config
from weft.errors import DeviceError, EnumerationError
from weft.imports import importing
from weft.ir.record import Record
from weft.locks import mutex
from weft.target import Target

if TYPE_CHECKING:
    from weft.backends.probing import Probe

__all__ = ["GROUP", "HOST", "ORDER", "Backend", "Found", "available", "backend", "canonical",
           "choose", "chosen", "default", "families", "first", "generation", "lookup",
           "more_pairs", "probe", "probe_pair", "register", "reset"]  # fmt: skip

GROUP: Final = "weft.backends"  # entry points of packages that bring a backend
HOST: Final = "cpu"  # the device whose memory is that of this process
ORDER: Final = ("cpu", "disk", "null", "cuda", "hip", "opencl", "tenstorrent", "vulkan", "webgpu",
                "interpreter")  # fmt: skip
_BUILT_IN: Final = {f: f"weft.backends.{f}" for f in ("cpu", "disk", "null", "opencl", "vulkan",
                                                       "webgpu", "interpreter")}  # fmt: skip
_NOT_BUILT: Final = "this version of Weft has no backend for it"
_ABSENT: Final = {
    **dict.fromkeys(("cuda", "hip"), _NOT_BUILT),
    "tenstorrent": "no toolchain for it is known",
}


class Opener(Protocol):
    """Starts the runtime of one device."""

    def __call__(self, ordinal: int, pair: str) -> Any:
        """Return the device (`weft.runtimes.base.Device`)."""
        ...


class Backend(Record):
    """One family of devices.

    Attributes
    ----------
    family : str
        Its name.
    pairs : tuple of str
        Names of its (renderer, compiler) pairs, the default first.
    probe : callable, optional
        Returns why the family is absent, or an empty string. It may raise: that is a reason too.
        It is called in this process, and so is `count`.
    count : callable, optional
        Returns how many devices there are, or what a `Probe` may tell of them.
    target : callable
        ``(ordinal, pair) -> Target``.
    renderer, compiler : callable
        ``(target, pair) -> Renderer`` and ``-> Compiler``.
    open : callable
        ``(ordinal, pair) -> Device``, the runtime.
    is_native : bool
        Whether kernels of its default pair are machine code of this process, in memory of this
        process. Its other pairs are devices with memory of their own.
    prepare : callable, optional
        Has compiler and runtime loaded on the side.
    missing : callable, optional
        ``(pair) -> str``: why a pair beside the default is absent, or an empty string. It may
        raise: that is a reason too.
    description : str
        What it is, for people; without it they are told of the target.
    is_asked_for : bool
        Whether it is never the default, nor what ``auto`` stands for, unless somebody names it.
    interprets : bool
        Whether kernels of threads run in lockstep on its memory, which is that of this process.
    probe_in_child : Probe, optional
        What a child process asks instead of `probe` and `count`, which are None then: a driver
        that hangs or crashes ends the child alone. Every driver that is a library should have it.
    computes : bool
        Whether kernels run on it. Where none do it stores values, which are copied elsewhere.
    is_tunable : bool
        Whether the time of its launches is what a search for schedules may go by.
    """

    family: str
    pairs: tuple[str, ...]
    probe: Callable[[], str] | None
    count: Callable[[], int | list[dict[str, Any]]] | None
    target: Callable[[int, str], Target]
    renderer: Callable[[Target, str], Any]
    compiler: Callable[[Target, str], Any]
    open: Opener
    is_native: bool = False
    prepare: Callable[[], None] | None = None
    missing: Callable[[str], str] | None = None
    description: str = ""
    is_asked_for: bool = False
    interprets: bool = False
    probe_in_child: Probe | None = None
    computes: bool = True
    is_tunable: bool = False


class Found(Record):
    """What probing said of a family.

    Attributes
    ----------
    family : str
        The family, or family and pair.
    reason : str
        Why it cannot be used, empty where it can.
    devices : tuple of str
        Names of its devices.
    ordinals : tuple of int
        Their numbers, in the same order.
    described : tuple of Mapping
        What the probe said of each, in the same order, if it said more than their number.
    """

    family: str
    reason: str
    devices: tuple[str, ...] = ()
    ordinals: tuple[int, ...] = ()
    described: tuple[Mapping[str, Any], ...] = ()


_backends: dict[str, Backend] = {}
_broken: dict[str, str] = {}  # families whose module does not load, and why
_probed: dict[str, Found] = {}  # by family, or by family and pair
_asking: dict[str, Any] = {}  # held by the thread that probes a family
_entries_read = False
_chosen: str | None = None  # what `set_default_device` asked for
_generation = 0


def _read_again() -> None:
    global _entries_read
    _entries_read = False


_lock = mutex(_read_again)


def canonical(found: Backend, name: DeviceName) -> str:
    """Return the shortest name of a device, without the default pair of its family."""
    return str(name.replace(pair="" if name.pair == _pairs(found)[0] else name.pair))


def generation() -> int:
    """Return a number that changes whenever backends are registered or forgotten."""
    return _generation


def register(new: Backend) -> None:
    """Add a backend, or replace the one of its family."""
    global _generation
    with _lock:
        _generation += 1
        _backends[new.family] = new
        _broken.pop(new.family, None)
        for name in [n for n in _probed if n.partition("/")[0] == new.family]:
            del _probed[name]


def reset() -> None:
    """Forget what was registered and probed."""
    global _entries_read, _generation
    with _lock:
        _generation += 1
        _backends.clear()
        _broken.clear()
        _probed.clear()
        _entries_read = False


def families() -> list[str]:
    """Return the known families: the built-in ones in the order of probing, then the others."""
    _read_entry_points()
    with _lock:
        known = {*_backends, *_broken, *_BUILT_IN}
    return [f for f in ORDER if f in known or f in _ABSENT] + sorted(known - set(ORDER))


def backend(family: str) -> Backend:
    """Return the backend of a family, loading it if need be.

    Raises
    ------
    DeviceError
        If there is none, or if it cannot be loaded.
    """
    with _lock:
        if family not in _backends and family in _BUILT_IN:
            _load(family, _BUILT_IN[family])
        if family not in _backends:
            _read_entry_points()
        found = _backends.get(family)
        if found is not None:
            return found
        reason = _broken.get(family) or _ABSENT.get(family)
    if reason:
        raise DeviceError("device", found=family, expected="a device that is there", hint=reason)
    raise DeviceError("device", found=repr(family), expected="one of " + ", ".join(families()))


def lookup(text: str) -> tuple[Backend, DeviceName]:
    """Return the backend of a device name, and the name with all its parts filled in.

    Raises
    ------
    DeviceError
        For an unknown family, pair or ordinal, and for a device that is absent.
    """
    name = parse(text)
    found = backend(name.family)
    state = probe(name.family)
    if state.reason:
        raise DeviceError("device", found=text, expected="a device that is there",
                          hint=state.reason)
    pairs = _pairs(found)
    pair = name.pair or pairs[0]
    if pair not in pairs:
        raise DeviceError("device", found=text,
                          expected="one of " + ", ".join(f"{name.family}/{p}" for p in pairs),
                          hint="disabled in the configuration" if pair in found.pairs else None)
    which = _number(state, name)
    if which is None:
        raise DeviceError("device", found=text, expected="one of " + ", ".join(state.devices))
    if pair != found.pairs[0]:
        reason = probe_pair(found, pair).reason
        if reason:
            raise DeviceError("device", found=text, expected="a device that is there", hint=reason)
    called = parse(state.devices[which]).called
    return found, DeviceName(name.family, state.ordinals[which], pair, called)


def _number(state: Found, name: DeviceName) -> int | None:
    """Return which of the devices that were found a name means."""
    for number, (device, ordinal) in enumerate(zip(state.devices, state.ordinals, strict=True)):
        if parse(device).called == name.called if name.called else ordinal == name.ordinal:
            return number
    return None


def _pairs(found: Backend) -> list[str]:
    """Return the pairs of a backend that the configuration leaves enabled.

    There is none without the native one, by which arrays come in and go out.
    """
    pairs = [p for p in found.pairs if config().backend(f"{found.family}/{p}").enabled]
    return pairs if not found.is_native or found.pairs[0] in pairs else []


def available() -> list[Found]:
    """Return what probing says of every family, in order; it never raises and prints nothing."""
    return [probe(family) for family in families()]


def more_pairs() -> list[Found]:
    """Return what probing says of the pairs beside the default of families that can be used."""
    found = []
    for state in available():
        if not state.reason:
            known = backend(state.family)
            found += [probe_pair(known, pair) for pair in known.pairs[1:]]
    return found


def probe_pair(found: Backend, pair: str) -> Found:
    """Return whether a pair beside the default of a family that is there can be used.

    It is asked once, and never raises.
    """
    name = f"{found.family}/{pair}"
    with _lock:
        known = _probed.get(name)
    if known is None:
        known = Found(name, "")
        if pair not in _pairs(found):
            known = Found(name, "disabled in the configuration")
        elif found.missing is not None:
            known = Found(name, _reason(found.missing, pair))
        if not known.reason:
            known = Found(name, "", tuple(f"{d}/{pair}" for d in probe(found.family).devices))
        with _lock:
            _probed[name] = known
    return known


def _reason(missing: Callable[[str], str], pair: str) -> str:
    try:
        return missing(pair)
    except Exception as error:  # whatever it throws is a reason, never a failure
        return f"{type(error).__name__}: {error}"


def lookup_default(text: str) -> DeviceName:
    """Return what `lookup` does of a name, if the device may be the default one.

    Raises
    ------
    DeviceError
        As `lookup`, and for a device that computes nothing.
    """
    found, name = lookup(text)
    if not found.computes:
        raise DeviceError("device", found=text, expected="a device that computes",
                          hint=f"tensors are opened on it: weft.load(path, device={text!r})")
    return name


def choose(name: str | None) -> None:
    """Make a device the default of this process; None goes back to the settings."""
    global _chosen
    _chosen = name


def chosen() -> str | None:
    """Return what `choose` was given last."""
    return _chosen


def default() -> str:
    """Return the device that was chosen, else that of ``WEFT_DEVICE``, else the first that runs.

    What computes nothing, or a thousand times slower, is taken only where it is asked for.

    Raises
    ------
    DeviceError
        If that one is absent, or if none can be used; the message says why for each family.
    """
    if _chosen is not None:
        return _chosen
    named = config().device
    if named is not None:
        try:
            lookup_default(named)
        except DeviceError as error:
            raise DeviceError("WEFT_DEVICE", found=named, expected="a device that is there",
                              hint=error.hint or f"expected {error.expected}") from None
        return named
    return first()


def first() -> str:
    """Return the first device that runs and need not be asked for by name.

    Raises
    ------
    DeviceError
        If there is none; the message says why for each family.
    """
    reasons = []
    for family in _in_order():
        found = probe(family)
        if found.devices and not backend(family).is_asked_for:
            return found.devices[0]
        reasons.append(f"{found.family}: {found.reason or 'only where WEFT_DEVICE names it'}")
    raise DeviceError("device", found="none that can be used", expected="at least one",
                      hint="; ".join(reasons))


def _in_order() -> Iterator[str]:
    """Yield the families as `families`, reading entry points only if nobody stops before."""
    yield from ORDER
    yield from (f for f in families() if f not in ORDER)


def probe(family: str) -> Found:
    """Return whether a family can be used; it never raises.

    It is asked once: other threads wait for the one that asks.
    """
    with _lock:
        found = _probed.get(family)
        if found is not None:
            return found
        asking = _asking.setdefault(family, mutex())
    with asking:
        with _lock:
            found = _probed.get(family)
        if found is None:
            found, asked = _probe(family)
            with _lock:
                if _backends.get(family) is asked:  # else another was registered meanwhile
                    _probed[family] = found
    return found


def _probe(family: str) -> tuple[Found, Backend | None]:
    """Return what probing says of a family, and the backend that it was asked of."""
    settings = config().backend(family)
    if not settings.enabled:
        return Found(family, "disabled in the configuration"), _backends.get(family)
    try:
        found = backend(family)
    except DeviceError as error:
        return Found(family, error.hint or error.message), None
    if not _pairs(found):
        return Found(family, "disabled in the configuration"), found
    answer = _answer(found)
    if isinstance(answer, str):
        return Found(family, answer), found
    count = answer if isinstance(answer, int) else len(answer)
    wanted = range(count) if settings.ids is None else settings.ids
    ordinals = tuple([i for i in wanted if i < count])
    said = () if isinstance(answer, int) else tuple([answer[i] for i in ordinals])
    called = [d["name"] for d in said] or [""] * len(ordinals)
    devices = tuple([str(DeviceName(family, i, "", name))
                     for i, name in zip(ordinals, called, strict=True)])
    reason = "" if devices else "no device of it was found"
    if count and not devices:
        reason = f"the configuration allows none of its ids, 0 to {count - 1}"
    return Found(family, reason, devices, ordinals, said), found


def _answer(found: Backend) -> str | int | Sequence[Mapping[str, Any]]:
    """Return the devices, or why there is none; what is not built in has a time limit."""
    if found.probe_in_child is None and found.family in _BUILT_IN:
        try:
            return _ask(found)
        except MemoryError:  # that the device is there nobody doubts
            raise
        except Exception as error:  # whatever it throws is a reason, never a failure
            return f"{type(error).__name__}: {error}"
    with importing:  # the built-in devices do without
        from weft.backends import probing

    if found.probe_in_child is not None:
        return probing.ask(found.probe_in_child)
    return probing.ask_in_thread(lambda: _ask(found), found.family)


def _ask(found: Backend) -> str | int | list[dict[str, Any]]:
    if found.probe is None or found.count is None:
        return "its backend does not say how to find it"
    if reason := found.probe():
        return reason
    try:
        return found.count()
    except Exception as error:
        raise EnumerationError(found.family, found=f"{type(error).__name__}: {error}",
                               expected="the number of its devices") from error


def _load(family: str, module: str) -> None:
    try:
        with importing:
            loaded = importlib.import_module(module)
        register(_backend_of(loaded))
    except MemoryError:
        raise
    except Exception as error:
        _broken[family] = f"{type(error).__name__}: {error}"


def _backend_of(loaded: Any) -> Backend:
    """Return the Backend that an entry point names: itself, or the BACKEND of a module."""
    found = getattr(loaded, "BACKEND", loaded)
    if not isinstance(found, Backend):
        raise DeviceError("backend", found=type(found).__name__, expected="a Backend")
    return found


def _read_entry_points() -> None:
    """Load the backends of other packages, once and only when a name asks for them."""
    global _entries_read
    with _lock:
        if _entries_read:
            return
        _entries_read = True
        from importlib.metadata import entry_points

        for entry in entry_points(group=GROUP):
            if entry.name in _BUILT_IN or entry.name in _backends:
                continue
            try:
                register(_backend_of(entry.load()))
            except Exception as error:
                _broken[entry.name] = f"{type(error).__name__}: {error}"
