"""Devices behind drivers beside the processor, kernels written by hand, and the driver's own calls.

    python bench/drivers.py [DEVICE …] [--threads 2] [--seconds 1] [--only matmul] [--check]

The default is ``opencl:pocl``. Functions are compared with Weft's ``cpu``; matrix products with a
kernel of OpenCL that is written by hand (a panel of B in local memory, tiles in registers);
launches and copies with the same calls by hand through pyopencl. All is one process, and both sides
take turns, so that drift of the machine hits them alike. Results are checked against float64 before
they are timed. A figure is the median, a ratio Weft's speed over the other's, or for launches its
time by the other's.
"""

import argparse
import os
import statistics
import sys
import time

parser = argparse.ArgumentParser()
parser.add_argument("devices", nargs="*", default=["opencl:pocl"])
parser.add_argument("--threads", default=os.environ.get("WEFT_NUM_THREADS", "2"))
parser.add_argument("--seconds", type=float, default=1.0, help="of each row")
parser.add_argument("--only", default="", help="rows whose names contain this")
parser.add_argument("--check", action="store_true", help="fail where a goal is missed")
args = parser.parse_args()
for variable in ("WEFT_NUM_THREADS", "POCL_MAX_PTHREAD_COUNT", "LP_NUM_THREADS"):
    os.environ[variable] = args.threads

import numpy as np  # noqa: E402 - the threads are set before
import pyopencl as cl  # noqa: E402

import weft  # noqa: E402
from weft import gpu  # noqa: E402
from weft.capture import usage as policy  # noqa: E402
from weft.driver.context import context  # noqa: E402
from weft.driver.plans.device_graph import CompiledOnDevices  # noqa: E402
from weft.nn import functional  # noqa: E402

policy.OFTEN, policy.LONG = 1 << 40, 1e6  # one capture serves all sizes, as the row says
CALLS = 64  # of a burst of launches
BY_HAND = """
#define WIDTH (COLUMNS / 16)
__kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void matmul(__global const float *restrict a, __global const float *restrict b,
            __global float *restrict c, int m, int n, int k, __local float *restrict panel) {
  const int first = get_group_id(0) * COLUMNS, width = min(COLUMNS, n - first);
  const int top = get_group_id(1) * BAND, bottom = min(top + BAND, m);
  for (int start = 0; start < k; start += DEPTH) {
    const int depth = min(DEPTH, k - start);
    for (int p = 0; p < depth; p++) {
      __global const float *from = b + (start + p) * n + first;
      if (width == COLUMNS)
        for (int v = 0; v < WIDTH; v++) vstore16(vload16(v, from), p * WIDTH + v, panel);
      else
        for (int j = 0; j < COLUMNS; j++) panel[p * COLUMNS + j] = j < width ? from[j] : 0;
    }
    for (int i = top; i < bottom; i += ROWS) {
      __global const float *row[ROWS];
      float16 sum[ROWS][WIDTH];
      for (int r = 0; r < ROWS; r++) {
        row[r] = a + min(i + r, m - 1) * k + start;
        for (int v = 0; v < WIDTH; v++) sum[r][v] = 0;
      }
      for (int p = 0; p < depth; p++) {
        float16 y[WIDTH];
#pragma unroll
        for (int v = 0; v < WIDTH; v++) y[v] = vload16(p * WIDTH + v, panel);
#pragma unroll
        for (int r = 0; r < ROWS; r++)
#pragma unroll
          for (int v = 0; v < WIDTH; v++) sum[r][v] = fma((float16)row[r][p], y[v], sum[r][v]);
      }
      for (int r = 0; r < ROWS && i + r < bottom; r++) {
        __global float *to = c + (i + r) * n + first;
        if (width == COLUMNS)
          for (int v = 0; v < WIDTH; v++)
            vstore16(start ? sum[r][v] + vload16(v, to) : sum[r][v], v, to);
        else {
          float one[COLUMNS];
          for (int v = 0; v < WIDTH; v++) vstore16(sum[r][v], v, one);
          for (int j = 0; j < width; j++) to[j] = start ? to[j] + one[j] : one[j];
        }
      }
    }
  }
}
__kernel void increment(__global const float *x, __global float *y, long n) {
  const long i = get_global_id(0);
  if (i < n) y[i] = x[i] + 1;
}
"""
TILE = {"ROWS": 6, "COLUMNS": 64, "BAND": 256, "DEPTH": 512}
rng = np.random.default_rng(1)
missed = []


