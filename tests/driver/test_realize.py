"""From graph to native plan and back: values, failures, caches, shared code."""

import subprocess
import sys
import threading

import numpy as np
import pytest

import graphs
import oracle
from graphs import el, full, hosted
from weft import driver
from weft.driver import context, counters, kernels
from weft.driver.graph_key import Structure
from weft.driver.plans import plan_cache
from weft.errors import AllocationError, BoundsError, VariableError
from weft.ir import dtype as dt
from weft.ir import expr as ex
from weft.ir import infer
from weft.ir import node as nd
from weft.ir.op import Op


def value(node):
    base = node
    while base.op is Op.RESHAPE:
        base = base.args[0]
    return oracle.array_of(base.attr.buffer, node.dtype, node.shape).copy()


def both(*outputs):
    return [value(n) for n in driver.realize(outputs)], oracle.evaluate(outputs)


def test_matches_the_oracle(rng):
    x = hosted(rng.standard_normal((37, 53), dtype=np.float32))
    w = hosted(rng.standard_normal((53, 29), dtype=np.float32))
    got, wanted = both(graphs.softmax(x), graphs.layer_norm(x), graphs.matmul(x, w),
                       infer.scan(x, "sum", 1), *infer.sort(x, 0))
    for g, w in zip(got, wanted, strict=True):
        np.testing.assert_allclose(g, w, rtol=3e-5, atol=3e-5)


def test_leaf_is_returned_as_it_is(rng):
    x = hosted(rng.standard_normal(5))
    flat = infer.reshape(x, (5, 1))
    assert driver.realize([flat]) == [flat]


def test_equal_results_do_not_share_memory(rng):
    x = hosted(rng.standard_normal(6))
    y = el(Op.NEG, x)
    a, b = driver.realize([y, infer.reshape(y, (2, 3))])
    np.testing.assert_array_equal(value(a), value(b).ravel())
    assert a.attr.buffer.address != b.args[0].attr.buffer.address


def test_nothing_is_remembered_between_calls():
    array = np.arange(4, dtype=np.float32)
    y = el(Op.NEG, hosted(array))
    first = value(driver.realize([y])[0])
    array[:] = 7
    np.testing.assert_array_equal(first, [0, -1, -2, -3])
    np.testing.assert_array_equal(value(driver.realize([y])[0]), [-7] * 4)


@pytest.mark.parametrize("bad", [3, -1, 2**40, -(2**62)])
def test_index_out_of_range_raises_and_computation_goes_on(bad):
    x = hosted(np.arange(3.0))
    index = hosted(np.array([0, bad, 1]))
    with pytest.raises(BoundsError, match=rf"index {bad}\b"):
        driver.realize([infer.gather(x, index, 0)])
    with pytest.raises(BoundsError, match="scatter"):
        driver.realize([infer.scatter(x, index, hosted(np.zeros(3)), 0)])
    np.testing.assert_array_equal(value(driver.realize([el(Op.NEG, x)])[0]), [0, -1, -2])


def test_masked_gather_is_not_checked_outside_its_mask():
    x = hosted(np.arange(3.0))
    index = infer.pad(hosted(np.array([2, 1])), (1,), (1,), 99)
    picked = infer.gather(x, infer.slice_(index, (1,), (2,)), 0)
    np.testing.assert_array_equal(value(driver.realize([picked])[0]), [2, 1])


def test_huge_result_is_refused_with_memory_intact():
    x = hosted(np.zeros(1, np.float32))
    with pytest.raises(AllocationError):
        driver.realize([infer.contiguous(infer.expand(x, (1 << 45,)))])
    with pytest.raises(AllocationError):
        driver.realize([infer.contiguous(infer.expand(x, ((1 << 62),)))])
    np.testing.assert_array_equal(value(driver.realize([el(Op.EXP, x)])[0]), [1])


def test_compiled_graph_takes_new_inputs(rng):
    slot = nd.Storage(dt.float32, 6)
    kept = rng.standard_normal(6).astype(np.float32)
    total = el(Op.ADD, nd.buffer(slot), hosted(kept))
    compiled = driver.compile([total], [slot])
    for _ in range(3):
        array = rng.standard_normal(6).astype(np.float32)
        given = driver.from_host(array.ctypes.data, array.nbytes, array)
        (out,) = compiled.call([given], [s.buffer for s in compiled.captured])
        np.testing.assert_array_equal(oracle.array_of(out, dt.float32, (6,)), array + kept)


def test_unread_input_is_accepted():
    used, unused = nd.Storage(dt.float32, 2), nd.Storage(dt.float32, 2)
    compiled = driver.compile([el(Op.NEG, nd.buffer(used))], [unused, used])
    one, two = np.ones(2, np.float32), np.full(2, 2, np.float32)
    held = [driver.from_host(a.ctypes.data, a.nbytes, a) for a in (one, two)]
    (out,) = compiled.call(held, [])
    np.testing.assert_array_equal(oracle.array_of(out, dt.float32, (2,)), [-2, -2])


