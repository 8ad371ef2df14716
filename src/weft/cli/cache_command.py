"""``weft cache info|clear``."""

from __future__ import annotations

import click


@click.group(name="cache")
def command() -> None:
    """Show or clear the cache of compiled plans and kernels."""


@command.command()
def info() -> None:
    """Show where the cache is and what it holds."""
    from weft.store import cache

    found = cache().info()
    click.echo(f"path: {found.path}")
    click.echo(f"entries: {found.entries}")
    click.echo(f"bytes: {found.nbytes}")


@command.command()
def clear() -> None:
    """Remove every entry."""
    from weft.store import cache

    click.echo(f"removed {cache().clear()} entries")
