"""Run an image program: ``python -m examples.imagepipe photo.img`` from the root of Weft."""

import sys

import click
from examples.imagepipe.program import translate

from weft.errors import WeftError


@click.command()
@click.argument("program", type=click.Path(exists=True, dir_okay=False))
@click.option("--explain", is_flag=True, help="Say which statements share a kernel.")
@click.option("--sanitize", is_flag=True, help="Look for mistakes instead of running it fast.")
def main(program, explain, sanitize):
    """Run PROGRAM: load, compute, save."""
    try:
        unit = translate(program)
        if explain:
            click.echo(unit.explain())
        if sanitize:
            findings = unit.sanitize()
            click.echo("\n".join(map(str, findings)) or "no findings")
        else:
            unit.run()
    except WeftError as error:
        click.echo(str(error), err=True)
        sys.exit(1)


if __name__ == "__main__":
    main()
