"""Random graphs, compiled and run, against the oracle, for as long as wanted.

Run by `make fuzz`. Options: ``--seconds N`` (default 600), ``--device NAME``, ``--seed N``.
"""

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path

TESTS = Path(__file__).parent.parent
sys.path[:0] = [str(TESTS), str(TESTS / "conformance"), str(TESTS.parent / "src")]
os.environ.setdefault("WEFT_CACHE_DIR", tempfile.mkdtemp(prefix="weft-fuzz-cache-"))

from devices import Device  # noqa: E402
from hypothesis import HealthCheck, Phase, given, note, seed, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from programs import compare, describe, programs  # noqa: E402

from weft.driver import kernels, pipeline, plan, plan_cache  # noqa: E402
from weft.kernelize import overlap  # noqa: E402

BATCH = 200


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    options = parser.parse_args()
    device = Device(options.device)
    pipeline.verifying = True
    # Programs of a few elements let their kernels run at the same time, as large ones do.
    overlap.HANDOVER, overlap.LEAST_GAIN, overlap.LEAST_SHARE = 0, 1, 10**9
    plan._WAKE_NANOSECONDS = 0
    began, number = time.monotonic(), options.seed
    count = 0

    def one(data):
        nonlocal count
        count += 1
        program, outputs = data.draw(programs(device))
        note(describe(outputs))
        compare(device.compute(*outputs), outputs, program.exact)

    while time.monotonic() - began < options.seconds:
        limits = settings(max_examples=BATCH, deadline=None, database=None,
                                  suppress_health_check=list(HealthCheck),
                                  phases=[Phase.generate, Phase.shrink])  # fmt: skip
        # Each batch is a function of its own: hypothesis keeps its state by function.
        seed(number)(limits(given(data=st.data())(lambda data: one(data))))()
        print(f"seed {number}: {count} programs, {time.monotonic() - began:.0f} s", flush=True)
        number += 1
        plan_cache.forget()
        kernels.forget()


if __name__ == "__main__":
    main()
