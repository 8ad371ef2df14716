"""Launches, as what decides whether they may be one sees them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from weft.ir.expr import Expr
from weft.ir.record import Record
from weft.ir.stmt import Kernel, Memory

__all__ = ["Array", "Group", "Limits", "Part"]


class Array(NamedTuple):
    """An array that a launch passes for a parameter.

    Attributes
    ----------
    address, nbytes : int
        Where the memory of the parameter lies, and how much of it.
    layout : tuple
        What two views of the same bytes must have alike: sizes, strides, order.
    temporary : bool
        Whether nobody reads it after the launches.
    """

    address: int
    nbytes: int
    layout: tuple[object, ...]
    temporary: bool = False


class Part(Record):
    """One launch.

    Attributes
    ----------
    name : str
        What messages call it.
    kernel : Kernel
        As the front end made it.
    grid, block : tuple of int
        Its shape.
    variables : dict of str to int
        Value of each variable of the kernel.
    arrays : tuple of Array
        What is passed for the parameters of the kernel, in order.
    most_registers : int
        32-bit registers that a thread may use.
    apart : str
        Why it cannot be joined to another launch, if that is known beforehand.
    """

    name: str
    kernel: Kernel
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    variables: Mapping[str, int]
    arrays: tuple[Array, ...]
    most_registers: int = 255
    apart: str = ""


class Limits(Record):
    """What one kernel may need: bytes of shared memory of a block."""

    shared: int = 227 << 10


class Group(Record):
    """Launches that become one, and how.

    Attributes
    ----------
    parts : tuple of int
        Their numbers.
    kernels : tuple of Kernel
        Their kernels, in which the same things have the same names.
    barriers : frozenset of int
        Parts before which a barrier goes.
    own : frozenset of Memory
        Memories of which every thread touches only what no other thread writes.
    arrays : dict of Memory to (int, int)
        For each parameter the number of a part and of its parameter.
    variables : dict of str to (int, str)
        For each variable the number of a part and its name there.
    loops : frozenset of (Expr, Expr)
        Counters of loops of an earlier and a later part: if the loops have as many turns, no turn
        of one needs what another turn of the other one does.
    """

    parts: tuple[int, ...]
    kernels: tuple[Kernel, ...]
    barriers: frozenset[int]
    own: frozenset[Memory]
    arrays: Mapping[Memory, tuple[int, int]]
    variables: Mapping[str, tuple[int, str]]
    loops: frozenset[tuple[Expr, Expr]] = frozenset()
