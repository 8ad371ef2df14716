"""A captured function is captured anew for whatever it depends on, and replayed otherwise."""

import collections
import contextlib
import functools
import gc
import weakref

import numpy as np
import pytest

import weft


def counted(function, static=()):
    """Return a captured function and a list that grows with each call of the function itself."""
    seen = []

    @functools.wraps(function)
    def f(*args, **kwargs):
        seen.append(len(seen))  # what is kept of the arguments would make their sizes constants
        return function(*args, **kwargs)

    return weft.jit(f, static=static) if static else weft.jit(f), seen


def check_replayed(f, seen, calls):
    """Check that calls which were made before neither capture nor call the function again."""
    before = f.captures, len(seen)
    calls()
    assert (f.captures, len(seen)) == before


def total(x):
    return (x * 2).sum()


X = np.arange(24, dtype=np.float32)
SIGNATURES = {
    "shape": X.reshape(4, 6),
    "other shape": X.reshape(6, 4),
    "third shape": X.reshape(8, 3),
    "fourth shape": X.reshape(2, 12),
    "rank": X,
    "rank 3": X.reshape(2, 3, 4),
    "dtype": X.reshape(4, 6).astype(np.float64),
    "ints": X.reshape(4, 6).astype(np.int32),
    "bool": X.reshape(4, 6) > 3,
    "strides": X.reshape(6, 4).T,
    "negative strides": X.reshape(4, 6)[::-1],
    "step": np.arange(48, dtype=np.float32).reshape(4, 12)[:, ::2],
    "broadcast": np.broadcast_to(X[:6], (4, 6)),
    "empty": np.zeros((0, 6), np.float32),
    "scalar": np.float32(3).reshape(()),
    "misaligned": np.frombuffer(b"x" + X.tobytes(), np.float32, offset=1).reshape(4, 6),
    "big-endian": X.reshape(4, 6).astype(">f4"),
}


def sums(f, convert=np.asarray):
    for name, array in SIGNATURES.items():
        want = (array.astype(np.float64) * 2).sum()
        np.testing.assert_allclose(f(convert(array)).item(), want, err_msg=name)


def test_each_signature_is_captured_once():
    """As long as sizes are constants: every type, shape and layout is a capture of its own."""
    f, seen = counted(total, static=[0])
    for _ in range(3):
        sums(f)
    assert f.captures == len(seen) < len(SIGNATURES) + 1
    kinds = {(np.shape(v), str(v.dtype)) for v in SIGNATURES.values()}
    assert f.captures >= len(kinds) - 1  # a big-endian array is copied, and then like the first


def test_sizes_that_change_share_a_capture():
    f, seen = counted(total)
    sums(f)
    kinds = {(v.ndim, v.size == 0, str(v.dtype.newbyteorder("="))) for v in SIGNATURES.values()}
    assert len(kinds) <= f.captures < len(SIGNATURES)
    for _ in range(2):
        check_replayed(f, seen, lambda: sums(f))


@pytest.mark.parametrize("static", [(), (0,)])
def test_tensors_of_each_signature(static):
    f, seen = counted(total, static)
    sums(f, weft.tensor)
    kinds = {(v.shape, str(v.dtype.newbyteorder("="))) for v in SIGNATURES.values()}
    if static:
        assert f.captures == len(seen) == len(kinds)
    else:
        assert f.captures < len(kinds)
    check_replayed(f, seen, lambda: sums(f, weft.tensor))


def test_views_of_tensors_are_read_as_they_are():
    f, seen = counted(lambda x: x * 10 + weft.arange(3))
    x = weft.arange(12, dtype=weft.float32).reshape(4, 3)
    for part in (x[1], x[3], x[::-1][0], x.T.contiguous().T[2], x[:, :][0]):
        np.testing.assert_array_equal(f(part).numpy(), part.numpy() * 10 + np.arange(3))
    assert len(seen) == f.captures


CALLS = [
    ((2,), {}), ((3,), {}), ((2.0,), {}), ((True,), {}), ((2,), {"flag": True}),
    ((2,), {"name": "bb"}), ((2,), {"scale": 0.5}), ((2,), {"scale": -0.0}), ((5,), {}),
    ((2,), {"scale": 0.25}),
]  # fmt: skip


@pytest.mark.parametrize("static", [(), ("n", "scale")])
def test_arguments_that_are_no_arrays(static):
    def scaled(x, n, flag=False, name="a", scale=1.0):
        return x * n * scale + len(name)

    def calls():
        for args, kwargs in CALLS:
            want = args[0] * kwargs.get("scale", 1.0) + len(kwargs.get("name", "a"))
            assert f(x, *args, **kwargs).tolist() == [want, want]

    f, seen = counted(scaled, static)
    x = weft.ones(2)
    calls()
    # Equal numbers of different types are different programs, 2 and 2.0, 1 and True; another
    # number of a type is read at the call, from the second on, unless it is to be a constant.
    assert f.captures == len(CALLS) - (0 if static else 2)
    if static:
        assert len(seen) == len(CALLS)
    check_replayed(f, seen, calls)


