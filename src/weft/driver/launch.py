"""Kernels of users: compiled, loaded, and called on memory that somebody else owns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from weft.driver import device, kernels
from weft.ir.stmt import Kernel, Location
from weft.ir.traverse import walk
from weft.kernelize.emit import CHECK

__all__ = ["Failed", "Loaded", "load_kernel", "schedule"]


class Failed(NamedTuple):
    """What stopped a kernel: the message, its place in the source, and two numbers about it."""

    message: str
    place: Location | None
    value: int
    bound: int


class Loaded:
    """One kernel, ready to run.

    Attributes
    ----------
    variables : tuple of str
        Names of its variables in the order in which a call gives them.
    """

    __slots__ = ("_call", "_constants", "_messages", "_places", "variables")

    def __init__(self, code: kernels.Code, nbuffers: int, places: list[Location | None],
                 constants: Sequence[Any]) -> None:  # fmt: skip
        from weft.runtimes.native import BufferRef, KernelStep, NativePlan, VariableRef

        self.variables = tuple(code.variables)
        self._messages, self._places = code.messages, places
        count = len(self.variables)
        step = KernelStep(code.address, [BufferRef.input(k) for k in range(nbuffers)],
                          [VariableRef(k) for k in range(count)], code.name)
        plan = NativePlan(device.runtime().executor, [step], nbuffers, 0, nvariables=count,
                          release_gil=True, keep=(code.library, *constants))
        self._constants = tuple(c.__array_interface__["data"][0] for c in constants)
        self._call = plan.call

    def run(self, addresses: Sequence[int], values: Sequence[int]) -> Failed | None:
        """Run the kernel on memory at some addresses; return what stopped it, if anything did."""
        failure = self._call(*addresses, *self._constants, 0, *values)
        if failure is None:
            return None
        code, _, _, value, bound = failure
        if not 0 < code <= len(self._messages):
            return Failed(f"failure {code}", None, value, bound)
        message, number = self._messages[code - 1]
        place = self._places[number] if 0 <= number < len(self._places) else None
        return Failed(message, place, value, bound)


def load_kernel(kernel: Kernel, constants: Sequence[Any] = ()) -> Loaded:
    """Return a kernel compiled for the host, from a cache if it is there.

    `constants` are NumPy arrays, the last of its parameters.

    What is cached must not depend on the lines that the kernel stands on, so its checks are
    numbered, and this process keeps what the numbers mean.
    """
    places: list[Location | None] = []
    numbers: dict[object, Location] = {}
    for number, stmt in enumerate(walk(kernel.body)):
        places.append(kernel.locations.get(stmt))
        numbers[stmt] = Location(CHECK, number)
    code = kernels.compiled(kernel.replace(locations=numbers))
    kernels.load([code])
    return Loaded(code, len(kernel.params), places, constants)


def schedule(kernel: Kernel) -> Kernel:
    """Return a kernel with the schedule that it gets on this machine."""
    from weft.strategies import choose

    return choose(kernel, device.target(), device.runtime().threads.threads)
