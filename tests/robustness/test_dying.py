"""Objects die without Python code being run: an exception there, say Ctrl-C's, is lost."""

import sys

import numpy as np
import pytest

import weft
from weft import nn


def leaf():
    return weft.rand(8, 8).realize()


def recorded():
    x = weft.rand(8, 8, requires_grad=True)
    return x, (x.exp() * x).softmax(1).sum()


def differentiated():
    x, loss = recorded()
    loss.backward()
    return x, loss, x.grad


def views():
    x = weft.rand(8, 8)
    y = x[1:].reshape(-1)
    y.add_(1)
    y.realize()
    return x, y, x.T.detach()


def shared():
    x = weft.from_numpy(np.ones((4, 4), np.float32))
    y = x.view(-1)
    y.mul_(2)
    x.realize()
    return x, y


def symbolic():
    n = weft.Variable("n", 1, 64)
    return weft.rand(64)[:n].cumsum(0).flip(0)


def indexed():
    x = weft.arange(12).reshape(3, 4)
    return x[weft.tensor([0, -1])], x.sort(1), x.argmax(0), x.gather(1, x % 4), weft.cat([x, x])


def stepped():
    layer = nn.Linear(4, 4)
    optimizer = weft.optim.Adam(layer.parameters())
    layer(weft.rand(2, 4)).sum().backward()
    optimizer.step()
    return layer, optimizer, [p.realize() for p in layer.parameters()]


def hooked():
    x = weft.rand(4, requires_grad=True)
    x.register_hook(abs)
    y = x * 2
    y.register_hook(abs)
    return x, y


def captured():
    @weft.jit
    def step(x):
        return (x * 2).sum(0), x[1:]

    return [step(weft.rand(n, 3)) for n in (4, 4, 5, 6, 7)]


MADE = [leaf, recorded, differentiated, views, shared, symbolic, indexed, stepped, hooked, captured]


@pytest.mark.parametrize("make", MADE, ids=[m.__name__ for m in MADE])
def test_no_python_code_runs(make):
    make()  # compiles, so that what is noted below dies, and nothing else
    called = []

    def note(frame, event, argument):
        if event == "call":
            called.append(f"{frame.f_code.co_filename}:{frame.f_code.co_qualname}")

    held = make()
    sys.setprofile(note)
    try:
        del held
    finally:
        sys.setprofile(None)
    # The one that is left, until the code of native calls is loaded, which has another.
    assert [c for c in called if not c.endswith(":Buffer.__del__")] == []
