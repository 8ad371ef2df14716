"""The command line: ``weft compile | demo | devices | run | explain | tune | cache``."""

from __future__ import annotations

import sys

import click

from weft.config import VERSION
from weft.errors import WeftError


class _Commands(click.Group):
    """Loads a command's module when it is used, and prints Weft's errors without a traceback."""

    _names = ("cache", "compile", "demo", "devices", "explain", "run", "tune")

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self._names)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in self._names:
            return None
        from importlib import import_module

        command = import_module(f"weft.cli.{name}_command").command
        return command if isinstance(command, click.Command) else None


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(VERSION, prog_name="weft")
def group() -> None:
    """Weft: a compiler and runtime for numerical Python."""


def main() -> None:
    """Run the command line; a WeftError ends it with its message and exit code 1."""
    try:
        group.main(prog_name="weft")
    except WeftError as error:
        click.echo(f"weft: {error.message}", err=True)  # the line would be one of click's
        sys.exit(1)
