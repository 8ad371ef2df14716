"""Which operations the conformance suite computed on which device, as a page of the documentation.

Run as ``make coverage``: the tests of operations, reductions, movements and conversions note what
they compute in the folder that WEFT_COVERAGE names, and this script writes the page from it.
"""

import json
import os
import sys
from pathlib import Path

from weft.ir import dtype as dt
from weft.ir import node as nd
from weft.ir.op import BY_NAME

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "coverage.md"
SHOWN = ("cpu", "cpu/c", "interpreter")
HEAD = """# What devices compute

Operations of the graph and the element types of their operands, as the conformance suite computed
and compared them on each device. `make coverage` writes this page. The types are
{types}.

"""

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


def page(folder):
    """Return the page as text, from the files of a folder."""
    found = {}
    for file in Path(folder).glob("*.json"):
        for device, seen in json.loads(file.read_text("utf-8")).items():
            found.setdefault(device, set()).update(map(tuple, seen))
    everywhere = [d.name for d in dt.ALL]
    lines = [HEAD.format(types=", ".join(everywhere)) + f"| operation | {' | '.join(SHOWN)} |",
             "|---" * (len(SHOWN) + 1) + "|"]  # fmt: skip
    for name in sorted({op for seen in found.values() for op, _ in seen}):
        cells = []
        for device in SHOWN:
            types = [t for t in everywhere if (name, t) in found.get(device, ())]
            cells.append(_in_words(types, [t for t in everywhere if _takes(name, t)]))
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _takes(name, dtype):
    return dt.as_dtype(dtype).kind in BY_NAME[name].kinds


def _in_words(types, taken):
    if not types:
        return "–"
    missing = [t for t in taken if t not in types]
    if not missing:
        return f"all {len(types)}"
    return ", ".join(types) if len(types) <= len(missing) else "all but " + ", ".join(missing)


if __name__ == "__main__":
    PAGE.write_text(page(sys.argv[1]), "utf-8")
