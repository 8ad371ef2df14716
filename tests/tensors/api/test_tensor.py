"""Views, writes, creation, errors and Python's protocols."""

import copy
import math

import numpy as np
import pytest

import weft


def base(shape=(4, 5)):
    return np.arange(math.prod(shape), dtype=np.float32).reshape(shape)


# each writes through x (a NumPy array or a tensor alike)
WRITES = {
    "int": lambda x: x.__setitem__(1, 7.0),
    "row": lambda x: x.__setitem__(-1, np.arange(5)),
    "slice": lambda x: x.__setitem__((slice(1, 3), slice(None, None, 2)), 9),
    "negative step": lambda x: x.__setitem__(
        (slice(None, None, -2), slice(4, 0, -1)), np.arange(8).reshape(2, 4)
    ),
    "ellipsis": lambda x: x.__setitem__((..., 2), np.arange(4)),
    "none": lambda x: x.__setitem__((None, 1, slice(0, 2)), [[5, 6]]),
    "mask": lambda x: x.__setitem__(x > 6, -1.0),
    "mask rows": lambda x: x.__setitem__(np.array([True, False, False, True]), 3),
    "mask values": lambda x: x.__setitem__(x > 15, np.arange(4) + 100),
    "integers": lambda x: x.__setitem__(np.array([2, 0]), np.ones((2, 5))),
    "integer pairs": lambda x: x.__setitem__((np.array([0, 1]), np.array([3, -1])), [50, 60]),
    "integers and slice": lambda x: x.__setitem__((slice(1, 3), np.array([0, 4])), 8),
    "empty": lambda x: x.__setitem__(slice(2, 2), 5),
    "all": lambda x: x.__setitem__(slice(None), 2),
    "view of view": lambda x: x[1:][:, 1:3].__setitem__((0, 1), 42),
    "transpose": lambda x: x.T.__setitem__((slice(1, 3), 0), [7, 8]),
    "reshape": lambda x: x.reshape(2, 10).__setitem__((1, slice(3, 6)), 0),
    "iadd": lambda x: x[2:].__iadd__(100),
    "imul": lambda x: x.T[1].__imul__(np.array([1, 2, 3, 4])),
}


@pytest.mark.parametrize("name", WRITES)
def test_writes(name):
    array, x = base(), weft.tensor(base())
    views = [x[1:], x.T, x.reshape(-1)[::3]]
    before = [v.tolist() for v in views]
    assert before[0] == array[1:].tolist()
    WRITES[name](array)
    WRITES[name](x)
    np.testing.assert_array_equal(x.numpy(), array)
    np.testing.assert_array_equal(views[0].numpy(), array[1:])
    np.testing.assert_array_equal(views[1].numpy(), array.T)
    np.testing.assert_array_equal(views[2].numpy(), array.reshape(-1)[::3])


def test_views_and_copies():
    x = weft.tensor(base())
    copied = x.T.reshape(-1)  # strides cannot say it, as in PyTorch
    copied[0] = 99
    assert x[0, 0].item() == 0
    diagonal = x[:, :4].diagonal(1)
    diagonal += 1000
    assert x.numpy().ravel()[[1, 7, 13]].tolist() == [1001, 1007, 1013]
    clone = x.clone()
    clone.zero_()
    assert x.max().item() == 1013
    wide = x[:1].expand(3, 5)
    with pytest.raises(weft.ShapeError, match="clone"):
        wide[0, 0] = 1
    x.unsqueeze(0).squeeze(0).view(20)[5:6] = -1
    assert x[1, 0].item() == -1


def test_views_of_lazy_and_realized_values():
    x = weft.arange(6.0)
    part = x[1:3]
    part.realize()
    x.mul_(10)
    assert part.tolist() == [10.0, 20.0]
    x.realize()
    part[0] = 5
    assert x.tolist() == [0.0, 5.0, 20.0, 30.0, 40.0, 50.0]


def test_writes_convert():
    x = weft.zeros(3, dtype=weft.int32)
    x[0] = weft.tensor(3.7)
    x[1:] = weft.tensor([1, 2])
    assert x.tolist() == [3, 1, 2]
    assert x.dtype is weft.int32
    with pytest.raises(weft.RangeError, match="int32"):
        x[0] = 2**40
    with pytest.raises(weft.DTypeError):
        x += 0.5
    x.add_(2)
    with pytest.raises(weft.ShapeError):
        x += weft.ones(2, 3, dtype=weft.int32)
    with pytest.raises(weft.ShapeError, match="copy_"):
        x[:2] = weft.ones(3)


