"""The interpreter device: results, errors, limits, and what a report holds."""

from typing import Any

import numpy as np
import pytest
from tests.lang.device import test_warp
from tests.lang.reader.test_language import CASES, VALUES

import processor
import weft
from weft import gpu
from weft.compat import cuda
from weft.errors import BoundsError, DTypeError, KernelError, LaunchError
from weft.ir.stmt import Barrier
from weft.ir.traverse import map_exprs
from weft.lang.reader.translate import Launch, translate
from weft.runtimes.lockstep import run as lockstep


@pytest.mark.parametrize("function", CASES, ids=lambda f: f.__name__)
def test_language(function: Any) -> None:
    """Every kind of statement gives what Python gives, and nothing that is reported."""

    @weft.kernel
    def apply(out: Any, x: Any) -> None:
        i = gpu.grid(1)
        if i < x.size:
            out[i] = function(x[i])

    x = np.array(VALUES * 3)
    out = np.zeros_like(x)
    report = weft.sanitize(apply, 3, 16)(out, x)
    assert report.findings == (), str(report)
    np.testing.assert_allclose(out, [float(function(v)) for v in x], rtol=1e-14)


@weft.kernel
def shifted(x: Any, out: Any) -> None:
    i = gpu.grid(1)
    out[i] = x[i + 1]


def test_errors_are_those_of_a_launch() -> None:
    """An index out of bounds stops the interpreter as it stops compiled code."""
    for run in (weft.interpret(shifted, 2, 4), shifted[2, 4]):
        with pytest.raises(BoundsError, match=r"found index 8, expected an index from 0 to 7") as e:
            run(np.zeros(8), np.zeros(8))
        assert e.value.where is not None
        assert e.value.where.text == "out[i] = x[i + 1]"


def test_a_finding_tells_all() -> None:
    """Kind, file, line, threads, message and how often; the access does not take place."""
    x, out = np.arange(9.0)[:8], np.full(8, -1.0)
    report = weft.sanitize(shifted, 2, 4)(x, out)
    (found,) = report.findings
    assert (found.kind, found.file, found.count) == ("out-of-bounds", __file__, 1)
    assert found.threads == (((1, 0, 0), (3, 0, 0)),)
    assert "index 8" in found.message
    assert "from 0 to 7" in found.message
    assert str(report).startswith(f"{__file__}:{found.line}: out-of-bounds: thread (3, 0, 0)")
    np.testing.assert_array_equal(out, [1, 2, 3, 4, 5, 6, 7, 0])


@weft.kernel
def endless(out: Any) -> None:
    while out[0] == 0:
        pass


def test_a_kernel_that_does_not_end() -> None:
    """A limit on statements ends it, with the line."""
    with pytest.raises(LaunchError, match="does not end") as error:
        weft.sanitize(endless, 1, 32, steps=1000)(np.zeros(1))
    assert error.value.where is not None


@weft.kernel
def lock_for_each_thread(mutex: Any, out: Any) -> None:
    while gpu.atomic.cas(mutex, 0, 0, 1) != 0:
        pass
    out[0] += 1
    gpu.atomic.exch(mutex, 0, 0)


@weft.kernel
def flag_of_another_thread(flag: Any) -> None:
    if gpu.threadIdx.x == 0:
        while flag[0] == 0:
            pass
    else:
        flag[0] = 1


def test_threads_that_wait_for_each_other() -> None:
    """A turn that changes nothing is seen long before the limit; locks are taken in turn."""
    with pytest.raises(LaunchError, match="does not end"):
        weft.interpret(flag_of_another_thread, 1, 32)(np.zeros(1, np.int32))
    out = np.zeros(1)
    weft.interpret(lock_for_each_thread, 8, 32)(np.zeros(1, np.int32), out)
    assert out[0] == 256


@weft.kernel
def counts_for_long(out: Any) -> None:
    k = 0
    while k < 5000:
        k += 1
    out[gpu.grid(1)] = k


