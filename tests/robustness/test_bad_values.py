"""Indices, values, dtypes, devices, gradients and variables that are wrong: typed errors."""

import math

import numpy as np
import pytest
from blame import fails

import weft
from weft import (
    AxisError,
    BoundsError,
    CaptureError,
    DeviceError,
    DTypeError,
    GradientError,
    RangeError,
    ShapeError,
    VariableError,
    driver,
)
from weft.exchange import host
from weft.ir import expr as ex
from weft.ir import infer

a = weft.arange(12, dtype=weft.float32).reshape(3, 4)
ints = weft.ones(3, 4, dtype=weft.int64)
F = weft.nn.functional


def index(*values):
    return weft.tensor(list(values), dtype=weft.int64)


# ---- integer indices -----------------------------------------------------------------------------

STATIC = {
    "int": (lambda: a[3], "3", "(3, 4)"),
    "negative": (lambda: a[-4], "-4"),
    "second axis": (lambda: a[0, 4], "4"),
    "huge": (lambda: a[2**70], str(2**70)),
    "after ellipsis": (lambda: a[..., 4], "4"),
    "setitem": (lambda: weft.zeros(3).__setitem__(3, 1.0), "3"),
    "select": (lambda: a.select(0, 3), "3"),
    "too many": (lambda: a[0, 0, 0], "3", "(3, 4)"),
    "numpy int": (lambda: a[np.int64(7)], "7"),
}


@pytest.mark.parametrize("name", STATIC)
def test_static_index(name):
    call, *parts = STATIC[name]
    fails(BoundsError, call, *parts)


DATA = {
    "getitem": lambda i: a[i],
    "getitem second": lambda i: a.mT[:, i],
    "getitem pair": lambda i: a[i, index(0)],
    "list": lambda i: a[i.tolist()],
    "array": lambda i: a[i.numpy().copy()],
    "gather": lambda i: a.gather(0, i.reshape(1, 1)),
    "index_select": lambda i: a.index_select(0, i),
    "take_along_dim": lambda i: a.take_along_dim(i.reshape(1, 1), 0),
    "embedding": lambda i: F.embedding(i, a),
    "scatter": lambda i: a.scatter(0, i.reshape(1, 1), weft.ones(1, 1)),
    "scatter_add": lambda i: a.scatter_add(0, i.reshape(1, 1), weft.ones(1, 1)),
    "index_add": lambda i: a.index_add(0, i, weft.ones(1, 4)),
    "nll_loss": lambda i: F.nll_loss(a[:1], i.add(1)),
    "cross_entropy": lambda i: F.cross_entropy(a[:1], i.add(1)),
    "scalar": lambda i: a[i.reshape(())],
}


@pytest.mark.grid
@pytest.mark.parametrize("bad", [3, -4, 10**12, -(10**12)])
@pytest.mark.parametrize("name", DATA)
def test_data_index_raises_when_it_runs(name, bad):
    make = DATA[name]

    def here():
        make(index(bad)).numpy()

    with pytest.raises(BoundsError) as caught:
        here()
    error = caught.value
    assert "index" in error.found
    assert any(f" to {last}" in error.expected for last in (2, 3))
    assert error.where.file == __file__
    assert error.where.line in (make.__code__.co_firstlineno, here.__code__.co_firstlineno + 1)
    np.testing.assert_array_equal(a.numpy(), np.arange(12, dtype=np.float32).reshape(3, 4))


def test_data_index_into_an_empty_axis():
    empty = weft.ones(0, 4)
    fails(BoundsError, lambda: empty[index(0)].numpy(), "empty")


def test_write_at_a_bad_index_leaves_the_target_alone():
    target = weft.zeros(3)

    def here():
        target[index(0, 7)] = 1.0
        target.numpy()

    fails(BoundsError, here, "7")


def test_bad_index_is_an_error_in_the_gradient_too():
    w = weft.ones(3, 2, requires_grad=True)

    def here():
        F.embedding(index(1, 5), w).sum().backward()
        w.grad.numpy()

    fails(BoundsError, here, "5")


