"""``weft devices``: what is here, and why the rest is not."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from rich.table import Table

    from weft.target import Target


def _products(target: Target) -> str:
    """Return which products of narrow elements the processor has instructions for."""
    from weft.backends import cpu
    from weft.ir.dtype import uint32
    from weft.ir.op import Op

    dots = [name for op, name in ((Op.DOT2, "bf16"), (Op.DOT4, "int8"))
            if target.supports(op, uint32)]
    return f"dot products of {' and '.join(dots) or 'nothing'}, AMX {cpu.tiles_state() or 'ready'}"


@click.command(name="devices")
@click.argument("name", required=False)
def command(name: str | None) -> None:
    """List the devices, and say why others are absent.

    With the NAME of one, what it can do, and who says so.
    """
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    from weft.backends import registry

    table = Table(box=None, pad_edge=False)
    if name is not None:
        _describe(name, table)
        Console().print(table)
        return
    for title in ("device", "state", "what"):
        table.add_column(title)
    for found in (*registry.available(), *registry.more_pairs()):
        state, what = "absent", found.reason
        if not what:
            try:
                state, what = "ready", _description(found.family)
            except Exception as error:  # of a driver, which the others have nothing to do with
                state, what = "failing", f"{type(error).__name__}: {error}"
        said = [device.get("description") for device in found.described]
        for number, name in enumerate(found.devices or (found.family,)):
            words = (said[number] if state == "ready" and number < len(said) else "") or what
            table.add_row(name, state, escape(words))
    Console().print(table)


def _describe(name: str, table: Table) -> None:
    """Fill a table with what a device can do."""
    from weft.lang.device.device_info import DeviceInfo, Figure, device_info

    for title in ("figure", "value", "source"):
        table.add_column(title)
    found = device_info(name)
    for field in DeviceInfo.__annotations__:
        figure = getattr(found, field)
        if not isinstance(figure, Figure):
            continue
        value = figure.value
        if isinstance(value, dict):
            for use in sorted(set().union(*value.values())):
                table.add_row(f"{field}: {use}", ", ".join(k for k, v in value.items() if use in v),
                              figure.source)
            continue
        shown = f"{value:.3g}" if isinstance(value, float) else (
            ", ".join(map(str, value)) or "none" if isinstance(value, tuple) else str(value))
        table.add_row(field, shown, figure.source)


def _description(family: str) -> str:
    """Return what a family of devices, or one of its pairs, is."""
    from weft.backends import cpu, cpu_c, names, registry

    if family == cpu_c.NAME:
        return cpu_c.description(cpu.host_target())
    name = names.parse(family)
    found = registry.backend(name.family)
    if found.description:
        return found.description
    described = found.target(0, name.pair)
    what = (
        f"{described.cpu or described.arch}, {described.cores} cores, "
        f"{described.vector_bytes * 8}-bit vectors, "
        f"L2 {described.l2_bytes >> 10} KiB, {described.memory_bytes / 2**30:.1f} GiB"
    )
    return f"{what}, {_products(described)}" if family == "cpu" else what