def test_nan_as_a_static_argument_does_not_grow_without_end():
    f, seen = counted(lambda x, n: x * n)
    for _ in range(5):
        assert np.isnan(f(weft.ones(1), float("nan")).numpy()).all()
    assert len(seen) <= 2


def test_zero_and_minus_zero_differ():
    f, _ = counted(lambda x, n: x * n)
    assert not np.signbit(f(weft.ones(1), 0.0).numpy()).any()
    assert np.signbit(f(weft.ones(1), -0.0).numpy()).all()


@pytest.mark.parametrize("static", [(), (0,)])
def test_structures(static):
    Pair = collections.namedtuple("Pair", "a b")
    f, seen = counted(lambda t: t[0] + t[1] if isinstance(t, tuple | list) else t["a"] + t["b"],
                      static)  # fmt: skip
    a, b = weft.ones(2), weft.arange(2, dtype=weft.float32)
    values = [((a, b), [1, 2]), ([a, b], [1, 2]), (Pair(a, b), [1, 2]), ({"a": a, "b": b}, [1, 2]),
              ((a, 1), [2, 2]), ((a, 2), [3, 3])]  # fmt: skip

    def calls():
        for value, want in values:
            assert f(value).tolist() == want

    calls()
    assert f.captures == len(values)
    if static:
        assert len(seen) == len(values)
    check_replayed(f, seen, calls)
    assert f((a, 3)).tolist() == [4, 4]
    assert f.captures == len(values) + bool(static)  # a number that changes is read at the call


def test_devices():
    f, seen = counted(lambda x, device: x.to(device) + 1)
    for device in ("cpu", "cpu:0", "auto"):
        assert f(weft.ones(2), device).tolist() == [2, 2]
    assert f.captures == len(seen) == 3


def test_gradient_mode_and_requirement():
    f, seen = counted(lambda x: (x * x).sum())
    x = weft.ones(3, requires_grad=True)
    for _ in range(2):
        assert f(x).requires_grad
        with weft.no_grad():
            assert not f(x).requires_grad
        assert not f(x.detach()).requires_grad
    assert f.captures == len(seen) == 3
    f(x).backward()
    assert x.grad.tolist() == [2, 2, 2]


@pytest.mark.parametrize("bad", [[1, 2, object()], {1: object()}, object(), {1, 2}, print])
def test_other_arguments_are_part_of_the_signature_or_refused(bad):
    f, _ = counted(lambda x, y: x + 1)
    with contextlib.suppress(weft.CaptureError):
        assert f(weft.ones(1), bad).item() == 2
        assert f(weft.ones(1), bad).item() == 2


def test_argument_count():
    f, _ = counted(lambda x, y: x + y)
    f(weft.ones(1), weft.ones(1))
    for _ in range(2):
        with pytest.raises(TypeError):
            f(weft.ones(1))
        with pytest.raises(TypeError):
            f()
    assert f(weft.ones(1), weft.ones(1)).item() == 2


def test_the_same_tensor_twice():
    f, _ = counted(lambda x, y: x * 10 + y)
    a, b = weft.ones(2), weft.ones(2) * 5
    assert f(a, a).tolist() == [11, 11]
    assert f(a, b).tolist() == [15, 15]
    assert f(b, a).tolist() == [51, 51]


def test_arguments_that_alias_one_array():
    f, _ = counted(lambda x, y: x + y)
    base = np.arange(6, dtype=np.float32)
    for x, y in ((base[:3], base[3:]), (base[1:4], base[2:5]), (base[::2], base[1::2])):
        np.testing.assert_array_equal(f(x, y).numpy(), x + y)


def test_results_of_earlier_calls_are_not_overwritten():
    f, _ = counted(lambda x: x + 1)
    results = [f(weft.full((1000,), float(i))) for i in range(20)]
    assert [r[7].item() for r in results] == list(range(1, 21))


@pytest.mark.slow
def test_arguments_and_results_are_not_kept():
    f = weft.jit(total)
    array = np.ones(5, np.float32)
    x = weft.ones(5).realize()
    kept = [weakref.ref(array), weakref.ref(x), weakref.ref(f(array)), weakref.ref(f(x))]
    f(array)
    f(x)
    del array, x
    gc.collect()
    assert [r() for r in kept] == [None] * 4
