"""The front end's tables beside PyTorch, compiled: its own tests run them on the oracle."""

import itertools
import math

import numpy as np
import pytest
from values import assert_same, special

import weft
from tensors.ops.test_against_torch import (
    ACTIVATIONS,
    BINARY,
    CONVOLUTIONS,
    EXPRESSIONS,
    UNARY,
    check,
    functional,
    pair,
    sample,
)
from weft.ir import dtype as dt
from weft.ir import infer
from weft.ir import node as nd

TORCH_TYPES = ("bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16",
               "float32", "float64")  # fmt: skip


@pytest.mark.grid
@pytest.mark.requires("torch")
@pytest.mark.parametrize("shape", [(4, 5), (17, 33)], ids=str)
@pytest.mark.parametrize("name", UNARY)
def test_unary(name, shape, device):
    import torch

    x, y = pair(sample(shape, low=-2.0, high=2.0) if name != "prod" else sample(shape) / 2)
    args = (0,) if name in ("cumsum", "cumprod", "logcumsumexp") else ()
    other = getattr(y, name, None) or (lambda *a: getattr(torch, name)(y, *a))
    check(getattr(x, name)(*args), other(*args), 2e-4, 2e-5)


@pytest.mark.requires("torch")
@pytest.mark.parametrize("name", BINARY)
def test_binary(name, device):
    import torch

    a, b = sample((4, 1, 35)), sample((3, 1), 1)
    b[0] = abs(b[0]) + 0.5
    check(getattr(weft, name)(weft.tensor(a), weft.tensor(b)),
          getattr(torch, name)(torch.tensor(a), torch.tensor(b)), 1e-4, 1e-5)  # fmt: skip


@pytest.mark.grid
@pytest.mark.requires("torch")
@pytest.mark.parametrize("name", EXPRESSIONS)
def test_expression(name, device):
    import torch

    x, y = pair(sample())
    tolerance = (8e-3, 8e-3) if name in ("half", "casts") else (1e-4, 1e-5)
    check(EXPRESSIONS[name](weft, x), EXPRESSIONS[name](torch, y), *tolerance)


@pytest.mark.grid
@pytest.mark.requires("torch")
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_functional(name, device):
    import torch

    x, y = pair(sample())
    check(ACTIVATIONS[name](functional(weft), x), ACTIVATIONS[name](functional(torch), y),
          1e-4, 1e-5)  # fmt: skip