def test_threads_realize_at_once(rng):
    arrays = [rng.standard_normal((17, 33), dtype=np.float32) for _ in range(8)]
    results = {}

    def work(i):
        results[i] = value(driver.realize([graphs.softmax(hosted(arrays[i]))])[0])

    workers = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    for i, array in enumerate(arrays):
        (wanted,) = oracle.evaluate([graphs.softmax(hosted(array))])
        np.testing.assert_allclose(results[i], wanted, rtol=2e-5)


@pytest.mark.slow
def test_second_process_compiles_nothing(cache_dir):
    script = (
        "import sys; sys.path[:0] = sys.argv[1:]\n"
        "import numpy as np, graphs\n"
        "from weft import driver\n"
        "from weft.driver import counters as report\n"
        "driver.realize([graphs.softmax(graphs.hosted(np.ones((9, 11), np.float32)))])\n"
        "print(int(report.counters().get('kernels compiled', 0)))\n"
    )
    paths = [p for p in sys.path if p]
    printed = [
        subprocess.run([sys.executable, "-c", script, *paths], check=True, capture_output=True,
                       text=True).stdout.split()[-1]
        for _ in range(2)
    ]  # fmt: skip
    assert printed == ["1", "0"]


def test_poisoned_plan_entry_is_a_miss(monkeypatch):
    x = hosted(np.ones(3, np.float32))
    y = el(Op.COS, el(Op.SIN, x))
    monkeypatch.setattr(plan_cache.disk(), "get", lambda kind, key: b"[1, nonsense")
    plan_cache.forget()
    kernels.forget()
    before = counters.counters().get("kernels compiled", 0)
    np.testing.assert_allclose(value(driver.realize([y])[0]), np.cos(np.sin(1.0)), rtol=1e-6)
    assert counters.counters()["kernels compiled"] == before + 1


@pytest.mark.slow
def test_very_deep_chain():
    """300,000 nodes build, verify, schedule, run and free."""
    x = hosted(np.zeros(5, np.float32))
    y, one = x, full(x, 1.0)
    for _ in range(300_000):
        y = el(Op.ADD, y, one)
    (out,) = driver.realize([y])
    np.testing.assert_array_equal(value(out), [300_000] * 5)
    del y, out


def test_arena_is_reused():
    x = hosted(np.zeros(1 << 16, np.float32))
    y = x
    for _ in range(20):
        y = infer.scan(y, "sum", 0)
    compiled = driver.compile([y], [])
    assert compiled.plan.arena <= 2 * (1 << 18) + 4096


def symbolic(low=1, high=1000):
    """Return three results over n rows of 7, and the rows."""
    n = ex.Variable("n", low, high)
    rows = np.random.default_rng(3).random((1000, 7), np.float32)
    held = driver.from_host(rows.ctypes.data, rows.nbytes, rows)
    x = infer.reshape(nd.buffer(nd.Storage(dt.float32, n * 7, held)), (n, 7))
    return [graphs.softmax(x), infer.reduce(x, "sum", (0,)), el(Op.EXP, x)], rows


def test_one_compile_serves_every_size():
    outputs, rows = symbolic()
    driver.realize(outputs, {"n": 1})
    compiled = counters.counters()["kernels compiled"]
    for n in (2, 31, 1000):
        found = driver.realize(outputs, {"n": n})
        flat = [f if f.op is Op.BUFFER else f.args[0] for f in found]
        soft, total, e = (
            oracle.array_of(f.attr.buffer, dt.float32, shape).copy()
            for f, shape in zip(flat, [(n, 7), (7,), (n, 7)], strict=True)
        )
        wanted = np.exp(rows[:n])
        np.testing.assert_allclose(e, wanted, rtol=1e-6)
        np.testing.assert_allclose(soft, wanted / wanted.sum(1, keepdims=True), rtol=2e-5)
        np.testing.assert_allclose(total, rows[:n].sum(0), rtol=1e-5)
    assert counters.counters()["kernels compiled"] == compiled


@pytest.mark.parametrize("values", [{}, {"n": 0}, {"n": 1001}, {"m": 5}])
def test_variable_out_of_bounds_raises_before_launch(values):
    outputs, _ = symbolic()
    with pytest.raises(VariableError, match=r"\bn\b"):
        driver.realize(outputs, values)


def test_plans_of_other_bounds_have_other_keys():
    one, two = (Structure(symbolic(1, high)[0]).text() for high in (1000, 999))
    assert one != two


