"""NumPy's functions on tensors give what they give on arrays, and axes go by both names."""

import subprocess
import sys

import numpy as np
import pytest

import weft
from weft.errors import DTypeError, UnsupportedError

SAME = """
np.sin(X); np.sum(X); np.sum(X, axis=0); np.sum(X, 0, keepdims=True); np.mean(X); np.std(X)
np.var(X, axis=1, ddof=1); np.max(X); np.min(X, axis=1); np.argmax(X); np.argmax(X, axis=1)
np.cumsum(X); np.cumsum(X, axis=1); np.concatenate([X, X]); np.concatenate([X, X], axis=1)
np.stack([X, X], axis=1); np.where(X > 0, X, 0); np.clip(X, -1, 1); np.clip(X, None, 0)
np.reshape(X, (4, 3)); np.transpose(X); np.transpose(X, (1, 0)); np.squeeze(X[None])
np.expand_dims(X, 0); np.sort(X); np.sort(X, axis=None); np.argsort(X, axis=0); np.prod(X, axis=0)
np.any(X > 0); np.all(X > 0, axis=0); np.dot(X, X.T); np.matmul(X, X.T); np.tensordot(X, X.T, 1)
np.einsum('ij,kj->ik', X, X); np.outer(X[0], X[1]); np.roll(X, 1); np.roll(X, 1, axis=1)
np.flip(X); np.flip(X, axis=0); np.flip(X, (0, 1)); np.tile(X, (2, 1)); np.repeat(X, 2)
np.repeat(X, 2, axis=1); np.broadcast_to(X, (2, 3, 4)); np.zeros_like(X); np.full_like(X, 3)
np.ones_like(X, shape=(2,)); np.diff(X); np.diff(X, axis=0); np.linalg.norm(X)
np.linalg.norm(X, axis=1); np.linalg.norm(X, 1, axis=0, keepdims=True); np.isclose(X, X)
np.split(X, 2, axis=1)[1]; np.split(X, [1, 2])[0]; np.take(X, [1, 2]); np.take(X, [1, 2], axis=1)
np.take_along_axis(X, np.array([[0, 1, 1, 2]]), 0); np.copy(X); np.ravel(X)
np.moveaxis(X, 0, 1); np.swapaxes(X, 0, 1); np.pad(X, 1); np.pad(X, ((1, 0), (0, 2)), mode='edge')
np.pad(X, ((0, 0), (1, 2)), mode='reflect'); np.pad(X, 1, constant_values=3.0); np.trace(X)
np.tril(X); np.triu(X); np.diagonal(X); np.count_nonzero(X > 0); np.round(X); np.around(X, 1)
np.add(X, 1); A + X; X + A; A * X; A - X; A @ X.T; X @ A.T; X > A; A > X; A ** 2 + X ** 2
np.maximum(X, A); np.hstack([X, X]); np.vstack([X, X]); np.add.reduce(X)
np.maximum.reduce(X, axis=1); np.multiply.accumulate(X); np.add.accumulate(X, axis=1)
np.logaddexp(X, X); np.isnan(X); np.power(X, 2); np.absolute(X); np.float32(2) * X
np.float32(2) - X; np.nonzero(X > 0)[0]; np.fliplr(X); np.kron(X[:2, :2], X[:2, :2])
np.vdot(X, X); np.meshgrid(X[0], X[1])[0]; np.nan_to_num(X); np.hypot(X, A); np.arctan2(A, X)
np.sign(X); np.exp(X); np.log1p(np.abs(X)); np.rint(X); np.sum(np.int32(3) * (X > 0), axis=1)
np.mean(X > 0); np.std((X > 0) * 2, axis=0)
"""


def expressions():
    return [text.strip() for line in SAME.strip().splitlines() for text in line.split(";")]


def test_functions_give_what_they_give_on_arrays(rng):
    a = rng.standard_normal((3, 4)).astype(np.float32)
    t = weft.tensor(a)
    for text in expressions():
        wanted = np.asarray(eval(text, {"np": np, "X": a.copy(), "A": a}))
        got = eval(text, {"np": np, "X": t, "A": a})
        assert isinstance(got, weft.Tensor), text
        assert tuple(got.shape) == wanted.shape, text
        assert got.dtype.numpy == wanted.dtype, (text, got.dtype)
        np.testing.assert_allclose(got.numpy(), wanted, rtol=1e-5, atol=1e-5, err_msg=text)
    assert np.allclose(t, a)
    assert np.array_equal(t, a)
    assert (np.shape(t), np.ndim(t), np.size(t)) == ((3, 4), 2, 12)


def test_arrays_take_tensors_in_place(rng):
    a = rng.standard_normal(5).astype(np.float32)
    b, t = a.copy(), weft.tensor(a)
    held = b
    b += t
    b *= t
    assert b is held
    np.testing.assert_array_equal(b, (a + a) * a)
    np.add(t, 1, out=b)
    np.testing.assert_array_equal(b, a + 1)
    made = weft.zeros(5)
    assert np.multiply(t, 2, out=made) is made
    np.testing.assert_array_equal(made.numpy(), a * 2)
    whole = np.ones(5, np.int64)
    with pytest.raises(DTypeError, match=r"float32.*out= of int64"):
        whole += t


