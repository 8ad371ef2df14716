"""A special form that fails gives way to the general one, and tests hear of it."""

import itertools

import numpy as np
import pytest

import weft
from weft.driver import pipeline
from weft.driver.plans import host_program, resized
from weft.graph.simplify import simplify
from weft.kernelize import build, lower
from weft.kernelize.fusion import attention_match
from weft.kernelize.fusion.fuse import Form
from weft.kernelize.special import attempt

RNG = np.random.default_rng(3)


@pytest.fixture(autouse=True)
def _forget():
    resized._alike.clear()  # no plan for any size serves these graphs at theirs


def broken(*args, **named):
    """Fail as a recogniser would that meets what it was not made for."""
    raise KeyError("a node that nobody expected")


SIZES = itertools.count(8)  # no plan of another test fits


def attended():
    rows = next(SIZES)
    q, k, v = (RNG.random((rows, 16), np.float32) for _ in range(3))
    a, b, c = map(weft.tensor, (q, k, v))
    scores = q @ k.T
    e = np.exp(scores - scores.max(-1, keepdims=True))
    return lambda: (a @ b.T).softmax(-1) @ c, e / e.sum(-1, keepdims=True) @ v


def padded():
    count = next(SIZES)
    x = RNG.random((count, 1, 6, 7), np.float32)
    w = RNG.random((2, 1, 3, 3), np.float32)
    a, b = weft.tensor(x), weft.tensor(w)
    whole = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    wanted = sum(whole[:, :, i:i + 6, j:j + 7] * w[:, 0, i, j][None, :, None, None]
                 for i in range(3) for j in range(3))
    return lambda: a.conv2d(b, padding=1), wanted




def test_attempts():
    assert attempt(lambda: 1, lambda reason: 2, strict=True) == 1
    assert attempt(lambda: 1 // 0, str, strict=False).startswith("ZeroDivisionError: ")
    with pytest.raises(ZeroDivisionError):
        attempt(lambda: 1 // 0, str, strict=True)



@pytest.mark.parametrize("error", [MemoryError(), weft.errors.UnsupportedError("x")])
def test_what_users_are_told_is_no_failure_of_a_form(error):
    def special():
        raise error

    with pytest.raises(type(error)):
        attempt(special, str, strict=False)


NEITHER = [(padded, "run"), (padded, "Softmax"), (attended, "split_phases")]


@pytest.mark.parametrize(("where", "what"), [
    (attention_match._Match, "run"), (lower, "Softmax"), (lower, "tidy"), (lower, "split_phases"),
    (pipeline, "choose"), (host_program, "simplify"), (host_program, "scatter_in_place"),
    (host_program, "schedule_launches")], ids=lambda x: getattr(x, "__name__", x))  # fmt: skip
@pytest.mark.parametrize("make", [attended, padded])
def test_what_fails_takes_the_general_path(where, what, make, cache_dir, monkeypatch):
    program, wanted = make()
    called = []
    monkeypatch.setattr(where, what, lambda *a, **k: called.append(a) or broken())
    monkeypatch.setattr(pipeline, "verifying", False)
    np.testing.assert_allclose(program().numpy(), wanted, 1e-4)
    assert called or (make, what) in NEITHER


@pytest.mark.parametrize(("where", "what"), [(lower, "Softmax"), (pipeline, "choose")],
                         ids=lambda x: getattr(x, "__name__", x))
def test_tests_hear_of_what_fails(where, what, cache_dir, monkeypatch):
    program, _ = attended()
    monkeypatch.setattr(where, what, broken)
    with pytest.raises(KeyError):
        program().numpy()


def test_reasons_are_told(monkeypatch):
    program, _ = attended()
    nodes = simplify([program()._value()])
    assert [s.kernel.meta.kind for s in build.kernelize(nodes)] == ["attention"]
    monkeypatch.setattr(lower, "Softmax", broken)
    steps = build.kernelize(nodes)
    assert any("without kernels for attentions" in why and "KeyError" in why
               for step in steps for why in step.why)


def test_each_operation_alone(rng):
    """The last of the general paths: values that several kernels would share, one by one."""
    x = weft.tensor(rng.random((5, 8), np.float32))
    y = ((x.exp().cumsum(1) - x.mean(0)).softmax(1) @ x.T).sort(1)[0].sum(1)
    steps = build._steps([y._value()], None, True, Form.ALONE, "")
    assert len(steps) > len(build._steps([y._value()], None, True, Form.ALL, "")) > 1
    assert all(len(step.outputs) <= 2 for step in steps)
