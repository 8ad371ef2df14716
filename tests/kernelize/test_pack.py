"""What flags choose of a row: every length of blocks and vectors, types, shares, both forms."""

import numpy as np
import pytest

import weft
from seeds import seeds
from weft.errors import DTypeError, ShapeError
from weft.ir import dtype as dt
from weft.ir import infer
from weft.ir import node as nd
from weft.kernelize.sorting import pack

KINDS = ("bool", "int8", "uint16", "float16", "int32", "float32", "int64", "float64")
SHARES = (0.0, 0.002, 0.1, 0.5, 0.98, 1.0)
BLOCK = pack.SIZE


def check(rng, n):
    for share in SHARES:
        flags = rng.random(n) < share
        for kind in KINDS:
            x = rng.integers(-300, 300, n).astype(kind)
            got = weft.from_numpy(x)[weft.from_numpy(flags)]
            np.testing.assert_array_equal(got.numpy(), x[flags], strict=True)
        places = weft.from_numpy(flags).nonzero(as_tuple=True)[0].numpy()
        np.testing.assert_array_equal(places, np.flatnonzero(flags), strict=True)


@pytest.mark.grid
@pytest.mark.parametrize("seed", seeds(2))
@pytest.mark.parametrize("low", [1, 60, 1000, BLOCK, 4 * BLOCK - 40, 4 * BLOCK, 5 * BLOCK])
def test_chosen_in_order(low, seed):
    rng = np.random.default_rng(seed)
    check(rng, int(rng.integers(low, low + 70)))


@pytest.mark.grid
@pytest.mark.parametrize("n", [3, 1021, 1025, 4 * BLOCK - 3, 4 * BLOCK + 1, 6 * BLOCK + 77])
@pytest.mark.parametrize("seed", seeds(1))
def test_without_packing_lanes(monkeypatch, n, seed):
    monkeypatch.setattr(pack, "_packs", lambda target, d: False)
    check(np.random.default_rng(seed), n)


@pytest.mark.parametrize("seed", seeds(2))
def test_operands_of_every_layout(seed):
    rng = np.random.default_rng(seed)
    shape = tuple(rng.integers(2, 60, 2))
    x, flags = rng.integers(-9, 9, shape).astype("float32"), rng.random(shape) < 0.4
    ours, marks = weft.tensor(x), weft.tensor(flags)
    for got, want in ((ours.T[marks.T], x.T[flags.T]), (ours.flip(0)[marks], x[::-1][flags]),
                      (ours[:, ::2][marks[:, ::2]], x[:, ::2][flags[:, ::2]]),
                      (ours.sort(1)[0][~marks], np.sort(x, 1)[~flags]),
                      (weft.full(shape, 2.0)[marks], np.full(shape, 2, "float32")[flags]),
                      (ours[weft.full(shape, True, dtype=weft.bool)], x.ravel())):
        np.testing.assert_array_equal(got.numpy(), want)


@pytest.mark.grid
@pytest.mark.parametrize("shape", [(1, 1), (31, 45), (3, 7, 50), (2, 3, 4, 5), (300, 301)])
@pytest.mark.parametrize("seed", seeds(2))
def test_places_by_axis(shape, seed):
    rng = np.random.default_rng(seed)
    for share in SHARES:
        flags = rng.random(shape) < share
        got = weft.tensor(flags).nonzero()
        np.testing.assert_array_equal(got.numpy(), np.argwhere(flags), strict=True)
        for mine, want in zip(weft.tensor(flags).nonzero(as_tuple=True), np.nonzero(flags),
                              strict=True):
            np.testing.assert_array_equal(mine.numpy(), want, strict=True)


@pytest.mark.parametrize("value", [True, False])
def test_places_without_axes(value):
    assert weft.tensor(value).nonzero().shape == np.argwhere(np.asarray(value)).shape
    assert weft.tensor(value).nonzero(as_tuple=True) == ()
    assert [x.shape for x in weft.zeros(0, 3).nonzero(as_tuple=True)] == [(0,), (0,)]


def test_another_count_compiles_little():
    """Of a thousand counts each would otherwise compile its own kernel."""
    rng = np.random.default_rng(0)
    flags = [rng.random((37, 41)) < share for share in np.linspace(0.55, 0.9, 12)]
    weft.tensor(flags[0]).nonzero()
    for mine in flags[1:]:
        np.testing.assert_array_equal(weft.tensor(mine).nonzero().numpy(), np.argwhere(mine))


def test_operands_that_do_not_fit():
    row = infer.iota(4)
    with pytest.raises(ShapeError):
        infer.pack(row, infer.full((5,), True, dt.bool_))
    with pytest.raises(DTypeError):
        infer.pack(row, row)
    assert infer.pack(row, infer.full((4,), True, dt.bool_))[1].shape == ()
    assert isinstance(row, nd.Node)
