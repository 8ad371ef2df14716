"""``weft devices``: what is here, and why the rest is not."""

from __future__ import annotations

import click


@click.command(name="devices")
def command() -> None:
    """List the devices, and say why others are absent."""
    from rich.console import Console
    from rich.table import Table

    from weft.backends import registry

    table = Table(box=None, pad_edge=False)
    for title in ("device", "state", "what"):
        table.add_column(title)
    for found in registry.available():
        if found.reason:
            table.add_row(found.family, "absent", found.reason)
            continue
        described = registry.backend(found.family).target(0)
        what = (
            f"{described.cpu or described.arch}, {described.cores} cores, "
            f"{described.vector_bytes * 8}-bit vectors, "
            f"L2 {described.l2_bytes >> 10} KiB, {described.memory_bytes / 2**30:.1f} GiB"
        )
        for name in found.devices:
            table.add_row(name, "ready", what)
    Console().print(table)