def test_bad_index_in_the_second_replay_only():
    @weft.jit
    def take(x, i):
        return x[i] * 2

    x = weft.arange(5, dtype=weft.float32)
    good, bad = index(0, 4), index(0, 5)
    assert take(x, good).tolist() == [0, 8]
    with pytest.raises(BoundsError) as caught:
        take(x, bad).numpy()
    error = caught.value
    assert error.where.file == __file__
    assert "x[i] * 2" in error.where.text
    assert take(x, good).tolist() == [0, 8]
    assert take.captures == 1


# ---- values and types ----------------------------------------------------------------------------

INTEGERS = [weft.int8, weft.int16, weft.int32, weft.int64, weft.uint8, weft.uint16, weft.uint32,
            weft.uint64]  # fmt: skip
MAKERS = {
    "tensor": lambda v, d: weft.tensor(v, dtype=d),
    "list": lambda v, d: weft.tensor([0, v], dtype=d),
    "nested": lambda v, d: weft.tensor([[0], [v]], dtype=d),
    "full": lambda v, d: weft.full((2,), v, dtype=d),
    "full_like": lambda v, d: weft.full_like(weft.zeros(2, dtype=d), v),
    "asarray": lambda v, d: weft.asarray([v], dtype=d),
    "fill_": lambda v, d: weft.zeros(2, dtype=d).fill_(v),
    "setitem": lambda v, d: weft.zeros(2, dtype=d).__setitem__(0, v),
    "add": lambda v, d: weft.zeros(2, dtype=d) + v,
    "radd": lambda v, d: v * weft.zeros(2, dtype=d),
    "where": lambda v, d: weft.zeros(2, dtype=d).masked_fill(weft.ones(2) > 0, v),
    "pad": lambda v, d: weft.zeros(2, dtype=d).pad((1, 1), value=v),
    "clamp": lambda v, d: weft.zeros(2, dtype=d).clamp(**{"min" if v > d.max else "max": v}),
}


@pytest.mark.grid
@pytest.mark.parametrize("dtype", INTEGERS, ids=lambda d: d.name)
@pytest.mark.parametrize("name", MAKERS)
def test_value_past_its_dtype(name, dtype):
    for value in (dtype.max + 1, dtype.min - 1, 2**100):
        make = MAKERS[name]
        with pytest.raises(RangeError) as caught:
            make(value, dtype)
        assert str(value) in str(caught.value)
        assert dtype.name in str(caught.value)
        assert caught.value.where.file == __file__


@pytest.mark.parametrize("dtype", INTEGERS, ids=lambda d: d.name)
def test_limits_past_a_dtype_limit_nothing(dtype):
    """No element is beyond them, as NumPy has it; and the result is a tensor of its own."""
    values = [dtype.min, 0, dtype.max]
    for low, high in ((dtype.min - 1, None), (None, dtype.max + 1), (-(2**100), 2**100),
                      (dtype.min, dtype.max)):
        for name in ("clamp", "clip"):
            x = weft.tensor(values, dtype=dtype)
            limited = getattr(x, name)(low, high)
            assert limited.dtype is dtype
            assert limited.tolist() == values
            limited.add_(1)
            assert x.tolist() == values


@pytest.mark.parametrize("limit", [300, -300])
@pytest.mark.parametrize("name", ["clamp", "clamp_", "clip"])
def test_a_limit_that_no_element_can_meet_is_one_of_clamp(name, limit):
    x = weft.zeros(2, dtype=weft.int8)
    which = "min" if limit > 0 else "max"
    change = getattr(x, name)
    fails(RangeError, lambda: change(**{which: limit}), "clamp: found", str(limit), "int8")
    assert x.tolist() == [0, 0]


