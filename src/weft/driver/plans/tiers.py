"""Tiered compilation: compile quickly first, recompile hot kernels with full optimisation.

With ``WEFT_TIERED=1`` a kernel whose work is small starts with the code of a first tier, scalar and
hardly optimised. A thread looks at the counters of the plans; the kernel that has cost most by now
is compiled fully, and its address is stored into the step table of every plan that uses it. That
is one word: a call that is under way finds the old code or the new, and the old code stays for as
long as the plan does. A failure in the background leaves the first tier running.

A kernel with so much work that one slow run would cost more than compiling it is compiled fully at
once. The two tiers add up in different orders, so the last bits of a sum may change at a switch;
without ``WEFT_TIERED`` there is one tier, and the same plan gives the same bits every time.
"""

from __future__ import annotations

import atexit
import sys
import threading
import time
import weakref
from typing import TYPE_CHECKING, Final, NamedTuple

from weft.config import Debug, config, debug
from weft.driver import counters, kernels
from weft.driver.context import lock
from weft.driver.plans.plan import Plan
from weft.locks import in_child, mutex

if TYPE_CHECKING:
    from weft.driver.context import Context
    from weft.driver.kernels import Code

SLOWER: Final = 10  # times that a kernel of the first tier takes, roughly
CALL_NANOSECONDS: Final = 100  # what a run costs at least
HOT_NANOSECONDS: Final = 2_000_000  # time lost so far from which compiling again is worth it
_SHORTEST, _LONGEST = 0.005, 0.1  # seconds between two looks at the counters


class Switch(NamedTuple):
    """One kernel that was compiled again.

    Attributes
    ----------
    kernel : str
        Its symbol.
    kind : str
        Kind of its nest.
    calls : int
        How often it had run.
    milliseconds : float
        What compiling it took, in the background.
    seconds : float
        When it was switched, on the clock of `time.perf_counter`.
    """

    kernel: str
    kind: str
    calls: int
    milliseconds: float
    seconds: float


class _State:
    """What the thread works on; a forked child starts with nothing to do and no thread."""

    def __init__(self) -> None:
        self.lock = mutex()
        self.plans: weakref.WeakSet[Plan] = weakref.WeakSet()
        self.failed: set[str] = set()
        self.switches: list[Switch] = []
        self.stop = threading.Event()
        self.thread: threading.Thread | None = None


_state = _State()


def switches() -> list[Switch]:
    """Return the kernels that were compiled again in this process, in order."""
    return list(_state.switches)


def watch(plan: Plan) -> None:
    """Have the kernels of a plan that are of the first tier compiled again once they are hot."""
    if not any(code.nest is not None for code in plan.codes.values()) or not config().tiered:
        return
    state = _state
    with state.lock:
        state.plans.add(plan)
        if state.thread is None and not state.stop.is_set():
            state.thread = threading.Thread(target=_work, args=(state,), name="weft tiers",
                                            daemon=True)
            state.thread.start()


def stop() -> None:
    """End the thread after the kernel in hand: the interpreter must not end under it."""
    state = _state
    with state.lock:
        state.stop.set()
        thread = state.thread
    if thread is not None and thread is not threading.current_thread():
        thread.join()


def forget() -> None:
    """Drop what is known of plans and failures (for tests)."""
    with _state.lock:
        _state.plans.clear()
        _state.failed.clear()
        _state.switches.clear()


def _start_anew() -> None:
    global _state
    _state = _State()


in_child(_start_anew)
atexit.register(stop)


def _work(state: _State) -> None:
    """Look for hot kernels until none is left that could become hot."""
    pause = _SHORTEST
    while not state.stop.wait(pause):
        with state.lock:
            plans = list(state.plans)
            waiting = [p for p in plans if _candidates(p, state)]
            if not waiting:
                state.plans.clear()
                state.thread = None
                return
        heat, key, calls = max(_heat(p, state) for p in waiting)
        if heat < HOT_NANOSECONDS:
            pause = min(2 * pause, _LONGEST)
            continue
        pause = _SHORTEST
        _improve(state, key, calls, plans)
        del plans, waiting


def _candidates(plan: Plan, state: _State) -> dict[str, Code]:
    return {key: code for key, code in plan.codes.items()
            if code.nest is not None and key not in state.failed}


def _heat(plan: Plan, state: _State) -> tuple[int, str, int]:
    """Return the nanoseconds that a plan's hottest kernel took so far, its key, and its runs."""
    found = _candidates(plan, state)
    calls = plan.calls
    runs = dict.fromkeys(found, 0)
    for launch in plan.launches:
        if launch.key in runs:
            runs[launch.key] += calls
    return max((count * (SLOWER * kernels.nanoseconds(found[key].nest) + CALL_NANOSECONDS), key,
                count) for key, count in runs.items())


def _improve(state: _State, key: str, calls: int, plans: list[Plan]) -> None:
    """Compile a kernel fully and switch every plan to it; whatever fails, the old code stays."""
    start = time.perf_counter()
    try:
        with lock:
            old, new = kernels.compile_again(key, _context_of(key, plans))
            done = time.perf_counter()
            for plan in plans:
                if plan.codes.get(key) is old:
                    plan.switch(new)
    except Exception as error:  # a thread that nobody waits for must not die with a traceback
        state.failed.add(key)
        counters.count("background failures")
        if debug(Debug.COMPILE):
            print(f"weft: {kernels.symbol(key)} stays on the first tier: {error}", file=sys.stderr)
        return
    assert old.nest is not None
    made = Switch(new.name, old.nest.meta.kind, calls, (done - start) * 1e3, done)
    counters.count("kernels switched")
    state.switches.append(made)  # last: who sees the switch finds the counter as it is
    if debug(Debug.COMPILE):
        print(f"weft: switched {made.kernel} ({made.kind}) to the full tier after {calls} runs, "
              f"compiled in {made.milliseconds:.1f} ms behind it", file=sys.stderr)


def _context_of(key: str, plans: list[Plan]) -> Context:
    return next(plan.context for plan in plans if key in plan.codes)


__all__ = ["Switch", "forget", "stop", "switches", "watch"]
