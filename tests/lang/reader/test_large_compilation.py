"""How much work large kernels are after they are read: expressions made for chains of products."""

import numpy as np
import pytest

from weft.compat import cuda
from weft.ir import expr

COMPONENTS = 16


def chain(count: int) -> str:
    """Return products of multivectors, written out, each of the last one and of a row."""
    lines = ["@cuda.jit(device=True)", "def product(left, right, to):"]
    for k in range(COMPONENTS):
        terms = (f"{'+-'[(j * k) % 3 == 1]} left[{j}] * right[{j ^ k}]" for j in range(COMPONENTS))
        lines.append(f"    to[{k}] = 0.0 {' '.join(terms)}")
    lines += ["def kernel(a, b, out):", "    i = cuda.grid(1)", "    if i < a.shape[0]:",
              "        product(a[i, :], b[i, :], out[i, :])"]
    for k in range(count - 1):
        lines += [f"        t{k} = cuda.local.array({COMPONENTS}, 'float64')",
                  f"        product(out[i, :], b[i, :], t{k})",
                  f"        product(t{k}, a[i, :], out[i, :])"]
    return "\n".join([*lines, ""])


def expressions_made(monkeypatch: pytest.MonkeyPatch, count: int, step: int) -> int:
    """Launch a chain for the first time; return how many expressions were made or found for it."""
    made, calls = expr.make, 0

    def counted(*args: object, **named: object) -> object:
        nonlocal calls
        calls += 1
        return made(*args, **named)  # type: ignore[arg-type]

    space = {"cuda": cuda, "np": np}
    exec(chain(count), space)
    arrays = [np.ones((3 * step, COMPONENTS * step))[::step, ::step] for _ in range(3)]
    with monkeypatch.context() as patch:
        patch.setattr(expr, "make", counted)
        cuda.jit(space["kernel"])[1, 8](*arrays)
    return calls


@pytest.mark.slow
@pytest.mark.parametrize("step", [1, 2])
def test_what_is_made_does_not_grow_faster_than_a_chain(
    monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    one, two, three = (expressions_made(monkeypatch, n, step) for n in (1, 2, 3))
    assert one > COMPONENTS**2
    assert three - two <= 1.1 * (two - one)
