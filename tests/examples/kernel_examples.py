"""The examples of kernels for tests: loaded under other launches, and from changed text."""

import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import weft
from weft.lang.launch.launch import KernelFunction

FOLDER = Path(__file__).parent.parent.parent / "examples" / "kernels"
NAMES = sorted(p.stem for p in FOLDER.glob("[a-z]*.py"))

STEPS = 50_000  # of a launch: an example that needs more does not end

Launch = Callable[[KernelFunction, tuple[Any, ...], tuple[Any, ...]], None]


class Diverted:
    """A kernel whose launches go elsewhere."""

    def __init__(self, kernel: KernelFunction, launch: Launch) -> None:
        self.kernel, self.launch = kernel, launch

    def __getitem__(self, configuration: tuple[Any, ...]) -> Callable[..., None]:
        return lambda *args: self.launch(self.kernel, configuration, args)


def load(file: Path, launch: Launch) -> ModuleType:
    """Return the module of a file with all launches of its kernels diverted."""
    module = ModuleType(file.stem)
    module.__file__ = str(file)
    text = file.read_text()
    sys.modules[file.stem] = module  # where dataclasses look for the names of their annotations
    try:
        exec(compile(text, str(file), "exec"), vars(module))
    finally:
        del sys.modules[file.stem]
    for name, value in list(vars(module).items()):
        if isinstance(value, KernelFunction):
            setattr(module, name, Diverted(value, launch))
    return module


class Sanitised:
    """Launches under the sanitiser; what it found."""

    def __init__(self) -> None:
        self.findings: list[Any] = []

    def __call__(self, kernel: KernelFunction, configuration: Any, args: Any) -> None:
        grid, block, *rest = configuration
        shared = rest[1] if len(rest) > 1 else 0
        report = weft.sanitize(kernel, grid, block, shared=shared, steps=STEPS)(*args)
        self.findings.extend(report.findings)
