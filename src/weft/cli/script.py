"""Run a user's script as ``python script.py`` would."""

from __future__ import annotations

import runpy
import sys
from collections.abc import Sequence
from pathlib import Path

import click

from weft.errors import WeftError


def run_script(path: str, arguments: Sequence[str]) -> None:
    """Run the file as ``__main__`` with its own arguments and folder.

    An error ends the process with code 1: Weft's own with its message, which names the line, any
    other with the traceback that Python would print, beginning in the script.
    """
    before = sys.argv, sys.path[:]
    sys.argv = [path, *arguments]
    sys.path.insert(0, str(Path(path).resolve().parent))
    try:
        runpy.run_path(path, run_name="__main__")
    except WeftError as error:
        click.echo(f"weft: {error}", err=True)
        sys.exit(1)
    except Exception as error:
        trace = error.__traceback__
        while trace is not None and trace.tb_frame.f_code.co_filename != path:
            trace = trace.tb_next
        sys.excepthook(type(error), error.with_traceback(trace), trace)
        sys.exit(1)
    finally:
        sys.argv, sys.path[:] = before
