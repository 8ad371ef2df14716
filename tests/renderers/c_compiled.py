"""Run kernel-level lists through C, one ctypes call each: what tests of that renderer share."""

import ctypes

import compiled
import numpy as np
import pytest

from weft.backends import cpu
from weft.compilers.c import find_compiler
from weft.compilers.llvm import compiler, session
from weft.ir.interpret.interpret import run_linear
from weft.renderers.cstyle.c.renderer import CRenderer
from weft.renderers.cstyle.c.target import c_target

NAMES = {"clang": ("clang-11", "clang"), "gcc": ("gcc",)}
COMPILERS = [pytest.param(name, marks=pytest.mark.requires(name)) for name in NAMES]


def target():
    return c_target(cpu.host_target())


def c_compiler(name, described=None):
    return find_compiler(described or target(), NAMES[name])


def load(kernel, name, described=None, pipeline="short"):
    """Return (native function, library) of a kernel compiled by ``clang`` or ``gcc``."""
    described = described or target()
    source = CRenderer(described).render(kernel)
    assert source.language == "c"
    objects = [c_compiler(name, described).compile(source.text, pipeline)]
    if "weft_parallel_for" in source.imports:
        objects.append(compiler().compile(compiled.POOL))
    library = session().load(objects, [source.name])
    kind = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
    return kind(library[source.name]), library


def run(kernel, arrays, name, variables=(), described=None, pipeline="short"):
    """Run a kernel in place on NumPy arrays; return its code and its status record."""
    function, library = load(kernel, name, described, pipeline)
    buffers = (ctypes.c_void_p * max(len(arrays), 1))(*(a.ctypes.data for a in arrays))
    values = (ctypes.c_int64 * max(len(variables), 1))(*variables)
    status = compiled.Status()
    code = function(buffers, values, ctypes.byref(status))
    library.unload()
    return code, status


def agree(kernel, arrays, name, variables=(), **options):
    """Through C and interpreted, the arrays end up bit for bit the same; return them."""
    native, expected = [a.copy() for a in arrays], [a.copy() for a in arrays]
    names = {v.attr.name: x for v, x in zip(kernel.variables, variables, strict=True)}
    run_linear(kernel, expected, names)
    code, _ = run(kernel, native, name, variables, **options)
    assert code == 0
    for n, e, p in zip(native, expected, kernel.params, strict=True):
        np.testing.assert_array_equal(n.view(np.uint8), e.view(np.uint8), err_msg=p.name)
    return native


def evaluate(jobs, name, lanes, described=None, pipeline="short"):
    """Return the arrays of (root, inputs, columns) jobs, all computed by one kernel.

    The VARs of all inputs have to have names of their own.
    """
    size = max(len(columns[0]) for _, _, columns in jobs)
    padded = -(-size // lanes) * lanes
    roots, inputs = [r for r, _, _ in jobs], list(dict.fromkeys(v for _, i, _ in jobs for v in i))
    given = {v: c for _, i, columns in jobs for v, c in zip(i, columns, strict=True)}
    arrays = [np.concatenate([given[v], np.zeros(padded - len(given[v]), given[v].dtype)])
              for v in inputs]
    made = [np.zeros(padded, r.dtype.numpy) for r in roots]
    described = described or target()
    kernel = compiled.elementwise(roots, inputs, padded, lanes, described)
    code, _ = run(kernel, [*arrays, *made], name, (), described, pipeline)
    assert code == 0
    return [m[: len(columns[0])] for m, (_, _, columns) in zip(made, jobs, strict=True)]
