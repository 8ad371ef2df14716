"""Layers beside PyTorch's, with the same parameters."""

import copy

import numpy as np
import pytest

import weft
from weft import nn


def array(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


LAYERS = {
    "Linear": (lambda m: m.Linear(5, 3), (4, 5)),
    "Linear without bias": (lambda m: m.Linear(5, 3, bias=False), (2, 4, 5)),
    "Conv1d": (lambda m: m.Conv1d(4, 6, 3, stride=2, padding=1), (2, 4, 9)),
    "Conv2d": (lambda m: m.Conv2d(4, 6, 3, padding=1, groups=2), (2, 4, 5, 6)),
    "Conv2d circular": (
        lambda m: m.Conv2d(4, 2, 3, padding=1, padding_mode="circular"),
        (2, 4, 5, 6),
    ),
    "ConvTranspose2d": (lambda m: m.ConvTranspose2d(4, 2, 3, stride=2, padding=1), (1, 4, 3, 3)),
    "ConvTranspose1d": (lambda m: m.ConvTranspose1d(4, 2, 3, stride=2, padding=1), (1, 4, 5)),
    "ConvTranspose3d": (
        lambda m: m.ConvTranspose3d(4, 6, (2, 3, 1), stride=(1, 2, 2), padding=(1, 0, 0),
                                    output_padding=(0, 1, 0), groups=2, dilation=(2, 1, 1)),
        (2, 4, 3, 2, 4),
    ),
    "pools 3d": (
        lambda m: m.Sequential(m.MaxPool3d(2, stride=1, padding=1), m.AvgPool3d((1, 2, 2))),
        (2, 3, 4, 5, 6),
    ),
    "MaxPool3d with ceil_mode": (lambda m: m.MaxPool3d(3, 2, 1, ceil_mode=True), (1, 2, 5, 6, 4)),
    "AvgPool3d without padding counted": (
        lambda m: m.AvgPool3d(3, 2, 1, ceil_mode=True, count_include_pad=False), (2, 5, 6, 4)),
    "BatchNorm3d": (lambda m: m.BatchNorm3d(4), (2, 4, 3, 2, 3)),
    "LayerNorm": (lambda m: m.LayerNorm((4, 5)), (2, 4, 5)),
    "RMSNorm": (lambda m: m.RMSNorm(5), (2, 5)),
    "GroupNorm": (lambda m: m.GroupNorm(2, 4), (2, 4, 3)),
    "BatchNorm1d": (lambda m: m.BatchNorm1d(4), (6, 4)),
    "BatchNorm2d": (lambda m: m.BatchNorm2d(4), (2, 4, 3, 3)),
    "PReLU": (lambda m: m.PReLU(4), (2, 4, 3)),
    "Sequential": (
        lambda m: m.Sequential(
            m.Conv2d(1, 2, 3), m.ReLU(), m.MaxPool2d(2), m.Flatten(), m.Linear(8, 3)
        ),
        (2, 1, 6, 6),
    ),
    "pools": (lambda m: m.Sequential(m.AvgPool2d(2), m.AdaptiveAvgPool2d((2, 1))), (2, 3, 8, 6)),
    "activations": (
        lambda m: m.Sequential(
            m.GELU(),
            m.SiLU(),
            m.Tanh(),
            m.ELU(),
            m.Softplus(),
            m.LeakyReLU(0.2),
            m.Sigmoid(),
            m.Softmax(-1),
        ),
        (3, 4),
    ),
    "MultiheadAttention": (lambda m: m.MultiheadAttention(8, 2, batch_first=True), (2, 3, 8)),
    "TransformerEncoderLayer": (
        lambda m: m.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True),
        (2, 3, 8),
    ),
}