def test_reading_index_order_and_duplicates():
    x = weft.zeros(3)
    x[[0, 0, 1]] = weft.tensor([1.0, 2.0, 3.0])  # in order: the last wins
    assert x.tolist() == [2.0, 3.0, 0.0]
    x.index_put_((weft.tensor([0, 0]),), weft.tensor([5.0, 6.0]), accumulate=True)
    assert x.tolist() == [13.0, 3.0, 0.0]


def test_bounds():
    x = weft.arange(12).reshape(3, 4)
    for key in (3, -4, (0, 4), (slice(None), -5)):
        with pytest.raises(weft.BoundsError, match="axis"):
            x[key]
        with pytest.raises(IndexError):
            x[key] = 1
    with pytest.raises(weft.BoundsError, match="3 indices"):
        x[0, 0, 0]
    late = x[weft.tensor([0, 3])]
    with pytest.raises(weft.BoundsError) as caught:
        late.numpy()
    assert caught.value.where.file == __file__
    with pytest.raises(weft.BoundsError):
        x[weft.tensor([0]), weft.tensor([7])].realize()
    with pytest.raises(weft.BoundsError):
        weft.nn.functional.one_hot(weft.tensor([4]), 3).realize()
    with pytest.raises(weft.BoundsError):
        x.gather(1, weft.tensor([[-1]])).realize()
    with pytest.raises(weft.DTypeError, match="float32"):
        x[weft.tensor([0.5])]
    with pytest.raises(weft.DTypeError, match="str"):
        x["a"]