def test_long_loops_end() -> None:
    """Loops whose threads stay together for long are not endless."""
    out = np.zeros(40)
    weft.interpret(counts_for_long, 2, 20)(out)
    assert (out == 5000).all()


@weft.kernel
def idle(out: Any) -> None:
    for _ in range(1 << 40):
        pass
    out[0] = 1


@weft.kernel
def waits_for_a_thread_of_its_warp(out: Any, flag: Any) -> None:
    t = gpu.threadIdx.x
    out[0] = t
    while flag[0] == 0:
        if t == 40:
            flag[0] = 1


def test_limits() -> None:
    """Turns of an empty loop count; what was found before the limit is not lost."""
    with pytest.raises(LaunchError, match="does not end"):
        weft.interpret(idle, 1, 1, steps=1000)(np.zeros(1))
    report = weft.sanitize(waits_for_a_thread_of_its_warp, 1, 32, steps=1000)(
        np.zeros(1), np.zeros(1))
    assert [f.kind for f in report.findings] == ["race", "endless"]


@weft.kernel
def collisions(out: Any) -> None:
    i = gpu.grid(1)
    for k in range(50):
        out[k] = i


def test_findings_are_bounded() -> None:
    """One finding for each kind and line, whatever happens how often."""
    report = weft.sanitize(collisions, 3, 32)(np.zeros(50))
    assert [f.kind for f in report.findings] == ["race"]
    assert report.findings[0].count == 50


@weft.kernel
def tickets(counter: Any, out: Any) -> None:
    if gpu.threadIdx.x == 0:
        out[gpu.blockIdx.x] = gpu.atomic.add(counter, 0, 1)


@weft.kernel
def in_turn(turn: Any, out: Any) -> None:
    while gpu.atomic.add(turn, 0, 0) != gpu.blockIdx.x:
        pass
    gpu.threadfence()
    out[0] = out[0] * 2 + gpu.blockIdx.x
    gpu.threadfence()
    gpu.atomic.add(turn, 0, 1)


def test_blocks_that_wait_for_each_other() -> None:
    """They run one after the other, and what they tell each other orders what they do."""
    turn, out = np.zeros(1, np.int64), np.zeros(1)
    assert weft.sanitize(in_turn, 5, 1)(turn, out).findings == ()
    np.testing.assert_array_equal(out, [26])


def test_order_of_blocks() -> None:
    """A seed chooses the order, always the same one."""
    runs = []
    for seed in (None, 3, 3, 4):
        out = np.zeros(40, np.int64)
        weft.interpret(tickets, 40, 256, seed=seed)(np.zeros(1, np.int64), out)
        assert sorted(out) == list(range(40))
        runs.append(out.tolist())
    assert runs[0] == list(range(40))
    assert runs[1] == runs[2]
    assert runs[1] != runs[3] != runs[0]


KINDS = ("add", "sub", "min", "max", "and_", "or_", "xor", "exch", "inc", "dec")


@pytest.mark.grid
@pytest.mark.parametrize("d", [np.int32, np.uint8, np.int64, np.float32, np.float64, np.float16])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("elements", [1, 5, 64])
def test_atomics(kind: str, d: Any, elements: int) -> None:
    """Each kind on elements that many, few or one thread updates; old values in thread order."""
    if np.dtype(d).kind == "f" and kind in ("and_", "or_", "xor", "inc", "dec"):
        return
    update = getattr(gpu.atomic, kind)

    @weft.kernel
    def apply(cells: Any, given: Any, old: Any) -> None:
        i = gpu.grid(1)
        old[i] = update(cells, i % cells.size, given[i])

    rng = np.random.default_rng(5)
    given = rng.integers(0, 100, 64).astype(d)
    cells = rng.integers(0, 100, elements).astype(d)
    old, found = np.zeros(64, d), cells.copy()
    report = weft.sanitize(apply, 1, 64)(found, given, old)
    assert report.findings == (), str(report)
    fn = {"add": np.add, "sub": np.subtract, "min": np.minimum, "max": np.maximum,
          "and_": np.bitwise_and, "or_": np.bitwise_or, "xor": np.bitwise_xor,
          "exch": lambda a, b: b, "inc": lambda a, b: a + 1 if a < b else a * 0,
          "dec": lambda a, b: b if a == 0 or a > b else a - 1}[kind]  # fmt: skip
    wanted_old = np.zeros(64, d)
    with np.errstate(over="ignore"):
        for i in range(64):
            k = i % elements
            wanted_old[i] = cells[k]
            cells[k] = d(fn(cells[k], given[i]))
    np.testing.assert_array_equal(found, cells)
    np.testing.assert_array_equal(old, wanted_old)


