"""Every statement and expression of `weft.build`, on the CPU, the interpreter and in Python."""

import math

import numpy as np
import pytest

import weft
from weft import build

RNG = np.random.default_rng(5)


def both(program, arrays, *scalars):
    """Run a function natively and interpreted; return the arrays, which must agree."""
    native = [a.copy() for a in arrays]
    slow = [a.copy() for a in arrays]
    program(*native, *scalars)
    program.interpret(*slow, *scalars)
    for a, b in zip(native, slow, strict=True):
        np.testing.assert_array_equal(a, b)
    report = program.sanitize(*[a.copy() for a in arrays], *scalars)
    assert report.findings == (), str(report)
    return native


@pytest.mark.parametrize("n", [0, 1, 16, 37, 1009])
@pytest.mark.parametrize("d", [weft.float32, weft.float64, weft.int32, weft.uint8])
def test_a_parallel_loop(n, d):
    with build.function("scale") as f:
        size = f.size("n")
        x = f.array("x", d, (size,))
        y = f.array("y", d, (size,), writable=True)
        a = f.scalar("a", d)
        with f.parallel(size) as (i,):
            y[i] = x[i] * a + 1
    x = RNG.integers(0, 9, n).astype(d.numpy)
    (_, y) = both(f.program, [x, np.zeros_like(x)], 3)
    np.testing.assert_array_equal(y, x * np.asarray(3, d.numpy) + np.asarray(1, d.numpy))


@pytest.mark.parametrize("shape", [(1, 1), (3, 5), (7, 300), (0, 4), (4, 0), (2, 513)])
def test_parallel_loops_over_two_axes_with_conditions(shape):
    with build.function("clip") as f:
        x = f.array("x", weft.float32, 2)
        y = f.array("y", weft.float32, x.shape, writable=True)
        with f.parallel(*x.shape, names=("row", "column")) as (i, j):
            v = f.let("v", x[i, j])
            with f.if_(v < 0):
                y[i, j] = -v
            with f.else_():
                with f.if_(v > 1):
                    y[i, j] = i + j
                with f.else_():
                    y[i, j] = v
    x = RNG.normal(size=shape).astype(np.float32)
    (_, y) = both(f.program, [x, np.zeros_like(x)])
    places = np.add.outer(np.arange(shape[0]), np.arange(shape[1]))
    np.testing.assert_array_equal(y, np.where(x < 0, -x, np.where(x > 1, places, x)))


def test_a_parallel_loop_over_three_axes_with_continue():
    with build.function("holes") as f:
        x = f.array("x", weft.int64, 3)
        y = f.array("y", weft.int64, x.shape, writable=True)
        with f.parallel(*x.shape) as (i, j, k):
            with f.if_(x[i, j, k] % 3 == 0):
                f.continue_()
            y[i, j, k] = x[i, j, k] * 2
    x = RNG.integers(-9, 9, (3, 4, 5))
    (_, y) = both(f.program, [x, np.full_like(x, 7)])
    np.testing.assert_array_equal(y, np.where(x % 3 == 0, 7, 2 * x))


def test_several_nests_run_in_order():
    with build.function("twice") as f:
        n = f.size("n")
        x = f.array("x", weft.float64, (n,), writable=True)
        y = f.array("y", weft.float64, (n,), writable=True)
        last = f.let("last", n - 1)
        with f.parallel(n) as (i,), f.if_(i > 0):
            y[i] = x[i - 1]
        with f.parallel(n) as (i,):
            x[last - i] = y[i] + 1
    assert len(f.program.launches) == 2
    x = RNG.normal(size=261)
    (a, _) = both(f.program, [x, np.zeros_like(x)])
    np.testing.assert_array_equal(a, (np.concatenate([[0], x[:-1]]) + 1)[::-1])