class Hand:
    """A device of a driver, by pyopencl alone."""

    def __init__(self, device):
        self.context = cl.Context([device])
        self.queue = cl.CommandQueue(self.context)
        options = [f"-D{name}={value}" for name, value in TILE.items()]
        self.program = cl.Program(self.context, BY_HAND).build(options)
        self.increment = cl.Kernel(self.program, "increment")

    def buffer(self, array):
        """Return memory of the device with a copy of an array."""
        flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
        return cl.Buffer(self.context, flags, hostbuf=array)

    def product(self, a, b):
        """Return what computes a product, and its result."""
        (m, k), n = a.shape, b.shape[1]
        result = np.zeros((m, n), np.float32)
        held = a, b, c = [self.buffer(array) for array in (a, b, result)]  # kernels hold none
        kernel = cl.Kernel(self.program, "matmul")
        kernel.set_args(a, b, c, *map(np.int32, (m, n, k)),
                        cl.LocalMemory(4 * TILE["COLUMNS"] * TILE["DEPTH"]))
        grid = -(-n // TILE["COLUMNS"]), -(-m // TILE["BAND"])

        def call(held=held):
            cl.enqueue_nd_range_kernel(self.queue, kernel, grid, (1, 1)).wait()

        call()
        cl.enqueue_copy(self.queue, result, c)
        return call, result


def turns(*calls):
    """Return the median seconds of calls that take turns."""
    times = [[] for _ in calls]
    end = time.perf_counter() + args.seconds
    while time.perf_counter() < end or len(times[0]) < 15:
        for call, found in zip(calls, times, strict=True):
            start = time.perf_counter()
            call()
            found.append(time.perf_counter() - start)
    return [statistics.median(found) for found in times]


def row(device, name, own, other, goal, at_most=False, calls=1):
    """Time a row and print it; goals are of the speed, or of the time where `at_most`."""
    if args.only not in name:
        return
    for call in (own, other) * 3:
        call()
    mine, others = (seconds / calls for seconds in turns(own, other))
    ratio = mine / others if at_most else others / mine
    holds = goal is None or (ratio <= goal if at_most else ratio >= goal)
    unit, scale = ("ms", 1e3) if others > 1e-3 else ("µs", 1e6)
    wanted = "" if goal is None else f"{'≤' if at_most else '≥'} {goal}"
    print(f"{device:20s} {name:32s} {mine * scale:9.2f} {others * scale:9.2f} {unit} "
          f"{ratio:6.2f}  {wanted}{'' if holds else '  missed'}", flush=True)  # fmt: skip
    if not holds:
        missed.append(name)


def waited(device, call, given):
    """Return a function that calls and waits."""
    def run():
        found = call(*given)
        found.realize()
        weft.synchronize(device)

    return run


def near(found, expected, tolerance=1e-5):
    scale = max(float(np.abs(expected).max()), 1e-30)
    assert float(np.abs(found - expected).max()) <= tolerance * scale


def normal(*shape):
    return rng.standard_normal(shape, dtype=np.float32)


@weft.kernel
def increment(x, y):
    """Add one to each element."""
    i = gpu.grid(1)
    if i < x.size:
        y[i] = x[i] + 1


def products(device, hand):
    """Time products beside the kernel by hand."""
    several = weft.jit(lambda a, b: a @ b)
    for m, k, n in ((96, 128, 160), (160, 224, 192), (224, 160, 256)) * 2:  # sizes become numbers
        several(weft.from_numpy(normal(m, k)).to(device), weft.from_numpy(normal(k, n)).to(device))
    for shape, of_all in (((512, 512, 512), False), ((1024, 1024, 1024), False),
                          ((1000, 777, 1501), False), ((1024, 1024, 1024), True),
                          ((1000, 777, 1501), True)):  # fmt: skip
        m, k, n = shape
        a, b = normal(m, k), normal(k, n)
        exact = a.astype(np.float64) @ b
        other, result = hand.product(a, b)
        near(result, exact)
        given = [weft.from_numpy(x).to(device).realize() for x in (a, b)]
        call = several if of_all else weft.jit(lambda a, b: a @ b)
        near(call(*given).numpy(), exact)
        name = f"matmul {m}×{k}×{n}" + ", symbolic" * of_all
        row(device, name, waited(device, call, given), other, 0.8)
    assert several.captures <= 3, several.explain_captures()


def functions(device):
    """Time functions of 4096² floats beside the processor."""
    x = normal(4096, 4096)
    wide = x.astype(np.float64)
    e = np.exp(wide - wide.max(1, keepdims=True))
    mean, spread = wide.mean(1, keepdims=True), wide.std(1, keepdims=True)
    rows = {
        "2x + 1": (lambda t: t * 2 + 1, wide * 2 + 1),
        "exp": (lambda t: t.exp(), np.exp(wide)),
        "softmax": (lambda t: t.softmax(1), e / e.sum(1, keepdims=True)),
        "layer norm": (lambda t: functional.layer_norm(t, (4096,), eps=0.0),
                       (wide - mean) / spread),
        "sum": (lambda t: t.sum(), wide.sum()),
    }  # fmt: skip
    for name, (function, exact) in rows.items():
        runs = []
        for place in (device, "cpu"):
            call, given = weft.jit(function), [weft.from_numpy(x).to(place).realize()]
            near(call(*given).numpy(), exact, 1e-3 if name == "sum" else 1e-5)
            runs.append(waited(place, call, given))
        row(device, f"{name}, 4096²", *runs, 0.7)


def launches(device, hand):
    """Time launches of a small kernel beside the same calls by hand."""
    x = normal(64)
    given, y, n = hand.buffer(x), hand.buffer(np.zeros_like(x)), np.int64(64)
    kernel, enqueue = hand.increment, cl.enqueue_nd_range_kernel

    def by_hand():
        kernel.set_args(given, y, n)
        return enqueue(hand.queue, kernel, (64,), (8,))

    found = np.zeros_like(x)
    by_hand().wait()
    cl.enqueue_copy(hand.queue, found, y)
    near(found, x + 1)
    t = weft.from_numpy(x).to(device).realize()
    call = weft.jit(lambda x: x + 1)
    near(call(t).numpy(), x + 1)

    def burst(one, wait):
        for _ in range(CALLS):
            one()
        wait()

    def done():
        weft.synchronize(device)

    row(device, "jitted call, and a wait", lambda: (call(t), done()),
        lambda: by_hand().wait(), 1.25, True)
    row(device, "jitted call", lambda: burst(lambda: call(t), done),
        lambda: burst(by_hand, hand.queue.finish), 1.25, True, CALLS)
    queue, program, buffers = enqueued(device, x)
    row(device, "launch by the queue, and a wait", lambda: queue.launch(program, buffers).wait(),
        lambda: by_hand().wait(), 1.25, True)
    row(device, "launch by the queue", lambda: burst(
        lambda: queue.launch(program, buffers), queue.synchronize),
        lambda: burst(by_hand, hand.queue.finish), 1.25, True, CALLS)  # fmt: skip
    out, launch = weft.from_numpy(x).to(device).realize(), increment[8, 8]
    launch(t, out)
    near(out.numpy(), x + 1)
    row(device, "kernel[8, 8](x, y), which waits", lambda: launch(t, out),
        lambda: by_hand().wait(), None, True)
    row(device, "eager x + 1, and a wait", lambda: ((t + 1).realize(), done()),
        lambda: by_hand().wait(), None, True)


def enqueued(device, x):
    """Return a queue, a kernel that increments and its buffers."""
    node = (weft.from_numpy(x).to(device).realize() + 1)._value()
    plan = CompiledOnDevices([node], []).plan
    runtime = context(device).runtime
    buffers = [runtime.pool.allocate(x.nbytes) for _ in range(2)]
    for buffer in buffers:
        runtime.pool.host_to_pool(x, buffer)
    (program,) = plan.programs.values()
    runtime.queue.launch(program, buffers).wait()
    found = np.empty_like(x)
    runtime.pool.pool_to_host(buffers[1], found)
    near(found, x + 1)
    return runtime.queue, program, buffers


def copies(device, hand):
    """Time copies beside those by hand."""
    runtime = context(device).runtime
    pool, queue = runtime.pool, runtime.queue
    for nbytes in (4 << 20, 64 << 20):
        x, out = normal(nbytes // 4), normal(nbytes // 4)
        held, other = hand.buffer(x), hand.buffer(out)
        one, two = pool.allocate(nbytes), pool.allocate(nbytes)
        here = weft.from_numpy(x)
        there = here.to(device).realize()
        near(there.numpy(), x, 0)
        by_hand = {
            "to the device": lambda x=x, held=held: cl.enqueue_copy(hand.queue, held, x),
            "to the host": lambda out=out, held=held: cl.enqueue_copy(hand.queue, out, held),
            "within": lambda a=held, b=other: cl.enqueue_copy(hand.queue, b, a).wait(),
        }
        rows = (
            ("copy", "to the device", 0.8, lambda x=x, one=one: pool.host_to_pool(x, one)),
            ("copy", "to the host", 0.8, lambda out=out, one=one: pool.pool_to_host(one, out)),
            ("copy", "within", 0.8, lambda one=one, two=two: queue.copy(two, one).wait()),
            ("to()", "to the device", None, lambda here=here: here.to(device).realize()),
            ("numpy()", "to the host", None, lambda there=there: there.numpy()),
        )
        for how, way, goal, call in rows:
            row(device, f"{how} {way}, {nbytes >> 20} MiB", call, by_hand[way], goal)


def main():
    """Print the rows of each device."""
    platforms = [p for p in cl.get_platforms() if p.name.startswith("Portable")]
    hand = Hand(platforms[0].get_devices()[0]) if platforms else None
    print(f"{'device':20s} {'row':32s} {'Weft':>9s} {'other':>9s}     ratio  goal")
    for device in args.devices:
        if not weft.is_available(device):
            print(f"{device} is not here (weft devices says why)")
            continue
        if hand is not None:
            products(device, hand)
        functions(device)
        if hand is not None and device.startswith("opencl"):
            launches(device, hand)
            copies(device, hand)
    if missed and args.check:
        sys.exit("missed: " + ", ".join(missed))


if __name__ == "__main__":
    main()
