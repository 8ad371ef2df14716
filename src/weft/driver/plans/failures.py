"""What a plan says of the failures of its kernels: typed errors at the user's lines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from weft.errors import AllocationError, BoundsError, LaunchError, raised, strayed
from weft.ir import node as nd
from weft.ir.node import Node
from weft.ir.op import Op
from weft.ir.position import in_thread
from weft.ir.stmt import Location
from weft.renderers.base import ENDED, NO_MEMORY, STOPPED

if TYPE_CHECKING:
    from weft.driver.kernels import Code
    from weft.driver.plans.spec import Spec
    from weft.ir.plan.plan import Launch

__all__ = ["Reported"]


class Reported:
    """Base of plans: the launches, their code, and what their failures mean.

    Attributes
    ----------
    spec : Spec
        The plan as data.
    codes : dict of str to Code
        Its kernels by the key of their programs.
    launches : list of Launch
        Its kernel calls, in the order in which failures number them.
    """

    __slots__ = ()

    spec: Spec
    codes: dict[str, Code]
    launches: list[Launch]

    def places(self, nodes: Sequence[Node]) -> dict[int, Location]:
        """Return where in the user's source the checked nodes are, for `raise_failure`.

        Of launches all: those that were joined have one number.
        """
        checked = {i for checks in self.spec.checks for i in checks}
        checked.update(i for i, n in enumerate(nodes) if n.op is Op.LAUNCH)
        return {i: nd.locations[nodes[i]] for i in checked if nodes[i] in nd.locations}

    def raise_failure(self, failure: tuple[int, int, int, int, int],
                      places: Mapping[int, Location]) -> None:  # fmt: skip
        """Raise the typed error of a status.

        Raises
        ------
        BoundsError
            For an index out of range, with the user's line.
        LaunchError
            For any other check.
        AllocationError
            If there was no memory for private arrays of a kernel.
        VerifyError
            If an access was outside of its array, under ``WEFT_GUARD``.
        """
        code, step, _, value, bound = failure
        if code == STOPPED:  # and the program's own handler of interrupts raised nothing
            raise KeyboardInterrupt("a kernel was stopped in a loop")
        if code == NO_MEMORY:
            raise AllocationError("a launch", found=f"no memory for {value} bytes of local arrays")
        if code == ENDED:
            raise LaunchError("a launch", found="a loop that the driver has ended too early",
                              expected="a driver that runs loops of any length",
                              hint="use fewer elements, or another device")
        checks = self.spec.checks[step]
        messages = self.codes[self.launches[step].key].messages
        text, check = messages[code - 1] if 0 < code <= len(messages) else (f"failure {code}", -1)
        where = None
        if 0 <= check < len(checks):
            place = places.get(checks[check])
            where = (place.file, place.line) if place is not None and place.file else None
        stray = strayed(text, value, bound, where)
        if stray is not None:
            raise stray
        operation, _, reason = text.partition(": ")
        reason, _, mark = reason.rpartition(" #") if " #" in reason else (reason, "", "")
        told = next((p.checks[mark] for p in places.values()
                     if isinstance(p, nd.LaunchPlace) and mark in p.checks), None)
        if told is None:
            reason = text.partition(": ")[2]
        else:
            where, reason = (told.place.file, told.place.line), told.message
            if value > 0 and told.blocks and told.threads and not told.bounds:
                reason += in_thread(value - 1, told.blocks, told.threads)
        if reason.startswith("index out of range") or (told is not None and told.bounds):
            wraps = operation in nd.FROM_THE_END
            found = value - bound if wraps and value < 0 else value
            raise BoundsError(operation, found=f"index {found}",
                              expected=f"{-bound if wraps else 0} to {bound - 1}" if bound else
                              "no index: the axis is empty", where=where)
        reason = reason or text
        kind = raised(reason) if told is None else told.error
        raise kind(operation, found=reason, where=where)
