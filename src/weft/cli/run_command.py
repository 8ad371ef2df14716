"""``weft run script.py``: run a script and say what the compiler did."""

from __future__ import annotations

import time

import click

from weft.cli.script import run_script


@click.command(name="run", context_settings={"allow_interspersed_args": False})
@click.argument("script", type=click.Path(exists=True, dir_okay=False))
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.option("--stats/--no-stats", default=True, help="Print kernels, compile time, cache hits.")
def command(script: str, arguments: tuple[str, ...], stats: bool) -> None:
    """Run SCRIPT with its ARGUMENTS; what follows SCRIPT is its own."""
    from weft.driver import counters as report

    start = time.perf_counter()
    try:
        run_script(script, arguments)
    finally:
        if stats:
            click.echo(summary(report.counters(), time.perf_counter() - start), err=True)


def summary(counters: dict[str, float], seconds: float) -> str:
    """Return one line about a run."""
    compiled = int(counters.get("kernels compiled", 0))
    hits = sum(int(counters.get(f"{level} disk hits", 0)) for level in ("plan", "kernel"))
    return (
        f"weft: {seconds:.2f} s, {compiled} kernels compiled in "
        f"{counters.get('compile seconds', 0):.2f} s, {hits} disk cache hits"
    )