@weft.kernel
def both_ways(x: Any, y: Any) -> None:
    i = gpu.grid(1)
    y[i] = x[i] + 1


def test_arguments_that_overlap() -> None:
    """One memory under two names is watched as one."""
    a = np.zeros(65)
    assert weft.sanitize(both_ways, 1, 64)(a[:64], a[:64]).findings == ()
    (found,) = weft.sanitize(both_ways, 1, 64)(a[:64], a[1:]).findings
    assert found.kind == "race"
    assert weft.sanitize(both_ways, 1, 32)(a[:32], a[32:64]).findings == ()


@weft.kernel
def types(h: Any, b: Any, f: Any, out: Any) -> None:
    i = gpu.grid(1)
    out[i] = h[i] * h[i] + h[i]
    if b[i]:
        f[i] = i


def test_types_and_readonly_arguments() -> None:
    """Half precision rounds once an operation; bools; arrays that cannot be written."""
    h = (np.arange(40) / 7).astype(np.float16)
    h.flags.writeable = False
    b = np.arange(40) % 3 == 0
    f, g, out, wanted = (np.zeros(40, t) for t in (np.float32, np.float32, "f2", "f2"))
    assert weft.sanitize(types, 1, 40)(h, b, f, out).findings == ()
    types[1, 40](h, b, g, wanted)
    np.testing.assert_array_equal(out, wanted)
    np.testing.assert_array_equal(f, g)


def test_only_kernels() -> None:
    """Anything else is refused."""
    with pytest.raises(KernelError):
        weft.sanitize(lambda x: x, 1, 1)


def test_interpreter_as_the_default_device() -> None:
    """Launches go to the default device; arrays of the interpreter are those of the host."""
    compiled = shifted[2, 4]
    weft.set_default_device("interpreter")
    try:
        out = np.zeros(7)
        steps = []

        @weft.kernel
        def tell(x: Any, out: Any) -> None:
            i = gpu.grid(1)
            out[i] = x[i] * 2

        steps.append(tell[1, 7])
        steps[0](np.arange(7.0), out)
        np.testing.assert_array_equal(out, np.arange(7) * 2)
        assert not tell._loaded  # nothing was compiled
        assert weft.zeros(2).sum().item() == 0
        with pytest.raises(BoundsError):
            shifted[2, 4](np.zeros(8), np.zeros(8))
    finally:
        weft.set_default_device(None)
    assert compiled.interpreted is False
    assert steps[0].interpreted is True


def _same_on_both(kernel: Any, grid: Any, block: Any, *args: Any) -> None:
    """Compare compiled code with the interpreter, which must find nothing."""
    wanted, found = ([np.copy(a) if isinstance(a, np.ndarray) else a for a in args]
                     for _ in range(2))
    kernel[grid, block](*wanted)
    report = weft.sanitize(kernel, grid, block)(*found)
    assert report.findings == (), str(report)
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("dtype", [np.float32, np.int64, np.uint8, np.float64, np.float16])
@pytest.mark.parametrize("d", [0, 1, 3, 7])
def test_shuffles(dtype: Any, d: int) -> None:
    """All ways to pick a thread of the warp."""
    x = np.random.default_rng(d).integers(0, 200, 32).astype(dtype)
    _same_on_both(test_warp.exchange, 1, 32, x, np.zeros((9, 32), dtype), d)


