"""Threads that build equal expressions at the same time have records of their own.

A thread may be interrupted wherever it calls something. Here another thread's whole expression
comes in between at each of these places, one after the other, which needs no luck.
"""

import sys

import pytest

import weft
from weft.tensors.core.views import recorded_of


def product(x):
    return x * 5


def mean(x):
    return x.mean()


def chain(x):
    return (x * 2).sum() / 3


def view(x):
    return x[:1]


def interrupted(build, x, at):
    """Build an expression, and another at the `at`-th call on the way; None if there is none."""
    made, count = [], 0

    def come_between(frame, event, argument):
        nonlocal count
        count += 1
        if count == at:
            sys.setprofile(None)
            made.append(build(x))

    sys.setprofile(come_between)
    try:
        first = build(x)
    finally:
        sys.setprofile(None)
    return (first, made[0]) if made else None


@pytest.mark.parametrize("build", [product, mean, chain, view])
def test_each_has_a_record_wherever_the_other_comes_in(build):
    at = 0
    while True:
        at += 1
        x, seen = weft.tensor([1.0, 2.0], requires_grad=True), []
        found = interrupted(build, x, at)
        if found is None:
            break
        for name, tensor in zip("ab", found, strict=True):
            tensor.register_hook(lambda g, name=name, seen=seen: seen.append(name))
        a, b = found
        assert recorded_of(a._value()) is not recorded_of(b._value()), at
        a.sum().backward()
        assert seen == ["a"], at
        b.sum().backward()
        assert seen == ["a", "b"], at
        assert [g.tolist() for g in weft.grad((a * 2 + b * 3).sum(), [a, b])] == [
            weft.full(a.shape, 2.0).tolist(), weft.full(a.shape, 3.0).tolist()], at
    assert at > 20