def test_loops_of_every_kind():
    with build.function("kinds") as f:
        y = f.array("y", weft.int64, (4, 16), writable=True)
        total = f.variable("total", weft.int64, 0)
        with f.loop(0, 16, kind="vector") as i:
            y[0, i] = i * i
        with f.loop(15, -1, -1) as i:
            y[1, i] = y[0, i] + 1
        with f.loop(3, 16, 5, kind="unrolled") as i:
            y[2, i] = i
            total.set(total + i)
        with f.loop(0) as i:
            y[3, i] = 1
        with f.loop(16, kind="vector") as i:
            with f.if_(i % 4 == 1):
                f.continue_()
            y[3, i] = total
    assert "unrolled" in f.program.text()
    (y,) = both(f.program, [np.zeros((4, 16), np.int64)])
    k = np.arange(16)
    np.testing.assert_array_equal(y[0], k * k)
    np.testing.assert_array_equal(y[1], k * k + 1)
    np.testing.assert_array_equal(y[2], np.where(k % 5 == 3, k, 0))
    np.testing.assert_array_equal(y[3], np.where(k % 4 == 1, 0, 3 + 8 + 13))


def test_a_loop_with_a_step_that_is_known_only_when_it_runs():
    with build.function("steps") as f:
        y = f.array("y", weft.int64, 1, writable=True)
        first, last, step = (f.scalar(name, weft.int64) for name in ("first", "last", "step"))
        count = f.variable("count", weft.int64, 0)
        with f.loop(first, last, step) as i:
            y[count] = i
            count.set(count + 1)
    for ends in [(0, 10, 3), (10, 0, -4), (5, 5, 1), (3, -1, 1)]:
        (y,) = both(f.program, [np.zeros(16, np.int64)], *ends)
        expected = list(range(*ends))
        assert y[:len(expected)].tolist() == expected
        assert not y[len(expected):].any()
    with pytest.raises(weft.WeftError, match="step 0"):
        f.program(np.zeros(4, np.int64), 0, 5, 0)


def test_jumps():
    def expected(x):
        found, i, total = -1, 0, 0
        for k, v in enumerate(x):
            if v == 7:
                found = k
                break
            if v % 2:
                continue
            total += v
        while i < 100:
            i += 3
            if i > len(x):
                break
            total -= 1
        return [found, total, i]

    with build.function("jumps") as f:
        x = f.array("x", weft.int64, 1)
        out = f.array("out", weft.int64, (3,), writable=True)
        found = f.variable("found", weft.int64, -1)
        total = f.variable("total", weft.int64, 0)
        with f.loop(x.shape[0]) as k:
            with f.if_(x[k] == 7):
                found.set(k)
                f.break_()
            with f.if_(x[k] % 2 == 1):
                f.continue_()
            total.set(total + x[k])
        i = f.variable("i", weft.int64, 0)
        with f.while_(lambda: i < 100):
            i.set(i + 3)
            with f.if_(i > x.shape[0]):
                f.break_()
            total.set(total - 1)
        out[0] = found
        out[1] = total
        out[2] = i
    for x in ([], [7], [2, 4, 6], [1, 3, 8, 7, 2], list(range(0, 60, 2))):
        given = np.array(x, np.int64)
        (_, out) = both(f.program, [given, np.zeros(3, np.int64)])
        assert out.tolist() == expected(x)


def test_a_return_from_inside_of_loops_skips_all_that_follows():
    with build.function("search") as f:
        x = f.array("x", weft.int64, 2)
        out = f.array("out", weft.int64, (2,), writable=True)
        with f.loop(x.shape[0]) as i:
            with f.loop(x.shape[1]) as j, f.if_(x[i, j] < 0):
                out[0] = i * 100 + j
                f.return_()
            out[1] = i + 1
        out[0] = -1
    for place in [(0, 0), (2, 3), (4, 6), None]:
        x = np.ones((5, 7), np.int64)
        if place:
            x[place] = -5
        (_, out) = both(f.program, [x, np.zeros(2, np.int64)])
        assert out.tolist() == ([place[0] * 100 + place[1], place[0]] if place else [-1, 5])


def test_what_follows_a_jump_is_never_reached():
    with build.function("dead") as f:
        out = f.array("out", weft.int64, (2,), writable=True)
        out[0] = 1
        f.return_()
        out[1] = 1
    (out,) = both(f.program, [np.zeros(2, np.int64)])
    assert out.tolist() == [1, 0]


