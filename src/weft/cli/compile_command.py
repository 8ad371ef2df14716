"""``weft compile file``: files of machine code from a program in any language that Weft knows."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import click

from weft.errors import DeviceError, LaunchError, UnsupportedError, WeftError

BROWSERS: Final = "webgpu"  # the target that is a page, and no code of this machine
Place = tuple[Path, str]


def _place(ctx: click.Context, param: click.Parameter, value: str) -> Place:
    """Return a file, and the name behind its colon or an empty string."""
    file, _, name = value.rpartition(":")
    if not file or Path(value).exists():
        file, name = value, ""
    found = click.Path(exists=True, dir_okay=False).convert(file, param, ctx)
    return Path(str(found)), name


@click.command(name="compile")
@click.argument("file", metavar="FILE[:NAME]", callback=_place)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.option("--target", default="cpu", show_default=True,
              help="What to compile for: cpu, or webgpu for browsers.")
@click.option("--arch", default="native", show_default=True, help="Which processor of the target.")
@click.option("-o", "--output", type=click.Path(path_type=Path), default=None,
              help="What to write: .so (and a header), .h, .o; by default FILE with .so. For "
              "browsers a folder; by default NAME.")
@click.option("--page", is_flag=True, help="For browsers: write index.html, too.")
@click.option("--input", "inputs", multiple=True, metavar="NAME=DTYPE[SIZES]",
              help="For browsers: an argument, such as x=f32[1,28,28]; a size may have a name and "
              "bounds (x=f32[n:1..512,64]) and then changes from call to call; NAME=NUMBER is a "
              "constant.")
@click.option("--grid", metavar="X,Y,Z", default=None,
              help="For browsers: blocks of a kernel's launch; by default a thread for each "
              "element of its largest array.")
@click.option("--block", metavar="X,Y,Z", default=None,
              help="For browsers: threads of a block; by default 256.")
@click.option("--run", "runs", is_flag=True, help="Run it, with ARGUMENTS, instead of writing it.")
@click.option("--explain", is_flag=True, help="Say what became of the program.")
@click.option("--language", "modules", multiple=True, metavar="MODULE",
              help="Import a module that registers a language; may be repeated.")
def command(file: Place, arguments: tuple[str, ...], target: str, arch: str, output: Path | None,
            runs: bool, explain: bool, modules: tuple[str, ...], page: bool,
            inputs: tuple[str, ...], grid: str | None, block: str | None) -> None:  # fmt: skip
    """Compile FILE: a program in a language that is registered for its suffix, or a Python script.

    Of a Python script every function under @weft.critical with full annotations is compiled.

    With --target webgpu the function NAME of a Python script, under @weft.jit or @weft.kernel,
    becomes an ES module that runs in browsers, and with --page a page. It is captured with the
    arguments that --input describes, else those of the attribute NAME.example_inputs (a tuple, or
    a function that returns one), else those that the script's function example_inputs() returns.
    """
    path, wanted = file
    browsers = {"page": page, "input": inputs, "grid": grid, "block": block}
    _check_target(target, arch, wanted, browsers, runs or explain or arguments)
    for name in modules:
        _import(name)
    try:
        if target == BROWSERS:
            from weft.cli.compile_page import write

            for made in write(path, wanted, output, page, inputs, grid, block):
                click.echo(f"{made}: {made.stat().st_size} bytes")
        elif path.suffix == ".py":
            _python(path, arguments, output, runs, explain)
        else:
            _other(path, arguments, output, runs, explain)
    except WeftError as error:
        place = error.where  # a line of Python is of no use to who wrote another language
        known = place is not None and (path.suffix == ".py" or not place.file.endswith(".py"))
        if place is not None and Path(place.file).is_relative_to(Path(click.__file__).parent):
            known = False  # nobody's line: what is wrong is in the command
        told = error if getattr(error, "problems", ()) or known else error.message
        click.echo(f"weft: {told}", err=True)
        sys.exit(1)


def _check_target(target: str, arch: str, wanted: str, browsers: Mapping[str, object],
                  others: object) -> None:  # fmt: skip
    from weft.driver.context import host_context
    from weft.driver.export import TARGETS

    if target == BROWSERS:
        if arch != "native" or others:
            raise UnsupportedError("compile", found="--arch, --run, --explain or arguments",
                                   expected=f"none of them with --target {BROWSERS}")
        return
    if target not in TARGETS:
        raise DeviceError("compile", found=f"--target {target}",
                          expected=", ".join((*TARGETS, BROWSERS)),
                          hint="weft devices lists what this machine can run")
    given = next((name for name, value in browsers.items() if value), None)
    if wanted or given:
        raise UnsupportedError("compile", found=f":{wanted}" if wanted else f"--{given}",
                               expected=f"--target {BROWSERS} with it")
    here = host_context().target.arch
    if arch not in ("native", here):
        raise DeviceError("compile", found=f"--arch {arch}", expected=f"native or {here}")


def _import(name: str) -> None:
    sys.path.insert(0, str(Path.cwd()))
    try:
        import_module(name)
    except ImportError as error:
        raise UnsupportedError("compile", found=f"--language {name}: {error}",
                               expected="a module that calls weft.build.register") from error
    finally:
        sys.path.pop(0)


def _other(file: Path, arguments: tuple[str, ...], output: Path | None, runs: bool,
           explain: bool) -> None:  # fmt: skip
    from weft.lang.builder import language_of, save

    unit = language_of(file)(file)
    if explain:
        click.echo(unit.explain())
    if runs:
        unit.run(arguments)
        return
    if arguments:
        raise LaunchError("compile", found=f"arguments {' '.join(arguments)}",
                          expected="--run with them")
    if not unit.programs:
        raise UnsupportedError(f"compile {file}", found="a program that computes nothing",
                               expected="something to compile")
    for path in save(unit.programs, output or file.with_suffix(".so")):
        click.echo(f"{path}: {path.stat().st_size} bytes")


def _python(file: Path, arguments: tuple[str, ...], output: Path | None, runs: bool,
            explain: bool) -> None:  # fmt: skip
    import runpy

    from weft.cli.script import run_script
    from weft.lang.critical.function import CriticalFunction

    if runs:
        run_script(str(file), arguments)
        return
    sys.path.insert(0, str(file.resolve().parent))
    try:
        names: dict[str, Any] = runpy.run_path(str(file), run_name=file.stem)
    finally:
        sys.path.pop(0)
    found = {f.__name__: f for f in names.values() if isinstance(f, CriticalFunction)
             and f.__weft_function__.__module__ == file.stem}
    if not found:
        raise UnsupportedError(f"compile {file}", found="no function under @weft.critical",
                               expected="at least one, with full annotations")
    if output is not None and len(found) > 1:
        raise UnsupportedError(f"compile {file}", found=f"--output and {len(found)} functions",
                               expected="no --output: each is written to a file of its name")
    for name, function in found.items():
        path = output or file.with_name(f"{name}.so")
        function.save(str(path))
        click.echo(f"{path}: {path.stat().st_size} bytes"
                   + (f"; {function.proof()}" if explain else ""))
