"""Gradients where formulas divide by zero or elements are equal, held against PyTorch."""

import warnings

import numpy as np
import pytest

import weft
from capabilities import module
from weft.driver.check import graph

torch = module("torch")
pytestmark = pytest.mark.requires("torch")

POINTS = {
    "zeros": np.zeros((2, 3)),
    "a row of zeros": np.array([[0.0, 0.0, 0.0], [0.5, 0.25, 2.0]]),
    "equal": np.full((2, 3), 0.5),
    "negative zeros": np.array([[-0.0, 0.0, 0.5], [-0.0, -0.0, -0.0]]),
}
ARGUMENTS = ((), (1,), (2, 1), (0.5,), ("other",), ("other", "other"))
# PyTorch does not say which of equal elements it takes; logit has no slope at its ends.
OTHERWISE = {"median", "kthvalue", "topk", "mode", "logit"}
NAMES = sorted(n for n in set(dir(weft.Tensor)) & set(dir(torch.Tensor))
               if not n.startswith("_") and not n.endswith("_") and n not in OTHERWISE
               and callable(getattr(weft.Tensor, n)))  # fmt: skip


def gradients(lib, name, arguments, point):
    """Return the gradients of a tensor and of the other, None if the library has no such call."""
    x, other = (lib.tensor(v, requires_grad=True) for v in (point, POINTS["a row of zeros"]))
    given = [other if a == "other" else a for a in arguments]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            out = getattr(x, name)(*given)
        out = out[0] if isinstance(out, tuple) else out
        if not out.requires_grad:
            return None
        out.sum().backward()
    except Exception:
        return None
    return [None if t.grad is None else array(t.grad) for t in (x, other)]


def array(t):
    """Return the values of a tensor: of Weft's by the interpretation of its graph."""
    if isinstance(t, torch.Tensor):
        return t.numpy(force=True)
    return graph.evaluate([t._value()])[t._value()]


@pytest.mark.grid
@pytest.mark.parametrize("point", POINTS)
def test_gradients_are_those_of_pytorch(point):
    compared, wrong = 0, []
    for name in NAMES:
        for arguments in ARGUMENTS:
            if name in ("clamp", "clip") and arguments == ("other", "other"):
                continue  # two limits that are equal
            wanted = gradients(torch, name, arguments, POINTS[point])
            found = wanted and gradients(weft, name, arguments, POINTS[point])
            if not found:
                continue
            compared += 1
            for w, f in zip(wanted, found, strict=True):
                both = w is not None and f is not None
                if both:
                    f = np.where(np.isnan(w), w, f)  # a number where PyTorch has none
                if not ((both and np.allclose(f, w, 1e-6, 1e-12, True)) or w is f is None):
                    wrong.append(f"{name}{arguments}: {f}, in PyTorch {w}")
    assert compared > 150
    assert not wrong, "\n".join(wrong)