BAD = {
    "add": (lambda: weft.ones(3) + weft.ones(4), weft.ShapeError, "add"),
    "where": (lambda: weft.where(weft.ones(2) > 0, weft.ones(3), 1.0), weft.ShapeError, "where"),
    "matmul": (lambda: weft.ones(3, 4) @ weft.ones(5, 6), weft.ShapeError, "inner"),
    "batch": (lambda: weft.ones(2, 3, 4) @ weft.ones(3, 4, 5), weft.ShapeError, "batch"),
    "scalar matmul": (lambda: weft.ones(3) @ weft.tensor(1.0), weft.ShapeError, "axis"),
    "cat": (lambda: weft.cat([weft.ones(2, 3), weft.ones(2, 4)]), weft.ShapeError, "cat"),
    "stack": (lambda: weft.stack([weft.ones(2), weft.ones(3)]), weft.ShapeError, "stack"),
    "conv": (
        lambda: weft.ones(1, 3, 8, 8).conv2d(weft.ones(4, 2, 3, 3)),
        weft.ShapeError,
        "conv2d",
    ),
    "kernel": (
        lambda: weft.ones(1, 1, 2, 2).conv2d(weft.ones(1, 1, 3, 3)),
        weft.ShapeError,
        "fits",
    ),
    "reshape": (lambda: weft.ones(6).reshape(4, -1), weft.ShapeError, "reshape"),
    "expand": (lambda: weft.ones(3).expand(4), weft.ShapeError, "expand"),
    "sum axis": (lambda: weft.ones(2, 3).sum(2), weft.AxisError, "axis 2"),
    "twice": (lambda: weft.ones(2, 3).sum((0, -2)), weft.AxisError, "most once"),
    "permute": (lambda: weft.ones(2, 3).permute(0, 0), weft.AxisError, "permute"),
    "softmax": (lambda: weft.ones(2).softmax(1), weft.AxisError, "softmax"),
    "squeeze": (lambda: weft.ones(2).squeeze(3), weft.AxisError, "squeeze"),
    "mean": (lambda: weft.ones(2, dtype=weft.int64).mean(), weft.DTypeError, "float"),
    "bits": (lambda: weft.ones(2) & weft.ones(2), weft.DTypeError, "bitwise_and"),
    "neg bool": (lambda: -(weft.ones(2) > 0), weft.DTypeError, "neg"),
    "range": (lambda: weft.tensor(2**40, dtype=weft.int32), weft.RangeError, "1099511627776"),
    "range list": (lambda: weft.tensor([1, 300], dtype=weft.uint8), weft.RangeError, "300"),
    "range array": (
        lambda: weft.tensor(np.array([2.0**40]), dtype=weft.int32),
        weft.RangeError,
        "int32",
    ),
    "range nan": (lambda: weft.tensor([math.nan], dtype=weft.int32), weft.RangeError, "nan"),
    "range full": (lambda: weft.full((2,), -1, dtype=weft.uint8), weft.RangeError, "uint8"),
    "range scalar": (lambda: weft.ones(2, dtype=weft.int8) + 1000, weft.RangeError, "1000"),
    "ragged": (lambda: weft.tensor([[1, 2], [3]]), weft.ShapeError, "rectangular"),
    "text": (lambda: weft.tensor(["a"]), weft.DTypeError, "numbers"),
    "complex": (lambda: weft.tensor(np.ones(2, complex)), weft.DTypeError, "complex"),
    "object": (lambda: weft.tensor(object()), weft.DTypeError, "object"),
    "dtype": (lambda: weft.zeros(2, dtype="int33"), weft.DTypeError, "int33"),
    "device": (lambda: weft.zeros(2, device="cuda:0"), weft.DeviceError, "cuda:0"),
    "to device": (lambda: weft.zeros(2).to("cuda"), weft.DeviceError, "cuda"),
    "huge": (lambda: weft.zeros(2**40, 2**40), weft.ShapeError, r"2\*\*63"),
    "huge expand": (lambda: weft.ones(1).expand(2**62, 4), weft.ShapeError, r"2\*\*63"),
    "item": (lambda: weft.ones(2).item(), weft.ShapeError, "2 elements"),
    "bool": (lambda: bool(weft.ones(2)), weft.ShapeError, "any"),
    "len": (lambda: len(weft.tensor(1)), weft.ShapeError, "axis"),
    "empty max": (lambda: weft.zeros(0).amax(), weft.ShapeError, "empty"),
    "topk": (lambda: weft.ones(3).topk(4), weft.ShapeError, "k=4"),
    "split": (lambda: weft.ones(3).split([1, 1]), weft.ShapeError, "sum to 3"),
    "loss": (
        lambda: weft.ones(3, 2).cross_entropy(weft.tensor([0, 1])),
        weft.ShapeError,
        "targets",
    ),
    "einsum": (
        lambda: weft.einsum("ij,jk", weft.ones(2, 3), weft.ones(4, 5)),
        weft.ShapeError,
        "letter",
    ),
    "einsum rank": (lambda: weft.einsum("ijk", weft.ones(2, 3)), weft.ShapeError, "axes"),
    "norm": (lambda: weft.ones(2, 3).layer_norm((4,)), weft.ShapeError, "layer_norm"),
    "pad": (lambda: weft.ones(3).pad((3, 3), mode="reflect"), weft.ShapeError, "reflect"),
    "step": (lambda: weft.ones(3)[::0], weft.ShapeError, "step"),
}


@pytest.mark.parametrize("name", BAD)
def test_errors(name):
    action, kind, text = BAD[name]
    with pytest.raises(kind, match=text) as caught:
        action()
    assert caught.value.where.file == __file__


def test_creation():
    assert weft.tensor([1, 2]).dtype is weft.int64
    assert weft.tensor([1.0, 2]).dtype is weft.float32
    assert weft.tensor([True]).dtype is weft.bool
    assert weft.tensor(np.float64([1])).dtype is weft.float64
    assert weft.tensor(3).shape == ()
    assert weft.tensor([]).shape == (0,)
    assert weft.tensor([[weft.tensor(1), 2], [3, weft.tensor(4)]]).tolist() == [[1, 2], [3, 4]]
    assert weft.tensor([2**63 - 1]).item() == 2**63 - 1
    assert weft.tensor([2**64 - 1], dtype=weft.uint64).item() == 2**64 - 1
    assert weft.zeros(2, 3).shape == weft.zeros((2, 3)).shape == (2, 3)
    assert weft.full((2,), 7).dtype is weft.int64
    assert weft.full((2,), 7.0).dtype is weft.float32
    assert weft.eye(2, 3).tolist() == [[1, 0, 0], [0, 1, 0]]
    assert weft.arange(2, 11, 3).tolist() == [2, 5, 8]
    assert weft.arange(5, 0, -2).tolist() == [5, 3, 1]
    assert weft.arange(0).tolist() == []
    np.testing.assert_allclose(weft.arange(0, 1, 0.1).numpy(), np.arange(0, 1, 0.1), 1e-6)
    np.testing.assert_allclose(weft.linspace(-1, 2, 7).numpy(), np.linspace(-1, 2, 7), 1e-6)
    assert weft.linspace(0, 1, 1).tolist() == [0.0]
    np.testing.assert_allclose(weft.logspace(0, 2, 3).numpy(), [1, 10, 100], 1e-5)
    x = weft.ones(2, dtype=weft.float16)
    assert weft.zeros_like(x).dtype is weft.float16
    assert weft.full_like(x, 3, dtype=weft.int8).tolist() == [3, 3]
    assert weft.tril_indices(2, 2).tolist() == [[0, 1, 1], [0, 0, 1]]
    a = np.arange(3)
    t = weft.tensor(a)
    a[0] = 9
    assert t.tolist() == [0, 1, 2]


