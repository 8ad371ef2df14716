"""Functions of floats have the bits of their decomposition on every device, whatever compiles them.

A driver that folds what it must not, or rounds otherwise, shows here before an error bound does.
"""

import numpy as np
import pytest
from device_errors import inputs
from values import assert_same

from graphs import el
from passes.expr_eval import evaluate
from weft.driver.context import context
from weft.ir import dtype as dt
from weft.ir.expr import var
from weft.ir.op import Op
from weft.passes.transcendental import TRANSCENDENTALS, decompose


@pytest.mark.grid
@pytest.mark.parametrize("op", [op for op in TRANSCENDENTALS if op is not Op.RECIPROCAL],
                         ids=lambda op: op.name)
def test_bits_of_float32(op, device, rng):
    target = context(device.name).target
    columns = inputs(op, dt.float32, rng, 0.2)
    names = tuple(var(f"x{i}", dt.float32) for i in range(op.arity))
    made = decompose(op, names, tables=target.supports(Op.LOOKUP, dt.uint32),
                     double=target.computes(dt.float64))  # fmt: skip
    with np.errstate(all="ignore"):
        want = evaluate(made, dict(zip(names, columns, strict=True)))
    (got,) = device.compute(el(op, *map(device.leaf, columns)))
    assert_same(got, want, *columns, what=op.name)
