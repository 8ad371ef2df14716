"""Programs as users write them: stencils, factorisations, layers, writes to views, beside PyTorch.

Values and gradients agree, eager and captured, the captured ones with other data, too. Memory is
poisoned as the suite's is.
"""

import numpy as np
import pytest

import weft

pytestmark = [pytest.mark.requires("torch"), pytest.mark.grid]
TOLERANCE = 2e-4  # of the largest element


def wave(lib, u):
    """Two-dimensional wave equation with reflecting and open edges."""
    before = u * 0.9
    for _ in range(3):
        laplacian = lib.zeros_like(u)
        laplacian[1:-1, 1:-1] = (u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2]
                                 - 4 * u[1:-1, 1:-1])  # fmt: skip
        u, before = 2 * u - before + 0.1 * laplacian, u
        u[0] = u[1]
        u[-1] = u[-2]
        u[:, 0] = 0
        u[:, -1] = u[:, -2] * 0.5
    return u, before


def cavity(lib, u, v, p):
    """Pressure iterations of a flow in a cavity."""
    source = lib.zeros_like(p)
    source[1:-1, 1:-1] = ((u[1:-1, 2:] - u[1:-1, :-2]) / 2 + (v[2:, 1:-1] - v[:-2, 1:-1]) / 2
                          - ((u[1:-1, 2:] - u[1:-1, :-2]) / 2) ** 2)  # fmt: skip
    for _ in range(3):
        old, p = p, p.clone()
        p[1:-1, 1:-1] = ((old[1:-1, 2:] + old[1:-1, :-2]) + (old[2:, 1:-1] + old[:-2, 1:-1])) / 4
        p[1:-1, 1:-1] -= source[1:-1, 1:-1] / 4
        p[:, -1] = p[:, -2]
        p[0, :] = p[1, :]
        p[:, 0] = p[:, 1]
        p[-1, :] = 0
    u = u.clone()
    u[1:-1, 1:-1] -= 0.1 * (p[1:-1, 2:] - p[1:-1, :-2])
    u[-1, :] = 1
    return u, p


def electromagnetic(lib, ex, ey, hz):
    """Finite differences in time on staggered grids, updated in place."""
    ex, ey, hz = ex.clone(), ey.clone(), hz.clone()
    for step in range(3):
        ey[0, :] = float(step)
        ey[1:, :] -= 0.5 * (hz[1:, :] - hz[:-1, :])
        ex[:, 1:] -= 0.5 * (hz[:, 1:] - hz[:, :-1])
        hz[:-1, :-1] -= 0.7 * (ex[:-1, 1:] - ex[:-1, :-1] + ey[1:, :-1] - ey[:-1, :-1])
    return ex, ey, hz


def bodies(lib, x, mass):
    """Gravity between all pairs."""
    v, mass = lib.zeros_like(x), mass.abs() + 0.1
    for _ in range(2):
        d = x[None] - x[:, None]
        pull = mass[None] * ((d * d).sum(-1) + 0.01) ** -1.5
        v = v + 0.01 * (d * pull[..., None]).sum(1)
        x = x + 0.01 * v
    return x, v, (0.5 * mass * (v**2).sum(-1)).sum()


def cholesky(lib, a):
    """Factorisation element by element in place."""
    a = a @ a.T + 5 * lib.eye(5)
    a[0, 0] = lib.sqrt(a[0, 0])
    for i in range(1, 5):
        for j in range(i):
            a[i, j] = a[i, j] - (a[i, :j] * a[j, :j]).sum()
            a[i, j] = a[i, j] / a[j, j]
        a[i, i] = lib.sqrt(a[i, i] - (a[i, :i] * a[i, :i]).sum())
    return lib.tril(a)


def limited_diffusion(lib, f):
    """Horizontal diffusion with flux limiters, as weather models have it."""
    lap = 4 * f[1:-1, 1:-1] - (f[2:, 1:-1] + f[:-2, 1:-1] + f[1:-1, 2:] + f[1:-1, :-2])
    along = lap[1:, 1:-1] - lap[:-1, 1:-1]
    along = lib.where(along * (f[2:-1, 2:-2] - f[1:-2, 2:-2]) > 0, lib.zeros_like(along), along)
    across = lap[1:-1, 1:] - lap[1:-1, :-1]
    across = lib.where(across * (f[2:-2, 2:-1] - f[2:-2, 1:-2]) > 0, 0.0, across)
    made = f.clone()
    made[2:-2, 2:-2] -= 0.3 * (along[1:] - along[:-1] + across[:, 1:] - across[:, :-1])
    return made