def test_python_protocols():
    x = weft.tensor([[1.5, 2.0], [3.0, -4.0]])
    assert len(x) == 2
    assert [row.tolist() for row in x] == [[1.5, 2.0], [3.0, -4.0]]
    assert float(x[0, 0]) == 1.5
    assert int(weft.tensor(7)) == 7
    assert [10, 20, 30][weft.tensor(1)] == 20
    assert bool(weft.tensor([0.0])) is False
    assert 3.0 in x
    assert f"{x[0, 0]:.2f}" == "1.50"
    assert x.ndim == x.dim() == 2
    assert x.size() == (2, 2)
    assert x.size(-1) == 2
    assert (x.numel(), x.nbytes, x.itemsize) == (4, 16, 4)
    assert len({x: 1, x.T: 2}) == 2
    assert np.asarray(x, dtype=np.float64).dtype == np.float64
    assert (np.ones((2, 2)) + x).tolist() == [[2.5, 3.0], [4.0, -3.0]]
    assert copy.deepcopy(x).tolist() == x.tolist()
    assert isinstance(memoryview(x.numpy()), memoryview)
    assert x.device == "cpu"
    with pytest.raises(ValueError, match="read-only"):
        x.numpy()[0] = 1
    x.numpy(force=True)[0] = 1


REPRS = [
    (lambda: weft.tensor([1, 2]), "tensor([1, 2])"),
    (lambda: weft.tensor([1.0, 2.5]), "tensor([1.0000, 2.5000])"),
    (lambda: weft.tensor([1.0, 2.0]), "tensor([1., 2.])"),
    (lambda: weft.tensor(3.5), "tensor(3.5000)"),
    (lambda: weft.tensor(True), "tensor(True)"),
    (lambda: weft.tensor([1], dtype=weft.int8), "tensor([1], dtype=weft.int8)"),
    (lambda: weft.tensor([0.5], dtype=weft.bfloat16), "tensor([0.5000], dtype=weft.bfloat16)"),
    (lambda: weft.tensor([1.0], requires_grad=True), "tensor([1.], requires_grad=True)"),
    (lambda: weft.tensor([[1], [2]]), "tensor([[1],\n        [2]])"),
    (lambda: weft.tensor([]), "tensor([])"),
    (lambda: weft.tensor([1e-9, 1.0]), "tensor([1.0000e-09, 1.0000e+00])"),
    (lambda: weft.tensor([math.inf, math.nan, 1.0]), "tensor([inf, nan, 1.])"),
    (lambda: weft.zeros(2000), "tensor([0., 0., 0., ..., 0., 0., 0.])"),
]


@pytest.mark.parametrize(("make", "text"), REPRS, ids=[t for _, t in REPRS])
def test_repr(make, text):
    assert repr(make()) == text


def test_sharing_with_numpy():
    a = np.zeros(4, np.float32)
    x = weft.from_numpy(a)
    a[1] = 3
    assert x.tolist() == [0, 3, 0, 0]
    reader = x + 1  # still lazy when x changes
    x[0] = 7
    x.realize()
    assert a.tolist() == [7, 3, 0, 0]
    assert reader.tolist() == [1, 4, 1, 1]
    x.add_(1).realize()
    assert a.tolist() == [8, 4, 1, 1]
    assert weft.tensor(a).add_(1).realize().tolist() == [9, 5, 2, 2]
    assert a.tolist() == [8, 4, 1, 1]
    with pytest.raises(weft.DTypeError, match="copy"):
        weft.asarray(np.arange(6).astype(">i8"), copy=False)
    with pytest.raises(weft.DTypeError):
        weft.from_numpy([1, 2])
    first = (x * 2).tolist()
    a[:] = 1
    assert (x * 2).tolist() == [2.0] * 4 != first


