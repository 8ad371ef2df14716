"""Annotations of compute functions: kinds against NumPy, and what each annotation changes."""

from typing import Any

import numpy as np
import pytest

import weft
from weft import ndrange
from weft.errors import BoundsError, DeviceError, KernelError, LaunchError

RNG = np.random.default_rng(0)


def numbers(*shape: int) -> Any:
    """Return float32 numbers."""
    return RNG.standard_normal(shape).astype(np.float32)


@weft.compute(kind="elementwise")
def gelu(x: Any, out: Any) -> None:
    for i, j in ndrange(*x.shape):
        v = x[i, j]
        out[i, j] = 0.5 * v * (1 + np.tanh(0.79788456 * (v + 0.044715 * v * v * v)))


@weft.compute(kind="reduce")
def norms(x: Any, out: Any) -> None:
    for i in ndrange(x.shape[0]):
        s = 0.0
        for j in range(x.shape[1]):
            s += x[i, j] * x[i, j]
        out[i] = np.sqrt(s)


@weft.compute(kind="matmul", device="auto", workgroup=(16, 16))
def matmul(a: Any, b: Any, out: Any) -> None:
    for i, j in ndrange(a.shape[0], b.shape[1]):
        s = 0.0
        for k in range(a.shape[1]):
            s += a[i, k] * b[k, j]
        out[i, j] = s


@weft.compute(kind="conv2d")
def conv2d(x: Any, w: Any, out: Any) -> None:
    for n, f, y, q in ndrange(*out.shape):
        s = 0.0
        for c, r, t in ndrange(*w.shape[1:]):
            s += x[n, c, y + r, q + t] * w[f, c, r, t]
        out[n, f, y, q] = s


@weft.compute(kind="attention")
def attention(q: Any, k: Any, v: Any, scores: Any, out: Any) -> None:
    scale = 1 / np.sqrt(weft.float32(q.shape[1]))
    for i, j in ndrange(q.shape[0], k.shape[0]):
        s = 0.0
        for d in range(q.shape[1]):
            s += q[i, d] * k[j, d]
        scores[i, j] = s * scale
    for i in ndrange(q.shape[0]):
        m = -np.inf
        for j in range(k.shape[0]):
            m = max(m, scores[i, j])
        total = 0.0
        for j in range(k.shape[0]):
            scores[i, j] = np.exp(scores[i, j] - m)
        for j in range(k.shape[0]):
            total += scores[i, j]
        for j in range(k.shape[0]):
            scores[i, j] /= total
    for i, d in ndrange(*out.shape):
        s = 0.0
        for j in range(k.shape[0]):
            s += scores[i, j] * v[j, d]
        out[i, d] = s


@weft.compute(kind="flash_attention")
def flash_attention(q: Any, k: Any, v: Any, out: Any) -> None:
    for i in ndrange(q.shape[0]):
        m = -np.inf
        total = 0.0
        for d in range(v.shape[1]):
            out[i, d] = 0
        for j in range(k.shape[0]):
            s = 0.0
            for d in range(q.shape[1]):
                s += q[i, d] * k[j, d]
            s = s / np.sqrt(weft.float32(q.shape[1]))
            new = max(m, s)
            old, p = np.exp(m - new), np.exp(s - new)
            total = total * old + p
            for d in range(v.shape[1]):
                out[i, d] = out[i, d] * old + p * v[j, d]
            m = new
        for d in range(v.shape[1]):
            out[i, d] /= total


@weft.compute(kind="scan")
def scan(x: Any, out: Any) -> None:
    for i in ndrange(x.shape[0]):
        s = 0.0
        for j in range(x.shape[1]):
            s += x[i, j]
            out[i, j] = s


@weft.compute(kind="sort")
def sort(x: Any) -> None:
    for i in ndrange(x.shape[0]):
        for j in range(1, x.shape[1]):
            v = x[i, j]
            k = j
            while k > 0 and x[i, k - 1] > v:
                x[i, k] = x[i, k - 1]
                k -= 1
            x[i, k] = v


def softmax(x: Any) -> Any:
    """Return the softmax of rows."""
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


