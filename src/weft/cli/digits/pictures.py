"""The two pictures of the demo."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from weft.cli.digits.data import Digits
from weft.cli.digits.train import Run
from weft.errors import LibraryNotFoundError


def check() -> None:
    """Say which command brings matplotlib, if it is missing.

    Raises
    ------
    LibraryNotFoundError
        If it is.
    """
    from importlib.util import find_spec

    if find_spec("matplotlib") is None:
        raise LibraryNotFoundError("weft demo", found="no matplotlib, which draws the pictures",
                                   expected="the demo extra", hint="pip install 'weft[demo]'")


def loss_curve(runs: Sequence[Run], path: Path) -> None:
    """Write the loss of every seed, smoothed over 15 steps, as PNG."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 3.6), layout="constrained")
    axes = figure.subplots()
    width = min(15, *(len(run.losses) for run in runs))
    window = np.full(width, 1 / width)
    for seed, run in enumerate(runs):
        axes.plot(np.convolve(run.losses, window, "valid"), label=f"seed {seed}", linewidth=1.2)
    axes.set(xlabel="step", ylabel="cross entropy", yscale="log",
             title="Handwritten digits, trained by Weft")
    axes.legend()
    axes.grid(alpha=0.3)
    figure.savefig(path, dpi=140)


def prediction_grid(digits: Digits, run: Run, path: Path, columns: int = 12, rows: int = 6) -> None:
    """Write test images with their predictions as PNG, the wrong ones first and in red."""
    from matplotlib.figure import Figure

    wrong = run.predictions != digits.test_labels
    order = np.argsort(~wrong, kind="stable")[: columns * rows]
    figure = Figure(figsize=(columns * 0.8, rows * 0.95), layout="constrained")
    for cell, which in zip(figure.subplots(rows, columns).flat, order, strict=True):
        cell.imshow(digits.test_images[which], cmap="gray_r", interpolation="nearest")
        title = str(run.predictions[which])
        if wrong[which]:
            title += f" (is {digits.test_labels[which]})"
        cell.set_title(title, fontsize=8, color="crimson" if wrong[which] else "black")
        cell.set_axis_off()
    figure.savefig(path, dpi=140)
