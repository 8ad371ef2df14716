"""``weft.build``: programs for Weft from any language, written by calls instead of Python source.

::

    from weft import build

    with build.function("scale", at=("photo.img", 1)) as f:
        n = f.size("n")
        x = f.array("x", weft.float32, (n,))
        y = f.array("y", weft.float32, (n,), writable=True)
        a = f.scalar("a", weft.float32)
        with f.parallel(n, at=("photo.img", 2, 1)) as (i,):
            f.store(y, i, f.op("*", a, f.load(x, i), at=("photo.img", 2, 9)))
    scale = f.program
    scale(x, y, 2.0)

A `function` is made of loops, which Weft maps to threads and vectors; a `kernel` is what one thread
of a grid does, and is launched like a function under `weft.kernel`; a `device` function is written
into each program that calls it. `Errors` collects what is wrong with a program in the other
language, and `register` lets ``weft compile`` and ``weft run`` take files of that language.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from weft.errors import KernelError, outermost
from weft.imports import importing

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from weft.lang.builder.base import Device
    from weft.lang.builder.builder import Builder
    from weft.lang.builder.files import save
    from weft.lang.builder.functions import FunctionBuilder
    from weft.lang.builder.kernels import KernelBuilder
    from weft.lang.builder.languages import Language, Unit, language_of, register
    from weft.lang.builder.places import At, Errors, source_text
    from weft.lang.builder.programs import BuiltFunction, BuiltKernel
    from weft.lang.builder.values import Array, Scalar, Variable

__all__ = ["Array", "At", "Builder", "BuiltFunction", "BuiltKernel", "Device", "Errors",
           "FunctionBuilder", "KernelBuilder", "Language", "Scalar", "Unit", "Variable", "device",
           "function", "kernel", "language_of", "register", "save", "source_text"]  # fmt: skip

_HOMES = {
    "Array": "values", "At": "places", "Builder": "builder", "BuiltFunction": "programs",
    "BuiltKernel": "programs", "Device": "base", "Errors": "places",
    "FunctionBuilder": "functions", "KernelBuilder": "kernels", "Language": "languages",
    "Scalar": "values", "Unit": "languages", "Variable": "values", "language_of": "languages",
    "register": "languages", "save": "files", "source_text": "places",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    found = getattr(import_module(f"{__name__}.{home}"), name)
    globals()[name] = found
    return found


@outermost
def function(name: str, *, at: At | None = None, fastmath: bool = False,
             unchecked: bool = False) -> FunctionBuilder:  # fmt: skip
    """Begin a function of loops; a ``with`` statement finishes it.

    Parameters
    ----------
    name
        What errors and printed programs call it.
    at
        Its place in the other language, see `Builder`.
    fastmath
        Let products and sums be fused, and sums be added in another order.
    unchecked
        Do not check indices: one that is out of bounds may do anything.
    """
    with importing:
        from weft.lang.builder.functions import FunctionBuilder

    return FunctionBuilder(name, at, fastmath=fastmath, unchecked=unchecked)


@outermost
def kernel(name: str, *, at: At | None = None, fastmath: bool = False,
           unchecked: bool = False) -> KernelBuilder:  # fmt: skip
    """Begin a kernel: what one thread of a grid of blocks does; see `function`."""
    with importing:
        from weft.lang.builder.kernels import KernelBuilder

    return KernelBuilder(name, at, fastmath=fastmath, unchecked=unchecked)


@outermost
def device(name: str, params: Mapping[str, Any], returns: Any = None, *,
           at: At | None = None) -> Callable[[Callable[..., Any]], Device]:  # fmt: skip
    """Make a device function of a Python function that writes its body.

    ::

        @build.device("luma", {"r": weft.float32, "g": weft.float32}, weft.float32)
        def luma(r, g):
            return r * 0.3 + g * 0.7

    Parameters
    ----------
    name
        What errors call it.
    params
        Type of each parameter by name; None for an array.
    returns
        Type of its result; None for none.
    at
        Its place, for errors in this declaration.
    """
    from collections.abc import Mapping

    with importing:
        from weft.lang.builder.base import Device
        from weft.lang.builder.places import place_of
    from weft.lang.core.element_types import as_dtype

    place = place_of(at)
    if not isinstance(name, str) or not isinstance(params, Mapping):
        raise KernelError("build", found=f"device({name!r}, {params!r})",
                          expected='a name and a dict of types, such as {"x": weft.float32}',
                          where=(place.file, place.lineno))
    types = {key: None if kind is None else as_dtype(kind) for key, kind in params.items()}
    result = None if returns is None else as_dtype(returns)
    for key, kind in {**params, "its result": returns}.items():
        if kind is not None and as_dtype(kind) is None:
            raise KernelError(f"device function {name}", found=f"{kind!r} for {key}",
                              expected="a dtype", where=(place.file, place.lineno))

    @outermost
    def make(emit: Callable[..., Any]) -> Device:
        if not callable(emit):
            raise KernelError(f"device function {name}", found=repr(emit),
                              expected="a Python function that writes its body",
                              where=(place.file, place.lineno))
        return Device(name, types, result, emit)

    return make


def __dir__() -> list[str]:
    """Return the public names: what Tab completes."""
    return sorted(__all__)
