"""Which values a kernel computes once and keeps: in a row buffer, or in memory for others."""

import numpy as np
from test_fuse import execute

import weft
from graphs import el, leaf
from weft.backends import cpu
from weft.ir import infer
from weft.ir.op import Op
from weft.ir.stmt import Alloc, Load
from weft.ir.traverse import walk
from weft.kernelize.build import kernelize


def test_scattered_values_are_staged_between_phases():
    """A value spread from a coarser grid is gathered once, for both reductions of its row."""
    x, coarse = leaf(6, 64), leaf(6, 16)
    spread = infer.reshape(infer.expand(infer.reshape(coarse, (6, 16, 1)), (6, 16, 4)), (6, 64))
    value = el(Op.MUL, x, spread)
    total = infer.expand(infer.reshape(infer.reduce(value, "sum", (1,)), (6, 1)), (6, 64))
    out = infer.reduce(el(Op.MUL, el(Op.SUB, value, total), value), "sum", (1,))
    got, wanted, (step,) = execute([out], np.random.default_rng(0))
    np.testing.assert_allclose(got[0], wanted[0], rtol=1e-4, atol=1e-3)
    body = step.kernel.body
    assert len([s for s in walk(body) if isinstance(s, Alloc)]) == 1
    assert len([s for s in walk(body) if isinstance(s, Load) and s.memory.scope == "global"]) == 2


def test_rows_that_a_device_cannot_keep_are_computed_again():
    x = el(Op.EXP, leaf(6, 64))
    total = infer.expand(infer.reshape(infer.reduce(x, "sum", (1,)), (6, 1)), (6, 64))
    out = el(Op.MUL, x, total)
    for size, kept in ((64 * 4, 1), (64 * 4 - 1, 0)):
        target = cpu.host_target()
        target = target.replace(costs=target.costs.replace(stage_bytes=size))
        (step,) = kernelize([out], target)
        assert sum(isinstance(s, Alloc) for s in walk(step.kernel.body)) == kept


def test_costly_values_with_several_readers_are_kept():
    """A long expensive value is stored once; unsigned steps of a generator are not."""
    def chain(x, op, steps):
        for _ in range(steps):
            x = el(op, x)
        return x

    value = chain(leaf(8, 32), Op.SIN, 60)
    outs = [infer.reduce(el(Op.EXP, value), "sum", (0,)),
            infer.reduce(el(Op.MUL, value, value), "sum", (1,))]
    got, wanted, steps = execute(outs, np.random.default_rng(0))
    for a, b in zip(got, wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)
    assert any(value in step.outputs for step in steps)


def test_dropout_masks_agree_in_both_directions():
    x = weft.ones(8, 32, requires_grad=True)
    y = weft.nn.functional.dropout(x, 0.5)
    (y * y).sum().backward()
    assert ((x.grad.numpy() != 0) == (y.detach().numpy() != 0)).all()
