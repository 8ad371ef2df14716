"""Matrix fragments: every type, shape and layout against float64, compiled and interpreted."""

from typing import Any

import numpy as np
import pytest

import weft
from weft import gpu
from weft.errors import BoundsError, KernelError, LaunchError
from weft.ir import dtype as dt
from weft.ir.text.text import print_kernel
from weft.ir.text.text_parse import parse_kernel
from weft.ir.tile import MatrixMultiply
from weft.ir.traverse import walk

wm = gpu.wmma
ROW, COL = wm.row_major, wm.col_major
LARGE = ((16, 16, 16), (32, 8, 16), (8, 32, 16))
WARPS = 3


def one_product(shape: Any, operand: Any, sums: Any, layouts: Any, rows: Any) -> Any:
    """Return a kernel in which each warp computes ``c + a @ b`` of matrices of its own."""
    m, n, k = shape
    la, lb, lc = layouts
    ra, rb, rc = rows

    @weft.kernel
    def product(a: Any, b: Any, c: Any, out: Any) -> None:
        w = gpu.threadIdx.x // 32
        fa = wm.fragment(wm.matrix_a, m, n, k, operand, la)
        fb = wm.fragment(wm.matrix_b, m, n, k, operand, lb)
        fc = wm.fragment(wm.accumulator, m, n, k, sums)
        wm.load_matrix_sync(fa, a[w * ra:, 0:])
        wm.load_matrix_sync(fb, b[w * rb:, 0:])
        wm.load_matrix_sync(fc, c[w * rc:, 0:], None, lc)
        gpu.syncthreads()  # fragments live on over a barrier
        wm.mma_sync(fc, fa, fb, fc)
        gpu.syncthreads()
        wm.store_matrix_sync(out[w * rc:, 0:], fc, None, lc)

    return product


def numbers(rng: Any, shape: Any, d: Any) -> Any:
    """Return random elements of a type."""
    if np.issubdtype(d, np.integer):
        info = np.iinfo(d)
        return rng.integers(max(info.min, -1000), min(info.max, 1000) + 1, shape).astype(d)
    return rng.standard_normal(shape).astype(d)


CASES = [
    *((dt.float16, dt.float32, s, (ROW, ROW, ROW)) for s in LARGE),
    (dt.float16, dt.float32, LARGE[0], (COL, ROW, COL)),
    (dt.float16, dt.float32, LARGE[1], (COL, COL, COL)),
    (dt.float16, dt.float16, LARGE[0], (ROW, COL, ROW)),
    (dt.float16, dt.float16, LARGE[2], (COL, COL, COL)),
    *((dt.int8, dt.int32, s, (ROW, COL, ROW)) for s in LARGE),
    (dt.uint8, dt.int32, LARGE[0], (COL, ROW, COL)),
    ("tf32", dt.float32, (16, 16, 8), (ROW, ROW, ROW)),
    ("tf32", dt.float32, (16, 16, 8), (COL, COL, COL)),
    (dt.float64, dt.float64, (8, 8, 4), (ROW, ROW, COL)),
    (dt.float64, dt.float64, (8, 8, 4), (COL, COL, ROW)),
]