FIT = {
    "issue": (lambda: weft.tensor(2**40, dtype=weft.int32), str(2**40), "int32"),
    "nan": (lambda: weft.tensor(math.nan, dtype=weft.int32), "nan", "int32"),
    "inf": (lambda: weft.tensor([math.inf], dtype=weft.uint8), "inf", "uint8"),
    "array": (lambda: weft.tensor(np.array([300]), dtype=weft.uint8), "300", "uint8"),
    "no dtype": (lambda: weft.tensor(2**64), str(2**64), "int64"),
    "no dtype list": (lambda: weft.tensor([2**64]), str(2**64), "int64"),
    "arange": (lambda: weft.arange(300, dtype=weft.uint8), "299", "uint8"),
    "randint": (lambda: weft.randint(0, 300, (2,), dtype=weft.uint8), "299", "uint8"),
    "randint empty": (lambda: weft.randint(5, 5, (2,)), "5"),
    "dropout": (lambda: F.dropout(a, 1.5), "1.5"),
}


@pytest.mark.parametrize("name", FIT)
def test_value_that_does_not_fit(name):
    call, *parts = FIT[name]
    fails(RangeError, call, *parts)


DTYPES = {
    "zeros": lambda d: weft.zeros(2, dtype=d),
    "tensor": lambda d: weft.tensor([1], dtype=d),
    "astype": lambda d: a.astype(d),
    "to": lambda d: a.to(dtype=d),
    "arange": lambda d: weft.arange(3, dtype=d),
    "rand": lambda d: weft.rand(3, dtype=d),
    "full": lambda d: weft.full((2,), 1, dtype=d),
    "sum": lambda d: a.sum(dtype=d),
    "asarray": lambda d: weft.asarray([1], dtype=d),
    "view": lambda d: a.bitcast(d),
}


@pytest.mark.grid
@pytest.mark.parametrize(
    "dtype", ["float31", "complex64", "object", np.complex128, np.dtype("O"), "U5", 3.5, b"x", {}],
    ids=repr,
)  # fmt: skip
@pytest.mark.parametrize("name", DTYPES)
def test_unknown_dtype(name, dtype):
    make = DTYPES[name]

    def here():
        make(dtype)

    with pytest.raises(DTypeError) as caught:
        here()
    assert caught.value.found
    assert caught.value.expected
    assert caught.value.where.file == __file__


UNFIT_DTYPES = {
    "bitwise on floats": lambda: a & a,
    "invert floats": lambda: ~a,
    "shift floats": lambda: a << 1,
    "neg bool": lambda: -(a > 0),
    "sub bool": lambda: (a > 0) - (a > 0),
    "mean of ints": lambda: weft.arange(3).mean(),
    "gather by floats": lambda: a.gather(0, weft.zeros(1, 1)),
    "index by floats": lambda: a[weft.zeros(2)],
    "complex array": lambda: weft.tensor(np.array([1 + 2j])),
    "object array": lambda: weft.tensor(np.array([object()])),
    "text array": lambda: weft.tensor(np.array(["a"])),
    "dates": lambda: weft.tensor(np.array(["2020-01-01"], dtype="M8[D]")),
    "text": lambda: weft.tensor("abc"),
    "none": lambda: weft.tensor(None),
    "list of none": lambda: weft.tensor([None, 1]),
    "list of text": lambda: weft.tensor(["a", "b"]),
    "list of objects": lambda: weft.tensor([object()]),
    "complex": lambda: weft.tensor(1j),
    "list of complex": lambda: weft.tensor([1j]),
    "add text": lambda: a.add("x"),
    "add none": lambda: a.add(None),
    "add complex": lambda: a.add(np.array([1j])),
    "gradient of ints": lambda: weft.ones(2, dtype=weft.int64, requires_grad=True),
    "in-place widening": lambda: weft.ones(2, dtype=weft.int32).add_(1.5),
}


@pytest.mark.parametrize("name", UNFIT_DTYPES)
def test_type_that_an_operation_does_not_take(name):
    fails(DTypeError, UNFIT_DTYPES[name])


