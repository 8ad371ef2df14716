"""Optimisers and schedules beside PyTorch's, from the same weights."""

import sys
import threading

import numpy as np
import pytest

import weft
from weft import optim
from weft.errors import RangeError

OPTIMIZERS = {
    "SGD": lambda m, p: m.SGD(p, 0.1),
    "momentum": lambda m, p: m.SGD(p, 0.1, momentum=0.9, weight_decay=0.01),
    "nesterov": lambda m, p: m.SGD(p, 0.1, momentum=0.9, nesterov=True),
    "dampening": lambda m, p: m.SGD(p, 0.1, momentum=0.9, dampening=0.5),
    "Adam": lambda m, p: m.Adam(p, 0.1),
    "Adam with decay": lambda m, p: m.Adam(p, 0.1, betas=(0.8, 0.9), weight_decay=0.1),
    "amsgrad": lambda m, p: m.Adam(p, 0.1, amsgrad=True),
    "AdamW": lambda m, p: m.AdamW(p, 0.1, weight_decay=0.1),
    "RMSprop": lambda m, p: m.RMSprop(p, 0.05, momentum=0.5),
    "NAdam": lambda m, p: m.NAdam(p, 0.1, weight_decay=0.1),
    "NAdam apart": lambda m, p: m.NAdam(p, 0.1, (0.8, 0.9), 1e-3, 0.1, 0.1, True, maximize=True),
    "maximize": lambda m, p: m.Adam(p, 0.1, maximize=True),
}


def values(seed, dtype=np.float32):
    return np.random.default_rng(seed).normal(size=(3, 2)).astype(dtype)


@pytest.mark.grid
@pytest.mark.requires("torch")
@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize(("dtype", "near"), [(np.float32, 2e-4), (np.float64, 1e-12)])
def test_steps(name, dtype, near):
    import torch

    if name.startswith("NAdam"):  # whose product of momenta PyTorch keeps in float32
        near = max(near, 1e-6)
    mine = [weft.tensor(values(i, dtype), requires_grad=True) for i in range(2)]
    theirs = [torch.tensor(values(i, dtype), requires_grad=True) for i in range(2)]
    a, b = OPTIMIZERS[name](optim, mine), OPTIMIZERS[name](torch.optim, theirs)
    for _ in range(5):
        for optimizer, (x, y) in ((a, mine), (b, theirs)):
            optimizer.zero_grad()
            ((x * y - 1) ** 2 + x**2).sum().backward()
            optimizer.step()
    for x, y in zip(mine, theirs, strict=True):
        np.testing.assert_allclose(x.numpy(), y.detach().numpy(), near, near / 20)
        assert x.requires_grad
        assert x.is_leaf


SCHEDULES = {
    "StepLR": lambda m, o: m.StepLR(o, 2, 0.5),
    "MultiStepLR": lambda m, o: m.MultiStepLR(o, [1, 4]),
    "ExponentialLR": lambda m, o: m.ExponentialLR(o, 0.8),
    "CosineAnnealingLR": lambda m, o: m.CosineAnnealingLR(o, 6, 0.01),
    "LinearLR": lambda m, o: m.LinearLR(o, 0.1, total_iters=4),
    "ConstantLR": lambda m, o: m.ConstantLR(o, 0.5, 3),
    "PolynomialLR": lambda m, o: m.PolynomialLR(o, 5, 2.0),
    "LambdaLR": lambda m, o: m.LambdaLR(o, lambda e: 1 / (e + 1)),
    "SequentialLR": lambda m, o: m.SequentialLR(
        o, [m.ConstantLR(o, 0.1, 2), m.ExponentialLR(o, 0.9)], [2]
    ),
}


@pytest.mark.grid
@pytest.mark.requires("torch")
@pytest.mark.parametrize("name", SCHEDULES)
def test_schedules(name):
    import torch

    mine = optim.SGD([weft.zeros(1, requires_grad=True)], 0.1)
    theirs = torch.optim.SGD([torch.zeros(1, requires_grad=True)], 0.1)
    a = SCHEDULES[name](optim.lr_scheduler, mine)
    b = SCHEDULES[name](torch.optim.lr_scheduler, theirs)
    for _ in range(7):
        np.testing.assert_allclose(a.get_last_lr(), b.get_last_lr(), 1e-6)
        assert mine.param_groups[0].rate.item() == pytest.approx(a.get_last_lr()[0])
        theirs.step(), a.step(), b.step()


def test_warmup():
    o = optim.SGD([weft.zeros(1)], 1.0)
    s = optim.lr_scheduler.WarmupCosine(o, 2, 6)
    rates = []
    for _ in range(7):
        rates.append(round(s.get_last_lr()[0], 4))
        s.step()
    assert rates == [0.5, 1.0, 1.0, 0.8536, 0.5, 0.1464, 0.0]


def test_groups_and_state():
    a, b = (weft.tensor([1.0, 2.0], requires_grad=True) for _ in range(2))
    o = optim.Adam([{"params": [a], "lr": 0.5}, {"params": b}], lr=0.1)
    (a * b).sum().backward()
    o.step()
    assert np.allclose(a.numpy(), [0.5, 1.5])
    assert np.allclose(b.numpy(), [0.9, 1.9])
    state = o.state_dict()
    other = optim.Adam([{"params": [a], "lr": 0.3}, {"params": b}], lr=0.1)
    other.load_state_dict(state)
    assert other.param_groups[0]["lr"] == 0.5
    assert other.state[a]["exp_avg"].tolist() == o.state[a]["exp_avg"].tolist()
    assert other.state[a]["step"].item() == 1.0
    o.zero_grad(set_to_none=False)
    assert a.grad.tolist() == [0.0, 0.0]
    o.zero_grad()
    assert a.grad is None
    o.step()
    with pytest.raises(weft.RangeError, match="lr"):
        optim.SGD([a], lr=-1)
    with pytest.raises(weft.RangeError):
        optim.Adam([a], betas=(1.0, 0.9))
    with pytest.raises(weft.RangeError):
        optim.SGD([a], nesterov=True)
    with pytest.raises(weft.ShapeError):
        optim.SGD([])
    with pytest.raises(weft.ShapeError, match="two groups"):
        optim.SGD([{"params": [a]}, {"params": [a]}])