@pytest.mark.grid
@pytest.mark.requires("torch")
@pytest.mark.parametrize("options", CONVOLUTIONS, ids=str)
@pytest.mark.parametrize("groups", [1, 2])
def test_conv2d(options, groups, device):
    import torch

    x, y = pair(sample((2, 4, 7, 8)))
    w, v = pair(sample((6, 4 // groups, 3, 2), 1))
    b, c = pair(sample((6,), 2))
    check(x.conv2d(w, b, groups=groups, **options),
          torch.nn.functional.conv2d(y, v, c, groups=groups, **options), 1e-4, 1e-4)  # fmt: skip


@pytest.mark.parametrize("a", dt.ALL, ids=lambda d: d.name)
def test_promotion_of_all_pairs(a, device):
    """Operands meet in the promoted type: values there are those of casting first."""
    x = weft.tensor(np.array([1, 0, 1, 1]).astype(a.numpy))
    results, wanted = [], []
    for b in dt.ALL:
        y = weft.tensor(np.array([1, 1, 0, 1]).astype(b.numpy))
        meet = dt.promote(a, b)
        assert meet is dt.promote(b, a)
        assert weft.result_type(x, y) == meet
        meet = dt.float32 if meet.is_storage_only else meet  # 8-bit floats only store
        product = x * y
        assert product.dtype == meet, (a, b)
        assert (y * x).dtype == meet, (a, b)
        assert (x / y).dtype.is_float
        assert (x < y).dtype == dt.bool_
        results.append(product)
        wanted.append(np.array([1, 0, 0, 1]).astype(meet.numpy))
    weft.realize(*results)
    for found, want in zip(results, wanted, strict=True):
        assert_same(found.numpy(), want)


@pytest.mark.requires("torch")
@pytest.mark.parametrize("a", TORCH_TYPES)
def test_promotion_is_pytorchs(a, device):
    import torch

    def both(name, shape):
        return (weft.ones(*shape, dtype=getattr(weft, name)),
                torch.ones(shape, dtype=getattr(torch, name)))  # fmt: skip

    operators = {
        "*": lambda x, y: x * y, "<": lambda x, y: x < y, "/": lambda x, y: x / y,
        "where": lambda x, y: (weft if isinstance(x, weft.Tensor) else torch).where(x == x, x, y),
        "max": lambda x, y: (weft if isinstance(x, weft.Tensor) else torch).maximum(x, y),
        "cat": lambda x, y: (weft if isinstance(x, weft.Tensor) else torch).cat(
            [x.reshape(-1), y.reshape(-1)]),
    }  # fmt: skip
    ranks = (((2,), (2,)), ((), (2,)), ((2,), ()), ((), ()))
    for b, shapes in itertools.product(TORCH_TYPES, ranks):
        (x, u), (y, v) = both(a, shapes[0]), both(b, shapes[1])
        for name, operator in operators.items():
            if name == "cat" and shapes != ((2,), (2,)):
                continue
            found, expected = operator(x, y), operator(u, v)
            assert found.dtype.name == str(expected.dtype)[6:], (name, a, b, shapes)
    x, u = both(a, (2,))
    for scalar in (True, 2, -1, 2.0, math.inf):
        if a == "uint8" and scalar == -1:
            continue  # the value does not fit, which PyTorch wraps and Weft refuses
        for name, operator in (("+", lambda t, s: t + s), ("*", lambda t, s: s * t),
                               ("/", lambda t, s: t / s), ("**", lambda t, s: t**s)):
            if name == "**" and (a == "bool" or scalar is True or scalar == -1):
                continue
            found, expected = operator(x, scalar), operator(u, scalar)
            assert found.dtype.name == str(expected.dtype)[6:], (name, a, scalar)


@pytest.mark.requires("torch")
def test_numpy_scalars_keep_their_type(device):
    import torch

    for value in (np.float64(1.3), np.float32(2), np.float16(2), np.int32(3), np.bool_(True),
                  np.uint8(7), [np.float64(1.3)], [np.int8(3), np.int8(4)], [[np.float32(1)]],
                  [True, False], [1, 2.5]):  # fmt: skip
        found, expected = weft.tensor(value), torch.tensor(value)
        assert found.dtype.name == str(expected.dtype)[6:], value
        np.testing.assert_array_equal(found.numpy(), expected.numpy())


def test_views_of_memory_of_others(device):
    """Arrays of any strides and alignment come in by value or by reference, and go out."""
    raw = np.arange(4099 * 4 + 1, dtype=np.uint8)
    shifted = raw[1:].view(np.float32)  # misaligned
    base = np.arange(6 * 7 * 5, dtype=np.float32).reshape(6, 7, 5)
    arrays = [shifted, base[::-1], base[:, ::-2], base.transpose(2, 0, 1), base[1:4, 2:, ::3],
              np.broadcast_to(base[:1], (4, 7, 5)), base[:, :0], np.asfortranarray(base),
              base.astype(">f4"), base[2, 3, 4]]  # fmt: skip
    for array in arrays:
        made = [weft.tensor(array), weft.asarray(array)]
        for t in made:
            native = np.asarray(array).astype(np.float32)
            assert_same(np.asarray((t.bitcast(weft.int32) ^ 0).numpy()), native.view(np.int32)
                        if native.ndim else native.reshape(1).view(np.int32).reshape(()))


def test_special_values_come_out_as_they_went_in(device):
    for d in dt.ALL:
        values = special(d)
        assert_same(weft.tensor(values).numpy(), values)
        raw = np.array(weft.tensor(values).clone().numpy())
        assert_same(raw, values)


def test_a_view_of_a_constant_is_realized(device):
    zero = infer.full((3,), 0, dt.int32)
    (made,) = device.compute(infer.contiguous(zero))
    assert made.tolist() == [0, 0, 0]
    assert device.compute(nd.const(7, dt.int64))[0] == 7
    assert device.compute(infer.iota(5))[0].tolist() == [0, 1, 2, 3, 4]
