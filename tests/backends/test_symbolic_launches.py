"""Launches whose sizes are known when they happen, and code that devices share or do not."""

import numpy as np
import pytest

import weft
from far_devices import register
from weft.backends import registry
from weft.driver import counters, kernels
from weft.driver.context import context, disk
from weft.driver.launch import load_kernel, load_on_device
from weft.errors import VerifyError
from weft.ir import dtype as dt
from weft.ir import expr as ex
from weft.ir.program import launch_sizes, metadata
from weft.ir.stmt import LEFT, Alloc, Barrier, Block, For, If, Kernel, Load, Memory, Meta, Store
from weft.runtimes.base import View

COMPUTING = ["cpu", "interpreter", pytest.param("cpu/c", marks=pytest.mark.requires("cpu/c")),
             *[pytest.param(n, marks=pytest.mark.requires(n))
               for n in ("opencl:pocl", "opencl:pocl/threads", "vulkan:lavapipe")],
             pytest.param("webgpu", marks=pytest.mark.requires("webgpu"))]  # fmt: skip
N = ex.Variable("n", 0, 1 << 20)
GROUPS, ROWS = ex.Variable("groups", 1, 1 << 16), ex.Variable("rows", 1, 1 << 10)
THREADS = ex.Variable("threads", 1, 1024)
X, Y = Memory("x", dt.float32, (N,)), Memory("y", dt.float32, (N,))


def scaled(i):
    """Return the statements that write ``2 x + 1`` at a place."""
    value = ex.var("value", dt.float32)
    return Load(value, X, (i,)), Store(Y, (i,), value * 2.0 + 1.0)


def direct():
    """Return a kernel of blocks alone, whose indices are those of its elements."""
    b = ex.var("block.x")
    body = (If(b.lt(N), scaled(b)),)
    return Kernel("direct", (X, Y), (For(b, GROUPS, "block.x", body),), Meta("custom"))


def blocks_of_threads(leaving):
    """Return a kernel of two axes of blocks, each with a number of threads that is a variable."""
    bx, by, t = (ex.var(name) for name in ("block.x", "block.y", "thread.x"))
    i = (by * GROUPS + bx) * THREADS + t
    body = (If(i.lt(N), scaled(i)),)
    if leaving:  # as a kernel that returns where nothing is to be done
        body = (If(~i.lt(N), (Block(LEFT, ()),), scaled(i)),)
    nest = For(by, ROWS, "block.y", (
        For(bx, GROUPS, "block.x", (For(t, THREADS, "thread.x", body),)),))
    return Kernel("threads", (X, Y), (nest,), Meta("custom"))


def launched(place, loaded, values, rng):
    """Return what a launch on memory of a device writes, and what it should write."""
    pool = place.runtime.pool
    x = rng.normal(size=values["n"]).astype(np.float32)
    y = np.zeros_like(x)
    held = [pool.allocate(max(x.nbytes, 4), zero=True) for _ in range(2)]
    if x.size:
        pool.host_to_pool(x, held[0])
    memory = [b.address for b in held] if place.is_native else [View(b) for b in held]
    failed = loaded.run(memory, [values[v] for v in loaded.variables])
    assert failed is None, failed
    if x.size:
        pool.pool_to_host(View(held[1]), y)
    return y, x * np.float32(2) + np.float32(1)


def load(place, kernel):
    return (load_kernel if place.is_native else load_on_device)(kernel, place)


@pytest.mark.parametrize("device", COMPUTING)
def test_D5_without_a_local_size_ids_are_direct(device, rng):
    place, facts = context(device), metadata(direct())
    assert (facts.special, facts.local_size) == (("i0",), None)
    with counters.record() as recording:
        loaded = load(place, direct())
        for n in (1, 37, 4097):
            values = {"n": n, "groups": n}
            assert launch_sizes(facts.global_size, values) == (n, 1, 1)
            np.testing.assert_array_equal(*launched(place, loaded, values, rng))
    assert len(recording.built) == 1


@pytest.mark.parametrize("leaving", [False, True])
@pytest.mark.parametrize("device", COMPUTING)
def test_D5_one_compile_serves_three_sizes(device, leaving, rng):
    kernel, place = blocks_of_threads(leaving), context(device)
    facts = metadata(kernel)
    assert facts.special == ("g0", "g1", "l0")
    with counters.record() as recording:
        loaded = load(place, kernel)
        for n, rows, groups, threads in ((5, 1, 1, 7), (1000, 2, 2, 256), (1026, 3, 171, 2),
                                         (0, 1, 1, 1024), (1009, 1009, 1, 1)):
            values = {"n": n, "rows": rows, "groups": groups, "threads": threads}
            assert launch_sizes(facts.global_size, values) == (groups, rows, 1)
            assert launch_sizes(facts.local_size, values) == (threads, 1, 1)
            np.testing.assert_array_equal(*launched(place, loaded, values, rng))
    assert len(recording.built) == 1


