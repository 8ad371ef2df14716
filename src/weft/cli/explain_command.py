"""``weft explain script.py``: each kernel at each level, with its time against the machine's."""

from __future__ import annotations

import linecache
import statistics
from typing import TYPE_CHECKING, Final

import click

from weft.cli.explain_summary import LEVELS, seconds_of, summary, texts_of
from weft.cli.script import run_script
from weft.errors import Where

if TYPE_CHECKING:
    from weft.driver.report.explain import Explained, Overlap
    from weft.driver.report.profile import Peaks

_MOST_LINES: Final = 3  # of a kernel, that are printed


@click.command(name="explain", context_settings={"ignore_unknown_options": True},
               epilog="Put -- before arguments of the script that weft would take itself.")
@click.option("--level", "levels", multiple=True, type=click.Choice((*LEVELS, "all", "none")),
              default=("graph", "loop", "schedule"), show_default=True,
              help="What to print of each kernel; may be repeated.")
@click.option("--html", "page", type=click.Path(dir_okay=False, writable=True), default=None,
              help="Write everything to one page that needs nothing else, instead of printing it.")
@click.option("--kernel", "only", type=int, default=None, help="Only the kernel of this number.")
@click.argument("script", type=click.Path(exists=True, dir_okay=False))
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def command(levels: tuple[str, ...], page: str | None, only: int | None, script: str,
            arguments: tuple[str, ...]) -> None:  # fmt: skip
    """Run SCRIPT with empty caches and show every kernel it was compiled to."""
    from rich.console import Console

    from weft.driver import counters
    from weft.driver.report.explain import explain, overlaps
    from weft.driver.report.profile import peaks
    from weft.tensors.core.source_positions import noted_lines

    with counters.record() as recording, noted_lines():
        try:
            run_script(script, arguments)
        except SystemExit as leaving:  # the script is done, and there is something to explain
            if leaving.code:
                raise
    with Console(stderr=True).status("measuring"):
        found = explain(recording)
        side_by_side = overlaps(recording)
        machine = peaks()
    if only is not None and not 0 <= only < len(found):
        raise click.ClickException(f"--kernel: found {only}, expected 0 to {len(found) - 1}")
    if page is not None:
        from weft.cli.explain_page import write

        write(page, script, found, machine)
        click.echo(f"{_counted(len(found), 'kernel')} explained in {page}")
        return
    wanted = LEVELS if "all" in levels else levels
    _table(found, machine, len(recording.plans))
    _together(found, side_by_side)
    click.echo()
    for number, kernel in enumerate(found):
        if only == number or (only is None and not kernel.is_random):
            _show(number, kernel, wanted)


def _together(found: list[Explained], overlaps: list[Overlap]) -> None:
    """Say which launches run at the same time, and what that saves."""
    number = {kernel.name: i for i, kernel in enumerate(found)}
    for group in overlaps:
        launches = ", ".join(str(number.get(name, "?")) for name in group.kernels)
        text = f"plan {group.plan}: kernels {launches} run at the same time"
        if group.timing is not None:
            text += (f", {group.timing.together * 1e6:.1f} us instead of "
                     f"{group.timing.apart * 1e6:.1f} us")
        click.echo(text + (f", {group.times} times" if group.times > 1 else ""))


def _is_terminal() -> bool:
    import sys

    return sys.stdout.isatty()


def _counted(number: int, what: str) -> str:
    return f"{number} {what}" + ("" if number == 1 else "s")


def _median(values: list[float]) -> str:
    return f"{statistics.median(values):.1f} ms" if values else "nothing"


def _show(number: int, kernel: Explained, levels: tuple[str, ...]) -> None:
    click.secho(f"kernel {number}: {kernel.kind} ({kernel.name})", bold=True)
    for file, line in kernel.lines[:_MOST_LINES]:
        click.echo(f"  {Where(file, line, linecache.getline(file, line).strip())}")
    if len(kernel.lines) > _MOST_LINES:
        click.echo(f"  and {_counted(len(kernel.lines) - _MOST_LINES, 'line')} more")
    for why in kernel.why:
        click.echo(f"  because: {why}")
    effort = kernel.effort
    click.echo(f"  compiled: {kernel.tier} tier, {effort.passes} passes over the kernel, "
               f"{_counted(effort.primitives, 'primitive')}, {effort.python:.1f} ms of Python, "
               f"{effort.llvm:.1f} ms of LLVM")
    texts = texts_of(kernel)
    for level in LEVELS:
        if level in levels:
            click.secho(f"-- {level}", fg="cyan")
            click.echo(texts[level]() or "(none)")
    click.echo()


def _table(found: list[Explained], machine: Peaks, plans: int) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for title in ("#", "line", "kind", "compile", "launches", "time", "share", "GB/s", "of peak",
                  "GFLOP/s", "of peak"):
        table.add_column(title, justify="left" if title in ("line", "kind") else "right")
    total, random = seconds_of(found), [k for k in found if k.is_random]
    for number, kernel in enumerate(found):
        if kernel.is_random:
            continue
        row, effort = summary(kernel, total, machine), kernel.effort
        table.add_row(str(number), row.line, kernel.kind,
                      f"{effort.python:.1f} + {effort.llvm:.1f} ms", *row[1:])
    if random:
        took = seconds_of(random)
        table.add_row("", "", f"random numbers: {_counted(len(random), 'kernel')}", "",
                      str(sum(k.launches for k in random)), f"{took * 1e3:.4f} ms",
                      f"{took / total:.0%}" if total else "")  # fmt: skip
    console = Console(width=None if _is_terminal() else 140)
    console.print(f"{total * 1e3:.3f} ms in all kernels, each timed alone")
    console.print(table)
    console.print(
        f"{_counted(len(found), 'kernel')} in {_counted(plans, 'plan')}; machine peak "
        f"{machine.bandwidth:.1f} GB/s read, {machine.flops:.0f} GFLOP/s float32; "
        "memory traffic counts each array once; compile: Python + LLVM, in the median "
        f"{_median([k.effort.python for k in found])} + {_median([k.effort.llvm for k in found])}"
    )
