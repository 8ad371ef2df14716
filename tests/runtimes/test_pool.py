"""Pooled memory: alignment, exact accounting, exhaustion, handles, threads, fork."""

import ctypes
import gc
import itertools
import os
import random
import subprocess
import sys
import threading

import pytest

from weft.errors import AllocationError, CopyError, DeallocationError, HandleError
from weft.runtimes.base import Event
from weft.runtimes.memory import host_memory
from weft.runtimes.memory.buffer import Buffer
from weft.runtimes.memory.pool import Pool, block_size

MIB = 1 << 20


@pytest.fixture
def pool():
    return Pool(limit=256 * MIB)


def test_a_pool_that_was_never_made_ends_quietly(monkeypatch):
    def interrupted():
        raise KeyboardInterrupt

    told = []
    monkeypatch.setattr(sys, "unraisablehook", told.append)
    monkeypatch.setattr(host_memory, "usable_memory", interrupted)
    with pytest.raises(KeyboardInterrupt):
        Pool()
    gc.collect()
    assert not told


def test_block_sizes_waste_at_most_an_eighth(seed):
    rng = random.Random(seed)
    sizes = [rng.randrange(1 << rng.randrange(1, 45)) for _ in range(20_000)]
    sizes += [1 << bits for bits in range(45)] + [(1 << bits) + 1 for bits in range(45)]
    for nbytes in [*range(2000), *sizes]:
        block = block_size(nbytes)
        assert block >= max(nbytes, 64)
        assert block % 64 == 0
        assert block - nbytes <= 64 or block <= nbytes * 1.125
        assert block_size(block) == block
        if block >= 1 << 16:
            assert block % 4096 == 0


