"""What a compiled module tells those who load it: which devices it is for, and what it has.

It is what the header of a GPU's file says, in words that belong to no vendor: backends write it in
the form of theirs, and it can be read on any machine.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

from weft.ir import dtype as dt
from weft.ir import expr as ex
from weft.ir.program import metadata
from weft.ir.record import Record
from weft.ir.stmt import (
    Alloc,
    Atomic,
    Barrier,
    Clock,
    Collective,
    Fence,
    Kernel,
    Memory,
    Print,
    Stmt,
)
from weft.ir.tile import AsyncCopy, MatrixMultiply
from weft.ir.traverse import walk

__all__ = ["Entry", "Module", "described", "least_ptx", "ptx_version"]

# The first version of PTX that knows an architecture.
_PTX: Final = {
    "50": (4, 0), "52": (4, 1), "53": (4, 2), "60": (5, 0), "61": (5, 0), "62": (5, 0),
    "70": (6, 0), "72": (6, 1), "75": (6, 3), "80": (7, 0), "86": (7, 1), "87": (7, 4),
    "89": (7, 8), "90": (7, 8), "90a": (8, 0), "100": (8, 6), "100a": (8, 6), "100f": (8, 8),
    "101": (8, 6), "101a": (8, 6), "101f": (8, 8), "103": (8, 8), "110": (9, 0), "120": (8, 7),
    "120a": (8, 7), "120f": (8, 8), "121": (8, 8),
}  # fmt: skip
_SETTINGS: Final = ("kind", "device", "workgroup", "max_threads", "min_blocks", "max_registers",
                    "cluster", "opt", "vectorizable", "critical_path", "no_allocation",
                    "vector_width", "unroll", "tensor_cores", "coalesced", "async_copy")


def ptx_version(architectures: Sequence[str]) -> tuple[int, int] | None:
    """Return the version of PTX that is asked for, else the first that knows all architectures.

    None where none of them is one of NVIDIA's.
    """
    asked = [(int(a[3:-1]), int(a[-1])) for a in architectures if a.startswith("ptx")]
    return max(asked, default=least_ptx(architectures))


def least_ptx(architectures: Sequence[str]) -> tuple[int, int] | None:
    """Return the first version of PTX that knows all architectures, None if none is NVIDIA's."""
    names = [m[1] for a in architectures if (m := re.fullmatch(r"(?:sm|compute)_(\d+[af]?)", a))]
    return max((_PTX.get(n) or _PTX.get(n.rstrip("af"), (9, 0)) for n in names), default=None)


class Entry(Record):
    """A kernel that can be launched.

    Attributes
    ----------
    name : str
        Its name.
    settings : tuple of (str, value)
        What its decorator says.
    shared : int
        Bytes of shared memory of a block.
    facts : str
        What follows from its code, as lines; see `weft.ir.program.Metadata`.
    """

    name: str
    settings: tuple[tuple[str, Any], ...]
    shared: int
    facts: str


