"""Tensors in einops: ``einops.rearrange(t, "b h w -> b (h w)")``.

einops finds the library of a tensor among the subclasses of its ``AbstractBackend``. `install` sees
to it that there is one for Weft as soon as einops is imported, before or after Weft; it imports
nothing itself.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any, Final

__all__ = ["install"]

_MODULE: Final = "einops._backends"


def install() -> None:
    """Make einops know tensors, now or when it is imported."""
    if _MODULE in sys.modules:
        _register(sys.modules[_MODULE])
    elif not any(isinstance(f, _Finder) for f in sys.meta_path):
        sys.meta_path.insert(0, _Finder())


class _Finder:
    """Waits for the import of einops, registers the backend, and is gone."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """Return the module's own spec, whose loader registers the backend behind it."""
        if name != _MODULE:
            return None
        import importlib.util  # which few programs need

        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is None or spec.loader is None:
            return spec
        loader = spec.loader
        run = loader.exec_module

        def exec_module(module: Any) -> None:
            run(module)
            _register(module)

        loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def _register(module: Any) -> None:
    """Define the backend, which einops finds as a subclass of its base class."""
    weft: Any = sys.modules["weft"]
    if any(b.framework_name == "weft" for b in module.AbstractBackend.__subclasses__()):
        return

    class WeftBackend(module.AbstractBackend):  # type: ignore[misc]
        """What einops needs of tensors."""

        framework_name = "weft"

        def is_appropriate_type(self, tensor: Any) -> bool:
            return isinstance(tensor, weft.Tensor)

        def from_numpy(self, x: Any) -> Any:
            return weft.tensor(x)

        def to_numpy(self, x: Any) -> Any:
            return x.numpy()

        def arange(self, start: int, stop: int) -> Any:
            return weft.arange(start, stop)

        def reduce(self, x: Any, operation: str, axes: Sequence[int]) -> Any:
            name = {"min": "amin", "max": "amax"}.get(operation, operation)
            return getattr(x, name)(tuple(axes))

        def stack_on_zeroth_dimension(self, tensors: list[Any]) -> Any:
            return weft.stack(tensors)

        def add_axis(self, x: Any, new_position: int) -> Any:
            return x.unsqueeze(new_position)

        def tile(self, x: Any, repeats: Sequence[int]) -> Any:
            return x.tile(*repeats)

        def concat(self, tensors: Sequence[Any], axis: int) -> Any:
            return weft.cat(list(tensors), axis)

        def is_float_type(self, x: Any) -> bool:
            return bool(x.dtype.is_float)

        def einsum(self, pattern: str, *x: Any) -> Any:
            return weft.einsum(pattern, *x)

        def transpose(self, x: Any, axes: Sequence[int]) -> Any:
            return x.permute(*axes)

    # einops keeps its subclasses by a weak list of the interpreter: this name keeps it alive.
    module.WeftBackend = WeftBackend