@pytest.mark.grid
@pytest.mark.parametrize("device", ["gpu", "cuda:0", "cpu:7", "", "cpu/none", 3, object(), b"cpu"],
                         ids=lambda d: d if isinstance(d, str) else type(d).__name__)  # fmt: skip
@pytest.mark.parametrize(
    "make",
    [lambda d: weft.zeros(2, device=d), lambda d: weft.tensor([1], device=d), lambda d: a.to(d),
     lambda d: weft.rand(2, device=d), lambda d: weft.arange(3, device=d),
     lambda d: a.to(device=d)],
    ids=["zeros", "tensor", "to", "rand", "arange", "to device"],
)  # fmt: skip
def test_unknown_device(make, device):
    with pytest.raises((DeviceError, DTypeError)) as caught:
        make(device)
    assert caught.value.found
    assert caught.value.expected
    assert caught.value.where.file == __file__


def test_known_devices():
    for name in ("cpu", "cpu:0", "auto", None):
        assert weft.zeros(2, device=name).to("cpu").device == "cpu"


# ---- gradients -----------------------------------------------------------------------------------


def leaf():
    return weft.ones(3, requires_grad=True)


GRADIENTS = {
    "non-scalar": (lambda: (leaf() * 2).backward(), "(3,)", "single element"),
    "no gradient": (lambda: a.sum().backward(), "requires no gradient"),
    "detached": (lambda: leaf().detach().sum().backward(), "requires no gradient"),
    "write to a leaf": (lambda: leaf().add_(1), "leaf", "no_grad"),
    "unused": (lambda: weft.grad(leaf().sum(), leaf()), "input 0"),
    "stop a computed one": (lambda: (leaf() * 2).requires_grad_(False), "leaf"),
}


@pytest.mark.parametrize("name", GRADIENTS)
def test_gradient_where_there_is_none(name):
    call, *parts = GRADIENTS[name]
    fails(GradientError, call, *parts)


def test_no_grad_records_nothing():
    with weft.no_grad():
        y = leaf().sum()
    fails(GradientError, lambda: y.backward(), "no gradient")


def test_gradient_of_another_shape():
    fails(ShapeError, lambda: (leaf() * 2).backward(weft.ones(4)), "(4,)", "(3,)")


def test_second_backward_adds_again():
    x = leaf()
    y = (x * x).sum()
    y.backward()
    y.backward()
    assert x.grad.tolist() == [4, 4, 4]


def test_failed_backward_leaves_gradients_alone():
    x = leaf()
    (x * 3).sum().backward()
    with pytest.raises(GradientError):
        (x * 3).backward()
    assert x.grad.tolist() == [3, 3, 3]


# ---- variables -----------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [0, 17, -1, 2**62])
def test_variable_out_of_bounds(value):
    node = host.leaf(weft.arange(16, dtype=weft.float32).realize()._storage(), (16,))
    n = ex.Variable("n", 1, 16)
    part = infer.reduce(infer.slice_(node, (0,), (n,)), "sum", (0,))
    error = fails(
        VariableError, lambda: driver.realize([part], {"n": value}), f"n = {value}", "1 to 16"
    )
    assert isinstance(error, ValueError)
    (done,) = driver.realize([part], {"n": 4})
    assert host.view(host.leaf_storage(done).buffer, weft.float32, (1,), False)[0] == 6


def test_variable_without_a_value():
    from weft import driver
    node = host.leaf(weft.arange(16, dtype=weft.float32).realize()._storage(), (16,))
    part = infer.reduce(infer.slice_(node, (0,), (ex.Variable("n", 1, 16),)), "sum", (0,))
    fails(VariableError, lambda: driver.realize([part]), "no value for n")


def test_variable_with_impossible_bounds():
    fails(VariableError, lambda: weft.Variable("n", 5, 4), "5", "4")


# ---- reading values ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["bool", "item", "int", "float", "complex", "index"])
def test_one_value_of_many(name):
    calls = {
        "bool": lambda: bool(a),
        "item": lambda: a.item(),
        "int": lambda: int(a),
        "float": lambda: float(a),
        "complex": lambda: complex(a),
        "index": lambda: [0][ints],
    }
    fails(ShapeError, calls[name], "12 elements", "(3, 4)", "one element")