def test_symbolic_shapes_build():
    n = weft.Variable("n", 1, 64)
    from weft.ir import node as nd

    x = weft.Tensor._from_node(
        nd.make(nd.Op.BUFFER, weft.float32, (n,), (), nd.Storage(weft.float32, n))
    )
    y = (x.exp() + 1) * x.sum()
    assert y.shape == (n,)
    assert weft.ones(1).expand(n).shape == (n,)


def test_long_chains():
    x = weft.ones(1)
    for _ in range(30_000):
        x = x + 1
    del x


def test_random():
    weft.manual_seed(7)
    first = [weft.rand(5).tolist(), weft.randn(3).tolist(), weft.randint(0, 10, (4,)).tolist()]
    weft.manual_seed(7)
    again = [weft.rand(5).tolist(), weft.randn(3).tolist(), weft.randint(0, 10, (4,)).tolist()]
    assert first == again
    weft.manual_seed(8)
    assert weft.rand(5).tolist() != first[0]
    u = weft.rand(20_000).numpy()
    assert u.min() >= 0
    assert u.max() < 1
    assert abs(u.mean() - 0.5) < 0.01
    z = weft.randn(20_000, dtype=weft.float64).numpy()
    assert abs(z.mean()) < 0.03
    assert abs(z.std() - 1) < 0.03
    k = weft.randint(-3, 5, (8000,)).numpy()
    assert set(k) == set(range(-3, 5))
    wide = weft.randint(0, 2**62, (1000,)).numpy()
    assert wide.min() >= 0
    assert wide.max() > 2**61
    assert sorted(weft.randperm(50).tolist()) == list(range(50))
    assert 0.2 < weft.bernoulli(weft.full((5000,), 0.25)).mean().item() < 0.3
    dropped = weft.dropout(weft.ones(5000), 0.4).numpy()
    assert set(np.unique(dropped)) <= {0.0, np.float32(1 / 0.6)}
    assert abs((dropped == 0).mean() - 0.4) < 0.05
    half = weft.rand(3000, dtype=weft.bfloat16).float().numpy()
    assert half.max() < 1
    g = weft.Generator(1)
    assert weft.rand(3, generator=g).tolist() != weft.rand(3, generator=g).tolist()
    w = weft.tensor([0.0, 1.0, 3.0])
    draws = weft.multinomial(w.expand(2000, 3), 1, True).numpy()
    assert abs(draws.mean() - 1.75) < 0.05
    with pytest.raises(weft.RangeError):
        weft.randint(3, 3, (2,))


def test_philox_known_answers():
    """The vectors that Random123 ships for philox4x32-10 (counter and key all 0, and all 1)."""
    from oracle import evaluate
    from weft.ir import infer
    from weft.tensors.api.generator import philox

    def words(c, k):
        args = [infer.full((1,), v, weft.uint32) for v in (c, c, k, k)]
        return [int(a[0]) for a in evaluate(philox(*args))]

    assert words(0, 0) == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]