@pytest.mark.parametrize("modulus", [1, 2, 5, 9, 40])
def test_votes_and_matches(modulus: int) -> None:
    """Any, all, equal, ballots, matches and active threads."""
    x = np.arange(64, dtype=np.int32) % modulus
    _same_on_both(test_warp.votes, 1, 64, x, np.zeros((4, 64), np.uint8),
                  np.zeros((5, 64), np.uint32))


@pytest.mark.parametrize("n", [64, 50, 33, 1])
def test_barriers_that_count(n: int) -> None:
    """Threads that have left do not count."""
    x = np.random.default_rng(n).integers(-1, 3, n)
    _same_on_both(test_warp.counting, weft.cdiv(n, 32), 32, x, np.zeros(n, np.int64))


def test_bits() -> None:
    """Counts of bits, reversal, and small arithmetic."""
    x = np.array([0, 1, 2, 3, 8, 0x80000000, 0xFFFFFFFF, 12345], np.uint32)
    _same_on_both(test_warp.bits, 1, 8, x, x.astype(np.int64) << 3, np.zeros((6, 8), np.int64),
                  np.zeros((3, 8)))


@weft.kernel
def least_and_most(x: Any, out: Any) -> None:
    i = gpu.grid(1)
    gpu.atomic.nanmin(out, i % 2, x[i])
    gpu.atomic.nanmax(out, 2 + i % 2, x[i])


def test_atomics_that_skip_nan() -> None:
    """NaN gives way to any number, in both places."""
    x = np.random.default_rng(0).random(64)
    x[::7] = np.nan
    _same_on_both(least_and_most, 2, 32, x, np.full(4, np.nan))
    _same_on_both(least_and_most, 2, 32, np.full(64, np.nan), np.array([np.nan, 1, np.nan, -2]))


@weft.kernel
def dynamic(x: Any, out: Any) -> None:
    held = gpu.shared.array(0, weft.float64)
    t = gpu.threadIdx.x
    held[t] = x[t]
    gpu.syncthreads()
    if x[t] < 0:
        raise ValueError("negative")
    out[t] = held[31 - t]


def test_dynamic_shared_memory_and_exceptions() -> None:
    """The launch gives the bytes; what a kernel raises is a finding."""
    x, out = np.arange(32.0), np.zeros(32)
    run = weft.sanitize(dynamic, 1, 32, shared=256)
    assert run(x, out).findings == ()
    np.testing.assert_array_equal(out, x[::-1])
    (found,) = weft.sanitize(dynamic, 1, 32, shared=248)(x, out).findings[:1]
    assert found.kind == "out-of-bounds"
    x[5] = -1
    (found,) = run(x, out).findings
    assert (found.kind, found.threads) == ("assertion", (((0, 0, 0), (5, 0, 0)),))
    assert "ValueError: negative" in found.message
    with pytest.raises(LaunchError, match="negative"):
        weft.interpret(dynamic, 1, 32, shared=256)(x, out)


@weft.kernel
def reversed_twice(x: Any, out: Any) -> None:
    i = gpu.grid(1)
    x[i] += 1
    gpu.syncthreads()
    out[i] = x[x.size - 1 - i]


@weft.kernel
def waits_in_some_blocks(x: Any, out: Any) -> None:
    if gpu.blockIdx.x > 0:
        gpu.syncthreads()
    out[0] = 1


@pytest.mark.parametrize("seed", [None, 1])
def test_barriers_of_the_grid(seed: int | None) -> None:
    """All blocks meet at one, and it orders what they do."""

    def run(kernel: Any, scope: str, x: Any, out: Any) -> Any:
        launch = kernel[8, 16]
        host = launch.take((x, out))
        kinds = host.types
        nest = translate(kernel.__weft_function__, kinds, Launch(launch.block, launch.ndim),
                         sanitised=True)
        nest = map_exprs(nest, lambda e: e,
                         lambda s: Barrier(scope) if isinstance(s, Barrier) else s)
        return lockstep.run(nest, host.addresses, host.variables,
                            lockstep.Grid(launch.grid, launch.block), sanitise=True, seed=seed)

    x, out = np.arange(128.0), np.zeros(128)
    assert run(reversed_twice, "grid", x, out).findings == ()
    np.testing.assert_array_equal(out, np.arange(128)[::-1] + 1)
    assert {f.kind for f in run(reversed_twice, "block", x, out).findings} == {"race"}
    (found,) = run(waits_in_some_blocks, "grid", x, out).findings
    assert found.kind == "barrier-divergence"
    assert found.threads[0][0] != found.threads[1][0]