@pytest.mark.requires("torch")
def test_clipping():
    import torch

    x, y = weft.tensor([3.0, 4.0], requires_grad=True), torch.tensor([3.0, 4.0], requires_grad=True)
    (x * x).sum().backward()
    (y * y).sum().backward()
    total = optim.clip_grad_norm_([x], 1.0)
    assert total.item() == pytest.approx(torch.nn.utils.clip_grad_norm_([y], 1.0).item())
    np.testing.assert_allclose(x.grad.numpy(), y.grad.numpy(), 1e-5)
    optim.clip_grad_value_([x], 0.7)
    assert np.allclose(x.grad.numpy(), [0.6, 0.7])


LATER = [
    ("SGD", {}, {"momentum": 0.9}),
    ("SGD", {}, {"momentum": 0.9, "dampening": 0.5}),
    ("SGD", {}, {"momentum": 0.9, "nesterov": True}),
    ("Adam", {}, {"amsgrad": True}),
    ("RMSprop", {}, {"momentum": 0.9}),
    ("RMSprop", {}, {"centered": True}),
]


def _descend(opt, p, steps):
    for _ in range(steps):
        opt.zero_grad()
        (p * p).sum().backward()
        opt.step()


@pytest.mark.parametrize(("name", "first", "then"), LATER)
@pytest.mark.parametrize("way", ["set", "loaded", "captured"])
def test_options_that_need_state_may_come_later(name, first, then, way):
    def parameter():
        return weft.nn.Parameter(weft.tensor([1.0, -2.0]))

    made = getattr(optim, name)
    p, q = parameter(), parameter()
    early, late = made([p], lr=0.1, **then), made([q], lr=0.1, **first)
    if way == "loaded":
        _descend(early, p, 2)
        q.data.copy_(p.detach())
        late.load_state_dict(early.state_dict())
    else:
        for option, value in then.items():
            late.param_groups[0][option] = value

    def one():
        _descend(late, q, 1)

    step = weft.jit(one) if way == "captured" else one
    for _ in range(3):
        _descend(early, p, 1)
        step()
        np.testing.assert_allclose(q.detach().numpy(), p.detach().numpy(), 1e-6)
    assert early.state[p].keys() == late.state[q].keys()


@pytest.mark.parametrize(("name", "slot"), [
    ("Adam", "step"), ("AdamW", "step"), ("SGD", "momentum_buffer"),
])  # fmt: skip
def test_steps_of_threads_take_turns(name, slot):
    p = weft.nn.Parameter(weft.zeros(()))
    options = {"momentum": 1.0} if name == "SGD" else {}
    opt = getattr(optim, name)([p], lr=0.1, **options)
    p.grad = weft.ones(())
    begin = threading.Barrier(2)

    def run():
        begin.wait()
        for _ in range(60):
            opt.step()

    threads = [threading.Thread(target=run) for _ in range(2)]
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(before)
    assert opt.state[p][slot].item() == 120


PLATEAUS = {
    "min": {"patience": 2}, "max": {"mode": "max", "factor": 0.5, "patience": 0},
    "abs": {"threshold_mode": "abs", "threshold": 0.2, "patience": 1, "cooldown": 2},
    "max abs": {"mode": "max", "threshold_mode": "abs", "threshold": 0.1, "patience": 1},
    "least": {"patience": 0, "factor": 0.3, "min_lr": 0.05, "threshold": 0.1},
    "eps": {"patience": 0, "eps": 0.05},
}  # fmt: skip


@pytest.mark.requires("torch")
@pytest.mark.parametrize("name", PLATEAUS)
def test_plateaus(name):
    import torch

    x, y = weft.zeros(1, requires_grad=True), torch.zeros(1, requires_grad=True)
    made = []
    for lib, p in ((weft, x), (torch, y)):
        opt = lib.optim.SGD([p], lr=1.0)
        made.append(lib.optim.lr_scheduler.ReduceLROnPlateau(opt, **PLATEAUS[name]))
    losses = np.random.default_rng(3).integers(-3, 6, 40) / 4
    for loss in (*losses.tolist(), float("nan"), float("nan")):
        for schedule in made:
            schedule.step(loss)
        assert made[0].get_last_lr() == pytest.approx(made[1].get_last_lr()), loss
        assert made[0].num_bad_epochs == made[1].num_bad_epochs
    other = optim.lr_scheduler.ReduceLROnPlateau(made[0].optimizer, **PLATEAUS[name])
    other.load_state_dict(made[0].state_dict())
    assert other.state_dict() == made[0].state_dict()


def test_plateaus_refuse_what_they_cannot_mean():
    opt = optim.SGD([weft.nn.Parameter(weft.ones(1))])
    for wrong in ({"mode": "least"}, {"threshold_mode": "share"}, {"factor": 1.0}):
        with pytest.raises(RangeError):
            optim.lr_scheduler.ReduceLROnPlateau(opt, **wrong)
