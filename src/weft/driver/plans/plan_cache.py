"""The plan cache: plans by the structure of their graph, in memory and on disk."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from weft.background import unvisited
from weft.config import config
from weft.driver import counters, kernels
from weft.driver.context import context, disk, lock
from weft.driver.graph_key import Structure
from weft.driver.kernels import Code
from weft.driver.lru_table import LruTable
from weft.driver.plans import tiers
from weft.driver.plans.device_plan import DevicePlan, code_key
from weft.driver.plans.plan import Plan
from weft.driver.plans.spec import Spec
from weft.errors import CacheError, LaunchError
from weft.ir.node import Node
from weft.shortage import reporting_shortage

_KIND: Final = "plan"
ready: Final[dict[Any, Any]] = {}  # what `driver.compute` runs, by key

_MOST_BYTES: Final = 36 << 20  # of plans that only this cache refers to
_LEAST: Final = 64
_PLAN_BYTES, _KERNEL_BYTES, _LAUNCH_BYTES = 24 << 10, 16 << 10, 1 << 10  # by measurement, roughly


def _weight(plan: Plan | DevicePlan) -> int:
    """Return about how many bytes a plan takes: its code, what the linker keeps, its tables."""
    code = sum(len(c.image) for c in plan.codes.values())
    return (_PLAN_BYTES + _KERNEL_BYTES * len(plan.codes) + 2 * code
            + _LAUNCH_BYTES * len(plan.launches))  # fmt: skip


def _no_longer_ready(plan: Plan) -> None:
    for key in [key for key, run in list(ready.items()) if run.plan is plan]:
        ready.pop(key, None)


# A plan that is dropped goes on where it runs, and where captured functions have it.
_plans: Final[LruTable[Any, Plan]] = LruTable(_MOST_BYTES, _LEAST, _weight, lambda plan: plan.calls,
                                          _no_longer_ready)  # fmt: skip


_device_plans: Final[LruTable[Any, DevicePlan]] = LruTable(
    _MOST_BYTES, _LEAST, _weight, lambda plan: plan.calls, lambda plan: None)


def plan_for(structure: Structure, outputs: Sequence[Node], what: str = "plans") -> Plan:
    """Return the plan of a graph from memory, from disk, or newly made.

    The counter `what` counts those that were not in memory.
    """
    recording = counters.active()
    if recording is None:
        found = _plans.get(structure.key)
        if found is not None:
            counters.count("plan memory hits")
            return found
    with lock:
        found = _plans.get(structure.key) if recording is None else None
        if found is None:
            counters.count(what)
            found = _from_disk(structure) if recording is None else None
            if found is None:
                found = _make(structure, outputs)
            _plans.put(structure.key, found)
            tiers.watch(found)
        if recording is not None:
            recording.plans.append(found)
        else:
            found.steps = None  # whose nodes keep the arrays of this call alive
        return found


def device_plan_for(structure: Structure, outputs: Sequence[Node],
                    what: str = "plans") -> DevicePlan:  # fmt: skip
    """Return the plan of a graph on devices that are not native, or on several.

    The counter `what` counts those that were not in memory.
    """
    found = _device_plans.get(structure.key)
    if found is not None and counters.active() is None:
        counters.count("plan memory hits")
        return found
    with lock:
        counters.count(what)
        found = _device_plan_from_disk(structure)
        if found is None:
            with structure.context.preparing():
                from weft.driver.plans import device_program
            with unvisited, reporting_shortage("compile"):
                found = device_program.make(structure, outputs)
            disk().put(_KIND, _disk_key(structure), found.spec.pack())
        _device_plans.put(structure.key, found)
        recording = counters.active()
        if recording is not None:
            recording.plans.append(found)
        else:
            found.steps = None
        return found


def _device_plan_from_disk(structure: Structure) -> DevicePlan | None:
    data = disk().get(_KIND, _disk_key(structure)) if counters.active() is None else None
    spec = Spec.unpack(data) if data is not None else None
    if spec is None or not spec.host.devices:
        return None
    codes = {key: kernels.from_disk(key) for key in
             {code_key(p.key) for p in spec.host.programs}}  # fmt: skip
    whole = {key: code for key, code in codes.items() if code is not None}
    if len(whole) < len(codes):
        return None
    counters.count("plan disk hits")
    return DevicePlan(spec, whole, None, [context(name) for name in spec.host.devices])


def is_planned(structure: Structure) -> bool:
    """Whether this process has the plan of a graph."""
    return structure.key in _plans


def forget() -> None:
    """Drop all plans of this process."""
    _plans.clear()
    _device_plans.clear()
    ready.clear()


def _disk_key(structure: Structure) -> str:
    others = [context(name).key("device") for name in structure.devices]
    return structure.context.key("plan", structure.text(), *others)


def _make(structure: Structure, outputs: Sequence[Node]) -> Plan:
    with structure.context.preparing():
        from weft.driver.plans import host_program  # a warm start needs none of the compiler

    with unvisited, reporting_shortage("compile"):
        try:
            plan = host_program.make(structure, outputs)
        except CacheError:  # what was read is compiled anew
            plan = host_program.make(structure, outputs)
    disk().put(_KIND, _disk_key(structure), plan.spec.pack())
    return plan


def _from_disk(structure: Structure) -> Plan | None:
    if config().tune:
        return None  # whose kernels may not have been tuned
    data = disk().get(_KIND, _disk_key(structure))
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
        plan = Plan(spec, codes, None, structure.context)
    except (CacheError, LaunchError, KeyError):  # it names what is not there
        return None
    counters.count("plan disk hits")
    return plan
