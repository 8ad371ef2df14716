"""Copies on the side, accesses of several elements, and memory of several types."""

from typing import Any

import numpy as np
import pytest

import weft
from weft import gpu
from weft.errors import BoundsError, KernelError, LaunchError
from weft.ir import dtype as dt
from weft.ir.text.text import print_kernel
from weft.ir.text.text_parse import parse_kernel
from weft.lang.reader.translate import Launch, translate
from weft.lang.values.types import ArrayType

RNG = np.random.default_rng(0)
TILE = 16


@weft.kernel
def double_buffered(a: Any, b: Any, c: Any) -> None:
    """Multiply: while one pair of tiles is used, the next one is on its way."""
    sa = gpu.shared.array((2, TILE, TILE), weft.float32)
    sb = gpu.shared.array((2, TILE, TILE), weft.float32)
    ty, tx = gpu.threadIdx.y, gpu.threadIdx.x
    row, col = gpu.blockIdx.y * TILE + ty, gpu.blockIdx.x * TILE
    count = a.shape[1] // TILE
    total = weft.float32(0)
    if tx < 4:
        gpu.memcpy_async(sa[0, ty, 4 * tx:], a[row, 4 * tx:], 4)
        gpu.memcpy_async(sb[0, ty, 4 * tx:], b[ty, col + 4 * tx:], 4, "L2")
    gpu.commit_group()
    for k in range(count):
        at = k % 2
        if k + 1 < count:
            if tx < 4:
                first = (k + 1) * TILE
                gpu.memcpy_async(sa[1 - at, ty, 4 * tx:], a[row, first + 4 * tx:], 4, "streaming")
                gpu.memcpy_async(sb[1 - at, ty, 4 * tx:], b[first + ty, col + 4 * tx:], 4, "L1")
            gpu.commit_group()
            gpu.wait_group(1)
        else:
            gpu.wait_group(0)
        gpu.syncthreads()
        for j in range(TILE):
            total += sa[at, ty, j] * sb[at, j, tx]
        gpu.syncthreads()
    c[row, col + tx] = total


@weft.kernel
def one_by_one(a: Any, b: Any, c: Any) -> None:
    """Multiply like that, each thread with a copy of one element."""
    sa = gpu.shared.array((2, TILE, TILE), weft.float32)
    sb = gpu.shared.array((2, TILE, TILE), weft.float32)
    ty, tx = gpu.threadIdx.y, gpu.threadIdx.x
    row, col = gpu.blockIdx.y * TILE + ty, gpu.blockIdx.x * TILE
    gpu.memcpy_async(sa[0, ty, tx:], a[row, tx:])
    gpu.memcpy_async(sb[0, ty, tx:], b[ty, col + tx:])
    gpu.commit_group()
    total = weft.float32(0)
    count = a.shape[1] // TILE
    for k in range(count):
        at = k % 2
        if k + 1 < count:
            gpu.memcpy_async(sa[1 - at, ty, tx:], a[row, (k + 1) * TILE + tx:])
            gpu.memcpy_async(sb[1 - at, ty, tx:], b[(k + 1) * TILE + ty, col + tx:])
        gpu.commit_group()
        gpu.wait_group(1)
        gpu.syncthreads()
        for j in range(TILE):
            total += sa[at, ty, j] * sb[at, j, tx]
        gpu.syncthreads()
    c[row, col + tx] = total


def test_double_buffered_product() -> None:
    a, b = (RNG.standard_normal(s).astype(np.float32) for s in ((32, 80), (80, 48)))
    expected = a.astype(np.float64) @ b.astype(np.float64)
    for kernel in (double_buffered, one_by_one):
        c, other = np.zeros((32, 48), np.float32), np.zeros((32, 48), np.float32)
        kernel[(3, 2), (TILE, TILE)](a, b, c)
        np.testing.assert_allclose(c, expected, atol=1e-4)
        assert not weft.sanitize(kernel, (3, 2), (TILE, TILE))(a, b, other).findings
        np.testing.assert_allclose(other, expected, atol=1e-4)