@pytest.mark.grid
@pytest.mark.parametrize("name", ["float16", "bfloat16", "float32", "float64"])
def test_normal_numbers_have_the_moments_and_no_correlation(name):
    g, n = weft.Generator(5), 100_001
    x = weft.randn(n, generator=g, dtype=getattr(weft, name)).float().numpy().astype(np.float64)
    assert abs(x.mean()) < 0.015
    for power, moment in ((2, 1.0), (3, 0.0), (4, 3.0), (6, 15.0)):
        assert abs((x**power).mean() - moment) < 0.02 * 6 ** (power // 2)
    for step in (1, 2, 3, 4):  # the numbers of a block, and blocks
        for p in (1, 2):
            assert abs(np.corrcoef(x[:-step] ** p, x[step:] ** p)[0, 1]) < 0.015
    quarters = np.histogram(np.arctan2(x[1::2], x[:-1:2]), 16, (-np.pi, np.pi))[0]
    assert abs(quarters / quarters.mean() - 1).max() < 0.1


def test_a_draw_is_whole_blocks():
    """Numbers of a block follow one another; the next draw starts with a new block."""
    a = weft.rand(10, generator=weft.Generator(3)).tolist()
    g = weft.Generator(3)
    assert weft.rand(5, generator=g).tolist() == a[:5]
    assert weft.rand(2, generator=g).tolist() == a[8:]
    assert weft.rand(0, generator=g).tolist() == []


def test_threads_share_pending_parameters(compiled):
    import threading

    w = [weft.rand(50, requires_grad=True) for _ in range(4)]
    found = []

    def work():
        found.append([(p * 2).sum().item() for p in w])

    threads = [threading.Thread(target=work) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(found) == 4
    assert all(f == found[0] for f in found)


@pytest.mark.parametrize("dtype", [weft.float32, weft.float64])
@pytest.mark.parametrize("others", [3, 16, 64])
def test_variance_whose_squares_overflow_is_infinite(dtype, others):
    """What float32 cannot hold of a variance, float64 can: the deviation is finite there."""
    huge = 1e38 if dtype is weft.float32 else 1e308
    x = weft.cat([weft.full((1,), huge, dtype=dtype), weft.arange(others, dtype=dtype)], 0)
    assert x.var(0).item() == math.inf
    exact = huge / math.sqrt(others + 1) if dtype is weft.float32 else math.inf
    assert x.std(0).item() == pytest.approx(exact, rel=1e-6)
    assert math.isnan(weft.tensor([math.inf, 1.0, 2.0], dtype=dtype).var(0).item())


@pytest.mark.parametrize("dtype", [weft.float32, weft.float64, weft.bfloat16])
def test_slopes_of_the_deviation_of_equal_elements_are_0(rng, compiled, dtype):
    x = np.repeat(rng.integers(-40, 40, (5, 1)) / 4, 7, 1)
    x[1] = rng.standard_normal(7)
    x[3, 2] = math.nan
    t = weft.from_numpy(x).astype(dtype).requires_grad_()
    (found,) = weft.grad(t.std(1).sum(), (t,))
    found = found.astype(weft.float64).numpy()
    assert not found[[0, 2, 4]].any()
    assert np.isnan(found[3]).all()
    centred = x[1] - x[1].mean()
    want = centred / (6 * x[1].std(ddof=1))
    np.testing.assert_allclose(found[1], want, atol=0.02 if dtype is weft.bfloat16 else 1e-6)


@pytest.mark.parametrize("values", [(), ([1.0, 2.0],), (np.ones(3),)])
def test_calling_the_class_says_which_function_makes_tensors(values):
    with pytest.raises(weft.errors.UnsupportedError, match=r"expected weft\.tensor"):
        weft.Tensor(*values)


@pytest.mark.parametrize("amounts", [((0, 0), (1, 1)), (1.5, 1), (None, 1)])
def test_pad_takes_whole_numbers_alone(amounts):
    with pytest.raises(weft.errors.DTypeError, match=r"pad: found .* expected an integer"):
        weft.ones((2, 3)).pad(amounts)


def test_notebooks_show_tables():
    text = weft.arange(6).reshape(2, 3)._repr_html_()
    assert text.count("<tr>") == 2
    assert text.count("<td>") == 6
    assert "int64[2, 3]" in text
    long = weft.ones(100, 100, requires_grad=True)._repr_html_()
    assert long.count("<tr>") == 11
    assert "…" in long
    assert "requires_grad" in long
    assert "tensor([" in weft.ones(2, 2, 2)._repr_html_()
    assert "&lt;" not in weft.ones(3)._repr_html_()
    shown = []
    weft.jit(lambda x: shown.append(x._repr_html_()) or x + 1)(weft.ones(3))
    assert "captured" in shown[0]
    assert "<float" not in shown[0]


def test_empty_tensors_of_huge_sizes_are_shown_or_refused():
    assert repr(weft.zeros(2, 0)) == "tensor([[], []], shape=(2, 0))"
    assert repr(weft.zeros(1 << 58, 0)) == f"tensor([], shape=({1 << 58}, 0))"
    assert weft.zeros(1 << 58, 0).softmax(1).numpy().shape == (1 << 58, 0)
    with pytest.raises(weft.AllocationError, match="tolist: found a tensor of shape"):
        weft.zeros(1 << 58, 0).tolist()
    for shape in ((1 << 60, 0), (1 << 62, 4, 0), (0, 1 << 31, 1 << 31)):
        with pytest.raises(weft.ShapeError, match="2\\*\\*59 beside 0"):
            weft.zeros(*shape)
