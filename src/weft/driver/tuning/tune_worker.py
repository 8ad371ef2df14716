"""A child process of the tuner: compiles candidates, or times them on arrays of its own.

``python -m weft.driver.tuning.tune_worker`` answers requests until its parent is gone. What it runs
may hang or crash; the parent then starts another.
"""

from __future__ import annotations

import time
from typing import Any, Final

import numpy as np

from weft.driver import pipeline
from weft.driver.context import Context, context
from weft.errors import LaunchError, TuningError, WeftError
from weft.ir import dtype as dt
from weft.ir.bounds import Env, bounds
from weft.ir.dtype import DType
from weft.ir.stmt import Kernel
from weft.ir.text.text_parse import parse_kernel
from weft.ir.traverse import stores
from weft.runtimes.base import Image, View
from weft.schedule import Schedule
from weft.tuning.process import Blobs, serve

SYMBOL: Final = "weft_candidate"
_BATCH_SECONDS: Final = 1e-3  # of launches in a row between two looks at the clock
_SHIFT: Final = 2048 + 16  # bytes: no line, no vector, another part of the page
_TURNS: Final = 2  # looks at each side in a round, the least of which counts
_HOPELESS: Final = 4.0  # times the default: not timed further
_MOST_BYTES: Final = 1 << 30
_SEED: Final = 20240607

Reply = tuple[dict[str, Any], Blobs]


def build(head: dict[str, Any], blobs: list[bytes]) -> Reply:
    """Compile a kernel with a trace: text in, object code out."""
    kernel = parse_kernel(head["kernel"])
    scheduled = Schedule.replay(kernel, head["trace"]).kernel
    built = pipeline.build(kernel, SYMBOL, context(head["device"]),
                           chosen=(scheduled, head["pipeline"]))
    limits = {v.attr.name: v.attr.max for v in built.linear.variables}
    return {"variables": [[name, limits[name]] for name in built.variables]}, (built.image,)


class Bench:
    """One kernel with arrays to run it on, its default code, and what that computes."""

    def __init__(self, kernel: Kernel, image: bytes, variables: list[tuple[str, int]],
                 context: Context) -> None:  # fmt: skip
        self.kernel, self.device = kernel, context.runtime
        self.values, env = _sizes(kernel, variables)
        self.names = [name for name, _ in variables]
        written = stores(kernel.body)
        self.written = [i for i, p in enumerate(kernel.params) if p in written]
        self.counts = [max(bounds(p.size, env)[1], 0) for p in kernel.params]
        # Arrays of this process are copied to the device; the end of each is what lies shifted.
        self.bytes = [np.zeros(n * p.dtype.itemsize + _SHIFT, np.uint8)
                      for n, p in zip(self.counts, kernel.params, strict=True)]
        self.arrays = [b[:-_SHIFT].view(_RAW[p.dtype.itemsize])
                       for b, p in zip(self.bytes, kernel.params, strict=True)]
        self.buffers = [self.device.pool.allocate(b.nbytes) for b in self.bytes]
        # Inputs of machine code may lie as those of other libraries do.
        shift = _SHIFT if context.is_native else 0
        self.places = [self.buffers, [b if i in self.written else View(b, shift)
                                      for i, b in enumerate(self.buffers)]]
        self.default = self.load(image)
        # Rounds of random indices as wide as the least extent that a subscript may run over.
        extents = [n for p in kernel.params for n in (bounds(d, env)[1] for d in p.shape) if n > 1]
        self.longest = max(extents, default=1)  # a scan adds up along all of it
        for limit in (127, min(extents, default=1), 1):
            self._fill(limit)
            try:
                self._run(self.default)
                break
            except WeftError:
                if limit == 1:
                    raise
        self.expected = self._results()
        self.seconds = min(self._time(self.default, 1) for _ in range(3))
        self.inner = max(1, min(10000, int(_BATCH_SECONDS / max(self.seconds, 1e-7))))
        self.seconds = self._time(self.default, self.inner)

    def load(self, image: bytes) -> Any:
        """Link the code of a candidate."""
        return self.device.load(Image(SYMBOL, image, self.names, len(self.kernel.params)))

    def _fill(self, limit: int) -> None:
        random = np.random.default_rng(_SEED)
        for i, (array, memory) in enumerate(zip(self.arrays, self.kernel.params, strict=True)):
            array[...] = _data(random, memory.dtype, array.shape[0], limit)
            self._send(i)

    def _send(self, i: int) -> None:
        self.device.pool.host_to_pool(self.bytes[i], self.buffers[i]).wait()

    def _results(self) -> dict[int, Any]:
        """Return what the kernel wrote."""
        found = {}
        for i in self.written:
            got = np.empty_like(self.bytes[i])
            self.device.pool.pool_to_host(self.buffers[i], got)
            found[i] = got[:-_SHIFT].view(self.arrays[i].dtype)
        return found

    def _run(self, program: Any) -> None:
        event = self.device.queue.launch(program, self.buffers, self.values)
        event.wait()
        if (failure := event.failure) is not None:
            raise LaunchError(self.kernel.name, found=f"failure {failure.code} at {failure.value}")

    def _time(self, program: Any, launches: int, place: int = 0) -> float:
        launch, buffers, values = self.device.queue.launch, self.places[place], self.values
        start = time.perf_counter()
        for _ in range(launches):
            launch(program, buffers, values)
        self.device.queue.synchronize()
        return (time.perf_counter() - start) / launches

    def agrees(self, program: Any) -> bool:
        """Run a candidate on the data that the default had; whether it computes the same."""
        for i in self.written:
            self._send(i)
        self._run(program)
        found = self._results()
        points = max(self.kernel.meta.flops / max(sum(self.counts[i] for i in self.written), 1),
                     self.longest)
        return all(_close(found[i], self.expected[i], self.kernel.params[i].dtype, points)
                   for i in self.written)

    def rounds(self, old: Any, new: Any, count: int) -> list[tuple[float, float]]:
        """Return the seconds of a launch of both, taken in turn: two pairs a round.

        Every other pair is taken where the inputs are not aligned.
        """
        first = min(self._time(new, 1) for _ in range(2))
        if first > _HOPELESS * max(self.seconds, 2e-6):
            return [(self.seconds, first)]
        self._time(old, 1)
        pairs = []
        for number in range(2 * count):
            turns = [(self._time(old, self.inner, number % 2),
                      self._time(new, self.inner, number % 2)) for _ in range(_TURNS)]
            pairs.append((min(t[0] for t in turns), min(t[1] for t in turns)))
        return pairs


