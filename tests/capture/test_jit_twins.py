"""What a captured function changes, and others know by another name as well."""

import numpy as np
import pytest

import weft

pytestmark = pytest.mark.usefixtures("compiled")


def results(wrap, function, make, calls=4):
    """Return what some calls give, and the memory afterwards."""
    memory = np.arange(10, dtype=np.float32)
    arguments = make(memory)
    called = wrap(function)
    found = [called(*arguments).tolist() for _ in range(calls)]
    for a in arguments:
        if isinstance(a, weft.Tensor):
            a.realize()
    return found, memory.tolist()


def write_read(a, b):
    a.add_(1)
    return b * 2


def write_both(a, b):
    a.add_(1)
    b.mul_(2)
    return a[:2] + b[:2]


SHARED = {
    "parts": lambda m: (weft.from_numpy(m[:6]), weft.from_numpy(m[4:])),
    "one array": lambda m: (weft.from_numpy(m), weft.from_numpy(m)),
    "apart": lambda m: (weft.from_numpy(m[:5]), weft.from_numpy(m[5:])),
    "steps": lambda m: (weft.from_numpy(m[::2]), weft.from_numpy(m[1::2])),
}


@pytest.mark.parametrize("function", [write_read, write_both])
@pytest.mark.parametrize("shared", SHARED)
def test_arrays_that_overlap(function, shared):
    make = SHARED[shared]
    assert results(weft.jit, function, make) == results(lambda f: f, function, make)


@pytest.mark.requires("torch")
@pytest.mark.parametrize("function", [write_read, write_both])
@pytest.mark.parametrize("wrap", [weft.jit, lambda f: f])
def test_as_pytorch(function, wrap):
    import torch

    def theirs(m):
        return torch.from_numpy(m[:6]), torch.from_numpy(m[4:])

    wanted = results(lambda f: f, function, theirs)
    assert results(wrap, function, SHARED["parts"]) == wanted


def test_an_array_known_by_itself():
    def run(wrap):
        memory = np.arange(10, dtype=np.float32)
        a, b = weft.from_numpy(memory[:6]), weft.from_numpy(memory[4:])

        @wrap
        def f(x):
            x.add_(1)
            return b * 2

        return [f(a).tolist() for _ in range(3)], memory.tolist()

    assert run(weft.jit) == run(lambda f: f)


@pytest.mark.parametrize("outside", [True, False])
@pytest.mark.parametrize("shared", [True, False])
def test_two_tensors_with_one_gradient(outside, shared):
    def run(wrap):
        p, q = weft.zeros(3).requires_grad_(), weft.zeros(3).requires_grad_()
        p.grad = weft.ones(3)
        q.grad = p.grad if shared else weft.ones(3)

        def step(u, v, x):
            ((u * x).sum() + (v * x * 2).sum()).backward()
            return u.grad + v.grad

        called = wrap((lambda x: step(p, q, x)) if outside else step)
        arguments = () if outside else (p, q)
        found = [called(*arguments, weft.ones(3)).tolist() for _ in range(4)]
        if shared:  # and apart from each other again
            q.grad = weft.ones(3)
            found += [called(*arguments, weft.ones(3)).tolist() for _ in range(3)]
            q.grad = p.grad
            found += [called(*arguments, weft.ones(3)).tolist() for _ in range(3)]
        return found, p.grad.tolist(), q.grad.tolist()

    assert run(weft.jit) == run(lambda f: f)


def test_a_gradient_that_is_written():
    def run(wrap):
        p, q = weft.zeros(3).requires_grad_(), weft.zeros(3).requires_grad_()
        p.grad = q.grad = weft.ones(3)

        @wrap
        def f(u, v):
            u.grad.mul_(2)
            return v.grad + 0

        return [f(p, q).tolist() for _ in range(4)], q.grad.tolist()

    assert run(weft.jit) == run(lambda f: f)
