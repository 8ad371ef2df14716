"""The decompositions, compiled to vectors, give bit for bit what NumPy gives step by step."""

import re

import numpy as np
import pytest

from passes.expr_eval import evaluate
from passes.ulps import every_exponent
from renderers import compiled
from weft.backends import cpu
from weft.ir import dtype as dt
from weft.ir.expr import unary, var
from weft.passes.legalize import Legalizer
from weft.passes.transcendental import FROM_TABLES, TRANSCENDENTALS, decompose

INTRINSICS = {"llvm.fma.v16f32", "llvm.fma.v16f64", "llvm.sqrt.v16f32",
              "llvm.x86.avx512.mask.scalef.ps.512", "llvm.x86.avx512.mask.scalef.pd.512",
              "llvm.x86.avx512.permvar.sf.512", "llvm.x86.avx512.vpermi2var.ps.512"}


@pytest.mark.grid
@pytest.mark.parametrize("kind", [dt.float32, dt.float64], ids=lambda d: d.name)
@pytest.mark.parametrize("op", TRANSCENDENTALS, ids=lambda op: op.name)
def test_native_code_agrees(op, kind):
    agree(op, kind, tables=False)


@pytest.mark.parametrize("op", FROM_TABLES, ids=lambda op: op.name)
def test_native_code_with_tables_agrees(op):
    agree(op, dt.float32, tables=True)


def agree(op, kind, tables):
    values = np.random.default_rng(11).permutation(every_exponent(kind.numpy, 2, seed=12))
    near = np.random.default_rng(13).uniform(-30, 30, len(values)).astype(values.dtype)
    x = np.concatenate([values, near, near])
    y = np.concatenate([near, near[::-1], values])
    names = tuple(var(f"x{i}", kind) for i in range(op.arity))
    arrays = (x, y)[: op.arity]
    root = decompose(op, names, tables=tables)
    (got,) = compiled.evaluate([root], names, arrays)
    expected = evaluate(root, dict(zip(names, arrays, strict=True)))
    bits = f"u{kind.itemsize}"
    same = (got.view(bits) == expected.view(bits)) | (np.isnan(got) & np.isnan(expected))
    assert same.all(), (op.name, [a[~same][:5] for a in arrays], got[~same][:5])


def test_no_call_is_left():
    """Legalised for the host, nothing remains that a library would have to compute."""
    x = var("x", dt.float32)
    for op in TRANSCENDENTALS:
        if op.arity == 1:
            made = Legalizer(cpu.host_target()).one(unary(op, x))
            assert made.op not in TRANSCENDENTALS
            text = cpu.renderer().render(compiled.elementwise([made], [x], 16, 16)).text
            calls = set(re.findall(r"call [^@]*@([\w.]+)", text))
            assert calls <= INTRINSICS, (op.name, calls)