def test_kernels_of_numba() -> None:
    """A signature converts arguments, and negative indices count from the end."""

    @cuda.jit("void(float32[:], int32)")
    def turn(x: Any, n: Any) -> None:
        i = cuda.grid(1)
        x[-1 - i] = n * 2 ** 30

    x = np.zeros(5, np.float32)
    report = weft.sanitize(turn, 1, 5)(x, 4)
    assert report.findings == (), str(report)
    wanted = np.zeros(5, np.float32)
    turn[1, 5](wanted, 4)
    np.testing.assert_array_equal(x, wanted)
    (found,) = weft.sanitize(turn, 1, 6)(x, 4).findings
    assert found.kind == "out-of-bounds"
    with pytest.raises(DTypeError):
        weft.sanitize(turn, 1, 5)(np.zeros(5), 4)


@weft.kernel
def polynomial(x: Any, out: Any) -> None:
    i = gpu.grid(1)
    total = 0.0
    for k in range(50):
        total = total * x[i] + k
    out[i] = total


def test_speed() -> None:
    """With all checks, an instruction of a thread takes less time than a step of plain Python."""
    x = np.linspace(-1, 1, 8192)
    reports = []

    def checked() -> None:
        reports.append(weft.sanitize(polynomial, 32, 256)(x, np.zeros(8192)))

    seconds = min(processor.timed(checked) for _ in range(3))
    assert all(report.findings == () for report in reports)
    assert reports[0].instructions > 8192 * 50 * 3
    steps = 100_000 * seconds / processor.unit()
    assert steps < reports[0].instructions


@weft.kernel
def swapped_if_alike(x, old, value, found):
    i = weft.gpu.grid(1)
    weft.gpu.atomic.cas(x, i % x.size, old[i % x.size], value)
    found[i] = x[i % x.size]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("threads", [4, 96])
def test_bits_decide_what_is_alike(dtype, threads):
    """A zero of the other sign is another value, and a NaN is itself, on every device."""
    x, old = (np.array(v, dtype) for v in ([0.0, -0.0, np.nan, 1.5], [-0.0, -0.0, np.nan, 1.25]))
    for run in (swapped_if_alike[1, threads], weft.interpret(swapped_if_alike, 1, threads)):
        given = x.copy()
        run(given, old, dtype(7), np.zeros(threads, dtype))
        assert given.tolist() == [0.0, 7.0, 7.0, 1.5]


@weft.kernel
def turns(x, most):
    i = weft.gpu.grid(1)
    weft.gpu.atomic.inc(x, 0, most)
    weft.gpu.atomic.dec(x, 1, most)
    if i % 3 == 0:
        weft.gpu.atomic.inc(x, 2, most)


@pytest.mark.parametrize("dtype", [np.int8, np.int32, np.int64, np.uint32])
@pytest.mark.parametrize("first", [0, 3, 9, -5])
def test_counters_of_all_blocks(dtype, first):
    """Those with a sign, too: one below 0 counts up to it, or begins again at the end."""
    def counted(value, turns, up):
        for _ in range(turns):
            if up:
                value = 0 if value >= 7 else value + 1
            else:
                value = 7 if value == 0 or value > 7 else value - 1
        return value

    begin = int(np.array(first).astype(dtype))
    expected = [counted(begin, 120, True), counted(begin, 120, False), counted(begin, 40, True)]
    for run in (turns[3, 40], weft.interpret(turns, 3, 40)):
        x = np.full(3, begin, dtype)
        run(x, 7)
        assert x.tolist() == np.array(expected).astype(dtype).tolist()