def test_changing_constants_compile_once():
    x = hosted(np.arange(5, dtype=np.float32))
    for i in range(6):
        driver.realize([el(Op.MUL, el(Op.SIN, x), full(x, 0.5 + i))])
    before = counters.counters()["kernels compiled"]
    for rate in (17.5, -0.0, float("inf"), 1e-40):
        (out,) = driver.realize([el(Op.MUL, el(Op.SIN, x), full(x, rate))])
        with np.errstate(all="ignore"):
            wanted = np.sin(np.arange(5, dtype=np.float32)) * np.float32(rate)
        np.testing.assert_allclose(value(out), wanted, rtol=1e-6)
    assert counters.counters()["kernels compiled"] == before


@pytest.mark.parametrize("dtype", dt.ALL, ids=lambda d: d.text)
def test_plain_constants_compile_nothing_new(dtype):
    driver.realize([infer.full((3,), 1, dtype)])
    before = counters.counters().get("kernels compiled", 0)
    got = driver.realize([infer.full((3,), 5, dtype), nd.const(3, dtype)])
    for g, wanted in zip(got, (5, 3), strict=True):
        assert (value(g).astype(np.float64) == (wanted if dtype is not dt.bool_ else 1)).all()
    assert counters.counters().get("kernels compiled", 0) <= before + (dtype is dt.bool_) * 2


def test_slices_at_other_places_are_one_kernel(rng):
    data = rng.standard_normal((40, 3, 5), dtype=np.float32)
    x = hosted(data)
    compiled = None
    for i in range(0, 40, 4):
        part = infer.slice_(x, (i, 0, 0), (4, 3, 5))
        row = infer.slice_(x, (i, 1, 0), (1, 1, 5))
        (twice, total) = driver.realize([el(Op.ADD, part, part), infer.reduce(row, "sum", (2,))])
        np.testing.assert_array_equal(value(twice), data[i : i + 4] * 2)
        np.testing.assert_allclose(value(total), data[i : i + 1, 1:2].sum(2), rtol=1e-5, atol=1e-6)
        compiled = compiled or counters.counters()["kernels compiled"]
    assert counters.counters()["kernels compiled"] == compiled


def test_a_slice_realized_is_a_copy(rng):
    data = rng.standard_normal((6, 2), dtype=np.float32)
    x = hosted(data)
    part = infer.slice_(x, (2, 0), (3, 2))
    flat = infer.reshape(part, (6,))
    a, b = driver.realize([part, flat])
    wanted = data[2:5].copy()
    data[:] = 0
    np.testing.assert_array_equal(value(a), wanted)
    np.testing.assert_array_equal(value(b), wanted.ravel())


@pytest.mark.parametrize(
    ("starts", "sizes", "steps"),
    [((1, 0), (2, 3), (2, 1)), ((3, 0), (2, 3), (-1, 1)), ((0, 1), (4, 2), (1, 1)),
     ((2, 2), (1, 1), (1, 1)), ((0, 0), (0, 3), (1, 1)), ((1, 1), (1, 2), (1, 1))],
)  # fmt: skip
def test_slices_of_every_kind(starts, sizes, steps, rng):
    x = hosted(rng.standard_normal((5, 3), dtype=np.float32))
    got, wanted = both(el(Op.NEG, infer.slice_(x, starts, sizes, steps)))
    np.testing.assert_array_equal(got[0], wanted[0])


def test_sliced_argument_of_a_compiled_graph(rng):
    slot = nd.Storage(dt.float32, 12)
    whole = infer.reshape(nd.buffer(slot), (4, 3))
    rows = [infer.slice_(whole, (i, 0), (1, 3)) for i in range(4)]
    compiled = driver.compile([el(Op.EXP, r) for r in rows], [slot])
    assert len(compiled.plan.codes) == 1
    array = rng.standard_normal((4, 3), dtype=np.float32)
    given = driver.from_host(array.ctypes.data, array.nbytes, array)
    for i, out in enumerate(compiled.call([given], [])):
        np.testing.assert_allclose(oracle.array_of(out, dt.float32, (3,)), np.exp(array[i]),
                                   rtol=1e-6)


@pytest.mark.requires("fork")
def test_child_of_a_compiling_process_computes(rng):
    """A thread holds the driver's lock at the moment of the fork."""
    import os

    held, done = threading.Event(), threading.Event()

    def hold():
        with context.lock:
            held.set()
            done.wait(30)

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait(30)
    child = os.fork()
    if child == 0:
        x = hosted(np.arange(7, dtype=np.float32))
        (out,) = driver.realize([el(Op.MUL, el(Op.COS, x), full(x, 1.25))])
        good = np.allclose(value(out), np.cos(np.arange(7)) * 1.25, rtol=1e-5)
        os._exit(0 if good else 1)
    done.set()
    thread.join()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
