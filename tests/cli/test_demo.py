"""``weft demo``: end to end for an epoch, without its packages, and beside its PyTorch twin."""

import re

import numpy as np
import pytest
from commands import weft

import weft as framework

PNG = b"\x89PNG\r\n\x1a\n"
SMALL = ("demo", "--epochs", "1", "--seeds", "1", "--no-torch")


@pytest.mark.slow
@pytest.mark.requires("sklearn", "matplotlib")
def test_demo_end_to_end(tmp_path):
    environment = {"WEFT_CACHE_DIR": str(tmp_path / "cache")}
    out, err = weft(*SMALL, "--output", tmp_path / "pictures" / "new", **environment)
    names = [line.partition(":")[0] for line in out.splitlines()]
    assert names == ["accuracy", "baseline", "each seed", "kernels compiled", "compile time",
                     "cache hits", "time per step", "pictures"]  # fmt: skip
    facts = dict(line.split(": ", 1) for line in out.splitlines())
    assert re.fullmatch(r"\d+\.\d %", facts["accuracy"])
    assert 50 < float(facts["accuracy"].split()[0]) <= 100
    assert facts["baseline"].startswith("96.0 %")
    assert int(facts["kernels compiled"]) > 5
    assert facts["cache hits"].startswith("0 plans, 0 kernels")
    for name in ("demo-loss.png", "demo-digits.png"):
        picture = (tmp_path / "pictures" / "new" / name).read_bytes()
        assert picture.startswith(PNG)
        assert len(picture) > 5000
        assert name in facts["pictures"]
    assert re.search(r"seed 0: 30 steps, loss \d+\.\d+, accuracy \d+\.\d %", err)
    assert "\x1b" not in out + err

    # on a terminal: live bars, and the cache of the first run
    out, _ = weft(*SMALL, "--output", tmp_path, terminal=True, **environment)
    text = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", out).replace("\r", "\n")
    assert "loading the images" in text
    assert "30/30 steps, loss" in text
    assert "kernels compiled: 0\n" in text
    assert not re.search("cache hits: 0 plans", text)
    assert "accuracy: " + facts["accuracy"] in text  # the same numbers, and the same seed


@pytest.mark.parametrize(("module", "what"), [("sklearn", "scikit-learn"),
                                              ("matplotlib", "matplotlib")])  # fmt: skip
def test_demo_without_its_packages(module, what, tmp_path):
    hide = f"import sys; sys.modules[{module!r}] = None"
    if module == "matplotlib":  # looked for before it is loaded
        hide = ("import importlib.util as u; find = u.find_spec\n"
                "u.find_spec = lambda n, *a: None if n == 'matplotlib' else find(n, *a)")
    _, err = weft(*SMALL, "--output", tmp_path, code=1, before=hide)
    assert what in err
    assert "pip install 'weft[demo]'" in err
    assert "Traceback" not in err
    assert len(err.strip().splitlines()) <= 2


def test_demo_with_bad_options(tmp_path):
    for option in (("--epochs", "0"), ("--seeds", "-1"), ("--epochs", "many")):
        _, err = weft("demo", *option, code=2)
        assert option[0] in err
    blocked = tmp_path / "file"
    blocked.write_text("")
    _, err = weft(*SMALL, "--output", blocked / "inside", code=1)
    assert "--output" in err
    assert "Traceback" not in err


def twins(torch, dropout):
    """Return both networks with the same weights."""
    from weft.cli.digits.model import DigitNet
    from weft.cli.digits.twin import make_net

    torch.manual_seed(0)
    theirs = make_net(torch, dropout)
    ours = DigitNet(dropout)
    ours.load_state_dict({name: framework.tensor(value.detach().numpy().copy())
                          for name, value in theirs.state_dict().items()})  # fmt: skip
    return ours, theirs


@pytest.mark.slow
@pytest.mark.requires("torch", "sklearn")
def test_first_losses_agree_with_pytorch():
    import torch

    from weft.cli.digits import data
    from weft.cli.digits.train import Trainer
    from weft.cli.digits.twin import TorchTrainer

    ours, theirs = twins(torch, 0.0)
    assert list(ours.state_dict()) == list(theirs.state_dict())
    steps = 20 * data.STEPS
    mine, other = Trainer(ours, steps), TorchTrainer(torch, theirs, steps)
    digits = data.load()
    losses = []
    for images, labels in data.batches(digits, np.random.default_rng(0)):
        losses.append((mine.step(images, labels), other.step(images, labels)))
        if len(losses) == 20:
            break
    first, second = np.array(losses).T
    np.testing.assert_allclose(first, second, rtol=0, atol=1e-3)
    assert first[-1] < first[0] / 1.5  # and it learns
    for name, value in theirs.state_dict().items():
        if name in ("conv1.bias", "conv2.bias"):
            continue  # the norm takes them away: their gradients are rounding, which Adam scales
        if "running" in name:
            continue  # and so are the means, which hold those biases
        np.testing.assert_allclose(ours.state_dict()[name].numpy(), value.numpy(), atol=5e-3,
                                   err_msg=name)  # fmt: skip


@pytest.mark.requires("torch", "sklearn")
def test_predictions_agree_with_pytorch():
    import torch

    from weft.cli.digits import data
    from weft.cli.digits.train import predict

    ours, theirs = twins(torch, 0.5)
    digits = data.load()
    theirs.eval()
    with torch.no_grad():
        want = theirs(torch.from_numpy(digits.test_images[:, None].copy())).argmax(1).numpy()
    found = predict(ours, digits.test_images)
    assert found.shape == want.shape
    assert (found == want).mean() > 0.99


@pytest.mark.requires("sklearn")
def test_the_data_is_split_and_shifted():
    from weft.cli.digits import data

    digits = data.load()
    assert digits.train_images.shape == (1500, 8, 8)
    assert digits.test_images.shape == (297, 8, 8)
    assert digits.train_images.dtype == np.float32
    assert 0 <= digits.train_images.min() < digits.train_images.max() <= 1
    assert round(data.baseline(digits) * 100, 2) == 95.96
    seen = list(data.batches(digits, np.random.default_rng(1)))
    assert len(seen) == data.STEPS
    assert seen[0][0].shape == (data.BATCH, 1, 8, 8)
    labels = np.concatenate([labels for _, labels in seen])
    np.testing.assert_array_equal(np.sort(labels), np.sort(digits.train_labels))
    image = np.zeros((200, 8, 8), np.float32)
    image[:, 0, 3] = 1
    moved = data.shifted(image, np.random.default_rng(2))
    places = {tuple(map(int, p)) for p in np.argwhere(moved.any(0))}
    assert places == {(r, c) for r in (0, 1) for c in (2, 3, 4)}  # up is out of the picture
