"""The largest errors of functions of floats on each device that runs rendered code.

Run as ``make accuracy``, or for some devices by their names: measures them here on fresh inputs and
notes what it finds in the records, from which `device_pages` writes the page. It fails where a
device exceeds its bound (`ulp_bounds`).
"""

import argparse
import os
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import device_records
import numpy as np
from devices import Device
from transcendental_reference import FUNCTIONS, exact
from values import cross, random, special, ulps

import weft
from graphs import el
from passes.ulps import every_exponent
from ulp_bounds import bound
from weft.driver.context import context
from weft.ir import dtype as dt
from weft.ir.op import Op

MEASURED = ("cpu", "cpu/c", "opencl:pocl", "opencl:pocl/threads", "vulkan:lavapipe",
            "webgpu:llvmpipe")  # fmt: skip
ROUNDED = {Op.DIV: np.divide, Op.SQRT: np.sqrt}  # rightly, whichever bits `test_op_values` takes
OPS = (*FUNCTIONS, *ROUNDED)
TYPES = (dt.float32, dt.float16, dt.bfloat16, dt.float64)  # the slowest last
SLOW = (Op.ERF, Op.ERFC)  # whose exact results in float64 take Python's numbers


def inputs(op, d, rng, share=1.0):
    """Return columns: special values, every exponent, places where functions bend, random bits."""
    count = int(4099 * share) | 1
    if op.arity == 2:
        columns = cross(d, 2)
        near = rng.uniform(0.5, 2, (2, count)), rng.uniform(-40, 40, (2, count))
        with np.errstate(all="ignore"):
            return [np.concatenate([c, random(d, (count,), rng), *(n[k].astype(d.numpy)
                                                                  for n in near)])
                    for k, c in enumerate(columns)]  # fmt: skip
    if d.bits == 16:
        return [np.arange(1 << 16, dtype=np.uint16).view(d.numpy)]
    quarters = (np.arange(1, count) * (np.pi / 2)).astype(d.numpy)
    steps = rng.integers(-40, 41, quarters.size).astype(f"i{d.itemsize}")
    parts = [special(d), random(d, (count,), rng),
             rng.permutation(every_exponent(d.numpy, 20, int(rng.integers(1 << 30))))[:4 * count],
             *(rng.uniform(-most, most, count).astype(d.numpy) for most in (1.5, 12, 100, 1e5)),
             quarters, (quarters.view(steps.dtype) + steps).view(d.numpy)]  # fmt: skip
    return [np.concatenate(parts)]


def true_values(op, columns):
    """Return the exact results in a wider type."""
    if op in FUNCTIONS:
        return exact(op, columns)
    with np.errstate(all="ignore"):
        return ROUNDED[op](*(c.astype(np.longdouble) for c in columns))


def measure(name, rng, seconds):
    """Return the largest errors of functions on a device, by function and type, and what is wrong.

    What was not recorded before comes first.
    """
    device, target = Device(name), context(name).target
    found = {op: dict(e) for op, e in device_records.load().get(name, {}).get("errors", {}).items()}
    failed = []
    end = time.monotonic() + seconds
    cases = [(d, op) for d in TYPES for op in OPS]
    for d, op in sorted(cases, key=lambda case: case[0].name in found.get(case[1].name, {})):
        if time.monotonic() > end:
            print(f"{name}: {op.name} {d.name} and what follows it found no time", flush=True)
            break
        columns = inputs(op, d, rng, 0.1 if op in SLOW and d is dt.float64 else 1.0)
        (got,) = device.compute(el(op, *map(device.leaf, columns)))
        error = ulps(got, true_values(op, columns), d)
        at, limit = int(np.argmax(error)), bound(target, op, d)
        most = float(error[at])
        found.setdefault(op.name, {})[d.name] = round(most, 3) if most < 1e9 else str(most)
        if not most <= limit:
            failed.append(f"{name}: {op.name} of {d.name} is off by {most} ulp, at most "
                          f"{limit}, at {[float(c[at]) for c in columns]}")  # fmt: skip
            print(failed[-1], flush=True)
    return found, failed


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("devices", nargs="*", default=MEASURED, metavar="DEVICE")
    parser.add_argument("--seed", type=int, default=int.from_bytes(os.urandom(4), "little"))
    parser.add_argument("--seconds", type=float, default=1e9, help="of each device")
    options = parser.parse_args()
    print(f"seed {options.seed}")
    failed = []
    for name in options.devices:
        began = time.monotonic()
        weft.set_default_device(name)
        name = context(name).name
        errors, wrong = measure(name, np.random.default_rng(options.seed), options.seconds)
        device_records.note(name, errors=errors)
        failed += wrong
        print(f"{name}: {time.monotonic() - began:.0f} s", flush=True)
    sys.exit("\n".join(failed))


if __name__ == "__main__":
    main()