@pytest.mark.parametrize("device", ["auto", "interpreter"])
def test_kinds(device: str) -> None:
    """Each kind against NumPy."""
    n, m = (7, 33) if device == "auto" else (3, 5)

    def on(function: Any) -> Any:
        return function if device == "auto" else weft.compute(
            kind=function.annotations.kind, device=device)(function.__weft_function__)

    def near(found: Any, wanted: Any) -> None:
        np.testing.assert_allclose(found, wanted, rtol=2e-4, atol=2e-5)

    x, out = numbers(n, m), np.zeros((n, m), np.float32)
    on(gelu)(x, out)
    near(out, 0.5 * x * (1 + np.tanh(0.79788456 * (x + 0.044715 * x**3))))
    on(norms)(x, out[:, 0])
    near(out[:, 0], np.linalg.norm(x, axis=1))
    on(scan)(x, out)
    near(out, np.cumsum(x, 1))
    b, c = numbers(m, n + 1), np.zeros((n, n + 1), np.float32)
    on(matmul)(x, b, c)
    near(c, x @ b)
    image, w = numbers(1, 2, n, n + 1), numbers(3, 2, 2, 3)
    o = np.zeros((1, 3, n - 1, n - 1), np.float32)
    on(conv2d)(image, w, o)
    windows = np.lib.stride_tricks.sliding_window_view(image, (2, 3), (2, 3))
    near(o, np.einsum("ncyxrt,fcrt->nfyx", windows, w))
    q, k, v = numbers(n, 4), numbers(n + 2, 4), numbers(n + 2, 3)
    a = np.zeros((n, 3), np.float32)
    expected = softmax(q @ k.T / 2) @ v
    on(attention)(q, k, v, np.zeros((n, n + 2), np.float32), a)
    near(a, expected)
    on(flash_attention)(q, k, v, a)
    near(a, expected)
    y = x.copy()
    on(sort)(y)
    np.testing.assert_array_equal(y, np.sort(x, 1))


@pytest.mark.parametrize(("kind", "reason"), [
    ("elementwise", "reduces"), ("conv2d", "window"), ("attention", "two sums"),
    ("flash_attention", "two sums"), ("scan", "no loop carries"), ("sort", "compared")])
def test_kinds_are_checked(kind: str, reason: str) -> None:
    """A product of matrices is a product and a reduction, and nothing else."""
    made = weft.compute(kind=kind)(matmul.__weft_function__)
    args = numbers(3, 4), numbers(4, 5), numbers(3, 5)
    with pytest.raises(KernelError, match=reason) as error:
        made(*args)
    assert __file__ in str(error.value)
    for fine in ("reduce", "matmul"):
        weft.compute(kind=fine)(matmul.__weft_function__)(*args)
    for other in ("reduce", "matmul"):
        with pytest.raises(KernelError, match="no "):
            weft.compute(kind=other)(gelu.__weft_function__)(numbers(3, 4), numbers(3, 4))


@weft.compute
def blur(a: Any, out: Any) -> None:
    for i, j in ndrange((1, a.shape[0] - 1), (1, a.shape[1] - 1)):
        out[i, j] = a[i - 1, j] + a[i, j] * 2 + a[i + 1, j]


@weft.compute
def gathered(a: Any, b: Any, out: Any) -> None:
    for i, j in ndrange(*out.shape):
        out[i, j] = a[i, j] * b[j, i]


