"""Optimisers keep what they need where parameters are, whatever the default device is."""

import inspect

import numpy as np
import pytest

import far_devices
import weft
from weft import optim

pytestmark = pytest.mark.usefixtures("compiled")
OPTIMIZERS = [name for name, made in inspect.getmembers(optim, inspect.isclass)
              if issubclass(made, optim.Optimizer) and made is not optim.Optimizer]  # fmt: skip


def _losses(name, place):
    p = weft.nn.Parameter(weft.tensor([1.0, -2.0, 3.0], device=place))
    optimizer = getattr(optim, name)([p], lr=0.1)

    @weft.jit
    def step():
        optimizer.zero_grad()
        loss = (p * p).sum()
        loss.backward()
        optimizer.step()
        return loss

    found = [step().item() for _ in range(4)]
    assert p.device == place
    return found


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize(("default", "place"), [("far", "cpu"), ("cpu", "far"), ("far", "late:1")])
def test_steps_are_those_of_the_default_device(name, default, place):
    far_devices.register()
    want = _losses(name, "cpu")
    weft.set_default_device(default)
    try:
        np.testing.assert_allclose(_losses(name, place), want, rtol=1e-6)
    finally:
        weft.set_default_device(None)
