"""Hooks are called wherever a gradient passes, whether or not somebody keeps one at its end."""

import gc

import pytest

import weft
from capabilities import module

torch = module("torch")


def dropped_leaf(m):
    seen = []
    y = m.tensor([1.0, 2.0], requires_grad=True) * 3
    y.register_hook(lambda g: seen.append(("y", g.tolist())))
    z = (y * 2).sum()
    del y
    gc.collect()
    z.backward()
    return seen


def hook_of_a_dropped_leaf(m):
    seen = []
    x = m.tensor([1.0, 2.0], requires_grad=True)
    x.register_hook(lambda g: seen.append(("x", g.tolist())))
    z = (x * x).sum()
    del x
    gc.collect()
    z.backward()
    return seen


def hook_of_a_dropped_leaf_that_was_written(m):
    seen = []
    x = m.tensor([1.0, 2.0], requires_grad=True)
    x.register_hook(lambda g: seen.append(("x", g.tolist())))
    with m.no_grad():
        x.mul_(5)
    z = (x * x).sum()
    del x
    gc.collect()
    z.backward()
    return seen


def removed(m):
    seen = []
    x = m.tensor([1.0, 2.0], requires_grad=True)
    handle = x.register_hook(lambda g: seen.append("x"))
    y = x * 2
    other = y.register_hook(lambda g: seen.append("y"))
    z = y.sum()
    del x, y
    handle.remove()
    other.remove()
    z.backward()
    return seen


def what_a_hook_makes_of_a_gradient_goes_on(m):
    seen = []
    x = m.tensor([1.0, 2.0], requires_grad=True)
    x.register_hook(lambda g: seen.append(("x", g.tolist())))
    y = x * 3
    y.register_hook(lambda g: g * 10)
    z = y.sum()
    del x, y
    z.backward()
    return seen


def only_on_the_way_to_asked_inputs(m):
    seen = []
    x = m.tensor([1.0, 2.0], requires_grad=True)
    w = m.tensor([3.0, 4.0], requires_grad=True)
    y, v = x * 2, w * 2
    for name, t in (("x", x), ("w", w), ("y", y), ("v", v)):
        t.register_hook(lambda g, name=name: seen.append(name))
    take = weft.grad if m is weft else torch.autograd.grad
    take((y * v).sum(), [x], retain_graph=True)
    (y * v).sum().backward(inputs=[w])
    return sorted(seen)


def in_a_tree_of_dropped_tensors(m):
    seen = []

    def part(value):
        x = m.tensor([value], requires_grad=True)
        y = x * value
        for name, t in (("leaf", x), ("node", y)):
            t.register_hook(lambda g, name=name: seen.append((name, value, g.tolist())))
        return y

    total = part(2.0) * part(3.0) + part(4.0)
    gc.collect()
    total.sum().backward()
    return sorted(seen)


PROGRAMS = [
    (dropped_leaf, [("y", [2, 2])]),
    (hook_of_a_dropped_leaf, [("x", [2, 4])]),
    (hook_of_a_dropped_leaf_that_was_written, [("x", [10, 20])]),
    (removed, []),
    (what_a_hook_makes_of_a_gradient_goes_on, [("x", [30, 30])]),
    (only_on_the_way_to_asked_inputs, ["v", "w", "x", "y"]),
    (in_a_tree_of_dropped_tensors, [
        ("leaf", 2, [18]), ("leaf", 3, [12]), ("leaf", 4, [4]),
        ("node", 2, [9]), ("node", 3, [4]), ("node", 4, [1])]),
]  # fmt: skip


@pytest.mark.parametrize(("program", "expected"), PROGRAMS)
def test_hooks(program, expected):
    assert program(weft) == expected


@pytest.mark.requires("torch")
@pytest.mark.parametrize(("program", "expected"), PROGRAMS)
def test_hooks_as_torch(program, expected):
    assert program(torch) == expected
