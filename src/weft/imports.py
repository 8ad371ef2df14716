"""Importing many modules at once: without the collector's visits, and never during a fork."""

import gc
import os
import sys
import threading
import time
from collections.abc import Callable
from importlib import import_module
from types import TracebackType
from typing import Any, Final

from weft.locks import mutex

__all__ = ["Late", "explained", "importing", "through_forks"]


_OWN: Final = ("weft", "llvmlite")
_PAUSE, _PATIENCE = 0.001, 10.0  # seconds between two looks, and at the most before a fork
_MANY: Final = 8  # imported modules whose parts are worth a step of their own
# What tells the errors of imports in Weft's words, and returns None where that is not needed.
explained: Final[list[Callable[[BaseException], BaseException | None]]] = []
_holders: Final[list[Callable[[], Callable[[], None]]]] = []  # see through_forks
_outer: int = 0  # how many of them, at the end, are taken before all others


def _age() -> None:
    """Move all that the collector knows to its oldest generation, without a look at it."""
    if not gc.get_freeze_count():  # what somebody froze has to stay so
        gc.freeze()
        gc.unfreeze()


class _Importing:
    """A block that imports many modules; others wait at its beginning, and forks for its end.

    A fork meanwhile would leave the child modules that nobody there goes on to import, and that it
    would wait for. Nothing else is waited for inside.

    What modules consist of stays, and the collector would look through all of it, and all there was
    before, several times: a sixth of the time. So it rests meanwhile, and what is there in the end
    counts as old: the visit that would follow finds next to nothing in 3 ms.
    """

    def __init__(self) -> None:
        self._lock = mutex()
        self._depth = 0
        self._collects = False
        self._present = 0  # modules at the beginning
        self._forker = 0  # the thread that is about to fork
        self._held: list[Callable[[], None]] = []  # what gives back what it holds

    def __enter__(self) -> bool:
        self._lock.acquire()
        if not self._depth:
            self._collects = gc.isenabled()
            gc.disable()
            self._present = len(sys.modules)
        self._depth += 1
        return True

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:  # fmt: skip
        self._depth -= 1
        if self._collects and not self._depth:
            if len(sys.modules) - self._present >= _MANY:
                _age()
            gc.enable()
        self._lock.release()
        if error is not None:
            _explain(error)

    def hold(self) -> None:
        """Wait for the end of the block in another thread, and for what else a fork has to hold.

        Modules that come meanwhile may have locks of their own, and threads that go on may take
        them at once. So once no import is under way, it is looked whether all are held. Imports of
        single modules outside of the block are waited for as well, but not for ever.
        """
        end = time.monotonic() + _PATIENCE
        while True:
            held: list[Callable[[], None]] = []
            holders = tuple(reversed(_holders))
            try:
                for one in holders:
                    held.append(one())
                self._lock.acquire()
            except BaseException:
                _call(held)
                raise
            waits = not self._depth and _is_under_way() and time.monotonic() < end
            if len(holders) == len(_holders) and not waits:
                self._forker, self._held = threading.get_ident(), held
                return
            self._lock.release()
            _call(held)
            if waits:
                time.sleep(_PAUSE)

    def release(self) -> None:
        """End what `hold` began, if it did."""
        if self._forker == threading.get_ident():
            held, self._held, self._forker = self._held, [], 0
            self._lock.release()
            _call(held)


def _is_under_way() -> bool:
    """Whether a module of Weft is being imported, by another thread."""
    return any(getattr(getattr(module, "__spec__", None), "_initializing", False)
               for name, module in list(sys.modules.items()) if name.startswith(_OWN))


def _explain(error: BaseException) -> None:
    """Raise what somebody makes of an error of an import."""
    for explain in explained:
        found = explain(error)
        if found is not None:
            raise found from error


def _call(held: list[Callable[[], None]]) -> None:
    while held:
        held.pop()()


def through_forks(holder: Callable[[], Callable[[], None]], outer: bool = False) -> None:
    """Let forks hold a lock that another thread may have: in the child nobody would open it.

    Parameters
    ----------
    holder
        Takes it before a fork, and returns what gives it back, in both processes. What is taken
        with it held is registered first.
    outer
        Take it before all others, whenever these come: the collector, which may begin while it is
        held, takes LLVM's.
    """
    global _outer
    _holders.insert(len(_holders) - (0 if outer else _outer), holder)
    _outer += outer


importing: Final = _Importing()

if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=importing.hold, after_in_parent=importing.release,
                        after_in_child=importing.release)  # fmt: skip


class Late:
    """A module that is imported when something of it is asked for: most kernels do without it.

    It stands where ``from weft.passes.vector import warp`` would::

        if TYPE_CHECKING:
            from weft.passes.vector import warp
        else:
            warp = Late("weft.passes.vector.warp")
    """

    __slots__ = ("_module", "_name")

    def __init__(self, name: str) -> None:
        self._name = name
        self._module: Any = None

    def __getattr__(self, name: str) -> Any:
        if self._module is None:
            with importing:
                self._module = import_module(self._name)
        return getattr(self._module, name)