def test_gradients_pass_functions_of_numpy():
    x = weft.tensor([0.5, 2.0], requires_grad=True)
    np.sum(np.multiply(np.exp(x), 3)).backward()
    np.testing.assert_allclose(x.grad.numpy(), 3 * np.exp([0.5, 2.0]), rtol=1e-6)


@pytest.mark.parametrize("text", [
    "np.fft.fft(X)", "np.linalg.inv(X)", "np.add.at(X, [0], 1)",
    "np.frexp(X)", "np.gcd(X, X)", "np.histogram(X)", "np.add.outer(X, X)",
])  # fmt: skip
def test_what_weft_has_not_says_how_to_convert(text):
    with pytest.raises(UnsupportedError, match=r"\.numpy\(\)") as found:
        eval(text, {"np": np, "X": weft.ones(2, 2)})
    assert isinstance(found.value, TypeError)


def test_options_that_weft_has_not_are_refused():
    x = weft.ones(2, 2)
    for call in (lambda: np.sin(x, where=np.ones((2, 2), bool)), lambda: np.add(x, x, dtype="f8"),
                 lambda: np.sum(x, initial=3), lambda: np.pad(x, 1, mode="median"),
                 lambda: np.linalg.norm(x, "nuc")):  # fmt: skip
        with pytest.raises(UnsupportedError):
            call()


AXES = [
    "all", "amax", "amin", "any", "argmax", "argmin", "argsort", "count_nonzero", "cummax",
    "cummin", "cumprod", "cumsum", "diff", "flip", "log_softmax", "logcumsumexp", "logsumexp",
    "mean", "median", "norm", "prod", "softmax", "softmin", "sort", "std", "sum", "unbind",
    "unsqueeze", "var", "normalize", "squeeze",
]  # fmt: skip


def values(result):
    return [t.tolist() for t in (result if isinstance(result, tuple) else (result,))]


@pytest.mark.parametrize("name", AXES)
def test_axes_go_by_both_names(name):
    x = weft.tensor(np.arange(12, dtype=np.float32).reshape(3, 4) % 5)
    word = "dims" if name == "flip" else "dim"
    method, function = getattr(x, name), getattr(weft, name)
    wanted = values(method(**{word: 1}))
    assert values(method(axis=1)) == wanted
    assert values(function(x, axis=1)) == wanted
    if name not in ("sum", "mean", "prod", "std", "var"):  # whose `axis` is a parameter
        with pytest.raises(TypeError):
            method(**{word: 1, "axis": 1})


def test_kept_axes_go_by_both_names():
    x = weft.ones(3, 4)
    for name in ("all", "amax", "any", "argmax", "logsumexp", "mean", "norm", "sum", "std"):
        assert getattr(x, name)(axis=1, keepdims=True).shape == (3, 1), name
    assert weft.roll(x, 1, axis=1).shape == (3, 4)
    assert weft.cat([x, x], axis=1).shape == (3, 8)
    assert weft.stack([x, x], axis=2).shape == (3, 4, 2)
    assert [p.shape for p in x.split(2, axis=1)] == [(3, 2), (3, 2)]
    assert x.permute(axes=(1, 0)).shape == (4, 3)
    assert x.gather(axis=1, index=weft.zeros(3, 1, dtype=weft.int64)).shape == (3, 1)


def test_creation_takes_shape():
    for make in (weft.zeros, weft.ones, weft.empty, weft.rand, weft.randn):
        assert make(shape=(2, 3)).shape == (2, 3)
        assert make(size=(2, 3)).shape == (2, 3)
    assert weft.full(shape=(2,), fill_value=1.0).tolist() == [1.0, 1.0]
    assert weft.randint(0, 3, shape=(4,)).shape == (4,)


@pytest.mark.parametrize("order", ["import einops, weft", "import weft, einops"])
def test_einops_rearranges_tensors(order):
    program = f"""
{order}
x = weft.arange(24).reshape(2, 3, 4)
assert einops.rearrange(x, "a b c -> c (a b)").tolist() == x.permute(2, 0, 1).reshape(4, 6).tolist()
assert einops.reduce(x.float(), "a b c -> a c", "max").shape == (2, 4)
assert einops.repeat(x, "a b c -> a b c r", r=2).shape == (2, 3, 4, 2)
assert einops.einsum(x, x, "a b c, a d c -> a b d").shape == (2, 3, 3)
assert isinstance(einops.rearrange([x, x], "n a b c -> a n b c"), weft.Tensor)
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)


def test_tab_completes_public_names_only():
    names = dir(weft)
    assert {"Tensor", "zeros", "jit", "nn"} <= set(names)
    assert not {"sys", "importing", "creation", "background", "TYPE_CHECKING"} & set(names)