@pytest.mark.grid
@pytest.mark.parametrize("d", [np.float32, np.int8, np.float64, np.uint16, np.float16])
def test_copies_of_every_size(d: Any) -> None:
    size = np.dtype(d).itemsize
    for total in (4, 8, 16, 48):
        count = total // size
        if not count:
            continue

        @weft.kernel
        def copy(x: Any, out: Any, count: Any = count, d: Any = d) -> None:
            s = gpu.shared.array(32 * count, d)
            t = gpu.threadIdx.x
            gpu.memcpy_async(s[t * count:], x[t * count:], count)
            gpu.commit_group()
            gpu.wait_group()
            gpu.syncthreads()
            for k in range(count):
                out[t * count + k] = s[(31 - t) * count + k]

        x = RNG.integers(0, 100, 32 * count).astype(d)
        out, other = np.zeros_like(x), np.zeros_like(x)
        expected = x.reshape(32, count)[::-1].ravel()
        kernel = weft.kernel(_bound(copy.__weft_function__, count, d))
        kernel[1, 32](x, out)
        weft.interpret(kernel, 1, 32)(x, other)
        np.testing.assert_array_equal(out, expected)
        np.testing.assert_array_equal(other, expected)


def _bound(function: Any, count: int, d: Any) -> Any:
    """Return the function with two values known from outside."""
    def copy(x: Any, out: Any) -> None:
        function(x, out, count, d)

    return copy


@weft.kernel
def vectors(x: Any, y: Any) -> None:
    i = gpu.grid(1) * 4
    if i + 3 < x.shape[0]:
        a, b, c, d = gpu.load(x, i, 4)
        gpu.store(y, i, (d, c, b, a))


def test_vector_accesses() -> None:
    for n in (4, 68, 259):
        x, y = np.arange(n, dtype=np.float32), np.zeros(n, np.float32)
        vectors[2, 64](x, y)
        whole = n // 4 * 4
        np.testing.assert_array_equal(y[:whole], x[:whole].reshape(-1, 4)[:, ::-1].ravel())
        assert not y[whole:].any()
        assert not weft.sanitize(vectors, 2, 64)(x, y).findings


def test_wide_accesses_keep_their_order_where_arguments_overlap() -> None:
    @weft.kernel
    def through(x: Any, y: Any, out: Any) -> None:
        i = gpu.threadIdx.x * 4
        a, b, c, d = gpu.load(x, i, 4)
        gpu.store(y, i, (d, c, b, a))
        e, f, g, h = gpu.load(x, i, 4)
        gpu.store(x, i, (a + e, b + f, c + g, d + h))
        gpu.store(out, i, gpu.load(y, i, 4))

    start = np.arange(256, dtype=np.float32) ** 2
    rows = start.reshape(-1, 4)
    for same in (False, True):
        x, out = start.copy(), np.zeros(256, np.float32)
        y = x if same else np.zeros(256, np.float32)
        through[1, 64](x, y, out)
        summed = rows + rows[:, ::-1] if same else 2 * rows
        np.testing.assert_array_equal(x, summed.ravel())
        np.testing.assert_array_equal(out, x if same else rows[:, ::-1].ravel())


def test_a_vector_access_must_be_aligned() -> None:
    x, y = np.arange(65, dtype=np.float32), np.zeros(64, np.float32)
    with pytest.raises(LaunchError, match="multiple of its bytes"):
        vectors[1, 16](x[1:], y)
    with pytest.raises(LaunchError, match="multiple of its bytes"):
        weft.interpret(vectors, 1, 16)(x[1:], y)
    (finding,) = weft.sanitize(vectors, 1, 16)(x[1:], y).findings
    assert finding.kind == "misaligned"
    assert finding.count == 1 or finding.count == 16


def test_a_vector_access_stays_inside() -> None:
    @weft.kernel
    def beyond(x: Any, y: Any) -> None:
        a, b = gpu.load(x, gpu.threadIdx.x * 2, 2)
        y[gpu.threadIdx.x] = a + b

    x, y = np.arange(63.0), np.zeros(32)
    with pytest.raises(BoundsError):
        beyond[1, 32](x, y)
    assert [f.kind for f in weft.sanitize(beyond, 1, 32)(x, y).findings] == ["out-of-bounds"]


@weft.kernel
def two_types(x: Any, out: Any) -> None:
    """Keep floats and the places they came from in one piece of dynamic shared memory."""
    n = gpu.blockDim.x
    values = gpu.shared.array(0, weft.float32)[:n]
    places = gpu.shared.array(0, weft.int32)[n:2 * n]
    halves = gpu.shared.array(0, weft.float16)[4 * n:]
    t = gpu.threadIdx.x
    values[t] = x[t] * 2
    places[t] = (t * 7) % n
    halves[t] = x[t] / 2
    gpu.syncthreads()
    out[t] = values[places[t]] + halves[n - 1 - t]


