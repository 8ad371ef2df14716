"""What ``weft explain`` says of a kernel in one row, and the names of its levels."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from weft.driver.report.explain import Explained
    from weft.driver.report.profile import Peaks

__all__ = ["LEVELS", "Row", "seconds_of", "summary", "texts_of"]

LEVELS: Final = ("graph", "loop", "schedule", "kernel", "source", "assembly")


def texts_of(kernel: Explained) -> dict[str, Callable[[], str]]:
    """Return what gives the text of a kernel at each level; assembly is made when it is asked."""
    return {
        "graph": lambda: kernel.graph, "loop": lambda: kernel.nest,
        "schedule": lambda: kernel.schedule, "kernel": lambda: kernel.kernel,
        "source": lambda: kernel.source, "assembly": kernel.assembly,
    }  # fmt: skip


class Row(NamedTuple):
    """What the summary says of a kernel: texts, and seconds of all its launches."""

    line: str
    launches: str
    time: str
    share: str
    bandwidth: str
    of_bandwidth: str
    rate: str
    of_rate: str


def summary(kernel: Explained, total: float, machine: Peaks) -> Row:
    """Return a row of the summary.

    Parameters
    ----------
    kernel
        What it is about.
    total
        Seconds of all kernels together.
    machine
        What the machine reaches. Arrays that fit into its last cache have no share of the
        bandwidth to memory, since they need none.
    """
    line = f"{Path(kernel.lines[0][0]).name}:{kernel.lines[0][1]}" if kernel.lines else ""
    timing, launches = kernel.timing, str(kernel.launches)
    if timing is None:
        return Row(line, launches, "refused", "", "", "", "", "")
    share = f"{timing.seconds * kernel.launches / total:.0%}" if total else ""
    time = f"{timing.seconds * 1e3:.4f} ms"
    if not timing.traffic and not timing.flops:  # nobody counted what a user's kernel does
        return Row(line, launches, time, share, "", "", "", "")
    nanoseconds = timing.seconds * 1e9
    bandwidth, rate = timing.traffic / nanoseconds, timing.flops / nanoseconds
    cached = bandwidth > machine.bandwidth or timing.traffic <= machine.cache_bytes
    return Row(line, launches, time, share, f"{bandwidth:.1f}",
               "in cache" if cached else f"{bandwidth / machine.bandwidth:.0%}",
               f"{rate:.1f}", f"{rate / machine.flops:.0%}")


def seconds_of(found: list[Explained]) -> float:
    """Return the seconds of all launches of all kernels, each timed alone."""
    return sum(k.timing.seconds * k.launches for k in found if k.timing is not None)
