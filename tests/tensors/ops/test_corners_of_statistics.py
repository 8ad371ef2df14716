"""Quantiles, modes, membership, powers of two and resampling where PyTorch's answers are exact."""

from __future__ import annotations

import math

import numpy as np
import pytest

import weft
from capabilities import module

torch = module("torch")
pytestmark = pytest.mark.requires("torch")

INF, NAN = math.inf, math.nan


def equal(found: object, wanted: object, rtol: float = 0.0) -> None:
    np.testing.assert_allclose(np.asarray(found, np.float64), np.asarray(wanted, np.float64),
                               rtol=rtol, atol=0)  # fmt: skip


@pytest.mark.parametrize("kind", ["lower", "higher", "nearest"])
@pytest.mark.parametrize("values", [[-1e8, 0.1], [-INF, 5.0, 7.0], [3.0, INF], [-INF, INF]])
@pytest.mark.parametrize("q", [0.0, 0.4, 0.5, 0.9, 1.0])
def test_quantiles_that_are_elements_are_exact(kind: str, values: list[float], q: float) -> None:
    equal(weft.tensor(values).quantile(q, interpolation=kind).numpy(),
          torch.tensor(values).quantile(q, interpolation=kind))  # fmt: skip


@pytest.mark.parametrize("keepdim", [False, True])
def test_no_quantiles(keepdim: bool) -> None:
    found = weft.ones(3, 4).quantile(weft.zeros(0), 0, keepdim)
    assert found.shape == tuple(torch.ones(3, 4).quantile(torch.zeros(0), 0, keepdim).shape)


def test_quantile_wants_a_number() -> None:
    with pytest.raises(weft.errors.DTypeError):
        weft.ones(3).quantile([0.5])


@pytest.mark.parametrize("row", [[NAN], [NAN, NAN], [NAN, 1.0], [1.0, NAN, 1.0]])
def test_mode_of_nan_is_found_somewhere(row: list[float]) -> None:
    values, indices = weft.tensor(row).mode()
    assert indices.item() >= 0
    equal(weft.tensor(row)[indices.item()].numpy(), values.numpy())


def test_gradient_of_mode_goes_where_its_index_points() -> None:
    rows = [[2.0, 2.0, -1.0], [0.0, 5.0, 0.0], [1.0, 1.0, 1.0], [3.0, 2.0, 1.0]]
    x, y = weft.tensor(rows, requires_grad=True), torch.tensor(rows, requires_grad=True)
    x.mode().values.sum().backward()
    y.mode().values.sum().backward()
    equal(x.grad.numpy(), y.grad)


@pytest.mark.parametrize("eps", [None, 0.25])
def test_slope_of_logit(eps: float | None) -> None:
    values = [0.0, 1.0, 0.5, 0.3, 0.875, 1e-30]
    x, y = weft.tensor(values, requires_grad=True), torch.tensor(values, requires_grad=True)
    found, wanted = x.logit(eps), y.logit(eps)
    np.testing.assert_allclose(found.detach().numpy(), wanted.detach(), rtol=1e-6)
    found.sum().backward()
    wanted.sum().backward()
    equal(x.grad.numpy(), y.grad, 1e-6)


@pytest.mark.parametrize("name", ["cov", "corrcoef"])
@pytest.mark.parametrize("rows", [[[1.0, 2.0, 4.0]], [1.0, 2.0, 4.0], [[1.0, 2.0], [3.0, 5.0]]])
def test_covariance_of_one_row_is_a_number(name: str, rows: list[float]) -> None:
    found, wanted = getattr(weft.tensor(rows), name)(), getattr(torch.tensor(rows), name)()
    assert found.shape == tuple(wanted.shape)
    equal(found.numpy(), wanted, 1e-6)


@pytest.mark.parametrize("elements", [[], [[1, 2], [3, 4]], (2,), [1, 2.5]])
def test_membership_in_lists(elements: object) -> None:
    x = [1, 2, 5]
    wanted = torch.isin(torch.tensor(x), torch.tensor(elements))
    assert weft.tensor(x).isin(elements).tolist() == wanted.tolist()


@pytest.mark.parametrize(("x", "power"), [
    (1.0, 200), (1e-300, 1030), (1.0, -1074), (5e-324, 1074), (0.0, 1500), (3.0, -200), (-3.7, 5),
])  # fmt: skip
@pytest.mark.parametrize("dtype", ["float64", "float32", "float16"])
def test_ldexp_is_exact(x: float, power: int, dtype: str) -> None:
    values = np.array([x], dtype)
    found = weft.from_numpy(values).ldexp(weft.tensor([power]))
    assert found.dtype.name == dtype
    with np.errstate(over="ignore", under="ignore"):
        equal(found.numpy(), np.ldexp(values, [power]))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("name", ["sinc", "logit"])
def test_narrow_types_round_once(name: str, dtype: str) -> None:
    values = [0.0, 0.25, 0.501, 0.7, 1.0] + ([2.0, 33.3, 100.5] if name == "sinc" else [])
    x = torch.tensor(values).to(getattr(torch, dtype))
    found = getattr(weft.tensor(x.float().tolist()).to(getattr(weft, dtype)), name)()
    wanted = getattr(x.double(), name)()
    np.testing.assert_allclose(found.float().numpy(), wanted.float().numpy(),
                               rtol=2.0 ** (-10 if dtype == "float16" else -7), atol=1e-6)


@pytest.mark.parametrize(("mode", "shape"), [
    ("linear", (1, 2, 5)), ("bilinear", (2, 1, 5, 4)), ("bicubic", (2, 1, 5, 4)),
    ("trilinear", (1, 1, 3, 4, 2)),
])  # fmt: skip
@pytest.mark.parametrize("align", [False, True])
def test_images_of_float64_are_resampled_in_it(mode: str, shape: tuple[int, ...],
                                               align: bool) -> None:  # fmt: skip
    x = np.random.default_rng(0).standard_normal(shape)
    options = {"scale_factor": 1.7, "mode": mode, "align_corners": align}
    found = weft.nn.functional.interpolate(weft.from_numpy(x), **options)
    wanted = torch.nn.functional.interpolate(torch.from_numpy(x), **options)
    np.testing.assert_allclose(found.numpy(), wanted.numpy(), rtol=1e-12, atol=1e-13)