class Module(Record):
    """What is known of kernels that are compiled together; ``a | b`` has those of both.

    ``str()`` gives it as text, a line for each fact.

    Attributes
    ----------
    architectures : tuple of str
        What it is compiled for; empty for any.
    features : tuple of str
        What a device must be able to do, sorted.
    entries : tuple of Entry
        Kernels.
    functions : tuple of str
        Functions that kernels call.
    constants : tuple of Memory
        Arrays that are part of the module.
    """

    architectures: tuple[str, ...]
    features: tuple[str, ...]
    entries: tuple[Entry, ...]
    functions: tuple[str, ...] = ()
    constants: tuple[Memory, ...] = ()

    @property
    def ptx(self) -> tuple[int, int] | None:
        """The version of PTX that NVIDIA's devices among the architectures need."""
        return ptx_version(self.architectures)

    @property
    def constant_bytes(self) -> int:
        """Bytes of its constant arrays."""
        return sum(_bytes(m) for m in self.constants)

    def __or__(self, other: Module) -> Module:
        """Return a module with the kernels of both."""
        if not isinstance(other, Module):
            return NotImplemented
        return Module(_union(self.architectures, other.architectures),
                      tuple(sorted({*self.features, *other.features})),
                      (*self.entries, *other.entries), _union(self.functions, other.functions),
                      (*self.constants, *other.constants))

    def __str__(self) -> str:
        """Return it as text."""
        lines = ["architectures " + (" ".join(a for a in self.architectures
                                              if not a.startswith("ptx")) or "any")]
        if self.ptx is not None:
            lines.append("ptx {}.{}".format(*self.ptx))
        lines.append("features " + (", ".join(self.features) or "none"))
        lines += [f"device function {name}" for name in self.functions]
        lines.append(f"constant memory {self.constant_bytes} bytes")
        for m in self.constants:
            shape = ", ".join(map(ex.show, m.shape))
            lines.append(f"  {m.name}: {m.dtype.text}[{shape}]")
        for entry in self.entries:
            lines.append(f"entry {entry.name}")
            lines += [f"  {name} {_shown(value)}" for name, value in entry.settings]
            lines.append(f"  shared {entry.shared} bytes")
            lines += [f"  {line}" for line in entry.facts.splitlines()]
        return "\n".join(lines)


def described(kernel: Kernel, functions: Sequence[str], constants: int) -> Module:
    """Return the module of one kernel with axes of blocks and threads.

    Parameters
    ----------
    kernel : Kernel
        At loop level, before any pass.
    functions : sequence of str
        Names of the functions whose bodies took the place of calls.
    constants : int
        How many of its last parameters are arrays that it knows from outside.
    """
    hints = dict(kernel.meta.hints)
    count = len(kernel.params) - constants
    entry = Entry(kernel.name,
                  tuple((name, hints[name]) for name in _SETTINGS if name in hints),
                  _shared(kernel), str(metadata(kernel)))
    features = {name for s in walk(kernel.body) for name in _features(s)}
    features |= {f"{d.name} values" for d in _types(kernel) & {dt.float16, dt.bfloat16, dt.float64}}
    features |= {"clusters"} if hints.get("cluster") else set()
    return Module(tuple(hints.get("arch") or ()), tuple(sorted(features)), (entry,),
                  tuple(functions), kernel.params[count:])


def _features(s: Stmt) -> tuple[str, ...]:
    """Return what a device must have for a statement."""
    match s:
        case Barrier() | Fence():
            return (f"{s.scope} {'barrier' if isinstance(s, Barrier) else 'fence'}",)
        case Collective():
            if s.scope == "block":
                return ("block barrier",)
            word = s.kind.partition("_")[0]
            return ({"shuffle": "warp shuffle", "match": "warp match"}.get(word, "warp vote"),)
        case Atomic():
            return (f"atomic {s.kind} {s.memory.dtype.name} {s.scope}",)
        case MatrixMultiply():
            m, n, k = s.shape
            kind = s.precision or s.left.dtype.name
            return (f"matrix {m}x{n}x{k} {kind} to {s.result.dtype.name}",)
        case AsyncCopy():
            return ("asynchronous copy",)
        case Clock():
            return ("clock",)
        case Print():
            return ("print",)
    return ()


def _types(kernel: Kernel) -> set[dt.DType]:
    found = {m.dtype for m in kernel.params}
    return found | {e.dtype for s in walk(kernel.body) for e in ex.toposort(s.exprs())}


def _shared(kernel: Kernel) -> int:
    """Return the bytes of shared memory, without views of other memories."""
    return sum(_bytes(s.memory) for s in walk(kernel.body)
               if isinstance(s, Alloc) and s.memory.scope == "shared" and s.base is None)


def _bytes(memory: Memory) -> int:
    return int(memory.size.attr) * memory.dtype.itemsize


def _union(a: tuple[str, ...], b: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*a, *b)))


def _shown(value: Any) -> str:
    return " ".join(map(str, value)) if isinstance(value, tuple) else str(value)