@pytest.mark.parametrize(("kind", "reference"), [
    ("sum", np.sum), ("product", np.prod), ("min", np.min), ("max", np.max)])
@pytest.mark.parametrize("d", [weft.float32, weft.int32, weft.float64])
def test_reductions(kind, reference, d):
    with build.function("reduced") as f:
        x = f.array("x", d, 2)
        out = f.array("out", d, (x.shape[0],), writable=True)
        with f.parallel(x.shape[0]) as (i,):
            with f.reduce(kind, d, x.shape[1]) as r:
                (k,) = r.indices
                r.update(x[i, k])
            out[i] = r.result
    x = RNG.integers(1, 4, (5, 17)).astype(d.numpy)
    (_, out) = both(f.program, [x, np.zeros(5, d.numpy)])
    np.testing.assert_array_equal(out, reference(x, axis=1).astype(d.numpy))


def test_reductions_of_bools_over_several_axes():
    with build.function("tests") as f:
        x = f.array("x", weft.int64, 2)
        out = f.array("out", weft.bool, (2,), writable=True)
        for place, kind in enumerate(("all", "any")):
            with f.reduce(kind, weft.bool, *x.shape) as r:
                r.update(x[r.indices] > 3)
            out[place] = r.result
    for x in (np.full((2, 3), 4), np.zeros((3, 2), np.int64), np.array([[1, 5]])):
        (_, out) = both(f.program, [x, np.zeros(2, bool)])
        assert out.tolist() == [bool((x > 3).all()), bool((x > 3).any())]


@pytest.mark.parametrize("shape", [(1, 1, 1), (17, 33, 9), (64, 64, 64)])
def test_a_matrix_product_is_a_contraction(shape):
    m, k, n = shape
    with build.function("matmul") as f:
        a = f.array("a", weft.float32, (m, k))
        b = f.array("b", weft.float32, (k, n))
        c = f.array("c", weft.float32, (m, n), writable=True)
        with f.parallel(m, n) as (i, j):
            with f.reduce("sum", weft.float32, k, names=("p",)) as r:
                (p,) = r.indices
                r.update(a[i, p] * b[p, j])
            c[i, j] = r.result
    a, b = RNG.normal(size=(m, k)).astype(np.float32), RNG.normal(size=(k, n)).astype(np.float32)
    c = np.zeros((m, n), np.float32)
    f.program(a, b, c)
    np.testing.assert_allclose(c, a.astype(float) @ b, rtol=1e-4, atol=1e-4)
    assert len(f.program.launches) == 1
    assert not f.program.launches[0].blocks
    if shape == (64, 64, 64):
        assert "vector" in f.program.text("schedule")


OPERATORS = {
    "+": lambda a, b: a + b, "-": lambda a, b: a - b, "*": lambda a, b: a * b,
    "/": lambda a, b: a / b, "//": lambda a, b: a // b, "%": lambda a, b: a % b,
    "<": lambda a, b: a < b, "<=": lambda a, b: a <= b, ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b, "==": lambda a, b: a == b, "!=": lambda a, b: a != b,
    "&": lambda a, b: a & b, "|": lambda a, b: a | b, "^": lambda a, b: a ^ b,
    "<<": lambda a, b: a << b, ">>": lambda a, b: a >> b, "**": lambda a, b: a ** b,
}  # fmt: skip


@pytest.mark.parametrize("symbol", OPERATORS)
def test_operators(symbol):
    """By symbol and by Python's own operator, on both sides of a number."""
    with build.function("operate") as f:
        a, b = f.scalar("a", weft.int64), f.scalar("b", weft.int64)
        out = f.array("out", weft.float64, (4,), writable=True)
        out[0] = f.cast(f.op(symbol, a, b), weft.float64)
        out[1] = f.cast(OPERATORS[symbol](a, b), weft.float64)
        out[2] = f.cast(OPERATORS[symbol](a, 3), weft.float64)
        out[3] = f.cast(OPERATORS[symbol](11, b), weft.float64)
    for a, b in [(13, 2), (-13, 5), (4, 4)]:
        out = np.zeros(4)
        f.program(a, b, out)
        twin = np.zeros(4)
        f.program.interpret(a, b, twin)
        apply = OPERATORS[symbol]
        assert out.tolist() == [apply(a, b), apply(a, b), apply(a, 3), apply(11, b)]
        assert twin.tolist() == out.tolist()


