"""Each parameter of a kernel has one array: values read in several shapes, drawn programs."""

import random

import numpy as np
import pytest

import weft
from graphs import el, full, leaf
from weft.errors import VerifyError
from weft.ir import dtype as dt
from weft.ir import infer
from weft.ir.node import Node
from weft.ir.op import Op
from weft.kernelize.build import kernelize


def _draw(rng: random.Random) -> tuple[weft.Tensor, list[weft.Tensor]]:
    """Return a matrix and values that read one expensive row of it in several shapes."""
    rows, columns = rng.choice([(8, 9), (3, 5), (16, 33), (5, 64), (7, 1)])
    data = np.random.default_rng(rng.randrange(1 << 30)).random((rows, columns), np.float32)
    y = weft.tensor(data + np.float32(0.25))
    row = rng.choice([
        lambda: 1 - y.median(0)[0], lambda: y.sum(0).exp(), lambda: y.max(0)[0].sigmoid() * 2,
        lambda: y[rng.randrange(rows)].exp() + 1, lambda: y.mean(0).sqrt().log(),
        lambda: y.cumsum(0)[rows - 1].tanh(),
    ])()  # fmt: skip
    found = []
    for _ in range(rng.randint(2, 4)):
        lead = rng.choice([(), (1,), (1, 1), (1, 1, 1)])
        seen = row.reshape(*lead, columns)
        found.append(rng.choice([
            lambda s=seen: s * weft.stack([y - row, y]), lambda s=seen: y - s,
            lambda s=seen: (y * s).softmax(-1), lambda s=seen: (y + s).sum(-1),
            lambda s=seen: s.expand(4, *[1] * (s.ndim - 1), columns) + y[0] if s.ndim > 1 else s,
            lambda s=seen: y.T @ (y * s),
        ])())  # fmt: skip
    return y, found


@pytest.mark.grid
@pytest.mark.parametrize("seed", range(4))
def test_values_in_several_shapes(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(8):
        state = rng.getstate()
        _, together = _draw(rng)
        weft.realize(*together)
        rng.setstate(state)
        _, alone = _draw(rng)
        for a, b in zip(together, alone, strict=True):
            np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=2e-5, atol=2e-6)


def test_two_shapes_of_one_value_are_stored_once() -> None:
    """The loop of the report, in which the second shape took the place of the result."""
    for _ in range(20):
        values = np.random.default_rng(0).random((8, 9), np.float32)
        y = weft.tensor(values)
        q = 1 - y.median(0)[0]
        row = 1 - np.sort(values, 0)[3]
        np.testing.assert_allclose((q * weft.stack([y - q, y])).numpy(),
                                   row * np.stack([values - row, values]), rtol=1e-5, atol=1e-7)


def test_no_reshape_is_stored_beside_its_base() -> None:
    row = el(Op.EXP, leaf(1, 9))
    wide = [infer.expand(infer.reshape(row, shape), (8, 9)) for shape in ((9,), (1, 9))]
    deep = infer.expand(infer.reshape(row, (1, 1, 9)), (2, 8, 9))
    outputs = [el(Op.ADD, *wide), el(Op.MUL, deep, deep)]
    for step in kernelize(outputs):
        assert not any(n.op is Op.RESHAPE for n in (*step.inputs, *step.outputs))


def test_a_launch_with_an_array_too_many_is_refused() -> None:
    x = leaf(4, 4)
    (step,) = kernelize([el(Op.ADD, x, full(x, 1.0))])
    with pytest.raises(VerifyError, match="3 arrays"):
        step.replace(inputs=(x, x)).verify()


@pytest.mark.parametrize("other", [leaf(4, 5), leaf(4, 4, dtype=dt.int32)])
def test_a_launch_with_another_array_is_refused(other: Node) -> None:
    x = leaf(4, 4)
    (step,) = kernelize([el(Op.ADD, x, full(x, 1.0))])
    with pytest.raises(VerifyError, match="for in0"):
        step.replace(inputs=(other,)).verify()