@pytest.mark.grid
@pytest.mark.requires("torch")
@pytest.mark.parametrize("name", LAYERS)
def test_layer(name):
    import torch

    make, shape = LAYERS[name]
    theirs, mine = make(torch.nn), make(nn)
    state = theirs.state_dict()
    assert {k: tuple(v.shape) for k, v in state.items()} == {
        k: v.shape for k, v in mine.state_dict().items()
    }
    mine.load_state_dict(state)
    a = array(*shape)
    for train in (True, False):
        theirs.train(train), mine.train(train)
        x, y = weft.tensor(a, requires_grad=True), torch.tensor(a, requires_grad=True)
        args = (3,) if name == "MultiheadAttention" else (1,)
        found, expected = mine(*([x] * args[0])), theirs(*([y] * args[0]))
        if isinstance(expected, tuple):
            np.testing.assert_allclose(found[1].numpy(), expected[1].detach().numpy(), 1e-3, 1e-4)
            found, expected = found[0], expected[0]
        np.testing.assert_allclose(found.numpy(), expected.detach().numpy(), 1e-3, 1e-5)
        found.square().sum().backward()
        expected.square().sum().backward()
        np.testing.assert_allclose(x.grad.numpy(), y.grad.numpy(), 1e-2, 1e-3)
        for p, q in zip(mine.parameters(), theirs.parameters(), strict=True):
            np.testing.assert_allclose(p.grad.numpy(), q.grad.numpy(), 1e-2, 2e-3)
        mine.zero_grad(), theirs.zero_grad()
    for key, value in theirs.state_dict().items():
        np.testing.assert_allclose(mine.state_dict()[key].numpy(), value.numpy(), 1e-4, 1e-5)


@pytest.mark.requires("torch")
@pytest.mark.parametrize("options", [
    {}, {"margin": 0.3, "p": 1.0}, {"swap": True, "reduction": "sum"}, {"reduction": "none"},
])  # fmt: skip
def test_triplet_margin_loss(options):
    import torch

    arrays = [array(5, 4, seed=s) for s in range(3)]
    a = [weft.tensor(x, requires_grad=True) for x in arrays]
    b = [torch.tensor(x, requires_grad=True) for x in arrays]
    found, wanted = nn.TripletMarginLoss(**options)(*a), torch.nn.TripletMarginLoss(**options)(*b)
    np.testing.assert_allclose(found.tolist(), wanted.tolist(), rtol=1e-5, atol=1e-6)
    found.sum().backward(), wanted.sum().backward()
    for x, y in zip(a, b, strict=True):
        np.testing.assert_allclose(x.grad.numpy(), y.grad.numpy(), rtol=1e-4, atol=1e-5)
    with pytest.raises(weft.RangeError):
        nn.TripletMarginLoss(margin=-1.0)(*a)


def test_parameters_as_a_vector():
    layer = nn.Linear(3, 2)
    before = nn.utils.parameters_to_vector(layer.parameters())
    assert before.shape == (8,)
    nn.utils.vector_to_parameters(before.detach() * 2, layer.parameters())
    after = nn.utils.parameters_to_vector(layer.parameters())
    np.testing.assert_array_equal(after.tolist(), (before * 2).tolist())
    with pytest.raises(weft.ShapeError, match=r"\(9,\)"):
        nn.utils.vector_to_parameters(weft.zeros(9), layer.parameters())
    with pytest.raises(weft.ShapeError):
        nn.utils.parameters_to_vector([])
    assert nn.utils.clip_grad_norm_ is weft.optim.clip_grad_norm_


def test_value_and_grad():
    x = weft.tensor([1.0, 2.0])
    value, slope = weft.value_and_grad(lambda x, k: (x * x).sum() * k)(x, 3)
    assert (value.item(), slope.tolist()) == (15.0, [6.0, 12.0])
    assert not value.requires_grad
    copied = x.copy()
    copied[0] = 5.0
    assert x.tolist() == [1.0, 2.0]
    with pytest.raises(weft.GradientError):
        weft.value_and_grad(lambda x: x * 2)(x)


@pytest.mark.requires("torch")
def test_embedding_and_masks():
    import torch

    theirs, mine = torch.nn.Embedding(6, 4, padding_idx=1), nn.Embedding(6, 4, padding_idx=1)
    mine.load_state_dict(theirs.state_dict())
    index = np.array([[0, 5, 1], [3, 3, 2]])
    found, expected = mine(weft.tensor(index)), theirs(torch.tensor(index))
    np.testing.assert_allclose(found.numpy(), expected.detach().numpy())
    found.square().sum().backward(), expected.square().sum().backward()
    np.testing.assert_allclose(mine.weight.grad.numpy(), theirs.weight.grad.numpy(), 1e-5)
    with pytest.raises(weft.BoundsError):
        mine(weft.tensor([6])).realize()
    a, b = torch.nn.MultiheadAttention(8, 2), nn.MultiheadAttention(8, 2)
    b.load_state_dict(a.state_dict())
    x = array(3, 2, 8)
    mask = np.triu(np.ones((3, 3), bool), 1)
    padding = np.array([[False, False, True], [False, False, False]])
    found, _ = b(
        *[weft.tensor(x)] * 3, attn_mask=weft.tensor(mask), key_padding_mask=weft.tensor(padding)
    )
    expected, _ = a(
        *[torch.tensor(x)] * 3, attn_mask=torch.tensor(mask), key_padding_mask=torch.tensor(padding)
    )
    np.testing.assert_allclose(found.numpy(), expected.detach().numpy(), 1e-4, 1e-5)


