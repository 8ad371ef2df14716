"""Masked accesses touch the lanes of their mask and not one byte more, whatever was narrowed.

LLVM 22 wrote a whole int32 for the last int16 of an array where it knew that a mask holds in one
lane. So every pair of types and every number of lanes is tried, with the array's end in the middle
of memory that has to stay as it was.
"""

import itertools

import compiled
import numpy as np
import pytest

from weft.backends import cpu
from weft.ir import dtype as dt
from weft.ir import expr as ex
from weft.ir.op import Op
from weft.ir.stmt import VECTOR, For, If, Kernel, Load, Memory, Store
from weft.passes.legalize import Legalizer, legalize
from weft.passes.linearize import linearize
from weft.passes.vector.vectorize import vectorize

AROUND = 64  # bytes before and behind an array
TYPES = (dt.bool_, dt.int8, dt.uint8, dt.int16, dt.int32, dt.uint32, dt.int64, dt.float16,
         dt.bfloat16, dt.float32, dt.float64)  # fmt: skip


def _between(values):
    """Return an array of some bytes, and the memory around it."""
    room = np.full(values.nbytes + 2 * AROUND, 0xA5, np.uint8)
    inside = room[AROUND : AROUND + values.nbytes]
    inside[:] = values.reshape(-1).view(np.uint8)
    return inside.view(values.dtype), room


def _values(x, target):
    """Return what is stored, of a type: a conversion, and arithmetic that may be widened."""
    cast = ex.cast(x, target)
    out = [cast]
    if target.is_integer:
        out += [ex.binary(Op.MUL, cast, cast), ex.where(cast.lt(3), cast, cast + cast)]
    elif target.is_float:
        out.append(cast * cast)
    return out


@pytest.mark.parametrize("lanes", [4, 8, 16])
@pytest.mark.parametrize("source", TYPES)
def test_no_byte_beside_the_lanes_is_written(source, lanes):
    host = cpu.host_target()
    i, body, params, wanted = ex.var("i"), [], [], []
    data = (np.arange(lanes) % 5 + 1).astype(source.numpy)
    for count, target in itertools.product((1, 2, lanes - 1), TYPES):
        for form in range(len(_values(ex.var("x", source), target))):
            # What is narrowed once is joined with its store, so each store has its own.
            x, number = ex.var(f"x{len(wanted)}", source), len(wanted)
            read = Memory(f"a{number}", source, (ex.index(lanes),))
            out = Memory(f"o{number}", target, (ex.index(count),))
            body += [Load(x, read, (i,)),
                     If(i.lt(count), (Store(out, (i,), _values(x, target)[form]),))]
            params += [read, out]
            wanted.append((target, count))
    nest = Kernel("k", tuple(params), (For(i, ex.index(lanes), VECTOR, tuple(body)),))
    linear = linearize(vectorize(legalize(nest, host), Legalizer(host).one))
    arrays, rooms = [], []
    for target, count in wanted:
        array, room = _between(np.zeros(count, target.numpy))
        arrays += [data.copy(), array]
        rooms.append(room)
    code, _ = compiled.run(linear, arrays)
    assert code == 0
    wrong = [f"{count} of {target}" for (target, count), room in zip(wanted, rooms, strict=True)
             if (room[:AROUND] != 0xA5).any() or (room[-AROUND:] != 0xA5).any()]
    assert not wrong
