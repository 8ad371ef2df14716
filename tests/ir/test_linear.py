"""Kernel level: records, region matching, and the interpreter's checks."""

import numpy as np
import pytest

from weft.errors import BoundsError, VerifyError
from weft.ir import dtype as dt
from weft.ir import expr as ex
from weft.ir import linear as li
from weft.ir.interpret.interpret import run_linear
from weft.ir.linear import LinearBuilder, LinearKernel
from weft.ir.op import Op
from weft.ir.stmt import Memory

A = Memory("a", dt.int64, (ex.index(8),))


def test_identity_and_operands():
    b = LinearBuilder()
    one, two = b.const(1, dt.int64), b.const(1, dt.int64)
    assert one != two
    assert one.id + 1 == two.id
    load = li.LoadInst(b.value("x", dt.int64), A, one, None, two)
    assert load.operands() == (one, two)
    assert [v.name for v in load.results()] == ["x"]
    assert load != li.LoadInst(*load.values())
    assert li.StoreInst(A, one, two).operands() == (one, two)
    assert li.CallInst((one,), "f", (two, one)).operands() == (two, one)
    assert li.EndLoop().operands() == li.EndLoop().results() == ()


def test_every_instruction_names_its_own_fields():
    kinds = [c for c in vars(li).values() if isinstance(c, type) and issubclass(c, li.Inst)]
    for kind in kinds:
        assert set(kind._defines) | set(kind._uses) <= set(kind._fields)
    assert len(kinds) == 24


def test_typename():
    assert li.typename(dt.float32, 1) == "f32"
    assert li.typename(dt.float32, 16) == "f32x16"


def test_regions():
    b = LinearBuilder()
    n = b.const(3, dt.int64)
    t = b.const(True, dt.bool_)
    v = b.value("i", dt.int64)
    code = (li.Loop(v, n), li.IfBegin(t), li.Else(), li.EndIf(), li.WhileBegin(),
            li.WhileTest(t), li.EndWhile(), li.EndLoop())  # fmt: skip
    found = li.regions(code)
    assert {k: (r.middle, r.end) for k, r in found.items()} == {0: (None, 7), 1: (2, 3), 4: (5, 6)}


@pytest.mark.parametrize("code", [
    (li.EndLoop(),),
    (li.WhileBegin(),),
    (li.WhileBegin(), li.EndWhile()),
    (li.WhileBegin(), li.EndIf()),
    (li.Else(),),
], ids=lambda code: "-".join(type(s).__name__ for s in code))  # fmt: skip
def test_regions_that_do_not_match(code):
    with pytest.raises(VerifyError):
        li.regions(code)


def linear(builder, *params):
    return LinearKernel("k", params, (), tuple(builder.code))


def test_interpreted_access_is_checked():
    b = LinearBuilder()
    at = b.const(8, dt.int64)
    b.emit(li.StoreInst(A, at, at))
    with pytest.raises(BoundsError):
        run_linear(linear(b, A), [np.zeros(8, np.int64)])


def test_interpreted_vectors():
    b = LinearBuilder()
    zero = b.const(0, dt.int64)
    lanes = b.compute(Op.RAMP, dt.int64, 4, (zero,))
    three = b.const(3, dt.int64, 4)
    back = b.compute(Op.SUB, dt.int64, 4, (three, lanes))
    value = b.value("v", dt.int64, 4)
    mask = b.compute(Op.LT, dt.bool_, 4, (lanes, three))
    b.emit(li.LoadInst(value, A, back, mask, lanes))
    four = b.const(4, dt.int64)
    b.emit(li.StoreInst(A, four, value, mask))
    array = np.arange(10, 18)
    run_linear(linear(b, A), [array])
    assert array.tolist() == [10, 11, 12, 13, 13, 12, 11, 17]


def test_interpreted_use_before_definition():
    b = LinearBuilder()
    b.emit(li.StoreInst(A, b.value("x", dt.int64), b.value("y", dt.int64)))
    with pytest.raises(VerifyError, match="before its definition"):
        run_linear(linear(b, A), [np.zeros(8, np.int64)])
