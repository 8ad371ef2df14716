"""Plans by the structure of their graph: from memory, from disk, or newly made."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from weft.background import unvisited
from weft.config import config
from weft.driver import device, kernels, report, tiers
from weft.driver.kernels import Code
from weft.driver.plan import Plan, Spec
from weft.driver.structure import Structure
from weft.errors import CacheError, LaunchError
from weft.ir.node import Node
from weft.store import fingerprint

_KIND: Final = "plan"
_plans: Final[dict[Any, Plan]] = {}
ready: Final[dict[Any, Any]] = {}  # what `driver.compute` runs, by key


def plan_for(structure: Structure, outputs: Sequence[Node]) -> Plan:
    """Return the plan of a graph from memory, from disk, or newly made."""
    recording = report.active()
    if recording is None:
        found = _plans.get(structure.key)
        if found is not None:
            report.count("plan memory hits")
            return found
    with device.lock:
        found = _plans.get(structure.key) if recording is None else None
        if found is None:
            found = _from_disk(structure) if recording is None else None
            if found is None:
                found = _make(structure, outputs)
            _plans[structure.key] = found
            tiers.watch(found)
        if recording is not None:
            recording.plans.append(found)
        else:
            found.steps = None  # whose nodes keep the arrays of this call alive
        return found


def is_planned(structure: Structure) -> bool:
    """Whether this process has the plan of a graph."""
    return structure.key in _plans


def forget() -> None:
    """Drop all plans of this process."""
    _plans.clear()
    ready.clear()


def _disk_key(structure: Structure) -> str:
    runtime = device.runtime()
    return fingerprint("plan", structure.text(), device.fingerprint(),
                       runtime.compiler.cache_key, runtime.thread_count)


def _make(structure: Structure, outputs: Sequence[Node]) -> Plan:
    with device.preparing():
        from weft.driver import host_program  # a warm start needs none of the compiler

    with unvisited:
        try:
            plan = host_program.make(structure, outputs)
        except CacheError:  # what was read is compiled anew
            plan = host_program.make(structure, outputs)
    device.disk().put(_KIND, _disk_key(structure), plan.spec.pack())
    return plan


def _from_disk(structure: Structure) -> Plan | None:
    if config().tune:
        return None  # whose kernels may not have been tuned
    data = device.disk().get(_KIND, _disk_key(structure))
    spec = Spec.unpack(data) if data is not None else None
    if spec is None:
        return None
    codes: dict[str, Code] = {}
    for key in (*(p.key for p in spec.host.programs), *(p.key for p in spec.panels)):
        code = kernels.from_disk(key)
        if code is None:
            return None
        codes[key] = code
    try:
        plan = Plan(spec, codes, None)
    except (CacheError, LaunchError, KeyError):  # it names what is not there
        return None
    report.count("plan disk hits")
    return plan