_bench: Bench | None = None


def open_bench(head: dict[str, Any], blobs: list[bytes]) -> Reply:
    """Make the arrays of a kernel, and run its default on them."""
    global _bench
    _bench = None
    place = context(head["device"])
    _ = place.target  # asks for tile registers: what was compiled elsewhere may use them
    _bench = Bench(parse_kernel(head["kernel"]), blobs[0],
                   [(str(n), int(m)) for n, m in head["variables"]], place)
    return {"seconds": _bench.seconds, "inner": _bench.inner}, ()


def measure(head: dict[str, Any], blobs: list[bytes]) -> Reply:
    """Check a candidate against the default, and time both in turn."""
    bench = _opened()
    program = bench.load(blobs[0])
    if not bench.agrees(program):
        return {"same": False}, ()
    return {"same": True, "pairs": bench.rounds(bench.default, program, int(head["rounds"]))}, ()


def duel(head: dict[str, Any], blobs: list[bytes]) -> Reply:
    """Time two candidates in turn."""
    bench = _opened()
    old, new = map(bench.load, blobs)
    return {"pairs": bench.rounds(old, new, int(head["rounds"]))}, ()


def _opened() -> Bench:
    if _bench is None:
        raise TuningError("measure", found="no kernel", expected="one that was opened")
    return _bench


# ---- data ----------------------------------------------------------------------------------------


def _sizes(kernel: Kernel, variables: list[tuple[str, int]]) -> tuple[list[int], Env]:
    """Return values of the symbolic variables, as large as memory sensibly allows."""
    from weft.ir import expr as ex

    symbols = {v.attr.name: v for p in kernel.params for d in p.shape for v in ex.variables([d])}
    values = dict(variables)
    while True:
        env: Env = {symbols[n]: (v, v) for n, v in values.items() if n in symbols}
        nbytes = sum(bounds(p.size, env)[1] * p.dtype.itemsize for p in kernel.params)
        if nbytes <= _MOST_BYTES:
            return [values[name] for name, _ in variables], env
        small = {n: max(v // 2, symbols[n].attr.min if n in symbols else 1)
                 for n, v in values.items()}
        if small == values:
            raise TuningError("measure", found=f"{nbytes} bytes of arrays",
                              expected=f"at most {_MOST_BYTES}")
        values = small


_RAW: Final = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}


def _data(random: np.random.Generator, dtype: DType, count: int, limit: int) -> Any:
    """Return raw words of random values: floats around 0, integers from 0 below `limit`."""
    if dtype == dt.bool_:
        return random.integers(0, 2, count, dtype=np.uint8)
    if not dtype.is_float:
        return random.integers(0, max(min(limit, 127), 1), count).astype(_RAW[dtype.itemsize])
    if dtype.itemsize == 1:  # 8 bits: small positive and negative numbers, no NaN
        return (random.integers(0x20, 0x40, count) | random.integers(0, 2, count) << 7).astype(
            np.uint8)
    values = random.standard_normal(count, dtype=np.float32)
    if dtype == dt.bfloat16:
        return (values.view(np.uint32) >> 16).astype(np.uint16)
    kind = {2: np.float16, 4: np.float32, 8: np.float64}[dtype.itemsize]
    return values.astype(kind).view(_RAW[dtype.itemsize])


def _close(found: Any, expected: Any, dtype: DType, points: float) -> bool:
    """Whether results agree: exactly, or to what another order of a sum may change."""
    if np.array_equal(found, expected):
        return True
    if not dtype.is_float:
        return False
    if dtype.itemsize == 1:
        return bool((np.abs(found.astype(int) - expected.astype(int)) <= 1).all())
    a, b = (_floats(x, dtype) for x in (found, expected))
    epsilon = {dt.bfloat16.name: 2.0**-7, dt.float16.name: 2.0**-10, dt.float64.name: 2.0**-52}.get(
        dtype.name, 2.0**-23)
    finite = np.isfinite(b)
    if not np.array_equal(np.isnan(a), np.isnan(b)) or not np.array_equal(
            a[~finite & ~np.isnan(b)], b[~finite & ~np.isnan(b)]):
        return False
    scale = float(np.abs(b[finite]).max(initial=0.0))
    tolerance = epsilon * max(64.0, 8.0 * max(points, 1.0) ** 0.5)
    return bool((np.abs(a[finite] - b[finite]) <= tolerance * max(scale, 1e-30)).all())


def _floats(words: Any, dtype: DType) -> Any:
    if dtype == dt.bfloat16:
        return (words.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    kind = {2: np.float16, 4: np.float32, 8: np.float64}[dtype.itemsize]
    return words.view(kind).astype(np.float64)


if __name__ == "__main__":
    serve({"build": build, "open": open_bench, "measure": measure, "duel": duel})