def test_dynamic_shared_memory_of_several_types() -> None:
    x = RNG.integers(0, 100, 64).astype(np.float32)
    out, other = np.zeros(64, np.float32), np.zeros(64, np.float32)
    two_types[1, 64, 0, 64 * 10](x, out)
    expected = 2 * x[(np.arange(64) * 7) % 64] + x[::-1] / 2
    np.testing.assert_array_equal(out, expected)
    report = weft.sanitize(two_types, 1, 64, shared=640)(x, other)
    assert not report.findings
    np.testing.assert_array_equal(other, expected)


def test_types_over_one_memory_see_the_same_bytes() -> None:
    @weft.kernel
    def bits(x: Any, out: Any) -> None:
        t = gpu.threadIdx.x
        floats = gpu.shared.array(0, weft.float32)
        words = gpu.shared.array(0, weft.uint32)
        halves = gpu.shared.array(0, weft.uint8)
        floats[t] = x[t]
        gpu.syncthreads()
        out[t] = words[t] + halves[4 * t + 3]

    x = RNG.standard_normal(32).astype(np.float32)
    out, other = np.zeros(32, np.uint32), np.zeros(32, np.uint32)
    bits[2, 32, 0, 128](x, out)
    report = weft.sanitize(bits, 2, 32, shared=128)(x, other)
    assert not report.findings
    words = x.view(np.uint32)
    np.testing.assert_array_equal(out, words + (words >> 24))
    np.testing.assert_array_equal(out, other)


def test_a_race_between_two_types_is_found() -> None:
    @weft.kernel
    def race(out: Any) -> None:
        t = gpu.threadIdx.x
        bytes_ = gpu.shared.array(0, weft.uint8)
        words = gpu.shared.array(0, weft.uint32)
        words[t] = t
        out[t] = bytes_[(4 * t + 5) % 128]

    findings = weft.sanitize(race, 1, 32, shared=128)(np.zeros(32, np.uint8)).findings
    assert [f.kind for f in findings] == ["missing-barrier"]


def test_more_than_48_kilobytes_on_request() -> None:
    @weft.kernel
    def big(out: Any) -> None:
        s = gpu.shared.array(0, weft.float64)
        t = gpu.threadIdx.x
        for k in range(t, s.shape[0], 64):
            s[k] = k
        gpu.syncthreads()
        out[t] = s[s.shape[0] - 1 - t]

    out, count = np.zeros(64), (227 << 10) // 8
    big[1, 64, 0, 227 << 10](out)
    np.testing.assert_array_equal(out, count - 1 - np.arange(64))
    with pytest.raises(LaunchError):
        big[1, 64, 0, (227 << 10) + 1](out)


def test_loads_and_stores_with_cache_hints() -> None:
    from weft.compat import cuda

    @cuda.jit
    def copy(x: Any, y: Any) -> None:
        i, j = cuda.grid(2)
        if i < x.shape[0] and j < x.shape[1]:
            total = cuda.ldca(x, (i, j)) + cuda.ldcg(x, (i, j)) + cuda.ldcs(x, (i, j))
            cuda.stcs(y, (i, j), total + cuda.ldlu(x, (i, j)) + cuda.ldcv(x, (i, j)))
            cuda.stwb(y[i], j, cuda.ldca(y[i], j))
            cuda.stcg(y[i], j, cuda.ldca(y[i], j))
            cuda.stwt(y[i], j, cuda.ldca(y[i], j) * 2)

    for x in (np.arange(63.0).reshape(9, 7), np.arange(126.0).reshape(9, 14)[:, ::2]):
        y = np.zeros_like(x)
        copy[(3, 3), (4, 4)](x, y)
        np.testing.assert_array_equal(y, 10 * x)


def test_clocks_go_on() -> None:
    @weft.kernel
    def clocks(out: Any) -> None:
        first, start = gpu.clock64(), gpu.globaltimer()
        gpu.nanosleep(10)
        out[0] = gpu.clock64() - first
        out[1] = gpu.globaltimer() - start
        out[2] = gpu.clock() * 0

    for run in (clocks[1, 1], weft.interpret(clocks, 1, 1)):
        out = np.full(3, -1)
        run(out)
        assert (out >= 0).all()
        assert out[2] == 0


