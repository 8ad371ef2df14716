"""What is no view has no part in memory of NumPy, however it was copied from there."""

import copy

import numpy as np
import pytest

import weft

pytestmark = pytest.mark.usefixtures("compiled")


def zeros(x):
    return weft.zeros(*x.shape, dtype=x.dtype)


def written(x):
    y = zeros(x)
    y[:] = x
    return y


def data(x):
    y = zeros(x)
    y.data = x
    return y


def parameter(x):
    p = weft.nn.Parameter(zeros(x))
    with weft.no_grad():
        p.copy_(x)
    return p


def gradient(x):
    w = weft.ones(3, 4, requires_grad=True)
    (w * x).sum().backward()
    return w.grad


COPIES = {  # made at once
    "clone": lambda x: x.clone(),
    "detached": lambda x: x.detach().clone(),
    "part": lambda x: x[:2].clone(),
    "turned": lambda x: x.T.clone().T,
    "deepcopy": copy.deepcopy,
    "tensor": weft.tensor,
}
COMPUTED = {
    "written": written,
    "data": data,
    "parameter": parameter,
    "gradient": gradient,
    "copy_": lambda x: zeros(x).copy_(x),
    "one": lambda x: x * 1,
    "power": lambda x: x ** 1,
    "cat": lambda x: weft.cat([x]),
    "stack": lambda x: weft.stack([x])[0],
    "to": lambda x: x.to(x.dtype, copy=True),
    "sum": lambda x: x.unsqueeze(0).sum(0),
    "where": lambda x: weft.where(weft.tensor(True), x, 0.0),
}  # fmt: skip


@pytest.mark.parametrize("learned", [False, True])
@pytest.mark.parametrize("made", [*COPIES, *COMPUTED])
@pytest.mark.parametrize("looked_at", [False, True])
def test_a_write_does_not_reach_it(made, learned, looked_at):
    array = np.arange(1, 13, dtype=np.float32).reshape(3, 4)
    x, old = weft.from_numpy(array).requires_grad_(learned), array.copy()
    y = {**COPIES, **COMPUTED}[made](x)
    if looked_at:
        y.detach().tolist()
    with weft.no_grad():
        x.mul_(-1)
    assert y.tolist() == old[: len(y)].tolist()
    if looked_at or made in COPIES:
        array[:] = 0  # NumPy writes
        assert y.tolist() == old[: len(y)].tolist()
    if y.requires_grad and not y.is_leaf:
        y.sum().backward()
        assert x.grad[:2].tolist() == [[1] * 4] * 2


@pytest.mark.parametrize("made", COPIES)
def test_numpy_writes_before_anybody_looks(made):
    array = np.arange(1, 13, dtype=np.float32).reshape(3, 4)
    y, old = COPIES[made](weft.from_numpy(array)), array.copy()
    array[:] = 0
    assert y.tolist() == old[: len(y)].tolist()


@pytest.mark.parametrize("made", [*COPIES, *COMPUTED])
def test_its_writes_do_not_reach_the_memory(made):
    array = np.arange(1, 13, dtype=np.float32).reshape(3, 4)
    y, old = {**COPIES, **COMPUTED}[made](weft.from_numpy(array)).realize(), array.copy()
    with weft.no_grad():
        y.zero_()
    y.realize()
    assert array.tolist() == old.tolist()
