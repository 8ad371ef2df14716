"""``with weft.fuse():``: launches that are noted, and run as few kernels as may be."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from weft.driver.context import host_context
from weft.driver.lru_table import room
from weft.errors import LaunchError, ShapeError, outermost_methods
from weft.imports import importing
from weft.ir.dtype import DType, as_dtype
from weft.ir.stmt import Kernel
from weft.ir.traverse import stores
from weft.schedule.launch_fusion import launches
from weft.schedule.launch_fusion.footprint import shape_variables
from weft.schedule.launch_fusion.fused_kernel import joined
from weft.schedule.launch_fusion.legality import group
from weft.schedule.launch_fusion.pages import crowded, with_barriers
from weft.tensors.core.fusion_scope import active, attend
from weft.tensors.core.write_lock import changing

if TYPE_CHECKING:
    from weft.driver.launch import Loaded
    from weft.lang.launch.launch import Configured
    from weft.lang.launch.marshal import Host
    from weft.lang.launch.tensors import Written
    from weft.lang.values.types import KernelType

__all__ = ["Fusion"]

_COPIES: Final = "works on copies of fields that cannot be passed as they lie"
_VIEWS: Final = "not fused: one of several views of a tensor is written to"
_MOST_DECISIONS: Final = 256  # that are kept; a program that needs more forgets the oldest


class _Noted(NamedTuple):
    """One launch that has not run yet."""

    launch: Configured
    host: Host
    types: dict[str, KernelType]
    args: tuple[Any, ...]


class _Prepared(NamedTuple):
    """A kernel for arguments of some types, as the front end makes it."""

    kernel: Kernel
    constants: tuple[Any, ...]
    shapes: frozenset[str]  # variables that a decision depends on
    written: frozenset[str]  # parameters that it writes to


class _Step(NamedTuple):
    """Some of the launches: one as it is, or several as one kernel.

    Attributes
    ----------
    parts : tuple of int
        Their numbers.
    loaded : Loaded or None
        The kernel of several launches.
    addresses : tuple of (int, int)
        For each of its parameters the number of a launch and of the array there.
    values : tuple of (int, str)
        For each of its variables the number of a launch and its name there.
    """

    parts: tuple[int, ...]
    loaded: Loaded | None = None
    addresses: tuple[tuple[int, int], ...] = ()
    values: tuple[tuple[int, str], ...] = ()


class _Decision(NamedTuple):
    """What is done with launches of some kernels on arrays that lie to each other in some way."""

    steps: tuple[_Step, ...]
    reasons: tuple[str, ...]


_prepared: Final[dict[Any, _Prepared]] = {}
_decisions: Final[dict[Any, _Decision]] = {}


@outermost_methods
class Fusion:
    """A ``with`` block whose launches run at its end, as few kernels; see `weft.fuse`."""

    def __init__(self) -> None:
        self._noted: list[_Noted] = []
        self._temporaries: list[np.ndarray[Any, Any]] = []
        self._outer = False
        self._said: list[str] = []

    def __enter__(self) -> Fusion:
        """Begin to note launches; inside of another block, for that one."""
        if isinstance(active.fusion, Fusion):
            return active.fusion
        attend(self)
        self._outer = True
        self._said = []
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:  # fmt: skip
        """Run what was noted; nothing if the block raised an error."""
        if not self._outer:
            return
        self._outer = False
        attend(None)
        noted, self._noted = self._noted, []
        temporaries, self._temporaries = self._temporaries, []
        if kind is None and noted:
            self._run(noted, temporaries)

    def flush(self) -> None:
        """Run what was noted so far: what comes next cannot wait."""
        noted, self._noted = self._noted, []
        if noted:
            attend(None)
            try:
                self._run(noted, [])  # what comes next may read all arrays
            finally:
                attend(self)

    def empty(self, shape: int | Sequence[int], dtype: Any) -> np.ndarray[Any, Any]:
        """Return an array for values that only launches of this block need.

        What it holds after the block is not defined: where every thread reads only what it wrote
        itself, the values stay in registers and the array is never written.
        """
        kind: DType = as_dtype(dtype)
        try:
            made = np.empty(shape, kind.numpy)
        except (ValueError, TypeError) as error:
            raise ShapeError("fuse", found=f"the shape {shape!r}",
                             expected="sizes of at least 0 that memory can hold") from error
        if self is not active.fusion:
            raise LaunchError("fuse", found="an array for a block that is over",
                              expected="a call inside of the with block")
        self._temporaries.append(made)
        return made

    def note(self, launch: Configured, args: tuple[Any, ...]) -> None:
        """Take a launch, whose arguments are looked at now."""
        host = launch.take(args)
        self._noted.append(_Noted(launch, host, host.types, args))

    def explain(self) -> str:
        """Return what became of the launches of the last block, a line each."""
        return "\n".join(self._said)

    # --- running

    def _run(self, noted: list[_Noted], temporaries: list[np.ndarray[Any, Any]]) -> None:
        if any(n.launch.interpreted for n in noted):
            self._said.append("not fused: the interpreter device runs launches one by one")
            for one in noted:
                one.launch(*one.args)
            return
        prepared = [_prepare(n) for n in noted]
        run = self._resolve
        (changing(run) if _changes_tensors(noted, prepared) else run)(noted, prepared, temporaries)

    def _resolve(self, noted: list[_Noted], prepared: list[_Prepared],
                 temporaries: list[np.ndarray[Any, Any]]) -> None:  # fmt: skip
        """Look up the memory of tensors, and carry the launches out."""
        targets = _resolved(noted, prepared)
        if targets is not None:
            try:
                self._carry_out(noted, prepared, temporaries)
            finally:
                for target in targets:
                    target.finish()
            return
        self._said.append(_VIEWS)
        for one in noted:
            one.launch(*one.args)

    def _carry_out(self, noted: list[_Noted], prepared: list[_Prepared],
                   temporaries: list[np.ndarray[Any, Any]]) -> None:  # fmt: skip
        spare = {a.__array_interface__["data"][0] for a in temporaries if a.size}
        key = _key(noted, prepared, spare)
        decision = _decisions.get(key)
        if decision is None:
            decision = _decide(noted, prepared, spare)
            room(_decisions, _MOST_DECISIONS)[key] = decision
        self._said.extend(_told(decision, noted))
        for step in decision.steps:
            first = noted[step.parts[0]]
            if step.loaded is not None:
                where = [[*n.host.addresses, *map(_address, p.constants)]
                         for n, p in zip(noted, prepared, strict=True)]
                failed = step.loaded.run(
                    [where[k][m] for k, m in step.addresses],
                    [noted[k].host.variables[name] for k, name in step.values])
            elif first.host.copies:
                first.launch(*first.args)
                continue
            else:
                loaded = first.launch._variant(first.types)
                failed = loaded.run(first.host.addresses,
                                    [first.host.variables[name] for name in loaded.variables])
            if failed is not None:
                from weft.lang.launch.variants import failure

                kernels = [noted[k].launch.kernel for k in step.parts]
                raise failure("_".join(kernel.__name__ for kernel in kernels), failed,
                              first.launch, kernels)


def _address(array: Any) -> int:
    found: int = array.__array_interface__["data"][0]
    return found


def _prepare(noted: _Noted) -> _Prepared:
    """Return the kernel of a launch, from the last time if there was one."""
    launch = noted.launch
    kernel = launch.kernel
    key = (kernel, tuple(noted.types.values()), launch.block, launch.ndim, launch.shared,
           launch.grid if kernel.waits else None)
    found = _prepared.get(key)
    if found is None:
        from weft.lang.launch.variants import translated

        nest, constants = translated(kernel, noted.types, launch)
        written = frozenset(m.name for m in stores(nest.body))
        found = _Prepared(nest, tuple(constants), shape_variables(nest), written)
        room(_prepared, _MOST_DECISIONS)[key] = found
    return found


def _changes_tensors(noted: list[_Noted], prepared: list[_Prepared]) -> bool:
    """Whether one of the launches writes to a tensor."""
    return any(name in p.written for n, p in zip(noted, prepared, strict=True)
               for name, _, _ in n.host.tensors)


def _resolved(noted: list[_Noted], prepared: list[_Prepared]) -> list[Written] | None:
    """Look up the memory of tensors, one for all launches; return those that are written to.

    None if another view of what one launch writes to is passed as well: the launches must see
    each other's changes through it.
    """
    if not any(n.host.tensors for n in noted):
        return []
    if any(n.host.copies for n in noted):
        return None
    with importing:
        from weft.lang.launch.tensors import Written, readable

    known = {id(t): t for n in noted for _, _, t in n.host.tensors}
    if any(t._base is not None and t._base._shared is not None for t in known.values()):
        return None  # whose memory another argument may be
    found: dict[int, Written] = {}
    changed = {id(t): (t, f"argument {name} of {n.launch.kernel.__name__}")
               for n, p in zip(noted, prepared, strict=True)
               for name, _, t in n.host.tensors if name in p.written}
    bases = [id(t if t._base is None else t._base) for t in known.values()]
    for tensor, _ in changed.values():
        if bases.count(id(tensor if tensor._base is None else tensor._base)) > 1:
            return None
    for key, (tensor, what) in changed.items():
        found[key] = Written(tensor, what)
    for n in noted:
        for _, position, tensor in n.host.tensors:
            target = found.get(id(tensor))
            buffer = readable(tensor) if target is None else target.buffer
            n.host.kept.append(buffer)
            n.host.addresses[position] = buffer.address
    return list(found.values())


def _key(noted: list[_Noted], prepared: list[_Prepared], spare: set[int]) -> Any:
    """Return all that a decision depends on."""
    parts: list[Any] = []
    first: dict[tuple[int, int], int] = {}
    spans: list[tuple[int, int]] = []
    for n, p in zip(noted, prepared, strict=True):
        values = n.host.variables
        parts.append((n.launch.kernel, tuple(n.types.values()), n.launch.block, n.launch.grid,
                      n.launch.shared, bool(n.host.copies),
                      tuple(sorted((v, values[v]) for v in p.shapes))))
        for position, array in enumerate(_arrays(n, p)):
            span = array.address, array.nbytes
            spans.append(span)
            parts.append((position, first.setdefault(span, len(first)), array.address in spare))
    # which arrays overlap without being the same
    spaces = sorted({s for s in spans if s[1]})
    crossing: list[tuple[int, int]] = []
    open_spans: list[tuple[int, int]] = []
    for span in spaces:
        open_spans = [s for s in open_spans if s[0] + s[1] > span[0]]
        crossing.extend((first[s], first[span]) for s in open_spans)
        open_spans.append(span)
    return tuple(parts), tuple(crossing), crowded(first)


def _arrays(noted: _Noted, prepared: _Prepared) -> list[launches.Array]:
    """Return what a launch passes for the parameters of its kernel."""
    variables = noted.host.variables
    out: list[launches.Array] = []
    addresses = [*noted.host.addresses, *map(_address, prepared.constants)]
    for memory, address in zip(prepared.kernel.params, addresses, strict=True):
        name = memory.name
        count = 1
        for size in memory.shape:
            if size.attr is not None and hasattr(size.attr, "name"):
                count *= variables[size.attr.name]
            else:
                count *= int(size.attr)
        layout = tuple(sorted((key[len(name):], value) for key, value in variables.items()
                              if key.startswith(f"{name}.")))
        out.append(launches.Array(address, count * memory.dtype.itemsize, layout))
    return out


def _decide(noted: list[_Noted], prepared: list[_Prepared], spare: set[int]) -> _Decision:
    parts = []
    for n, p in zip(noted, prepared, strict=True):
        arrays = tuple(a._replace(temporary=a.address in spare) for a in _arrays(n, p))
        most = dict(n.launch.kernel.options.hints).get("max_registers", 255)
        launch, apart = n.launch, _COPIES if n.host.copies else ""
        parts.append(launches.Part(launch.kernel.__name__, p.kernel, launch.grid, launch.block,
                                   n.host.variables, arrays, most, apart))
    groups, reasons = group(parts)
    return _Decision(tuple(_step(g, groups, parts) for g in groups), tuple(reasons))


def _step(made: launches.Group, groups: list[launches.Group], parts: list[launches.Part]) -> _Step:
    with importing:
        from weft.driver.launch import load_kernel

    if len(made.parts) == 1:
        return _Step(made.parts)
    elsewhere = {m for other in groups if other is not made for m in other.arrays}
    spare = [m for m, (part, k) in made.arrays.items()
             if parts[part].arrays[k].temporary and m not in elsewhere]
    kernel = joined(with_barriers(made, spare, parts), spare)
    loaded = load_kernel(kernel, host_context())
    return _Step(made.parts, loaded, tuple(made.arrays[m] for m in kernel.params),
                 tuple(made.variables[name] for name in loaded.variables))


def _told(decision: _Decision, noted: list[_Noted]) -> list[str]:
    """Return a line for each kernel that runs, and between them why they are apart."""
    out: list[str] = []
    for number, step in enumerate(decision.steps):
        if number:
            out.append(decision.reasons[number - 1])
        names = ", ".join(noted[k].launch.kernel.__name__ for k in step.parts)
        out.append(f"fused: {names}" if len(step.parts) > 1 else f"alone: {names}")
    return out