def tridiagonal(lib, d, r):
    """Forward elimination and back substitution."""
    n, d = 6, d.abs() + 3
    c, g, x = lib.zeros(n), lib.zeros(n), lib.zeros(n)
    c[0], g[0] = 1 / d[0], r[0] / d[0]
    for i in range(1, n):
        pivot = d[i] - c[i - 1]
        c[i] = 1 / pivot
        g[i] = (r[i] - g[i - 1]) / pivot
    x[n - 1] = g[n - 1]
    for i in range(n - 2, -1, -1):
        x[i] = g[i] - c[i] * x[i + 1]
    return x


def written_views(lib, x, w):
    """Writes to views of a computed value: columns, rows, the diagonal, another shape."""
    h = x @ w
    left, right = h[:, :4], h[:, 4:]
    left.mul_(2)
    right.add_(left.detach())
    h[1].exp_()
    h.T[0].zero_()
    h.diagonal().add_(1.0)
    rows = h.view(4, 10)
    rows[::2].neg_()
    rows[:, 1::3] = 0.5
    h[h > 1.5] = 1.5
    return h, left * 1, rows.sum(0)


def recurrent(lib, x, w, u):
    """A gated recurrent network, written out."""
    h, outs = lib.zeros(3, 4), []
    for t in range(5):
        a, b = x[:, t] @ w, h @ u
        r, z = (a[:, :4] + b[:, :4]).sigmoid(), (a[:, 4:8] + b[:, 4:8]).sigmoid()
        h = (1 - z) * (a[:, 8:] + r * b[:, 8:]).tanh() + z * h
        outs.append(h)
    out = lib.stack(outs, 1)
    return out, out.cumsum(1)[:, ::2], out.flip(1).amax(1)


def soft_histogram(lib, x):
    """Weights of bins, and sums of what falls into each."""
    w = (-(((x[:, None] - lib.linspace(-2, 2, 9)) / 0.3) ** 2)).exp()
    w = w / w.sum(1, keepdim=True)
    h, bins = w.sum(0), w.argmax(1)
    return h, h.cumsum(0) / h.sum(), lib.zeros(9).index_add(0, bins, x), lib.zeros(9).scatter_add(
        0, bins, x * x)  # fmt: skip


PROGRAMS = {
    wave: [(12, 14)], cavity: [(9, 9)] * 3, electromagnetic: [(7, 9)] * 3, bodies: [(6, 3), (6,)],
    cholesky: [(5, 5)], limited_diffusion: [(6, 8, 7)], tridiagonal: [(6,)] * 2,
    written_views: [(5, 8), (8, 8)], recurrent: [(3, 5, 4), (4, 12), (4, 12)],
    soft_histogram: [(40,)],
}  # fmt: skip


def results(lib, program, leaves):
    """Return what a program computes, and the gradients of a weighted sum of it."""
    leaves = [x.requires_grad_(True) for x in leaves]
    made = program(lib, *leaves)
    made = made if isinstance(made, tuple) else (made,)
    loss = sum((value * (n + 0.5)).sum().sin() for n, value in enumerate(made))
    loss.backward()
    return [*(value.detach() for value in made), *(leaf.grad for leaf in leaves)]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_values_and_gradients_are_those_of_torch(program, rng):
    import torch
    from torch.autograd.graph import saved_tensors_hooks

    captured = weft.jit(lambda *xs: results(weft, program, [x.clone().detach() for x in xs]))
    for turn in range(3):
        arrays = [rng.standard_normal(s).astype(np.float32) for s in PROGRAMS[program]]
        # what is saved is copied: PyTorch refuses a backward whose operands were overwritten
        with saved_tensors_hooks(lambda t: t.detach().clone(), lambda t: t):
            expected = results(torch, program, [torch.tensor(a) for a in arrays])
        leaves = [weft.tensor(a) for a in arrays]
        ways = [captured(*leaves)] if turn else [results(weft, program, leaves), captured(*leaves)]
        for found in ways:
            for index, (mine, theirs) in enumerate(zip(found, expected, strict=True)):
                theirs = theirs.numpy()
                np.testing.assert_allclose(
                    mine.numpy(), theirs, 0, TOLERANCE * max(1, np.abs(theirs).max()),
                    err_msg=f"{program.__name__}: result {index}, call {turn}")  # fmt: skip
