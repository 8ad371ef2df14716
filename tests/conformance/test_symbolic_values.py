"""One plan for every value of a symbolic size: results are those of the plain sizes."""

import numpy as np
import pytest
from values import assert_same, random

import oracle
from graphs import el
from weft import driver
from weft.ir import dtype as dt
from weft.ir import expr as ex
from weft.ir import infer
from weft.ir import node as nd
from weft.ir.op import Op

MOST = 300
SIZES = (1, 2, 3, 13, 16, 17, 64, 65, 300)


def elementwise(x, n):
    return el(Op.MUL, x, infer.expand(nd.const(3, x.dtype), (n, 5)))


def columns(x, n):
    return infer.reduce(x, "sum", (0,))


def rows(x, n):
    return infer.reduce(x, "max", (1,))


def running(x, n):
    return infer.scan(x, "sum", 0)


def turned(x, n):
    return infer.contiguous(infer.permute(infer.pad(x, (1, 0), (0, 2), 4), (1, 0)))


def prefix(x, n):
    return infer.slice_(x, (0, 1), (n, 3))


def spread(x, n):
    total = infer.reduce(x, "sum", (1,))
    return el(Op.SUB, x, infer.expand(infer.reshape(total, (n, 1)), (n, 5)))


PROGRAMS = (elementwise, columns, rows, running, turned, prefix, spread)


@pytest.mark.grid
@pytest.mark.parametrize("d", [dt.int32, dt.uint8, dt.int64], ids=lambda d: d.name)
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_every_size(program, d, device, rng):
    n = ex.Variable("n", 1, MOST)
    full = random(d, (MOST, 5), rng)
    whole = device.leaf(full)
    part = infer.contiguous(infer.slice_(whole, (0, 0), (n, 5)))
    compiled = driver.compile([program(part, n)], [])
    for size in SIZES:
        (want,) = oracle.evaluate([program(device.leaf(full[:size]), size)])
        buffers = [s.buffer for s in compiled.captured]
        (out,) = compiled.call([], buffers, {"n": size})
        assert_same(oracle.array_of(out, d, want.shape).copy(), np.asarray(want, order="C"))
