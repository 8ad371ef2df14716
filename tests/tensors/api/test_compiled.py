"""The front end on the real compiler: training, views and errors end to end."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import weft
from weft import nn

pytestmark = pytest.mark.usefixtures("compiled")


def train(jitted, steps=5):
    weft.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Dropout(0.1),
        nn.Linear(64, 10),
    )
    optimizer = weft.optim.AdamW(net.parameters(), lr=1e-2)
    rng = np.random.default_rng(0)
    x = weft.tensor(rng.normal(size=(6, 1, 8, 8)).astype(np.float32))
    y = weft.tensor(rng.integers(0, 10, 6))

    def step(x, y):
        optimizer.zero_grad()
        loss = net(x).cross_entropy(y)
        loss.backward()
        optimizer.step()
        return loss

    function = weft.jit(step) if jitted else step
    return [function(x, y).item() for _ in range(steps)]


@pytest.mark.slow
def test_training_captured_and_not():
    eager, captured = train(False), train(True)
    np.testing.assert_allclose(eager, captured, 1e-4)
    assert captured[-1] < captured[0]


@pytest.mark.slow
def test_the_same_numbers_in_every_process_and_thread_count():
    import os
    import subprocess
    import sys

    script = (
        "import weft; weft.manual_seed(5);"
        "print(weft.randn(1001).sum().item(), weft.rand(3).tolist(), weft.randperm(5).tolist())"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", script],
            env={**os.environ, "WEFT_NUM_THREADS": n, "PYTHONPATH": os.pathsep.join(sys.path)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for n in ("1", "2")
    }
    assert len(outputs) == 1


@st.composite
def keys(draw, shape):
    items = []
    for n in shape:
        kind = draw(st.sampled_from(["all", "slice", "int", "none"]))
        if kind == "none":
            items.append(None)
        if kind == "int" and n:
            items.append(draw(st.integers(-n, n - 1)))
        elif kind == "slice":
            bound = st.one_of(st.none(), st.integers(-n - 2, n + 2))
            step = draw(st.sampled_from([None, 1, 2, 3, -1, -2]))
            items.append(slice(draw(bound), draw(bound), step))
        else:
            items.append(slice(None))
    return tuple(items)


@st.composite
def moves(draw):
    """Return a few steps of views; each is (name, argument), made for the shape it meets."""
    shape, out = (3, 4, 2), []
    x = np.zeros(shape)
    for _ in range(draw(st.integers(1, 3))):
        if draw(st.booleans()) and x.ndim:
            key = draw(keys(x.shape))
            out.append(("index", key))
            x = x[key]
        else:
            axes = tuple(draw(st.permutations(range(x.ndim))))
            out.append(("permute", axes))
            x = x.transpose(axes)
    return out


def walk(x, steps):
    for name, argument in steps:
        if name == "index":
            x = x[argument]
        else:
            x = x.permute(argument) if isinstance(x, weft.Tensor) else x.transpose(argument)
    return x


@settings(max_examples=40, deadline=None)
@given(moves(), st.booleans())
def test_writes_through_any_view(steps, realized):
    array = np.arange(24, dtype=np.float32).reshape(3, 4, 2)
    x = weft.tensor(array.copy())
    mine, theirs = walk(x, steps), walk(array, steps)
    if realized:
        mine.realize()
    np.testing.assert_array_equal(mine.numpy(), theirs)
    if not isinstance(theirs, np.ndarray):  # a NumPy scalar is a copy
        return
    mine.mul_(2).add_(1)
    theirs *= 2
    theirs += 1
    np.testing.assert_array_equal(x.numpy(), array)


def test_errors_of_data_name_the_line():
    x = weft.ones(3, requires_grad=True)
    with pytest.raises(weft.BoundsError) as caught:
        (x[weft.tensor([3])] * 2).sum().item()
    assert caught.value.where.file == __file__
    assert (x * 2).sum().item() == 6.0


def test_more_than_memory():
    with pytest.raises(weft.AllocationError):
        weft.zeros(1 << 45).realize()
    assert weft.ones(4).sum().item() == 4.0