@weft.kernel
def aligned(x: Any, out: Any) -> None:
    s = gpu.shared.array(32, weft.float32, alignment=128)
    t = gpu.threadIdx.x
    gpu.memcpy_async(s[t:], x[t:])
    gpu.commit_group()
    gpu.wait_group()
    gpu.syncthreads()
    start = gpu.clock64()
    a, b = gpu.load(s, t // 2 * 2, 2)
    out[t] = a + b + gpu.shared.array(0, weft.int8).shape[0] + (gpu.clock64() - start) * 0
    gpu.shared.array(0, weft.int64)


def test_text_reads_back() -> None:
    single = ArrayType(dt.float32, 1, "C", False)
    kernel = translate(aligned.__weft_function__, {"x": single, "out": single},
                       Launch((32, 1, 1), 1, 64))  # fmt: skip
    text = print_kernel(kernel)
    for word in ("align 128", "over", "async_copy", "copy_commit", "copy_wait 0", "clock"):
        assert word in text
    assert print_kernel(parse_kernel(text)) == text
    x, out = np.arange(32, dtype=np.float32), np.zeros(32, np.float32)
    aligned[1, 32, 0, 64](x, out)
    np.testing.assert_array_equal(out, np.repeat(x.reshape(-1, 2).sum(1), 2) + 64)


@pytest.mark.parametrize(("statement", "words"), [
    ("gpu.memcpy_async(s, x, 3, 'L3')", "cache hint"),
    ("gpu.memcpy_async(s[0:], x[0:], 1, 'L2')", "16 bytes"),
    ("gpu.memcpy_async(x, x, 4)", "shared"),
    ("gpu.memcpy_async(s, 4, 4)", "arrays"),
    ("gpu.memcpy_async(s, y, 4)", "one type"),
    ("gpu.memcpy_async(s, x, 0)", "4 bytes"),
    ("gpu.memcpy_async(s[::2], x, 4)", "contiguous"),
    ("gpu.wait_group(-1)", "0 or more"),
    ("gpu.load(x, 0, 3)", "1, 2, 4"),
    ("gpu.load(x, 0, 8)", "16 bytes"),
    ("gpu.load(3, 0, 2)", "array"),
    ("gpu.store(x, 0, 1.0)", "tuple"),
    ("gpu.store(x, (0, 0), (1.0, 2.0))", "2 indices"),
    ("gpu.shared.array(8, weft.float32, alignment=3)", "power of two"),
    ("gpu.nanosleep(1.5)", "integer"),
])  # fmt: skip
def test_errors(statement: str, words: str) -> None:
    import linecache

    source = f"def kernel(x, y):\n    s = gpu.shared.array(64, weft.float32)\n    {statement}\n"
    name = f"<copies {len(linecache.cache)}>"
    linecache.cache[name] = (len(source), None, source.splitlines(True), name)
    scope: dict[str, Any] = {"weft": weft, "gpu": gpu}
    exec(compile(source, name, "exec"), scope)
    with pytest.raises(KernelError) as error:
        weft.kernel(scope["kernel"])[1, 32](np.zeros(64, np.float32), np.zeros(64))
    assert words in str(error.value)


def test_huge_indices_are_out_of_bounds() -> None:
    @weft.kernel
    def copy(x: Any, at: Any) -> None:
        s = gpu.shared.array(64, weft.float32)
        gpu.memcpy_async(s, x[at:], 4)
        gpu.commit_group()
        gpu.wait_group()

    @weft.kernel
    def load(x: Any, at: Any) -> None:
        a, b = gpu.load(x, at, 2)
        x[0] = a + b

    @weft.kernel
    def store(x: Any, at: Any) -> None:
        gpu.store(x, at, (1.0, 2.0))

    @weft.kernel
    def matrix(x: Any, at: Any) -> None:
        f = gpu.wmma.fragment(gpu.wmma.matrix_a, 16, 16, 8, "tf32", gpu.wmma.row_major)
        gpu.wmma.load_matrix_sync(f, x, at)

    x = np.zeros(64, np.float32)
    for kernel in (copy, load, store, matrix):
        for at in (62, 63, 64, 1 << 47, (1 << 60) + 4, (1 << 62) + 2, (1 << 63) - 2, (1 << 63) - 1):
            if at == 62 and kernel in (load, store):
                continue  # the last two elements
            with pytest.raises(BoundsError):
                kernel[1, 32](x, at)
            with pytest.raises(BoundsError):
                weft.interpret(kernel, 1, 32)(x, at)
    empty = np.zeros(0, np.float32)
    for kernel in (copy, load, store, matrix):
        with pytest.raises(BoundsError):
            kernel[1, 32](empty, 0)
