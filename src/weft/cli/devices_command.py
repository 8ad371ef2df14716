"""``weft devices``: what is here, and why the rest is not."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
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
def command() -> None:
    """List the devices, and say why others are absent."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    from weft.backends import cpu, cpu_c, registry

    table = Table(box=None, pad_edge=False)
    for title in ("device", "state", "what"):
        table.add_column(title)
    for found in (*registry.available(), *registry.more_pairs()):
        if found.reason:
            table.add_row(found.family, "absent", escape(found.reason))
            continue
        if found.family == cpu_c.NAME:
            table.add_row(found.family, "ready", cpu_c.description(cpu.host_target()))
            continue
        about = registry.backend(found.family).description
        if about:
            table.add_row(found.family, "ready", about)
            continue
        described = registry.backend(found.family).target(0, "")
        what = (
            f"{described.cpu or described.arch}, {described.cores} cores, "
            f"{described.vector_bytes * 8}-bit vectors, "
            f"L2 {described.l2_bytes >> 10} KiB, {described.memory_bytes / 2**30:.1f} GiB"
        )
        if found.family == "cpu":
            what += f", {_products(described)}"
        for name in found.devices:
            table.add_row(name, "ready", what)
    Console().print(table)
