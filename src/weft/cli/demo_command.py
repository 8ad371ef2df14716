"""``weft demo``: train on real handwritten digits, compiled to native code by Weft."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from weft.cli.digits.data import Digits
    from weft.cli.digits.show import Show
    from weft.cli.digits.train import Run


@click.command(name="demo")
@click.option("--epochs", default=20, show_default=True, type=click.IntRange(min=1),
              help="Passes over the 1,500 images.")
@click.option("--seeds", default=3, show_default=True, type=click.IntRange(min=1),
              help="Networks to train.")
@click.option("--output", default=".", show_default=True, help="Folder of the pictures.",
              type=click.Path(file_okay=False, path_type=Path))
@click.option("--torch/--no-torch", "compare", default=True,
              help="Train the same network in PyTorch too, where it is installed.")
def command(epochs: int, seeds: int, output: Path, compare: bool) -> None:
    """Train a small convolutional network on handwritten digits."""
    from weft.cli.digits import data, pictures, twin
    from weft.cli.digits.show import Show
    from weft.driver import counters as report

    pictures.check()
    try:
        output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise click.ClickException(f"--output: {error}") from None
    with Show() as show:
        with show.step("loading the images"):
            digits = data.load()
        start = time.perf_counter()
        runs = [_train(show, digits, seed, epochs) for seed in range(seeds)]
        seconds = time.perf_counter() - start
        counters = report.counters()
        with show.step("drawing"):
            pictures.loss_curve(runs, output / "demo-loss.png")
            pictures.prediction_grid(digits, runs[0], output / "demo-digits.png")
            neighbours = data.baseline(digits)
        torch = twin.find_torch() if compare else None
        other = None
        if torch is not None:
            total = epochs * data.STEPS
            with show.training("PyTorch", total) as tick:
                other = twin.train_twin(torch, digits, 0, epochs, tick)
    _summary(runs, neighbours, other, seconds, counters, output)


def _train(show: Show, digits: Digits, seed: int, epochs: int) -> Run:
    from weft.cli.digits.data import STEPS
    from weft.cli.digits.train import train

    with show.training(f"seed {seed}", epochs * STEPS) as tick:
        run = train(digits, seed, epochs, tick)
    show.note(f"seed {seed}: {len(run.losses)} steps, loss {run.losses[-1]:.4f}, "
              f"accuracy {_percent(run.accuracy)}")  # fmt: skip
    return run


def _percent(share: float) -> str:
    return f"{share * 100:.1f} %"


def _summary(runs: list[Run], neighbours: float, other: Run | None, seconds: float,
             counters: dict[str, float], output: Path) -> None:  # fmt: skip
    hits = {level: int(counters.get(f"{level} disk hits", 0)) for level in ("plan", "kernel")}
    step = sorted(run.step_seconds for run in runs)[len(runs) // 2]
    lines = [
        f"accuracy: {_percent(sum(r.accuracy for r in runs) / len(runs))}",
        f"baseline: {_percent(neighbours)}  (3 nearest neighbours, same split)",
        "each seed: " + ", ".join(_percent(run.accuracy) for run in runs),
        f"kernels compiled: {int(counters.get('kernels compiled', 0))}",
        f"compile time: {counters.get('compile seconds', 0):.2f} s",
        f"cache hits: {hits['plan']} plans, {hits['kernel']} kernels from disk",
        f"time per step: {step * 1e3:.3f} ms  (training in all: {seconds:.1f} s)",
    ]
    if other is not None:
        theirs = other.step_seconds
        lines += [
            f"PyTorch accuracy: {_percent(other.accuracy)}  (the first seed)",
            f"PyTorch time per step: {theirs * 1e3:.3f} ms  (Weft is {theirs / step:.2f} times "
            "as fast)",
        ]
    lines.append(f"pictures: {output / 'demo-loss.png'}, {output / 'demo-digits.png'}")
    click.echo("\n".join(lines))
