"""``weft compile file:name --target webgpu``: a function of a script as a module for browsers."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path
from typing import Any

from weft.errors import LaunchError, UnsupportedError

__all__ = ["write"]


def write(file: Path, name: str, output: Path | None, page: bool, inputs: tuple[str, ...],
          grid: str | None, block: str | None) -> list[Path]:  # fmt: skip
    """Run a script, write its function `name` to a folder, and return the paths.

    Raises
    ------
    UnsupportedError
        If the script has no such function, or nothing says what its arguments are.
    LaunchError
        If grid or block are no sizes.
    """
    from weft.web.export import export
    from weft.web.inputs import parse_inputs

    names = _names_of(file)
    function = _function(file, names, name)
    given: Any = parse_inputs(inputs) if inputs else getattr(function, "example_inputs", None)
    if given is None:
        given = names.get("example_inputs")
    name = name or getattr(function, "__name__", "")
    return export(function, output or Path(name), given, name=name, grid=_sizes(grid, "--grid"),
                  block=_sizes(block, "--block"), page=page)


def _names_of(file: Path) -> dict[str, Any]:
    """Return what a script defines; it is imported, and not its program run."""
    sys.path.insert(0, str(file.resolve().parent))
    try:
        return runpy.run_path(str(file), run_name=file.stem)
    finally:
        sys.path.pop(0)


def _function(file: Path, names: dict[str, Any], name: str) -> Any:
    """Return a function of a script: that of a name, or the only one that could be meant."""
    from weft.capture.jit import Jitted
    from weft.lang.launch.launch import Configured, KernelFunction

    if name:
        if name not in names:
            raise UnsupportedError(f"compile {file}", found=f"nothing that is called {name}",
                                   expected="a function of the script")
        return names[name]
    found = {n: f for n, f in names.items() if isinstance(f, Jitted | KernelFunction | Configured)
             and getattr(f, "__module__", file.stem) == file.stem}
    if len(found) != 1:
        raise UnsupportedError(
            f"compile {file}", found=", ".join(found) or "no function under @weft.jit or a kernel",
            expected="one of them", hint=f"name it: {file}:NAME")
    return next(iter(found.values()))


def _sizes(text: str | None, option: str) -> int | tuple[int, ...] | None:
    if text is None:
        return None
    try:
        sizes = tuple([int(n) for n in text.split(",")])
    except ValueError:
        raise LaunchError("compile", found=f"{option} {text}",
                          expected="up to three numbers, such as 16 or 16,16") from None
    return sizes[0] if len(sizes) == 1 else sizes