@pytest.mark.parametrize("nbytes", [0, 1, 63, 64, 65, 4095, 100_000, MIB, 3 * MIB, 64 * MIB])
def test_memory_is_aligned_and_writable_to_its_last_byte(pool, nbytes):
    buffer = pool.allocate(nbytes, zero=True)
    assert buffer.address % 64 == 0
    if nbytes >= 1 << 16:
        assert buffer.address % 4096 == 0
    if nbytes >= 2 * MIB and sys.platform == "linux":
        assert buffer.address % (2 * MIB) == 0
    assert buffer.nbytes == nbytes
    view = buffer.view()
    assert view.nbytes == nbytes
    assert not any(view[i] for i in {0, nbytes // 2, nbytes - 1} if 0 <= i < nbytes)
    buffer.fill(7)
    assert view.tobytes() == b"\7" * nbytes


def test_zero_clears_reused_memory(pool):
    for nbytes in (100, 5000, 3 * MIB):
        first = pool.allocate(nbytes)
        first.fill(0xFF)
        address = first.address
        del first
        again = pool.allocate(nbytes, zero=True)
        assert again.address == address
        assert again.view().tobytes() == bytes(nbytes)


def test_accounting_is_exact(pool, seed):
    rng = random.Random(seed)
    living = []
    for _ in range(3000):
        if living and rng.random() < 0.5:
            living.pop(rng.randrange(len(living)))
        elif pool.bytes_free > MIB:
            living.append(pool.allocate(rng.randrange(1 << rng.randrange(1, 20))))
        expected = sum(block_size(buffer.nbytes) for buffer in living)
        assert pool.bytes_in_use == expected
        assert pool.bytes_free == pool.limit - expected
        assert pool.bytes_reserved == pool.bytes_in_use + pool.bytes_cached
    living.clear()
    assert pool.bytes_in_use == 0
    cached = pool.bytes_cached
    assert pool.flush() == cached
    assert (pool.bytes_reserved, pool.bytes_cached, pool.bytes_free) == (0, 0, pool.limit)


def test_living_blocks_never_overlap(pool, seed):
    rng = random.Random(seed)
    buffers = [pool.allocate(rng.randrange(1, 5000)) for _ in range(500)]
    for _ in range(1000):
        buffers[rng.randrange(500)] = pool.allocate(rng.randrange(1, 5000))
    spans = sorted((buffer.address, buffer.address + buffer.nbytes) for buffer in buffers)
    assert all(end <= begin for (_, end), (begin, _) in itertools.pairwise(spans))


@pytest.mark.parametrize("nbytes", [-1, 256 * MIB + 1, 1 << 40, (1 << 63) - 1, 1 << 63, 1 << 70])
def test_impossible_sizes_are_typed_errors_with_memory_intact(pool, nbytes):
    buffer = pool.allocate(1000)
    buffer.fill(3)
    cached = pool.allocate(5000)
    del cached
    before = pool.bytes_in_use, pool.bytes_reserved
    with pytest.raises(AllocationError, match="allocate") as caught:
        pool.allocate(nbytes)
    assert isinstance(caught.value, MemoryError)
    assert "5000" not in str(caught.value)
    assert (pool.bytes_in_use, pool.bytes_reserved) == before
    assert buffer.view().tobytes() == b"\3" * 1000


def test_exhaustion_flushes_the_cache_and_retries():
    pool = Pool(limit=10 * MIB)
    for nbytes in (1, 2, 3, 4, 5, 6):
        pool.allocate(nbytes * MIB)  # dies at once and stays cached
    assert pool.bytes_in_use == 0
    big = pool.allocate(10 * MIB)
    assert pool.bytes_reserved == 10 * MIB
    with pytest.raises(AllocationError, match="in use"):
        pool.allocate(64)
    assert pool.bytes_in_use == 10 * MIB
    del big
    assert pool.allocate(64).nbytes == 64


def test_exhaustion_collects_cycles():
    pool = Pool(limit=4 * MIB)
    gc.disable()
    try:
        cycle = [pool.allocate(3 * MIB)]
        cycle.append(cycle)
        del cycle
        assert pool.bytes_in_use == 3 * MIB
        assert pool.allocate(2 * MIB).nbytes == 2 * MIB
    finally:
        gc.enable()


def test_refusal_by_the_system(pool, monkeypatch):
    kept = pool.allocate(100)
    pool.allocate(5000)
    monkeypatch.setattr(host_memory, "acquire", lambda nbytes: 0)
    with pytest.raises(AllocationError):
        pool.allocate(MIB)
    assert pool.bytes_in_use == block_size(100)
    assert pool.bytes_cached == 0  # the cache was offered to the system first
    monkeypatch.undo()
    assert pool.allocate(MIB).nbytes == MIB
    assert kept.nbytes == 100


def test_refusal_past_the_address_space():
    pool = Pool(limit=1 << 62)
    with pytest.raises(AllocationError):
        pool.allocate(1 << 61)
    assert pool.bytes_in_use == 0


def test_A3_release_is_final(pool):
    buffer = pool.allocate(100)
    buffer.release()
    assert buffer.released
    assert pool.bytes_in_use == 0
    with pytest.raises(HandleError):
        _ = buffer.address
    with pytest.raises(HandleError):
        buffer.view()
    with pytest.raises(HandleError):
        buffer.fill()
    with pytest.raises(DeallocationError):
        buffer.release()
    with pytest.raises(DeallocationError):
        pool.free(buffer)
    with pytest.raises(AttributeError):
        _ = buffer.nothing
    assert "released" in repr(buffer)
    del buffer
    assert pool.bytes_cached == block_size(100)  # returned once, not twice


def test_free_checks_pool_and_events(pool):
    other = Pool(limit=MIB)
    buffer = pool.allocate(100)
    with pytest.raises(HandleError):
        other.free(buffer)
    event = Event("cpu")
    event.consume("cpu")
    with pytest.raises(HandleError):
        pool.free(buffer, [event])
    assert not buffer.released
    pool.free(buffer, [buffer.ready])
    assert buffer.released


def test_foreign_memory_keeps_its_owner(pool):
    import weakref

    class Owner:
        pass

    owner = Owner()
    watch = weakref.ref(owner)
    array = (ctypes.c_char * 10)(*b"0123456789")
    buffer = Buffer.foreign(ctypes.addressof(array), 10, owner, readonly=True)
    del owner
    assert watch() is not None
    assert buffer.view().tobytes() == b"0123456789"
    assert buffer.view().readonly
    assert buffer.pool is None
    with pytest.raises(HandleError):
        pool.free(buffer)
    buffer.release()
    assert watch() is None
    assert pool.bytes_in_use == 0


@pytest.mark.slow
def test_view_keeps_the_buffer_alive(pool):
    view = pool.allocate(1000, zero=True).view()
    gc.collect()
    assert pool.bytes_in_use == block_size(1000)
    view[:] = b"x" * 1000
    del view
    gc.collect()
    assert pool.bytes_in_use == 0


def test_copies_to_and_from_the_host(pool):
    buffer = pool.allocate(10, zero=True)
    event = pool.host_to_pool(b"abc", buffer, [buffer.ready])
    assert buffer.version == 1
    target = bytearray(5)
    pool.pool_to_host(buffer, target, [event])
    assert target == b"abc\0\0"
    with pytest.raises(HandleError):
        pool.pool_to_host(buffer, target, [event])
    pool.sync_events([buffer.ready, buffer.ready])
    event = buffer.ready
    pool.release_events([event])
    with pytest.raises(HandleError):
        pool.sync_events([event])


@pytest.mark.parametrize("source", [b"x" * 11, "text", 5, memoryview(bytes(8)).cast("H")[::2]])
def test_bad_copies_are_typed_errors(pool, source):
    buffer = pool.allocate(10, zero=True)
    with pytest.raises(CopyError):
        pool.host_to_pool(source, buffer)
    assert buffer.view().tobytes() == bytes(10)


def test_bad_copy_targets(pool):
    buffer = pool.allocate(10)
    for target in (b"readonly", bytearray(11), None):
        with pytest.raises(CopyError):
            pool.pool_to_host(buffer, target)
    readonly = Buffer.foreign(buffer.address, 10, buffer, readonly=True)
    with pytest.raises(CopyError):
        pool.host_to_pool(b"x", readonly)


def test_deinitialize(pool):
    buffer = pool.allocate(100)
    with pytest.raises(DeallocationError):
        pool.deinitialize()
    buffer.release()
    pool.deinitialize()
    assert pool.bytes_reserved == 0
    with pytest.raises(HandleError):
        pool.allocate(100)


def test_a_dead_pool_returns_its_memory(monkeypatch):
    gc.collect()  # what other tests left behind
    returned = []
    give_back = host_memory.give_back
    monkeypatch.setattr(
        host_memory, "give_back", lambda *block: (returned.append(block[1]), give_back(*block))
    )
    pool = Pool(limit=MIB)
    buffer = pool.allocate(1000)
    del pool
    gc.collect()
    assert not returned
    del buffer
    gc.collect()
    assert returned == [block_size(1000)]


def test_ever_new_sizes_do_not_pile_up(monkeypatch):
    monkeypatch.setattr("weft.runtimes.memory.pool._MOST_REQUESTS", 100)
    pool = Pool(limit=MIB)
    for nbytes in range(1000):
        pool.allocate(nbytes)
    assert len(pool._requests) <= 100
    assert pool.bytes_in_use == 0


def test_host_threads_share_a_pool(pool):
    wrong = []

    def work(number):
        rng = random.Random(number)
        living = []
        for _ in range(2000):
            buffer = pool.allocate(rng.choice((64, 100, 1000, 5000)))
            buffer.fill(number)
            living.append(buffer)
            if len(living) > 20:
                old = living.pop(rng.randrange(20))
                if old.view().tobytes() != bytes([number]) * old.nbytes:
                    wrong.append(number)

    workers = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not wrong
    assert pool.bytes_in_use == 0
    assert pool.bytes_reserved == pool.bytes_cached


@pytest.mark.requires("fork")
def test_fork_while_another_thread_allocates(pool):
    stop = threading.Event()

    def busy():
        while not stop.is_set():
            pool.allocate(5 * MIB)
            pool.flush()

    worker = threading.Thread(target=busy)
    worker.start()
    try:
        for _ in range(20):
            child = os.fork()
            if child == 0:
                buffer = pool.allocate(3 * MIB)
                buffer.fill(1)
                os._exit(0 if buffer.view()[-1] == 1 else 1)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    finally:
        stop.set()
        worker.join()


def test_interpreter_ends_cleanly_with_living_buffers():
    code = """
from weft.runtimes.memory.pool import Pool
from weft.runtimes.memory.buffer import Buffer
pool = Pool()
keep = [pool.allocate(n) for n in (1, 1000, 5_000_000)]
cycle = [pool.allocate(10)]
cycle.append(cycle)
foreign = Buffer.foreign(keep[0].address, 1, keep[0])
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert (result.returncode, result.stderr) == (0, b"")


def test_a_pool_may_outlive_the_names_of_its_module():
    code = """
import sys, types
early = sys.modules["early"] = types.ModuleType("early")  # taken down after what came later
from weft.runtimes.memory import pool
early.pool = pool.Pool()
sys.kept = [early, pool]
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert (result.returncode, result.stderr) == (0, b"")


def test_limit_follows_the_container(monkeypatch):
    monkeypatch.setattr(host_memory, "_physical_memory", lambda: 64 << 30)
    monkeypatch.setattr(host_memory, "_cgroup_memory", lambda: None)
    assert host_memory.usable_memory() == (64 << 30) - (64 << 30) // 20
    monkeypatch.setattr(host_memory, "_cgroup_memory", lambda: 512 << 20)
    assert host_memory.usable_memory() == 384 << 20
    monkeypatch.undo()
    assert 0 < Pool().limit <= host_memory._physical_memory()


@pytest.mark.parametrize(("bit", "word"), [(64, "pool took"), (32, "copy of")])
def test_A6_debug_bits_print_only_their_category(monkeypatch, capsys, bit, word):
    from weft import config

    config.reset(config.Config(debug=bit))
    try:
        pool = Pool(limit=MIB)
        pool.host_to_pool(b"abc", pool.allocate(10))
        lines = capsys.readouterr().err.splitlines()
    finally:
        config.reset()
    assert len(lines) == 1
    assert word in lines[0]