def scheduled(function: Any, args: tuple[Any, ...], **given: Any) -> Any:
    """Return the report of a function with annotations, after comparing its results."""
    made = weft.compute(**given)(function.__weft_function__)
    ours, plain = [a.copy() for a in args], [a.copy() for a in args]
    made(*ours)
    function(*plain)
    for a, b in zip(ours, plain, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
    return made.explain(*args)


def test_annotations_have_effects() -> None:
    """Each changes the schedule, or says why it cannot."""
    args = numbers(64, 64), numbers(64, 64), numbers(64, 64)
    two = numbers(70, 90), numbers(70, 90)
    assert "×16 results" in scheduled(matmul, args, workgroup=(4, 16)).why
    assert "×32 results" in scheduled(matmul, args, tile=(8, 32)).why
    assert "tiles of 8×32" in scheduled(blur, two, tile=(8, 32)).why
    assert "tiles of 16×16" in scheduled(blur, two, workgroup=(16, 16)).why
    assert "tiles of 16" in scheduled(blur, two, workgroup=16).why
    assert "vectors of 8" in scheduled(blur, two, hints={"vector_width": 8}).why
    assert "unrolled" in scheduled(blur, two, hints={"unroll": 2}).loops[1].kinds
    assert "unrolled" in scheduled(matmul, args, hints={"unroll": 4}).loops[2].kinds
    plain = scheduled(blur, two, vectorizable=False)
    assert all("vector" not in r.kinds for r in plain.loops)
    assert "vector" in scheduled(blur, two, vectorizable=True).loops[1].kinds
    large = numbers(600, 600), numbers(600, 600), numbers(600, 600)
    assert all("parallel" not in r.kinds for r in scheduled(matmul, large, parallel=False).loops)
    scheduled(blur, two, hints={"coalesced": True})
    staged = scheduled(gathered, args, tile=(16, 16), shared="b")
    assert any("stage(b" in step for step in staged.schedule)
    scheduled(blur, two, unchecked=True)


@pytest.mark.parametrize(("given", "reason"), [
    ({"hints": {"tensor_cores": True}}, "matrix instructions"),
    ({"hints": {"async_copy": True}}, "no asynchronous copies"),
    ({"hints": {"vector_width": 13}}, "vectors here have"),
    ({"hints": {"unroll": 64}}, "no innermost loop"),
    ({"tile": (2, 2, 2)}, "as deep"),
    ({"shared": ("a",)}, "needs a tile")])
def test_unmet_wishes(given: Any, reason: str) -> None:
    """What cannot be done is an error that says why."""
    with pytest.raises(KernelError, match=reason):
        scheduled(blur, (numbers(33, 20), numbers(33, 20)), **given)


def test_coalesced() -> None:
    """Vectors whose elements lie apart are told where that is not wanted."""

    @weft.compute(hints={"coalesced": True})
    def thinned(a: Any, out: Any) -> None:
        for i in ndrange(out.size):
            out[i] = np.exp(a[3 * i])

    with pytest.raises(KernelError, match="coalesced: load a"):
        thinned(numbers(300), numbers(100))


@pytest.mark.parametrize("given", [
    {"kind": "magic"}, {"device": 3}, {"workgroup": 0}, {"workgroup": (1, 2, 3, 4)},
    {"tile": "big"}, {"hints": {"speed": 3}}, {"hints": {"unroll": True}}, {"hints": [1]},
    {"hints": {"vector_width": 1}}, {"shared": 3.5}, {"shared": [1]}, {"shared": ("nobody",)},
    {"unchecked": 1}, {"parallel": 0},
    {"vectorizable": "yes"}, {"parallel": 4}])
def test_annotations_without_meaning(given: Any) -> None:
    """Each is an error before any call."""
    with pytest.raises(KernelError):
        weft.compute(**given)(blur.__weft_function__)


def test_devices() -> None:
    """A device that is not there is an error of the call; the default may be changed."""
    args = numbers(5, 6), numbers(5, 6)
    with pytest.raises(DeviceError, match="cuda"):
        weft.compute(device="cuda:7")(blur.__weft_function__)(*args)
    expected = args[1].copy()
    blur(args[0], expected)
    before = weft.get_default_device()
    weft.set_default_device("interpreter")
    try:
        blur(*args)
    finally:
        weft.set_default_device(before)
    np.testing.assert_array_equal(args[1], expected)


def wrong(function: Any, *args: Any) -> list[Any]:
    """Return the problems of a function."""
    with pytest.raises(KernelError) as error:
        weft.compute(function)(*args)
    assert len(str(error.value).splitlines()) <= 2 + 5 * len(error.value.problems)
    return list(error.value.problems)


def test_errors() -> None:
    """All errors of a function at once, with their lines."""

    def bad(a: Any, out: Any) -> None:
        for i in ndrange(a.size):
            out[i] = nobody(a[i])  # type: ignore[name-defined] # noqa: F821
        for i in ndrange(a.size):
            if a[i] > 0:
                break
        for i, j, k in ndrange(2, 3):
            out[i] = j + k
        with open("x"):
            pass
        weft.gpu.syncthreads()
        out[weft.gpu.threadIdx.x] = 1
        for i in ndrange(2.5):
            out[i] = 1

    first = bad.__code__.co_firstlineno
    found = wrong(bad, np.zeros(5), np.zeros(5))
    lines = sorted(p.line - first for p in found)
    assert lines[:6] == [2, 3, 6, 8, 10, 11] or lines == [2, 3, 6, 8, 11, 12, 13]
    text = " ".join(p.message for p in found)
    for words in ("'nobody' is not defined", "left early", "cannot unpack 2 axes into 3 names",
                  "with is not supported", "range of float64"):
        assert words in text, words


def test_failures() -> None:
    """Wrong arguments and indices are errors with the place, and values that come back."""

    @weft.compute
    def take(a: Any, at: Any, out: Any) -> None:
        for i in ndrange(out.size):
            out[i] = a[at[i]]

    @weft.compute
    def past(a: Any, out: Any, n: Any) -> None:
        for i in range(n):
            if out.size > 3:
                out[i] = a[i + 1]

    line = take.__weft_function__.__code__.co_firstlineno + 3
    with pytest.raises(BoundsError, match="index 5") as error:
        take(np.zeros(5), np.array([1, 5, 2]), np.zeros(3))
    assert f"{__file__}:{line}" in str(error.value)
    with pytest.raises(BoundsError, match="index -1"):
        take(np.zeros(5), np.array([1, -1, 2]), np.zeros(3))
    with pytest.raises(BoundsError, match="index 5"):
        past(np.arange(5.0), np.zeros(9), 6)
    past(np.arange(5.0), np.zeros(3), 60)  # nothing is read
    out = np.zeros(9)
    past(np.arange(5.0), out, 4)
    assert out.tolist() == [1, 2, 3, 4, 0, 0, 0, 0, 0]
    past(np.arange(5.0), out, -3)
    with pytest.raises(LaunchError, match="missing a required argument"):
        past(np.zeros(3), np.zeros(3))
    with pytest.raises(LaunchError, match="object"):
        past(np.zeros(3), object(), 3)
    frozen = np.zeros(9)
    frozen.flags.writeable = False
    with pytest.raises(KernelError, match="read-only"):
        past(np.zeros(9), frozen, 3)
    past(a=np.arange(5.0), out=out, n=1)


def test_defaults() -> None:
    """Parameters may have defaults and be given by name; each has to have a name."""

    @weft.compute
    def fill(a: Any, k: Any = 3, *, scale: Any = 2.0) -> None:
        for i in ndrange(a.size):
            a[i] = k * scale

    a = np.zeros(2)
    for args, named, expected in (((), {}, 6), ((4,), {}, 8), ((), {"scale": 0.5}, 1.5),
                                  ((), {}, 6), ((1,), {"scale": 7}, 7)):
        fill(a, *args, **named)
        assert a.tolist() == [expected] * 2
    fill(k=1, a=a)
    assert a.tolist() == [2, 2]
    with pytest.raises(LaunchError, match="unexpected"):
        fill(a, size=3)
    with pytest.raises(KernelError, match="each have a name"):

        @weft.compute
        def several(*arrays: Any) -> None:
            arrays[0][0] = 1


def test_what_is_nothing() -> None:
    """Functions without loops or statements, results without elements, printing."""

    @weft.compute
    def nothing(a: Any) -> None:
        """Do nothing."""

    @weft.compute
    def one(a: Any, out: Any) -> None:
        out[0] = a[0] + a[1]

    nothing(np.zeros(3))
    out = np.zeros(1)
    one(np.arange(1.0, 3.0), out)
    assert out[0] == 3
    with pytest.raises(BoundsError):
        one(np.zeros(1), out)
    with pytest.raises(KernelError, match="cannot be indexed"):
        one(3.0, out)
    with pytest.raises(KernelError, match="unsupported operands"):
        one(np.zeros((3, 3)), out)


def test_huge_integers() -> None:
    """Integers so large that an index would overflow are handled as the Python would."""

    @weft.compute
    def far(a: Any, n: Any) -> None:
        for i in range(a.size):
            if i + n < a.size:
                a[i + n] = 1

    a = np.zeros(5)
    for n in ((1 << 62), (1 << 47) + 1, -(1 << 62)):
        if n > 0:
            far(a, n)
            assert not a.any()
        else:
            with pytest.raises(BoundsError):
                far(a, n)