def test_unary_operators_functions_and_conversions():
    with build.function("functions") as f:
        x = f.scalar("x", weft.float64)
        out = f.array("out", weft.float64, (12,), writable=True)
        values = [-x, +x, f.op("-", x), f.call("sqrt", x), f.call("atan2", x, 2.0),
                  f.call("max", x, 2), f.call("min", 2, x), f.call("abs", -x),
                  f.cast(f.cast(x, weft.int32), weft.float64), f.select(x > 1, x, 0),
                  f.cast(~f.cast(x, weft.int64), "float64"), f.call("round", x)]
        for k, value in enumerate(values):
            out[k] = value
    for x in (0.3, 1.5, 77.75):
        out = np.zeros(12)
        f.program(x, out)
        expected = [-x, x, -x, math.sqrt(x), math.atan2(x, 2), max(x, 2), min(2, x), x, int(x),
                    x if x > 1 else 0, ~int(x), round(x)]
        np.testing.assert_allclose(out, expected, rtol=1e-14)


def test_numbers_of_python_take_the_type_of_the_other_side():
    with build.function("types") as f:
        x = f.scalar("x", weft.float32)
        n = f.scalar("n", weft.int32)
        assert (x * 1.5).dtype is (2 - x).dtype is f.call("max", x, 0).dtype is weft.float32
        assert f.select(x > 0, 1.0, x).dtype is weft.float32
        assert (n + 1).dtype is weft.int64
        assert (n * 1.5).dtype is (n / 2).dtype is weft.float64
        assert (x + n).dtype is weft.float64
        assert (x < 3).dtype is weft.bool
        assert f.constant(3, weft.uint8).dtype is weft.uint8


