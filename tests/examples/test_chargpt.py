"""The character transformer: one capture a range of lengths, and the results of PyTorch."""

import sys
from pathlib import Path

import numpy as np
import pytest

import weft

sys.path.insert(0, str(Path(__file__).parent.parent.parent))
from examples.chargpt.__main__ import sample, text, train
from examples.chargpt.model import CONTEXT, CharGPT


@pytest.mark.slow
def test_sampling_captures_few_graphs(monkeypatch, capsys):
    """Lengths from 1 past the context, another temperature each time."""
    weft.manual_seed(0)
    model = CharGPT(20)
    train(model, np.arange(3 * CONTEXT) % 20, 2)
    before = weft.compile_count()
    found = sample(model, np.array([3]), CONTEXT + 8, 0.9)
    assert weft.compile_count() - before <= 6
    assert found.shape == (CONTEXT + 9,)
    assert found[0] == 3
    assert ((found >= 0) & (found < 20)).all()
    assert "captures" in capsys.readouterr().out


def test_the_text_comes_with_python():
    assert len(text()) > 200_000


@pytest.mark.slow
@pytest.mark.requires("torch")
def test_the_model_is_that_of_pytorch():
    import torch
    from examples.chargpt.peer import forward

    weft.manual_seed(1)
    model = CharGPT(20)
    tokens = np.arange(2 * 9).reshape(2, 9)
    weights = {name: torch.tensor(t.tolist()) for name, t in model.state_dict().items()}
    wanted = forward(weights, len(model.blocks), torch.from_numpy(tokens))
    np.testing.assert_allclose(model(weft.tensor(tokens)).numpy(), wanted.numpy(), 1e-4, 1e-5)
