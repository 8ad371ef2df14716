"""Which operations the conformance suite computed on which device, noted in the records of devices.

Run as ``make coverage``: the tests of operations, reductions, movements and conversions note what
they compute in the folder that WEFT_COVERAGE names, and this script adds it to the records, from
which `device_pages` writes the page. ``make coverage DEVICES="vulkan:lavapipe"`` runs some devices.
"""

import json
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from weft.ir import node as nd

_seen = {}


def note(device, nodes):
    """Note the operations of graphs that a device has computed."""
    if "WEFT_COVERAGE" not in os.environ:
        return
    seen = _seen.setdefault(device, set())
    for node in nd.toposort(nodes):
        if node.args:
            seen.add((node.op.name, node.args[0].dtype.name))


def write(folder):
    """Write what this process has noted into a file of its own."""
    if _seen:
        found = {device: sorted(seen) for device, seen in _seen.items()}
        (Path(folder) / f"{os.getpid()}.json").write_text(json.dumps(found), "utf-8")


def record(folder):
    """Add the files of a folder to the records."""
    import device_records

    from weft.driver.context import context
    from weft.ir import dtype as dt

    found = {}
    for file in Path(folder).glob("*.json"):
        for device, seen in json.loads(file.read_text("utf-8")).items():
            found.setdefault(device, set()).update(map(tuple, seen))
    known = device_records.load()
    families = {name.partition("/")[0].partition(":")[0] for name in device_records.DEVICES}
    for device, seen in found.items():
        if device.partition("/")[0].partition(":")[0] in families:
            full = context(device).name  # with the name of the driver
            types = {op: [d.name for d in dt.ALL if (op, d.name) in seen] for op, _ in sorted(seen)}
            device_records.note(full, computed=known.get(full, {}).get("computed", {}) | types)


if __name__ == "__main__":
    record(sys.argv[1])
