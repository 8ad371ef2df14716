"""Writes the pages of the reference that say what devices have, compute, and how exactly.

Run as ``make device-pages``; nothing but the records of `device_records` goes into them.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import device_records

from ulp_bounds import bound
from weft.ir import dtype as dt
from weft.ir.op import BY_NAME, Op
from weft.target import SIMT

PAGES = Path(__file__).parents[2] / "docs" / "reference"
LANGUAGES = {"cpu": "LLVM IR", "cpu/c": "C", "interpreter": "none: kernels are interpreted",
             "opencl": "OpenCL C", "vulkan": "SPIR-V", "webgpu": "WGSL"}  # fmt: skip
# Devices that the tests know and that no machine has recorded, and families without a backend.
UNRECORDED = {
    "opencl:intel": "a driver that the tests take where it is installed",
    "vulkan:swiftshader": "a driver that the tests take where it is installed",
    "cuda": "no backend in this version", "hip": "no backend in this version",
    "tenstorrent": "no toolchain for it is known",
}  # fmt: skip
YES, NO = "yes", "no"
FLOATS = [d for d in dt.ALL if d.is_float]

COVERAGE = """# What devices have and compute

Written by `make device-pages` from the records in `tests/conformance/device_records.json`: facts
that drivers reported, and what the conformance suite computed and compared. How exact floats are
says [another page](accuracy.md).

## Capabilities

A device's target (`weft.target.Target`) says what it has; what it lacks is refused before the
launch, with the device, the primitive and the line. Tests name the device as the capability that
they need (`tests/capabilities.py`).

{capabilities}

Not in the table: {unrecorded}.

## Operations

Operations of the graph and the element types of their operands. The types are
{types}.
"Not run" are operations whose tests did not run on the device when it was recorded.

{operations}

Recorded: {dates}.
"""

ACCURACY = """# How exact floats are on each device

The largest error found, in units of the last place of the exact result, and behind the stroke the
bound of the device. `make accuracy` measures it on every device of the machine that runs rendered
code, on fresh random inputs, special values, every exponent and the places where functions bend, of
odd sizes; float16 by all 65,536 values. It fails where a device exceeds a bound, and so does the
conformance suite. Bounds are in `tests/ulp_bounds.py`: they follow from the form of a function that
the target of a device asks for, whichever driver compiles it. How functions are computed says
[Numerics](../design/numerics.md).

{tables}
Measured: {dates}.
"""


def main():
    """Write the pages."""
    for name, text in pages().items():
        (PAGES / name).write_text(text, "utf-8")


def pages():
    """Return the pages as text, by their names."""
    records = device_records.load()
    return {"coverage.md": coverage(records), "accuracy.md": accuracy(records)}


def coverage(records):
    """Return the page of what devices have and compute."""
    shown = {name: cells(name, r["driver"], device_records.target(name, r["facts"]))
             for name, r in records.items()}  # fmt: skip
    rows = [[row, *(shown[name][row] for name in records)] for row in next(iter(shown.values()))]
    everywhere = [d.name for d in dt.ALL]
    columns = [name for name, r in records.items() if "computed" in r]
    computed = []
    for op in sorted({op for name in columns for op in records[name]["computed"]}):
        taken = [t for t in everywhere if dt.as_dtype(t).kind in BY_NAME[op].kinds]
        found = (records[name]["computed"].get(op) for name in columns)
        computed.append([op, *("not run" if types is None else in_words(types, taken)
                               for types in found)])  # fmt: skip
    return COVERAGE.format(
        capabilities=table(["", *records], rows), types=", ".join(everywhere),
        operations=table(["operation", *columns], computed),
        unrecorded=", ".join(f"{name} ({why})" for name, why in UNRECORDED.items()
                             if name not in records),
        dates=dates(records, "computed"))  # fmt: skip


def cells(name, driver, target):
    """Return what the column of a device says, by row."""
    floats = [d.name for d in FLOATS if target.computes(d)]
    words = [d.name for d in FLOATS if d.text in target.emulated]
    widened = [d.name for d in FLOATS if d.bits < 32 and d.name not in floats]
    lacking = [d.name for d in FLOATS if d.bits >= 32 and d.name not in (*floats, *words)]
    threads = target.style == SIMT
    return {
        "driver": driver,
        "language of kernels": LANGUAGES.get(name) or LANGUAGES[name.partition(":")[0]],
        "runs": "work-items of groups" if threads else "threads with vectors",
        "integers": "8 to 64 bits" if target.supports(Op.ADD, dt.int64) else "8 to 32 bits",
        "floats by instructions": ", ".join(floats),
        "floats in words": ", ".join(words) or "–",
        "floats by way of float32": ", ".join(widened) or "–",
        "floats that are not there": ", ".join(lacking) or "–",
        "memory orders": ", ".join(target.orders),
        "atomic operations of 64 bits": wide_atomics(target),
        "addresses of arrays": places(target.addresses),
        "clocks": YES if target.clocks else NO,
        "calls of functions of the process": YES if target.calls else NO,
        "work-items of a group, at most": str(target.max_items) if threads else "–",
        "shared bytes of a group": f"{target.shared_bytes:,}" if threads else "–",
    }


def wide_atomics(target):
    """Return in which memories atomic operations take 64 bits, in words."""
    if target.wide_atomics or not target.halved_atomics:
        return places(target.wide_atomics)
    return "sums and bits whose old value nobody asks for"


def places(scopes):
    """Return scopes of memories in words."""
    shown = [s for s in ("global", "shared", "local") if s in scopes]
    return NO if not shown else YES if len(shown) == 3 else "in " + ", ".join(shown)


def accuracy(records):
    """Return the page of the largest errors."""
    columns = [name for name, r in records.items() if "errors" in r]
    tables = []
    for d in ("float32", "float64", "float16", "bfloat16"):
        names = dict.fromkeys(op for name in columns for op in records[name]["errors"])
        rows = []
        for op in names:
            row = [op]
            for name in columns:
                target = device_records.target(name, records[name]["facts"])
                found = records[name]["errors"].get(op, {}).get(d)
                row.append("not measured" if found is None
                           else f"{found} / {bound(target, BY_NAME[op], dt.as_dtype(d))}")
            rows.append(row)
        tables.append(f"## {d}\n\n{table(['function', *columns], rows)}\n")
    return ACCURACY.format(tables="\n".join(tables), dates=dates(records, "errors"))


def dates(records, what):
    """Return when something was recorded, by device."""
    return "; ".join(f"{name} {r[f'{what}_on']}" for name, r in records.items() if what in r)


def table(head, rows):
    """Return a table in Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def in_words(types, taken):
    """Return which of the types that an operation takes were computed."""
    missing = [t for t in taken if t not in types]
    if not types:
        return "–"
    if not missing:
        return f"all {len(types)}"
    return ", ".join(types) if len(types) <= len(missing) else "all but " + ", ".join(missing)


if __name__ == "__main__":
    main()