def test_first_values():
    weft.manual_seed(0)
    linear = nn.Linear(100, 50)
    w = linear.weight.numpy()
    assert abs(w).max() <= 0.1
    assert abs(w.std() - 0.1 / 3**0.5) < 0.003
    assert abs(linear.bias.numpy()).max() <= 0.1
    weft.manual_seed(0)
    np.testing.assert_array_equal(nn.Linear(100, 50).weight.numpy(), w)
    t = nn.init.trunc_normal_(weft.empty(4000), std=1.0).numpy()
    assert abs(t).max() <= 2
    assert abs(t.std() - 0.88) < 0.03
    assert abs(nn.init.xavier_normal_(weft.empty(60, 40)).std().item() - 0.02**0.5) < 0.01


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(2, 2) for _ in range(2)])
        self.named = nn.ModuleDict({"a": nn.Linear(2, 1)})
        self.scale = nn.Parameter(weft.ones(1))
        self.shared = self.layers[0]
        self.register_buffer("seen", weft.zeros(1))
        self.register_buffer("scratch", weft.zeros(1), persistent=False)

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return self.named["a"](x) * self.scale


def test_modules():
    net = Net()
    names = [n for n, _ in net.named_parameters()]
    assert names == [
        "scale",
        "layers.0.weight",
        "layers.0.bias",
        "layers.1.weight",
        "layers.1.bias",
        "named.a.weight",
        "named.a.bias",
    ]
    assert len(list(net.modules())) == 6
    assert "seen" in net.state_dict()
    assert "scratch" not in net.state_dict()
    assert net(weft.ones(3, 2)).shape == (3, 1)
    assert "(0-1): 2 x Linear(in_features=2, out_features=2, bias=True)" in repr(net)
    net.eval()
    assert not net.layers[1].training
    net.requires_grad_(False)
    assert not net(weft.ones(1, 2)).requires_grad
    twin = copy.deepcopy(net)
    twin.scale.data.mul_(5)
    assert net.scale.item() == 1.0
    assert twin.shared is twin.layers[0]
    assert net.to(weft.float64).layers[0].weight.dtype is weft.float64
    with pytest.raises(nn.StateError, match="scale"):
        net.load_state_dict({})
    with pytest.raises(weft.ShapeError, match="scale"):
        net.load_state_dict({"scale": weft.ones(2)}, strict=False)
    with pytest.raises(weft.WeftError, match="super"):
        type("Bad", (nn.Module,), {"__init__": lambda self: setattr(self, "x", 1)})()
    with pytest.raises(AttributeError):
        _ = net.nothing
    with pytest.raises(weft.WeftError, match="forward"):
        nn.Module()(1)
    with pytest.raises(weft.WeftError, match="Parameter"):
        net.scale = weft.ones(1)
    net.scale = nn.Parameter(weft.zeros(1))
    assert net.scale.item() == 0.0
    del net.scale
    assert "scale" not in dict(net.named_parameters())


def test_dropout():
    layer = nn.Dropout(0.5)
    x = weft.ones(1000)
    assert 300 < (layer(x) == 0).sum().item() < 700
    layer.eval()
    assert layer(x).tolist() == [1.0] * 1000
    channels = nn.Dropout2d(0.5)(weft.ones(4, 8, 3, 3)).numpy().reshape(32, 9)
    assert (channels.min(1) == channels.max(1)).all()


@pytest.mark.slow
def test_statistics_do_not_hold_on_to_the_past():
    import gc
    import weakref

    layer = nn.BatchNorm1d(2)
    seen = []
    for _ in range(3):
        x = weft.tensor(array(4, 2)).realize()
        seen.append(weakref.ref(x._node))
        layer(x).sum().item()
        del x
    gc.collect()
    assert all(r() is None for r in seen[:-1])
    assert layer.num_batches_tracked.item() == 3