def test_D5_threads_that_meet_have_to_be_counted():
    bx, t = ex.var("block.x"), ex.var("thread.x")
    i = bx * THREADS + t
    held = Memory("held", dt.float32, (ex.index(4),), "shared")
    meeting = (Barrier(), *scaled(i))
    beside = (Alloc(held), For(t, THREADS, "thread.x", scaled(i)))
    for body, found in (((For(t, THREADS, "thread.x", meeting),), "a barrier"),
                        (beside, "shared memory")):
        kernel = Kernel("meet", (X, Y), (For(bx, GROUPS, "block.x", body),), Meta("custom"))
        with pytest.raises(VerifyError, match=f"threads and {found}, expected a number that is"):
            load(context("cpu"), kernel)


@pytest.mark.parametrize("device", COMPUTING)
def test_D3_compiled_code_is_text_or_bytes_and_never_both(device):
    """A driver that compiles gets the text; whoever else compiles leaves nothing of it."""
    place = context(device)
    with counters.record() as recording:  # caches give nothing meanwhile
        code = kernels.compiled(direct().replace(name="only"), place, tiers=False)
    (built,) = recording.built
    text = built.source.encode()
    compiled = place.compiler.compile(built.source, built.pipeline)
    assert type(compiled) is bytes
    assert not hasattr(code, "source")
    whole = text in code.image
    assert whole is (compiled == text or device == "webgpu"), "text beside the code"
    if not whole:
        assert text[:200] not in disk().get("kernel", code.key)
    key = place.compiler.cache_key
    assert isinstance(key, str)
    assert key == place.compiler.cache_key != ""


def test_D3_cache_keys_tell_compilers_apart(monkeypatch):
    place = context("cpu")
    key = kernels.key_of(direct(), place)
    compiler = place.compiler
    monkeypatch.setattr(place, "_compiler", Other(compiler))
    assert kernels.key_of(direct(), place) != key
    monkeypatch.undo()
    assert kernels.key_of(direct(), place) == key
    keys = {context(d).compiler.cache_key for d in ("cpu", "interpreter", "null", "disk")}
    assert len(keys) == 4


class Other:
    """A compiler of another version."""

    def __init__(self, inner):
        self.cache_key = inner.cache_key + " next"


def kernels_compiled():
    return counters.counters().get("kernels compiled", 0)


@pytest.fixture
def late():
    """Two devices of one architecture, and their backend."""
    register()
    yield registry.backend("late")
    registry.reset()


def test_D9_ordinals_of_one_architecture_share_what_is_compiled(late, rng):
    kernel = direct().replace(name=f"shared{rng.integers(1 << 40)}")
    first, second = context("late"), context("late:1")
    assert first.runtime is not second.runtime
    before = kernels_compiled()
    for place in (first, second):
        loaded = load(place, kernel)
        np.testing.assert_array_equal(*launched(place, loaded, {"n": 100, "groups": 100}, rng))
    assert kernels_compiled() <= before + 1
    x = [weft.tensor(rng.normal(size=64), device=place.name) for place in (first, second)]
    y = (x[0] * 3).numpy()
    before = kernels_compiled()
    np.testing.assert_array_equal((x[1] * 3).numpy() - y, 3 * x[1].numpy() - 3 * x[0].numpy())
    assert kernels_compiled() == before
    assert kernels.key_of(kernel, first) == kernels.key_of(kernel, second)


def test_D9_another_architecture_has_other_code(late, rng):
    two = registry.backend("late")
    registry.register(two.replace(target=lambda ordinal, pair: two.target(ordinal, pair).replace(
        arch=f"arch{ordinal}")))
    first, second = context("late"), context("late:1")
    assert kernels.key_of(direct(), first) != kernels.key_of(direct(), second)
    assert first.key("kernel", "text") != second.key("kernel", "text")
    kernel = direct().replace(name=f"apart{rng.integers(1 << 40)}")
    for place in (first, second):
        before = kernels_compiled()
        load(place, kernel)
        load(place, kernel)
        assert kernels_compiled() == before + 1