def test_local_arrays_and_variables():
    with build.function("local") as f:
        x = f.array("x", weft.int64, 1)
        y = f.array("y", weft.int64, x.shape, writable=True)
        with f.parallel(x.shape[0]) as (i,):
            digits = f.local("digits", weft.int64, 4)
            rest = f.variable("rest", weft.int64, x[i])
            with f.loop(4) as k:
                digits[k] = rest % 10
                rest.set(rest // 10)
            total = f.variable("total", weft.int64, 0)
            with f.loop(4) as k:
                total.set(total * 10 + digits[k])
            y[i] = total
    x = RNG.integers(0, 10_000, 301)
    (_, y) = both(f.program, [x, np.zeros_like(x)])
    assert y.tolist() == [int(f"{v:04d}"[::-1]) for v in x]


def test_atomics_in_a_parallel_loop():
    with build.function("histogram") as f:
        x = f.array("x", weft.uint8, 1)
        counts = f.array("counts", weft.int64, (4,), writable=True)
        largest = f.array("largest", weft.int64, (1,), writable=True)
        with f.parallel(x.shape[0]) as (i,):
            f.atomic("add", counts, f.cast(x[i], weft.int64) % 4, 1)
            f.atomic("max", largest, (0,), f.cast(x[i], weft.int64))
    x = RNG.integers(0, 256, 1009).astype(np.uint8)
    (_, counts, largest) = both(f.program, [x, np.zeros(4, np.int64), np.zeros(1, np.int64)])
    np.testing.assert_array_equal(counts, np.bincount(x % 4, minlength=4))
    assert largest[0] == x.max()


def test_device_functions():
    @build.device("clamp", {"x": weft.float32, "low": weft.float32}, weft.float32)
    def clamp(x, low):
        with x.builder.if_(x < low):
            x.builder.return_(low)
        return x

    @build.device("store", {"to": None, "i": weft.int64, "v": weft.float32})
    def store(to, i, v):
        to[i] = v

    with build.function("clamped") as f:
        x = f.array("x", weft.float32, 1)
        y = f.array("y", weft.float32, x.shape, writable=True)
        with f.parallel(x.shape[0]) as (i,):
            assert f.call(store, y, i, f.call(clamp, f.call(clamp, x[i], -1), 0)) is None
    x = RNG.normal(size=99).astype(np.float32)
    (_, y) = both(f.program, [x, np.zeros_like(x)])
    np.testing.assert_array_equal(y, np.maximum(x, 0))


def test_kernels_of_threads():
    with build.kernel("reverse") as k:
        x = k.array("x", weft.float32, 1, writable=True)
        tile = k.shared("tile", weft.float32, 64)
        t = k.thread("x")
        i = k.let("i", k.block("x") * k.block_size("x") + t)
        with k.if_(i < x.shape[0]):
            tile[t] = x[i]
        k.barrier()
        width = k.let("width", k.call("min", x.shape[0] - k.block() * k.block_size(), 64))
        with k.if_(i < x.shape[0]):
            x[i] = tile[width - 1 - t]
    x = RNG.normal(size=150).astype(np.float32)
    expected = np.concatenate([x[:64][::-1], x[64:128][::-1], x[128:][::-1]])
    for run in (k.program[3, 64], weft.interpret(k.program, 3, 64)):
        y = x.copy()
        run(y)
        np.testing.assert_array_equal(y, expected)
    report = weft.sanitize(k.program, 3, 64)(x.copy())
    assert report.findings == ()


def test_threads_that_return_while_others_go_on():
    with build.kernel("falling") as k:
        x = k.array("x", weft.float64, 1)
        y = k.array("y", weft.float64, 1, writable=True)
        tile = k.shared("tile", weft.float64, 64)
        t = k.thread("x")
        value = k.variable("value", weft.float64, x[t])
        with k.loop(5, name="turn") as turn:
            tile[t] = value.get()
            k.barrier()
            with k.if_(value < 0):
                k.return_()
            value.set(value - tile[(t + 1) % 64] - turn)
            y[t] = value.get()
            k.barrier()
    x = RNG.normal(size=64) * 8
    value, tile, expected = x.copy(), np.zeros(64), np.zeros(64)
    there = np.ones(64, bool)
    for turn in range(5):
        tile[there] = value[there]
        there &= value >= 0
        value[there] = (value - np.roll(tile, -1) - turn)[there]
        expected[there] = value[there]
    for run in (k.program[1, 64], weft.interpret(k.program, 1, 64)):
        y = np.zeros(64)
        run(x, y)
        np.testing.assert_array_equal(y, expected)
    assert weft.sanitize(k.program, 1, 64)(x, np.zeros(64)).findings == ()


def test_a_kernel_over_three_axes_with_warps_and_reductions():
    with build.kernel("cube") as k:
        x = k.array("x", weft.int64, (2, 4, 32))
        out = k.array("out", weft.int64, (2, 4, 32), writable=True)
        i, j, z = k.thread("x"), k.block("y"), k.block("z")
        total = k.variable("total", weft.int64, x[z, j, i])
        with k.loop(5, name="step") as s:
            total.set(total + k.call("shfl_xor_sync", 0xFFFFFFFF, total.get(), 1 << s))
        with k.reduce("sum", weft.int64, 32) as r:
            r.update(x[z, j, r.indices[0]])
        out[z, j, i] = total - r.result + k.grid_size("z") * 10 + k.call("popc", i)
    x = RNG.integers(0, 99, (2, 4, 32))
    for run in (k.program[(1, 4, 2), 32], weft.interpret(k.program, (1, 4, 2), 32)):
        out = np.zeros_like(x)
        run(x, out)
        bits = [20 + i.bit_count() for i in range(32)]
        np.testing.assert_array_equal(out, np.broadcast_to(bits, x.shape))


def test_programs_print_and_hash_without_their_lines():
    def made(line, factor=2):
        with build.function("double", at=("a.img", line)) as f:
            x = f.array("x", weft.float32, 1, writable=True, at=("a.img", line))
            with f.parallel(x.shape[0], at=("a.img", line + 1)) as (i,):
                x[i] = x[i] * factor
        return f.program

    assert made(3).key == made(30).key != made(3, 4).key
    assert "store x[%i]" in made(3).text()
    assert "vector" in made(3).text("schedule")
    for level in ("kernel", "source"):
        assert made(3).text(level)
    with pytest.raises(weft.WeftError, match="level"):
        made(3).text("nonsense")
    with build.kernel("k") as k:
        x = k.array("x", weft.float32, 1, writable=True)
        with k.if_(k.grid(1) < x.shape[0]):
            x[k.grid(1)] = 1
    assert "thread.x" in k.program.text()
    assert len(k.program.key) == len(made(3).key)


def _doubling():
    with build.function("double") as f:
        x = f.array("x", weft.float32, 1)
        y = f.array("y", weft.float32, x.shape, writable=True)
        with f.parallel(x.shape[0]) as (i,):
            y[i] = x[i] * 2
    return f.program


def _adding(name):
    with build.kernel(name) as k:
        x = k.array("x", weft.float32, 1)
        y = k.array("y", weft.float32, x.shape, writable=True)
        i = k.grid(1)
        with k.if_(i < x.shape[0]):
            y[i] = x[i] + 1
    return k.program


@pytest.mark.usefixtures("compiled")
def test_tensors_as_arguments():
    x, y = weft.arange(37, dtype=weft.float32), weft.zeros(37)
    kept = y + 0
    _doubling()(x, y)
    np.testing.assert_array_equal(y.numpy(), 2 * np.arange(37))
    _adding("add")[3, 16](y, x)
    np.testing.assert_array_equal(x.numpy(), 2 * np.arange(37) + 1)
    assert not kept.numpy().any()
    _doubling().interpret(x, y)
    np.testing.assert_array_equal(y.numpy(), 4 * np.arange(37) + 2)


@pytest.mark.requires("torch")
def test_arrays_of_others_as_arguments():
    import torch

    x, y = torch.arange(37, dtype=torch.float32), torch.zeros(37)
    _doubling()(x, y)
    assert torch.equal(y, 2 * x)
    x = torch.arange(37, dtype=torch.float32)
    memory = bytearray(37 * 4)
    _doubling()(x, memoryview(memory).cast("f"))
    np.testing.assert_array_equal(np.frombuffer(memory, np.float32), 2 * np.arange(37))


def test_launches_that_are_fused():
    first, second = _adding("first"), _adding("second")
    x, t, y = (np.full(37, float(k), np.float32) for k in range(3))
    with weft.fuse() as fused:
        first[3, 16](x, t)
        second[3, 16](t, y)
        assert t[0] == 1
    assert (y == 2).all()
    assert (t == 1).all()
    assert "first" in fused.explain()
    with pytest.raises(weft.WeftError, match="only kernels can wait"), weft.fuse():
        _doubling()(x, y)


def test_results_are_the_same_on_the_device_that_is_set():
    x, y = np.arange(9, dtype=np.float32), np.zeros(9, np.float32)
    weft.set_default_device("interpreter")
    try:
        _doubling()(x, y)
        _adding("add")[1, 16](y, x)
    finally:
        weft.set_default_device("cpu")
    np.testing.assert_array_equal(x, 2 * np.arange(9) + 1)


@pytest.mark.parametrize("d", [weft.bfloat16, weft.float16, weft.bool, weft.int8, weft.uint64])
def test_elements_of_other_types(d):
    with build.function("copied") as f:
        x = f.array("x", d, 1)
        y = f.array("y", d, x.shape, writable=True)
        with f.parallel(x.shape[0]) as (i,):
            y[i] = x[i] if d is weft.bool else x[i] + x[i]
    x = np.array([0, 1, 2, 3, 60]).astype(d.numpy)
    (_, y) = both(f.program, [x, np.zeros_like(x)])
    expected = x if d is weft.bool else (x.astype(float) * 2).astype(d.numpy)
    np.testing.assert_array_equal(y, expected)


@pytest.mark.slow
def test_deep_programs():
    with build.function("deep") as f:
        y = f.array("y", weft.float32, (1,), writable=True)
        total = y[0]
        for _ in range(3000):
            total = total + 1
        opened = []
        for _ in range(60):
            opened.append(f.if_(total > 1))
            opened[-1].__enter__()
        y[0] = total
        for one in reversed(opened):
            one.__exit__(None, None, None)
    y = np.zeros(1, np.float32)
    f.program(y)
    assert y[0] == 3000


def test_numbers_of_python_compute_as_all_others_do():
    with build.function("folded") as f:
        y = f.array("y", weft.int64, (4,), writable=True)
        z = f.array("z", weft.float64, (1,), writable=True)
        y[0] = f.op("**", 2, 10**6)
        y[1] = f.op("<<", 1, 3)
        y[2] = f.op("//", 7, 0)
        y[3] = f.op("*", 2**62, 4)
        z[0] = f.cast(f.constant(0.1, weft.float32), weft.float64)
    (y, z) = both(f.program, [np.zeros(4, np.int64), np.zeros(1)])
    assert y.tolist() == [0, 8, 0, 0]
    assert z[0] == np.float32(0.1)


def test_names_of_other_languages():
    with build.function("names") as f:
        y = f.array("thread.x", weft.float32, 1, writable=True)
        with f.parallel(y.shape[0], names=("thread.x",)) as (i,):
            v = f.let("block.x", f.cast(i, weft.float32) * 2)
            with f.if_(v > 3):
                y[i] = v
    (y,) = both(f.program, [np.zeros(300, np.float32)])
    assert y.tolist() == [2.0 * i if i > 1 else 0.0 for i in range(300)]


def test_a_number_of_turns_that_the_program_computes():
    with build.function("computed") as f:
        y = f.array("y", weft.int64, 1, writable=True)
        y[0] = y[0] + 2
        with f.parallel(y[0]) as (i,), f.if_(i > 0):
            y[i] = i
    (y,) = both(f.program, [np.full(9, 3)])
    assert y.tolist() == [5, 1, 2, 3, 4, 3, 3, 3, 3]


def test_programs_without_arguments(capfd):
    with build.function("said") as f:
        f.print_("{it}", 3, 2.5)
    f.program()
    assert capfd.readouterr().out == "{it} 3 2.5\n"


def test_a_barrier_of_the_whole_grid():
    with build.kernel("neighbours") as k:
        x = k.array("x", weft.int64, 1, writable=True)
        i = k.grid(1)
        v = k.let("v", x[(i + 8) % x.shape[0]])
        k.call("grid_sync")
        x[i] = v + k.grid_size()
    for run in (k.program[4, 8], weft.interpret(k.program, 4, 8), k.program[2, 16]):
        x = np.arange(32)
        run(x)
        blocks = 2 if run is not None and getattr(run, "grid", (4,))[0] == 2 else 4
        assert x.tolist() == [(i + 8) % 32 + blocks for i in range(32)]


def test_programs_that_do_the_same_share_their_code():
    from weft.driver import counters as report

    def made(line):
        with build.function("shared", at=("a.img", line)) as f:
            x = f.array("x", weft.float32, 1, writable=True, at=("a.img", line))
            with f.parallel(x.shape[0], at=("a.img", line + 1)) as (i,):
                f.store(x, i, f.load(x, i) * 3.25, at=("a.img", line + 1))
        return f.program

    made(1)(np.ones(5, np.float32))
    before = report.counters().get("kernels compiled", 0)
    x = np.ones(5, np.float32)
    made(77)(x)
    assert x.tolist() == [3.25] * 5
    assert report.counters().get("kernels compiled", 0) == before


def test_device_functions_that_call_each_other_and_loop():
    @build.device("square", {"x": weft.float64}, weft.float64)
    def square(x):
        return x * x

    @build.device("first_above", {"limit": weft.float64}, weft.int64)
    def first_above(limit):
        f = limit.builder
        with f.loop(100) as i, f.if_(f.call(square, i) > limit):
            f.return_(i)
        return 100

    with build.function("found") as f:
        y = f.array("y", weft.int64, 1, writable=True)
        with f.parallel(y.shape[0]) as (i,):
            y[i] = f.call(first_above, i * 3) + 1000 * f.call(first_above, 10**6)
    (y,) = both(f.program, [np.zeros(40, np.int64)])
    assert y.tolist() == [next(k for k in range(100) if k * k > 3 * i) + 100_000
                          for i in range(40)]
