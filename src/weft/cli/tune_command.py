"""``weft tune script.py``: run a script, then search for faster schedules of its kernels."""

from __future__ import annotations

import contextlib
import json
import sys
from typing import TYPE_CHECKING

import click

from weft.cli.script import run_script

if TYPE_CHECKING:
    from collections.abc import Iterator

    from weft.driver.counters import Recording
    from weft.driver.tuning.tune_kernels import Tuned


@click.command(name="tune", context_settings={"ignore_unknown_options": True},
               epilog="Put -- before arguments of the script that weft would take itself. "
               "What is found is kept, and every later process uses it.")
@click.option("--seconds", type=click.FloatRange(min=0), default=None,
              help="Time for all kernels together, divided by what they cost; by default "
              "WEFT_TUNE_SECONDS (30) for each.")
@click.option("--again", is_flag=True, help="Search on for kernels whose search came to an end.")
@click.option("--json", "as_json", is_flag=True,
              help="Print the results as JSON; what the script prints goes to standard error.")
@click.argument("script", type=click.Path(exists=True, dir_okay=False))
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def command(seconds: float | None, again: bool, as_json: bool, script: str,
            arguments: tuple[str, ...]) -> None:  # fmt: skip
    """Run SCRIPT, and tune the kernels it was compiled to, those that take most time first."""
    from weft.driver import counters

    out = contextlib.redirect_stdout(sys.stderr) if as_json else contextlib.nullcontext()
    with counters.record() as recording, out:
        try:
            run_script(script, arguments)
        except SystemExit as leaving:  # the script is done, and there is something to tune
            if leaving.code:
                raise
    found: list[Tuned] = []
    try:
        found.extend(_search(recording, seconds, again))
    except KeyboardInterrupt:
        click.echo("weft: interrupted; what was measured is kept", err=True)
    if as_json:
        click.echo(json.dumps([_as_dict(t) for t in found], indent=1))
    else:
        _table(found)


def _search(recording: Recording, seconds: float | None, again: bool) -> Iterator[Tuned]:
    from weft.driver.tuning.tune_display import Display
    from weft.driver.tuning.tune_kernels import tune_program

    with Display(lines=True) as display:
        yield from tune_program(recording, seconds, again, display.heard)


def _as_dict(tuned: Tuned) -> dict[str, object]:
    return {"kernel": tuned.key[:12], "kind": tuned.kind, "launches": tuned.launches,
            "default_ms": tuned.before * 1e3, "tuned_ms": tuned.after * 1e3, "gain": tuned.gain,
            "trials": tuned.trials, "ended": tuned.reason, "choices": tuned.choices}  # fmt: skip


def _table(found: list[Tuned]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for title in ("kernel", "kind", "launches", "default", "tuned", "gain", "trials", "ended"):
        table.add_column(title, justify="left" if title in ("kernel", "kind", "ended") else "right")
    for t in found:
        times = [f"{t.before * 1e3:.4f} ms", f"{t.after * 1e3:.4f} ms", f"{t.gain:.2f}×"]
        table.add_row(t.key[:12], t.kind, str(t.launches), *(times if t.before else ["", "", ""]),
                      str(t.trials), t.reason)
    console = Console(width=None if sys.stdout.isatty() else 120)
    console.print(table)
    before = sum(t.launches * t.before for t in found)
    after = sum(t.launches * t.after for t in found)
    better = sum(t.gain > 1.0 for t in found)
    gain = f", {before * 1e3:.3f} ms to {after * 1e3:.3f} ms a run" if after else ""
    console.print(f"{better} of {len(found)} kernels are faster than by default{gain}")