def test_if_of_many():
    def here():
        if a > 1:
            raise AssertionError

    fails(ShapeError, here, "any()")


def test_length_and_iteration_of_a_scalar():
    fails(ShapeError, lambda: len(weft.ones(())), "len()")
    fails(ShapeError, lambda: list(weft.ones(())), "iteration")


READS = {
    "item": lambda x: x.sum().item(),
    "bool": lambda x: bool(x.sum()),
    "if": lambda x: 1 if x.sum() > 0 else 2,
    "float": lambda x: float(x.sum()),
    "int": lambda x: int(x.sum()),
    "index": lambda x: [1, 2, 3][x.sum().long()],
    "complex": lambda x: complex(x.sum()),
    "numpy": lambda x: x.numpy(),
    "asarray": lambda x: np.asarray(x),
    "tolist": lambda x: x.tolist(),
    "dlpack": lambda x: x.__dlpack__(),
    "contains": lambda x: 1.0 in x,
    "format": lambda x: f"{x.sum():.2f}",
    "allclose": lambda x: weft.allclose(x, x),
    "nonzero": lambda x: x.nonzero(),
    "unique": lambda x: x.unique(),
    "mask": lambda x: x[x > 0],
    "masked_select": lambda x: x.masked_select(x > 0),
}


@pytest.mark.parametrize("name", READS)
def test_value_read_in_a_capture(name):
    read = READS[name]
    outside = weft.zeros(3)
    generator_before = weft.get_rng_state() if hasattr(weft, "get_rng_state") else None
    x = weft.ones(3)
    w = weft.ones(3, requires_grad=True)

    @weft.jit
    def f(x):
        outside.add_(1)
        weft.rand(3)
        (w * x).sum().backward()
        return read(x * 2) and x

    with pytest.raises(CaptureError) as caught:
        f(x)
    error = caught.value
    assert error.found
    assert error.expected
    assert error.hint
    assert error.where.file == __file__
    assert error.where.line == read.__code__.co_firstlineno
    # everything is as it was, and the process computes on
    assert outside.tolist() == [0, 0, 0]
    assert w.grad is None
    assert (x + 1).tolist() == [2, 2, 2]
    assert f.captures == 0
    if generator_before is not None:
        assert weft.get_rng_state() == generator_before


def test_printing_and_length_in_a_capture():
    seen = []

    @weft.jit
    def f(x):
        seen.extend([repr(x + 1), len(x), x.shape, x.dtype, x.ndim, x.numel(), bool(x.shape)])
        return x + 1

    assert f(weft.ones(3)).tolist() == [2, 2, 2]
    assert seen[1:] == [3, (3,), weft.float32, 1, 3, True]
    assert seen[0] == "tensor(<float32[3], captured>)"


def test_any_error_in_a_capture_restores_the_state():
    outside = weft.zeros(2)
    weft.manual_seed(3)

    @weft.jit
    def f(x):
        with weft.no_grad():
            outside.mul_(0).add_(5)
            weft.randn(4)
            raise KeyError("the user's own")

    for _ in range(2):
        with pytest.raises(KeyError, match="the user's own"):
            f(weft.ones(2))
    assert outside.tolist() == [0, 0]
    assert weft.is_grad_enabled()
    first = weft.rand(3).tolist()
    weft.manual_seed(3)
    assert weft.rand(3).tolist() == first


def test_tensor_kept_from_a_capture():
    kept = []

    @weft.jit
    def f(x):
        kept.append(x + 1)
        return x * 2

    assert f(weft.ones(2)).tolist() == [2, 2]
    fails(CaptureError, lambda: kept[0].numpy(), "return it")


def test_axis_error_is_both_of_its_builtins():
    for builtin in (IndexError, ValueError, AxisError):
        with pytest.raises(builtin):
            a.sum(5)
