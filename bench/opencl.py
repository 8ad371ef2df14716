"""Captured functions on a device of OpenCL beside the processor: ratios in one run.

Run as ``python bench/opencl.py [DEVICE]``; the default is ``opencl``. Results are compared before
they are timed. A figure is the median of turns of both devices, so that drift hits them alike.
"""

import statistics
import sys
import time
from collections.abc import Callable

import numpy as np

import weft

TURNS = 15


def cases() -> dict[str, tuple[Callable[..., weft.Tensor], list[weft.Tensor]]]:
    """Return functions with their arguments on the processor."""
    wide, square = weft.rand(4096, 4096), weft.rand(1024, 1024)
    odd = [weft.rand(1000, 777), weft.rand(777, 1501)]
    return {
        "2x + 1, 4096²": (lambda x: x * 2 + 1, [wide]),
        "exp, 4096²": (lambda x: x.exp(), [wide]),
        "softmax, 4096²": (lambda x: x.softmax(1), [wide]),
        "layer norm, 4096²": (lambda x: weft.nn.functional.layer_norm(x, (4096,)), [wide]),
        "sum, 4096²": (lambda x: x.sum(), [wide]),
        "matmul, 1024": (lambda a: a @ a, [square]),
        "matmul, 1000×777×1501": (lambda a, b: a @ b, odd),
        "x + 1 on 7": (lambda x: x + 1, [weft.rand(7)]),
    }


def main() -> None:
    """Print milliseconds on both and the ratio: the speed of the device over the processor's."""
    device = sys.argv[1] if len(sys.argv) > 1 else "opencl"
    if not weft.is_available(device):
        print(f"{device} is not here (weft devices says why)")
        return
    for name, (function, given) in cases().items():
        there = [x.to(device).realize() for x in given]
        calls = [weft.jit(function), weft.jit(function)]
        arguments = [given, there]
        found = [call(*args).numpy() for call, args in zip(calls, arguments, strict=True)]
        np.testing.assert_allclose(found[1], found[0], rtol=1e-4, atol=1e-6)
        times: list[list[float]] = [[], []]
        for _ in range(TURNS):
            for k in range(2):
                start = time.perf_counter()
                calls[k](*arguments[k]).realize()
                weft.synchronize(device)
                times[k].append(time.perf_counter() - start)
        cpu, other = (statistics.median(t) * 1e3 for t in times)
        print(f"{name:24} cpu {cpu:8.3f} ms  {device} {other:8.3f} ms  {cpu / other:5.2f}")


if __name__ == "__main__":
    main()
