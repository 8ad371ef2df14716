"""Launches on the interpreter device."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from weft.imports import importing

if TYPE_CHECKING:
    from weft.lang.launch.protocol import Launched
    from weft.runtimes.lockstep.run import Outcome

__all__ = ["run"]


def run(launch: Launched, args: tuple[Any, ...], *, sanitise: bool = False,
        seed: int | None = None, steps: int | None = None) -> Outcome:  # fmt: skip
    """Run a launch on the interpreter device."""
    with importing:
        from weft.ir.traverse import stores
        from weft.lang.reader.translate import Launch, translate
        from weft.lang.source.closures import names_of
        from weft.runtimes.lockstep.run import STEPS, Grid
        from weft.runtimes.lockstep.run import run as carry_out

    host = launch.take(args)
    function = launch.kernel.__weft_function__
    constants: list[Any] = []
    shape = Launch(launch.block, launch.ndim, launch.shared, launch.grid)
    nest = translate(function, host.types, shape,
                     wraps=launch.kernel.options.wraps, sanitised=sanitise,
                     fma=launch.kernel.options.fma, strict=launch.kernel.options.strict,
                     constants=constants)
    written = {m.name for m in stores(nest.body)}
    with host.turn(written) as host.alone, host:
        host.resolve(written)
        addresses = [*host.addresses, *(c.__array_interface__["data"][0] for c in constants)]
        try:
            return carry_out(nest, addresses, host.variables, Grid(launch.grid, launch.block),
                             sanitise=sanitise, seed=seed, steps=STEPS if steps is None else steps,
                             known=names_of(launch.kernel))
        finally:
            host.finish()
