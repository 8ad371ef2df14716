"""Programs as files: an object, a shared library, a C header."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from weft.errors import UnsupportedError
from weft.imports import importing
from weft.ir import dtype as dt
from weft.ir import expr as ex
from weft.ir.op import Op
from weft.ir.stmt import Kernel
from weft.lang.builder.grids import specialised
from weft.lang.builder.parameters import ArrayParameter, Signature
from weft.lang.builder.programs import BuiltFunction, BuiltKernel, BuiltLaunch

if TYPE_CHECKING:
    from weft.driver.critical import Code

__all__ = ["save"]


def save(programs: Sequence[BuiltFunction | BuiltLaunch], path: str | Path) -> list[Path]:
    """Write programs to a file of the kind that its suffix names; return what was written.

    Each program becomes a C function of its name, which runs on the thread that calls it. Sizes
    that arrays do not fix are parameters in front of the arrays. A function whose parallel loops
    run as several launches becomes several C functions, ``name_1``, ``name_2``, in that order.

    Parameters
    ----------
    programs
        Functions, and kernels with their launches: ``k[grid, block]``.
    path
        ``.so`` or ``.dylib`` (with a header beside it), ``.h``, or ``.o`` for a single function.

    Raises
    ------
    UnsupportedError
        For another suffix, and for several functions in one object.
    """
    with importing:
        from weft.lang.critical.export import header, link, writing

    target = Path(path)
    if isinstance(programs, BuiltFunction | BuiltLaunch):
        programs = [programs]
    for program in programs:
        given: object = program
        if not isinstance(given, BuiltFunction | BuiltLaunch):
            kernel = isinstance(given, BuiltKernel)
            raise UnsupportedError(
                f"save {target.name}", found=repr(given),
                expected="a kernel with its launch: k[grid, block]" if kernel
                else "what a builder has as its program")
    codes = [c for k, p in enumerate(programs) for c in _functions(p, _name(programs, k))]
    title = f"save {target.name}"
    if not codes:
        raise UnsupportedError(title, found="no programs", expected="at least one")
    text = "\n".join(header(c, f"{c.name}: made by Weft.") for c in codes)
    if target.suffix in (".so", ".dylib"):
        link(codes, target)
        written = target.with_suffix(".h")
        with writing(written):
            written.write_text(text, encoding="utf-8")
        return [target, written]
    if target.suffix == ".h":
        with writing(target):
            target.write_text(text, encoding="utf-8")
    elif target.suffix == ".o" and len(codes) == 1:
        with writing(target):
            target.write_bytes(codes[0].core)
    else:
        raise UnsupportedError(title, found=f"{len(codes)} functions" if target.suffix == ".o"
                               else f"the suffix {target.suffix!r}",
                               expected=".so, .dylib, .h, or .o for a single function")
    return [target]


def _name(programs: Sequence[Any], number: int) -> str:
    """Return a symbol: the name of a program, numbered where several have it."""
    names = [p.kernel.name if isinstance(p, BuiltLaunch) else p.name for p in programs]
    own: str = names[number]
    if names.count(own) == 1:
        return own
    return f"{own}_{names[:number].count(own) + 1}"


def _functions(program: BuiltFunction | BuiltLaunch, name: str) -> list[Code]:
    with importing:
        from weft.driver.export import c_function
        from weft.lang.critical.names import symbol

    if isinstance(program, BuiltLaunch):
        kernel = program.kernel
        nest = kernel.nest(program.block, program.ndim, grid=program.grid)
        sizes = {v: ex.index(n) for axis, n in zip("xyz", program.grid, strict=True)
                 for v in _variables(nest) if v.attr.name == f"grid.{axis}"}
        nest = specialised(nest, sizes)
        return [c_function(nest, symbol(name), _parameters(kernel.signature, nest))]
    parts = program.launches
    name = symbol(name)
    return [c_function(part.kernel, name if len(parts) == 1 else f"{name}_{k}",
                       _parameters(program.signature, part.kernel))
            for k, part in enumerate(parts, 1)]


def _variables(kernel: Kernel) -> list[ex.Expr]:
    from weft.ir.traverse import walk

    found = [e for s in walk(kernel.body) for e in s.exprs()]
    return list(dict.fromkeys(ex.variables([*found, *(n for m in kernel.params for n in m.shape)])))


def _parameters(signature: Signature, kernel: Kernel) -> dict[str, Any]:
    from weft.ir.traverse import stores
    from weft.runtimes.native.calls import critical_ir as ir

    written = stores(kernel.body)
    params: dict[str, Any] = {}
    for p in signature.parameters:
        if isinstance(p, ArrayParameter):
            for n in p.memory.shape:
                if n.op is Op.VARIABLE:
                    params.setdefault(str(n.attr.name), ir.Scalar(dt.int64))
    for p in signature.parameters:
        if isinstance(p, ArrayParameter):
            known = tuple(0 if n.op is not Op.CONST else int(n.attr) for n in p.memory.shape)
            params[p.name] = ir.Array(p.memory.dtype, known, "C", p.memory in written)
        else:
            params[p.name] = ir.Scalar(p.dtype)
    return params
