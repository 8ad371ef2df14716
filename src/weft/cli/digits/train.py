"""Training of one network, and what is worth telling about it."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

import weft
from weft import nn, optim
from weft.cli.digits.data import STEPS, Array, Digits, batches
from weft.cli.digits.model import DigitNet

LEARNING_RATE = 2e-3
WEIGHT_DECAY = 1e-2


class Run(NamedTuple):
    """One trained network: losses by step, seconds by step (median), predictions, accuracy."""

    losses: list[float]
    step_seconds: float
    predictions: Array
    accuracy: float


class Trainer:
    """A network with its optimiser and its captured training step.

    Parameters
    ----------
    net : DigitNet
    steps : int
        Length of the cosine schedule.
    """

    def __init__(self, net: DigitNet, steps: int) -> None:
        self.net = net
        optimiser = optim.AdamW(net.parameters(), lr=LEARNING_RATE, weight_decay=WEIGHT_DECAY)
        self.schedule = optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)

        @weft.jit
        def step(images: weft.Tensor, labels: weft.Tensor) -> weft.Tensor:
            optimiser.zero_grad()
            loss = nn.functional.cross_entropy(net(images), labels)
            loss.backward()
            optimiser.step()
            return loss

        self._step = step

    def step(self, images: Array, labels: Array) -> float:
        """Train on one batch and return its loss."""
        loss = self._step(weft.from_numpy(images), weft.from_numpy(labels))
        self.schedule.step()
        return float(loss.item())


def train(digits: Digits, seed: int, epochs: int, tick: Callable[[float], None]) -> Run:
    """Train a network from a seed; `tick` hears the loss of each step."""
    weft.manual_seed(seed)
    rng = np.random.default_rng(seed)
    net = DigitNet()
    trainer = Trainer(net, epochs * STEPS)
    losses: list[float] = []
    seconds: list[float] = []
    for _ in range(epochs):
        for images, labels in batches(digits, rng):
            start = time.perf_counter()
            losses.append(trainer.step(images, labels))
            seconds.append(time.perf_counter() - start)
            tick(losses[-1])
    predictions = predict(net, digits.test_images)
    accuracy = float((predictions == digits.test_labels).mean())
    return Run(losses, statistics.median(seconds), predictions, accuracy)


def predict(net: DigitNet, images: Array) -> Array:
    """Return the most likely digit of each image."""
    net.eval()
    with weft.no_grad():
        logits = net(weft.from_numpy(np.ascontiguousarray(images[:, None])))
        digits: Array = logits.argmax(1).numpy()
        return digits