@pytest.mark.grid
@pytest.mark.parametrize(("operand", "sums", "shape", "layouts"), CASES)
def test_products_against_float64(operand: Any, sums: Any, shape: Any, layouts: Any) -> None:
    rng = np.random.default_rng(sum(shape))
    m, n, k = shape
    element = np.dtype(np.float32) if operand == "tf32" else operand.numpy
    sizes = ((m, k), (k, n), (m, n))
    a, b, c = ([numbers(rng, size, d) for _ in range(WARPS)] for size, d in
               zip(sizes, (element, element, sums.numpy), strict=True))
    stored = [np.concatenate([x if order == ROW else x.T for x in parts])
              for parts, order in zip((a, b, c), layouts, strict=True)]
    kernel = one_product(shape, operand, sums, layouts, [len(x) // WARPS for x in stored])
    out, other = (np.zeros_like(stored[2]) for _ in range(2))
    kernel[1, 32 * WARPS](*stored, out)
    weft.interpret(kernel, 1, 32 * WARPS)(*stored, other)
    np.testing.assert_array_equal(out, other)  # the same bits
    wide = [x.astype(np.float64) @ y.astype(np.float64) + z
            for x, y, z in zip(a, b, c, strict=True)]
    expected = np.concatenate([x if layouts[2] == ROW else x.T for x in wide])
    if operand == "tf32":
        np.testing.assert_allclose(out, expected, atol=k * 2.0**-10)
    elif sums is dt.float16:
        np.testing.assert_allclose(out, expected, rtol=2.0**-10, atol=2.0**-7)
    else:
        eps = 0 if sums.is_integer else k * float(np.finfo(sums.numpy).eps)
        np.testing.assert_allclose(out, expected, rtol=eps, atol=8 * eps)
    stored = [np.ascontiguousarray(x) for x in stored]  # whose rows begin where GPUs want them
    assert not weft.sanitize(kernel, 1, 32 * WARPS)(*stored, other).findings


@weft.kernel
def tiled(a: Any, b: Any, c: Any) -> None:
    """Multiply by way of shared memory; four warps have a quarter of a 32x32 tile each."""
    sa = gpu.shared.array((32, 16), weft.float16)
    sb = gpu.shared.array((16, 32), weft.float16)
    t = gpu.threadIdx.x
    i, j = gpu.blockIdx.y * 32, gpu.blockIdx.x * 32
    wi, wj = t // 32 // 2 * 16, t // 32 % 2 * 16
    fa = wm.fragment(wm.matrix_a, 16, 16, 16, weft.float16, wm.row_major)
    fb = wm.fragment(wm.matrix_b, 16, 16, 16, weft.float16, wm.row_major)
    fc = wm.fragment(wm.accumulator, 16, 16, 16, weft.float32)
    wm.fill_fragment(fc, 0.0)
    for k in range(0, a.shape[1], 16):
        for e in range(t, 512, gpu.blockDim.x):
            sa[e // 16, e % 16] = a[i + e // 16, k + e % 16]
            sb[e // 32, e % 32] = b[k + e // 32, j + e % 32]
        gpu.syncthreads()
        wm.load_matrix_sync(fa, sa[wi:, 0:], 16)
        wm.load_matrix_sync(fb, sb[0:, wj:], 32)
        wm.mma_sync(fc, fa, fb, fc)
        gpu.syncthreads()
    for e in range(fc.num_elements):
        fc.x[e] = fc[e] * 2.0 + 1.0
    wm.store_matrix_sync(c[i + wi:, j + wj:], fc, c.shape[1], wm.mem_row_major)


def test_tiled_product_through_shared_memory() -> None:
    rng = np.random.default_rng(1)
    a, b = rng.standard_normal((64, 48)), rng.standard_normal((48, 96))
    a, b = a.astype(np.float16), b.astype(np.float16)
    c, other = np.zeros((64, 96), np.float32), np.zeros((64, 96), np.float32)
    tiled[(3, 2), 128](a, b, c)
    expected = a.astype(np.float64) @ b.astype(np.float64) * 2 + 1
    np.testing.assert_allclose(c, expected, atol=1e-4)
    assert not weft.sanitize(tiled, (3, 2), 128)(a, b, other).findings
    np.testing.assert_array_equal(c, other)


@weft.kernel
def in_one_axis(a: Any, b: Any, c: Any, ld: Any) -> None:
    fa = wm.fragment(wm.matrix_a, 8, 8, 4, weft.float64, wm.col_major)
    fb = wm.fragment(wm.matrix_b, 8, 8, 4, weft.float64, wm.row_major)
    fc = wm.fragment(wm.accumulator, 8, 8, 4, weft.float64)
    wm.fill_fragment(fc, 0.5)
    wm.load_matrix_sync(fa, a[4:], ld)
    wm.load_matrix_sync(fb, b, ld)
    wm.mma_sync(fc, fa, fb, fc)
    wm.store_matrix_sync(c, fc, 8)


def test_matrices_in_arrays_of_one_axis_have_a_pitch() -> None:
    a, b, c = np.arange(50.0), np.arange(60.0) / 7, np.zeros(64)
    for ld in (8, 11):
        in_one_axis[1, 32](a, b, c, ld)
        left = np.array([[a[4 + k * ld + m] for k in range(4)] for m in range(8)])
        right = np.array([[b[k * ld + n] for n in range(8)] for k in range(4)])
        np.testing.assert_allclose(c.reshape(8, 8), left @ right + 0.5)
    with pytest.raises(BoundsError):
        in_one_axis[1, 32](a, b, c, 14)
    with pytest.raises(BoundsError):
        in_one_axis[1, 32](a, b, c, -1)
    findings = weft.sanitize(in_one_axis, 1, 32)(a, b, c, 14).findings
    assert [f.kind for f in findings] == ["out-of-bounds", "uninitialised"]


def test_special_values_go_through() -> None:
    kernel = one_product((16, 16, 16), dt.float16, dt.float32, (ROW, ROW, ROW), (16, 16, 16))
    a, b = np.zeros((16, 16), np.float16), np.eye(16, dtype=np.float16)
    a[0], a[1], a[2] = np.inf, np.nan, 60000
    b[5, 5] = 60000
    c, out = np.zeros((16, 16), np.float32), np.zeros((16, 16), np.float32)
    kernel[1, 32](a, b, c, out)
    assert np.isnan(out[:2]).sum() == 32 - 0  # inf * 0 is NaN, too
    assert out[2, 5] == np.float32(60000) * np.float32(60000)  # more than float16 holds
    tf32 = one_product((16, 16, 8), "tf32", dt.float32, (ROW, ROW, ROW), (16, 8, 16))
    x, y = np.zeros((16, 8), np.float32), np.eye(8, 16, dtype=np.float32)
    x[0, 0], x[1, 1], x[2, 2] = 1 + 2.0**-11, 1 + 2.0**-12, np.inf
    tf32[1, 32](x, y, c, out)
    assert (out[0, 0], out[1, 1]) == (1 + 2.0**-10, 1)
    assert out[2, 2] == np.inf


def test_bfloat16_from_elements() -> None:
    @weft.kernel
    def product(out: Any) -> None:
        fa = wm.fragment(wm.matrix_a, 16, 16, 16, weft.bfloat16, wm.row_major)
        fb = wm.fragment(wm.matrix_b, 16, 16, 16, weft.bfloat16, wm.col_major)
        fc = wm.fragment(wm.accumulator, 16, 16, 16, weft.float32)
        wm.fill_fragment(fa, 1.01)
        wm.fill_fragment(fb, 3.0)
        wm.fill_fragment(fc, 1.0)
        wm.mma_sync(fc, fa, fb, fc)
        wm.store_matrix_sync(out, fc)

    out, other = np.zeros((16, 16), np.float32), np.zeros((16, 16), np.float32)
    product[1, 32](out)
    weft.interpret(product, 1, 32)(other)
    assert (out == 16 * 3 * 1.0078125 + 1).all()  # the nearest bfloat16
    np.testing.assert_array_equal(out, other)


def refused(body: str, block: int = 32) -> str:
    """Return the message about a kernel with this body."""
    lines = "\n".join(f"    {line}" for line in body.splitlines())
    source = f"def kernel(a, c):\n{lines}\n"
    scope: dict[str, Any] = {"weft": weft, "gpu": gpu, "wm": wm}
    import linecache

    name = f"<test {len(linecache.cache)}>"
    linecache.cache[name] = (len(source), None, source.splitlines(True), name)
    exec(compile(source, name, "exec"), scope)
    with pytest.raises(KernelError) as error:
        weft.kernel(scope["kernel"])[1, block](np.zeros((16, 16), np.float16), np.zeros((16, 16)))
    return str(error.value)


FA = "f = wm.fragment(wm.matrix_a, 16, 16, 16, weft.float16, wm.row_major)\n"


@pytest.mark.parametrize(("body", "block", "words"), [
    (FA, 48, "48 threads"),
    ("wm.fragment(wm.matrix_a, 8, 8, 4, weft.float16, wm.row_major)", 32, "16, 16, 16"),
    ("wm.fragment(wm.matrix_a, 16, 16, 8, weft.float32, wm.row_major)", 32, "tf32"),
    ("wm.fragment(wm.matrix_a, 16, 16, 16, weft.int64, wm.row_major)", 32, "do not exist"),
    ("wm.fragment(wm.accumulator, 8, 8, 4, weft.float32)", 32, "do not exist"),
    ("wm.fragment(wm.matrix_a, 16, 16, 16, weft.float16)", 32, "layout"),
    ("wm.fragment(wm.accumulator, 16, 16, 16, weft.float32, wm.row_major)", 32, "layout"),
    ("wm.fragment('c', 16, 16, 16, weft.float32)", 32, "matrix_a"),
    (FA + "wm.load_matrix_sync(f, c)", 32, "one type"),
    (FA + "wm.load_matrix_sync(f, a[0])", 32, "pitch"),
    (FA + "wm.load_matrix_sync(f, a, 16, wm.col_major)", 32, "col_major"),
    (FA + "wm.store_matrix_sync(a, f)", 32, "accumulator"),
    (FA + "wm.mma_sync(f, f, f, f)", 32, "accumulator"),
    ("wm.fill_fragment(a, 0)", 32, "fragment"),
    (FA + "g = wm.fragment(wm.matrix_b, 16, 16, 16, weft.bfloat16, wm.row_major)\n"
     "h = wm.fragment(wm.accumulator, 16, 16, 16, weft.float32)\nwm.mma_sync(h, f, g, h)", 32,
     "one type of operands"),
])  # fmt: skip
def test_errors(body: str, block: int, words: str) -> None:
    assert words in refused(body, block)


def test_a_pitch_must_be_that_of_the_array() -> None:
    a, b, c = (np.zeros((32, 32), d) for d in (np.float16, np.float16, np.float32))

    @weft.kernel
    def wrong(a: Any, ld: Any) -> None:
        f = wm.fragment(wm.matrix_a, 16, 16, 16, weft.float16, wm.row_major)
        wm.load_matrix_sync(f, a, ld)

    wrong[1, 32](a, 32)
    with pytest.raises(LaunchError, match="pitch"):
        wrong[1, 32](b, 16)
    assert not c.any()


def test_text_of_fragments_reads_back() -> None:
    from weft.lang.reader.translate import Launch, translate
    from weft.lang.values.types import ArrayType

    half, single = (ArrayType(d, 2, "C", False) for d in (dt.float16, dt.float32))
    kernel = translate(tiled.__weft_function__, {"a": half, "b": half, "c": single},
                       Launch((128, 1, 1), 2))  # fmt: skip
    text = print_kernel(kernel)
    again = parse_kernel(text)
    assert print_kernel(again) == text
    assert any(isinstance(s, MatrixMultiply) for s in walk(again.body))
