"""The device ``null``: plans and accounts of what no machine has to hold."""

import numpy as np
import pytest

import weft
from weft import config, gpu, nn
from weft.backends import registry
from weft.driver.context import context
from weft.errors import AllocationError, DeviceError, HandleError


@pytest.fixture
def device():
    weft.synchronize("null")
    return context("null").runtime


def test_A10_programs_are_planned_and_nothing_runs(device):
    launches, used = device.queue.launches, device.pool.bytes_in_use
    x = weft.randn(30, 40, device="null", requires_grad=True)
    loss = (x.exp() @ x.T).softmax(-1).sum()
    loss.backward()
    assert loss.device == x.grad.device == "null"
    assert loss.item() == 0
    assert not x.grad.numpy().any()
    assert device.queue.launches > launches
    assert device.pool.bytes_in_use > used


def test_accounts_are_exact(device):
    before = device.pool.bytes_in_use
    x = weft.zeros(1 << 36, dtype=weft.uint8, device="null").realize()  # 64 GiB
    assert device.pool.bytes_in_use - before == 1 << 36
    y = (x + 1).realize()
    assert device.pool.bytes_in_use - before == 2 << 36
    del x, y
    assert device.pool.bytes_in_use == before


def test_A10_memory_has_a_limit(device):
    used = device.pool.bytes_in_use
    with pytest.raises(AllocationError, match="null"):
        weft.zeros(1 << 41, dtype=weft.uint8, device="null").realize()
    assert device.pool.bytes_in_use == used


def test_kernels_and_captured_functions(device):
    @weft.kernel
    def double(x):
        x[gpu.grid(1)] *= 2

    x = weft.ones(64, device="null").realize()
    launches = device.queue.launches
    double[1, 64](x)
    assert device.queue.launches == launches + 1
    step = weft.jit(lambda t: (t * 2).cumsum(0))
    assert [step(x).numpy().sum() for _ in range(3)] == [0, 0, 0]
    assert step(x).to("cpu").device == "cpu"


def test_what_is_not_its_own_is_refused(device):
    host = weft.ones(4).realize()
    with pytest.raises(DeviceError, match="null"):
        host + weft.ones(4, device="null")
    with pytest.raises(HandleError, match="memory of cpu"):
        device.queue.copy(host._storage().buffer, host._storage().buffer)
    held = device.pool.allocate(8)
    held.release()
    with pytest.raises(HandleError):
        device.queue.fill(held, 8)


def test_it_is_no_default():
    registry.reset()
    off = config.BackendConfig(enabled=False)
    config.reset(config.Config(backends={"cpu": off}))
    try:
        with pytest.raises(DeviceError, match="null: only where WEFT_DEVICE names it"):
            registry.default()
    finally:
        config.reset()
        registry.reset()


@pytest.mark.slow
def test_A10_a_training_step_of_a_language_model(device):
    """GPT-2 small: 124 million parameters, with the state of AdamW 1.9 GiB."""

    class Block(nn.Module):
        def __init__(self, width, heads):
            super().__init__()
            self.heads = heads
            self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, x):
            count, length, width = x.shape
            q, k, v = (t.reshape(count, length, self.heads, -1).transpose(1, 2)
                       for t in self.qkv(self.first(x)).split(width, 2))
            y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.out(y.transpose(1, 2).reshape(count, length, width))
            return x + self.narrow(nn.functional.gelu(self.wide(self.second(x))))

    used = device.pool.bytes_in_use
    weft.set_default_device("null")
    try:
        tokens, places = nn.Embedding(50257, 768), nn.Embedding(1024, 768)
        blocks, last = nn.Sequential(*(Block(768, 12) for _ in range(12))), nn.LayerNorm(768)
        parameters = [p for m in (tokens, places, blocks, last) for p in m.parameters()]
        optimizer = weft.optim.AdamW(parameters, lr=1e-4)
        text = weft.zeros(8, 1024, dtype=weft.int64)
        logits = last(blocks(tokens(text) + places.weight)) @ tokens.weight.T
        loss = nn.functional.cross_entropy(logits.reshape(-1, 50257), text.reshape(-1))
        loss.backward()
        optimizer.step()
        count = sum(p.numel() for p in parameters)
        assert count == 124_439_808
        assert {p.device for p in parameters} == {"null"}
        assert device.pool.bytes_in_use - used >= 3 * 4 * count
    finally:
        weft.set_default_device(None)


def test_reading_gives_zeros():
    assert weft.tensor(np.arange(5), device="null").tolist() == [0] * 5
