"""``weft explain script.py``: each kernel at each level, with its time against the machine's."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, Final

import click

from weft.cli.script import run_script

if TYPE_CHECKING:
    from weft.driver.explain import Explained, Overlap
    from weft.driver.profile import Peaks

LEVELS: Final = ("graph", "loop", "schedule", "kernel", "source", "assembly")


@click.command(name="explain", context_settings={"ignore_unknown_options": True},
               epilog="Put -- before arguments of the script that weft would take itself.")
@click.option("--level", "levels", multiple=True, type=click.Choice((*LEVELS, "all", "none")),
              default=("graph", "loop", "schedule"), show_default=True,
              help="What to print of each kernel; may be repeated.")
@click.option("--kernel", "only", type=int, default=None, help="Only the kernel of this number.")
@click.argument("script", type=click.Path(exists=True, dir_okay=False))
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def command(levels: tuple[str, ...], only: int | None, script: str,
            arguments: tuple[str, ...]) -> None:  # fmt: skip
    """Run SCRIPT with empty caches and show every kernel it was compiled to."""
    from rich.console import Console

    from weft.driver import report
    from weft.driver.explain import explain, overlaps
    from weft.driver.profile import peaks

    with report.record() as recording:
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
    wanted = LEVELS if "all" in levels else levels
    for number, kernel in enumerate(found):
        if only is None or only == number:
            _show(number, kernel, wanted)
    _table(found, machine, len(recording.plans))
    _together(found, side_by_side)


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
    for why in kernel.why:
        click.echo(f"  because: {why}")
    effort = kernel.effort
    click.echo(f"  compiled: {kernel.tier} tier, {effort.passes} passes over the kernel, "
               f"{_counted(effort.primitives, 'primitive')}, {effort.python:.1f} ms of Python, "
               f"{effort.llvm:.1f} ms of LLVM")
    texts = {"graph": kernel.graph, "loop": kernel.nest, "schedule": kernel.schedule,
             "kernel": kernel.kernel, "source": kernel.source}  # fmt: skip
    for level in LEVELS:
        if level in levels:
            text = kernel.assembly() if level == "assembly" else texts[level]
            click.secho(f"-- {level}", fg="cyan")
            click.echo(text or "(none)")
    click.echo()


def _table(found: list[Explained], machine: Peaks, plans: int) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for title in ("#", "kind", "passes", "compile", "launches", "time", "GB/s", "of peak",
                  "GFLOP/s", "of peak"):
        table.add_column(title, justify="left" if title == "kind" else "right")
    for number, kernel in enumerate(found):
        timing, effort = kernel.timing, kernel.effort
        made = (str(number), kernel.kind, str(effort.passes),
                f"{effort.python:.1f} + {effort.llvm:.1f} ms", str(kernel.launches))
        if timing is None:
            table.add_row(*made, "refused", *[""] * 4)
            continue
        if not timing.traffic and not timing.flops:  # nobody counted what a user's kernel does
            table.add_row(*made, f"{timing.seconds * 1e3:.4f} ms", *[""] * 4)
            continue
        nanoseconds = timing.seconds * 1e9
        bandwidth, rate = timing.traffic / nanoseconds, timing.flops / nanoseconds
        table.add_row(
            *made, f"{timing.seconds * 1e3:.4f} ms",
            f"{bandwidth:.1f}", f"{bandwidth / machine.bandwidth:.0%}", f"{rate:.1f}",
            f"{rate / machine.flops:.0%}",
        )
    console = Console(width=None if _is_terminal() else 120)
    console.print(table)
    console.print(
        f"{_counted(len(found), 'kernel')} in {_counted(plans, 'plan')}; machine peak "
        f"{machine.bandwidth:.1f} GB/s read, {machine.flops:.0f} GFLOP/s float32; "
        "memory traffic counts each array once; compile: Python + LLVM, in the median "
        f"{_median([k.effort.python for k in found])} + {_median([k.effort.llvm for k in found])}"
    )
