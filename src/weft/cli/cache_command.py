"""``weft cache info|clear``."""

from __future__ import annotations

import click


@click.group(name="cache")
def command() -> None:
    """Show or clear the cache of compiled plans and kernels, and the records of tuning."""


@command.command()
def info() -> None:
    """Show where the cache is and what it holds."""
    from weft.store import cache
    from weft.tuning.records import records

    found = cache().info()
    click.echo(f"path: {found.path}")
    click.echo(f"entries: {found.entries}")
    click.echo(f"bytes: {found.nbytes}")
    tuned, trials, nbytes = records().counts()
    click.echo(f"tuned kernels: {tuned} ({trials} trials, {nbytes} bytes)")


@command.command()
@click.option("--keep-tuning", is_flag=True, help="Leave the records of tuning.")
def clear(keep_tuning: bool) -> None:
    """Remove every entry."""
    from weft.store import cache
    from weft.tuning.records import records

    click.echo(f"removed {cache().clear()} entries")
    if not keep_tuning:
        click.echo(f"removed {records().clear()} tuning records")
