"""The same network in PyTorch, for comparison where it is installed."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from weft.cli.digits.data import STEPS, Array, Digits, batches
from weft.cli.digits.model import CHANNELS, DROPOUT
from weft.cli.digits.train import LEARNING_RATE, WEIGHT_DECAY, Run


def find_torch() -> Any:
    """Return the torch module, or None where it is not installed."""
    try:
        import torch
    except ImportError:
        return None
    return torch


def make_net(torch: Any, dropout: float = DROPOUT) -> Any:
    """Return the network; its state dict has the names of `DigitNet`'s."""
    nn = torch.nn
    first, second = CHANNELS

    class Net(nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.conv1 = nn.Conv2d(1, first, 3, padding=1)
            self.norm1 = nn.BatchNorm2d(first)
            self.conv2 = nn.Conv2d(first, second, 3, padding=1)
            self.norm2 = nn.BatchNorm2d(second)
            self.dropout = nn.Dropout(dropout)
            self.classify = nn.Linear(second * 16, 10)

        def forward(self, x: Any) -> Any:
            x = self.norm1(self.conv1(x)).relu()
            x = nn.functional.max_pool2d(self.norm2(self.conv2(x)).relu(), 2)
            return self.classify(self.dropout(x.flatten(1)))

    return Net()


class TorchTrainer:
    """The PyTorch side of `Trainer`, eager."""

    def __init__(self, torch: Any, net: Any, steps: int) -> None:
        self.torch, self.net = torch, net
        self.optimiser = torch.optim.AdamW(net.parameters(), lr=LEARNING_RATE,
                                           weight_decay=WEIGHT_DECAY)
        self.schedule = torch.optim.lr_scheduler.CosineAnnealingLR(self.optimiser, steps)

    def step(self, images: Array, labels: Array) -> float:
        """Train on one batch and return its loss."""
        torch = self.torch
        x, y = torch.from_numpy(images), torch.from_numpy(labels)
        self.optimiser.zero_grad()
        loss = torch.nn.functional.cross_entropy(self.net(x), y)
        loss.backward()
        self.optimiser.step()
        self.schedule.step()
        return float(loss.item())


def train_twin(torch: Any, digits: Digits, seed: int, epochs: int,
               tick: Callable[[float], None]) -> Run:  # fmt: skip
    """Train the PyTorch network from a seed with the same batches; see `train`."""
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    net = make_net(torch)
    trainer = TorchTrainer(torch, net, epochs * STEPS)
    losses: list[float] = []
    seconds: list[float] = []
    for _ in range(epochs):
        for images, labels in batches(digits, rng):
            start = time.perf_counter()
            losses.append(trainer.step(images, labels))
            seconds.append(time.perf_counter() - start)
            tick(losses[-1])
    net.eval()
    with torch.no_grad():
        tests = torch.from_numpy(np.ascontiguousarray(digits.test_images[:, None]))
        predictions = net(tests).argmax(1).numpy()
    accuracy = float((predictions == digits.test_labels).mean())
    return Run(losses, statistics.median(seconds), predictions, accuracy)
