"""``weft demo``: train on real handwritten digits, compiled to native code by Weft."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from weft.cli.digits.data import Digits
    from weft.cli.digits.train import Run


@click.command(name="demo")
@click.option("--epochs", default=20, show_default=True, help="Passes over the 1,500 images.")
@click.option("--seeds", default=3, show_default=True, help="Networks to train.")
@click.option("--output", default=".", show_default=True, help="Folder of the pictures.",
              type=click.Path(file_okay=False, path_type=Path))
@click.option("--torch/--no-torch", "compare", default=True,
              help="Train the same network in PyTorch too, where it is installed.")
def command(epochs: int, seeds: int, output: Path, compare: bool) -> None:
    """Train a small convolutional network on handwritten digits."""
    from weft.cli.digits import data, pictures, twin
    from weft.driver import report

    pictures.check()
    digits = data.load()
    output.mkdir(parents=True, exist_ok=True)
    start = time.perf_counter()
    runs = _train(digits, seeds, epochs)
    seconds = time.perf_counter() - start
    pictures.loss_curve(runs, output / "demo-loss.png")
    pictures.prediction_grid(digits, runs[0], output / "demo-digits.png")
    torch = twin.find_torch() if compare else None
    other = twin.train_twin(torch, digits, 0, epochs) if torch else None
    _summary(digits, runs, other, seconds, report.counters(), output)


def _train(digits: Digits, seeds: int, epochs: int) -> list[Run]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    from weft.cli.digits.data import BATCH, TRAIN
    from weft.cli.digits.train import train

    runs = []
    console = Console()
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.completed}"
               "/{task.total} steps"), TextColumn("loss {task.fields[loss]:.3f}"),
               TimeElapsedColumn())  # fmt: skip
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        for seed in range(seeds):
            total = epochs * (TRAIN // BATCH)
            task = progress.add_task(f"seed {seed}", total=total, loss=float("nan"))

            def tick(loss: float, task: object = task) -> None:
                progress.update(task, advance=1, loss=loss)  # type: ignore[arg-type]

            runs.append(train(digits, seed, epochs, tick))
    return runs


def _mean(runs: list[Run]) -> float:
    return sum(r.accuracy for r in runs) / len(runs)


def _summary(digits: Digits, runs: list[Run], other: Run | None, seconds: float,
             counters: dict[str, float], output: Path) -> None:  # fmt: skip
    from weft.cli.digits.data import baseline

    each = ", ".join(f"{run.accuracy:.1%}".replace("%", " %") for run in runs)
    hits = {level: int(counters.get(f"{level} disk hits", 0)) for level in ("plan", "kernel")}
    step = sorted(run.step_seconds for run in runs)[len(runs) // 2]
    lines = [
        f"accuracy: {_mean(runs) * 100:.1f} %",
        f"baseline: {baseline(digits) * 100:.1f} %  (3 nearest neighbours, same split)",
        f"each seed: {each}",
        f"kernels compiled: {int(counters.get('kernels compiled', 0))}",
        f"compile time: {counters.get('compile seconds', 0):.2f} s",
        f"cache hits: {hits['plan']} plans, {hits['kernel']} kernels from disk",
        f"time per step: {step * 1e3:.3f} ms  (training in all: {seconds:.1f} s)",
    ]
    if other is not None:
        theirs = other.step_seconds
        lines += [
            f"PyTorch accuracy: {other.accuracy * 100:.1f} %  (the first seed)",
            f"PyTorch time per step: {theirs * 1e3:.3f} ms  (Weft is {theirs / step:.2f} times "
            "as fast)",
        ]
    lines.append(f"pictures: {output / 'demo-loss.png'}, {output / 'demo-digits.png'}")
    click.echo("\n".join(lines))
