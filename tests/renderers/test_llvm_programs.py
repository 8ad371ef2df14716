"""Random expressions over all dtypes: natively, and interpreted before legalisation."""

import math

import numpy as np
import pytest
from compiled import evaluate
from hypothesis import given, settings
from hypothesis import strategies as st
from test_llvm_ops import python, special

from weft.ir import dtype as dt
from weft.ir import expr as ex
from weft.ir.interpret import interpret
from weft.ir.op import SCALAR_OPS, Op
from weft.passes.transcendental import TRANSCENDENTALS

OPS = [op for op in SCALAR_OPS if op not in TRANSCENDENTALS
       and op not in (Op.CAST, Op.BITCAST, Op.WHERE)]  # fmt: skip
# The value of a NaN's sign and payload is nobody's business, so nothing may look at it.
BLIND = [op for op in OPS if op is not Op.COPYSIGN]


@st.composite
def programs(draw):
    """Draw (root, inputs): up to 25 operations, each on values that were there before."""
    kinds = draw(st.lists(st.sampled_from(dt.ALL), min_size=1, max_size=3))
    inputs = [ex.var(f"x{k}", d) for k, d in enumerate(kinds)]
    pool = list(inputs)
    for _ in range(draw(st.integers(1, 25))):
        a = draw(st.sampled_from(pool))
        same = [e for e in pool if e.dtype is a.dtype]
        choice = draw(st.integers(0, 9))
        if choice < 2:
            pool.append(ex.cast(a, draw(st.sampled_from(dt.ALL))))
        elif choice == 2:
            pool.append(ex.const(draw(st.sampled_from(python(special(a.dtype), a.dtype))), a.dtype))
        elif choice == 3:
            bools = [e for e in pool if e.dtype.is_bool] or [a.ne(a)]
            condition = draw(st.sampled_from(bools))
            pool.append(ex.where(condition, a, draw(st.sampled_from(same))))
        else:
            op = draw(st.sampled_from([op for op in BLIND if a.dtype.kind in op.kinds]))
            args = (a, *(draw(st.sampled_from(same)) for _ in range(op.arity - 1)))
            result = dt.bool_ if op.result == "bool" else a.dtype
            pool.append(ex.make(op, result, args))
    return pool[-1], inputs


@pytest.mark.grid
@pytest.mark.parametrize("pipeline", ["short", "O2"])
@given(programs(), st.sampled_from([1, 4, 16]), st.integers(0, 1 << 30))
@settings(max_examples=60, deadline=None)
def test_random_programs(pipeline, program, lanes, number):
    root, inputs = program
    rng = np.random.default_rng(number)
    columns = [rng.choice(special(v.dtype), 16) for v in inputs]
    (got,) = evaluate([root], inputs, columns, lanes, pipeline=pipeline)
    rows = zip(*(python(c, v.dtype) for c, v in zip(columns, inputs, strict=True)), strict=True)
    for g, row in zip(python(got, root.dtype), rows, strict=True):
        want = interpret.evaluate(root, dict(zip(inputs, row, strict=True)))
        signs = not root.dtype.is_float or math.copysign(1, g) == math.copysign(1, want)
        same = g == want and signs
        assert same or (g != g and want != want), (row, g, want)
