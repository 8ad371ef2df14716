"""Views of symbolic sizes share memory with their bases at every size, as they do without jit."""

import random

import numpy as np
import pytest

import weft
from seeds import seeds
from weft.errors import WeftError
from weft.nn import functional as F

pytestmark = pytest.mark.usefixtures("compiled")

SIZES = (5, 7, 4, 2, 3, 6)
SHAPES = (
    lambda n: (n,), lambda n: (n, 3), lambda n: (3, n), lambda n: (2, n, 4), lambda n: (n, 2, n),
    lambda n: (n, n), lambda n: (n, 1, 4), lambda n: (4, 2, n),
)  # fmt: skip
STEPS = (
    "v.detach()", "v.T", "v.transpose(0, 1)", "v.transpose(-1, -2)", "v.movedim(0, -1)",
    "v.reshape(-1)", "v.reshape(v.shape[0], -1)", "v.reshape(-1, v.shape[-1])", "v.flatten()",
    "v.flatten(1)", "v.flatten(0, 1)", "v.ravel()", "v.view(-1)", "v.view(v.shape[0], -1)",
    "v.unflatten(0, (1, -1))", "v.unflatten(-1, (2, -1))", "v.reshape(*v.shape[::-1])",
    "v.squeeze()", "v.squeeze(0)", "v.unsqueeze(0)", "v.unsqueeze(1)", "v.contiguous()",
    "v[1:]", "v[:-1]", "v[:, 1:]", "v[:, :4]", "v[..., :1]", "v[..., 1:]", "v[::2]", "v[0]",
    "v[:, 0]", "v[None]", "v.narrow(0, 1, 1)", "v.view_as(v)", "v.reshape_as(v)", "v.expand(1, -1)",
    "v.expand_as(v)",
)  # fmt: skip
WRITES = (
    "v.zero_()", "v.add_(1)", "v.mul_(2)", "y.neg_()", "y[0] = 7", "v[..., 0] = 5",
    "v.reshape(-1).add_(1)", "v.detach().flatten().mul_(3)", "y.reshape(-1)[:2].zero_()",
    "v.contiguous().sub_(1)", "v.data.reshape(-1)[0].fill_(9)",
)  # fmt: skip


def _program(draw):
    """Return the lines of a function, and the shape of its argument at a size."""
    lines = ["y = x * 1", "v = y"]
    lines += [f"v = {draw.choice(STEPS)}" for _ in range(draw.randint(1, 5))]
    lines.append(draw.choice(WRITES))
    if draw.random() < 0.4:
        lines += [f"v = {draw.choice(STEPS)}", draw.choice(WRITES)]
    lines.append("return y, v, v.is_contiguous(), v.stride(), v.storage_offset()")
    return "def program(x):\n    " + "\n    ".join(lines), draw.choice(SHAPES)


def _input(shape):
    return weft.tensor(np.arange(1, 1 + np.prod(shape), dtype=np.float32).reshape(shape))


def _plain(found):
    y, v, contiguous, strides, offset = found
    steps = [s for n, s in zip(v.shape, strides, strict=True) if n > 1]
    return y.tolist(), v.shape, v.tolist(), contiguous, steps, offset


def _expected(program, shapes):
    """Return the results without jit; None if the program is wrong at some size."""
    try:
        return [_plain(program(_input(shape))) for shape in shapes]
    except (WeftError, IndexError):
        return None


@pytest.mark.parametrize("seed", seeds(2))
def test_drawn_views_and_writes_at_sizes(seed):
    draw, done = random.Random(seed), 0
    while done < 15:
        text, shape = _program(draw)
        scope = {}
        exec(text, scope)
        shapes = [shape(n) for n in SIZES]
        expected = _expected(scope["program"], shapes)
        if expected is None:
            continue
        done += 1
        jitted = weft.jit(scope["program"])
        for given, wanted in zip(shapes, expected, strict=True):
            found = _plain(jitted(_input(given)))
            assert found == wanted, f"{text}\n{given}"


def _heads(x):
    q = x.reshape(*x.shape[:2], 2, 4).transpose(1, 2)
    return F.scaled_dot_product_attention(q, q, q).transpose(1, 2).reshape(*x.shape[:2], 8).add_(1)


def _rotated(x):
    y = x.reshape(*x.shape[:2], 2, 4).transpose(1, 2).contiguous()
    return weft.cat([y[..., 2:], y[..., :2]], -1).flatten(2).mul_(2)


def _read_alone(x):
    y = x.sum(-1)
    return y[:, 1:].reshape(-1).exp() + y[:, :-1].flatten()  # views where there is one column


def _zeroed(x):
    y = x * 2
    y.detach()[1:].reshape(-1).zero_()
    return y


def _first_column(x):
    y = x.sum(-1)
    y[:, 1:].reshape(-1).zero_()  # a view where there is one column
    return y


@pytest.mark.parametrize("function", [_heads, _rotated, _read_alone, _zeroed])
def test_one_capture_serves_views_and_copies_that_all_sizes_decide_alike(function):
    jitted = weft.jit(function)
    declared = weft.jit(function, dynamic={0: {1: weft.Variable("n", 2, 64)}})
    for n in (5, 7, 4, 2, 33, 9):
        x = _input((3, n, 8))
        wanted = function(x).numpy()
        np.testing.assert_allclose(jitted(x).numpy(), wanted, 1e-5, 1e-5)
        np.testing.assert_allclose(declared(x).numpy(), wanted, 1e-5, 1e-5)
    assert (jitted.captures, declared.captures) == (2, 1), jitted.explain_captures()


def test_a_write_to_what_sizes_decide_is_captured_for_each():
    jitted = weft.jit(_first_column)
    for n in (5, 7, 4, 2, 33, 9):
        x = _input((3, n, 8))
        assert jitted(x).tolist() == _first_column(x).tolist(), n
    assert "whether a write reaches a view" in jitted.explain_captures()


def test_views_of_nothing_have_the_strides_of_whole_arrays():
    rest = weft.ones(4).unflatten(0, (1, -1))[1:]
    assert rest.stride() == rest[:, :4].stride() == (4, 1)
    assert weft.ones(2, 6)[2:].reshape(0, 2, 3).stride() == (6, 3, 1)
    assert weft.ones(2, 6)[2:, ::2].reshape(0, 3).stride() == (6, 2)
