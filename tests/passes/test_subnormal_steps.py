"""Steps with subnormal numbers take a processor a hundred cycles: tiny arguments need none."""

import numpy as np
import pytest

from passes.expr_eval import evaluate
from seeds import seeds
from weft.ir import dtype as dt
from weft.ir.expr import toposort, var
from weft.ir.op import Op
from weft.passes.transcendental import decompose

ARITHMETIC = {Op.ADD, Op.SUB, Op.MUL, Op.DIV, Op.MAD, Op.SQRT}
LEAST = float(np.finfo(np.float32).smallest_normal)


def is_subnormal(x):
    return (x != 0) & (np.abs(x) < LEAST)


def slow_steps(op, numbers):
    """Return where a float32 step that counts takes or gives a subnormal number."""
    x = var("x", dt.float32)
    root = decompose(op, (x,), tables=True)
    nodes = toposort([root])
    counts = {e: np.zeros(len(numbers), bool) for e in nodes}
    counts[root][:] = True
    values = {e: np.broadcast_to(evaluate(e, {x: numbers}), len(numbers)) for e in nodes}
    slow = np.zeros(len(numbers), bool)
    for e in reversed(nodes):
        if e.op is Op.WHERE:  # masks leave out the other one
            choice, yes, no = e.args
            counts[choice] |= counts[e]
            counts[yes] |= counts[e] & values[choice]
            counts[no] |= counts[e] & ~values[choice]
            continue
        for a in e.args:
            counts[a] |= counts[e]
        if e.op in ARITHMETIC and e.dtype is dt.float32:
            for a in (e, *e.args):
                slow |= counts[e] & is_subnormal(values[a])
    return slow


def tiny(seed, low, high):
    rng = np.random.default_rng(seed)
    x = np.exp2(rng.uniform(low, high, 2000)) * rng.choice([-1, 1], 2000)
    return x.astype(np.float32)


@pytest.mark.parametrize("op", [Op.SIN, Op.COS, Op.TAN, Op.TANH, Op.ERF, Op.ERFC],
                         ids=lambda op: op.name)
@pytest.mark.parametrize("seed", seeds(2))
def test_tiny_arguments(seed, op):
    x = tiny(seed, -125.9, -10)
    slow = slow_steps(op, x)
    assert not slow.any(), x[slow][:5]


@pytest.mark.parametrize("op", [Op.COS, Op.ERFC, Op.LOG, Op.LOG2, Op.LOG10],
                         ids=lambda op: op.name)
@pytest.mark.parametrize("seed", seeds(2))
def test_subnormal_arguments(seed, op):
    x = np.abs(tiny(seed, -148.9, -126.1))
    assert is_subnormal(x).all()
    slow = slow_steps(op, x)
    assert not slow.any(), x[slow][:5]
