"""What is known of devices: facts of drivers, computed operations, errors, as they were recorded.

The pages of the reference are written from ``device_records.json`` alone, so that they do not
depend on which drivers are where they are written. `note` adds what was found here.
"""

import datetime
import json
from pathlib import Path

from weft.backends import cpu, interpreter, registry
from weft.ir import dtype as dt
from weft.ir.op import Op
from weft.renderers.cstyle.c.target import c_target
from weft.renderers.cstyle.opencl.target import opencl_target
from weft.renderers.cstyle.wgsl.target import webgpu_target
from weft.renderers.spirv.target import vulkan_target
from weft.target import Target, native_operations

FILE = Path(__file__).parent / "device_records.json"
DEVICES = ("cpu", "cpu/c", "interpreter", "opencl:pocl", "opencl:pocl/threads", "vulkan:lavapipe",
           "webgpu:llvmpipe", "webgpu:poor")  # fmt: skip
# What differs from machine to machine, and no page shows.
_OF_MACHINES = {"memory", "max_alloc", "heaps", "types", "uuid", "units", "cache_bytes",
                "driver_id", "maxMemoryAllocationSize", "maxMemoryAllocationCount",
                "extensions", "options"}
HOST = Target("cpu", "x86_64", operations=native_operations())


def load():
    """Return the records, by device."""
    return json.loads(FILE.read_text("utf-8")) if FILE.exists() else {}


def note(name, **found):
    """Record a device of this machine, and what was found about it with the driver of today."""
    records = load()
    driver, facts = reported(name)
    record = records.setdefault(name, {})
    if (record.get("driver"), record.get("facts")) != (driver, facts):
        record.clear()
    record |= {"driver": driver, "facts": facts}
    for what, value in found.items():
        record[what] = value
        record[f"{what}_on"] = f"{datetime.date.today()}, {driver}"
    order = [n for n in DEVICES if n in records] + [n for n in records if n not in DEVICES]
    FILE.write_text(json.dumps({n: records[n] for n in order}, indent=1, sort_keys=False) + "\n",
                    "utf-8")


def reported(name):
    """Return what the driver of a device of this machine is called, and the facts that it reports.

    What a device without a driver of its own can do is declared, but for tables in registers.
    """
    family, _, kind = name.partition("/")[0].partition(":")
    if name == "cpu":
        import llvmlite.binding as llvm

        version = ".".join(map(str, llvm.llvm_version_info))
        host = cpu.host_target()
        return f"LLVM {version}, {host.cpu}", {"tables": host.supports(Op.LOOKUP, dt.uint32)}
    if name == "cpu/c":
        from weft.backends import cpu_c

        found = cpu_c.compiler(cpu_c.target(cpu.host_target()))
        return f"{found.family} {'.'.join(map(str, found.version))}, {cpu.host_target().cpu}", {}
    probed = registry.probe(family)
    for device, described in zip(probed.devices, probed.described, strict=False):
        if device == f"{family}:{kind}":
            facts = {k: v for k, v in described["facts"].items() if k not in _OF_MACHINES}
            words = (facts["name"], facts.get("platform", ""), facts.get("backend", ""),
                     facts.get("driver", ""))  # fmt: skip
            return ", ".join(filter(None, words)), facts
    return "Python", {}


def target(name, facts):
    """Return what a device can do, from what its driver reported: on any machine the same."""
    family, _, pair = name.partition("/")
    family = family.partition(":")[0]
    if family == "opencl":
        return opencl_target(HOST, facts, pair == "threads")
    if family == "vulkan":
        return vulkan_target(HOST, facts)
    if family == "webgpu":
        return webgpu_target(facts)
    if family == "interpreter":
        return interpreter.BACKEND.target(0, "")
    if pair == "c":
        return c_target(HOST)
    return HOST.replace(operations=native_operations(tables=bool(facts.get("tables"))))
