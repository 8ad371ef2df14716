"""Activations of pieces, where these meet: values and slopes beside PyTorch's."""

import numpy as np
import pytest

import weft
from capabilities import module

torch = module("torch")
pytestmark = pytest.mark.usefixtures("compiled")

POINTS = [0.0, -0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 6.0, 10.0, 19.0, 20.0, 21.0, 100.0, np.inf, np.nan]
ACTIVATIONS = {
    "relu": lambda f, x: f.relu(x),
    "relu6": lambda f, x: f.relu6(x),
    "leaky_relu": lambda f, x: f.leaky_relu(x, 0.1),
    "hardtanh": lambda f, x: f.hardtanh(x),
    "hardtanh of an interval": lambda f, x: f.hardtanh(x, -2.0, 3.0),
    "hardsigmoid": lambda f, x: f.hardsigmoid(x),
    "hardswish": lambda f, x: f.hardswish(x),
    "softplus": lambda f, x: f.softplus(x),
    "softplus by a limit": lambda f, x: f.softplus(x, 2.0, 3.0),
    "elu": lambda f, x: f.elu(x, 1.5),
    "celu": lambda f, x: f.celu(x, 1.5),
    "selu": lambda f, x: f.selu(x),
}


@pytest.mark.parametrize("name", ACTIVATIONS)
@pytest.mark.parametrize(("dtype", "error"), [("float32", 1e-5), ("float16", 4e-3)])
def test_slopes_are_those_of_pytorch(name, dtype, error):
    function = ACTIVATIONS[name]
    x = np.array(POINTS + [-p for p in POINTS])
    given = torch.tensor(x, dtype=getattr(torch, dtype), requires_grad=True)
    values = function(torch.nn.functional, given)
    (slopes,) = torch.autograd.grad(values.sum(), given)
    mine = weft.tensor(x, dtype=getattr(weft, dtype))
    found = function(weft.nn.functional, mine).numpy()
    np.testing.assert_allclose(found, values.detach().numpy(), error, error)
    found = weft.grad(lambda x: function(weft.nn.functional, x).sum())(mine).numpy()
    finite = np.isfinite(x)  # those of infinities and NaN are not alike in all of PyTorch's
    np.testing.assert_allclose(found[finite], slopes.numpy()[finite], error, error)
