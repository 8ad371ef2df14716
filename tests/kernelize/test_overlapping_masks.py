"""Slices that overlap and are written one after another: right, and in kernels that stay small."""

import numpy as np
import pytest

import weft
from seeds import seeds
from weft.driver import counters
from weft.ir.stmt import Load
from weft.ir.traverse import walk


def program(x, writes, m):
    y = x * 2
    for at, wide, kind, by in writes:
        if kind == "multiplied":
            y[at : at + wide].mul_(by)
        elif kind == "increased":
            y[at : at + wide].add_(by)
        elif kind == "assigned":
            part = y[at : at + wide].clone()
            y[at : at + wide] = by * part * part
        else:
            end = min(at + wide, len(x))
            y = y + m.nn.functional.pad(y[at:end].clone() * by, (at, len(x) - end))
    return y, (y * y).sum()


@pytest.mark.requires("torch")
@pytest.mark.parametrize("seed", seeds(12))
def test_random_writes_and_their_gradients(seed):
    import torch

    rng = np.random.default_rng(seed)
    size = int(rng.integers(12, 40))
    data = rng.standard_normal(size).astype(np.float32)
    writes = [(int(rng.integers(0, size - 4)), int(rng.integers(2, 9)),
               str(rng.choice(["multiplied", "increased", "assigned", "padded"])),
               float(rng.uniform(0.3, 1.1))) for _ in range(int(rng.integers(3, 10)))]  # fmt: skip
    x, p = weft.tensor(data, requires_grad=True), torch.tensor(data, requires_grad=True)
    (got, total), (wanted, peer) = program(x, writes, weft), program(p, writes, torch)
    total.backward()
    peer.backward()
    np.testing.assert_allclose(got.numpy(), wanted.detach().numpy(), rtol=2e-5, atol=1e-5)
    scale = float(np.abs(p.grad.numpy()).max()) or 1.0
    np.testing.assert_allclose(x.grad.numpy() / scale, p.grad.numpy() / scale, rtol=0, atol=2e-5)


def statements(count):
    """Return how many statements the kernels of so many overlapping writes have, and the loads."""
    x = weft.tensor(np.arange(64, dtype=np.float32), requires_grad=True)
    _, total = program(x, [(i, 8, "multiplied", 1.5) for i in range(count)], weft)
    total.backward()
    with counters.record() as recording:
        found = x.grad.numpy()
    wanted = np.arange(64, dtype=np.float64)
    factors = np.prod([[1.5 if i <= k < i + 8 else 1 for k in range(64)] for i in range(count)], 0)
    np.testing.assert_allclose(found, 8 * wanted * factors**2, rtol=1e-5)
    lines = sum(len(b.source.splitlines()) for b in recording.built)
    return lines, sum(isinstance(s, Load) for b in recording.built for s in walk(b.nest.body))


def test_kernels_grow_with_the_number_of_writes_alone():
    few, some, many = (statements(n) for n in (8, 16, 32))
    assert many[0] - some[0] < 3 * max(some[0] - few[0], few[0])
    assert many[1] <= 128
