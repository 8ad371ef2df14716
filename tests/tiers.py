"""Which tests a tier runs: ``full`` is everything, ``fast`` is what one waits for after a change.

The fast tier takes every test of public behaviour that carries no mark. Of a grid, which is what
carries ``pytest.mark.grid`` (the rows of one function, or all tests of a module), it takes a tenth,
and one test at least. Of each module in the folders of SAMPLED, which test the inside of the
compiler or have hundreds of rows for one path, it takes a share as of a grid; so it does of what a
module runs on further devices. Tests marked ``slow`` it leaves to the full tier. Which tests it
takes follows from the commit, so that all of them run as commits go by; WEFT_GRID_SEED repeats a
choice. A loop inside of one test takes a tenth of its rows by the fixture ``tier_rows``.

The full tier takes everything but rows of the devices of SHARED, which take long for each, or
compute with the code of another one: of these it takes a share by the same choice. The fast tier
takes few rows of them, one of each module at least.
"""

import hashlib
import os
import subprocess
from pathlib import Path

TIERS = ("fast", "full")
SHARE = 10  # one row of a grid in so many
FIRST = "cpu"  # the device on which the fast tier runs every test that takes one
# Devices whose compilers take long for each kernel, or which are a second look at what another one
# shows: of their tests one in so many runs in the full tier, and all in `make test-devices`.
# `far` and `late` run the machine code of `cpu`, so that their rows show memory and queues.
SHARED = {"cpu/c": 10, "opencl:pocl": 3, "opencl:pocl/threads": 10, "opencl:intel": 10,
          "webgpu": 10, "far": 3, "late:1": 3}  # fmt: skip
SHARE_OF_SHARED = 60  # one in so many of a module's rows on such a device is in the fast tier
# Folders of which one test of each module in so many runs.
SAMPLED = {
    **dict.fromkeys(("strategies", "kernelize", "schedule", "passes", "renderers", "tuning"), 10),
    **dict.fromkeys(("robustness", "runtimes", "runtimes/lockstep", "passes/spmd"), 4),
    **dict.fromkeys((f"lang/{room}" for room in (
        "core", "source", "values", "library", "device", "reader", "launch", "launch_fusion",
        "compute")), 4),
}


def choose_seed():
    """Return the number that says which tenth of each grid runs, as text: that of the tree.

    A copy of the source without its history always takes the same rows.
    """
    if given := os.environ.get("WEFT_GRID_SEED"):
        return given
    command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "--short=8", "HEAD^{tree}"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "0"


def left_out(items, seed):
    """Return the items of a collection that the fast tier does not run.

    Parameters
    ----------
    items
        What pytest collected, after those that lack a capability were deselected.
    seed
        Text that says which rows of grids stay: the same for all processes of a run.
    """
    dropped = {item for item in items if item.get_closest_marker("slow")}
    grids = {}
    for item in items:
        if item not in dropped and (grid := _grid(item)):
            grids.setdefault(grid, []).append(item)
    for (_, share), rows in grids.items():
        dropped.update(set(rows).difference(some_of(rows, seed, lambda item: item.nodeid, share)))
    return dropped


def left_out_of_full(items, seed):
    """Return the items of a collection that not even the full tier runs, see `left_out`.

    There are none where the page of coverage is made, nor with ``WEFT_ALL_DEVICES``.
    """
    dropped = set()
    if {"WEFT_COVERAGE", "WEFT_ALL_DEVICES"} & os.environ.keys():
        return dropped
    for device, share in SHARED.items():
        rows = [item for item in items if _device(item) == device]
        dropped.update(set(rows).difference(some_of(rows, seed, lambda item: item.nodeid, share)))
    return dropped


def some_of(rows, seed, name=str, share=SHARE):
    """Return one in `share` of some rows, and one at least, in the order in which they come."""
    chosen = sorted(rows, key=lambda row: hashlib.sha256(f"{seed} {name(row)}".encode()).digest())
    kept = {name(row) for row in chosen[: -(-len(chosen) // share)]}
    return [row for row in rows if name(row) in kept]


def _device(item):
    """Return the device that a test runs on by its fixture, None for most tests."""
    device = item.callspec.params.get("device") if hasattr(item, "callspec") else None
    return device if isinstance(device, str) else None


def _grid(item):
    """Return the name of the grid that a test belongs to and its share; None for most tests."""
    module = item.nodeid.partition("::")[0]
    device = _device(item)
    if device not in (None, FIRST):
        return f"{module} on {device}", SHARE_OF_SHARED if device in SHARED else SHARE
    found = next(item.iter_markers_with_node("grid"), None)
    if found:
        return found[0].nodeid.partition("[")[0], SHARE
    folder = module.removeprefix("tests/").rpartition("/")[0]
    return (module, SAMPLED[folder]) if folder in SAMPLED else None
