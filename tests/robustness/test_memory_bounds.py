"""Caches are bounded, what is in use is not freed, and a lack of memory is told."""

import gc
import os
import random
import subprocess
import sys
import threading
import weakref

import numpy as np
import pytest

import weft
from weft import gpu, shortage
from weft.capture import jit
from weft.compilers import llvm
from weft.driver import kernels
from weft.driver.lru_table import LruTable, room
from weft.driver.plans import plan_cache
from weft.errors import AllocationError


@pytest.fixture
def little_room(monkeypatch):
    """Let caches hold next to nothing."""
    monkeypatch.setattr(plan_cache._plans, "limit", 1)
    monkeypatch.setattr(plan_cache._plans, "least", 2)
    monkeypatch.setattr(jit, "_MOST_SIGNATURES", 2)
    while len(kernels._latest) > 2:
        kernels._latest.popleft()
    yield
    plan_cache.forget()


def resident():
    """Return the resident memory of this process in KB."""
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmRSS"))


def test_what_was_used_lately_stays():
    """Against the plainest model: random entries, weights and uses."""
    rng = random.Random()
    for _ in range(50):
        uses, gone = {}, []
        table = LruTable(rng.randrange(1, 40), rng.randrange(1, 4), lambda v: v[1],
                       lambda v, uses=uses: uses.get(v[0], 0), gone.append)  # fmt: skip
        put = {}
        for step in range(60):
            key = rng.randrange(12)
            if rng.random() < 0.5 and key in table:
                uses[key] = uses.get(key, 0) + 1
                continue
            value = put[key] = key, rng.randrange(1, 10), step
            hot = {k for k, v in table.items() if uses.get(k, 0) > table._noted[k][1]}
            table.put(key, value)
            weight = sum(v[1] for v in table.values())
            assert table.get(key) is value
            assert weight == table._total
            assert weight <= table.limit or len(table) <= max(table.least, 1)
            assert all(put[k] is v for k, v in table.items())
            cold = {k for k in put if k in table} - hot - {key}
            lost = {v[0] for v in gone} - {key}
            assert not (lost & hot and cold - lost), "a used one went before an unused one"
            gone.clear()


def test_room():
    table = dict.fromkeys(range(10))
    room(table, 4)["new"] = None
    assert list(table) == [7, 8, 9, "new"]


def doubled(n):
    return (weft.arange(n) * 2.0 + 1).sum().item()  # a plan for each size, as sums of floats have


@pytest.mark.usefixtures("little_room")
def test_plans_and_code_go():
    plans, codes = [], []
    for n in range(1000, 1030):
        assert doubled(n) == n * n
        plans += [weakref.ref(p) for p in plan_cache._plans.values()]
        codes += [weakref.ref(c) for p in plan_cache._plans.values() for c in p.codes.values()]
    gc.collect()
    assert len({r() for r in plans} - {None}) <= 3
    assert len({r() for r in codes} - {None}) <= 3 + kernels._latest.maxlen
    assert len(plan_cache.ready) <= 3


@pytest.mark.usefixtures("little_room")
def test_captures_go_and_come_again():
    @weft.jit
    def f(x, kind):
        return (x * len(kind)).sum()

    for n in [*range(20), *range(20)]:
        for _ in range(3):
            assert f(weft.ones(5), "x" * n).item() == 5 * n
    assert len(f._entries) <= 2
    assert f.captures > 20


@pytest.mark.usefixtures("little_room")
def test_what_is_in_use_stays():
    """Functions, kernels and tensors go on while everything else is dropped, in threads as well."""
    rng = random.Random()
    scale = weft.full((), 2.0)
    functions = {n: weft.jit(lambda x, n=n: (x * scale).sum() + n) for n in range(5)}

    @weft.kernel
    def add(x, y):
        i = gpu.grid(1)
        if i < x.size:
            y[i] += x[i]

    launch = add[3, 32]
    lazy = {n: weft.arange(n) + 1 for n in range(300, 310)}
    large = weft.ones(1 << 18).realize()
    whole = weft.jit(lambda: large.sum() + large.amax())
    stop, errors = threading.Event(), []

    def use():
        try:
            while not stop.is_set():
                assert whole().item() == (1 << 18) + 1
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=use) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        for step in range(25):
            n = rng.randrange(5)
            size = rng.choice((4, 7))
            assert functions[n](weft.ones(size)).item() == 2 * size + n
            x, y = np.ones(70, np.float32), np.zeros(70, np.float32)
            launch(x, y)
            assert y.sum() == 70
            assert doubled(2000 + step) == (2000 + step) ** 2
            if step % 10 == 0:
                gc.collect()
        for n, tensor in lazy.items():
            assert tensor.sum().item() == n * (n + 1) / 2
    finally:
        stop.set()
        for thread in threads:
            thread.join(60)
    assert not errors


@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="no way to measure")
def test_code_that_was_unloaded_leaves_nothing():
    session = llvm.session()
    image = llvm.compiler().compile("define i32 @f() { ret i32 7 }")
    kept = [session.load(image, ("f",)) for _ in range(100)]
    for _ in range(200):
        session.load(image, ("f",)).unload()
    before = resident()
    for _ in range(600):
        session.load(image, ("f",)).unload()
    assert resident() - before < 3000  # KB; an engine keeps 9 of each
    assert all(k["f"] for k in kept)


def test_the_error_of_a_shortage_has_memory_of_its_own(monkeypatch):
    """What makes it is given memory back first, and may find none all the same."""
    def limit():
        assert not shortage._reserve
        raise MemoryError

    monkeypatch.setattr(shortage, "_limit", limit)
    def short():
        with shortage.reporting_shortage("it"):
            assert shortage._reserve
            raise MemoryError

    for _ in range(2):
        with pytest.raises(AllocationError, match="ulimit -v"):
            short()


LIMITED = """
import resource, sys
import weft

used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (int(sys.argv[1]) << 20),) * 2)
try:
    x = weft.rand(50, 50)
    print((x @ x).softmax(-1).sum().item() > 49)
    f = weft.jit(lambda x: x * 2)
    f(x), f(x), f(x)
except MemoryError as error:
    print(type(error).__name__, error)
"""


@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="no way to measure")
@pytest.mark.parametrize("left", [0, 2, 60, 170, 220])
def test_a_limit_of_memory_is_told(left, tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, str(left)], capture_output=True, text=True, check=False,
        timeout=100, env={**os.environ, "WEFT_CACHE_DIR": str(tmp_path)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    told = any(s.startswith("AllocationError") and "ulimit -v" in s for s in lines)
    assert lines == ["True"] or told, lines
    assert "llvmlite does not load" not in done.stdout
