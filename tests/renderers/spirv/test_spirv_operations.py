"""Every row of the op table as SPIR-V that the validator takes, for each type of operands."""

import pytest
from spirv_kernels import checked, elementwise, named, shown, source, target

from weft.errors import UnsupportedError
from weft.ir import dtype as dt
from weft.ir import expr as ex
from weft.ir.op import SCALAR_OPS, Op
from weft.passes.transcendental import TRANSCENDENTALS
from weft.renderers.spirv.operations import ROWS

pytestmark = pytest.mark.requires("spirv-tools")

GOALS = {
    "everything": target(),
    "without float64": target(without=("shaderFloat64",)),
    "fused": target(fusedFloat32=True, fusedFloat64=True),
}
PLAIN = [op for op in SCALAR_OPS if op not in (Op.CAST, Op.BITCAST, Op.WHERE)]


@pytest.mark.grid
@pytest.mark.parametrize("op", PLAIN, ids=lambda op: op.name)
def test_each_row_is_valid_for_each_type(op):
    for d in dt.ALL:
        if d.kind in op.kinds:
            root, inputs = named(op, d)
            checked(source(elementwise([root], inputs)))


@pytest.mark.grid
@pytest.mark.parametrize("goal", ["without float64", "fused"])
@pytest.mark.parametrize("op", [op for op in PLAIN if op in ROWS], ids=lambda op: op.name)
def test_each_row_is_valid_on_other_devices(op, goal):
    for d in dt.ALL:
        # FLOORDIV of floats is decomposed in float64
        if d.kind in op.kinds and d is not dt.float64 and not (d.is_float and op is Op.FLOORDIV):
            root, inputs = named(op, d)
            checked(source(elementwise([root], inputs, GOALS[goal]), GOALS[goal]))


def test_the_target_has_what_there_are_rows_for():
    had = {name for name, _ in target().operations}
    assert {op.name for op in ROWS} <= had
    assert not {op.name for op in TRANSCENDENTALS} & {op.name for op in ROWS}


@pytest.mark.parametrize("source_type", dt.ALL, ids=lambda d: d.text)
def test_casts_to_every_type_are_valid(source_type):
    x = ex.var("x", source_type)
    roots = [ex.cast(x, to) for to in dt.ALL if to is not source_type]
    checked(source(elementwise(roots, [x])))


@pytest.mark.parametrize("d", dt.ALL, ids=lambda d: d.text)
def test_where_and_bitcast_are_valid(d):
    c, a, b = ex.var("c", dt.bool_), ex.var("a", d), ex.var("b", d)
    roots = [ex.where(c, a, b)]
    if not d.is_bool:
        roots += [ex.bitcast(a, dt.unsigned(d.bits)), ex.bitcast(a, dt.signed(d.bits))]
    checked(source(elementwise(roots, [c, a, b])))


def test_each_result_of_floats_is_kept_from_contraction():
    """A driver that may fuse or reassociate would change what compensated sums are made for."""
    a, b, c = (ex.var(n, dt.float32) for n in "abc")
    text = shown(checked(source(elementwise([(a * b + c) - a / b], [a, b, c]))))
    assert text.count("NoContraction") == 4
    assert "Fma" not in text


def test_multiply_adds_are_the_device_s_own_where_they_are_fused():
    root, inputs = named(Op.MAD, dt.float32)
    fused, plain = (
        shown(checked(source(elementwise([root], inputs, GOALS[goal]), GOALS[goal])))
        for goal in ("fused", "everything")
    )
    assert "Fma" in fused
    assert "Fma" not in plain


def test_divisions_by_powers_of_two_are_shifts():
    x = ex.var("x", dt.int32)
    text = shown(checked(source(elementwise([x // 8, x % 8, x // 7], [x]))))
    assert text.count("OpSDiv") == 1
    assert "OpShiftRightArithmetic" in text


def test_what_has_no_row_is_refused():
    x = ex.var("x", dt.float32)
    kernel = elementwise([x + x], [x])
    add = next(i for i in kernel.code if getattr(i, "op", None) is Op.ADD)
    code = [i.replace(op=Op.EXP, args=i.args[:1]) if i is add else i for i in kernel.code]
    with pytest.raises(UnsupportedError, match="exp of float32"):
        source(kernel.replace(code=tuple(code)))
