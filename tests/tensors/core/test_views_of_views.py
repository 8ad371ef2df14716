"""Random programs of views of views that are written in place, held against PyTorch.

PyTorch records a view anew once its elements were written, as a part of the base: views that lay
between have no part in it any more, and their gradients leave its uses out. Writes through ``data``
are seen by nobody.
"""

import random

import numpy as np
import pytest

import weft
from capabilities import module
from seeds import seeds

torch = module("torch")
pytestmark = pytest.mark.requires("torch")

VIEWS = ["[:]", "[0]", "[1:]", "[::2]", ".transpose(0, 1)", ".view(-1)", ".unsqueeze(0)"]
WRITES = [".mul_(x.sum())", ".add_(x.sum())", ".mul_(3)", ".zero_()", ".copy_(x.mean())",
          ".fill_(2.0)", ".add_(1)"]  # fmt: skip
STARTS = ["x * 2", "c.clone()", "lib.zeros(2, 3)"]


def drawn(seed):
    """Return the lines of a program, and the names of the tensors that it makes."""
    r = random.Random(seed)
    start = r.choice(STARTS)
    lines, shapes = [f"y = {start}"], {"y": torch.zeros(2, 3)}
    for number in range(r.randint(3, 9)):
        name = r.choice(list(shapes))
        if r.random() < 0.6:
            view = r.choice((*VIEWS, *VIEWS, ".detach()"))
            try:
                made = eval(f"t{view}", {"t": shapes[name]})
            except (RuntimeError, IndexError):
                continue
            shapes[f"v{number}"] = made
            lines.append(f"v{number} = {name}{view}")
            continue
        line = name + r.choice(("", "", "", "", ".detach()", ".data")) + r.choice(WRITES)
        line = f"with lib.no_grad(): {line}" if r.random() < 0.2 else line
        lines.append(f"{r.choice(list(shapes))}.tolist(); {line}" if r.random() < 0.15 and
                     not line.startswith("with") else line)
    if r.random() < 0.3:
        lines.append(f"{r.choice(list(shapes))}.tolist()")
    uses = " + ".join(f"({name} * {i + 2}).sum()" for i, name in enumerate(shapes))
    return [*lines, f"loss = {uses} + (x * 0).sum()"], list(shapes)


def outcome(lib, lines, names, looked_at):
    """Return values and gradients of all tensors; None if the program is refused."""
    scope = {"lib": lib, "c": lib.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]),
             "x": lib.tensor([[0.5, 1.0, 2.0], [3.0, -1.0, 0.25]], requires_grad=True)}  # fmt: skip
    try:
        for line in lines:
            exec(line, scope)
    except (RuntimeError, weft.errors.WeftError):
        return None
    take = weft.grad if lib is weft else torch.autograd.grad
    found = {}
    for name in names if looked_at else ():
        found[name] = scope[name].tolist()
    for name in ("x", *names):
        tensor = scope[name]
        found[f"{name}.is_leaf"] = tensor.requires_grad, tensor.is_leaf
        if tensor.requires_grad:
            (gradient,) = take(scope["loss"], [tensor], allow_unused=True, retain_graph=True)
            found[f"{name}.grad"] = None if gradient is None else gradient.tolist()
    for name in names:
        found[name] = scope[name].tolist()
    return found


def agree(expected, found):
    """Whether all that was found of two programs is the same."""
    if expected is None or found is None:
        return expected is found
    return expected.keys() == found.keys() and all(
        np.shape(e) == np.shape(f) and (f is None if e is None else np.allclose(e, f, 1e-4))
        for e, f in zip(expected.values(), found.values(), strict=True))


@pytest.mark.parametrize("seed", seeds(6))
def test_views_of_views(seed):
    for number in range(40):
        lines, names = drawn(1000 * seed + number)
        expected = outcome(torch, lines, names, number % 2)
        if expected is None:
            continue  # what PyTorch refuses, as it follows versions, need not be refused here
        found = outcome(weft, lines, names, number % 2)
        assert agree(expected, found), "\n".join((f"seed {seed}, {number}", *lines))
