"""Options and groups that change between steps take effect in captured steps as outside of them."""

import numpy as np
import pytest

import weft
from weft import optim

CHANGES = {
    "SGD": (optim.SGD, {"momentum": 0.9, "dampening": 0.1}, [
        ("momentum", 0.5), ("weight_decay", 0.1), ("dampening", 0.3), ("maximize", True),
        ("momentum", 0.0), ("dampening", 0.0), ("momentum", 0.9), ("nesterov", True)]),
    "Adam": (optim.Adam, {}, [("betas", (0.5, 0.6)), ("eps", 0.1), ("weight_decay", 0.1),
                              ("amsgrad", True), ("maximize", True), ("betas", (0.9, 0.99))]),
    "AdamW": (optim.AdamW, {}, [("weight_decay", 0.5), ("eps", 0.01), ("weight_decay", 0.0)]),
    "NAdam": (optim.NAdam, {}, [("betas", (0.5, 0.6)), ("momentum_decay", 0.1),
                                ("weight_decay", 0.1), ("decoupled_weight_decay", True)]),
    "RMSprop": (optim.RMSprop, {}, [("alpha", 0.5), ("momentum", 0.9), ("centered", True),
                                    ("weight_decay", 0.1), ("eps", 0.1)]),
}  # fmt: skip


def _parameter(seed=0):
    return weft.nn.Parameter(weft.tensor(np.random.default_rng(seed).normal(size=5)))


def _step(opt, parameters):
    def step():
        opt.zero_grad()
        sum((p.square() * p).sum() for p in parameters).backward()
        opt.step()

    return step


@pytest.mark.parametrize("name", CHANGES)
def test_options_changed_between_steps(name):
    made, first, changes = CHANGES[name]
    p, q = _parameter(), _parameter()
    plain, captured = made([p], lr=0.01, **first), made([q], lr=0.01, **first)
    step, jitted = _step(plain, [p]), weft.jit(_step(captured, [q]))
    for option, value in [("lr", 0.02), *changes, ("lr", 0.005)]:
        for _ in range(3):
            step()
            jitted()
            np.testing.assert_allclose(q.detach().numpy(), p.detach().numpy(), 1e-9, 1e-12,
                                       err_msg=f"before {option}={value}")
        for opt in (plain, captured):
            opt.param_groups[0][option] = value
    assert jitted.captures <= len(changes) + 2


def test_what_changes_nothing_is_not_captured_anew():
    p = _parameter()
    opt = optim.Adam([p], lr=0.01)
    step = weft.jit(_step(opt, [p]))
    step()
    step()
    captures = step.captures
    saved = opt.state_dict()
    for _ in range(3):
        opt.param_groups[0].update(lr=0.5, eps=1e-8, betas=(0.9, 0.999))
        opt.load_state_dict(saved)
        optim.lr_scheduler.StepLR(opt, 2).step()
        step()
    assert step.captures == captures


def test_groups_that_are_added_are_stepped():
    p, q, x, y = _parameter(), _parameter(1), _parameter(), _parameter(1)
    plain, captured = optim.SGD([p], lr=0.1), optim.SGD([x], lr=0.1)
    step, jitted = _step(plain, [p, q]), weft.jit(_step(captured, [x, y]))
    for late in (False, True):
        if late:
            plain.add_param_group({"params": [q], "lr": 0.01})
            captured.add_param_group({"params": [y], "lr": 0.01})
        for parameter in (q, y):
            parameter.grad = None
        for _ in range(3):
            step()
            jitted()
        for mine, theirs in ((x, p), (y, q)):
            np.testing.assert_allclose(mine.detach().numpy(), theirs.detach().numpy(), 1e-9)
