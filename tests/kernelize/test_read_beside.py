"""Values that are results beside what reads them are written whole, and read where they are."""

import itertools

import numpy as np
import pytest

import weft

RNG = np.random.default_rng(20)
SHAPES = ((8, 8), (5, 9), (3, 4, 6))
PARTS = {  # what is 0, or the filling, for some positions
    "pad": lambda x: (weft.nn.functional.pad(x, (2, 1)), lambda a: np.pad(
        a, [*[(0, 0)] * (a.ndim - 1), (2, 1)])),
    "pad rows": lambda x: (weft.nn.functional.pad(x, (0, 0, 3, 2)), lambda a: np.pad(
        a, [*[(0, 0)] * (a.ndim - 2), (3, 2), (0, 0)])),
    "where": lambda x: (weft.where(weft.arange(x.shape[-1]) < 3, x, 0.0), lambda a: np.where(
        np.arange(a.shape[-1]) < 3, a, 0)),
    "where row": lambda x: (weft.where(weft.arange(x.shape[-2])[:, None] >= 2, x, 0.0),
                            lambda a: np.where(np.arange(a.shape[-2])[:, None] >= 2, a, 0)),
    "tril": lambda x: (x.tril(), np.tril),
    "triu": lambda x: (x.triu(1), lambda a: np.triu(a, 1)),
}
SUMS = {
    "sum": (lambda t, d: t.sum(d), lambda a, d: a.sum(d)),
    "mean": (lambda t, d: t.mean(d), lambda a, d: a.mean(d)),
    "squares": (lambda t, d: (t * t).sum(d), lambda a, d: (a * a).sum(d)),
    "both": (lambda t, d: t.sum(d) + t.sum(), lambda a, d: a.sum(d) + a.sum()),
}


def poison(count):
    """Leave memory behind in which every element is 7.7."""
    arrays = [weft.full((count,), 7.7) for _ in range(3)]
    weft.realize(*arrays)


@pytest.mark.grid
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_masked_values_beside_their_sums(shape):
    array = RNG.random(shape, np.float32) + 1
    for (part, make), (name, (add, wanted)) in itertools.product(PARTS.items(), SUMS.items()):
        for axis in range(-2, 0):
            masked, expected = make(weft.tensor(array))
            total = add(masked, axis)
            expected = expected(array)
            poison(expected.size)
            weft.realize(masked, total)
            what = f"{part}, {name} over {axis}"
            np.testing.assert_array_equal(masked.numpy(), expected, err_msg=what)
            np.testing.assert_allclose(total.numpy(), wanted(expected, axis), 1e-5, err_msg=what)


MOVED = {
    "diff": (lambda t: weft.diff(t, dim=1), lambda a: np.diff(a, axis=1)),
    "flip": (lambda t: t + t.flip(1), lambda a: a + a[:, ::-1]),
    "roll": (lambda t: t - t.roll(1, 1), lambda a: a - np.roll(a, 1, 1)),
    "slices": (lambda t: t[:, 2:] * t[:, :-2], lambda a: a[:, 2:] * a[:, :-2]),
    "steps": (lambda t: t[:, ::2] - t[:, 1::2], lambda a: a[:, ::2] - a[:, 1::2]),
    "twice": (lambda t: t + t.roll(1, 1) * t.roll(2, 1),
              lambda a: a + np.roll(a, 1, 1) * np.roll(a, 2, 1)),
}
CENTRED = {
    "sum": (lambda t: t - t.sum(1, keepdim=True), lambda a: a - a.sum(1, keepdims=True)),
    "softmax": (lambda t: t.softmax(1), lambda a: (e := np.exp(a - a.max(1, keepdims=True)))
                / e.sum(1, keepdims=True)),
    "flipped": (lambda t: t.softmax(1).flip(1), lambda a: ((
        e := np.exp(a - a.max(1, keepdims=True))) / e.sum(1, keepdims=True))[:, ::-1]),
    "deviation": (lambda t: (t - t.mean(1, keepdim=True)) / t.std(1, keepdim=True),
                  lambda a: (a - a.mean(1, keepdims=True)) / a.std(1, ddof=1, keepdims=True)),
}


@pytest.mark.grid
@pytest.mark.parametrize("costly", ["exp", "sigmoid", "tanh"])
def test_values_kept_at_several_indices_of_a_row(costly):
    """A buffer holds a value at one index; at another the value is computed."""
    array = RNG.random((3, 8), np.float32)
    numbers = {"exp": np.exp, "tanh": np.tanh, "sigmoid": lambda a: 1 / (1 + np.exp(-a))}
    for move, (name, (centre, wanted)) in itertools.product(MOVED.values(), CENTRED.items()):
        value = getattr(weft.tensor(array), costly)()
        moved = move[0](value)
        result = centre(moved)
        expected = [numbers[costly](array)]
        expected.append(move[1](expected[0]))
        expected.append(wanted(expected[1]))
        poison(array.size)
        weft.realize(value, moved, result)
        for got, want in zip((value, moved, result), expected, strict=True):
            np.testing.assert_allclose(got.numpy(), want, 2e-5, 2e-6, err_msg=name)


@pytest.mark.parametrize("sizes", [(64, 64, 64, 64), (64, 32, 10, 5), (16, 8, 24, 16, 8, 12)],
                         ids=str)
def test_a_softmax_between_each_two_products(sizes):
    """The result of one attention is no score of another: that one is computed in parts."""
    steps = list(itertools.pairwise(sizes))
    arrays = [RNG.random(s, np.float32) / 4 for s in steps]
    x = RNG.random((9, sizes[0]), np.float32)
    same = len(set(sizes)) == 1
    for shared in (False, True)[:1 + same]:
        weights = arrays[:1] * len(arrays) if shared else arrays
        tensors = [weft.tensor(w) for w in weights]
        y, expected = weft.tensor(x) @ tensors[0], x @ weights[0]
        for w, array in zip(tensors[1:], weights[1:], strict=True):
            y = y.softmax(-1) @ w
            e = np.exp(expected - expected.max(-1, keepdims=True))
            expected = e / e.sum(-1, keepdims=True) @ array
        np.testing.assert_allclose(y.numpy(), expected, 1e-4)
