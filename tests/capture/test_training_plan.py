"""A captured training step is one plan: one native call, whose memory is used again."""

import pytest

import weft
from weft import nn, optim
from weft.driver import counters
from weft.driver.context import host_context


def attend(x):
    heads = x.reshape(2, 12, 3, 4, 8).permute(2, 0, 3, 1, 4)
    mixed = heads[0].scaled_dot_product_attention(heads[1], heads[2], is_causal=True)
    return mixed.permute(0, 2, 1, 3).reshape(24, 32)


def dense():
    return nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.LayerNorm(32), nn.Linear(32, 10))


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv, self.out = nn.Linear(16, 96), nn.Linear(32, 10)

    def forward(self, x):
        return self.out(attend(self.qkv(x)))


MODELS = {"dense": dense, "attention": Attention}
OPTIMIZERS = {"sgd": lambda p: optim.SGD(p, lr=0.01, momentum=0.9),
              "adamw": lambda p: optim.AdamW(p, lr=0.01)}


@pytest.mark.grid
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("model", MODELS)
def test_a_step_is_one_call_of_one_plan(model, optimizer, rng, compiled):
    net = MODELS[model]()
    update = OPTIMIZERS[optimizer](list(net.parameters()))

    @weft.jit
    def step(x, y):
        update.zero_grad()
        loss = nn.functional.cross_entropy(net(x), y)
        loss.backward()
        update.step()
        return loss

    x = weft.from_numpy(rng.standard_normal((24, 16), dtype="float32"))
    y = weft.from_numpy(rng.integers(0, 10, 24))
    with counters.record() as recording:
        first = step(x, y).item()
    step(x, y).item()
    pool = host_context().native.pool
    kinds = {b.nest.meta.kind for b in recording.built}
    assert "contraction" in kinds
    before, reserved = [plan.calls for plan in recording.plans], pool.bytes_reserved
    with counters.record() as later:
        losses = [step(x, y).item() for _ in range(7)]
    assert not later.plans
    assert not later.built
    called = [plan.calls - n for plan, n in zip(recording.plans, before, strict=True)]
    assert sorted(called)[-1] == sum(called) == 7, "all of a step is one plan"
    whole = recording.plans[called.index(7)]
    assert len(whole.steps) > 4, "forward, backward and update"
    assert pool.bytes_reserved == reserved, "and takes no new memory"
    assert losses[-1] < first
